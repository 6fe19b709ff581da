package delayqueue

import (
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A simulation is workers and their members in virtual time: the queues and their server are simulated, the rest is real.
type simulation struct {
	ws     *workers
	server chan struct{} // it answers one fetch after the other
	end    chan struct{}
	queues []*simulatedQueue

	polling sync.WaitGroup
}

type simulatedQueue struct {
	*member
	sim     *simulation
	handler time.Duration
	rtt     time.Duration      // of a fetch
	expired bool               // no handler sees what a fetch brings
	due     chan int           // cap 1: messages; < 0: without end
	sent    signal             // a wake-up
	away    chan chan struct{} // cap 1: the server does not answer before this closes

	settler settler
	counts  chan simulatedCounts // cap 1
}

// simulatedCounts say what a queue got.
type simulatedCounts struct {
	handled, running, most, released, aside int
	busy                                    time.Duration // of all its workers together
}

func simulate(t *testing.T, workerCount int, strict bool, run func(*simulation)) {
	synctest.Test(t, func(t *testing.T) {
		s := &simulation{ws: &workers{size: workerCount, strict: strict, shared: true, lapseAfter: lapseAfter}, server: make(chan struct{}, 1), end: make(chan struct{})}
		run(s)
		close(s.end)
		s.polling.Wait()
		for _, q := range s.queues {
			for q.unhandled() > 0 {
				<-q.freed
			}
			q.leave()
			q.settler.close()
			q.settler.lifecycle.drainTimer.Stop()
		}
		synctest.Wait()
		if ws := s.ws; ws.used != 0 || ws.held != 0 || len(ws.stuck)+len(ws.running)+len(ws.filled)+len(ws.hungry)+len(ws.members) != 0 {
			t.Errorf("something is left: %+v", ws)
		}
	})
}

// queue adds one, with so many messages due.
func (s *simulation) queue(weight, atMost, due int, handler time.Duration, set ...func(*simulatedQueue)) *simulatedQueue {
	freed := newSignal()
	q := &simulatedQueue{
		sim: s, handler: handler, rtt: 100 * time.Microsecond, due: make(chan int, 1), away: make(chan chan struct{}, 1), sent: newSignal(), counts: make(chan simulatedCounts, 1),
		member: s.ws.join(freed, weight, atMost, len(s.queues)),
	}
	q.counts <- simulatedCounts{}
	q.due <- due
	settings := defaultSettings(q.handle)
	settings.log = slog.New(slog.DiscardHandler)
	q.settler = settler{settings: &settings, member: q.member}
	q.settler.lifecycle = newLifecycle(time.Hour, settings.log, func() bool { return true })
	q.settler.outbox.read = q.settle
	s.queues = append(s.queues, q)
	for _, f := range set {
		f(q)
	}
	s.polling.Go(q.poll)
	return q
}

func (q *simulatedQueue) count(change func(*simulatedCounts)) simulatedCounts {
	c := <-q.counts
	change(&c)
	q.counts <- c
	return c
}

func (q *simulatedQueue) now() simulatedCounts { return q.count(func(*simulatedCounts) {}) }

func (q *simulatedQueue) handle(string) bool {
	q.count(func(c *simulatedCounts) { c.running++; c.most = max(c.most, c.running) })
	if q.handler > 0 {
		select {
		case <-time.After(q.handler):
		case <-q.sim.end:
		}
	}
	q.count(func(c *simulatedCounts) { c.running--; c.handled++; c.busy += q.handler })
	return true
}

func (q *simulatedQueue) settle() {
	for {
		batch := q.settler.outbox.some(maxBatch)
		if len(batch) == 0 {
			return
		}
		for _, o := range batch {
			if o.kind == outcomeReady {
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
	q.sent.send()
}

// poll does what a poller does.
func (q *simulatedQueue) poll() {
	defer q.quit()
	more := q.fetch(true)
	for !closed(q.sim.end) {
		if q.room(maxBatch, more, q.rtt) > 0 && more {
			more = q.fetch(more)
			continue
		}
		idle := time.Second
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
			more = q.fetch(more)
		}
	}
}

func (q *simulatedQueue) fetch(hungry bool) (more bool) {
	n := q.ask(maxBatch, hungry, q.rtt, q.rtt)
	defer q.answered()
	select {
	case back := <-q.away:
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
		q.setAside(n)
		q.count(func(c *simulatedCounts) { c.aside += n })
		return due != 0
	}
	ds := make([]*delivery, n)
	for i := range ds {
		ds[i] = &delivery{settler: &q.settler, fetched: time.Now()}
		ds[i].leased.set(time.Now())
	}
	q.put(ds)
	return due != 0
}

// parts is how much of 10 each queue has of a number.
func (s *simulation) parts(number func(simulatedCounts) float64) (parts []float64) {
	all := 0.0
	for _, q := range s.queues {
		parts = append(parts, number(q.now()))
		all += parts[len(parts)-1]
	}
	for i := range parts {
		parts[i] *= 10 / all
	}
	return parts
}

func handled(c simulatedCounts) float64    { return float64(c.handled) }
func inHandlers(c simulatedCounts) float64 { return c.busy.Seconds() }

// wantParts checks parts against weights, to a tenth.
func wantParts(t *testing.T, parts []float64, weights ...float64) {
	t.Helper()
	for i, w := range weights {
		if parts[i] < 0.9*w || parts[i] > 1.1*w {
			t.Errorf("queue %d has %.2f of 10, want %v", i, parts[i], w)
		}
	}
}

// TestSharesByWeight: with something due everywhere, each queue's part is its weight's, whether handlers take no time or long,
// and whether the workers are more than the weights or fewer.
func TestSharesByWeight(t *testing.T) {
	for _, workers := range []int{1, 3, 10, 64} {
		for _, handler := range []time.Duration{0, time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond} {
			t.Run(fmt.Sprint(workers, " workers of ", handler), func(t *testing.T) {
				simulate(t, workers, false, func(s *simulation) {
					for _, w := range []int{6, 3, 1} {
						s.queue(w, 0, -1, handler)
					}
					took := max(time.Second/5, 100*handler)
					time.Sleep(took)
					wantParts(t, s.parts(handled), 6, 3, 1)
					all := 0
					for _, q := range s.queues {
						if all += q.now().handled; q.now().released > 0 {
							t.Errorf("%d were fetched for nothing", q.now().released)
						}
					}
					if possible := float64(workers) * took.Seconds() / handler.Seconds(); float64(all) < 0.75*possible && handler > 0 {
						t.Errorf("%d handled of %.0f", all, possible)
					}
				})
			})
		}
	}
}

// TestSharesOfUnequalHandlers: it is workers that are shared, so one queue's slow handlers have no more of them.
func TestSharesOfUnequalHandlers(t *testing.T) {
	simulate(t, 10, false, func(s *simulation) {
		s.queue(6, 0, -1, 5*time.Millisecond)
		s.queue(3, 0, -1, 10*time.Millisecond)
		s.queue(1, 0, -1, time.Second)
		time.Sleep(20*time.Second + 100*time.Millisecond)
		wantParts(t, s.parts(inHandlers), 6, 3, 1)
	})
}

// TestSharesOfTheIdle: what a queue does not use the others may, and it has no more than its share for that later.
func TestSharesOfTheIdle(t *testing.T) {
	simulate(t, 10, false, func(s *simulation) {
		idle := s.queue(6, 0, 0, 10*time.Millisecond)
		s.queue(3, 0, -1, 10*time.Millisecond)
		s.queue(1, 0, -1, 10*time.Millisecond)
		time.Sleep(2 * time.Second)
		wantParts(t, s.parts(inHandlers)[1:], 7.5, 2.5)
		if n := s.queues[1].now().handled + s.queues[2].now().handled; n < 1800 {
			t.Errorf("%d handled of 2000", n)
		}
		before := s.queues[1].now().handled
		idle.send(-1)
		time.Sleep(10 * time.Second)
		if now, other := idle.now().handled, s.queues[1].now().handled-before; now < 5400 || now > 6300 || other < 2700 {
			t.Errorf("%d handled beside %d, want about 6000 and 3000", now, other)
		}
	})
}

// TestSharesComeBack: workers that one queue had alone come to another one as its handlers return, until that has its share.
func TestSharesComeBack(t *testing.T) {
	simulate(t, 10, false, func(s *simulation) {
		s.queue(1, 0, -1, time.Second)
		late := s.queue(4, 0, 0, 10*time.Millisecond)
		time.Sleep(1500 * time.Millisecond)
		late.send(-1)
		time.Sleep(600 * time.Millisecond) // all ten have returned once
		before := late.now().handled
		time.Sleep(10 * time.Second)
		if n := late.now().handled - before; n < 7200 || n > 8100 {
			t.Errorf("%d handled, want about 8000, of 8 workers", n)
		}
	})
}

// TestSharesAtMost: handlers of ten minutes have no more workers than AtMost, and the other queues have the rest.
func TestSharesAtMost(t *testing.T) {
	for _, strict := range []bool{false, true} {
		simulate(t, 64, strict, func(s *simulation) {
			bulk := s.queue(6, 16, -1, 10*time.Minute)
			time.Sleep(time.Second)
			other := s.queue(1, 0, -1, 10*time.Millisecond)
			quick := s.queue(1, 1, -1, time.Microsecond)
			time.Sleep(time.Second / 2)
			if c := bulk.now(); c.running != 16 || c.most != 16 {
				t.Errorf("%+v, want 16 at a time", c)
			}
			if c := quick.now(); c.most > 1 || !strict && c.handled < 300 {
				t.Errorf("%+v, want 1 at a time", c)
			}
			if n := other.now().handled; n < 2000 || n > 2400 {
				t.Errorf("%d handled, want about 2350, of 47 workers", n)
			}
		})
	}
}

// TestSharesWithoutAServer: a queue whose server does not answer holds no worker, and has its share when it is back.
func TestSharesWithoutAServer(t *testing.T) {
	for _, strict := range []bool{false, true} {
		simulate(t, 10, strict, func(s *simulation) {
			first := s.queue(6, 0, -1, 10*time.Millisecond)
			other := s.queue(3, 0, -1, 10*time.Millisecond)
			time.Sleep(time.Second)
			if n := other.now().handled; strict != (n == 0) {
				t.Errorf("strict %v: %d of the second queue handled beside the first", strict, n)
			}
			back := make(chan struct{})
			first.away <- back
			time.Sleep(lapseAfter + 100*time.Millisecond)
			before := other.now().handled
			time.Sleep(time.Second)
			if n := other.now().handled - before; n < 900 {
				t.Errorf("strict %v: %d of the second queue handled of 1000", strict, n)
			}
			before = first.now().handled
			close(back)
			time.Sleep(time.Second)
			if n := first.now().handled - before; n < 500 {
				t.Errorf("strict %v: %d of the first queue handled after the outage", strict, n)
			}
		})
	}
}

// TestSharesOfAFarServer: a queue whose fetches take longer than lapseAfter gets workers all the same, beside one that is
// near and has handlers longer than what is fetched may wait.
func TestSharesOfAFarServer(t *testing.T) {
	for _, strict := range []bool{false, true} {
		simulate(t, 4, strict, func(s *simulation) {
			far := s.queue(100, 0, -1, 300*time.Millisecond, func(q *simulatedQueue) { q.rtt = 150 * time.Millisecond })
			near := s.queue(1, 0, -1, 300*time.Millisecond)
			time.Sleep(9 * time.Second)
			if n := far.now().handled; n < 60 {
				t.Errorf("strict %v: %d handled of 80, beside %d, and %d fetched for nothing", strict, n, near.now().handled, far.now().released)
			}
		})
	}
}

// TestSharesOfTheExpired: a backlog that no handler sees does not hold up the other queue.
func TestSharesOfTheExpired(t *testing.T) {
	for _, workers := range []int{1, 8} {
		simulate(t, workers, false, func(s *simulation) {
			expired := s.queue(1, 0, -1, 0, func(q *simulatedQueue) { q.expired = true })
			good := s.queue(1, 0, -1, 0)
			time.Sleep(time.Second)
			if a, n := expired.now().aside, good.now().handled; n < a/2 {
				t.Errorf("%d workers: %d handled while %d expired ones were set aside", workers, n, a)
			}
		})
	}
}

// TestSharesInOrder: in a strict pool a queue is asked only while none before it has anything due, nothing is fetched that no
// worker is free for, and a message of the first queue gets the next worker.
func TestSharesInOrder(t *testing.T) {
	simulate(t, 4, true, func(s *simulation) {
		first := s.queue(1, 0, 1000, 10*time.Millisecond)
		second := s.queue(100, 0, -1, 100*time.Millisecond)
		time.Sleep(2 * time.Second)
		if n := first.now().handled; n < 700 || n == 1000 || second.now().handled > 0 {
			t.Errorf("%d of the first handled, and %d of the second", n, second.now().handled)
		}
		time.Sleep(2 * time.Second)
		for range 50 {
			first.send(1)
			before := first.now().handled
			time.Sleep(115 * time.Millisecond) // until a handler of the second queue has returned, and this one too
			if n := first.now().handled - before; n != 1 {
				t.Fatalf("%d handled", n)
			}
		}
		for _, q := range s.queues {
			if c := q.now(); c.released > 0 {
				t.Errorf("fetched for nothing: %+v", c)
			}
		}
		if n := second.now().handled; n < 4*60 {
			t.Errorf("%d of the second handled", n)
		}
	})
}
