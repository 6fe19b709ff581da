package delayqueue_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/redis/go-redis/v9"
)

// callResult is what an Await or Call returned.
type callResult struct {
	result *delayqueue.Result
	err    error
}

// awaiting begins an Await, and returns once it has looked.
func awaiting(f *face.Fixture, p interface {
	Await(context.Context, string) (*delayqueue.Result, error)
	Awaits() delayqueue.Awaits
}, id string) <-chan callResult {
	f.T.Helper()
	got := make(chan callResult, 1)
	ctx := queuetest.WithTimeout(f.T)
	go func() {
		r, err := p.Await(ctx, id)
		got <- callResult{r, err}
	}()
	queuetest.Eventually(f.T, "it has looked", func() bool { return p.Awaits().Looked })
	return got
}

// TestAwaitWhatIsDone: who asks when all is over gets the result all the same; listeners come too late.
func TestAwaitWhatIsDone(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	q := f.Queue(nil).WithHandler(face.Echo)
	q.StartConsume()
	kept, dead, gone := f.Send(q, "a", delayqueue.WithRetention(time.Hour)), f.Send(q, "die soon"), f.Send(q, "b")
	queuetest.Eventually(t, "all are handled", func() bool {
		s := f.Check()
		return len(s.Done) == 1 && len(s.Garbage) == 1 && len(s.Messages) == 2
	})
	ctx := queuetest.WithTimeout(t)
	if r, err := q.Await(ctx, kept.ID); err != nil || r.Value != "to a" || r.State != delayqueue.StateDone {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := q.Await(ctx, dead.ID); err != nil || r.Err != "skip retry: soon" || r.State != delayqueue.StateGarbage {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := q.Await(ctx, gone.ID); r != nil || !errors.Is(err, delayqueue.ErrNoResult) {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestAwaitNothing: what is not there, or of another queue, is not waited for.
func TestAwaitNothing(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	q := f.Queue(nil)
	removed := f.Send(q, "x", face.InAnHour, delayqueue.WithRetention(time.Hour))
	f.Must(queuetest.Failure(q.Intercept(queuetest.CtxB, removed.ID)))
	for _, id := range []string{removed.ID, queuetest.IDOf("nobody"), "", "rubbish", strings.Repeat("x", 1<<20)} {
		if r, err := delayqueue.NewMonitor(f.Name, f.Cli).Await(queuetest.WithTimeout(t), id); r != nil ||
			!errors.Is(err, delayqueue.ErrNoResult) {
			t.Errorf("%.50q: %+v, %v", id, r, err)
		}
	}
}

// TestAwaitWhatIsRemoved: who waits hears that there is nothing to wait for any more.
func TestAwaitWhatIsRemoved(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(f *face.Fixture, q *delayqueue.DelayQueue, id string) error{
		"intercepted": func(f *face.Fixture, q *delayqueue.DelayQueue, id string) error {
			return queuetest.Failure(q.Intercept(queuetest.CtxB, id))
		},
		"by somebody else": func(f *face.Fixture, _ *delayqueue.DelayQueue, id string) error {
			all, err := check.Shards(queuetest.CtxB, f.Cli, "dq", f.Name)
			for _, one := range all {
				err = errors.Join(err, f.Cli.Del(queuetest.CtxB, one.Keys()...).Err())
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := face.New(t)
			q := f.Queue(nil)
			info := f.Send(q, "x", face.InAnHour, delayqueue.WithRetention(time.Hour))
			got := awaiting(f, q, info.ID)
			f.Must(remove(f, q, info.ID))
			if a := queuetest.Receive(t, "an answer", got); a.result != nil || !errors.Is(a.err, delayqueue.ErrNoResult) {
				t.Errorf("%+v, %v", a.result, a.err)
			}
		})
	}
	t.Run("canceled while it is handled", func(t *testing.T) {
		t.Parallel()
		f := face.New(t)
		started := make(chan struct{})
		q := f.Queue(nil).WithLease(6 * time.Second).WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
			close(started)
			<-ctx.Done()
			return delayqueue.SetResult(ctx, "too late")
		})
		q.StartConsume()
		info := f.Send(q, "x", delayqueue.WithRetention(time.Hour))
		queuetest.Receive(t, "it is handled", started)
		got := awaiting(f, q, info.ID)
		f.Must(queuetest.Failure(q.Cancel(queuetest.CtxB, info.ID)))
		if a := queuetest.Receive(t, "an answer", got); a.result != nil || !errors.Is(a.err, delayqueue.ErrNoResult) {
			t.Errorf("%+v, %v", a.result, a.err)
		}
	})
}

// TestAwaitThroughAnOutage: who waits finds the result of what was handled meanwhile.
func TestAwaitThroughAnOutage(t *testing.T) {
	t.Parallel()
	f, wire, cli := face.Wired(t)
	hold := make(chan struct{})
	q := f.Queue(nil).WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
		<-hold
		return face.Echo(ctx, msg)
	})
	q.StartConsume()
	caller := delayqueue.NewPublisher(f.Name, cli)
	info := f.Send(q, "me", delayqueue.WithRetention(time.Hour))
	got := awaiting(f, caller, info.ID)
	wire.Cut()
	close(hold)
	queuetest.Eventually(t, "it is done", func() bool { return f.Where(info.ID) == "done" })
	select {
	case a := <-got:
		t.Errorf("%+v, %v, although Redis could not be reached", a.result, a.err)
	default:
	}
	wire.Mend()
	if a := queuetest.Receive(t, "an answer", got); a.err != nil || a.result.Value != "to me" {
		t.Errorf("%+v, %v", a.result, a.err)
	}
	// Also if the reply with the result does not come through.
	struck := wire.DropReply(redistest.Script(script.AwaitScript.SHA))
	if r, err := caller.Await(queuetest.WithTimeout(t), info.ID); err != nil || r.Value != "to me" {
		t.Errorf("%+v, %v", r, err)
	}
	queuetest.Receive(t, "the reply is dropped", struck)
	// And without Redis for as long as the context.
	wire.Cut()
	ctx, cancel := context.WithCancel(queuetest.CtxB)
	left := make(chan error, 1)
	go func() { _, err := caller.Await(ctx, info.ID); left <- err }()
	queuetest.Eventually(t, "it has failed to look", func() bool { return caller.Awaits().LastErr != nil })
	cancel()
	if err := queuetest.Receive(t, "it leaves", left); !errors.Is(err, context.Canceled) ||
		!strings.Contains(err.Error(), "last attempt") {
		t.Error(err)
	}
	wire.Mend()
}

