package features

import (
	"errors"
	"testing"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/journal"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/ops"
)

// losses are the entries of the journal about losses.
func losses(f *face.Fixture) (all []ops.JournalEntry) {
	f.T.Helper()
	page, err := ops.Of(delayqueue.NewMonitor(f.Name, f.Cli)).Journal(queuetest.CtxB, 0, "")
	f.Must(err)
	for _, e := range page.Entries {
		if e.Act == journal.Loss {
			all = append(all, e)
		}
	}
	return all
}

// TestLoss: what was lost is told until somebody accepts that, also if the queue begins anew. However many consumers
// notice a loss, the journal has one entry about it.
func TestLoss(t *testing.T) {
	t.Parallel()
	const n = 30
	for name, c := range map[string]struct {
		strike func(f *face.Fixture)
		detail string
	}{
		"all keys": {func(f *face.Fixture) { f.Must(f.Cli.FlushAll(queuetest.CtxB).Err()) }, ""},
		"the contents of messages": {func(f *face.Fixture) {
			keys, err := f.Cli.Keys(queuetest.CtxB, "*:msg").Result()
			f.Must(err)
			f.Must(f.Cli.Del(queuetest.CtxB, keys...).Err())
			f.Must(ops.Of(delayqueue.NewMonitor(f.Name, f.Cli)).Resume(queuetest.CtxB))
		}, "the contents of messages were gone"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, _ := face.OwnServer(t)
			m := ops.Of(delayqueue.NewMonitor(f.Name, f.Cli)).WithOperator("ann").WithReason("a drill")
			q := f.Queue(func(string) bool { return true })
			f.Send(q, "before")
			f.Must(m.Pause(queuetest.CtxB))
			for range n - 1 {
				f.Send(q, "x")
			}
			all := []*delayqueue.DelayQueue{q, f.Queue(func(string) bool { return true })}
			for _, q := range all {
				q.StartConsume()
			}
			queuetest.Eventually(t, "both have looked", func() bool {
				all, err := m.Consumers(queuetest.CtxB)
				return err == nil && len(all) == 2
			})
			if c, err := m.Counts(queuetest.CtxB); err != nil || !c.LossSince.IsZero() || len(losses(f)) > 0 {
				t.Errorf("nothing was lost: %+v, %v", c, err)
			}
			c.strike(f)
			var counts ops.Counts
			queuetest.Eventually(t, "it is told", func() bool {
				var err error
				counts, err = m.Counts(queuetest.CtxB)
				return (err == nil || errors.Is(err, delayqueue.ErrNoQueue)) && counts.LossMessages >= n && len(losses(f)) > 0
			})
			for _, q := range all {
				f.Must(q.Shutdown(queuetest.Within(t, queuetest.Patience)))
			}
			told := losses(f)
			if len(told) != 1 || c.detail != "" && told[0].Detail != c.detail || told[0].Messages < 1 ||
				counts.LossMessages != n {
				t.Errorf("%+v, %d lost, want one entry and %d", told, counts.LossMessages, n)
			}
			f.Must(queuetest.Failure(m.AcceptBalance(queuetest.CtxB)))
			counts, err := m.Counts(queuetest.CtxB)
			f.Must(err)
			page, err := m.Journal(queuetest.CtxB, 1, "")
			f.Must(err)
			if e := page.Entries[0]; !counts.LossSince.IsZero() || counts.LossMessages != 0 || counts.Unaccounted != 0 ||
				e.Act != journal.AcceptBalance || e.By != "ann" || e.Reason != "a drill" || e.Messages != n {
				t.Errorf("accepted: %+v, %+v", counts, e)
			}
		})
	}
}

// TestDeletedIsNoLoss: consumers that go on with a queue that was deleted take that for no loss.
func TestDeletedIsNoLoss(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	m := ops.Of(delayqueue.NewMonitor(f.Name, f.Cli))
	q := f.Queue(func(string) bool { return true })
	f.Send(q, "x", face.InAnHour)
	q.StartConsume()
	queuetest.Eventually(t, "it has looked", func() bool {
		all, err := m.Consumers(queuetest.CtxB)
		return err == nil && len(all) == 1
	})
	f.Must(m.DeleteQueue(queuetest.CtxB, true))
	queuetest.Eventually(t, "it goes on", func() bool { return f.Log.Count("keys of this queue have vanished") > 0 })
	f.Must(q.Shutdown(queuetest.Within(t, queuetest.Patience))) // by then it has asked whether somebody deleted the queue
	if c, err := m.Counts(queuetest.CtxB); err != nil || !c.LossSince.IsZero() || len(losses(f)) > 0 {
		t.Errorf("%+v, %v, %+v", c, err, losses(f))
	}
}
