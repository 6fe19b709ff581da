package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// panicText runs f and returns what it panicked with.
func panicText(f func()) (text string) {
	defer func() {
		if p := recover(); p != nil {
			text, _ = p.(string)
		}
	}()
	f()
	return ""
}

// TestProgrammingMistakes: each panics with a sentence that names the call and says what to do.
func TestProgrammingMistakes(t *testing.T) {
	f := newFixture(t)
	cli := f.cli
	ok := func(string) bool { return true }
	q := func() *DelayQueue { return NewQueue(f.name, cli, ok) }
	var noClient *redis.Client
	for name, c := range map[string]struct {
		f    func()
		text string
	}{
		"empty name":                {func() { NewQueue("", cli, ok) }, "name"},
		"name with {":               {func() { NewQueue("a{b", cli, ok) }, "none of { }"},
		"name with }":               {func() { NewQueue("a}b", cli, ok) }, "none of { }"},
		"name with a line's end":    {func() { NewQueue("orders\n", cli, ok) }, "no control characters"},
		"name with NUL":             {func() { NewPublisher("or\x00ders", cli) }, "no control characters"},
		"name with a C1 control":    {func() { NewMonitor("or\u0085ders", cli) }, "no control characters"},
		"name with a blank":         {func() { NewQueue(" orders", cli, ok) }, "no blank"},
		"name with a wide blank":    {func() { NewQueue("orders\u3000", cli, ok) }, "no blank"},
		"name of no characters":     {func() { NewQueue("h\xff", cli, ok) }, "UTF-8"},
		"prefix with a line's end":  {func() { UseCustomPrefix("dq\n") }, "no control characters"},
		"prefix with a blank":       {func() { UseCustomPrefix("dq ") }, "no blank"},
		"name of a part":            {func() { NewQueue("a/12", cli, ok) }, "a slash and digits"},
		"publisher, name of a part": {func() { NewPublisher("a/b/0", cli) }, "a slash and digits"},
		"monitor, name of a part":   {func() { NewMonitor("/1", cli) }, "a slash and digits"},
		"nil client":                {func() { NewQueue("a", nil, ok) }, "redis.NewClient"},
		"nil pointer as client":     {func() { NewQueue("a", noClient, ok) }, "redis.NewClient"},
		"nil queue option":          {func() { NewQueue("a", cli, ok, nil) }, "option 1 is nil"},
		"empty prefix":              {func() { UseCustomPrefix("") }, "UseCustomPrefix"},
		"prefix with {":             {func() { UseCustomPrefix("{a}") }, "none of { }"},
		"prefix with a colon":       {func() { UseCustomPrefix("dq:eu") }, "none of { } :"},
		"publisher, empty name":     {func() { NewPublisher("", cli) }, "NewPublisher"},
		"publisher, retry count":    {func() { NewPublisher("a", cli).WithDefaultRetryCount(-1) }, "must not be negative"},
		"publisher, replicas":       {func() { NewPublisher("a", cli).WithReplicaAck(-1, time.Second) }, "must not be negative"},
		"monitor, nil client":       {func() { NewMonitor("a", nil) }, "NewMonitor"},
		"WithConcurrent(0)":         {func() { q().WithConcurrent(0) }, "NewPublisher"},
		"WithConcurrent(-1)":        {func() { q().WithConcurrent(-1) }, "WithConcurrent(-1)"},
		"negative fetch interval":   {func() { q().WithFetchInterval(-1) }, "at least 10ms"},
		"fetch interval 0":          {func() { q().WithFetchInterval(0) }, "at least 10ms"},
		"fetch interval, no unit":   {func() { q().WithFetchInterval(5) }, "did you mean 5*time.Second?"},
		"fetch interval too short":  {func() { q().WithFetchInterval(10*time.Millisecond - 1) }, "at least 10ms"},
		"negative fetch limit":      {func() { q().WithFetchLimit(-1) }, "must not be negative"},
		"negative consume duration": {func() { q().WithMaxConsumeDuration(-1) }, "0 means no limit"},
		"consume duration, no unit": {func() { q().WithMaxConsumeDuration(30) }, "did you mean 30*time.Second?"},
		"consume duration, in ms":   {func() { q().WithMaxConsumeDuration(1500) }, "did you mean 1500*time.Second, or 1500*time.Millisecond?"},
		"lease, no unit":            {func() { q().WithLease(60) }, "did you mean 60*time.Second?"},
		"lease too long":            {func() { q().WithLease(math.MaxInt64) }, "at most 150 years"},
		"negative lease":            {func() { q().WithLease(-1) }, "at least 100ms"},
		"lease too short":           {func() { q().WithLease(99 * time.Millisecond) }, "at least 100ms"},
		"max losses 0":              {func() { q().WithMaxLosses(0) }, "at least 1"},
		"negative retry count":      {func() { q().WithDefaultRetryCount(-1) }, "must not be negative"},
		"negative nack delay":       {func() { q().WithNackRedeliveryDelay(-1) }, "must be 0, or at least 1ms"},
		"nack delay, no unit":       {func() { q().WithNackRedeliveryDelay(5) }, "did you mean 5*time.Second?"},
		"nack delay too long":       {func() { q().WithNackRedeliveryDelay(math.MaxInt64) }, "at most 150 years"},
		"no retry delays":           {func() { q().WithRetryDelays() }, "at least one"},
		"negative retry delay":      {func() { q().WithRetryDelays(time.Second, -1) }, "must be 0, or at least 1ms"},
		"retry delays, no unit":     {func() { q().WithRetryDelays(0, 7, 60) }, "did you mean 7*time.Second?"},
		"retry delay too long":      {func() { q().WithRetryDelays(time.Second, maxDelay+1) }, "at most 150 years"},
		"nil retry delay func":      {func() { q().WithRetryDelayFunc(nil) }, "must not be nil"},
		"negative garbage age":      {func() { q().WithGarbageRetention(-1, 0) }, "0 means no bound"},
		"garbage age too long":      {func() { q().WithGarbageRetention(math.MaxInt64, 0) }, "at most 150 years"},
		"negative garbage max":      {func() { q().WithGarbageRetention(0, -1) }, "0 means no bound"},
		"negative done limit":       {func() { q().WithDoneLimit(-1) }, "0 means no bound"},
		"replica timeout 0":         {func() { q().WithReplicaAck(1, 0) }, "at least 1ms"},
		"replica timeout too long":  {func() { q().WithReplicaAck(1, math.MaxInt64) }, "at most 150 years"},
		"nil callback":              {func() { q().WithCallback(nil) }, "must not be nil"},
		"nil handler":               {func() { q().WithHandler(nil) }, "must not be nil"},
		"nil middleware":            {func() { q().WithMiddleware(nil) }, "must not be nil"},
		"nil error handler":         {func() { q().WithErrorHandler(nil) }, "must not be nil"},
		"nil garbage handler":       {func() { q().WithGarbageHandler(nil) }, "must not be nil"},
		"nil logger":                {func() { q().WithLogger(nil) }, "slog.DiscardHandler"},
		"StartConsume, no callback": {func() { NewQueue(f.name, cli, nil).StartConsume() }, "WithCallback or WithHandler"},
	} {
		t.Run(name, func(t *testing.T) {
			if text := panicText(c.f); !strings.HasPrefix(text, "delayqueue: ") || !strings.Contains(text, c.text) {
				t.Errorf("panicked with %q, want a sentence with %q", text, c.text)
			}
		})
	}
	f.checkEmpty()
}

