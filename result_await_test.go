package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// awaiting begins an Await, and returns once it has looked.
func (f *fixture) awaiting(p interface {
	Await(context.Context, string) (*Result, error)
}, l *looker, id string) <-chan awaitAnswer {
	f.t.Helper()
	got := make(chan awaitAnswer, 1)
	ctx := withTimeout(f.t)
	go func() {
		r, err := p.Await(ctx, id)
		got <- awaitAnswer{r, err}
	}()
	eventually(f.t, "it has looked", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.waiting) > 0 && l.waiting[0].next.After(l.waiting[0].begun)
	})
	return got
}

// TestAwaitWhatIsDone: who asks when all is over gets the result all the same; listeners come too late.
func TestAwaitWhatIsDone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(nil).WithHandler(echo)
	q.StartConsume()
	kept, dead, gone := f.send(q, "a", WithRetention(time.Hour)), f.send(q, "die soon"), f.send(q, "b")
	eventually(t, "all are handled", func() bool { s := f.check(); return len(s.Done) == 1 && len(s.Garbage) == 1 && len(s.Messages) == 2 })
	ctx := withTimeout(t)
	if r, err := q.Await(ctx, kept.ID); err != nil || r.Value != "to a" || r.State != StateDone {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := q.Await(ctx, dead.ID); err != nil || r.Err != "skip retry: soon" || r.State != StateGarbage {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := q.Await(ctx, gone.ID); r != nil || !errors.Is(err, ErrNoResult) {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestAwaitNothing: what is not there, or of another queue, is not waited for.
func TestAwaitNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(nil)
	removed := f.send(q, "x", inAnHour, WithRetention(time.Hour))
	if _, err := q.Intercept(ctxB, removed.ID); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{removed.ID, idOf("nobody"), "", "rubbish", strings.Repeat("x", 1<<20)} {
		if r, err := NewMonitor(f.name, f.cli).Await(withTimeout(t), id); r != nil || !errors.Is(err, ErrNoResult) {
			t.Errorf("%.50q: %+v, %v", id, r, err)
		}
	}
}

// TestAwaitWhatIsRemoved: who waits hears that there is nothing to wait for any more.
func TestAwaitWhatIsRemoved(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(f *fixture, m *Monitor, id string) error{
		"intercepted":    func(f *fixture, m *Monitor, id string) error { _, err := m.Intercept(ctxB, id); return err },
		"deleted":        func(f *fixture, m *Monitor, id string) error { return m.Delete(ctxB, id) },
		"with its queue": func(f *fixture, m *Monitor, id string) error { return m.DeleteQueue(ctxB, true) },
		"by somebody else": func(f *fixture, m *Monitor, id string) error {
			for _, key := range m.store.keys.all {
				if err := f.cli.Del(ctxB, key.(string)).Err(); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			q, m := f.queue(nil), NewMonitor(f.name, f.cli)
			info := f.send(q, "x", inAnHour, WithRetention(time.Hour))
			got := f.awaiting(q, &q.looker, info.ID)
			f.must(remove(f, m, info.ID))
			if a := receive(t, "an answer", got); a.result != nil || !errors.Is(a.err, ErrNoResult) {
				t.Errorf("%+v, %v", a.result, a.err)
			}
		})
	}
	t.Run("canceled while it is handled", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		started := make(chan struct{})
		q := f.queue(nil).WithLease(6 * time.Second).WithHandler(func(ctx context.Context, msg *Message) error {
			close(started)
			<-ctx.Done()
			return SetResult(ctx, "too late")
		})
		q.StartConsume()
		info := f.send(q, "x", WithRetention(time.Hour))
		receive(t, "it is handled", started)
		got := f.awaiting(q, &q.looker, info.ID)
		if _, err := q.Cancel(ctxB, info.ID); err != nil {
			t.Fatal(err)
		}
		if a := receive(t, "an answer", got); a.result != nil || !errors.Is(a.err, ErrNoResult) {
			t.Errorf("%+v, %v", a.result, a.err)
		}
	})
}

// TestAwaitWithoutEvents: no event is needed, so none can be lost.
func TestAwaitWithoutEvents(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var events atomic.Int64
	hook := commandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if name := cmd.Name(); strings.Contains(name, "subscribe") || strings.Contains(name, "publish") {
			events.Add(1)
		}
		return next(ctx, cmd)
	})
	f.cli.AddHook(hook)
	hookOwn(t, f.cli, hook)
	hold := make(chan struct{})
	q := f.queue(nil).WithHandler(func(ctx context.Context, msg *Message) error { <-hold; return echo(ctx, msg) })
	q.StartConsume()
	info := f.send(q, "me", WithRetention(time.Hour))
	got := f.awaiting(q, &q.looker, info.ID)
	close(hold)
	if a := receive(t, "an answer", got); a.err != nil || a.result.Value != "to me" {
		t.Errorf("%+v, %v", a.result, a.err)
	}
	if n := events.Load(); n != 0 {
		t.Errorf("%d commands of pub/sub", n)
	}
}

