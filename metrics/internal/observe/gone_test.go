package observe

import (
	"log/slog"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/ops"
)

// TestGone: what was in a queue that is gone counts as lost, unless somebody has deleted the queue.
func TestGone(t *testing.T) {
	t.Parallel()
	cli := redistest.Start(t).Client(t)
	for name, strike := range map[string]func(m *ops.Queue) error{
		"lost": func(*ops.Queue) error {
			keys, err := cli.Keys(t.Context(), "{dq:lost}:*").Result()
			if err == nil {
				err = cli.Del(t.Context(), keys...).Err()
			}
			return err
		},
		"deleted": func(m *ops.Queue) error { return m.DeleteQueue(t.Context(), true) },
	} {
		t.Run(name, func(t *testing.T) {
			m := ops.Of(delayqueue.NewMonitor(name, cli))
			if err := delayqueue.NewPublisher(name, cli).SendDelayMsg("x", time.Hour); err != nil {
				t.Fatal(err)
			}
			q := Queues{Logger: slog.New(slog.DiscardHandler)}
			q.Add(m.Monitor())
			gone := false
			lost := func(want int64) {
				t.Helper()
				if got := q.Read(t.Context()); len(got) != 1 || !got[0].Up || got[0].Counts.LossMessages != want ||
					got[0].Deleted != (gone && name == "deleted") {
					t.Errorf("%+v, want %d lost, gone: %v", got, want, gone)
				}
			}
			lost(0)
			if err := strike(m); err != nil {
				t.Fatal(err)
			}
			gone = true
			lost(0) // perhaps its entry in the journal is on its way
			q.list[0].past.gone = q.list[0].past.gone.Add(-goneFor)
			want := map[string]int64{"lost": 1}[name]
			lost(want)
			gone = false
			if err := cli.Del(t.Context(), "{dq:"+name+"}:journal").Err(); err != nil {
				t.Fatal(err)
			}
			lost(want)
			if err := delayqueue.NewPublisher(name, cli).SendDelayMsg("y", time.Hour); err != nil {
				t.Fatal(err)
			}
			lost(want) // it is there again, with others
			q.list[0].past.gone = q.list[0].past.gone.Add(-goneKept)
			lost(0)
		})
	}
}
