package ops

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/journal"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/redis/go-redis/v9"
)

// bulked wants a call for many to have ended with this.
func bulked(f *face.Fixture, what string, got *BulkResult, err error, looked, done int64, passed map[Reason]int64) {
	f.T.Helper()
	if err != nil || got.Looked != looked || got.Total != looked || got.Done != done || !maps.Equal(got.Passed, passed) ||
		!got.Finished || got.Next != "" {
		f.T.Errorf("%s: %+v, %v; want %d of %d done, passed over %v", what, got, err, done, looked, passed)
	}
}

func bulkOfGarbage(f *face.Fixture, m *Queue) {
	buriedIn(f, "timeout 1", "timeout 2", "refused 1", "refused 2", "refused 3")
	steps := 0
	b := Bulk{Filter: Filter{ErrorContains: "no timeout", Limit: 2}, DryRun: true, Progress: func(r *BulkResult) bool {
		steps++
		return r.Total == 5 && r.Looked <= 5
	}}
	got, err := m.BulkRequeue(queuetest.CtxB, b)
	bulked(f, "dry run", got, err, 5, 2, nil)
	lists(f, m, delayqueue.StateReady, Filter{})
	b.DryRun = false
	got, err = m.BulkRequeue(queuetest.CtxB, b)
	bulked(f, "brought back", got, err, 5, 2, nil)
	if steps != 6 {
		f.T.Errorf("%d steps, want 6", steps)
	}
	if got := payloadsIn(f, m, delayqueue.StateReady, Filter{}); len(got) != 2 || !strings.HasPrefix(got[0], "timeout") {
		f.T.Errorf("ready: %q", got)
	}
	f.Send(f.Queue(nil), "other", face.InAnHour, delayqueue.WithKey("key of refused 1"))
	got, err = m.BulkRequeue(queuetest.CtxB, Bulk{Filter: Filter{Key: "key of refused 1"}})
	bulked(f, "its key is taken", got, err, 3, 0, map[Reason]int64{PassedKey: 1})
	old := Bulk{States: []delayqueue.State{delayqueue.StateGarbage}, Filter: Filter{To: time.Now().Add(-time.Hour)}}
	got, err = m.BulkDelete(queuetest.CtxB, old)
	bulked(f, "older than an hour", got, err, 0, 0, nil)
	dead := Bulk{States: []delayqueue.State{delayqueue.StateGarbage}, Filter: Filter{Limit: 1}}
	if got, err := m.BulkDelete(queuetest.Over(), dead); !errors.Is(err, context.Canceled) || got == nil || got.Done != 0 {
		f.T.Errorf("with a context that has ended: %+v, %v", got, err)
	}
	dead.Progress = func(r *BulkResult) bool { return r.Done < 2 }
	got, err = m.BulkDelete(queuetest.CtxB, dead)
	if err != nil || got.Done != 2 || got.Finished || got.Next != "" {
		f.T.Errorf("stopped after two: %+v, %v", got, err)
	}
	buriedIn(f, "later")
	dead.Progress, dead.Before = nil, got.At
	again, err := m.BulkDelete(queuetest.CtxB, dead)
	bulked(f, "again", again, err, 1, 1, nil)
	if !again.At.Equal(got.At) {
		f.T.Errorf("again: at %v, want %v", again.At, got.At)
	}
	lists(f, m, delayqueue.StateGarbage, Filter{Contains: "refused"})
	lists(f, m, delayqueue.StateGarbage, Filter{Contains: "later"}, "later")
}

