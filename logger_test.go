package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/userlog"
	"github.com/redis/go-redis/v9"
)

// line is the one line of the log that holds a text.
func (l *logBuffer) line(t *testing.T, text string) string {
	t.Helper()
	l.says(t, 1, text)
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

// TestLogOfALongError: what an error says is kept and logged up to a bound.
func TestLogOfALongError(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(nil).WithHandler(func(context.Context, *Message) error { return errors.New(strings.Repeat("x", 1<<20)) })
	f.send(q, "x", WithRetryCount(0))
	q.StartConsume()
	eventually(t, "it is garbage", func() bool { return f.log.count("gave up on a message") == 1 })
	if line := f.log.line(t, "gave up on a message"); len(line) > 2*maxErrorText {
		t.Errorf("the line has %d bytes", len(line))
	}
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

// TestLogOfVoidSettlements: after a failover there may be hundreds.
func TestLogOfVoidSettlements(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(func(string) bool { return true })
	q.StartConsume()
	c := q.current()
	var batch []outcome
	var ds []*delivery
	for _, id := range []string{"a", "b", "c"} {
		d := &delivery{settler: &c.settler, tag: id, msg: Message{ID: id, Delivery: 1}}
		ds, batch = append(ds, d), append(batch, outcome{d: d, kind: outcomeGarbage, err: errBoom})
	}
	c.leases.held.add(ds...)
	c.settler.finish(batch, settleReply{void: []int{0, 2}}, nil)
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

func (h panickyLog) WithGroup(string) slog.Handler { panic("in WithGroup") }

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
	log := userlog.Contain(slog.New(panickyLog{&told}))
	if err := log.WithGroup("g").With("a", 1).Handler().Handle(context.Background(), slog.Record{}); err == nil {
		t.Error("a lost record is no error")
	}
}

// TestPublisherLogThatPanics: an outage, which a Publisher logs in goroutines of its own, ends no more than the sends, and a
// panic in WithAttrs leaves no lock behind.
func TestPublisherLogThatPanics(t *testing.T) {
	t.Parallel()
	var told atomic.Int64
	cli := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = cli.Close() })
	p := NewPublisher("q", cli).WithLogger(slog.New(panickyLog{&told}))
	for begun := time.Now(); told.Load() == 0 && time.Since(begun) < patience; {
		ctx, cancel := context.WithTimeout(context.Background(), 2*outageAfter)
		if _, err := p.Send(ctx, "x"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a send without Redis: %v", err)
		}
		cancel()
	}
	if told.Load() == 0 {
		t.Error("nothing was to be logged")
	}
}

// wildLog does with each record what it is told to.
type wildLog struct {
	slog.Handler
	act func()
}

func (h wildLog) Enabled(context.Context, slog.Level) bool { return true }

func (h wildLog) Handle(context.Context, slog.Record) error { h.act(); return nil }

func (h wildLog) WithAttrs([]slog.Attr) slog.Handler { return h }

// TestLogThatEndsOrHangs: what is settled while the log's handler ends its goroutine, hangs, or calls the queue, is settled,
// and so is what comes after it.
func TestLogThatEndsOrHangs(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var q atomic.Pointer[DelayQueue]
	for name, act := range map[string]func(){
		"ends": runtime.Goexit, "hangs": func() { <-ctx.Done() },
		"calls back": func() { q.Load().WithFailureLevel(slog.LevelInfo) }, // which takes the queue's lock, and panics
	} {
		f := newFixture(t)
		f.name += strings.ReplaceAll(name, " ", "_")
		handled := make(chan string, 10)
		queue := f.queue(nil).WithLogger(slog.New(wildLog{act: act})).WithHandler(func(_ context.Context, msg *Message) error {
			handled <- msg.Payload
			if msg.Payload == "bad" {
				return ErrSkipRetry
			}
			return nil
		})
		q.Store(queue)
		done := queue.StartConsume()
		for _, payload := range []string{"bad", "good", "bad", "good"} {
			f.send(queue, payload)
			if got := receive(t, name+": it is handled", handled); got != payload {
				t.Errorf("%s: handled %q", name, got)
			}
		}
		f.must(queue.Shutdown(ctx))
		receive(t, name+": it has ended", done)
		if state := f.check(); len(state.Unack) != 0 || len(state.Garbage) != 2 {
			t.Errorf("%s: %d in unack, %d in garbage", name, len(state.Unack), len(state.Garbage))
		}
	}
}

// A limiterFunc is a client's limiter.
type limiterFunc func() error

func (f limiterFunc) Allow() error { return f() }

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
		"Send":         failure(q.Send(ctx, "x")),
		"SendDelayMsg": q.SendDelayMsg("x", time.Second),
		"Intercept":    failure(q.Intercept(ctx, "x")),
	} {
		if err == nil || !strings.Contains(err.Error(), "panicked: in the limiter") {
			t.Errorf("%s: %v", name, err)
		}
	}
	calm.Store(true)
	f.send(q, "x")
}
