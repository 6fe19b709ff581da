package consume

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/conc"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// A simulation is workers and their members in virtual time: the queues and their server are simulated, the rest is
// real.
type simulation struct {
	ws     *Workers
	server chan struct{} // it answers one fetch after the other
	end    chan struct{}
	queues []*simulatedQueue
	shards int // queues that are added are shards of one, which is the first in order; 0: each is one

	polling sync.WaitGroup
}

type simulatedQueue struct {
	*member
	sim      *simulation
	handler  time.Duration
	slow     time.Duration      // what one handler in a hundred takes; 0: as long as the others
	rtt      time.Duration      // of a fetch
	measured time.Duration      // as the poller measures it
	expired  bool               // no handler sees what a fetch brings
	due      chan int           // cap 1: messages; < 0: without end
	sent     conc.Signal        // a wake-up
	away     chan chan struct{} // cap 1: the server does not answer before this closes

	consumer Consumer
	mu       sync.Mutex // guards counts
	counts   simulatedCounts
}

// simulatedCounts say what a queue got.
type simulatedCounts struct {
	handled, running, most, released, aside int
	fetching                                bool
	busy                                    time.Duration // of all its workers together
	begun                                   time.Time     // when its last handler began
}

func simulate(t *testing.T, workerCount int, strict bool, run func(*simulation)) {
	synctest.Test(t, func(t *testing.T) {
		s := &simulation{ws: &Workers{size: workerCount, strict: strict, shared: true},
			server: make(chan struct{}, 1), end: make(chan struct{})}
		s.polling.Go(func() { s.watch(t) })
		run(s)
		close(s.end)
		s.polling.Wait()
		for _, q := range s.queues {
			for q.unhandled() > 0 {
				<-q.freed
			}
			q.leave()
			q.consumer.settler.close()
			q.consumer.lifecycle.drainTimer.Stop()
		}
		synctest.Wait()
		if ws := s.ws; ws.used != 0 || len(ws.stuck)+len(ws.running)+len(ws.filled)+len(ws.hungry)+len(ws.members) != 0 {
			t.Errorf("something is left: %+v", ws)
		}
	})
}

// portion makes that of a queue one of a shard, if queues are shards.
func (s *simulation) portion(at Portion) Portion {
	if s.shards > 0 {
		at.Weight, at.Order, at.Grouped = at.Weight/float64(s.shards), -1, true
	}
	return at
}

// queue adds one, with so many messages due.
func (s *simulation) queue(weight, atMost, due int, handler time.Duration,
	set ...func(*simulatedQueue)) *simulatedQueue {
	q := &simulatedQueue{
		sim: s, handler: handler, rtt: 100 * time.Microsecond, due: make(chan int, 1), away: make(chan chan struct{}, 1),
		sent:   conc.NewSignal(),
		member: s.ws.join(s.portion(Portion{Weight: float64(weight), AtMost: atMost, Order: len(s.queues)})),
	}
	q.due <- due
	q.consumer.member = q.member
	q.consumer.settings = Settings{Callback: q.handle, Base: context.Background(), Log: slog.New(slog.DiscardHandler),
		FetchSettings: script.FetchSettings{Lease: 10 * time.Second}}
	q.consumer.lifecycle = newLifecycle(time.Hour, q.consumer.settings.Log, func() bool { return true })
	q.consumer.settler.lifecycle, q.consumer.settler.outbox.Read = q.consumer.lifecycle, q.settle
	s.ws.mu.Lock() // watch reads
	s.queues = append(s.queues, q)
	s.ws.mu.Unlock()
	for _, f := range set {
		f(q)
	}
	s.polling.Go(q.poll)
	return q
}

func (q *simulatedQueue) count(change func(*simulatedCounts)) simulatedCounts {
	q.mu.Lock()
	defer q.mu.Unlock()
	change(&q.counts)
	return q.counts
}

func (q *simulatedQueue) now() simulatedCounts { return q.count(func(*simulatedCounts) {}) }

func (q *simulatedQueue) handle(string) bool {
	began := time.Now()
	q.count(func(c *simulatedCounts) { c.running++; c.most = max(c.most, c.running); c.begun = began })
	select {
	case <-time.After(q.takes()):
	case <-q.sim.end:
	}
	q.count(func(c *simulatedCounts) { c.running--; c.handled++; c.busy += max(time.Since(began), leastTime) })
	return true
}

// takes is how long a handler takes.
func (q *simulatedQueue) takes() time.Duration {
	if q.slow > 0 && rand.IntN(100) == 0 {
		return q.slow
	}
	return max(q.handler, time.Microsecond)
}

