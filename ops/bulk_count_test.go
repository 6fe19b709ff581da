package ops

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/redis/go-redis/v9"
)

// counted wants a dry run to have counted so many, and bounds b to them.
func counted(f *face.Fixture, what string, b *Bulk, got *BulkResult, err error, count int64) {
	f.T.Helper()
	if err != nil || got.Done != count || !got.Finished || got.Next != "" || got.At.IsZero() ||
		len(got.Sample) != min(int(count), maxSample) {
		f.T.Fatalf("%s: %+v, %v; want %d counted", what, got, err, count)
	}
	b.DryRun, b.Cursor, b.Progress, b.Before, b.Most = false, "", nil, got.At, got.Done
}

// TestBulkAsCounted: what comes between the count and the act is left alone, wherever it comes from.
func TestBulkAsCounted(t *testing.T) {
	f, m := newQueue(t)
	q := f.Queue(nil)
	buriedIn(f, "dead x", "gone x", "brought x")
	f.Send(q, "waits", face.InAnHour, delayqueue.WithKey("waits"))
	f.Send(q, "stays x", face.InAnHour)
	f.Send(q, "changes x", face.InAnHour, delayqueue.WithKey("changes"))
	all := Bulk{States: []delayqueue.State{delayqueue.StatePending, delayqueue.StateReady, delayqueue.StateRetry,
		delayqueue.StateGarbage},
		Filter: Filter{To: time.Now().Add(2 * time.Hour)}, DryRun: true}
	some := all
	some.Contains = "x"
	got, err := m.BulkDelete(queuetest.CtxB, all)
	for _, payload := range []string{"dead x", "gone x", "brought x", "waits", "stays x", "changes x"} {
		if !slices.ContainsFunc(got.Sample, func(m *MessageStatus) bool { return m.Payload == payload }) {
			t.Errorf("%q is no sample", payload)
		}
	}
	counted(f, "all", &all, got, err, 6)
	got, err = m.BulkDelete(queuetest.CtxB, some)
	counted(f, "some", &some, got, err, 5)

	buriedIn(f, "new dead x")
	f.Send(q, "new x", face.InAnHour)
	f.Send(q, "changed", face.InAnHour, delayqueue.WithKey("changes", delayqueue.Replace))
	f.Must(m.Requeue(queuetest.CtxB, listIn(f, m, delayqueue.StateGarbage, Filter{Contains: "brought x"})[0].ID))
	f.Must(m.Delete(queuetest.CtxB, listIn(f, m, delayqueue.StateGarbage, Filter{Contains: "gone x"})[0].ID))
	left := func(what string, got *BulkResult, err error, want ...string) {
		t.Helper()
		pending := payloadsIn(f, m, delayqueue.StatePending, Filter{})
		slices.Sort(pending)
		if err != nil || got.Done != 2 || got.Passed[PassedNew] == 0 || !got.Finished || got.Sample != nil ||
			!slices.Equal(pending, want) {
			t.Errorf("%s: %+v, %v, left %q; want 2 done, left %q", what, got, err, pending, want)
		}
		lists(f, m, delayqueue.StateGarbage, Filter{}, "new dead x")
		lists(f, m, delayqueue.StateReady, Filter{}, "brought x")
	}
	got, err = m.BulkDelete(queuetest.CtxB, some)
	left("some", got, err, "changed", "new x", "waits")
	got, err = m.BulkDelete(queuetest.CtxB, all)
	left("all", got, err, "new x")
}

func listIn(f *face.Fixture, m *Queue, state delayqueue.State, filter Filter) []*MessageStatus {
	f.T.Helper()
	page, err := m.List(queuetest.CtxB, state, filter, "")
	f.Must(err)
	return page.Messages
}

// TestBulkOfWhatIsHandledAsCounted: what was sent, or failed, after the count and is handled then is left alone.
func TestBulkOfWhatIsHandledAsCounted(t *testing.T) {
	f, m := newQueue(t)
	started, release := make(chan string, 10), make(chan struct{})
	q := f.Queue(nil).WithConcurrent(3).WithRetryDelays(time.Millisecond).WithHandler(
		func(ctx context.Context, msg *delayqueue.Message) error {
			started <- msg.Payload
			select {
			case <-release:
				if msg.Payload == "fails" && msg.Failures == 0 {
					return queuetest.ErrBoom
				}
				<-ctx.Done()
			case <-ctx.Done():
			}
			return nil
		})
	handled := func(payload string) {
		t.Helper()
		f.Send(q, payload)
		if got := queuetest.Receive(t, payload+" is handled", started); got != payload {
			t.Errorf("%q is handled, want %q", got, payload)
		}
	}
	q.StartConsume()
	handled("stays")
	handled("fails")
	held := Bulk{States: []delayqueue.State{delayqueue.StateUnack}, DryRun: true}
	got, err := m.BulkDelete(queuetest.CtxB, held)
	counted(f, "two are handled", &held, got, err, 2)
	handled("new")
	close(release)
	if got := queuetest.Receive(t, "it is handled again", started); got != "fails" {
		t.Errorf("%q is handled", got)
	}
	got, err = m.BulkDelete(queuetest.CtxB, held)
	bulked(f, "taken out", got, err, 3, 1, map[Reason]int64{PassedNew: 2})
	got, err = m.BulkDelete(queuetest.CtxB, Bulk{States: held.States})
	queuetest.Eventually(t, "the first is taken out", func() bool { return len(f.Check().Unack) == 0 })
	if err != nil || got.Done != 2 {
		t.Errorf("the others: %+v, %v", got, err)
	}
	f.Must(q.Shutdown(queuetest.CtxB))
	f.CheckEmpty()
}

