package typed

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/go-delayqueue/delayqueue/ops"
)

func TestSendAndHandle(t *testing.T) {
	t.Parallel()
	onBoth(t, func(f *fixture) {
		type handled struct {
			order order
			msg   *delayqueue.Message
		}
		got := make(chan handled, 1)
		mux := f.mux(0)
		Handle(mux, closeOrder, func(_ context.Context, o order, msg *delayqueue.Message) error {
			got <- handled{o, msg}
			return nil
		})
		// Whatever header the sender sets, the kind is that of the value.
		info := f.sent(closeOrder.Send(f.Context(), f.pub, order{42, "tea"}, delayqueue.WithKey("order-42"),
			delayqueue.WithHeader("trace", "t1"), delayqueue.WithHeader(Header, "other")))
		f.consume(mux)
		h := testkit.Receive(f, "it is handled", got)
		if h.order != (order{42, "tea"}) || h.msg.ID != info.ID || h.msg.Key != "order-42" ||
			h.msg.Headers["trace"] != "t1" ||
			h.msg.Headers[Header] != "close-order" || h.msg.Payload != `{"id":42,"item":"tea"}` {
			f.Errorf("%+v %+v", h.order, h.msg)
		}
	})
}

// What does not encode stores nothing, and says so as every error of a send does.
func TestWhatDoesNotEncodeIsNotSent(t *testing.T) {
	t.Parallel()
	onBoth(t, func(f *fixture) {
		bad := CallKind[func(), int]("bad")
		_, sent := bad.Send(f.Context(), f.pub, nil)
		_, called := bad.Call(f.Context(), f.pub, nil)
		for _, err := range []error{sent, called} {
			var failed *delayqueue.SendError
			if !errors.Is(err, ErrCodec) || !errors.As(err, &failed) || failed.Stored != delayqueue.StoredNo ||
				failed.Queue != f.base.Name {
				f.Fatal(err)
			}
			testkit.Has(f, err.Error(), `queue "`+f.base.Name+`": send: not stored: typed: kind "bad": bad value or payload: `+
				`encode func(): json: unsupported type`)
		}
		f.until("nothing was stored", func() bool { // a call is tried for two seconds
			_, err := f.mon.Counts(f.Context())
			return errors.Is(err, delayqueue.ErrNoQueue)
		})
		_, err := closeOrder.Send(f.Context(), f.pub, order{}, delayqueue.WithRetention(1))
		if !errors.Is(err, delayqueue.ErrBadOption) {
			f.Error(err)
		}
	})
}

// An undecodable payload is garbage after one delivery, whatever retries it has.
func TestWhatDoesNotDecodeIsGarbage(t *testing.T) {
	t.Parallel()
	onBoth(t, func(f *fixture) {
		mux := f.mux(0)
		Handle(mux, closeOrder, func(context.Context, order, *delayqueue.Message) error {
			f.Error("it was handled")
			return nil
		})
		f.consume(mux)
		info := f.sent(f.pub.Send(f.Context(), `{"id": "x"}`, delayqueue.WithHeader(Header, "close-order"),
			delayqueue.WithRetryCount(9)))
		msg := f.garbage(info.ID)
		testkit.Has(f, msg.LastError, `kind "close-order"`, "at byte 10", "Go struct field order.id")
		if msg.Failures != 1 {
			f.Errorf("%d failures", msg.Failures)
		}
	})
}

// While a version is rolled out, the old one meets a kind that only the new one knows.
func TestRollingDeploy(t *testing.T) {
	t.Parallel()
	onBoth(t, func(f *fixture) {
		old, next := f.mux(time.Hour), f.mux(time.Hour)
		Handle(old, Kind[int]("old"), nothing)
		f.consume(old)
		info := f.sent(closeOrder.Send(f.Context(), f.pub, order{ID: 42}, delayqueue.WithRetryCount(0)))
		f.until("the old version has had it three times", func() bool {
			msg, err := f.mon.Get(f.Context(), info.ID)
			return err == nil && msg.Delivery > 3
		})
		got := make(chan *delayqueue.Message, 1)
		Handle(next, closeOrder, func(_ context.Context, _ order, msg *delayqueue.Message) error { got <- msg; return nil })
		f.consume(next)
		if msg := testkit.Receive(f, "the new version gets it", got); msg.Failures != 0 || msg.ID != info.ID {
			f.Errorf("%+v", msg)
		}
	})
}

// The default: it comes back after five to ten seconds, and an hour is not over at once.
func TestUnknownKindWaitsForItsTurn(t *testing.T) {
	t.Parallel()
	onBoth(t, func(f *fixture) {
		f.consume(quiet())
		info := f.sent(closeOrder.Send(f.Context(), f.pub, order{}, delayqueue.WithRetryCount(0)))
		var msg *ops.MessageStatus
		f.until("it waits", func() bool {
			var err error
			msg, err = f.mon.Get(f.Context(), info.ID)
			return err == nil && msg.State == delayqueue.StateRetry
		})
		if msg.LastError != `typed: kind "close-order": `+ErrUnknownKind.Error() {
			f.Error(msg.LastError)
		}
		if away := msg.At.Sub(msg.EndedAt); away < comeBack || away > 2*comeBack || msg.Failures != 0 {
			f.Errorf("comes back after %v, %d failures", away, msg.Failures)
		}
	})
}