// TestAwaitThroughAnOutage: who waits finds the result of what was handled meanwhile.
func TestAwaitThroughAnOutage(t *testing.T) {
	t.Parallel()
	f, wire, cli := wired(t)
	hold := make(chan struct{})
	q := f.queue(nil).WithHandler(func(ctx context.Context, msg *Message) error { <-hold; return echo(ctx, msg) })
	q.StartConsume()
	caller := NewPublisher(f.name, cli)
	info := f.send(q, "me", WithRetention(time.Hour))
	got := f.awaiting(caller, &caller.looker, info.ID)
	wire.Cut()
	close(hold)
	eventually(t, "it is done", func() bool { return f.where(info.ID) == "done" })
	select {
	case a := <-got:
		t.Errorf("%+v, %v, although Redis could not be reached", a.result, a.err)
	default:
	}
	wire.Mend()
	if a := receive(t, "an answer", got); a.err != nil || a.result.Value != "to me" {
		t.Errorf("%+v, %v", a.result, a.err)
	}
	// Also if the reply with the result does not come through.
	struck := wire.DropReply(redistest.Script(awaitScript.sha))
	if r, err := caller.Await(withTimeout(t), info.ID); err != nil || r.Value != "to me" {
		t.Errorf("%+v, %v", r, err)
	}
	receive(t, "the reply is dropped", struck)
	// And without Redis for as long as the context.
	wire.Cut()
	ctx, cancel := context.WithCancel(ctxB)
	left := make(chan error, 1)
	go func() { _, err := caller.Await(ctx, info.ID); left <- err }()
	eventually(t, "it has failed to look", func() bool {
		caller.looker.mu.Lock()
		defer caller.looker.mu.Unlock()
		return caller.looker.lastErr != nil
	})
	cancel()
	if err := receive(t, "it leaves", left); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "last attempt") {
		t.Error(err)
	}
	wire.Mend()
}

// TestSettleReplyLostWithResult: a settlement that is repeated keeps the result of its delivery.
func TestSettleReplyLostWithResult(t *testing.T) {
	t.Parallel()
	f, wire, cli := wired(t)
	struck := wire.DropReply(redistest.Script(settleScript.sha))
	q := f.queueOn(cli, nil).WithHandler(echo)
	q.StartConsume()
	r, err := q.Call(withTimeout(t), "me")
	receive(t, "the reply is dropped", struck)
	if err != nil || r.Value != "to me" {
		t.Errorf("%+v, %v", r, err)
	}
	eventually(t, "nothing is in the consumer's hands", func() bool { return len(f.check().Unack) == 0 })
}

// TestAwaitUntilItsContextEnds: it leaves nothing behind, and others wait on.
func TestAwaitUntilItsContextEnds(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(nil)
	info := f.send(q, "x", inAnHour)
	ctx, cancel := context.WithCancelCause(ctxB)
	left := make(chan error, 1)
	go func() { _, err := q.Await(ctx, info.ID); left <- err }()
	got := f.awaiting(q, &q.looker, info.ID)
	why := errors.New("enough")
	cancel(why)
	if err := receive(t, "the first leaves", left); !errors.Is(err, why) || !strings.Contains(err.Error(), info.ID) {
		t.Error(err)
	}
	f.must(NewMonitor(f.name, f.cli).Delete(ctxB, info.ID))
	if a := receive(t, "the other hears", got); !errors.Is(a.err, ErrNoResult) {
		t.Errorf("%+v", a)
	}
	eventually(t, "nobody looks", func() bool {
		q.looker.mu.Lock()
		defer q.looker.mu.Unlock()
		return q.looker.end == nil && len(q.looker.waiting) == 0 && q.looker.n == 0
	})
	ended, cancel2 := context.WithCancel(ctxB)
	cancel2()
	if _, err := q.Await(ended, idOf("nobody")); err == nil {
		t.Error("no error")
	}
}

