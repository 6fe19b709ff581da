package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// line is the one line of the log that holds a text.
func (l *logBuffer) line(t *testing.T, text string) string {
	t.Helper()
	var found []string
	for _, line := range strings.Split(l.String(), "\n") {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d lines with %q in the log:\n%s", len(found), text, l)
	}
	return found[0]
}

// TestLogOfFailures: each is told with its message, and with what follows from it.
func TestLogOfFailures(t *testing.T) {
	t.Parallel()
	for level, want := range map[slog.Level]string{slog.LevelInfo: "INFO", slog.LevelWarn: "WARN", slog.LevelDebug: ""} {
		t.Run(level.String(), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			q := f.queue(nil).WithFailureLevel(level).WithNackRedeliveryDelay(10 * time.Millisecond).
				WithHandler(func(context.Context, *Message) error { return errBoom })
			info := f.send(q, "x", WithRetryCount(1), WithKey("order-42"))
			q.StartConsume()
			eventually(t, "it is garbage", func() bool { return f.log.count("gave up on a message") == 1 })
			message := fmt.Sprintf("message.id=%s message.delivery=%%d message.key=order-42 failures=%%d ", info.ID)
			if line := f.log.line(t, "gave up on a message"); !strings.Contains(line, fmt.Sprintf(message, 2, 2)+"error=boom") {
				t.Error(line)
			}
			if want == "" {
				if f.log.count("a delivery failed") > 0 {
					t.Errorf("a failure is told at a level that is off:\n%s", f.log)
				}
				return
			}
			if line := f.log.line(t, "a delivery failed"); !strings.Contains(line, "level="+want) ||
				!strings.Contains(line, fmt.Sprintf(message, 1, 1)+"max_retries=1 in=10ms error=boom") {
				t.Error(line)
			}
		})
	}
}

// TestVoidSettlementsAreOneLine: after a failover there may be hundreds.
func TestVoidSettlementsAreOneLine(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(func(string) bool { return true })
	q.StartConsume()
	c := q.current()
	var batch []outcome
	var ds []*delivery
	for _, id := range []string{"a", "b", "c"} {
		d := &delivery{id: id, tag: id, number: 1}
		ds, batch = append(ds, d), append(batch, outcome{d: d, kind: outcomeGarbage, err: errBoom})
	}
	c.leases.held.add(ds...)
	c.settler.finish(batch, []int{0, 2}, nil)
	if line := f.log.line(t, "came too late"); !strings.Contains(line, `messages=2 message.ids="[a c]"`) {
		t.Error(line)
	}
	f.log.line(t, "gave up on a message")
}

// panickyLog panics with every record, and with every attribute.
type panickyLog struct{ n *atomic.Int64 }

func (h panickyLog) Enabled(context.Context, slog.Level) bool { return true }
func (h panickyLog) Handle(context.Context, slog.Record) error {
	h.n.Add(1)
	panic("in Handle")
}
func (h panickyLog) WithAttrs([]slog.Attr) slog.Handler { panic("in WithAttrs") }
func (h panickyLog) WithGroup(string) slog.Handler      { panic("in WithGroup") }

// TestLogThatPanics: a log that does ends nothing else.
func TestLogThatPanics(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var told atomic.Int64
	deaths := make(chan string, 4)
	q := f.queue(nil).WithLogger(slog.New(panickyLog{&told})).WithMaxConsumeDuration(50 * time.Millisecond).
		WithHandler(func(ctx context.Context, msg *Message) error {
			switch msg.Payload {
			case "panics":
				panic("in the handler")
			case "too long":
				<-ctx.Done()
			}
			return errBoom
		}).
		WithErrorHandler(func(context.Context, *Message, error) { panic("in the error handler") }).
		WithGarbageHandler(func(_ context.Context, msg *Message, _ error) { deaths <- msg.Payload; panic("in the garbage handler") })
	defer q.ListenEvent(func(Event) { panic("in the listener") }).Stop()
	q.StartConsume()
	for _, payload := range []string{"fails", "panics", "too long", "fails"} {
		f.send(q, payload, WithRetryCount(0))
		if p := receive(t, "it dies", deaths); p != payload {
			t.Errorf("%q died", p)
		}
	}
	if told.Load() == 0 {
		t.Error("nothing was to be logged")
	}
	log := contained(slog.New(panickyLog{&told}))
	if err := log.WithGroup("g").With("a", 1).Handler().Handle(context.Background(), slog.Record{}); err == nil {
		t.Error("a lost record is no error")
	}
}

