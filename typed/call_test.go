package typed

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
)

type receipt struct{ Order, Cents int }

var charge = CallKind[order, receipt]("charge")

func TestCall(t *testing.T) {
	t.Parallel()
	onBoth(t, func(f *fixture) {
		mux := f.mux(0)
		HandleCall(mux, charge, func(_ context.Context, o order, msg *delayqueue.Message) (receipt, error) {
			if msg.Failures == 0 {
				return receipt{Cents: -1}, errors.New("not yet")
			}
			return receipt{o.ID, 100}, nil
		})
		q := f.consume(mux)
		got, err := charge.Call(f.Context(), q, order{ID: 42})
		if err != nil || got != (receipt{42, 100}) {
			f.Error(got, err)
		}
		// Who has only the id awaits it, on any machine.
		info := f.sent(charge.Send(f.Context(), f.pub, order{ID: 43}, delayqueue.WithRetention(time.Minute)))
		if got, err = charge.Await(f.Context(), f.mon.Monitor(), info.ID); err != nil || got.Order != 43 {
			f.Error(got, err)
		}
		if got, err = charge.Await(f.Context(), f.pub, "nobody"); !errors.Is(err, delayqueue.ErrNoResult) {
			f.Error(got, err)
		}
	})
}

func TestCallInAnotherCodec(t *testing.T) {
	t.Parallel()
	onBoth(t, func(f *fixture) {
		g := gobbed(closeOrder).codec
		charge := charge.WithCodec(g.marshal, g.unmarshal)
		mux := f.mux(0)
		HandleCall(mux, charge, func(_ context.Context, o order, msg *delayqueue.Message) (receipt, error) {
			if strings.Contains(msg.Payload, `"id"`) {
				f.Error("JSON: ", msg.Payload)
			}
			return receipt{o.ID, 100}, nil
		})
		f.consume(mux)
		if got, err := charge.Call(f.Context(), f.pub, order{ID: 42}); err != nil || got != (receipt{42, 100}) {
			f.Error(got, err)
		}
	})
}

// callFails calls, and returns the CallError.
func (f *fixture) callFails(queue Queue, want error, texts ...string) *CallError {
	f.Helper()
	got, err := charge.Call(f.Context(), queue, order{ID: 42}, delayqueue.WithRetryCount(0),
		delayqueue.WithRetention(time.Minute))
	var failed *CallError
	if !errors.Is(err, want) || !errors.As(err, &failed) || failed.ID == "" || got != (receipt{}) {
		f.Fatalf("%v, %v; want %v", got, err, want)
	}
	testkit.Has(f, err.Error(), append(texts, failed.ID)...)
	return failed
}

func TestCallThatIsGivenUpOn(t *testing.T) {
	t.Parallel()
	onBoth(t, func(f *fixture) {
		mux := f.mux(0)
		HandleCall(mux, charge, func(context.Context, order, *delayqueue.Message) (receipt, error) {
			return receipt{1, 1}, errors.New("no such card")
		})
		f.consume(mux)
		f.callFails(f.pub, ErrGarbage, `kind "charge"`, "no such card")
	})
}

// A leaver is a queue whose calls end with their context.
type leaver struct{ Queue }

func (leaver) Call(context.Context, string, ...delayqueue.MsgOption) (*delayqueue.Result, error) {
	return &delayqueue.Result{ID: "the id"}, fmt.Errorf("await the id: %w", context.Canceled)
}

// The context ends before the work. The error has the id, so that the result can be awaited later.
func TestCallThatIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	f := &fixture{T: t}
	if failed := f.callFails(leaver{}, context.Canceled); failed.ID != "the id" {
		t.Error(failed)
	}
}

// A result that cannot be said is no reason to do the work again.
func TestResultThatCannotBeSaid(t *testing.T) {
	t.Parallel()
	onBoth(t, func(f *fixture) {
		large, never := CallKind[int, string]("large"), CallKind[int, chan int]("never")
		mux := f.mux(0)
		HandleCall(mux, large, func(context.Context, int, *delayqueue.Message) (string, error) {
			return strings.Repeat("x", 1<<20), nil
		})
		HandleCall(mux, never, func(context.Context, int, *delayqueue.Message) (chan int, error) { return nil, nil })
		f.consume(mux)
		dies := func(err error, says ...string) {
			var failed *CallError
			if !errors.Is(err, ErrGarbage) || !errors.As(err, &failed) || f.garbage(failed.ID).Failures != 1 {
				f.Errorf("not given up on at once: %v", err)
			}
			testkit.Has(f, fmt.Sprint(err), says...)
		}
		_, err := large.Call(f.Context(), f.pub, 1)
		dies(err, `kind "large"`, delayqueue.ErrPayloadTooLarge.Error())
		_, err = never.Call(f.Context(), f.pub, 1)
		dies(err, `kind "never"`, "encode chan int")
	})
}

// The handler is of a version that says another result, or none.
func TestResultThatDoesNotDecode(t *testing.T) {
	t.Parallel()
	onBoth(t, func(f *fixture) {
		mux := f.mux(0)
		HandleCall(mux, CallKind[order, string]("charge"), func(context.Context, order, *delayqueue.Message) (string, error) {
			return "done", nil
		})
		f.consume(mux)
		f.callFails(f.pub, ErrCodec, `kind "charge"`, "decode the result of message",
			"of 6 bytes as typed.receipt, at byte 6")
	})
}

func TestCallsThatNeverReachTheirHandler(t *testing.T) {
	t.Parallel()
	m := quiet()
	HandleCall(m, charge, func(context.Context, order, *delayqueue.Message) (receipt, error) {
		t.Error("it was handled")
		return receipt{}, nil
	})
	group := of("charge", "{}")
	group.Parts = []string{"{}", "{}"}
	for want, msg := range map[string]*delayqueue.Message{"a group of 2 parts": group,
		"of 1 bytes as typed.order": of("charge", "x")} {
		err := m.Handler(t.Context(), msg)
		if !errors.Is(err, delayqueue.ErrSkipRetry) || !errors.Is(err, ErrCodec) {
			t.Fatal(err)
		}
		testkit.Has(t, err.Error(), want)
	}
}
