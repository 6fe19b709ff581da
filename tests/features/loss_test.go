package features

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/journal"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/ops"
)

// TestLoss: what was lost is told until somebody accepts that, also if the queue begins anew, and once, however many
// consumers notice it.
func TestLoss(t *testing.T) {
	t.Parallel()
	const n = 30
	for name, strike := range map[string]func(f *face.Fixture){
		"all keys": func(f *face.Fixture) { f.Must(f.Cli.FlushAll(queuetest.CtxB).Err()) },
		"the contents of messages": func(f *face.Fixture) {
			keys, err := f.Cli.Keys(queuetest.CtxB, "*:msg").Result()
			f.Must(err)
			f.Must(f.Cli.Del(queuetest.CtxB, keys...).Err())
			f.Must(ops.Of(delayqueue.NewMonitor(f.Name, f.Cli)).Resume(queuetest.CtxB))
		},
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
			if c, err := m.Counts(queuetest.CtxB); err != nil || !c.LossSince.IsZero() {
				t.Errorf("nothing was lost: %+v, %v", c, err)
			}
			struck := time.Now()
			strike(f)
			var counts ops.Counts
			queuetest.Eventually(t, "it is told", func() bool {
				var err error
				counts, err = m.Counts(queuetest.CtxB)
				return (err == nil || errors.Is(err, delayqueue.ErrNoQueue)) && counts.LossMessages >= n
			})
			for _, q := range all {
				f.Must(q.Shutdown(queuetest.Within(t, queuetest.Patience)))
			}
			counts, err := m.Counts(queuetest.CtxB)
			f.Must(err)
			if counts.LossMessages != n || counts.LossSince.Before(struck.Add(-time.Minute)) {
				t.Errorf("%d lost since %v, want %d since %v", counts.LossMessages, counts.LossSince, n, struck)
			}
			f.Must(queuetest.Failure(m.AcceptBalance(queuetest.CtxB)))
			counts, err = m.Counts(queuetest.CtxB)
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

// TestLossInOneShard: what one shard of three has lost is told of the queue, and accepted for it.
func TestLossInOneShard(t *testing.T) {
	t.Parallel()
	const shards = 3
	f, _ := face.OwnServer(t)
	m := ops.Of(delayqueue.NewMonitor(f.Name, f.Cli, delayqueue.WithShards(shards)))
	q := delayqueue.NewQueue(f.Name, f.Cli, func(string) bool { return true }, delayqueue.WithShards(shards)).
		WithLogger(f.Logger())
	for range 40 {
		f.Send(q, "x", face.InAnHour)
	}
	q.StartConsume()
	one := strings.TrimSuffix(script.NewShard(f.Cli, "dq", f.Name, 1, shards).Keys.State, "state")
	queuetest.Eventually(t, "its consumer has looked", func() bool {
		return f.Cli.HExists(queuetest.CtxB, one+"state", "seen").Val()
	})
	lost := f.Cli.HLen(queuetest.CtxB, one+"msg").Val()
	keys, err := f.Cli.Keys(queuetest.CtxB, one+"*").Result()
	f.Must(err)
	f.Must(f.Cli.Del(queuetest.CtxB, keys...).Err())
	queuetest.Eventually(t, "it is told", func() bool {
		c, err := m.Counts(queuetest.CtxB)
		return err == nil && c.LossMessages == lost && !c.LossSince.IsZero()
	})
	f.Must(q.Shutdown(queuetest.Within(t, queuetest.Patience)))
	f.Must(queuetest.Failure(m.AcceptBalance(queuetest.CtxB)))
	if c, err := m.Counts(queuetest.CtxB); err != nil || c.LossMessages != 0 || !c.LossSince.IsZero() ||
		c.Pending != 40-lost || lost == 0 {
		t.Errorf("%d were lost; accepted: %+v, %v", lost, c, err)
	}
}

// TestNothingWasLost: a queue that was empty when Redis forgot it has lost nothing.
func TestNothingWasLost(t *testing.T) {
	t.Parallel()
	f, _ := face.OwnServer(t)
	m := ops.Of(delayqueue.NewMonitor(f.Name, f.Cli))
	q := f.Queue(func(string) bool { return true })
	q.StartConsume()
	f.Send(q, "x")
	var acked time.Time
	queuetest.Eventually(t, "it is acked", func() bool {
		b, err := m.Balance(queuetest.CtxB)
		acked = time.Now()
		return err == nil && b.Acked == 1
	})
	queuetest.Eventually(t, "the consumer has looked since", func() bool {
		all, err := m.Consumers(queuetest.CtxB)
		return err == nil && len(all) == 1 && all[0].Seen.After(acked)
	})
	f.Must(f.Cli.FlushAll(queuetest.CtxB).Err())
	queuetest.Eventually(t, "it goes on", func() bool { return f.Log.Count("keys of this queue have vanished") > 0 })
	f.Must(q.Shutdown(queuetest.Within(t, queuetest.Patience)))
	if c, err := m.Counts(queuetest.CtxB); err != nil || !c.LossSince.IsZero() {
		t.Errorf("%+v, %v", c, err)
	}
}
