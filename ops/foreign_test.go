package ops

import (
	"errors"
	"testing"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
)

// TestForeignHolderOfAKey: whatever holds a key, the others that are sent with it are stored, and say so.
func TestForeignHolderOfAKey(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	q, m := f.Queue(nil), Of(delayqueue.NewMonitor(f.Name, f.Cli))
	buriedIn(f, "dead")
	for _, holder := range []string{"a b", " ", "\n", "\u00a0", "1=2 3=4", "\xff"} {
		f.Must(f.Cli.HSet(queuetest.CtxB, f.Key("key"), "taken", holder, "key of dead", holder).Err())
		f.Must(f.Cli.HSet(queuetest.CtxB, f.Key("msg"), holder, "x").Err())
		got, err := q.SendBatch(queuetest.CtxB, []delayqueue.Outgoing{{Payload: "free", Options: []delayqueue.MsgOption{face.InAnHour}},
			{Payload: "not", Options: []delayqueue.MsgOption{delayqueue.WithKey("taken")}}})
		if !errors.Is(err, delayqueue.ErrDuplicateKey) || got[0].Err != nil || !errors.Is(got[1].Err, delayqueue.ErrDuplicateKey) {
			t.Errorf("%q: %v, %v", holder, got[0].Err, got[1].Err)
		}
		bulk, err := m.BulkRequeue(queuetest.CtxB, Bulk{})
		bulked(f, "requeue", bulk, err, 1, 0, map[Reason]int64{PassedKey: 1})
		f.Must(f.Cli.HDel(queuetest.CtxB, f.Key("key"), "taken", "key of dead").Err())
		f.Must(f.Cli.HDel(queuetest.CtxB, f.Key("msg"), holder).Err())
	}
}