// TestBulkMost: no more are changed than Bulk.Most says, in steps that are smaller or larger, and none is counted
// beyond it.
func TestBulkMost(t *testing.T) {
	f, m := newQueue(t)
	pendingAt(f, 20)
	for _, c := range []struct{ limit, rate, left int }{{3, 0, 13}, {500, 0, 6}, {500, 100, 0}} {
		for _, dry := range []bool{true, false} {
			b := Bulk{States: []delayqueue.State{delayqueue.StatePending}, Filter: Filter{Limit: c.limit}, Rate: c.rate, Most: 7,
				DryRun: dry}
			var last *BulkResult
			b.Progress = func(r *BulkResult) bool { last = r; return true }
			got, err := m.BulkDelete(queuetest.CtxB, b)
			want := 7
			if c.left == 0 {
				want = 6
			}
			if err != nil || got.Done != int64(want) || !got.Finished || !last.Finished || got.Next != "" {
				t.Errorf("%+v, dry %v: %+v, %v; want %d done", c, dry, got, err, want)
			}
		}
		if n := len(f.Check().Pending); n != c.left {
			t.Errorf("%+v: %d are left", c, n)
		}
	}
}

// shifted wants messages that were a second apart to be due so much later.
func shifted(f *face.Fixture, m *Queue, base time.Time, by time.Duration) {
	f.T.Helper()
	for msg, err := range m.All(queuetest.CtxB, delayqueue.StatePending, Filter{}) {
		f.Must(err)
		var i int
		f.Must(queuetest.Failure(fmt.Sscan(msg.Payload, &i)))
		if want := base.Add(time.Duration(i)*time.Second + by); !msg.Due.Equal(want) {
			f.T.Errorf("%d is due %v after it should be", i, msg.Due.Sub(want))
		}
	}
}

