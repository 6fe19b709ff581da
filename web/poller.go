package web

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/health"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/go-delayqueue/delayqueue/schedule"
	"github.com/redis/go-redis/v9"
)

// This file has the one reader of a Handler. It reads all queues in rounds while somebody looks, and is not there
// otherwise.

const (
	atOnce    = 8   // queues that are read at a time
	maxQueues = 500 // that are shown, if they are not named

	findLimit = 10 * time.Second // of looking for queues
	findAgain = time.Minute      // from one look for queues to the next, and longer where that takes long
)

// A snapshot is what a round has found. Nobody changes it.
type snapshot struct {
	At      time.Time      // when the round began
	Queues  []*health.Look // by name
	Trouble error          // why queues may be missing
	Hidden  bool           // there are more than maxQueues
	Servers health.Level   // how the servers are, if this user may ask
}

// queue is what is known of one; nil if it is not among those that are read.
func (s *snapshot) queue(name string) *health.Look {
	i, ok := slices.BinarySearchFunc(s.Queues, name, func(l *health.Look, name string) int {
		return cmp.Compare(l.Name, name)
	})
	if !ok {
		return nil
	}
	return s.Queues[i]
}

// A poller reads. Its goroutine is there only while somebody looks.
type poller struct {
	h *Handler

	mu       sync.Mutex
	running  bool
	watchers int       // open feeds
	lastLook time.Time // by a request
	current  *snapshot
	rounds   int           // since New
	next     chan struct{} // closed with the next snapshot

	// Of the goroutine alone.
	monitors map[string]*ops.Queue
	watcher  health.Watcher
	found    finding
	looking  chan finding // of the look for queues that is under way; nil: none is
	servers  health.Level
	asked    time.Time // when the servers were asked last; a user who may not is not asked again
	mayAsk   bool
}

func newPoller(h *Handler) *poller {
	return &poller{h: h, next: make(chan struct{}), mayAsk: true,
		watcher: health.Watcher{Reader: h.reader(), AtOnce: atOnce}}
}

// reader reads queues as this page judges them.
func (h *Handler) reader() health.Reader {
	return health.Reader{Limits: health.Limits{Handler: h.cfg.HungAfter, Lane: h.cfg.LaneAfter}, Unsent: unsent}
}

// unsent are the schedules of a queue for which nothing is sent.
func unsent(ctx context.Context, m *ops.Queue) ([]health.Unsent, error) {
	list, err := schedule.Unsent(ctx, m.Monitor())
	all := make([]health.Unsent, len(list))
	for i := range list {
		all[i] = health.Unsent{Name: list[i].Name, Reason: list[i].Reason(), Since: list[i].Overdue}
	}
	return all, err
}

// wake starts the goroutine if it is not there. It is called with mu.
func (p *poller) wake() {
	p.lastLook = time.Now()
	if !p.running && p.h.work.enter("") == nil {
		p.running = true
		go p.run()
	}
}

// snapshot is the newest one, which is at most about as old as a round and an interval. It waits for one if need be.
func (p *poller) snapshot(ctx context.Context) (*snapshot, error) {
	for {
		p.mu.Lock()
		p.wake()
		now, next := p.current, p.next
		p.mu.Unlock()
		if now != nil && time.Since(now.At) < 2*p.h.bounds.interval+p.h.bounds.round {
			return now, nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return nil, context.DeadlineExceeded
		case <-p.h.done.Done():
			return nil, errClosed
		}
	}
}

// watch keeps the poller going until the result is called.
func (p *poller) watch() (leave func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watchers++
	p.wake()
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.watchers--
		p.lastLook = time.Now()
	}
}

// changed is closed when there is a newer snapshot than the present one.
func (p *poller) changed() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.next
}

// wanted says whether to go on; if not, the poller counts as gone.
func (p *poller) wanted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.h.done.Err() == nil && (p.watchers > 0 || time.Since(p.lastLook) < p.h.bounds.linger) {
		return true
	}
	p.running, p.current = false, nil // what comes later must not see old numbers
	return false
}