// TestAwaitRefused: what Redis refuses for good is an error, and not waited for.
func TestAwaitRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(nil)
	info := f.send(q, "x", inAnHour)
	f.must(f.cli.Set(ctxB, q.store.keys.done, "somebody else's", 0).Err())
	if r, err := q.Await(withTimeout(t), info.ID); r != nil || !errors.Is(err, ErrWrongType) {
		t.Errorf("%+v, %v", r, err)
	}
	f.must(f.cli.Del(ctxB, q.store.keys.done).Err())
}

// TestResultOnAFullServer: what is acked is settled and kept.
func TestResultOnAFullServer(t *testing.T) {
	t.Parallel()
	f, server := ownServer(t)
	hold := make(chan struct{})
	q := f.queue(nil).WithHandler(func(ctx context.Context, msg *Message) error { <-hold; return echo(ctx, msg) })
	q.StartConsume()
	info := f.send(q, "me", WithRetention(time.Hour))
	got := f.awaiting(q, &q.looker, info.ID)
	admin := server.Client(t)
	f.must(admin.ConfigSet(ctxB, "maxmemory", "1").Err())
	close(hold)
	if a := receive(t, "an answer", got); a.err != nil || a.result.Value != "to me" {
		t.Errorf("%+v, %v", a.result, a.err)
	}
	f.must(admin.ConfigSet(ctxB, "maxmemory", "0").Err())
}

// TestThousandCalls: 1,000 calls at once, whose consumers are killed one after the other. Each returns the result of the
// delivery that was acked.
func TestThousandCalls(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const calls = 1000
	spec := childSpec{Addr: shared.Addr(), Name: f.name, Events: f.eventList(), Lease: time.Second, Concurrent: 8,
		Handling: 5 * time.Millisecond, MaxLosses: 100}
	children := []*child{startChild(t, spec), startChild(t, spec)}
	p := NewPublisher(f.name, f.cli)
	ctx, cancel := context.WithTimeout(ctxB, 5*patience)
	defer cancel()
	results := make([]*Result, calls)
	var answered atomic.Int64
	var all sync.WaitGroup
	for i := range calls {
		all.Go(func() {
			r, err := p.Call(ctx, fmt.Sprint("m", i), WithRetention(time.Hour))
			if err != nil || r.State != StateDone {
				t.Errorf("%d: %+v, %v", i, r, err)
			}
			results[i] = r
			answered.Add(1)
		})
	}
	for i := range 3 {
		reaches(t, "calls are answered", (i+1)*calls/5, func() int { return int(answered.Load()) })
		victim := children[i%2]
		victim.signal(syscall.SIGKILL)
		victim.awaitExit(t)
		children[i%2] = startChild(t, spec)
	}
	reaches(t, "all calls are answered", calls, func() int { return int(answered.Load()) })
	all.Wait()
	ended := map[string]bool{}
	for _, e := range f.events(f.eventList()) {
		ended[fmt.Sprintf("%d %s %s %d", e.pid, e.what, e.payload, e.delivery)] = true
	}
	state := f.check()
	for i, r := range results {
		if want := fmt.Sprintf(" end m%d %d", i, state.Fail[r.ID].Delivery-1); !strings.HasSuffix(r.Value, want) || !ended[r.Value] {
			t.Errorf("%d: the result is %q, the delivery that was acked%s", i, r.Value, want)
		}
	}
	if len(state.Done) != calls {
		t.Errorf("%d are done", len(state.Done))
	}
}

