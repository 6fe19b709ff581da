package delayqueue

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

	"github.com/redis/go-redis/v9"
)

// bulked wants a call for many to have ended with this.
func (f *fixture) bulked(what string, got *BulkResult, err error, looked, done int64, passed map[Reason]int64) {
	f.t.Helper()
	if err != nil || got.Looked != looked || got.Total != looked || got.Done != done || !maps.Equal(got.Passed, passed) || got.Next != "" {
		f.t.Errorf("%s: %+v, %v; want %d of %d done, passed over %v", what, got, err, done, looked, passed)
	}
}

func TestBulkOfGarbage(t *testing.T) { onSharedServer(t, bulkOfGarbage) }

func bulkOfGarbage(f *fixture, m *Monitor) {
	f.buried("timeout 1", "timeout 2", "refused 1", "refused 2", "refused 3")
	steps := 0
	b := Bulk{Filter: Filter{Error: "no timeout", Limit: 2}, DryRun: true, Progress: func(r *BulkResult) bool {
		steps++
		return r.Total == 5 && r.Looked <= 5
	}}
	got, err := m.BulkRequeue(ctxB, b)
	f.bulked("dry run", got, err, 5, 2, nil)
	f.lists(m, StateReady, Filter{})
	b.DryRun = false
	got, err = m.BulkRequeue(ctxB, b)
	f.bulked("brought back", got, err, 5, 2, nil)
	if steps != 6 {
		f.t.Errorf("%d steps, want 6", steps)
	}
	if got := f.payloads(m, StateReady, Filter{}); len(got) != 2 || !strings.HasPrefix(got[0], "timeout") {
		f.t.Errorf("ready: %q", got)
	}
	f.send(f.queue(nil), "other", inAnHour, WithKey("key of refused 1"))
	got, err = m.BulkRequeue(ctxB, Bulk{Filter: Filter{Key: "key of refused 1"}})
	f.bulked("its key is taken", got, err, 3, 0, map[Reason]int64{PassedKey: 1})
	old := Bulk{States: []State{StateGarbage}, Filter: Filter{To: time.Now().Add(-time.Hour)}}
	got, err = m.BulkDelete(ctxB, old)
	f.bulked("older than an hour", got, err, 0, 0, nil)
	over, cancel := context.WithCancel(ctxB)
	cancel()
	dead := Bulk{States: []State{StateGarbage}, Filter: Filter{Limit: 1}}
	if got, err := m.BulkDelete(over, dead); !errors.Is(err, context.Canceled) || got == nil || got.Done != 0 {
		f.t.Errorf("with a context that has ended: %+v, %v", got, err)
	}
	dead.Progress = func(r *BulkResult) bool { return r.Done < 2 }
	got, err = m.BulkDelete(ctxB, dead)
	if err != nil || got.Done != 2 || got.Next == "" {
		f.t.Errorf("stopped after two: %+v, %v", got, err)
	}
	got, err = m.BulkContinue(ctxB, got.Next, nil)
	f.bulked("continued", got, err, 3, 3, nil)
	f.lists(m, StateGarbage, Filter{})
}

func TestBulkOfPending(t *testing.T) { onSharedServer(t, bulkOfPending) }