func (q *simulatedQueue) settle() {
	for {
		batch := q.consumer.settler.outbox.All()
		if len(batch) == 0 {
			return
		}
		for _, o := range batch {
			if o.kind == script.OutcomeReady {
				q.count(func(c *simulatedCounts) { c.released++ })
			}
		}
	}
}

// send sends n more messages; < 0: without end.
func (q *simulatedQueue) send(n int) {
	due := <-q.due
	if n < 0 {
		q.due <- -1
	} else {
		q.due <- due + n
	}
	q.sent.Send()
}

// poll does what a poller does.
func (q *simulatedQueue) poll() {
	defer q.quit()
	more, nextPoll := q.fetch(true), time.Now().Add(time.Second)
	for !conc.Closed(q.sim.end) {
		if n, _ := q.room(script.MaxBatch, more, q.measured); n > 0 && more {
			more = q.fetch(more)
			continue
		}
		idle := time.Until(nextPoll)
		if at, ok := q.staleAt(); ok {
			idle = min(idle, time.Until(at))
		}
		select {
		case <-q.sim.end:
		case <-q.freed:
		case <-q.sent:
			more = q.fetch(more)
		case <-time.After(idle):
			q.releaseStale()
			if !time.Now().Before(nextPoll) {
				more, nextPoll = q.fetch(more), time.Now().Add(time.Second)
			}
		}
	}
}

func (q *simulatedQueue) fetch(hungry bool) (more bool) {
	n, began := q.ask(script.MaxBatch, hungry, q.measured), time.Now()
	defer q.endFetch()
	q.count(func(c *simulatedCounts) { c.fetching = true })
	defer q.count(func(c *simulatedCounts) { c.fetching = false })
	defer func() {
		took := time.Since(began)
		if q.measured == 0 {
			q.measured = took
		}
		q.measured += (took - q.measured) / 8
	}()
	select {
	case back := <-q.away:
		select {
		case <-time.After(time.Second): // an attempt
			q.withdraw()
		case <-q.sim.end:
		}
		select {
		case <-back:
		case <-q.sim.end:
		}
	default:
	}
	time.Sleep(q.rtt)
	q.sim.server <- struct{}{}
	due := <-q.due
	if due >= 0 {
		n = min(n, due)
		due -= n
	}
	q.due <- due
	time.Sleep(10*time.Microsecond + time.Duration(n)*2*time.Microsecond)
	<-q.sim.server
	time.Sleep(time.Duration(n) * time.Microsecond) // to decode it
	if q.expired {
		q.put(nil, n)
		q.count(func(c *simulatedCounts) { c.aside += n })
		return due != 0
	}
	ds, l := make([]*delivery, n), unknownLease()
	l.began.Set(time.Now())
	for i := range ds {
		ds[i] = &delivery{consumer: &q.consumer, lease: l, fetched: time.Now(), terms: &noTerms}
	}
	q.put(ds, 0)
	return due != 0
}

// watch checks that a fetch follows at once if a worker is free for a queue that has something due.
func (s *simulation) watch(t *testing.T) {
	for since := time.Now(); ; {
		select {
		case <-s.end:
			return
		case <-time.After(ms):
		}
		synctest.Wait() // whoever goes on at this instant has done so
		if !s.standsStill() {
			since = time.Now()
		} else if took := time.Since(since); took > 5*ms {
			t.Errorf("nothing is fetched, though workers are free and something has been due for %v", took)
			return
		}
	}
}

func (s *simulation) standsStill() bool {
	s.ws.mu.Lock()
	defer s.ws.mu.Unlock()
	waits := false
	for _, q := range s.queues {
		if !q.hungry {
			continue
		}
		if q.now().fetching {
			return false
		}
		waits = waits || q.busy < q.most()
	}
	return waits && s.ws.used < s.ws.size && len(s.ws.filled) == 0
}

// inHandlers is how many workers each queue has had in so much time.
func (s *simulation) inHandlers(took time.Duration) (workers []float64) {
	for _, q := range s.queues {
		workers = append(workers, q.now().busy.Seconds()/took.Seconds())
	}
	return workers
}

// wantParts checks that parts are as these weights, to a tenth.
func wantParts(t *testing.T, parts []float64, weights ...float64) {
	t.Helper()
	all, weight := 0.0, 0.0
	for i := range parts {
		all, weight = all+parts[i], weight+weights[i]
	}
	for i, w := range weights {
		if part := parts[i] / all * weight; part < 0.9*w || part > 1.1*w {
			t.Errorf("queue %d has %.2f of %v, want %v", i, part, weight, w)
		}
	}
}

// handledIn waits, and is how many the queue has handled meanwhile.
func (q *simulatedQueue) handledIn(took time.Duration) int {
	before := q.now().handled
	time.Sleep(took)
	return q.now().handled - before
}