// TestAwaitUntilItsContextEnds: it leaves nothing behind, and others wait on.
func TestAwaitUntilItsContextEnds(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	q := f.Queue(nil)
	info := f.Send(q, "x", face.InAnHour)
	ctx, cancel := context.WithCancelCause(queuetest.CtxB)
	left := make(chan error, 1)
	go func() { _, err := q.Await(ctx, info.ID); left <- err }()
	got := awaiting(f, q, info.ID)
	why := errors.New("enough")
	cancel(why)
	if err := queuetest.Receive(t, "the first leaves", left); !errors.Is(err, why) ||
		!strings.Contains(err.Error(), info.ID) {
		t.Error(err)
	}
	f.Must(queuetest.Failure(q.Intercept(queuetest.CtxB, info.ID)))
	if a := queuetest.Receive(t, "the other hears", got); !errors.Is(a.err, delayqueue.ErrNoResult) {
		t.Errorf("%+v", a)
	}
	queuetest.Eventually(t, "nobody looks", func() bool { return q.Awaits() == delayqueue.Awaits{} })
	if _, err := q.Await(queuetest.Over(), queuetest.IDOf("nobody")); err == nil {
		t.Error("no error")
	}
}

// TestAwaitRefused: what Redis refuses for good is an error, and not waited for.
func TestAwaitRefused(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	q := f.Queue(nil)
	info := f.Send(q, "x", face.InAnHour)
	f.Must(f.Cli.Set(queuetest.CtxB, f.KeyOf(info.ID, "done"), "somebody else's", 0).Err())
	if r, err := q.Await(queuetest.WithTimeout(t), info.ID); r != nil || !errors.Is(err, delayqueue.ErrWrongType) {
		t.Errorf("%+v, %v", r, err)
	}
	f.Must(f.Cli.Del(queuetest.CtxB, f.KeyOf(info.ID, "done")).Err())
}

// TestResultOnAFullServer: what is acked is settled and kept.
func TestResultOnAFullServer(t *testing.T) {
	t.Parallel()
	f, server := face.OwnServer(t)
	hold := make(chan struct{})
	q := f.Queue(nil).WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
		<-hold
		return face.Echo(ctx, msg)
	})
	q.StartConsume()
	info := f.Send(q, "me", delayqueue.WithRetention(time.Hour))
	got := awaiting(f, q, info.ID)
	admin := server.Client(t)
	f.Must(admin.ConfigSet(queuetest.CtxB, "maxmemory", "1").Err())
	close(hold)
	if a := queuetest.Receive(t, "an answer", got); a.err != nil || a.result.Value != "to me" {
		t.Errorf("%+v, %v", a.result, a.err)
	}
	f.Must(admin.ConfigSet(queuetest.CtxB, "maxmemory", "0").Err())
}