func bulkOfPending(f *face.Fixture, m *Queue) {
	q := f.Queue(nil)
	base := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	at := func(i int) time.Time { return base.Add(time.Duration(i) * time.Minute) }
	const n = 12
	batch := make([]delayqueue.Outgoing, n)
	for i := range batch {
		batch[i] = delayqueue.Outgoing{Payload: fmt.Sprint(i),
			Options: []delayqueue.MsgOption{delayqueue.WithSchedule(at(i))}}
	}
	f.Must(queuetest.Failure(q.SendBatch(queuetest.CtxB, batch)))
	dues := func() (minutes []int) {
		for msg, err := range m.All(queuetest.CtxB, delayqueue.StatePending, Filter{}) {
			f.Must(err)
			minutes = append(minutes, int(msg.Due.Sub(base)/time.Minute))
		}
		return minutes
	}
	moved := func(what string, got *BulkResult, err error, count int64, want ...int) {
		f.T.Helper()
		if due := dues(); err != nil || got.Done != count || got.Looked != count || got.Next != "" ||
			!slices.Equal(due, want) {
			f.T.Errorf("%s: %+v, %v, due at %v; want %d, %v", what, got, err, due, count, want)
		}
	}
	few := Bulk{States: []delayqueue.State{delayqueue.StatePending}, Filter: Filter{Limit: 3}}
	got, err := m.BulkRescheduleBy(queuetest.CtxB, few, 5*time.Minute)
	moved("5 minutes later, although they pass each other", got, err, n, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16)
	got, err = m.BulkRescheduleBy(queuetest.CtxB, few, -5*time.Minute)
	moved("5 minutes earlier", got, err, n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
	some := few
	some.From, some.To = at(1), at(8)
	got, err = m.BulkDelete(queuetest.CtxB, some)
	moved("deleted a range", got, err, 8, 0, 9, 10, 11)
	few.Limit = 1
	got, err = m.BulkReschedule(queuetest.CtxB, few, at(10))
	moved("all at one time, those that are not due then", got, err, 3, 10, 10, 10, 10)
	few.Spread = 20 * time.Minute
	got, err = m.BulkReschedule(queuetest.CtxB, few, at(11))
	moved("spread over a time", got, err, 4, 11, 16, 21, 26)
	few.Spread = 0
	got, err = m.BulkRescheduleBy(queuetest.CtxB, few, -3*time.Hour)
	moved("to the past, so now", got, err, 4)
	if got, err := m.Counts(queuetest.CtxB); err != nil || got.Ready != 4 {
		f.T.Errorf("%+v, %v; want 4 ready", got, err)
	}
	got, err = m.BulkRunNow(queuetest.CtxB, Bulk{})
	moved("what is due already", got, err, 0)
}

// bulkInEveryState: one message in each state, and the calls that mean it.
func bulkInEveryState(f *face.Fixture, m *Queue) {
	started, release := make(chan context.Context, 1), make(chan struct{})
	q := f.Queue(nil).WithConcurrent(1).WithRetryDelays(time.Hour).WithHandler(
		func(ctx context.Context, msg *delayqueue.Message) error {
			switch msg.Payload {
			case "unack":
				started <- ctx
				<-release
				return nil
			case "garbage":
				return delayqueue.ErrSkipRetry
			}
			return queuetest.ErrBoom
		})
	f.Send(q, "garbage")
	f.Send(q, "retry")
	q.StartConsume()
	queuetest.Eventually(f.T, "one is garbage, one waits for its retry", func() bool {
		s := f.Check()
		return len(s.Garbage) == 1 && len(s.Retry) == 1
	})
	f.Send(q, "unack")
	queuetest.Receive(f.T, "it is handled", started)
	f.Must(m.Pause(queuetest.CtxB))
	f.Send(q, "pending", face.InAnHour)
	f.Send(q, "ready", delayqueue.WithHeader("of", "ready"))
	everywhere := []delayqueue.State{delayqueue.StatePending, delayqueue.StateReady, delayqueue.StateUnack,
		delayqueue.StateRetry, delayqueue.StateGarbage}
	for _, state := range everywhere {
		got, err := m.BulkDelete(queuetest.CtxB, Bulk{States: []delayqueue.State{state}, DryRun: true})
		bulked(f, state.String(), got, err, 1, 1, nil)
		lists(f, m, state, Filter{Limit: 1}, state.String())
	}
	one := map[delayqueue.State]int64{}
	got, err := m.BulkDelete(queuetest.CtxB, Bulk{States: everywhere, DryRun: true})
	for range 2 { // the count of a dry run, and of one that goes on from it
		bulked(f, "count", got, err, 5, 5, nil)
		for _, state := range everywhere {
			one[state] = 1
		}
		if !maps.Equal(got.ByState, one) {
			f.T.Errorf("by state: %v", got.ByState)
		}
		got, err = m.BulkDelete(queuetest.CtxB, Bulk{States: everywhere, DryRun: true, Filter: Filter{Limit: 1},
			Progress: func(*BulkResult) bool { return false }})
		for err == nil && got.Next != "" {
			got, err = m.BulkDelete(queuetest.CtxB, Bulk{States: everywhere, DryRun: true, Filter: Filter{Limit: 1},
				Cursor: got.Next})
		}
	}
	got, err = m.BulkReschedule(queuetest.CtxB, Bulk{}, time.Now().Add(2*time.Hour))
	bulked(f, "reschedule", got, err, 3, 3, nil)
	if want := (map[delayqueue.State]int64{delayqueue.StatePending: 1, delayqueue.StateReady: 1,
		delayqueue.StateRetry: 1}); !maps.Equal(got.ByState, want) {
		f.T.Errorf("rescheduled by state: %v", got.ByState)
	}
	lists(f, m, delayqueue.StatePending, Filter{}, "pending", "ready")
	lists(f, m, delayqueue.StateRetry, Filter{From: time.Now().Add(time.Hour)}, "retry")
	got, err = m.BulkRescheduleBy(queuetest.CtxB, Bulk{States: []delayqueue.State{delayqueue.StateRetry}}, -90*time.Minute)
	bulked(f, "earlier", got, err, 1, 1, nil)
	got, err = m.BulkRequeue(queuetest.CtxB, Bulk{Spread: time.Hour})
	bulked(f, "requeue", got, err, 1, 1, nil)
	got, err = m.BulkRunNow(queuetest.CtxB, Bulk{Filter: Filter{HeadersContain: map[string]string{"of": "r"}}})
	bulked(f, "run now", got, err, 4-1, 1, nil)
	lists(f, m, delayqueue.StateReady, Filter{}, "garbage", "ready")
	got, err = m.BulkDelete(queuetest.CtxB, Bulk{States: everywhere})
	bulked(f, "delete", got, err, 5, 5, nil)
	close(release)
	f.Must(q.Shutdown(queuetest.CtxB))
	f.CheckEmpty()
	refused(f.T, map[string]error{
		"nowhere":        refusal(m.BulkDelete(queuetest.CtxB, Bulk{})),
		"gone":           refusal(m.BulkDelete(queuetest.CtxB, Bulk{States: []delayqueue.State{delayqueue.StateGone}})),
		"requeue others": refusal(m.BulkRequeue(queuetest.CtxB, Bulk{States: everywhere})),
		"held":           refusal(m.BulkRunNow(queuetest.CtxB, Bulk{States: []delayqueue.State{delayqueue.StateUnack}})),
		"too late":       refusal(m.BulkReschedule(queuetest.CtxB, Bulk{}, message.MaxDue)),
		"too much later": refusal(m.BulkRescheduleBy(queuetest.CtxB, Bulk{}, message.MaxDelay+1)),
		"spread by":      refusal(m.BulkRescheduleBy(queuetest.CtxB, Bulk{Spread: 1e9}, 1)),
		"spread delete":  refusal(m.BulkDelete(queuetest.CtxB, Bulk{States: everywhere, Spread: time.Second})),
		"spread below 0": refusal(m.BulkRunNow(queuetest.CtxB, Bulk{Spread: -time.Second})),
		"rate below 0":   refusal(m.BulkRunNow(queuetest.CtxB, Bulk{Rate: -1})),
		"most below 0":   refusal(m.BulkRunNow(queuetest.CtxB, Bulk{Most: -1})),
		"not dry":        refusal(m.BulkRunNow(queuetest.CtxB, Bulk{Cursor: "eyJwIjoxfQ"})),
		"no cursor":      refusal(m.BulkRunNow(queuetest.CtxB, Bulk{DryRun: true, Cursor: "no"})),
		"another cursor": refusal(m.BulkRunNow(queuetest.CtxB, Bulk{DryRun: true, Cursor: "eyJwIjoxfQ"})),
	})
}

// TestBulkTouchesEachOnce: what fails again while a call for many goes on is passed over.
func TestBulkTouchesEachOnce(t *testing.T) {
	f, m := newQueue(t)
	const n = 30
	var payloads []string
	for i := range n {
		payloads = append(payloads, fmt.Sprint(i))
	}
	buriedIn(f, payloads...)
	var again queuetest.Tally
	q := f.Queue(nil).WithConcurrent(8).WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
		again.Add(msg.Payload)
		return delayqueue.ErrSkipRetry
	})
	q.StartConsume()
	got, err := m.BulkRequeue(queuetest.CtxB, Bulk{Filter: Filter{Limit: 2}, Progress: func(r *BulkResult) bool {
		queuetest.Eventually(t, "those that were brought back have died again", func() bool {
			_, total := again.Counts()
			return total >= int(r.Done)
		})
		return r.Done <= n
	}})
	bulked(f, "requeue with a handler that fails", got, err, n, n, nil)
	f.Must(q.Shutdown(queuetest.CtxB))
	if distinct, total := again.Counts(); distinct != n || total != n {
		t.Errorf("%d of %d were handled, %d times", distinct, n, total)
	}
}

