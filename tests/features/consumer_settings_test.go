package features

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
)

// TestBaseContextEnds: handlers' contexts end with it and its cause; nothing more is started, and nothing fails for it.
func TestBaseContextEnds(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	base, end := context.WithCancelCause(context.Background())
	started, causes := make(chan string, 10), make(chan error, 10)
	q := f.Queue(nil).WithConcurrent(2).WithBaseContext(base).
		WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
			started <- msg.Payload
			<-ctx.Done()
			causes <- context.Cause(ctx)
			if msg.Payload == "fails" {
				return ctx.Err()
			}
			return nil
		})
	fails, succeeds := f.Send(q, "fails", delayqueue.WithRetryCount(0)), f.Send(q, "succeeds")
	q.StartConsume()
	queuetest.Receive(t, "a handler runs", started)
	queuetest.Receive(t, "another handler runs", started)
	reason := errors.New("the user's own reason")
	end(reason)
	for range 2 {
		if cause := queuetest.Receive(t, "the handlers' contexts end", causes); !errors.Is(cause, reason) {
			t.Errorf("cause %v, want the base context's", cause)
		}
	}
	queuetest.Eventually(t, "both are settled", func() bool {
		return f.Where(fails.ID) == "ready" && f.Where(succeeds.ID) == "gone"
	})
	after := f.Send(q, "after", delayqueue.WithRetryCount(0))
	seen, ticks := "", 0
	queuetest.Eventually(t, "it goes on looking", func() bool {
		if now := f.Check().Fields["seen"]; now != seen {
			seen = now
			ticks++
		}
		return ticks == 4
	})
	if f.Where(fails.ID) != "ready" || f.Where(after.ID) != "pending" || len(started) > 0 {
		t.Errorf("the one that failed is in %s, the other in %s, and %d were started", f.Where(fails.ID), f.Where(after.ID),
			len(started))
	}
	got := make(chan string, 2)
	f.Queue(func(payload string) bool { got <- payload; return true }).StartConsume()
	queuetest.Receive(t, "another consumer handles them", got)
	queuetest.Receive(t, "another consumer handles them", got)
}

// TestConcurrent: n handlers run at a time, and never more.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3, 16} {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			t.Parallel()
			f := face.New(t)
			var running, most, handled atomic.Int64
			full := make(chan struct{}) // n run at a time
			q := f.Queue(func(string) bool {
				now := running.Add(1)
				defer running.Add(-1)
				for seen := most.Load(); now > seen && !most.CompareAndSwap(seen, now); seen = most.Load() {
				}
				if now == int64(n) && handled.Load() == 0 {
					close(full)
				}
				select {
				case <-full:
				case <-time.After(testkit.Scaled(queuetest.Patience)):
				}
				time.Sleep(2 * time.Millisecond) // a slow handler
				handled.Add(1)
				return true
			}).WithConcurrent(n)
			messages := 20 * n
			f.Must(queuetest.Failure(q.SendBatch(context.Background(), make([]delayqueue.Outgoing, messages))))
			q.StartConsume()
			queuetest.Receive(t, "all workers are busy at a time", full)
			queuetest.Eventually(t, "all are settled", func() bool { return len(f.Check().Messages) == 0 })
			if handled.Load() != int64(messages) || most.Load() != int64(n) {
				t.Errorf("handled %d, at most %d at a time; want %d and %d", handled.Load(), most.Load(), messages, n)
			}
		})
	}
}

// TestTicksWhileSomethingIsInUnack: however long the fetch interval, a consumer looks every third of a lease, and
// notices what another one has lost.
func TestTicksWhileSomethingIsInUnack(t *testing.T) {
	t.Parallel()
	const lease = 9 * time.Second
	f := face.New(t)
	got := make(chan *delayqueue.Message, 1)
	q := f.Queue(nil).WithHandler(func(_ context.Context, msg *delayqueue.Message) error { got <- msg; return nil }).
		WithLease(lease).WithFetchInterval(time.Hour)
	info := f.Send(q, "lost")
	f.Lost(info.ID, lease)
	q.StartConsume()
	if msg := queuetest.Receive(t, "the loss is noticed", got); msg.Delivery != 2 || msg.Failures != 0 {
		t.Errorf("it comes back as %+v", msg)
	}
	queuetest.Eventually(t, "it is acked", func() bool { return len(f.Check().Messages) == 0 })
}