// A limiterFunc is a client's limiter.
type limiterFunc func() error

func (f limiterFunc) Allow() error       { return f() }
func (f limiterFunc) ReportResult(error) {}

// TestClientThatPanics: what a client is made with is the user's code as well, and ends no more than the call.
func TestClientThatPanics(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var calm atomic.Bool
	cli := redis.NewClient(&redis.Options{Addr: shared.Addr(), Limiter: limiterFunc(func() error {
		if !calm.Load() {
			panic("in the limiter")
		}
		return nil
	})})
	t.Cleanup(func() { _ = cli.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	q := f.queueOn(cli, nil)
	for name, err := range map[string]error{
		"Send":         second(q.Send(ctx, "x")),
		"SendDelayMsg": q.SendDelayMsg("x", time.Second),
		"Intercept":    second(q.Intercept(ctx, "x")),
	} {
		if err == nil || !strings.Contains(err.Error(), "panicked: in the limiter") {
			t.Errorf("%s: %v", name, err)
		}
	}
	calm.Store(true)
	f.send(q, "x")
}

func second[T any](_ T, err error) error { return err }

// TestSlowGarbageHandler: what it is too slow for is dropped and counted, and settling goes on.
func TestSlowGarbageHandler(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	entered, release := make(chan struct{}, 1), make(chan struct{})
	var told atomic.Int64
	q := f.queue(nil).WithConcurrent(4).WithFailureLevel(slog.LevelDebug).
		WithHandler(func(context.Context, *Message) error { return ErrSkipRetry }).
		WithGarbageHandler(func(context.Context, *Message, error) {
			told.Add(1)
			select {
			case entered <- struct{}{}:
			default:
			}
			<-release
		})
	done := q.StartConsume()
	f.send(q, "first")
	receive(t, "the garbage handler is at it", entered)
	const n = maxNotices + 100
	batch := make([]Outgoing, n)
	if _, err := q.SendBatch(context.Background(), batch); err != nil {
		t.Fatal(err)
	}
	dropped := func() (total int) {
		for _, m := range regexp.MustCompile(`garbage handler is too slow.* messages=(\d+)`).FindAllStringSubmatch(f.log.String(), -1) {
			k, err := strconv.Atoi(m[1])
			if err != nil {
				t.Fatal(err)
			}
			total += k
		}
		return total
	}
	eventually(t, "all are garbage", func() bool { return len(f.check().Garbage) == n+1 })
	eventually(t, "the consumer knows it", func() bool { return q.current().leases.held.totals().deliveries == 0 && dropped() >= 100 })
	q.StopConsume()
	close(release)
	receive(t, "the stop has waited for the rest", done)
	if told.Load() != maxNotices+1 || dropped() != 100 {
		t.Errorf("told of %d, %d are said to be dropped, want %d and 100", told.Load(), dropped(), maxNotices+1)
	}
}

// TestAgain: it is no failure, uses up no retry, and failures count anew.
func TestAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	seen := make(chan Message, 10)
	q := f.queue(nil).WithNackRedeliveryDelay(0).WithHandler(func(_ context.Context, msg *Message) error {
		seen <- *msg
		switch {
		case msg.Delivery == 10:
			return nil
		case msg.Delivery%3 == 0:
			return fmt.Errorf("wrapped: %w", Again(-time.Second))
		}
		return errBoom
	})
	f.send(q, "poll", WithRetryCount(2))
	q.StartConsume()
	for i := range 10 {
		if msg := receive(t, "it goes on", seen); msg.Delivery != i+1 || msg.Failures != i%3 {
			t.Errorf("delivery %d with %d failures, want %d with %d", msg.Delivery, msg.Failures, i+1, i%3)
		}
	}
	eventually(t, "it is acked", func() bool { return len(f.check().Messages) == 0 })
	if !errors.Is(Again(0), ErrSnoozed) {
		t.Error("a middleware cannot tell it from a failure")
	}
}