// TestBulkEnds: a call for many ends although others send faster than it looks, and passes over what they send.
func TestBulkEnds(t *testing.T) {
	t.Parallel()
	for name, places := range map[string][]delayqueue.State{
		"pending": {delayqueue.StatePending},
		"waiting": {delayqueue.StatePending, delayqueue.StateReady, delayqueue.StateRetry},
	} {
		for _, dry := range []bool{false, true} {
			t.Run(fmt.Sprint(name, dry), func(t *testing.T) {
				f, m := newQueue(t)
				const n = 12
				pendingAt(f, n)
				q, steps := f.Queue(nil), 0
				got, err := m.BulkDelete(queuetest.CtxB, Bulk{States: places, DryRun: dry, Filter: Filter{Limit: 3},
					Progress: func(*BulkResult) bool {
						for range 4 { // more than a step looks at
							f.Send(q, "new", delayqueue.WithDelay(2*time.Hour))
						}
						steps++
						return steps < 10*n
					}})
				if err != nil || got.Done != n || !got.Finished || steps >= 10*n || got.Passed[PassedNew] == 0 {
					t.Errorf("after %d steps: %+v, %v", steps, got, err)
				}
				old := func(payload string) bool { return payload != "new" }
				if left := payloadsIn(f, m, delayqueue.StatePending, Filter{}); !dry && slices.ContainsFunc(left, old) {
					t.Errorf("%q are left", left)
				}
			})
		}
	}
}