// TestZeroValues: they say what they lack, whatever is called.
func TestZeroValues(t *testing.T) {
	ctx := context.Background()
	for name, call := range map[string]func(){
		"DelayQueue.StartConsume":   func() { new(DelayQueue).StartConsume() },
		"DelayQueue.Run":            func() { _ = new(DelayQueue).Run(ctx) },
		"DelayQueue.WithConcurrent": func() { new(DelayQueue).WithConcurrent(1) },
		"DelayQueue.WithLogger":     func() { new(DelayQueue).WithLogger(slog.Default()) },
		"DelayQueue.Send":           func() { _, _ = new(DelayQueue).Send(ctx, "x") },
		"DelayQueue.ListenEvent":    func() { new(DelayQueue).ListenEvent(func(Event) {}) },
		"Publisher.Send":            func() { _, _ = new(Publisher).Send(ctx, "x") },
		"Publisher.SendBatch":       func() { _, _ = new(Publisher).SendBatch(ctx, []Outgoing{{}}) },
		"Publisher.SendDelayMsg":    func() { _ = new(Publisher).SendDelayMsg("x", maxDelay+1) },
		"Publisher.SendScheduleMsg": func() { _ = new(Publisher).SendScheduleMsg("x", time.Now()) },
		"Publisher.Intercept":       func() { _, _ = new(Publisher).Intercept(ctx, "x") },
		"Publisher.TryIntercept":    func() { _, _ = new(Publisher).TryIntercept(nil) },
		"Publisher.EnableReport":    func() { new(Publisher).EnableReport() },
		"Publisher.Name":            func() { new(Publisher).Name() },
	} {
		if text := panicText(call); !strings.Contains(text, "make one with NewQueue or NewPublisher") {
			t.Errorf("%s panicked with %q", name, text)
		}
	}
	new(DelayQueue).StopConsume() // as before the first start
	if err := new(DelayQueue).Shutdown(ctx); err != nil {
		t.Errorf("Shutdown of the zero value: %v", err)
	}
}