// TestDryRunGoesOn: a dry run that is stopped goes on exactly, if it is told the same.
func TestDryRunGoesOn(t *testing.T) {
	f, m := newQueue(t)
	const n = 24
	pendingAt(f, n)
	b := Bulk{Filter: Filter{Limit: 4}, DryRun: true, Progress: func(*BulkResult) bool { return false }}
	got, err := m.BulkRescheduleBy(queuetest.CtxB, b, time.Minute)
	f.Must(err)
	for what, call := range map[string]func() (*BulkResult, error){
		"of another queue": func() (*BulkResult, error) {
			return Of(delayqueue.NewMonitor(f.Name+" 2", f.Cli)).BulkRescheduleBy(queuetest.CtxB, b, time.Minute)
		},
		"by more": func() (*BulkResult, error) { return m.BulkRescheduleBy(queuetest.CtxB, b, time.Hour) },
		"in earnest": func() (*BulkResult, error) {
			b := b
			b.DryRun = false
			return m.BulkRescheduleBy(queuetest.CtxB, b, time.Minute)
		},
		"another act": func() (*BulkResult, error) { return m.BulkRunNow(queuetest.CtxB, b) },
		"of fewer": func() (*BulkResult, error) {
			b := b
			b.Contains = "1"
			return m.BulkRescheduleBy(queuetest.CtxB, b, time.Minute)
		},
	} {
		b.Cursor = got.Next
		if got, err := call(); got == nil || !errors.Is(err, ErrBadCursor) {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
	steps := 1
	for ; err == nil && got.Next != "" && steps < n; steps++ {
		b.Cursor = got.Next
		got, err = m.BulkRescheduleBy(queuetest.CtxB, b, time.Minute)
	}
	if err != nil || got.Done != n || got.Total != n || got.Looked != n || !got.Finished || steps < n/4 {
		t.Errorf("after %d steps: %+v, %v", steps, got, err)
	}
}

// TestRescheduleByGoesOn: a call that is cut off between steps shifts the rest, and no message twice. After a step
// without an answer there is no cursor.
func TestRescheduleByGoesOn(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	const n = 24
	base := pendingAt(f, n)
	ctx, cancel := context.WithCancel(queuetest.CtxB)
	cut := false
	cli := f.Client()
	t.Cleanup(link.Interpose(cli,
		queuetest.CommandHook(func(c context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if cut && cmd.Args()[1] == script.SteerScript.SHA {
				cancel()
				cmd.SetErr(io.EOF)
				return io.EOF
			}
			return next(c, cmd)
		})))
	m := Of(delayqueue.NewMonitor(f.Name, cli))
	for _, by := range []time.Duration{time.Minute, -30 * time.Second} {
		b := Bulk{Filter: Filter{Limit: 4}, Progress: func(*BulkResult) bool { return false }}
		got, err := m.BulkRescheduleBy(queuetest.CtxB, b, by)
		steps := 1
		for ; err == nil && got.Next != "" && steps < 2*n; steps++ {
			b.Cursor = got.Next
			got, err = m.BulkRescheduleBy(queuetest.CtxB, b, by)
		}
		if err != nil || got.Done != n || got.Looked != n || !got.Finished || steps < n/4 {
			t.Errorf("by %v, after %d steps: %+v, %v", by, steps, got, err)
		}
	}
	shifted(f, m, base, 30*time.Second)
	cut = true
	got, err := m.BulkRescheduleBy(ctx, Bulk{}, time.Minute)
	if err == nil || got.At.IsZero() || got.Next != "" {
		t.Errorf("without an answer: %+v, %v", got, err)
	}
}

// TestBulkLosesReplies: messages are shifted once, whatever replies are lost, the first among them.
func TestBulkLosesReplies(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	const n = 24
	base := pendingAt(f, n)
	cli, lost := f.Client(), 0
	t.Cleanup(link.Interpose(cli,
		queuetest.CommandHook(func(c context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			err := next(c, cmd)
			if cmd.Args()[1] == script.SteerScript.SHA && err == nil {
				if lost++; lost%2 == 1 { // the first, and every other one; it is asked again
					cmd.SetErr(io.EOF)
					return io.EOF
				}
			}
			return err
		})))
	m := Of(delayqueue.NewMonitor(f.Name, cli))
	got, err := m.BulkRescheduleBy(queuetest.CtxB, Bulk{Filter: Filter{Limit: 4}}, time.Minute)
	if err != nil || got.Done != n || lost < n/4 {
		t.Errorf("%+v, %v, %d replies lost; want %d done", got, err, lost/2, n)
	}
	shifted(f, m, base, time.Minute)
}

// TestBulkRate: no step does more than the rate says of a second, and the next one waits.
func TestBulkRate(t *testing.T) {
	f, m := newQueue(t)
	q := f.Queue(nil)
	for i := range 12 {
		f.Send(q, fmt.Sprint(i), face.InAnHour, delayqueue.WithHeader("odd", fmt.Sprint(i%2)))
	}
	var done, looked []int64
	begun, finished := time.Now(), false
	b := Bulk{Filter: Filter{Headers: map[string]string{"odd": "1"}}, Rate: 3, Progress: func(r *BulkResult) bool {
		done, looked, finished = append(done, r.Done), append(looked, r.Looked), r.Finished
		return true
	}}
	got, err := m.BulkRunNow(queuetest.CtxB, b)
	bulked(f, "at a rate", got, err, 12, 6, nil)
	if took := time.Since(begun); took < time.Second {
		t.Errorf("it took %v", took)
	}
	if fmt.Sprint(slices.Compact(done), slices.Compact(looked)) != "[0 3 6] [0 6 12]" ||
		!finished { // first there is nothing that waits for a retry
		t.Errorf("steps: done %d, looked %d, finished %v", done, looked, finished)
	}
	ctx, cancel := context.WithCancel(queuetest.CtxB)
	b = Bulk{Rate: 1, States: []delayqueue.State{delayqueue.StateReady}, Progress: func(r *BulkResult) bool {
		if r.Done > 0 {
			cancel()
		}
		return true
	}}
	got, err = m.BulkDelete(ctx, b)
	if !errors.Is(err, context.Canceled) || got.Done != 1 {
		t.Errorf("ended while it waits: %+v, %v", got, err)
	}
	if one := entryOf(f, m); one.Bulk.Task == nil || one.Bulk.Task.Rate != 1 || one.Messages != 1 {
		t.Errorf("its entry: %+v, %+v", one, one.Bulk)
	}
	if o := (operation{task: task{Rate: 4}}); o.pace(2) != 500*time.Millisecond {
		t.Errorf("2 at 4 a second: %v", o.pace(2))
	}
}