// TestBulkAgain: however often a call for many is cut off, the same call does the rest, in whatever step the cut
// falls, and whether or not its reply gets through. What was sent meanwhile stays.
func TestBulkAgain(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	const n = 40
	pendingAt(f, n)
	cli := f.Client()
	ctx, cancel := context.WithCancel(queuetest.CtxB)
	cuts, fates := 0, rand.New(rand.NewPCG(1, 2))
	var late []func()
	t.Cleanup(link.Interpose(cli,
		queuetest.CommandHook(func(c context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			args := cmd.Args()
			if args[1] != script.SteerScript.SHA {
				return next(c, cmd)
			}
			defer func(calls []func()) {
				for _, call := range calls {
					call()
				}
			}(late)
			late = nil
			switch fates.IntN(4) {
			case 0: // its reply is lost
				_ = next(c, cmd)
			case 1: // it never arrives
			case 2: // it arrives after the one that follows it
				late = append(late, func() { _ = f.Cli.Do(queuetest.CtxB, args...).Err() })
			default:
				return next(c, cmd)
			}
			cuts++
			cancel()
			return fmt.Errorf("the reply is lost: %w", context.DeadlineExceeded)
		})))
	broken, b, at := Of(delayqueue.NewMonitor(f.Name, cli)), Bulk{Filter: Filter{Limit: 3}},
		time.Now().Add(9*time.Hour).Truncate(time.Microsecond)
	got, err := broken.BulkReschedule(ctx, b, at)
	b.Before = got.At
	for calls := 0; err != nil && calls < 10*n; calls++ {
		if !errors.Is(err, context.Canceled) || got.Finished {
			t.Fatalf("cut off: %+v, %v", got, err)
		}
		f.Send(f.Queue(nil), "new", face.InAnHour)
		ctx, cancel = context.WithCancel(queuetest.CtxB)
		got, err = broken.BulkReschedule(ctx, b, at)
	}
	cancel()
	if cuts < n/10 {
		t.Errorf("only %d times cut off", cuts)
	}
	if err != nil || !got.Finished || !got.At.Equal(b.Before) {
		t.Errorf("in the end: %+v, %v", got, err)
	}
	moved := 0
	for msg, err := range Of(delayqueue.NewMonitor(f.Name, f.Cli)).All(queuetest.CtxB, delayqueue.StatePending, Filter{}) {
		f.Must(err)
		if msg.Due.Equal(at) {
			moved++
		}
		if msg.Due.Equal(at) == (msg.Payload == "new") {
			t.Errorf("%s is due at %v", msg.Payload, msg.Due)
		}
	}
	if moved != n {
		t.Errorf("%d are due at %v, want %d", moved, at, n)
	}
}