// TestPoisonIsTold: the third loss in a row is the garbage handler's to know, and no handler
// sees the message again.
func TestPoisonIsTold(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	deaths, handled := make(chan death, 1), make(chan string, 1)
	const lease = 300 * time.Millisecond // of the one that dies
	q := f.Queue(func(payload string) bool { handled <- payload; return true }).WithLease(3 * time.Second).
		WithGarbageHandler(func(_ context.Context, msg *delayqueue.Message, err error) { deaths <- death{msg, err} })
	info := f.Send(q, "work", delayqueue.WithKey("k"), delayqueue.WithRetryCount(0))
	dying := script.NewCaller() // a consumer that dies each time with the message in hand
	reserved := ""
	fetch := func(want int) script.FetchReply {
		t.Helper()
		dying.Next()
		settings := script.FetchSettings{Lease: lease, MaxLosses: 3}
		out, err := f.CallsOf(info.ID).Fetch(context.Background(), dying,
			script.FetchRequest{Want: want, Alone: reserved, Settings: &settings})
		f.Must(err)
		if out.Tick {
			f.Must(queuetest.Failure(f.CallsOf(info.ID).Tick(context.Background(), dying,
				script.TickRequest{Settings: &settings})))
		}
		reserved = out.Reserved
		return out
	}
	for loss := 1; ; loss++ {
		queuetest.Eventually(t, "it is handed out", func() bool { return len(fetch(1).Tags) == 1 })
		if loss == 3 {
			break // noticed by the consumer under test
		}
		queuetest.Eventually(t, "it is lost", func() bool { fetch(0); return f.Where(info.ID) == "retry" })
	}
	q.StartConsume()
	d := queuetest.Receive(t, "its death is told", deaths)
	if !errors.Is(d.err, delayqueue.ErrPoison) {
		t.Errorf("died of %v, want ErrPoison", d.err)
	}
	if d.msg.ID != info.ID || d.msg.Key != "k" || d.msg.Payload != "work" || d.msg.Delivery != 3 || d.msg.Failures != 0 {
		t.Errorf("died as %+v", d.msg)
	}
	if record := f.Check().Fail[info.ID]; f.Where(info.ID) != "garbage" || record.Losses != 3 || record.Failures != 0 {
		t.Errorf("%s with record %+v", f.Where(info.ID), record)
	}
	f.Send(q, "next", delayqueue.WithKey("k"))
	if p := queuetest.Receive(t, "the next message is handled", handled); p != "next" {
		t.Errorf("handled %q", p)
	}
}

// TestLossIsToldToTheErrorHandler: once, before the next delivery.
func TestLossIsToldToTheErrorHandler(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	type call struct {
		delivery int
		err      error
	}
	calls := make(chan call, 10)
	q := f.Queue(nil).WithLease(3 * time.Second).WithNackRedeliveryDelay(0).
		WithErrorHandler(func(_ context.Context, msg *delayqueue.Message, err error) {
			if calls <- (call{msg.Delivery, err}); errors.Is(err, delayqueue.ErrDeliveryLost) {
				runtime.Goexit() // the next delivery goes on
			}
		}).
		WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
			if calls <- (call{msg.Delivery, nil}); msg.Delivery == 2 {
				return queuetest.ErrBoom
			}
			return nil
		})
	info := f.Send(q, "work")
	f.Lost(info.ID, 300*time.Millisecond)
	q.StartConsume()
	for _, want := range []call{{2, delayqueue.ErrDeliveryLost}, {2, nil}, {2, queuetest.ErrBoom}, {3, nil}} {
		if got := queuetest.Receive(t, "the next call", calls); got.delivery != want.delivery ||
			!errors.Is(got.err, want.err) {
			t.Fatalf("%+v, want %+v", got, want)
		}
	}
	f.Drained()
}

// TestLongestLease: the longest lease that a consumer asks for holds for the others, too.
func TestLongestLease(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	started, release := make(chan struct{}), make(chan struct{})
	long := f.Queue(func(string) bool { return true }).WithLease(20 * time.Second)
	stopped := long.StartConsume()
	queuetest.Eventually(t, "the one with the long lease has looked", func() bool {
		return f.Check().Fields["lease"] != ""
	})
	long.StopConsume()
	queuetest.Receive(t, "it stops", stopped)
	short := f.Queue(func(string) bool { close(started); <-release; return true }).WithLease(300 * time.Millisecond)
	short.StartConsume()
	info := f.Send(short, "x")
	queuetest.Receive(t, "the handler runs", started)
	leases := f.Cli.ZRangeWithScores(queuetest.CtxB, f.KeyOf(info.ID, "unack"), 0, -1).Val()
	if len(leases) != 1 || time.UnixMicro(int64(leases[0].Score)).Before(time.Now().Add(10*time.Second)) {
		t.Errorf("leases end at %v", leases)
	}
	close(release)
}