// TestAwaitOfAClosedClient: nobody waits for what cannot come back.
func TestAwaitOfAClosedClient(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	cli := redis.NewClient(&redis.Options{Addr: shared.Addr()})
	q := f.queue(nil)
	info := f.send(q, "x", inAnHour)
	p := NewPublisher(f.name, cli)
	got := f.awaiting(p, &p.looker, info.ID)
	f.must(cli.Close())
	if a := receive(t, "an answer", got); !errors.Is(a.err, redis.ErrClosed) {
		t.Errorf("%+v, %v", a.result, a.err)
	}
}

// TestCallNotReplicated: a message that no replica has is handled, and its result is there.
func TestCallNotReplicated(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(nil).WithHandler(echo).WithReplicaAck(1, 10*time.Millisecond)
	q.StartConsume()
	if r, err := q.Call(withTimeout(t), "me"); err != nil || r.Value != "to me" {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestCallSaysAllThatFailed: that too few replicas confirmed the message is said beside why there is no result.
func TestCallSaysAllThatFailed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := NewPublisher(f.name, f.cli).WithReplicaAck(1, 10*time.Millisecond)
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	r, err := p.Call(ctx, "me")
	if !errors.Is(err, ErrNotReplicated) || !errors.Is(err, context.DeadlineExceeded) || r == nil || r.ID == "" {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestCallOntoATakenKey: a call that finds its key taken gets the result of the message that has it, or an error that says that
// another send did not have it kept, or that all was done before.
func TestCallOntoATakenKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(nil).WithHandler(echo)
	q.StartConsume()
	ctx := withTimeout(t)
	for _, on := range []Conflict{Keep, Reschedule, Append} {
		key, first := on.String(), on
		if first == Reschedule {
			first = Keep
		}
		for _, kept := range []bool{true, false} {
			opts := []MsgOption{WithKey(key, first), WithDelay(50 * time.Millisecond)}
			if kept {
				opts = append(opts, WithRetention(time.Hour))
			}
			plain := f.send(q, "plain", opts...)
			r, err := q.Call(ctx, "me", WithKey(key, on))
			switch {
			case kept && (err != nil || r.ID != plain.ID || r.Value != "to plain"):
				t.Errorf("%v: %+v, %v", on, r, err)
			case !kept && (!errors.Is(err, ErrOtherMessage) || !errors.Is(err, ErrNoResult) || r.ID != plain.ID):
				t.Errorf("%v, of which the result is not kept: %+v, %v", on, r, err)
			}
		}
	}
	held := []MsgOption{WithKey("held", Keep), WithKeyHold(time.Hour), WithRetention(time.Second)}
	first, err := q.Call(ctx, "me", held...)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := q.Call(ctx, "me", held...); err != nil || *again != *first {
		t.Errorf("%+v, %v", again, err)
	}
	f.must(f.cli.HSet(ctx, q.store.keys.state, "done", 1).Err()) // its time is over
	f.must(f.cli.ZAdd(ctx, q.store.keys.done, redis.Z{Score: 1, Member: first.ID}).Err())
	if again, err := q.Call(ctx, "me", held...); !errors.Is(err, ErrHandledBefore) || !errors.Is(err, ErrNoResult) || again.ID != first.ID {
		t.Errorf("%+v, %v", again, err)
	}
}

// TestManyAwaitOneMessage: each hears of it, at the cost of one call for all.
func TestManyAwaitOneMessage(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var looks atomic.Int64
	hookOwn(t, f.cli, commandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if cmd.Args()[1] == awaitScript.sha || cmd.Args()[1] == awaitScript.text {
			looks.Add(1)
		}
		return next(ctx, cmd)
	}))
	hold := make(chan struct{})
	q := f.queue(nil).WithHandler(func(ctx context.Context, msg *Message) error { <-hold; return echo(ctx, msg) })
	q.StartConsume()
	info := f.send(q, "me", WithRetention(time.Hour))
	ctx := withTimeout(t)
	const many = 2000
	var all sync.WaitGroup
	for range many {
		all.Go(func() {
			if r, err := q.Await(ctx, info.ID); err != nil || r.Value != "to me" {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
	eventually(t, "all wait", func() bool {
		q.looker.mu.Lock()
		defer q.looker.mu.Unlock()
		return q.looker.n == many
	})
	close(hold)
	all.Wait()
	if n := looks.Load(); n == 0 || n > many {
		t.Errorf("%d round trips for %d", n, many)
	}
}