// TestBulkRunNowAgain: what was made due by a call that was cut off, and waits, is not spread once more.
func TestBulkRunNowAgain(t *testing.T) {
	f, m := newQueue(t)
	const n = 12
	pendingAt(f, n)
	b := Bulk{Filter: Filter{Limit: 3}, Spread: time.Minute, Progress: func(r *BulkResult) bool { return r.Done == 0 }}
	first, err := m.BulkRunNow(queuetest.CtxB, b)
	f.Must(err)
	b.Progress, b.Before = nil, first.At
	due := map[string]time.Time{}
	for msg, err := range m.All(queuetest.CtxB, delayqueue.StatePending, Filter{To: time.Now().Add(30 * time.Minute)}) {
		f.Must(err)
		due[msg.ID] = msg.Due
	}
	got, err := m.BulkRunNow(queuetest.CtxB, b)
	f.Must(err)
	if first.Done+got.Done != n || len(due)+1 < int(first.Done) {
		t.Errorf("%d, and then %d are due, want %d", first.Done, got.Done, n)
	}
	for id, before := range due {
		if msg, err := m.Get(queuetest.CtxB, id); err != nil || !msg.Due.Equal(before) {
			t.Errorf("%s: %+v, %v; want it due at %v", id, msg, err, before)
		}
	}
}

// TestBulkOutlastsAnOutage: what a call for many reads is tried as long as what it changes, without a deadline too. A
// dry run is a look.
func TestBulkOutlastsAnOutage(t *testing.T) {
	t.Parallel()
	for dry, want := range map[bool]time.Duration{false: message.MaxDelay, true: 0} {
		ctx, cancel := (&operation{dry: dry}).untilDone(queuetest.CtxB)
		if until, bounded := ctx.Deadline(); bounded == dry || !dry && time.Until(until) < want-queuetest.Patience {
			t.Errorf("dry %v: reads are tried until %v", dry, until)
		}
		cancel()
	}
	f, wire, cli := face.Wired(t)
	const n = 7
	for range n {
		f.Send(f.Queue(nil), "x", delayqueue.WithDelay(time.Hour))
	}
	m := Of(delayqueue.NewMonitor(f.Name, cli))
	var mends sync.WaitGroup
	defer mends.Wait()
	outage := func() {
		wire.Cut()
		mends.Add(1)
		time.AfterFunc(300*time.Millisecond, func() { defer mends.Done(); wire.Mend() })
	}
	outage()
	steps := 0
	r, err := m.BulkDelete(queuetest.CtxB,
		Bulk{States: []delayqueue.State{delayqueue.StatePending}, Filter: Filter{Limit: 3}, Progress: func(*BulkResult) bool {
			if steps++; steps < 3 {
				outage()
			}
			return true
		}})
	if err != nil || r.Done != n || steps != 3 || len(f.Check().Messages) != 0 {
		t.Errorf("%d of %d are deleted after %d steps: %v", r.Done, n, steps, err)
	}
}

