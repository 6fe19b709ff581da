package delayqueue_test

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
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

// TestDelayed: rounded up to microseconds, for a message is never early; bounded on both sides.
func TestDelayed(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		math.MinInt64:                      0,
		-time.Nanosecond:                   0,
		0:                                  0,
		time.Nanosecond:                    -1,
		3600:                               -1,
		time.Millisecond - 1:               -1,
		time.Millisecond:                   1000,
		time.Millisecond + 1:               1001,
		time.Second - 1:                    1000000,
		1500 * time.Microsecond:            1500,
		message.MaxDelay - time.Nanosecond: 4730400000000000,
		150 * 365 * 24 * time.Hour:         4730400000000000,
		message.MaxDelay + time.Nanosecond: -1,
		time.Duration(math.MaxInt64):       -1,
	} {
		if w, err := message.Delayed(d); err == nil && w != (message.When{Us: want}) || (want < 0) != errors.Is(err, delayqueue.ErrBadOption) {
			t.Errorf("delay %v: %+v, %v; want %d", d, w, err, want)
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
		if w, err := message.Scheduled(c.t); err == nil && (strconv.FormatInt(w.Us, 10) != c.want || !w.Absolute) ||
			(c.want == "") != errors.Is(err, delayqueue.ErrBadOption) {
			t.Errorf("schedule %v: %+v, %v; want %s", c.t, w, err, c.want)
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
		"timeout without a unit": {[]delayqueue.MsgOption{delayqueue.WithTimeout(30)}, []string{"WithTimeout(30ns)", "did you mean 30*time.Second?"}},
		"negative timeout":       {[]delayqueue.MsgOption{delayqueue.WithTimeout(-time.Second)}, []string{"WithTimeout(-1s)", "at least 1ms"}},
		"endless timeout":        {[]delayqueue.MsgOption{delayqueue.WithTimeout(message.MaxDelay + 1)}, []string{"150 years"}},
		"no time":                {[]delayqueue.MsgOption{delayqueue.WithDeadline(time.Time{})}, []string{"WithDeadline", "zero time"}},
		"year 2200":              {[]delayqueue.MsgOption{delayqueue.WithDeadline(message.MaxDue)}, []string{"WithDeadline", "2200"}},
		"in the past":            {[]delayqueue.MsgOption{delayqueue.WithDeadline(now.Add(-time.Second))}, []string{"WithDeadline", "now"}},
		"before 1970":            {[]delayqueue.MsgOption{delayqueue.WithDeadline(time.Unix(-5, 0))}, []string{"WithDeadline"}},
		"before its delay": {[]delayqueue.MsgOption{delayqueue.WithDeadline(now.Add(time.Minute)), delayqueue.WithDelay(time.Hour)},
			[]string{"WithDeadline", "WithDelay"}},
		"before its schedule": {[]delayqueue.MsgOption{delayqueue.WithSchedule(now.Add(time.Hour)), delayqueue.WithDeadline(now.Add(time.Hour))},
			[]string{"WithDeadline", "WithSchedule"}},
	})
	if err := q.SendDelayMsg("x", time.Hour, delayqueue.WithDeadline(now.Add(time.Minute))); !errors.Is(err, delayqueue.ErrBadOption) {
		t.Errorf("SendDelayMsg: %v", err)
	}
	if err := q.SendScheduleMsg("x", now.Add(time.Hour), delayqueue.WithDeadline(now.Add(2*time.Hour)), delayqueue.WithTimeout(time.Minute)); err != nil {
		t.Errorf("SendScheduleMsg: %v", err)
	}
	if n := len(f.Check().Messages); n != 1 {
		t.Errorf("%d messages are stored", n)
	}
}