func TestSetterWhileRunning(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(func(string) bool { return true })
	done := q.StartConsume()
	if text := panicText(func() { q.WithConcurrent(2) }); !strings.Contains(text, "before StartConsume") {
		t.Errorf("panicked with %q", text)
	}
	q.StopConsume()
	receive(t, "it stops", done)
	q.WithConcurrent(2) // allowed again
}

// TestLastSettingWins: callback and handler replace each other, settings are overwritten.
func TestLastSettingWins(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	got := make(chan string, 1)
	q := f.queue(func(string) bool { got <- "NewQueue"; return true }).
		WithHandler(func(context.Context, *Message) error { got <- "WithHandler"; return nil }).
		WithCallback(func(string) bool { got <- "WithCallback"; return true }).
		WithConcurrent(3).WithConcurrent(1)
	f.send(q, "x")
	q.StartConsume()
	if by := receive(t, "it is handled", got); by != "WithCallback" {
		t.Errorf("handled by %s", by)
	}
	if q.settings.concurrency != 1 {
		t.Errorf("concurrency %d", q.settings.concurrency)
	}
}

func TestDefaultRetryCount(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(nil)
	p := NewPublisher(f.name, f.client()).WithDefaultRetryCount(7)
	ids := map[string]int64{f.send(q, "x").ID: 3}
	q.WithDefaultRetryCount(0)
	ids[f.send(q, "x").ID] = 0
	ids[f.send(q, "x", WithRetryCount(9)).ID] = 9
	info, err := p.Send(context.Background(), "x")
	if err != nil {
		t.Fatal(err)
	}
	ids[info.ID] = 7
	for id, m := range f.check().Messages {
		if m.Retries != ids[id] {
			t.Errorf("message has %d retries, want %d", m.Retries, ids[id])
		}
	}
}

// TestDelayed: rounded up to microseconds, for a message is never early; bounded on both sides.
func TestDelayed(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		math.MinInt64:                0,
		-time.Nanosecond:             0,
		0:                            0,
		time.Nanosecond:              -1,
		3600:                         -1,
		time.Millisecond - 1:         -1,
		time.Millisecond:             1000,
		time.Millisecond + 1:         1001,
		time.Second - 1:              1000000,
		1500 * time.Microsecond:      1500,
		maxDelay - time.Nanosecond:   4730400000000000,
		150 * 365 * 24 * time.Hour:   4730400000000000,
		maxDelay + time.Nanosecond:   -1,
		time.Duration(math.MaxInt64): -1,
	} {
		if w, err := delayed(d); err == nil && w != (when{us: want}) || (want < 0) != errors.Is(err, ErrBadOption) {
			t.Errorf("delay %v: %+v, %v; want %d", d, w, err, want)
		}
	}
}

// TestForgottenUnit: a duration that is a number without its unit is refused by every call that takes one, and nothing is stored.
func TestForgottenUnit(t *testing.T) {
	f := newFixture(t)
	q, m := f.queue(nil), NewMonitor(f.name, f.cli)
	send := func(opts ...MsgOption) error { _, err := q.Send(ctxB, "x", opts...); return err }
	bulk := func(call func() (*BulkResult, error)) error { _, err := call(); return err }
	for _, n := range []time.Duration{1, 15, 900, 1000, 3600, 30_000, 86_400, 604_800, 900_000, time.Millisecond - 1} {
		hint := fmt.Sprintf("did you mean %d*time.Second", n)
		for name, err := range map[string]error{
			"SendDelayMsg": q.SendDelayMsg("x", n), "WithDelay": send(WithDelay(n)), "WithMsgTTL": send(WithMsgTTL(n)),
			"WithTimeout": send(WithTimeout(n)), "WithRetention": send(WithRetention(n)), "WithKeyHold": send(WithKey("k"), WithKeyHold(n)),
			"WithMaxWait": send(WithKey("k", Replace), WithMaxWait(n)),
			"PauseFor":    m.PauseFor(ctxB, n), "RescheduleBy": m.RescheduleBy(ctxB, "x", n), "earlier": m.RescheduleBy(ctxB, "x", -n),
			"Spread":        bulk(func() (*BulkResult, error) { return m.BulkRunNow(ctxB, Bulk{Spread: n}) }),
			"shift of many": bulk(func() (*BulkResult, error) { return m.BulkRescheduleBy(ctxB, Bulk{}, n) }),
			"SetLimits":     func() error { _, err := m.SetLimits(ctxB, Limits{Rate: 1, Per: n, Burst: 1}); return err }(),
			"Forecast":      func() error { _, err := m.Forecast(ctxB, time.Time{}, n, 1); return err }(),
		} {
			if !errors.Is(err, ErrBadOption) || !strings.Contains(err.Error(), hint) {
				t.Errorf("%s with %d: %v", name, n, err)
			}
		}
	}
	f.checkEmpty()
}

