package features

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/redis/go-redis/v9"
)

// TestZeroValues: they say what they lack, whatever is called.
func TestZeroValues(t *testing.T) {
	ctx := context.Background()
	for name, call := range map[string]func(){
		"DelayQueue.StartConsume":   func() { new(delayqueue.DelayQueue).StartConsume() },
		"DelayQueue.Run":            func() { _ = new(delayqueue.DelayQueue).Run(ctx) },
		"DelayQueue.WithConcurrent": func() { new(delayqueue.DelayQueue).WithConcurrent(1) },
		"DelayQueue.WithLogger":     func() { new(delayqueue.DelayQueue).WithLogger(slog.Default()) },
		"DelayQueue.Send":           func() { _, _ = new(delayqueue.DelayQueue).Send(ctx, "x") },
		"DelayQueue.ListenEvent":    func() { new(delayqueue.DelayQueue).ListenEvent(func(delayqueue.Event) {}) },
		"Publisher.Send":            func() { _, _ = new(delayqueue.Publisher).Send(ctx, "x") },
		"Publisher.SendBatch":       func() { _, _ = new(delayqueue.Publisher).SendBatch(ctx, []delayqueue.Outgoing{{}}) },
		"Publisher.SendDelayMsg":    func() { _ = new(delayqueue.Publisher).SendDelayMsg("x", message.MaxDelay+1) },
		"Publisher.SendScheduleMsg": func() { _ = new(delayqueue.Publisher).SendScheduleMsg("x", time.Now()) },
		"Publisher.Intercept":       func() { _, _ = new(delayqueue.Publisher).Intercept(ctx, "x") },
		"Publisher.TryIntercept":    func() { _, _ = new(delayqueue.Publisher).TryIntercept(nil) },
		"Publisher.EnableReport":    func() { new(delayqueue.Publisher).EnableReport() },
		"Publisher.Name":            func() { new(delayqueue.Publisher).Name() },
	} {
		if text := queuetest.PanicText(call); !strings.Contains(text, "make one with NewQueue or NewPublisher") {
			t.Errorf("%s panicked with %q", name, text)
		}
	}
	new(delayqueue.DelayQueue).StopConsume() // as before the first start
	if err := new(delayqueue.DelayQueue).Shutdown(ctx); err != nil {
		t.Errorf("Shutdown of the zero value: %v", err)
	}
}

func TestDefaultRetryCount(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	q := f.Queue(nil)
	p := delayqueue.NewPublisher(f.Name, f.Client()).WithDefaultRetryCount(7)
	ids := map[string]int{f.Send(q, "x").ID: 3}
	q.WithDefaultRetryCount(0)
	ids[f.Send(q, "x").ID] = 0
	ids[f.Send(q, "x", delayqueue.WithRetryCount(9)).ID] = 9
	info, err := p.Send(context.Background(), "x")
	f.Must(err)
	ids[info.ID] = 7
	for id, m := range f.Check().Messages {
		if m.Retries != ids[id] {
			t.Errorf("message has %d retries, want %d", m.Retries, ids[id])
		}
	}
}