func bulkOfPending(f *fixture, m *Monitor) {
	q := f.queue(nil)
	base := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	at := func(i int) time.Time { return base.Add(time.Duration(i) * time.Minute) }
	const n = 12
	batch := make([]Outgoing, n)
	for i := range batch {
		batch[i] = Outgoing{Payload: fmt.Sprint(i), Options: []MsgOption{WithSchedule(at(i))}}
	}
	_, err := q.SendBatch(ctxB, batch)
	f.must(err)
	dues := func() (minutes []int) {
		for msg, err := range m.All(ctxB, StatePending, Filter{}) {
			f.must(err)
			minutes = append(minutes, int(msg.Due.Sub(base)/time.Minute))
		}
		return minutes
	}
	moved := func(what string, got *BulkResult, err error, count int64, want ...int) {
		f.t.Helper()
		if due := dues(); err != nil || got.Done != count || got.Looked != count || got.Next != "" || !slices.Equal(due, want) {
			f.t.Errorf("%s: %+v, %v, due at %v; want %d, %v", what, got, err, due, count, want)
		}
	}
	few := Bulk{States: []State{StatePending}, Filter: Filter{Limit: 3}}
	got, err := m.BulkRescheduleBy(ctxB, few, 5*time.Minute)
	moved("5 minutes later, although they pass each other", got, err, n, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16)
	got, err = m.BulkRescheduleBy(ctxB, few, -5*time.Minute)
	moved("5 minutes earlier", got, err, n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
	some := few
	some.From, some.To = at(1), at(8)
	got, err = m.BulkDelete(ctxB, some)
	moved("deleted a range", got, err, 8, 0, 9, 10, 11)
	few.Limit = 1
	got, err = m.BulkReschedule(ctxB, few, at(10))
	moved("all at one time, those that are not due then", got, err, 3, 10, 10, 10, 10)
	few.Spread = 20 * time.Minute
	got, err = m.BulkReschedule(ctxB, few, at(11))
	moved("spread over a time", got, err, 4, 11, 16, 21, 26)
	few.Spread = 0
	got, err = m.BulkRescheduleBy(ctxB, few, -3*time.Hour)
	moved("to the past, so now", got, err, 4)
	if got, err := m.Counts(ctxB); err != nil || got.Ready != 4 {
		f.t.Errorf("%+v, %v; want 4 ready", got, err)
	}
	got, err = m.BulkRunNow(ctxB, Bulk{})
	moved("what is due already", got, err, 0)
}

func TestBulkInEveryState(t *testing.T) { onSharedServer(t, bulkInEveryState) }

// bulkInEveryState: one message in each state, and the calls that mean it.
func bulkInEveryState(f *fixture, m *Monitor) {
	started, release := make(chan context.Context, 1), make(chan struct{})
	q := f.queue(nil).WithConcurrent(1).WithRetryDelays(time.Hour).WithHandler(func(ctx context.Context, msg *Message) error {
		switch msg.Payload {
		case "unack":
			started <- ctx
			<-release
			return nil
		case "garbage":
			return ErrSkipRetry
		}
		return errBoom
	})
	f.send(q, "garbage")
	f.send(q, "retry")
	q.StartConsume()
	eventually(f.t, "one is garbage, one waits for its retry", func() bool { s := f.check(); return len(s.Garbage) == 1 && len(s.Retry) == 1 })
	f.send(q, "unack")
	receive(f.t, "it is handled", started)
	f.must(m.Pause(ctxB))
	f.send(q, "pending", inAnHour)
	f.send(q, "ready", WithHeader("of", "ready"))
	everywhere := []State{StatePending, StateReady, StateUnack, StateRetry, StateGarbage}
	for _, state := range everywhere {
		got, err := m.BulkDelete(ctxB, Bulk{States: []State{state}, DryRun: true})
		f.bulked(state.String(), got, err, 1, 1, nil)
		f.lists(m, state, Filter{Limit: 1}, state.String())
	}
	got, err := m.BulkReschedule(ctxB, Bulk{}, time.Now().Add(2*time.Hour))
	f.bulked("reschedule", got, err, 3, 3, nil)
	f.lists(m, StatePending, Filter{}, "pending", "ready")
	f.lists(m, StateRetry, Filter{From: time.Now().Add(time.Hour)}, "retry")
	got, err = m.BulkRescheduleBy(ctxB, Bulk{States: []State{StateRetry}}, -90*time.Minute)
	f.bulked("earlier", got, err, 1, 1, nil)
	got, err = m.BulkRequeue(ctxB, Bulk{Spread: time.Hour})
	f.bulked("requeue", got, err, 1, 1, nil)
	got, err = m.BulkRunNow(ctxB, Bulk{Filter: Filter{Headers: map[string]string{"of": "r"}}})
	f.bulked("run now", got, err, 4-1, 1, nil)
	f.lists(m, StateReady, Filter{}, "garbage", "ready")
	got, err = m.BulkDelete(ctxB, Bulk{States: everywhere})
	f.bulked("delete", got, err, 5, 5, nil)
	close(release)
	f.must(q.Shutdown(ctxB))
	f.checkEmpty()
	for what, call := range map[string]func() (*BulkResult, error){
		"nowhere":        func() (*BulkResult, error) { return m.BulkDelete(ctxB, Bulk{}) },
		"gone":           func() (*BulkResult, error) { return m.BulkDelete(ctxB, Bulk{States: []State{StateGone}}) },
		"requeue others": func() (*BulkResult, error) { return m.BulkRequeue(ctxB, Bulk{States: everywhere}) },
		"held":           func() (*BulkResult, error) { return m.BulkRunNow(ctxB, Bulk{States: []State{StateUnack}}) },
		"too late":       func() (*BulkResult, error) { return m.BulkReschedule(ctxB, Bulk{}, maxDue) },
		"too much later": func() (*BulkResult, error) { return m.BulkRescheduleBy(ctxB, Bulk{}, maxDelay+1) },
		"spread by":      func() (*BulkResult, error) { return m.BulkRescheduleBy(ctxB, Bulk{Spread: 1e9}, 1) },
		"spread delete": func() (*BulkResult, error) {
			return m.BulkDelete(ctxB, Bulk{States: everywhere, Spread: time.Second})
		},
		"spread no unit": func() (*BulkResult, error) { return m.BulkRunNow(ctxB, Bulk{Spread: 30}) },
		"by, no unit":    func() (*BulkResult, error) { return m.BulkRescheduleBy(ctxB, Bulk{}, -30) },
		"spread below 0": func() (*BulkResult, error) { return m.BulkRunNow(ctxB, Bulk{Spread: -time.Second}) },
		"no cursor":      func() (*BulkResult, error) { return m.BulkContinue(ctxB, "no", nil) },
		"no text":        func() (*BulkResult, error) { return m.BulkContinue(ctxB, "", nil) },
		"another cursor": func() (*BulkResult, error) { return m.BulkContinue(ctxB, "eyJwIjoxfQ", nil) },
	} {
		if got, err := call(); got == nil || !errors.Is(err, ErrBadOption) && !errors.Is(err, ErrBadCursor) {
			f.t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
}

// TestBulkTouchesEachOnce: what fails again, or is sent while a call for many goes on, is passed over.
func TestBulkTouchesEachOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := NewMonitor(f.name, f.cli)
	const n = 30
	var payloads []string
	for i := range n {
		payloads = append(payloads, fmt.Sprint(i))
	}
	f.buried(payloads...)
	var again tally
	q := f.queue(nil).WithConcurrent(8).WithHandler(func(_ context.Context, msg *Message) error {
		again.add(msg.Payload)
		return ErrSkipRetry
	})
	q.StartConsume()
	got, err := m.BulkRequeue(ctxB, Bulk{Filter: Filter{Limit: 2}, Progress: func(r *BulkResult) bool {
		eventually(t, "those that were brought back have died again", func() bool { _, total := again.counts(); return total >= int(r.Done) })
		return r.Done <= n
	}})
	f.bulked("requeue with a handler that fails", got, err, n, n, nil)
	f.must(q.Shutdown(ctxB))
	if distinct, total := again.counts(); distinct != n || total != n {
		t.Errorf("%d of %d were handled, %d times", distinct, n, total)
	}
	_, err = m.BulkDelete(ctxB, Bulk{States: []State{StateGarbage}})
	f.must(err)

	for i := range n {
		f.send(q, fmt.Sprint(i), WithDelay(time.Hour+time.Duration(i)*time.Second))
	}
	got, err = m.BulkDelete(ctxB, Bulk{States: []State{StatePending}, Filter: Filter{Limit: 2}, Progress: func(r *BulkResult) bool {
		f.send(q, "new", WithDelay(2*time.Hour))
		return r.Looked < 10*n
	}})
	if err != nil || got.Done != n || got.Passed[PassedNew] == 0 {
		t.Errorf("delete beside a sender: %+v, %v", got, err)
	}
	if left := f.payloads(m, StatePending, Filter{}); len(left) < n/2 || slices.ContainsFunc(left, func(p string) bool { return p != "new" }) {
		t.Errorf("%q are left", left)
	}
}

// TestBulkContinues: however often a call for many is cut off, each message is moved once, in whatever step the
// cut falls, and whether or not its reply gets through.
func TestBulkContinues(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(nil)
	const n = 40
	base := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	batch := make([]Outgoing, n)
	for i := range batch {
		batch[i] = Outgoing{Payload: fmt.Sprint(i), Options: []MsgOption{WithSchedule(base.Add(time.Duration(i) * time.Second))}}
	}
	_, err := q.SendBatch(ctxB, batch)
	f.must(err)
	cli := f.client()
	ctx, cancel := context.WithCancel(ctxB)
	cuts, fates := 0, rand.New(rand.NewPCG(1, 2))
	var late []func()
	hookOwn(t, cli, commandHook(func(c context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		args := cmd.Args()
		if args[1] != steerScript.sha {
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
			late = append(late, func() { _ = f.cli.Do(ctxB, args...).Err() })
		default:
			return next(c, cmd)
		}
		cuts++
		cancel()
		return fmt.Errorf("the reply is lost: %w", context.DeadlineExceeded)
	}))
	broken := unhurriedMonitor(f.name, cli)
	got, err := broken.BulkRescheduleBy(ctx, Bulk{Filter: Filter{Limit: 3}}, 1500*time.Millisecond)
	for calls := 0; err != nil && calls < 10*n; calls++ {
		if !errors.Is(err, context.Canceled) || got.Next == "" {
			t.Fatalf("cut off: %+v, %v", got, err)
		}
		ctx, cancel = context.WithCancel(ctxB)
		got, err = broken.BulkContinue(ctx, got.Next, nil)
	}
	cancel()
	if cuts < n/3 {
		t.Errorf("only %d times cut off", cuts)
	}
	f.bulked("in the end", got, err, n, n, nil)
	for msg, err := range NewMonitor(f.name, f.cli).All(ctxB, StatePending, Filter{}) {
		f.must(err)
		var i int
		_, err = fmt.Sscan(msg.Payload, &i)
		f.must(err)
		if want := base.Add(time.Duration(i)*time.Second + 1500*time.Millisecond); !msg.Due.Equal(want) {
			t.Errorf("%d is due %v after it should be", i, msg.Due.Sub(want))
		}
	}
}

// TestBulkContinuesTwice: a result that was continued before, by one who did not live to say how far, is as good as
// any other, and so is one that two continue at once.
func TestBulkContinuesTwice(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q, m := f.queue(nil), NewMonitor(f.name, f.cli)
	for before := range 4 {
		for i := range 10 {
			f.send(q, fmt.Sprint(i), inAnHour)
		}
		steps := func(n int) func(*BulkResult) bool { return func(*BulkResult) bool { n--; return n > 0 } }
		first, err := m.BulkDelete(ctxB, Bulk{States: []State{StatePending}, Filter: Filter{Limit: 2}, Progress: steps(1)})
		f.must(err)
		_, err = m.BulkContinue(ctxB, first.Next, steps(before+1))
		f.must(err)
		got, err := m.BulkContinue(ctxB, first.Next, nil)
		if want := int64(10 - 2*(before+1)); err != nil || got.Done != want || got.Next != "" {
			t.Errorf("continued after %d steps: %+v, %v; want %d done", before+1, got, err, want)
		}
		f.lists(m, StatePending, Filter{})
	}
}

// TestBulkContinuesOnce: a Next of BulkRescheduleBy that has been used already is refused, however little was done since,
// and so is one of two who use it at once: nothing is moved twice, and nothing is said to be done that is not.
func TestBulkContinuesOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q, m := f.queue(nil), NewMonitor(f.name, f.cli)
	const n = 40
	base := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	for i := range n {
		f.send(q, fmt.Sprint(i), WithSchedule(base.Add(time.Duration(i)*time.Second)))
	}
	once := func(*BulkResult) bool { return false }
	first, err := m.BulkRescheduleBy(ctxB, Bulk{States: []State{StatePending}, Filter: Filter{Limit: 3}, Progress: once}, 5*time.Second)
	f.must(err)
	second, err := m.BulkContinue(ctxB, first.Next, once)
	f.must(err)
	if got, err := m.BulkContinue(ctxB, first.Next, nil); !errors.Is(err, ErrBadCursor) || got.Done != 3 || got.Next != "" {
		t.Errorf("a Next used again: %+v, %v", got, err)
	}
	third, err := m.BulkContinue(ctxB, second.Next, func(*BulkResult) bool {
		_, err := m.BulkContinue(ctxB, second.Next, nil) // it has done a step, and the other none
		if !errors.Is(err, ErrBadCursor) {
			t.Errorf("a Next in use: %v", err)
		}
		return true
	})
	f.bulked("in the end", third, err, n, n, nil)
	for msg, err := range m.All(ctxB, StatePending, Filter{}) {
		f.must(err)
		var i int
		_, err = fmt.Sscan(msg.Payload, &i)
		f.must(err)
		if want := base.Add(time.Duration(i+5) * time.Second); !msg.Due.Equal(want) {
			t.Errorf("%d is due %v after it should be", i, msg.Due.Sub(want))
		}
	}
}

// TestBulkOutlastsAnOutage: what a call for many reads is tried as long as what it changes, without a deadline too. A dry run is
// a look. It runs alone, for it changes readFor.
func TestBulkOutlastsAnOutage(t *testing.T) {
	defer func(before time.Duration) { readFor = before }(readFor)
	f, wire, cli := wired(t)
	const n = 7
	for range n {
		f.send(f.queue(nil), "x", WithDelay(time.Hour))
	}
	m := NewMonitor(f.name, cli)
	readFor = 0
	wire.Cut()
	if _, err := m.BulkDelete(ctxB, Bulk{States: []State{StatePending}, DryRun: true}); err == nil {
		t.Error("a dry run went on for long")
	}
	var mends sync.WaitGroup
	defer mends.Wait()
	outage := func() {
		wire.Cut()
		mends.Add(1)
		time.AfterFunc(300*time.Millisecond, func() { defer mends.Done(); wire.Mend() })
	}
	outage()
	steps := 0
	r, err := m.BulkDelete(ctxB, Bulk{States: []State{StatePending}, Filter: Filter{Limit: 3}, Progress: func(*BulkResult) bool {
		steps++
		outage()
		return steps == 1
	}})
	if err == nil {
		r, err = m.BulkContinue(ctxB, r.Next, nil)
	}
	if err != nil || r.Done != n || steps != 2 || len(f.check().Messages) != 0 {
		t.Errorf("%d of %d are deleted after %d steps: %v", r.Done, n, steps, err)
	}
}

// TestBulkWithAWildProgress: a Progress that panics, or ends its goroutine, does so to its caller, and the journal says that the
// call has stopped.
func TestBulkWithAWildProgress(t *testing.T) {
	for name, c := range map[string]struct {
		progress func(*BulkResult) bool
		want     any
	}{
		"panics": {func(*BulkResult) bool { panic("mine") }, "mine"},
		"ends":   {func(*BulkResult) bool { runtime.Goexit(); return true }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			for range 3 {
				f.send(f.queue(nil), "x", inAnHour)
			}
			m, end := NewMonitor(f.name, f.cli), make(chan any, 1)
			go func() {
				defer func() { end <- recover() }()
				_, _ = m.BulkDelete(ctxB, Bulk{States: []State{StatePending}, Filter: Filter{Limit: 1}, Progress: c.progress})
			}()
			if got := receive(t, "it ends", end); got != c.want {
				t.Errorf("the caller recovers %v", got)
			}
			entry := f.entryOf(m)
			if entry.Bulk.Phase != BulkStopped || entry.Messages != 1 || entry.Bulk.Next == "" {
				t.Errorf("the journal: %+v, %+v", entry, entry.Bulk)
			}
			got, err := m.BulkContinue(ctxB, entry.Bulk.Next, nil)
			f.must(err)
			if got.Done != 3 {
				t.Errorf("continued: %+v", got)
			}
		})
	}
}