func (p *poller) run() {
	defer p.h.work.leave("")
	for p.wanted() {
		begun := time.Now()
		s := p.round(begun)
		p.mu.Lock()
		p.current, p.rounds = s, p.rounds+1
		close(p.next)
		p.next = make(chan struct{})
		p.mu.Unlock()
		pause := time.NewTimer(max(p.h.bounds.interval-time.Since(begun), time.Since(begun)))
		select {
		case <-pause.C:
		case <-p.h.done.Done():
		}
		pause.Stop()
	}
}

// round reads all queues.
func (p *poller) round(now time.Time) *snapshot {
	s := &snapshot{At: now}
	names := p.h.cfg.Queues
	if len(names) == 0 {
		found := p.find(now)
		names, s.Hidden, s.Trouble = found.names, found.hidden, found.trouble
	}
	ctx, cancel := context.WithTimeout(p.h.done, p.h.bounds.round)
	defer cancel()
	known := p.monitors
	p.monitors = make(map[string]*ops.Queue, len(names))
	monitors := make([]*ops.Queue, len(names))
	for i, name := range names {
		if monitors[i] = known[name]; monitors[i] == nil {
			monitors[i] = p.h.newMonitor(name)
		}
		p.monitors[name] = monitors[i]
	}
	p.watcher.Limit = p.h.bounds.queue
	var asking sync.WaitGroup // beside the queues, because one server may not answer
	if p.mayAsk && now.Sub(p.asked) >= keepHealth {
		asking.Go(func() { p.askServers(ctx, now) })
	}
	s.Queues = p.watcher.Read(ctx, monitors)
	asking.Wait()
	s.Servers = p.servers
	return s
}

// askServers finds out how the servers are, for the board: of a replica, which takes no writes, the queues say nothing.
func (p *poller) askServers(ctx context.Context, now time.Time) {
	ctx, cancel := context.WithTimeout(ctx, p.h.bounds.queue)
	defer cancel()
	all, err := health.Infos(ctx, p.h.cli)
	p.asked, p.mayAsk, p.servers = now, !redis.HasErrorPrefix(err, "NOPERM"), health.Fine
	if err != nil { // the queues say so
		return
	}
	for _, one := range all {
		for _, c := range one.Checks() {
			p.servers = max(p.servers, c.Level)
		}
	}
}

// A finding is what a look for queues has found. The goroutine of the poller has the last one.
type finding struct {
	names   []string
	hidden  bool // there are more
	trouble error
	again   time.Time // when to look again; zero: no look has ended
}

// find returns what is known now. It begins a look if it is time, which goes on beside the rounds, and waits for the
// first one.
func (p *poller) find(now time.Time) finding {
	if p.looking == nil && !now.Before(p.found.again) && p.h.work.enter("") == nil {
		looking, before := make(chan finding, 1), p.found.names
		p.looking = looking
		go func() {
			defer p.h.work.leave("")
			looking <- p.h.find(before)
		}()
	}
	wait := time.Duration(0)
	if p.found.again.IsZero() {
		wait = p.h.bounds.find
	}
	select {
	case p.found = <-p.looking:
		p.looking = nil
	case <-time.After(wait):
		if wait > 0 {
			return finding{trouble: context.DeadlineExceeded} // none is known, but that does not say that there is none
		}
	}
	return p.found
}

// find looks through the keyspace. After an error, what was there before may be there still.
func (h *Handler) find(before []string) (f finding) {
	ctx, cancel := context.WithTimeout(h.done, findLimit)
	defer cancel()
	begun := time.Now()
	for name, err := range ops.Queues(ctx, h.cli, delayqueue.UseCustomPrefix(h.cfg.Prefix)) {
		if err != nil {
			f.trouble = err
			f.names = append(f.names, before...)
		} else if f.names = append(f.names, name); len(f.names) > maxQueues {
			break
		}
	}
	f.names = slices.Compact(slices.Sorted(slices.Values(f.names)))
	f.hidden = len(f.names) > maxQueues
	f.names = f.names[:min(len(f.names), maxQueues)]
	f.again = time.Now().Add(max(findAgain, 20*time.Since(begun)))
	if len(f.names) == 0 {
		f.again = time.Now().Add(2 * h.bounds.interval) // somebody has only just begun
	}
	return f
}