// TestLimitsBadOptions: they name what is wrong, and what does not go together.
func TestLimitsBadOptions(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	q := f.Queue(nil)
	now := time.Now()
	refusesOptions(f, map[string]badOptions{
		"endless timeout": {[]delayqueue.MsgOption{delayqueue.WithTimeout(message.MaxDelay + 1)}, []string{"150 years"}},
		"no time": {[]delayqueue.MsgOption{delayqueue.WithDeadline(time.Time{})},
			[]string{"WithDeadline", "zero time"}},
		"year 2200": {[]delayqueue.MsgOption{delayqueue.WithDeadline(message.MaxDue)},
			[]string{"WithDeadline", "2200"}},
		"in the past": {[]delayqueue.MsgOption{delayqueue.WithDeadline(now.Add(-time.Second))},
			[]string{"WithDeadline", "now"}},
		"before its delay": {[]delayqueue.MsgOption{delayqueue.WithDeadline(now.Add(time.Minute)),
			delayqueue.WithDelay(time.Hour)},
			[]string{"WithDeadline", "WithDelay"}},
		"before its schedule": {[]delayqueue.MsgOption{delayqueue.WithSchedule(now.Add(time.Hour)),
			delayqueue.WithDeadline(now.Add(time.Hour))},
			[]string{"WithDeadline", "WithSchedule"}},
	})
	if err := q.SendDelayMsg("x", time.Hour, delayqueue.WithDeadline(now.Add(time.Minute))); !errors.Is(err,
		delayqueue.ErrBadOption) {
		t.Errorf("SendDelayMsg: %v", err)
	}
	if err := q.SendScheduleMsg("x", now.Add(time.Hour), delayqueue.WithDeadline(now.Add(2*time.Hour)),
		delayqueue.WithTimeout(time.Minute)); err != nil {
		t.Errorf("SendScheduleMsg: %v", err)
	}
	if n := len(f.Check().Messages); n != 1 {
		t.Errorf("%d messages are stored", n)
	}
}

