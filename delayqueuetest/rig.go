package delayqueuetest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/clock"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	mostAtOnce = 10_000 // deliveries of one queue at one instant, until a test is taken for one that never ends
	mostOfOne  = 100    // of one message
	// for which a handler has run, after which other queues are handled beside it: it may wait for them
	besideAfter = 2 * time.Second
	hintAfter   = 6 * time.Second // after which the test's log says so
)

// A Rig is a Redis inside a test, whose clock stands still until Advance moves it, and queues on it. Its methods but
// Client and Now are for the test's goroutine alone. They end the test when they cannot do what they should.
type Rig struct {
	t      testing.TB
	cli    *redis.Client
	server *miniredis.Miniredis
	bubble bool // the clock is that of a bubble of testing/synctest, and moves by sleeping

	queues  []*rigged
	record  record
	armed   chan struct{} // cap 1: an alarm was set
	awaited chan struct{} // cap 1: somebody waits for a result
	running bool          // Advance is at work

	mu  sync.Mutex // guards the field below
	now time.Time
}

// rigged is a queue that Advance handles.
type rigged struct {
	*delayqueue.DelayQueue
	prefix   string
	draining bool

	mu      sync.Mutex     // guards the fields below
	atOnce  int            // deliveries at this instant
	ofOne   map[string]int // of them, by message
	moved   time.Time      // when the drain began, or a handler last began or returned
	endless string         // payload of a message that comes again and again; "": none does
	cancel  context.CancelFunc
}

