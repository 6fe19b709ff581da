package delayqueuetest_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/redis/go-redis/v9"
)

var histories = flag.Int("histories", 40, "how many histories TestAsARealConsumer compares")

// An act is what a handler does with a delivery of a message.
type act int

const (
	acked act = iota
	failed
	retryAfter
	snoozed
	again
	skipped
	panicked
	follows // acks, and names a message that follows
	sends   // sends another one itself
	acts
)

// A script is what a message's handler does, delivery by delivery, and how it was sent.
type script struct {
	delay, retries int // delay in ms
	does           []act
	child          *script // of follows and sends
}

// draw makes a script at random.
func draw(r *rand.Rand, depth int) *script {
	s := &script{delay: r.IntN(6), retries: r.IntN(3)}
	for range 1 + r.IntN(4) {
		s.does = append(s.does, act(r.IntN(int(acts))))
	}
	if depth < 2 {
		s.child = draw(r, depth+1)
	}
	return s
}

// A world is a queue whose handler follows scripts, and what it has seen.
type world struct {
	t       testing.TB
	queue   *delayqueue.DelayQueue
	monitor *ops.Queue

	mu      sync.Mutex // guards the fields below
	scripts map[string]*script
	seen    map[string][]string // by payload
	ids     map[string]string   // of those that were sent with Send
}

func newWorld(t testing.TB, queue *delayqueue.DelayQueue, cli redis.UniversalClient) *world {
	w := &world{t: t, queue: queue, monitor: ops.Of(delayqueue.NewMonitor(queue.Name(), cli)),
		scripts: map[string]*script{},
		seen:    map[string][]string{}, ids: map[string]string{}}
	queue.WithHandler(w.handle).WithRetryDelays(0, 2*time.Millisecond).WithLogger(slog.New(slog.DiscardHandler)).
		WithGarbageHandler(func(_ context.Context, msg *delayqueue.Message, err error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.seen[msg.Payload] = append(w.seen[msg.Payload], "garbage: "+err.Error())
		})
	return w
}

func (w *world) options(s *script) []delayqueue.MsgOption {
	return []delayqueue.MsgOption{delayqueue.WithDelay(time.Duration(s.delay) * time.Millisecond),
		delayqueue.WithRetryCount(s.retries)}
}

func (w *world) send(payload string, s *script) {
	w.add(payload, s)
	info, err := w.queue.Send(context.Background(), payload, w.options(s)...)
	if err != nil {
		w.t.Error(err)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ids[payload] = info.ID
}

func (w *world) add(payload string, s *script) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.scripts[payload] = s
}

// handle does what the message's script says, and after its end acks.
func (w *world) handle(ctx context.Context, msg *delayqueue.Message) error {
	w.mu.Lock()
	s := w.scripts[msg.Payload]
	n := len(w.seen[msg.Payload])
	// Delivery counts hand-outs that no handler started, too: a slow moment of this machine, and what waits is given back.
	w.seen[msg.Payload] = append(w.seen[msg.Payload], fmt.Sprintf("failures %d", msg.Failures))
	w.mu.Unlock()
	does := acked
	if n < len(s.does) {
		does = s.does[n]
	}
	child := msg.Payload + "." + strconv.Itoa(n)
	switch does {
	case failed:
		return errors.New("failed")
	case retryAfter:
		return delayqueue.RetryAfter(3*time.Millisecond, errors.New("later"))
	case snoozed:
		return delayqueue.Snooze(2 * time.Millisecond)
	case again:
		return delayqueue.Again(time.Millisecond)
	case skipped:
		return fmt.Errorf("%w: hopeless", delayqueue.ErrSkipRetry)
	case panicked:
		panic("at the disco")
	case follows:
		if s.child != nil {
			w.add(child, s.child)
			return delayqueue.Then(ctx, child, w.options(s.child)...)
		}
	case sends:
		if s.child != nil {
			w.send(child, s.child)
		}
	}
	return nil
}

// outcome is all that was seen, and what is left, in an order that no clock decides.
func (w *world) outcome() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []string
	for payload, seen := range w.seen {
		all = append(all, payload+": "+strings.Join(seen, ", "))
	}
	slices.Sort(all)
	return all
}

// left is how many messages are still to be handled.
func (w *world) left() (int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience) // with an end, it is tried until then
	defer cancel()
	c, err := w.monitor.Counts(ctx)
	return c.Pending + c.Ready + c.Unack + c.Retry, err
}

// TestAsARealConsumer: what becomes of messages in a rig is what becomes of them with a consumer of a real server.
func TestAsARealConsumer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	cli := server.Client(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	next := make(chan uint64)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for n := range next {
				compare(t, cli, rand.New(rand.NewPCG(seed, n)), fmt.Sprintf("history-%d", n))
			}
		})
	}
	for n := range testkit.Size(*histories, min(*histories, 10)) {
		next <- uint64(n)
	}
	close(next)
	wg.Wait()
}

// compare runs one history in a rig and with a consumer.
func compare(t *testing.T, cli *redis.Client, r *rand.Rand, name string) {
	scripts := make([]*script, 1+r.IntN(6))
	for i := range scripts {
		scripts[i] = draw(r, 0)
	}
	concurrent := 1 + r.IntN(4)

	rig := newRig(t, name)
	mine := newWorld(t, rig.Queue(name), rig.Client())
	theirs := newWorld(t, delayqueue.NewQueue(name, cli, nil), cli)
	theirs.queue.WithConcurrent(concurrent)
	for i, s := range scripts {
		mine.send(strconv.Itoa(i), s)
		theirs.send(strconv.Itoa(i), s)
	}
	rig.Advance(time.Minute)
	theirs.queue.StartConsume()
	begun := testkit.Worked()
	for n, err := theirs.left(); n > 0 || err != nil; n, err = theirs.left() { // on a busy machine a look may fail
		if testkit.Worked()-begun > 2*testkit.Patience {
			t.Errorf("%s: %d are left, %v", name, n, err)
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if err := theirs.queue.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	if n, err := mine.left(); n != 0 || err != nil {
		t.Errorf("%s: %d are left in the rig, %v", name, n, err)
	}
	if a, b := mine.outcome(), theirs.outcome(); !slices.Equal(a, b) {
		t.Errorf("%s: in the rig\n\t%s\nwith a consumer\n\t%s", name, strings.Join(a, "\n\t"), strings.Join(b, "\n\t"))
	}
	check.Assert(t, cli, "dq", name)
}