// TestProgrammingMistakes: each panics with a sentence that names the call and says what to do.
func TestProgrammingMistakes(t *testing.T) {
	f := face.New(t)
	cli := f.Cli
	ok := func(string) bool { return true }
	q := func() *delayqueue.DelayQueue { return delayqueue.NewQueue(f.Name, cli, ok) }
	var noClient *redis.Client
	for name, c := range map[string]struct {
		f    func()
		text string
	}{
		"empty name":             {func() { delayqueue.NewQueue("", cli, ok) }, "name"},
		"name with {":            {func() { delayqueue.NewQueue("a{b", cli, ok) }, "none of { }"},
		"name with }":            {func() { delayqueue.NewQueue("a}b", cli, ok) }, "none of { }"},
		"name with NUL":          {func() { delayqueue.NewPublisher("or\x00ders", cli) }, "no control characters"},
		"name with a C1 control": {func() { ops.Of(delayqueue.NewMonitor("or\u0085ders", cli)) }, "no control characters"},
		"name with a blank":      {func() { delayqueue.NewQueue(" orders", cli, ok) }, "no blank"},
		"name with a wide blank": {func() { delayqueue.NewQueue("orders\u3000", cli, ok) }, "no blank"},
		"name of no characters":  {func() { delayqueue.NewQueue("h\xff", cli, ok) }, "UTF-8"},
		"prefix with a blank":    {func() { delayqueue.UseCustomPrefix("dq ") }, "no blank"},
		"name of a part":         {func() { delayqueue.NewQueue("a/12", cli, ok) }, "a slash and digits"},
		"nil client":             {func() { delayqueue.NewQueue("a", nil, ok) }, "redis.NewClient"},
		"nil pointer as client":  {func() { delayqueue.NewQueue("a", noClient, ok) }, "redis.NewClient"},
		"nil queue option":       {func() { delayqueue.NewQueue("a", cli, ok, nil) }, "option 1 is nil"},
		"empty prefix":           {func() { delayqueue.UseCustomPrefix("") }, "UseCustomPrefix"},
		"prefix with {":          {func() { delayqueue.UseCustomPrefix("{a}") }, "none of { }"},
		"prefix with a colon":    {func() { delayqueue.UseCustomPrefix("dq:eu") }, "none of { } :"},
		"publisher, empty name":  {func() { delayqueue.NewPublisher("", cli) }, "NewPublisher"},
		"publisher, retry count": {func() { delayqueue.NewPublisher("a", cli).WithDefaultRetryCount(-1) },
			"must not be negative"},
		"publisher, replicas": {func() { delayqueue.NewPublisher("a", cli).WithReplicaAck(-1, time.Second) },
			"must not be negative"},
		"monitor, nil client":       {func() { ops.Of(delayqueue.NewMonitor("a", nil)) }, "NewMonitor"},
		"WithConcurrent(0)":         {func() { q().WithConcurrent(0) }, "NewPublisher"},
		"fetch interval 0":          {func() { q().WithFetchInterval(0) }, "at least 10ms"},
		"fetch interval, no unit":   {func() { q().WithFetchInterval(5) }, "did you mean 5*time.Second?"},
		"fetch interval too short":  {func() { q().WithFetchInterval(10*time.Millisecond - 1) }, "at least 10ms"},
		"negative fetch limit":      {func() { q().WithFetchLimit(-1) }, "must not be negative"},
		"consume duration, no unit": {func() { q().WithMaxConsumeDuration(30) }, "did you mean 30*time.Second?"},
		"consume duration, in ms": {func() {
			q().WithMaxConsumeDuration(1500)
		}, "did you mean 1500*time.Second, or 1500*time.Millisecond?"},
		"lease, no unit":           {func() { q().WithLease(60) }, "did you mean 60*time.Second?"},
		"lease too long":           {func() { q().WithLease(math.MaxInt64) }, "at most 150 years"},
		"lease too short":          {func() { q().WithLease(99 * time.Millisecond) }, "at least 100ms"},
		"max losses 0":             {func() { q().WithMaxLosses(0) }, "at least 1"},
		"negative retry count":     {func() { q().WithDefaultRetryCount(-1) }, "must not be negative"},
		"nack delay, no unit":      {func() { q().WithNackRedeliveryDelay(5) }, "did you mean 5*time.Second?"},
		"nack delay too long":      {func() { q().WithNackRedeliveryDelay(math.MaxInt64) }, "at most 150 years"},
		"no retry delays":          {func() { q().WithRetryDelays() }, "at least one"},
		"retry delays, no unit":    {func() { q().WithRetryDelays(0, 7, 60) }, "did you mean 7*time.Second?"},
		"retry delay too long":     {func() { q().WithRetryDelays(time.Second, message.MaxDelay+1) }, "at most 150 years"},
		"nil retry delay func":     {func() { q().WithRetryDelayFunc(nil) }, "must not be nil"},
		"negative garbage age":     {func() { q().WithGarbageRetention(-1, 0) }, "0 means no bound"},
		"garbage age too long":     {func() { q().WithGarbageRetention(math.MaxInt64, 0) }, "at most 150 years"},
		"negative garbage max":     {func() { q().WithGarbageRetention(0, -1) }, "0 means no bound"},
		"negative done limit":      {func() { q().WithDoneLimit(-1) }, "0 means no bound"},
		"replica timeout 0":        {func() { q().WithReplicaAck(1, 0) }, "at least 1ms"},
		"replica timeout too long": {func() { q().WithReplicaAck(1, math.MaxInt64) }, "at most 150 years"},
		"nil callback":             {func() { q().WithCallback(nil) }, "must not be nil"},
		"nil handler":              {func() { q().WithHandler(nil) }, "must not be nil"},
		"nil middleware":           {func() { q().WithMiddleware(nil) }, "must not be nil"},
		"nil error handler":        {func() { q().WithErrorHandler(nil) }, "must not be nil"},
		"nil listener":             {func() { q().ListenEvent(nil) }, "the listener is nil"},
		"middleware of nothing": {func() {
			q().WithMiddleware(func(delayqueue.Handler) delayqueue.Handler { return nil }).StartConsume()
		}, "middleware 1 returned a nil Handler"},
		"nil garbage handler": {func() { q().WithGarbageHandler(nil) }, "must not be nil"},
		"nil logger":          {func() { q().WithLogger(nil) }, "slog.DiscardHandler"},
		"StartConsume, no callback": {func() { delayqueue.NewQueue(f.Name, cli, nil).StartConsume() },
			"WithCallback or WithHandler"},
	} {
		t.Run(name, func(t *testing.T) {
			if text := queuetest.PanicText(c.f); !strings.HasPrefix(text, "delayqueue: ") || !strings.Contains(text, c.text) {
				t.Errorf("panicked with %q, want a sentence with %q", text, c.text)
			}
		})
	}
	f.CheckEmpty()
}

