package features

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/redis/go-redis/v9"
)

// TestLogOfALongError: what an error says is kept and logged up to a bound.
func TestLogOfALongError(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	q := f.Queue(nil).WithHandler(func(context.Context, *delayqueue.Message) error {
		return errors.New(strings.Repeat("x", 1<<20))
	})
	f.Send(q, "x", delayqueue.WithRetryCount(0))
	q.StartConsume()
	queuetest.Eventually(t, "it is garbage", func() bool { return f.Log.Count("gave up on a message") == 1 })
	if line := f.Log.Line(t, "gave up on a message"); len(line) > 2*message.MaxErrorText {
		t.Errorf("the line has %d bytes", len(line))
	}
}

// TestLogOfFailures: each is told with its message, and with what follows from it.
func TestLogOfFailures(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	q := f.Queue(nil).WithNackRedeliveryDelay(10 * time.Millisecond).WithHandler(
		func(context.Context, *delayqueue.Message) error { return queuetest.ErrBoom })
	info := f.Send(q, "x", delayqueue.WithRetryCount(1), delayqueue.WithKey("order-42"))
	q.StartConsume()
	queuetest.Eventually(t, "it is garbage", func() bool { return f.Log.Count("gave up on a message") == 1 })
	message := fmt.Sprintf("message.id=%s message.delivery=%%d message.key=order-42 failures=%%d ", info.ID)
	if line := f.Log.Line(t, "gave up on a message"); !strings.Contains(line, "level=ERROR") ||
		!strings.Contains(line, fmt.Sprintf(message, 2, 2)+"error=boom") {
		t.Error(line)
	}
	if line := f.Log.Line(t, "a delivery failed"); !strings.Contains(line, "level=INFO") ||
		!strings.Contains(line, fmt.Sprintf(message, 1, 1)+"max_retries=1 in=10ms error=boom") {
		t.Error(line)
	}
}

// panickyLog panics with every record, and with every attribute.
type panickyLog struct{ n *atomic.Int64 }

func (h panickyLog) Enabled(context.Context, slog.Level) bool { return true }

func (h panickyLog) Handle(context.Context, slog.Record) error {
	h.n.Add(1)
	panic("in Handle")
}

func (h panickyLog) WithAttrs([]slog.Attr) slog.Handler { panic("in WithAttrs") }

func (h panickyLog) WithGroup(string) slog.Handler { panic("in WithGroup") }

// TestLogThatPanics: a log that does ends nothing else.
func TestLogThatPanics(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	var told atomic.Int64
	deaths := make(chan string, 4)
	q := f.Queue(nil).WithLogger(slog.New(panickyLog{&told})).WithMaxConsumeDuration(50 * time.Millisecond).
		WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
			switch msg.Payload {
			case "panics":
				panic("in the handler")
			case "too long":
				<-ctx.Done()
			}
			return queuetest.ErrBoom
		}).
		WithErrorHandler(func(context.Context, *delayqueue.Message, error) { panic("in the error handler") }).
		WithGarbageHandler(func(_ context.Context, msg *delayqueue.Message, _ error) {
			deaths <- msg.Payload
			panic("in the garbage handler")
		})
	defer q.ListenEvent(func(delayqueue.Event) { panic("in the listener") }).Stop()
	q.StartConsume()
	for _, payload := range []string{"fails", "panics", "too long", "fails"} {
		f.Send(q, payload, delayqueue.WithRetryCount(0))
		if p := queuetest.Receive(t, "it dies", deaths); p != payload {
			t.Errorf("%q died", p)
		}
	}
	if told.Load() == 0 {
		t.Error("nothing was to be logged")
	}
}

// TestPublisherLogThatPanics: an outage, which a Publisher logs in goroutines of its own, ends no more than the
// sends, and a panic in WithAttrs leaves no lock behind.
func TestPublisherLogThatPanics(t *testing.T) {
	t.Parallel()
	var told atomic.Int64
	cli := queuetest.RedisClient(t, "127.0.0.1:1")
	p := delayqueue.NewPublisher("q", cli).WithLogger(slog.New(panickyLog{&told}))
	for begun := testkit.Worked(); told.Load() == 0 && testkit.Worked()-begun < queuetest.Patience; {
		ctx, cancel := context.WithTimeout(context.Background(), 2*link.OutageAfter)
		if _, err := p.Send(ctx, "x"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a send without Redis: %v", err)
		}
		cancel()
	}
	if told.Load() == 0 {
		t.Error("nothing was to be logged")
	}
}

// A limiterFunc is a client's limiter.
type limiterFunc func() error

func (f limiterFunc) Allow() error { return f() }

func (f limiterFunc) ReportResult(error) {}

// TestClientThatPanics: what a client is made with is the user's code as well, and ends no more than the call.
func TestClientThatPanics(t *testing.T) {
	t.Parallel()
	f := face.OnShared(t)
	var calm atomic.Bool
	cli := redis.NewClient(&redis.Options{Addr: queuetest.Shared.Addr(), Limiter: limiterFunc(func() error {
		if !calm.Load() {
			panic("in the limiter")
		}
		return nil
	})})
	t.Cleanup(func() { _ = cli.Close() })
	ctx := queuetest.Within(t, queuetest.Patience)
	q := f.QueueOn(cli, nil)
	for name, err := range map[string]error{
		"Send":         queuetest.Failure(q.Send(ctx, "x")),
		"SendDelayMsg": q.SendDelayMsg("x", time.Second),
		"Intercept":    queuetest.Failure(q.Intercept(ctx, "x")),
	} {
		if err == nil || !strings.Contains(err.Error(), "panicked: in the limiter") {
			t.Errorf("%s: %v", name, err)
		}
	}
	calm.Store(true)
	f.Send(q, "x")
}