// New makes a rig, which ends with the test. Its clock is some two minutes ahead of this machine's: what is scheduled
// by time.Now().Add(d) is due no later than d after the start. Any number of tests may have one each, side by side.
//
// In a bubble of testing/synctest the rig's clock is that of the bubble, and New lets its time pass until 2030-01-01.
func New(t testing.TB) *Rig {
	t.Helper()
	if inBubble() {
		return NewAt(t, time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	}
	return NewAt(t, time.Now().Truncate(time.Minute).Add(2*time.Minute))
}

// NewAt is New with a clock that starts at an instant, for what depends on the hour or the day. In a bubble its time
// passes until then.
func NewAt(t testing.TB, start time.Time) *Rig {
	t.Helper()
	r := &Rig{t: t, server: miniredis.NewMiniRedis(), bubble: inBubble(), armed: make(chan struct{}, 1),
		awaited: make(chan struct{}, 1)}
	if _, err := r.server.Dial(); err != nil { // starts it, without a port
		t.Fatalf("delayqueuetest: %v", err)
	}
	r.server.ClockTTL(true)
	if r.bubble {
		time.Sleep(time.Until(
			start)) // of the bubble's time: it takes none, and a context from outside the bubble would stop that time
	} else {
		r.set(start.Truncate(time.Microsecond))
	}
	r.record.rig = r
	r.server.Server().SetPreHook(r.record.command)
	r.cli = redis.NewClient(&redis.Options{
		Addr:                     "127.0.0.1:0", // nobody dials it, but it is looked at, and a name would be looked up
		Dialer:                   func(context.Context, string, string) (net.Conn, error) { return r.server.Dial() },
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() {
		_ = r.cli.Close() // a test may have closed it
		r.server.Close()
	})
	return r
}

// Client is a client of the rig's Redis, for NewQueue, NewPublisher and NewMonitor, and for whatever else the code
// under test does with Redis. The rig closes it.
func (r *Rig) Client() *redis.Client { return r.cli }

// Now is the rig's time. It may be called from anywhere, also as the clock of the code under test.
func (r *Rig) Now() time.Time {
	if r.bubble {
		return time.Now()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now
}

func (r *Rig) set(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = now
	r.server.SetTime(now)
}

// Queue makes a queue, as NewQueue does with the rig's client, and adds it. It wants a handler or a callback before
// the first Advance. Its log goes to the test's, which shows when the test fails.
func (r *Rig) Queue(name string, opts ...delayqueue.QueueOption) *delayqueue.DelayQueue {
	q := delayqueue.NewQueue(name, r.cli, nil, opts...).WithLogger(slog.New(slog.NewTextHandler(r.t.Output(), nil)))
	r.Add(q)
	return q
}

// Add adds queues that the code under test has made with the rig's client: Advance handles their messages. They must
// not be started, nor be in a Pool.
func (r *Rig) Add(queues ...*delayqueue.DelayQueue) {
	r.t.Helper()
	for _, q := range queues {
		cli, prefix := q.Redis()
		if cli != redis.UniversalClient(r.cli) {
			r.t.Fatalf("delayqueuetest: queue %q is on another Redis: make it with the rig's Client()", q.Name())
		}
		if slices.ContainsFunc(r.queues, func(o *rigged) bool { return o.DelayQueue == q }) {
			r.t.Fatalf("delayqueuetest: queue %q is there twice", q.Name())
		}
		one := &rigged{DelayQueue: q, prefix: prefix, ofOne: map[string]int{}}
		q.WithMiddleware(one.watch)
		r.queues = append(r.queues, one)
	}
}

// watch counts deliveries, and ends a drain that does not end.
func (q *rigged) watch(next delayqueue.Handler) delayqueue.Handler {
	return func(ctx context.Context, msg *delayqueue.Message) error {
		q.mu.Lock()
		q.atOnce++
		q.ofOne[msg.ID]++
		if q.atOnce >= mostAtOnce || q.ofOne[msg.ID] >= mostOfOne {
			q.endless = msg.Payload
			q.cancel()
		}
		q.mu.Unlock()
		q.moves()
		defer q.moves()
		return next(ctx, msg)
	}
}

func (q *rigged) moves() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.moved = time.Now()
}

// stands is for how long the drain has stood still: mostly, for how long its handler has run.
func (q *rigged) stands() time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	return time.Since(q.moved)
}

// Advance moves the clock by d, and stops at each instant at which something falls due on the way: that is handled,
// with all that follows from it at that instant, before the clock goes on. So retries, snoozes, messages that
// handlers send, and what a rate or a pause puts off, are handled when they are due, in order. What is due at the end
// is handled, too. It returns how many deliveries were handled. Advance(0) handles what is due now.
//
// One message is handled at a time, also where WithConcurrent says more: what was due first; of what is due at one
// instant, retries first and then in the order of the sends; of several queues, the one that was added first. While a
// handler waits for a result (Call, Await), or has run for 2 s, other queues are handled beside it. Where a retry's
// delay is at random, by default, it is the longest it may be.
//
// It ends the test if a queue is consumed otherwise or has no handler, and if it handles one message 100 times at one
// instant, or 10,000 messages of a queue, which looks like a handler that goes on for ever.
func (r *Rig) Advance(d time.Duration) (handled int) {
	r.t.Helper()
	if d < 0 {
		r.t.Fatalf("delayqueuetest: Advance(%v): the clock goes forward", d)
	}
	return r.AdvanceTo(r.Now().Add(d))
}

// AdvanceTo is Advance to an instant.
func (r *Rig) AdvanceTo(t time.Time) (handled int) {
	r.t.Helper()
	if r.running {
		panic("delayqueuetest: Advance within Advance: a handler cannot move the clock")
	}
	if t.Before(r.Now()) {
		r.t.Fatalf("delayqueuetest: AdvanceTo(%v): it is %v already, and the clock goes forward", t, r.Now())
	}
	r.running = true
	defer func() { r.running = false }()
	for {
		handled += r.settle()
		if !r.Now().Before(t) {
			return handled
		}
		if next, ok := r.next(); ok && next.Before(t) {
			r.move(next)
		} else {
			r.move(t)
		}
	}
}

// move sets the clock, which begins another instant. In a bubble it may be a sooner one, at which something was sent.
// For the queues the time has passed, and the clock was not stepped: else what is too old would be kept for another
// minute (lua/tick/read.lua).
func (r *Rig) move(to time.Time) {
	if r.bubble {
		r.sleep(to)
	} else {
		r.set(to)
	}
	for _, q := range r.queues {
		q.mu.Lock()
		q.atOnce, q.ofOne = 0, map[string]int{}
		q.mu.Unlock()
		if state := keyOf(q.prefix, q.Name(), "state"); r.server.HGet(state, "seen") != "" {
			now := r.Now().UnixMicro()
			r.server.HSet(state, "seen", strconv.FormatInt(now, 10), "ticked", strconv.FormatInt(now-60e6, 10))
		}
	}
}

// next is when something falls due next: the alarm of each queue, which a consumer would wait for.
func (r *Rig) next() (soonest time.Time, ok bool) {
	for _, q := range r.queues {
		us, err := r.server.ZScore(keyOf(q.prefix, q.Name(), "wake"), "w")
		if err != nil {
			continue // there is none
		}
		at := time.UnixMicro(int64(us))
		if !at.After(r.Now()) && !r.bubble {
			r.t.Fatalf("delayqueuetest: queue %q says that something is due, and hands out nothing", q.Name())
		}
		if !ok || at.Before(soonest) {
			soonest, ok = at, true
		}
	}
	return soonest, ok
}

func keyOf(prefix, name, structure string) string {
	return "{" + prefix + ":" + name + "}:" + structure
}

// settle handles what is due, in all queues, until nothing is.
func (r *Rig) settle() (handled int) {
	r.t.Helper()
	for {
		if r.bubble {
			synctest.Wait() // what else runs at this instant may send
		}
		n := r.drainAll()
		if n == 0 {
			return handled
		}
		handled += n
	}
}

func (r *Rig) drainAll() (handled int) {
	r.t.Helper()
	for _, q := range r.queues {
		if !q.draining {
			handled += r.drain(q)
		}
	}
	return handled
}

// drain handles what is due in one queue, and in others while one of its handlers takes long.
func (r *Rig) drain(q *rigged) (handled int) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(clock.With(context.Background(), r.Now))
	defer cancel()
	q.mu.Lock()
	q.cancel = cancel
	q.mu.Unlock()
	type result struct {
		n   int
		err error
	}
	ended := make(chan result, 1)
	q.draining = true
	q.moves()
	go func() {
		defer func() {
			if p := recover(); p != nil { // it has no handler
				ended <- result{err: fmt.Errorf("%v", p)}
			}
		}()
		n, err := q.Drain(ctx)
		ended <- result{n, err}
	}()
	for hinted := r.bubble; ; {
		select {
		case got := <-ended:
			q.draining = false
			if got.err != nil {
				r.t.Fatalf("delayqueuetest: %s", q.why(got.err))
			}
			return handled + got.n
		case <-r.awaited:
			handled += r.drainAll()
		case <-time.After(besideAfter / 4):
			if q.stands() >= besideAfter {
				handled += r.drainAll()
			}
		}
		if !hinted && q.stands() > hintAfter {
			hinted = true
			r.t.Logf("delayqueuetest: a handler of queue %q has run for %v: "+
				"does it wait for a message of its own queue, or of one that is not in the rig? One message of a queue is "+
				"handled at a time",
				q.Name(), hintAfter)
		}
	}
}

// why says why a queue cannot be drained.
func (q *rigged) why(err error) string {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case errors.Is(err, delayqueue.ErrWrongState):
		return fmt.Sprintf("queue %q is started, or in a Pool: in a rig Advance consumes, so leave that out in the test",
			q.Name())
	case q.endless != "":
		return fmt.Sprintf("queue %q has handled %d messages at one instant, the last with payload %s: "+
			"does a handler ask for more and more, with no delay?", q.Name(), q.atOnce, short(q.endless))
	case strings.Contains(err.Error(), "without a callback"):
		return fmt.Sprintf(
			"queue %q has no handler: call its WithHandler; for what only sends, make a Publisher with the rig's Client()",
			q.Name())
	}
	return err.Error()
}