// TestShortDelays: a delay below a millisecond is taken as it is, because it may have been computed. The log asks
// once for its unit.
func TestShortDelays(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	q := f.Queue(nil).WithRetryDelayFunc(func(int, error, *delayqueue.Message) time.Duration { return 700 })
	ends := []error{delayqueue.Snooze(700), delayqueue.Again(700), delayqueue.RetryAfter(700, queuetest.ErrBoom),
		queuetest.ErrBoom,
		delayqueue.Throttle(700, nil), nil}
	handled := make(chan int, 10)
	var runs sync.Map // of each message: a delivery that a busy consumer gives back has none
	q.WithLogger(f.Logger()).WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
		run, _ := runs.LoadOrStore(msg.ID, 0)
		runs.Store(msg.ID, run.(int)+1) // one handler at a time has a message
		handled <- msg.Failures
		return ends[run.(int)]
	})
	f.Must(q.SendDelayMsg("x", 975543, delayqueue.WithRetention(0)))
	for range 3 {
		f.Send(q, "y", delayqueue.WithDelay(30))
	}
	f.Log.Line(t, "a delay is below 1ms")
	q.StartConsume()
	for range 4 * len(ends) {
		queuetest.Receive(t, "it is handled", handled)
	}
	f.Drained()
	if n := f.Log.Count("a delay is below 1ms"); n < 2 || n > 1+f.ShardCount() {
		t.Errorf("the log asks %d times, want once for the sender and once for each consumer", n)
	}
}

// TestForgottenUnit: a duration that is a number without its unit is refused by every setting that takes one, and
// nothing is stored.
func TestForgottenUnit(t *testing.T) {
	f := face.New(t)
	q, m := f.Queue(nil), ops.Of(delayqueue.NewMonitor(f.Name, f.Cli))
	send := func(opts ...delayqueue.MsgOption) error { _, err := q.Send(queuetest.CtxB, "x", opts...); return err }
	bulk := func(call func() (*ops.BulkResult, error)) error { _, err := call(); return err }
	for _, n := range []time.Duration{1, 15, 900, 1000, 3600, 30_000, 86_400, 604_800, 900_000, time.Millisecond - 1} {
		hint := fmt.Sprintf("did you mean %d*time.Second", n)
		for name, err := range map[string]error{
			"WithMsgTTL": send(delayqueue.WithMsgTTL(n)), "WithTimeout": send(delayqueue.WithTimeout(n)),
			"WithRetention": send(delayqueue.WithRetention(n)),
			"WithKeyHold":   send(delayqueue.WithKey("k"), delayqueue.WithKeyHold(n)),
			"WithMaxWait":   send(delayqueue.WithKey("k", delayqueue.Replace), delayqueue.WithMaxWait(n)),
			"PauseFor":      m.PauseFor(queuetest.CtxB, n), "RescheduleBy": m.RescheduleBy(queuetest.CtxB, "x", n),
			"earlier":       m.RescheduleBy(queuetest.CtxB, "x", -n),
			"Spread":        bulk(func() (*ops.BulkResult, error) { return m.BulkRunNow(queuetest.CtxB, ops.Bulk{Spread: n}) }),
			"shift of many": bulk(func() (*ops.BulkResult, error) { return m.BulkRescheduleBy(queuetest.CtxB, ops.Bulk{}, n) }),
			"SetLimits": func() error {
				_, err := m.SetLimits(queuetest.CtxB, ops.Limits{Rate: 1, Per: n, Burst: 1})
				return err
			}(),
			"Forecast": func() error { _, err := m.Forecast(queuetest.CtxB, time.Time{}, n, 1); return err }(),
		} {
			if !errors.Is(err, delayqueue.ErrBadOption) || !strings.Contains(err.Error(), hint) {
				t.Errorf("%s with %d: %v", name, n, err)
			}
		}
	}
	f.CheckEmpty()
}