// TestForgottenUnitOfARetryDelay: a function that returns a number without its unit does not make failures follow each other
// at once.
func TestForgottenUnitOfARetryDelay(t *testing.T) {
	f := newFixture(t)
	q := f.queue(nil).WithRetryDelayFunc(func(int, error, *Message) time.Duration { return 3600 })
	if d := q.settings.delayAfter(1, errBoom, &Message{}); d < time.Second || d > 2*time.Second {
		t.Errorf("the next delivery is due after %v", d)
	}
	f.log.line(t, "a number without its unit")
}

// TestForgottenUnitInHandler: what a handler returns with such a number is a failure, not a message that comes again at once.
func TestForgottenUnitInHandler(t *testing.T) {
	for what, err := range map[string]error{"Snooze 30ns": Snooze(30), "Again 30ns": Again(30), "RetryAfter 30ns": RetryAfter(30, errBoom),
		"Throttle 30ns": Throttle(30, nil), "Snooze 3.6µs": Snooze(3600), "Again 3.6µs": Again(3600),
		"RetryAfter 3.6µs": RetryAfter(3600, errBoom), "Throttle 3.6µs": Throttle(3600, errBoom)} {
		v := judge(err)
		if v.snooze || v.delay != nil || !errors.Is(v.err, ErrBadOption) || !strings.Contains(v.text, what) ||
			!strings.Contains(v.text, "did you mean 3") {
			t.Errorf("%s: %+v", what, v)
		}
	}
	if err := RetryAfter(30, errBoom); !errors.Is(err, errBoom) {
		t.Errorf("the handler's own error is not in it: %v", err)
	}
	for _, err := range []error{Snooze(0), Snooze(-1), Again(0), Again(-1), Snooze(time.Millisecond)} {
		if v := judge(err); !v.snooze || *v.delay < 0 {
			t.Errorf("%v: %+v", err, v)
		}
	}
}

// TestScheduled: the same for instants, whatever their zone.
func TestScheduled(t *testing.T) {
	east := time.FixedZone("east", 14*60*60)
	for _, c := range []struct {
		t    time.Time
		want string
	}{
		{time.Time{}, ""},
		{time.Time{}.In(east), ""},
		{time.Unix(math.MaxInt64, 0), ""}, // which wraps
		{time.Unix(math.MinInt64/2, 0), ""},
		{time.Date(-290000, 1, 1, 0, 0, 0, 0, time.UTC), ""},
		{time.Date(1900, 1, 1, 0, 0, 0, -1, time.UTC), ""},
		{time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC), "0"},
		{time.Unix(0, -1), "0"},
		{time.Unix(0, 0), "0"},
		{time.Unix(0, 1), "1"},
		{time.Unix(0, 1000), "1"},
		{time.Unix(0, 1001), "2"},
		{time.Unix(1717200000, 999_999_999), "1717200001000000"},
		{time.Unix(1717200000, 123_456_000).In(east), "1717200000123456"},
		{time.Date(2199, 12, 31, 23, 59, 59, 999_999_000, time.UTC), "7258118399999999"},
		{time.Date(2199, 12, 31, 23, 59, 59, 999_999_001, time.UTC), "7258118400000000"},
		{time.Date(2200, 1, 1, 13, 59, 59, 0, east), "7258118399000000"},
		{time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC), ""},
		{time.Date(2200, 1, 1, 14, 0, 0, 0, east), ""},
		{time.Date(290000, 1, 1, 0, 0, 0, 0, time.UTC), ""},
		{time.Unix(math.MaxInt64/2, 0), ""},
	} {
		if w, err := scheduled(c.t); err == nil && (strconv.FormatInt(w.us, 10) != c.want || !w.absolute) ||
			(c.want == "") != errors.Is(err, ErrBadOption) {
			t.Errorf("schedule %v: %+v, %v; want %s", c.t, w, err, c.want)
		}
	}
}