// What nobody knows is garbage in the end: of a kind that has no handler, and of none.
func TestUnknownKindIsGarbageInTheEnd(t *testing.T) {
	t.Parallel()
	onBoth(t, func(f *fixture) {
		f.consume(f.mux(200 * time.Millisecond))
		named := f.sent(closeOrder.Send(f.Context(), f.pub, order{}))
		none := f.sent(f.pub.Send(f.Context(), "42"))
		for id, want := range map[string]string{named.ID: `kind "close-order"`, none.ID: "the message has no kind"} {
			msg := f.garbage(id)
			testkit.Has(f, msg.LastError, want, ErrUnknownKind.Error(), "for 200ms")
			if lived := msg.EndedAt.Sub(msg.Due); lived < 200*time.Millisecond || msg.Delivery < leastTries {
				f.Errorf("garbage after %v, %d deliveries", lived, msg.Delivery)
			}
		}
	})
}

// Messages of the time before the kinds have a handler of their own.
func TestHandleUntyped(t *testing.T) {
	t.Parallel()
	onBoth(t, func(f *fixture) {
		got := make(chan string, 1)
		mux := f.mux(50 * time.Millisecond)
		mux.HandleUntyped(func(_ context.Context, msg *delayqueue.Message) error { got <- msg.Payload; return nil })
		f.consume(mux)
		f.sent(f.pub.Send(f.Context(), "42"))
		if s := testkit.Receive(f, "it is handled", got); s != "42" {
			f.Error(s)
		}
		// It has nothing to do with kinds that nobody knows.
		info := f.sent(closeOrder.Send(f.Context(), f.pub, order{}))
		testkit.Has(f, f.garbage(info.ID).LastError, `kind "close-order"`)
	})
}

func TestChain(t *testing.T) {
	t.Parallel()
	onBoth(t, func(f *fixture) {
		ship := Kind[int]("ship")
		got := make(chan int, 1)
		mux := f.mux(0)
		Handle(mux, closeOrder, func(ctx context.Context, o order, _ *delayqueue.Message) error {
			if err := Kind[chan int]("bad").Then(ctx, make(chan int)); !errors.Is(err, ErrCodec) {
				f.Error(err)
			}
			return ship.Then(ctx, o.ID)
		})
		Handle(mux, ship, func(_ context.Context, id int, _ *delayqueue.Message) error { got <- id; return nil })
		f.consume(mux)
		f.sent(closeOrder.Send(f.Context(), f.pub, order{ID: 42}))
		if id := testkit.Receive(f, "the next step", got); id != 42 {
			f.Error(id)
		}
		if err := ship.Then(f.Context(), 1); !errors.Is(err, delayqueue.ErrBadOption) {
			f.Error(err)
		}
	})
}

// What Send says of two options that look at the payload alone.
func TestOptionsThatKnowNoKinds(t *testing.T) {
	t.Parallel()
	onBoth(t, func(f *fixture) {
		other := Kind[order]("other")
		first := f.sent(closeOrder.Send(f.Context(), f.pub, order{ID: 1}, delayqueue.WithPayloadKey(delayqueue.Keep)))
		second := f.sent(other.Send(f.Context(), f.pub, order{ID: 1}, delayqueue.WithPayloadKey(delayqueue.Keep)))
		if !second.Existed || second.ID != first.ID {
			f.Errorf("%+v, %+v", first, second)
		}
		f.sent(closeOrder.Send(f.Context(), f.pub, order{ID: 2}, delayqueue.WithKey("digest", delayqueue.Append)))
		group := f.sent(other.Send(f.Context(), f.pub, order{ID: 2}, delayqueue.WithKey("digest", delayqueue.Append)))
		msg, err := f.mon.Get(queuetest.WithTimeout(f), group.ID)
		if f.base.Must(err); msg.Headers[Header] != "close-order" || len(msg.Parts) != 2 {
			f.Errorf("%+v", msg)
		}
	})
}

// TestAllDone: rows are handled, their results come together in one message of a kind of its own, and a report is due
// when all rows are acked and the results are there.
func TestAllDone(t *testing.T) {
	t.Parallel()
	onBoth(t, func(f *fixture) {
		const rows = 20
		row, sum, report := Kind[int]("row"), Kind[int]("sum"), Kind[string]("report")
		sums, reports := make(chan int, 2), make(chan *delayqueue.Message, 2)
		mux := f.mux(0)
		Handle(mux, row, func(ctx context.Context, n int, msg *delayqueue.Message) error {
			err := sum.Then(ctx, n*n, delayqueue.WithKey("sum", delayqueue.Append), delayqueue.WithMaxParts(rows),
				delayqueue.WithDelay(time.Hour))
			if n == 7 && msg.Delivery == 1 {
				return errors.Join(err, errors.New("not yet"))
			}
			return err
		})
		HandleGroup(mux, sum, func(_ context.Context, squares []int, _ *delayqueue.Message) error {
			total := 0
			for _, n := range squares {
				total += n
			}
			sums <- total
			return nil
		})
		Handle(mux, report, func(_ context.Context, _ string, msg *delayqueue.Message) error {
			reports <- msg
			return nil
		})
		f.sent(report.Send(f.Context(), f.pub, "june", delayqueue.WithKey("june"), delayqueue.WithCountdown(rows),
			delayqueue.WithDelay(time.Hour)))
		for n := range rows {
			f.sent(row.Send(f.Context(), f.pub, n, delayqueue.WithCounts("june")))
		}
		f.consume(mux)
		if msg := testkit.Receive(f, "the report", reports); msg.CountdownLeft != 0 {
			f.Errorf("%+v", msg)
		}
		if total := testkit.Receive(f, "the sum", sums); total != 2470 {
			f.Errorf("the sum is %d, want 2470", total)
		}
	})
}
