package delayqueue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/consume"
	"github.com/go-delayqueue/delayqueue/internal/event"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/redis/go-redis/v9"
)

// The tests of this file need names that the package does not export. All others see the face alone.

// TestJudge: what a handler returns, as a verdict. TestOutcome, of those who consume, says what follows from that.
func TestJudge(t *testing.T) {
	minute, hour, ever := time.Minute, time.Hour, time.Duration(1<<63-1)
	for name, c := range map[string]struct {
		err  error
		want consume.Verdict // without err
	}{
		"nil":       {nil, consume.Verdict{}},
		"a failure": {queuetest.ErrBoom, consume.Verdict{Text: "boom"}},
		"ErrSkipRetry": {fmt.Errorf("no: %w", ErrSkipRetry),
			consume.Verdict{Text: "no: skip retry", SkipRetry: true}},
		"RetryAfter": {RetryAfter(time.Minute, queuetest.ErrBoom),
			consume.Verdict{Text: "boom (retry after 1m0s)", Delay: &minute}},
		"RetryAfter for ever": {RetryAfter(ever, queuetest.ErrBoom),
			consume.Verdict{Text: fmt.Sprintf("boom (retry after %v)", ever), Delay: &ever}},
		"RetryAfter a while ago": {RetryAfter(-minute, queuetest.ErrBoom),
			consume.Verdict{Text: "boom (retry after 0s)", Delay: new(time.Duration)}},
		"Snooze":          {Snooze(time.Minute), consume.Verdict{Snooze: true, Delay: &minute}},
		"Snooze, wrapped": {fmt.Errorf("%w", Snooze(time.Minute)), consume.Verdict{Snooze: true, Delay: &minute}},
		"Again":           {Again(time.Minute), consume.Verdict{Snooze: true, ResetFailures: true, Delay: &minute}},
		"Throttle": {Throttle(time.Minute, queuetest.ErrBoom),
			consume.Verdict{Snooze: true, Throttle: true, Delay: &minute, Text: "boom"}},
		"Throttle without a reason": {Throttle(time.Minute, nil),
			consume.Verdict{Snooze: true, Throttle: true, Delay: &minute}},
		"Throttle for too long": {Throttle(24*time.Hour, nil),
			consume.Verdict{Snooze: true, Throttle: true, Delay: &hour}},
		"Snooze, with a reason": {fmt.Errorf("no rates yet: %w", Snooze(time.Minute)),
			consume.Verdict{Snooze: true, Delay: &minute, Text: "no rates yet"}},
		"Throttle, wrapped": {fmt.Errorf("a wrapper: %w", Throttle(time.Minute, queuetest.ErrBoom)),
			consume.Verdict{Snooze: true, Throttle: true, Delay: &minute, Text: "boom"}},
		"ErrSkipRetry and Snooze": {errors.Join(ErrSkipRetry, Snooze(time.Minute)),
			consume.Verdict{Text: "skip retry\nsnooze for 1m0s", SkipRetry: true}},
		"an error without a text": {errors.New(""), consume.Verdict{}},
	} {
		got := judge(c.err)
		if failed := c.err != nil && !c.want.Snooze; (got.Err != nil) != failed || failed && got.Err != c.err {
			t.Errorf("%s: the error is %v", name, got.Err)
		}
		got.Err = nil
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// TestRetryDelays: which delay follows a failure.
func TestRetryDelays(t *testing.T) {
	f := queuetest.NewBase(t)
	q := NewQueue(f.Name, f.Cli, nil).WithLogger(f.Logger())
	after := func(failures int) time.Duration {
		return q.config.delayFor(failures, queuetest.ErrBoom, &Message{})
	}
	q.WithNackRedeliveryDelay(7 * time.Second)
	if d := after(3); d != 7*time.Second {
		t.Errorf("WithNackRedeliveryDelay: %v", d)
	}
	q.WithRetryDelays(30*time.Second, time.Minute, 10*time.Minute)
	for n, want := range map[int]time.Duration{1: 30 * time.Second, 2: time.Minute, 3: 10 * time.Minute,
		9: 10 * time.Minute} {
		if d := after(n); d != want {
			t.Errorf("WithRetryDelays, failure %d: %v, want %v", n, d, want)
		}
	}
	q.WithRetryDelayFunc(func(failures int, err error, _ *Message) time.Duration {
		if !errors.Is(err, queuetest.ErrBoom) {
			t.Errorf("the function got %v", err)
		}
		return time.Duration(failures) * time.Hour
	})
	for n, want := range map[int]time.Duration{2: 2 * time.Hour, -2: 0, 200 * 365 * 24: message.MaxDelay} {
		if d := after(n); d != want {
			t.Errorf("WithRetryDelayFunc, %d hours: %v, want %v", n, d, want)
		}
	}
}

// TestDefaults: what holds of a queue that was told nothing.
func TestDefaults(t *testing.T) {
	c := NewQueue("q", queuetest.NewBase(t).Cli, nil).config
	want := script.FetchSettings{Lease: 10 * time.Second, MaxLosses: 3, GarbageAge: 7 * 24 * time.Hour}
	if c.FetchSettings != want || c.DoneMax != 100_000 || c.Workers != 1 || c.MaxBytes != 64<<20 ||
		c.Limit+c.FetchInterval != 0 ||
		c.FetchLimit != 0 || c.Limits != (script.RateLimits{}) {
		t.Errorf("%+v", c.Settings)
	}
}

// TestLastSettingWins: callback and handler replace each other, settings are overwritten.
func TestLastSettingWins(t *testing.T) {
	t.Parallel()
	f := queuetest.NewBase(t)
	got := make(chan string, 1)
	q := NewQueue(f.Name, f.Cli, func(string) bool { got <- "NewQueue"; return true }).WithLogger(f.Logger()).
		WithHandler(func(context.Context, *Message) error { got <- "WithHandler"; return nil }).
		WithCallback(func(string) bool { got <- "WithCallback"; return true }).
		WithConcurrent(3).WithConcurrent(1)
	f.Stops(q)
	f.Must(queuetest.Failure(q.Send(queuetest.CtxB, "x")))
	q.StartConsume()
	if by := queuetest.Receive(t, "it is handled", got); by != "WithCallback" {
		t.Errorf("handled by %s", by)
	}
	if q.config.Workers != 1 {
		t.Errorf("%d workers", q.config.Workers)
	}
}

// TestReportWithoutRedis: what cannot be published is dropped, counted, and said in the log.
func TestReportWithoutRedis(t *testing.T) {
	t.Parallel()
	cli := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1, MaxRetries: -1})
	defer cli.Close()
	log := new(testkit.Buffer)
	p := NewPublisher("nobody-there", cli).WithLogger(slog.New(slog.NewTextHandler(log, nil)))
	sub := p.EnableReport()
	defer sub.Stop()
	p.events.Tell(event.CodeAck, 1, "x")
	queuetest.Eventually(t, "it is counted", func() bool { return sub.Dropped() == 1 })
	queuetest.Eventually(t, "it is said", func() bool {
		return strings.Contains(log.String(), "events are not published")
	})
}

