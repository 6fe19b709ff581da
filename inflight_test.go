package delayqueue

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestInFlight: who has what, the longest first, and what a dead consumer had last.
func TestInFlight(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := NewMonitor(f.name, f.cli)
	if _, _, err := m.InFlight(ctxB, 10); !errors.Is(err, ErrNoQueue) {
		t.Errorf("of nothing: %v", err)
	}
	started, release := make(chan string, 10), make(chan struct{})
	q := f.queue(nil).WithLease(time.Hour).WithConcurrent(2).WithHandler(func(_ context.Context, msg *Message) error {
		started <- msg.Payload
		<-release
		return nil
	})
	f.send(q, "first")
	q.StartConsume()
	receive(t, "one is handled", started)
	first := time.Now()
	f.send(q, "second")
	receive(t, "another is handled", started)
	f.must(m.Pause(ctxB)) // so that q does not take it
	lost := f.send(q, "lost").ID
	k := q.store.keys // as if it had been handed to a consumer that has died
	f.must(f.cli.ZRem(ctxB, k.pending, lost).Err())
	f.must(f.cli.ZAdd(ctxB, k.unack, redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMicro()), Member: lost}).Err())

	var all []InFlight
	eventually(t, "its consumer says so", func() bool {
		var err error
		var more bool
		all, more, err = m.InFlight(ctxB, 3)
		f.must(err)
		return len(all) == 3 && !more && all[1].Holder != nil
	})
	for i, payload := range []string{"first", "second", "lost"} {
		one := all[i]
		known := payload != "lost"
		if one.Payload != payload || one.State != StateUnack || (one.Holder != nil) != known || (one.Consumer != "") != known ||
			one.Since.IsZero() == known || time.Until(one.At) < 0 {
			t.Errorf("%d: %+v; want %s", i, one, payload)
		}
	}
	if h := all[0].Holder; all[0].Since.After(all[1].Since) || h.ID != all[1].Consumer ||
		h.Handling[0].Since != h.Seen.Add(-h.Handling[0].For) || all[0].Since.After(first.Add(time.Minute)) {
		t.Errorf("%+v", h)
	}
	if some, more, err := m.InFlight(ctxB, 2); err != nil || !more || len(some) != 2 || some[0].Payload != "first" {
		t.Errorf("two of three: %+v, %v, %v", some, more, err)
	}
	for _, most := range []int{0, -1, mostInFlight + 1} {
		if _, _, err := m.InFlight(ctxB, most); !errors.Is(err, ErrBadOption) {
			t.Errorf("%d: %v", most, err)
		}
	}
	close(release)
	f.must(m.Resume(ctxB))
	f.must(failure(NewPublisher(f.name, f.cli).Cancel(ctxB, lost)))
	f.must(q.Shutdown(ctxB))
}
