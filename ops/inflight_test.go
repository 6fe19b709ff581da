package ops

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/redis/go-redis/v9"
)

// TestInFlight: who has what, the longest first, and what a dead consumer had last.
func TestInFlight(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	m := Of(delayqueue.NewMonitor(f.Name, f.Cli))
	if _, _, err := m.InFlight(queuetest.CtxB, 10); !errors.Is(err, delayqueue.ErrNoQueue) {
		t.Errorf("of nothing: %v", err)
	}
	started, release := make(chan string, 10), make(chan struct{})
	q := f.Queue(nil).WithLease(time.Hour).WithConcurrent(2).WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
		started <- msg.Payload
		<-release
		return nil
	})
	f.Send(q, "first")
	q.StartConsume()
	queuetest.Receive(t, "one is handled", started)
	first := time.Now()
	f.Send(q, "second")
	queuetest.Receive(t, "another is handled", started)
	f.Must(m.Pause(queuetest.CtxB)) // so that q does not take it
	lost := f.Send(q, "lost").ID
	f.Must(f.Cli.ZRem(queuetest.CtxB, f.Key("pending"), lost).Err()) // as if it had been handed to a consumer that has died
	f.Must(f.Cli.ZAdd(queuetest.CtxB, f.Key("unack"), redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMicro()), Member: lost}).Err())

	var all []InFlight
	queuetest.Eventually(t, "its consumer says so", func() bool {
		var err error
		var more bool
		all, more, err = m.InFlight(queuetest.CtxB, 3)
		f.Must(err)
		return len(all) == 3 && !more && all[1].Holder != nil
	})
	for i, payload := range []string{"first", "second", "lost"} {
		one := all[i]
		known := payload != "lost"
		if one.Payload != payload || one.State != delayqueue.StateUnack || (one.Holder != nil) != known || (one.Consumer != "") != known ||
			one.Since.IsZero() == known || time.Until(one.At) < 0 {
			t.Errorf("%d: %+v; want %s", i, one, payload)
		}
	}
	if h := all[0].Holder; all[0].Since.After(all[1].Since) || h.ID != all[1].Consumer ||
		h.Handling[0].Since != h.Seen.Add(-h.Handling[0].For) || all[0].Since.After(first.Add(time.Minute)) {
		t.Errorf("%+v", h)
	}
	if some, more, err := m.InFlight(queuetest.CtxB, 2); err != nil || !more || len(some) != 2 || some[0].Payload != "first" {
		t.Errorf("two of three: %+v, %v, %v", some, more, err)
	}
	for _, most := range []int{0, -1, mostInFlight + 1} {
		if _, _, err := m.InFlight(queuetest.CtxB, most); !errors.Is(err, delayqueue.ErrBadOption) {
			t.Errorf("%d: %v", most, err)
		}
	}
	close(release)
	f.Must(m.Resume(queuetest.CtxB))
	f.Must(queuetest.Failure(delayqueue.NewPublisher(f.Name, f.Cli).Cancel(queuetest.CtxB, lost)))
	f.Must(q.Shutdown(queuetest.CtxB))
}