// TestOneLog: all of a queue writes to one log, whichever is slog's default later.
func TestOneLog(t *testing.T) {
	t.Parallel()
	cli := redis.NewClient(&redis.Options{})
	defer cli.Close()
	if q := NewQueue("q", cli, nil); q.events.Logger() != q.config.Log {
		t.Error("events and sends write to another log than the consumer")
	}
}

// TestJunkEvents: whoever publishes rubbish does not fill the log.
func TestJunkEvents(t *testing.T) {
	t.Parallel()
	f := queuetest.NewBase(t)
	q := NewQueue(f.Name, f.Cli, nil).WithLogger(f.Logger())
	m := &Monitor{steerer: steerer{store: q.store, events: q.events}}
	heard := make(chan Event, 100)
	sub, err := m.ListenEvent(queuetest.CtxB, func(e Event) { heard <- e })
	f.Must(err)
	defer sub.Stop()
	for i := range 100 {
		f.Must(f.Cli.Publish(queuetest.CtxB, q.store.Keys.Events, fmt.Appendf(nil, "junk %d", i)).Err())
	}
	f.Must(f.Cli.Publish(queuetest.CtxB, q.store.Keys.Events, `[{"code":4,"count":1}]`).Err())
	if e := queuetest.Receive(t, "what can be read", heard); e.Code != AckEvent {
		t.Errorf("%+v", e)
	}
	f.Log.Says(t, 1, "events that cannot be read")
}

// TestFits: no send makes a payload of the largest size, because it would take a gigabyte. Headers may have one value.
func TestFits(t *testing.T) {
	if err := fits(maxPayload + 1); !errors.Is(err, ErrPayloadTooLarge) || fits(maxPayload) != nil {
		t.Errorf("a payload that no Redis string can hold: %v", err)
	}
	large, d := strings.Repeat("x", maxPayload/message.MaxHeaders+1),
		&draft{Envelope: message.Envelope{Headers: map[string]string{}}}
	for i := range message.MaxHeaders {
		d.Headers[strconv.Itoa(i)] = large
	}
	cli := redis.NewClient(&redis.Options{})
	defer cli.Close()
	if err := NewPublisher("q", cli).makeMessage(new(script.SendMessage), "", d, nil); !errors.Is(err,
		ErrPayloadTooLarge) {
		t.Errorf("headers that no Redis string can hold: %v", err)
	}
}

// TestDraftsAreZero: a message that is made, and one that is refused, leave nothing to the drafts of the next.
func TestDraftsAreZero(t *testing.T) {
	cli := redis.NewClient(&redis.Options{})
	defer cli.Close()
	p := NewPublisher("q", cli)
	d, opts := new(draft), []MsgOption{WithKey("k", Replace), WithHeader("a", "b"), WithMsgTTL(time.Hour),
		WithRetention(time.Hour)}
	if l, err := p.makeLone("x", d, opts); err != nil || l.item.Key != "k" || l.item.Put == nil || !l.item.Put.Wanted() {
		t.Errorf("%+v, %v", l, err)
	}
	if !reflect.DeepEqual(*d, draft{}) {
		t.Errorf("%+v is left", *d)
	}
	if _, err := p.Send(context.Background(), "x", append(opts, WithRetention(1))...); !errors.Is(err, ErrBadOption) {
		t.Error(err)
	}
	for range 10 {
		if d := drafts.Get().(*draft); !reflect.DeepEqual(*d, draft{}) {
			t.Errorf("%+v", *d)
		}
	}
}

// The methods below show the tests of package delayqueue_test what no user sees.

// Current is the latest run, nil before the first.
func (q *DelayQueue) Current() *consume.Run {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.run
}

// Awaits says what becomes of the messages that are awaited, in all shards.
type Awaits struct {
	Callers int
	Looked  bool  // for the first message of a shard
	Looks   bool  // a goroutine runs
	LastErr error // of a shard
}

func (s *steerer) Awaits() (all Awaits) {
	for _, one := range s.lookers.Range {
		l := one.(*looker)
		l.mu.Lock()
		all.Callers += l.n
		all.Looked = all.Looked || len(l.waiting) > 0 && l.waiting[0].next.After(l.waiting[0].begun)
		all.Looks = all.Looks || l.end != nil || len(l.waiting) > 0
		all.LastErr = cmp.Or(all.LastErr, l.lastErr)
		l.mu.Unlock()
	}
	return all
}
