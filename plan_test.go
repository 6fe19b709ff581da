package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// planned wants a dry run to have counted so many, and returns its plan.
func (f *fixture) planned(what string, got *BulkResult, err error, count int64) string {
	f.t.Helper()
	if err != nil || got.Done != count || got.Next != "" || got.Plan == "" || got.At.IsZero() ||
		len(got.Sample) != min(int(count), maxSample) {
		f.t.Fatalf("%s: %+v, %v; want %d counted", what, got, err, count)
	}
	return got.Plan
}

func TestPlan(t *testing.T) { onSharedServer(t, planTouchesWhatWasCounted) }

// planTouchesWhatWasCounted: what comes between the count and the act is left alone, wherever it comes from.
func planTouchesWhatWasCounted(f *fixture, m *Monitor) {
	q := f.queue(nil)
	f.buried("dead x", "gone x", "brought x")
	f.send(q, "waits", inAnHour, WithKey("waits"))
	f.send(q, "stays x", inAnHour)
	f.send(q, "changes x", inAnHour, WithKey("changes"))
	late := f.send(q, "later x", WithDelay(9*time.Hour)).ID
	b := Bulk{States: []State{StatePending, StateReady, StateRetry, StateGarbage},
		Filter: Filter{To: time.Now().Add(2 * time.Hour)}, DryRun: true}
	got, err := m.BulkDelete(ctxB, b)
	all := f.planned("all but one", got, err, 6)
	for _, payload := range []string{"dead x", "gone x", "brought x", "waits", "stays x", "changes x"} {
		if !slices.ContainsFunc(got.Sample, func(m *MessageStatus) bool { return m.Payload == payload }) {
			f.t.Errorf("%q is no sample", payload)
		}
	}
	b.Contains = "x"
	got, err = m.BulkDelete(ctxB, b)
	some := f.planned("some", got, err, 5)
	task, err := m.BulkTask(some)
	f.must(err)
	if !task.Planned || task.Counted != 5 || task.Action != "delete" || task.Filter.Contains != "x" ||
		!task.At.Equal(got.At) || task.Looked != 0 {
		f.t.Errorf("the task is %+v", task)
	}

	f.buried("new dead x")
	f.send(q, "new x", inAnHour)
	f.must(m.Reschedule(ctxB, late, time.Now().Add(time.Hour)))
	f.send(q, "waits x", inAnHour, WithKey("waits", Replace))
	f.send(q, "changed", inAnHour, WithKey("changes", Replace))
	f.must(m.Requeue(ctxB, f.list(m, StateGarbage, Filter{Contains: "brought x"})[0].ID))
	f.must(m.Delete(ctxB, f.list(m, StateGarbage, Filter{Contains: "gone x"})[0].ID))
	left := func(what string, got *BulkResult, err error, want ...string) {
		f.t.Helper()
		pending := f.payloads(m, StatePending, Filter{})
		slices.Sort(pending)
		if err != nil || got.Done != 2 || got.Passed[PassedNew] == 0 || got.Next != "" || got.Plan != "" || !slices.Equal(pending, want) {
			f.t.Errorf("%s: %+v, %v, left %q; want 2 done, left %q", what, got, err, pending, want)
		}
		f.lists(m, StateGarbage, Filter{}, "new dead x")
		f.lists(m, StateReady, Filter{}, "brought x")
	}
	got, err = m.BulkCommit(ctxB, some, nil)
	left("some", got, err, "changed", "later x", "new x", "waits x")
	got, err = m.BulkCommit(ctxB, all, nil)
	left("all but one", got, err, "later x", "new x")
	for what, call := range map[string]func() (*BulkResult, error){
		"of another queue": func() (*BulkResult, error) { return NewMonitor(f.name+" 2", f.cli).BulkCommit(ctxB, some, nil) },
		"as a Next":        func() (*BulkResult, error) { return m.BulkContinue(ctxB, some, nil) },
		"no plan":          func() (*BulkResult, error) { return m.BulkCommit(ctxB, "eyJwIjoxfQ", nil) },
	} {
		if got, err := call(); got == nil || !errors.Is(err, ErrBadCursor) {
			f.t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
}

func (f *fixture) list(m *Monitor, state State, filter Filter) []*MessageStatus {
	f.t.Helper()
	page, err := m.List(ctxB, state, filter, "")
	f.must(err)
	return page.Messages
}

// TestPlanOfWhatIsHandled: what is handled when the plan is carried out, and was not when it was counted, is left alone.
func TestPlanOfWhatIsHandled(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := NewMonitor(f.name, f.cli)
	started, release := make(chan string, 10), make(chan struct{})
	q := f.queue(nil).WithConcurrent(2).WithHandler(func(ctx context.Context, msg *Message) error {
		started <- msg.Payload
		select {
		case <-release:
		case <-ctx.Done():
		}
		return nil
	})
	for _, payload := range []string{"first", "second"} {
		f.send(q, payload)
	}
	q.StartConsume()
	receive(t, "one is handled", started)
	receive(t, "another is handled", started)
	held := Bulk{States: []State{StateUnack}, DryRun: true}
	got, err := m.BulkDelete(ctxB, held)
	both := f.planned("two are handled", got, err, 2)
	held.Contains = "second"
	got, err = m.BulkDelete(ctxB, held)
	second := f.planned("one of two", got, err, 1)
	got, err = m.BulkCommit(ctxB, second, nil)
	f.bulked("taken out", got, err, 2, 1, nil)
	f.send(q, "third")
	if payload := receive(t, "another is handled", started); payload != "third" {
		t.Errorf("%q is handled", payload)
	}
	got, err = m.BulkCommit(ctxB, both, nil)
	f.bulked("the other one", got, err, 2, 1, map[Reason]int64{PassedNew: 1})
	eventually(t, "it is taken out", func() bool { s := f.check(); return len(s.Unack) == 1 })
	close(release)
	f.must(q.Shutdown(ctxB))
	f.checkEmpty()
}

// TestPlanOfMany: of more than a plan can name, no more are touched than were counted.
func TestPlanOfMany(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q, m := f.queue(nil), NewMonitor(f.name, f.cli)
	const n = maxNames + 1
	batch := make([]Outgoing, n+5)
	for i := range batch {
		batch[i] = Outgoing{Options: []MsgOption{WithDelay(time.Hour)}}
		if i >= n {
			batch[i].Options = []MsgOption{WithDelay(3 * time.Hour)}
		}
	}
	_, err := q.SendBatch(ctxB, batch)
	f.must(err)
	b := Bulk{States: []State{StatePending, StateUnack}, Filter: Filter{To: time.Now().Add(2 * time.Hour), Limit: 500}, DryRun: true}
	got, err := m.BulkDelete(ctxB, b)
	if err != nil || got.Done != n || got.Plan != "" {
		t.Errorf("a plan of what may be handled: %+v, %v", got, err)
	}
	b.States = b.States[:1]
	got, err = m.BulkDelete(ctxB, b)
	plan := f.planned("many", got, err, n)
	for _, msg := range f.list(m, StatePending, Filter{From: time.Now().Add(2 * time.Hour)}) {
		f.must(m.RescheduleBy(ctxB, msg.ID, -150*time.Minute))
	}
	got, err = m.BulkCommit(ctxB, plan, nil)
	if err != nil || got.Done != n || got.Next != "" || len(f.check().Pending) != 5 {
		t.Errorf("%+v, %v; want %d done", got, err, n)
	}
	got, err = m.BulkRunNow(ctxB, Bulk{Filter: Filter{Contains: "none"}, DryRun: true})
	plan = f.planned("none", got, err, 0)
	if got, err := m.BulkCommit(ctxB, plan, nil); err != nil || got.Done+got.Looked != 0 || got.Next != "" {
		t.Errorf("nothing: %+v, %v", got, err)
	}
}

// TestPlanOnce: of several who begin a plan, at once or later, one does it.
func TestPlanOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q, m := f.queue(nil), NewMonitor(f.name, f.cli)
	const n, callers = 30, 8
	base := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	for i := range n {
		f.send(q, fmt.Sprint(i), WithSchedule(base.Add(time.Duration(i)*time.Second)))
	}
	got, err := m.BulkRescheduleBy(ctxB, Bulk{Filter: Filter{Limit: 3}, DryRun: true}, 5*time.Second)
	plan := f.planned("shift", got, err, n)
	var all sync.WaitGroup
	var done, refused atomic.Int64
	for range callers {
		all.Go(func() {
			got, err := NewMonitor(f.name, f.cli).BulkCommit(ctxB, plan, nil)
			if done.Add(got.Done); errors.Is(err, ErrPlanOver) {
				refused.Add(1)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if _, err := m.BulkCommit(ctxB, plan, nil); !errors.Is(err, ErrPlanOver) || refused.Load() != callers-1 || done.Load() != n {
		t.Errorf("%d done, %d refused, at last %v", done.Load(), refused.Load(), err)
	}
	f.shifted(m, base, 5*time.Second)
}

// shifted wants messages that were a second apart to be due so much later.
func (f *fixture) shifted(m *Monitor, base time.Time, by time.Duration) {
	f.t.Helper()
	for msg, err := range m.All(ctxB, StatePending, Filter{}) {
		f.must(err)
		var i int
		_, err = fmt.Sscan(msg.Payload, &i)
		f.must(err)
		if want := base.Add(time.Duration(i)*time.Second + by); !msg.Due.Equal(want) {
			f.t.Errorf("%d is due %v after it should be", i, msg.Due.Sub(want))
		}
	}
}

// TestPlanContinues: a plan that is cut off goes on exactly, whatever replies are lost, that to its first call among them.
func TestPlanContinues(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q, m := f.queue(nil), NewMonitor(f.name, f.cli)
	const n = 24
	base := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	for i := range n {
		f.send(q, fmt.Sprint(i), WithSchedule(base.Add(time.Duration(i)*time.Second)))
	}
	b := Bulk{Filter: Filter{Limit: 4}, DryRun: true}
	b.Progress = func(*BulkResult) bool { return false }
	got, err := m.BulkRescheduleBy(ctxB, b, time.Minute)
	for steps := 0; err == nil && got.Next != "" && steps < n; steps++ {
		if got.Plan != "" {
			t.Errorf("the plan of a dry run that goes on: %+v", got)
		}
		got, err = m.BulkContinue(ctxB, got.Next, b.Progress)
	}
	got.Sample = make([]*MessageStatus, maxSample) // those of the last call
	plan := f.planned("counted with pauses", got, err, n)
	f.send(q, "0", WithSchedule(base.Add(time.Minute)))

	cli, lost := f.client(), 0
	hookOwn(t, cli, commandHook(func(c context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		err := next(c, cmd)
		if cmd.Args()[1] == steerScript.sha && err == nil {
			if lost++; lost%2 == 1 { // the first, and every other one; it is asked again
				cmd.SetErr(io.EOF)
				return io.EOF
			}
		}
		return err
	}))
	broken, stop := NewMonitor(f.name, cli), func(*BulkResult) bool { return false }
	got, err = broken.BulkCommit(ctxB, plan, stop)
	for steps := 0; err == nil && got.Next != "" && steps < 2*n; steps++ {
		got, err = broken.BulkContinue(ctxB, got.Next, stop)
	}
	if err != nil || got.Done != n || got.Passed[PassedNew] != 1 || lost < n/2 {
		t.Errorf("%+v, %v, %d replies lost; want %d done and a new one passed over", got, err, lost/2, n)
	}
	f.shifted(m, base, time.Minute)
}

// TestPlanInTime: a plan is begun within 55 minutes, in whichever order its calls arrive, and what is spread is spread
// from then on.
func TestPlanInTime(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		m := &Monitor{steerer: steerer{store: r.store, events: new(events)}}
		r.put(msg("a", 30*time.Minute), msg("b", 2*time.Hour), msg("c", 3*time.Hour))
		count := func() string {
			got, err := m.BulkRunNow(ctxB, Bulk{DryRun: true, Spread: time.Hour, Rate: 7})
			if err != nil || got.Done != 2 || got.Plan == "" {
				r.t.Fatalf("counted %+v, %v", got, err)
			}
			return got.Plan
		}
		old, good := count(), count()
		r.at(56 * time.Minute)
		r.fetch(newCaller(), 0)
		before := r.contents()
		if _, err := m.BulkCommit(ctxB, old, nil); !errors.Is(err, ErrPlanOver) {
			r.t.Errorf("after 56 minutes: %v", err)
		}
		for _, line := range strings.Split(r.contents(), "\n") {
			if !strings.HasPrefix(line, "state ") && !strings.Contains(before, line) {
				r.t.Errorf("it changed %s", line)
			}
		}
		r.at(54 * time.Minute)
		got, err := m.BulkCommit(ctxB, good, nil)
		if err != nil || got.Done != 2 {
			r.t.Errorf("after 54 minutes: %+v, %v", got, err)
		}
		for _, e := range r.read().Pending {
			if due := r.since(e.Score); e.ID != idOf("a") && (due < 54*time.Minute || due > 114*time.Minute) {
				r.t.Errorf("%s is due at %v", e.ID, due)
			}
		}
		r.claims()
	})
}

// claims: who comes first is the one, whoever asks again; whoever has made a later call is not asked.
func (r *rig) claims() {
	r.t.Helper()
	c := newCaller()
	c.next()
	for what, want := range map[string]string{"one": "one", "one again": "one"} {
		if now, whose, err := r.store.claim(ctxB, c, r.now, "one"); err != nil || whose != want || now != r.now {
			r.t.Errorf("%s: %q, %v", what, whose, err)
		}
	}
	if _, whose, err := r.store.claim(ctxB, c, r.now, "two"); err != nil || whose != "one" {
		r.t.Errorf("another: %q, %v", whose, err)
	}
	for what, counted := range map[string]int64{"in the future": r.now + 1, "at the end": r.now - 3_300_000_000} {
		late := newCaller()
		late.next()
		if _, whose, err := r.store.claim(ctxB, late, counted, "one"); err != nil || whose != "" {
			r.t.Errorf("counted %s: %q, %v", what, whose, err)
		}
	}
	c.next()
	if _, _, err := r.store.claim(ctxB, c, r.now, "one"); err != nil {
		r.t.Error(err)
	}
	c.n--
	if _, _, err := r.store.claim(ctxB, c, r.now, "one"); !stale(err) {
		r.t.Errorf("an older call: %v", err)
	}
	r.do("HSET", r.keys.state, "layout", "2")
	c.n += 2
	if _, _, err := r.store.claim(ctxB, c, r.now, "one"); !errors.Is(err, ErrUnknownLayout) {
		r.t.Errorf("in another layout: %v", err)
	}
	r.do("HDEL", r.keys.state, "layout")
}

// TestBulkRate: no step does more than the rate says of a second, and the next one waits.
func TestBulkRate(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q, m := f.queue(nil), NewMonitor(f.name, f.cli)
	for i := range 12 {
		f.send(q, fmt.Sprint(i), inAnHour, WithHeader("odd", fmt.Sprint(i%2)))
	}
	var done, looked []int64
	begun := time.Now()
	b := Bulk{Filter: Filter{Headers: map[string]string{"odd": "1"}}, Rate: 3, Progress: func(r *BulkResult) bool {
		done, looked = append(done, r.Done), append(looked, r.Looked)
		return true
	}}
	got, err := m.BulkRunNow(ctxB, b)
	f.bulked("at a rate", got, err, 12, 6, nil)
	if took := time.Since(begun); took < time.Second {
		t.Errorf("it took %v", took)
	}
	if fmt.Sprint(slices.Compact(done), slices.Compact(looked)) != "[0 3 6] [0 6 12]" { // first there is nothing that waits for a retry
		t.Errorf("steps: done %d, looked %d", done, looked)
	}
	ctx, cancel := context.WithCancel(ctxB)
	b = Bulk{Rate: 1, States: []State{StateReady}, Progress: func(r *BulkResult) bool {
		if r.Done > 0 {
			cancel()
		}
		return true
	}}
	got, err = m.BulkDelete(ctx, b)
	if !errors.Is(err, context.Canceled) || got.Done != 1 {
		t.Errorf("ended while it waits: %+v, %v", got, err)
	}
	if task, err := m.BulkTask(got.Next); err != nil || task.Rate != 1 || task.Done != 1 || task.Planned {
		t.Errorf("its task: %+v, %v", task, err)
	}
	if _, err := m.BulkRunNow(ctxB, Bulk{Rate: -1}); !errors.Is(err, ErrBadOption) {
		t.Errorf("a negative rate: %v", err)
	}
	if o := (operation{Rate: 4}); o.pace(2) != 500*time.Millisecond {
		t.Errorf("2 at 4 a second: %v", o.pace(2))
	}
}
