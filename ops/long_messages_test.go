package ops

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
)

// TestSendsOntoLongMessages: a batch that takes several calls is answered in full, in order, and the last send of a
// key wins.
func TestSendsOntoLongMessages(t *testing.T) {
	f := face.New(t)
	q := f.Queue(nil)
	long := strings.Repeat("x", 200<<10)
	var first, batch []delayqueue.Outgoing
	for i := range 6 {
		key := fmt.Sprint("k", i)
		first = append(first,
			delayqueue.Outgoing{Payload: long,
				Options: []delayqueue.MsgOption{delayqueue.WithKey(key), delayqueue.WithDelay(time.Hour)}})
		for j := range 3 {
			batch = append(batch,
				delayqueue.Outgoing{Payload: fmt.Sprint(j, long),
					Options: []delayqueue.MsgOption{delayqueue.WithKey(key, delayqueue.Replace),
						delayqueue.WithDelay(time.Duration(j+1) * time.Hour)}})
		}
		batch = append(batch,
			delayqueue.Outgoing{Payload: "y", Options: []delayqueue.MsgOption{delayqueue.WithKey(key, delayqueue.Reschedule),
				delayqueue.WithDelay(9 * time.Hour)}})
	}
	f.Must(queuetest.Failure(q.SendBatch(queuetest.CtxB, first)))
	spent := queuetest.Commands(t, queuetest.Shared.Client(t), func() {
		results, err := q.SendBatch(queuetest.CtxB, batch)
		f.Must(err)
		for i, r := range results {
			if !r.Info.Existed {
				t.Errorf("%d: %+v", i, r.Info)
			}
		}
	})
	if n := spent["evalsha"] + spent["eval"]; n < 12 {
		t.Errorf("%d calls for 24 messages, each of which has another one of 200 KB read: %v", n, spent)
	}
	m := Of(delayqueue.NewMonitor(f.Name, f.Cli))
	for i := range 6 {
		got, err := m.GetKey(queuetest.CtxB, fmt.Sprint("k", i))
		if err != nil || got.Payload[:1] != "2" || time.Until(got.At) < 8*time.Hour {
			t.Errorf("%d: %+v, %v", i, got, err)
		}
		if _, err := q.InterceptKey(queuetest.CtxB, fmt.Sprint("k", i)); err != nil {
			t.Error(err)
		}
	}
}