// TestBulkWithAWildProgress: a Progress that panics, or ends its goroutine, does so to its caller, and the journal
// says that the call has stopped.
func TestBulkWithAWildProgress(t *testing.T) {
	for name, c := range map[string]struct {
		progress func(*BulkResult) bool
		want     any
	}{
		"panics": {func(*BulkResult) bool { panic("mine") }, "mine"},
		"ends":   {func(*BulkResult) bool { runtime.Goexit(); return true }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := face.New(t)
			for range 3 {
				f.Send(f.Queue(nil), "x", face.InAnHour)
			}
			m, end := Of(delayqueue.NewMonitor(f.Name, f.Cli)), make(chan any, 1)
			go func() {
				defer func() { end <- recover() }()
				_, _ = m.BulkDelete(queuetest.CtxB,
					Bulk{States: []delayqueue.State{delayqueue.StatePending}, Filter: Filter{Limit: 1}, Progress: c.progress})
			}()
			if got := queuetest.Receive(t, "it ends", end); got != c.want {
				t.Errorf("the caller recovers %v", got)
			}
			entry := entryOf(f, m)
			if entry.Bulk.Phase != journal.Stopped || entry.Messages != 1 || entry.Bulk.Task == nil {
				t.Errorf("the journal: %+v, %+v", entry, entry.Bulk)
			}
			rest, ok := entry.Rest()
			got, err := m.BulkDelete(queuetest.CtxB, rest)
			if !ok {
				t.Errorf("there is no rest of %+v", entry)
			}
			bulked(f, "again", got, err, 2, 2, nil)
		})
	}
}

// TestBulkOfAVanishedQueue: if the queue vanishes half way, the call does not say that all is done.
func TestBulkOfAVanishedQueue(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	for range 3 {
		f.Send(f.Queue(nil), "x", face.InAnHour)
	}
	m := Of(delayqueue.NewMonitor(f.Name, f.Cli))
	got, err := m.BulkRunNow(queuetest.CtxB,
		Bulk{States: []delayqueue.State{delayqueue.StatePending}, Filter: Filter{Limit: 1}, Progress: func(*BulkResult) bool {
			f.Must(f.Cli.Del(queuetest.CtxB, f.Key("pending"), f.Key("msg"), f.Key("state"), f.Key("wake")).Err())
			return true
		}})
	if !errors.Is(err, delayqueue.ErrNoQueue) || got.Done != 1 || got.Total != 3 {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestBulkSparesWhatWasReplaced: a call for many passes over a message that a send replaced after the call had looked
// at it.
func TestBulkSparesWhatWasReplaced(t *testing.T) {
	f, m := newQueue(t)
	q, replaced := f.Queue(nil), false
	for i := range 3 {
		f.Send(q, "old", delayqueue.WithDelay(time.Hour), delayqueue.WithKey(fmt.Sprint("k", i)))
	}
	t.Cleanup(link.Interpose(f.Cli,
		queuetest.CommandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if slices.Contains(cmd.Args(), any(script.SteerDelete)) && !replaced {
				replaced = true
				f.Send(q, "new", delayqueue.WithKey("k1", delayqueue.Replace))
			}
			return next(ctx, cmd)
		})))
	pending := []delayqueue.State{delayqueue.StatePending}
	got, err := m.BulkDelete(queuetest.CtxB, Bulk{States: pending, Filter: Filter{Contains: "old"}})
	bulked(f, "delete beside a send", got, err, 3, 2, map[Reason]int64{PassedMoved: 1})
	if left := payloadsIn(f, m, delayqueue.StatePending, Filter{}); !slices.Equal(left, []string{"new"}) {
		t.Errorf("%q are left", left)
	}
}