// TestAwaitOfAClosedClient: nobody waits for what cannot come back.
func TestAwaitOfAClosedClient(t *testing.T) {
	t.Parallel()
	f := face.OnShared(t)
	cli := redis.NewClient(&redis.Options{Addr: queuetest.Shared.Addr()})
	q := f.Queue(nil)
	info := f.Send(q, "x", face.InAnHour)
	p := delayqueue.NewPublisher(f.Name, cli)
	got := awaiting(f, p, info.ID)
	f.Must(cli.Close())
	if a := queuetest.Receive(t, "an answer", got); !errors.Is(a.err, redis.ErrClosed) {
		t.Errorf("%+v, %v", a.result, a.err)
	}
}

// TestCallSaysAllThatFailed: that too few replicas confirmed the message is said only beside why there is no result.
func TestCallSaysAllThatFailed(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	p := f.Publisher(f.Cli).WithReplicaAck(1, 10*time.Millisecond)
	var r *delayqueue.Result
	var err error
	for patience := time.Second; r == nil && patience < time.Minute; patience *= 2 { // a slow machine takes longer to send
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		r, err = p.Call(ctx, "me")
		cancel()
	}
	if !errors.Is(err, delayqueue.ErrNotReplicated) || !errors.Is(err, context.DeadlineExceeded) || r == nil ||
		r.ID == "" {
		t.Errorf("%+v, %v", r, err)
	}
	f.Queue(nil).WithHandler(face.Echo).StartConsume()
	if r, err := p.Call(queuetest.WithTimeout(t), "me"); err != nil || r.Value != "to me" {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestCallOntoATakenKey: a call that finds its key taken gets the result of the message that has it, or an error that
// says that another send did not have it kept, or that all was done before.
func TestCallOntoATakenKey(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	q := f.Queue(nil).WithHandler(face.Echo)
	q.StartConsume()
	ctx := queuetest.WithTimeout(t)
	for _, on := range []delayqueue.Conflict{delayqueue.Keep, delayqueue.Reschedule, delayqueue.Append} {
		key, first := on.String(), on
		if first == delayqueue.Reschedule {
			first = delayqueue.Keep
		}
		for _, kept := range []bool{true, false} {
			var plain *delayqueue.MessageInfo
			var r *delayqueue.Result
			var err error
			// If the machine is slow, the message may be handled before the call comes, which then is a message of its own.
			for delay := 50 * time.Millisecond; delay < 10*time.Second; delay *= 3 {
				opts := []delayqueue.MsgOption{delayqueue.WithKey(key, first), delayqueue.WithDelay(delay)}
				if kept {
					opts = append(opts, delayqueue.WithRetention(time.Hour))
				}
				plain = f.Send(q, "plain", opts...)
				if r, err = q.Call(ctx, "me", delayqueue.WithKey(key, on)); r != nil && r.ID == plain.ID {
					break
				}
			}
			switch {
			case kept && (err != nil || r.ID != plain.ID || r.Value != "to plain"):
				t.Errorf("%v: %+v, %v", on, r, err)
			case !kept && (!errors.Is(err, delayqueue.ErrNoResult) || !strings.Contains(err.Error(), "that had the key: ") ||
				r.ID != plain.ID):
				t.Errorf("%v, of which the result is not kept: %+v, %v", on, r, err)
			}
		}
	}
	held := []delayqueue.MsgOption{delayqueue.WithKey("held", delayqueue.Keep), delayqueue.WithKeyHold(time.Hour),
		delayqueue.WithRetention(time.Hour)}
	first, err := q.Call(ctx, "me", held...)
	f.Must(err)
	if again, err := q.Call(ctx, "me", held...); err != nil || *again != *first {
		t.Errorf("%+v, %v", again, err)
	}
	if until := f.Cli.ZScore(ctx, f.KeyOf(first.ID, "done"),
		first.ID).Val(); until != float64(first.At.Add(time.Hour).UnixMicro()) {
		t.Errorf("it is kept until %v, want an hour from %v", until, first.At)
	}
	f.Must(f.Cli.ZAdd(ctx, f.KeyOf(first.ID, "done"), redis.Z{Score: 1, Member: first.ID}).Err()) // its time is over
	f.Must(f.Cli.HSet(ctx, f.KeyOf(first.ID, "state"), "done", 1).Err())
	if again, err := q.Call(ctx, "me", held...); !errors.Is(err, delayqueue.ErrNoResult) ||
		again.State != delayqueue.StateDone || again.ID != first.ID {
		t.Errorf("%+v, %v", again, err)
	}
}

// TestManyAwaitOneMessage: each hears of it, at the cost of one call for all. No event is needed, so none can be lost.
func TestManyAwaitOneMessage(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	looks := face.CountCalls(t, f.Cli, script.AwaitScript.SHA)
	var events atomic.Int64
	hook := queuetest.CommandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if name := cmd.Name(); strings.Contains(name, "subscribe") || strings.Contains(name, "publish") {
			events.Add(1)
		}
		return next(ctx, cmd)
	})
	f.Cli.AddHook(hook)
	t.Cleanup(link.Interpose(f.Cli, hook))
	hold := make(chan struct{})
	q := f.Queue(nil).WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
		<-hold
		return face.Echo(ctx, msg)
	})
	q.StartConsume()
	info := f.Send(q, "me", delayqueue.WithRetention(time.Hour))
	ctx := queuetest.WithTimeout(t)
	const many = 2000
	var all sync.WaitGroup
	for range many {
		all.Go(func() {
			if r, err := q.Await(ctx, info.ID); err != nil || r.Value != "to me" {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
	queuetest.Eventually(t, "all wait", func() bool { return q.Awaits().Callers == many })
	close(hold)
	all.Wait()
	if n := looks.Load(); n == 0 || n > many {
		t.Errorf("%d round trips for %d", n, many)
	}
	if n := events.Load(); n != 0 {
		t.Errorf("%d commands of pub/sub", n)
	}
}

// TestCall: the result is that of the message, or its last error.
func TestCall(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	q := f.Queue(nil).WithHandler(face.Echo).WithConcurrent(4)
	q.StartConsume()
	ctx := queuetest.WithTimeout(t)
	before := time.Now()
	r, err := q.Call(ctx, "me")
	if err != nil || r.ID == "" || r.State != delayqueue.StateDone || r.Value != "to me" || r.Err != "" ||
		r.At.Before(before.Add(-time.Minute)) {
		t.Fatalf("%+v, %v", r, err)
	}
	const kept = time.Minute // what no sender said more of
	if s := f.Check(); len(s.Done) != 1 || s.Done[0].ID != r.ID || s.Done[0].Score != r.At.Add(kept).UnixMicro() ||
		s.Results[r.ID] != len("to me") || s.Messages[r.ID].Payload != "me" || s.Fail[r.ID].Delivery != 2 {
		t.Errorf("%s", s.Dump())
	}
	for name, await := range map[string]func(context.Context, string) (*delayqueue.Result, error){
		"the queue": q.Await, "a publisher": delayqueue.NewPublisher(f.Name, f.Cli).Await,
		"a monitor": delayqueue.NewMonitor(f.Name, f.Cli).Await,
	} {
		if again, err := await(ctx, r.ID); err != nil || *again != *r {
			t.Errorf("%s: %+v, %v; want %+v", name, again, err, r)
		}
	}
	dead, err := delayqueue.NewPublisher(f.Name, f.Cli).Call(ctx, "die young", delayqueue.WithRetention(time.Hour))
	if err != nil || dead.State != delayqueue.StateGarbage || dead.Err != "skip retry: young" || dead.Value != "" ||
		dead.At.IsZero() {
		t.Errorf("%+v, %v", dead, err)
	}
	if r, err := q.Call(ctx, "x", delayqueue.WithRetention(time.Millisecond)); r != nil ||
		!errors.Is(err, delayqueue.ErrBadOption) {
		t.Errorf("%+v, %v", r, err)
	}
	given, giveUp := context.WithCancel(ctx)
	got := make(chan callResult)
	go func() {
		r, err := q.Call(given, "late", face.InAnHour)
		got <- callResult{r, err}
	}()
	queuetest.Eventually(t, "it is sent and awaited", func() bool { return q.Awaits().Callers > 0 })
	giveUp()
	if a := queuetest.Receive(t, "it gives up", got); !errors.Is(a.err, context.Canceled) || a.result == nil ||
		a.result.ID == "" ||
		a.result.State != delayqueue.StateGone {
		t.Errorf("%+v, %v", a.result, a.err)
	} else if where := f.Where(a.result.ID); where != "pending" {
		t.Errorf("it is in %q", where)
	}
}
