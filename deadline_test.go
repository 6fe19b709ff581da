package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// expiring is a delivery of a message whose deadline is so far away.
func expiring(in time.Duration, lastError string) *delivery {
	return &delivery{losses: 2, errors: lastError, msg: Message{Delivery: 2, Failures: 1, MaxRetries: 3},
		deadline: serverTime(rigBase) + serverTime(in.Microseconds()), expires: time.Now().Add(in)}
}

// TestOutcomeAndDeadline: what would come again at the deadline or later is garbage now, with ErrExpired around the last
// error; all else is as it was.
func TestOutcomeAndDeadline(t *testing.T) {
	nack := 7 * time.Second
	for name, c := range map[string]struct {
		err       error
		in        time.Duration // until the deadline
		lastError string
		kind      outcomeKind // garbage: it has expired
		failures  int
		text      string // is in what is kept
	}{
		"ack":              {nil, -time.Hour, "before", outcomeAck, 1, ""},
		"failure, in time": {errBoom, time.Hour, "before", outcomeRetry, 2, "boom"},
		"failure, too late": {errBoom, time.Second, "before", outcomeGarbage, 2,
			"message expired: no delivery after its deadline 2024-06-01T00:00:01Z: boom"},
		"RetryAfter, in time":  {RetryAfter(time.Minute, errBoom), time.Hour, "", outcomeRetry, 2, "boom"},
		"RetryAfter, too late": {RetryAfter(2*time.Hour, errBoom), time.Hour, "", outcomeGarbage, 2, ": boom (retry after 2h0m0s)"},
		"RetryAfter, for ever": {RetryAfter(1<<63-1, errBoom), time.Hour, "", outcomeGarbage, 2, "boom"},
		"Snooze, in time":      {Snooze(time.Minute), time.Hour, "before", outcomeRetry, 1, ""},
		"Snooze, too late": {Snooze(2 * time.Hour), time.Hour, "before", outcomeGarbage, 1,
			"message expired: no delivery after its deadline 2024-06-01T01:00:00Z: before"},
		"Snooze, nothing has failed": {Snooze(2 * time.Hour), time.Hour, "", outcomeGarbage, 1, "Z"},
		"Snooze, expired before that": {Snooze(2 * time.Hour), time.Hour, "message expired: no delivery after its deadline x: y", outcomeGarbage,
			1, "message expired: no delivery after its deadline x: y"},
		"Again, in time":  {Again(time.Minute), time.Hour, "before", outcomeRetry, 0, ""},
		"Again, too late": {Again(2 * time.Hour), time.Hour, "before", outcomeGarbage, 0, ": before"},
	} {
		o := concluded(settings{nackDelay: &nack}, expiring(c.in, c.lastError), judge(c.err))
		if o.kind != c.kind || o.failures != c.failures || !strings.Contains(o.text, c.text) ||
			(o.kind == outcomeGarbage) != errors.Is(o.err, ErrExpired) || o.losses != 0 {
			t.Errorf("%s: %+v", name, o)
		}
		if o.kind == outcomeGarbage && (o.delay != 0 || o.text != errorText(o.err) || errors.Is(c.err, errBoom) != errors.Is(o.err, errBoom)) {
			t.Errorf("%s: %+v", name, o)
		}
	}
	for in, kind := range map[time.Duration]outcomeKind{-time.Second: outcomeGarbage, time.Hour: outcomeReady} {
		if o := expiring(in, "").released(); o.kind != kind || o.failures != 1 || o.losses != 2 || (o.err != nil) != (kind == outcomeGarbage) {
			t.Errorf("released %v before its deadline: %+v", in, o)
		}
	}
	if o := (&delivery{}).released(); o.kind != outcomeReady {
		t.Errorf("released, without a deadline: %+v", o)
	}
}

// TestRunLimit: a message's timeout takes the place of the queue's limit, and its deadline cuts both short.
func TestRunLimit(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		queue, timeout, deadline time.Duration
		want                     time.Duration
		why                      error
	}{
		"none":                          {0, 0, 0, 0, ErrConsumeTimeout},
		"the queue's":                   {time.Minute, 0, 0, time.Minute, ErrConsumeTimeout},
		"longer":                        {time.Minute, time.Hour, 0, time.Hour, ErrConsumeTimeout},
		"shorter":                       {time.Minute, time.Second, 0, time.Second, ErrConsumeTimeout},
		"no timeout":                    {time.Minute, noTimeout, 0, 0, ErrConsumeTimeout},
		"a deadline alone":              {0, 0, time.Hour, time.Hour, ErrExpired},
		"a deadline, the queue's first": {time.Minute, 0, time.Hour, time.Minute, ErrConsumeTimeout},
		"a deadline before the queue's": {time.Hour, 0, time.Minute, time.Minute, ErrExpired},
		"a deadline, no timeout":        {time.Minute, noTimeout, time.Hour, time.Hour, ErrExpired},
		"a deadline, timeout first":     {0, time.Minute, time.Hour, time.Minute, ErrConsumeTimeout},
		"both at once":                  {0, time.Minute, time.Minute, time.Minute, ErrExpired},
		"a deadline that has come":      {0, 0, -time.Second, 1, ErrExpired},
	} {
		d := &delivery{timeout: c.timeout}
		if c.deadline != 0 {
			d.expires = now.Add(c.deadline)
		}
		if limit, why := d.runLimit(c.queue, now); limit != c.want || why != c.why {
			t.Errorf("%s: %v, %v; want %v, %v", name, limit, why, c.want, c.why)
		}
	}
}

// TestDecodedDeadline: by the clock of this process a deadline comes as long after the request as it is after the
// server's now of the fetch.
func TestDecodedDeadline(t *testing.T) {
	sent := time.Now()
	deadline := rigBase + time.Minute.Microseconds()
	e := envelope{due: 1, deadline: deadline, timeout: time.Second, payload: "x"}
	got := fetchReply{now: serverTime(rigBase), tags: []string{"2:" + idOf("a")}, envelopes: []string{e.encode(when{us: 1, absolute: true})},
		fails: []string{"2 1 0 1 before"}}
	d := decode(nil, &got, 3, sent, sent.Add(time.Second))[0]
	if d.deadline != serverTime(deadline) || !d.expires.Equal(sent.Add(time.Minute)) || d.errors != "before" ||
		d.timeout != time.Second || d.broken != nil {
		t.Errorf("%+v", d)
	}
	for _, c := range []struct {
		now   int64
		unfit bool
	}{{deadline - 1, false}, {deadline, true}, {deadline + 1, true}} {
		if o, unfit := unfit(d, serverTime(c.now)); unfit != c.unfit ||
			unfit && (o.kind != outcomeGarbage || o.failures != 1 || !errors.Is(o.err, ErrExpired) || !strings.HasSuffix(o.text, ": before")) {
			t.Errorf("at %d: %+v", c.now-deadline, o)
		}
	}
}

// death is what a garbage handler was told.
type death struct {
	msg *Message
	err error
}

// TestDeadline goes through the ways of a message to its deadline.
func TestDeadline(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	deaths, handled := make(chan death, 10), make(chan string, 10)
	q := f.queue(nil).WithConcurrent(4).WithGarbageHandler(func(_ context.Context, msg *Message, err error) { deaths <- death{msg, err} }).
		WithHandler(func(ctx context.Context, msg *Message) error {
			handled <- msg.Payload
			switch {
			case msg.Payload == "blocks":
				<-ctx.Done()
				if cause := context.Cause(ctx); !errors.Is(cause, ErrExpired) {
					t.Errorf("its context ended with %v", cause)
				}
				return errors.New("too late for anybody")
			case msg.Payload == "fails":
				return RetryAfter(time.Hour, errBoom)
			case msg.Payload == "snoozes":
				return Snooze(time.Hour)
			}
			return nil
		})
	died := func(what string, id string, failures int64, wraps error) {
		t.Helper()
		got := receive(t, what, deaths)
		if got.msg.ID != id || !errors.Is(got.err, ErrExpired) || wraps != nil && !errors.Is(got.err, wraps) {
			t.Errorf("%s: %+v, %v", what, got.msg, got.err)
		}
		if record := f.check().Fail[id]; f.where(id) != "garbage" || record.Failures != failures ||
			!strings.HasPrefix(record.Error, "message expired: no delivery after its deadline") {
			t.Errorf("%s: %s, %+v", what, f.where(id), record)
		}
	}
	soon := time.Now().Add(4 * time.Second) // a deadline that has passed is refused
	late := f.send(q, "late", WithDeadline(soon))
	inTime := f.send(q, "in time", WithDeadline(time.Now().Add(time.Hour)), WithKey("k"))
	if m, err := NewMonitor(f.name, f.cli).Get(context.Background(), late.ID); err != nil ||
		!m.Deadline.Equal(soon.Truncate(time.Microsecond)) || m.Timeout != 0 {
		t.Errorf("%+v, %v; want the deadline %v", m, err, soon)
	}
	<-time.After(time.Until(soon.Add(time.Millisecond)))
	q.StartConsume()
	died("it is never handed out", late.ID, 0, nil)
	if p := receive(t, "one is handled", handled); p != "in time" {
		t.Errorf("handled %q", p)
	}
	eventually(t, "it is acked", func() bool { return f.where(inTime.ID) == "gone" })

	fails := f.send(q, "fails", WithDeadline(time.Now().Add(10*time.Minute)))
	died("its retry would be too late", fails.ID, 1, errBoom)
	snoozes := f.send(q, "snoozes", WithDeadline(time.Now().Add(10*time.Minute)))
	died("it would come again too late", snoozes.ID, 0, nil)
	for len(handled) > 0 {
		<-handled
	}
	if err := NewMonitor(f.name, f.cli).Requeue(context.Background(), late.ID); err != nil {
		t.Fatal(err)
	}
	died("once more in vain", late.ID, 0, nil)
	if n := strings.Count(f.check().Fail[late.ID].Error, "expired"); n != 1 || len(handled) > 0 {
		t.Errorf("%d handled; it says %q", len(handled), f.check().Fail[late.ID].Error)
	}

	for start := false; !start; { // on a machine that stands still it comes too late for its handler
		cut := f.send(q, "blocks", WithDeadline(time.Now().Add(3*time.Second)))
		select {
		case <-handled:
			start = true
			died("it is cut off", cut.ID, 1, nil)
		case <-deaths:
		}
	}
	f.log.says(t, 1, "ran past its limit", "cause=\"message expired\"")
}

// TestDeadlineRace: handlers that return at about the deadline are counted once, as acked or as garbage.
func TestDeadlineRace(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const n = 200
	var acked atomic.Int64
	q := f.queue(nil).WithConcurrent(20).WithFailureLevel(-4)
	q.WithHandler(func(ctx context.Context, msg *Message) error {
		at, err := time.Parse(time.RFC3339Nano, msg.Payload)
		if err != nil {
			return err
		}
		<-time.After(time.Until(at))
		return nil
	})
	events := q.ListenEvent(func(e Event) {
		if e.Code == AckEvent {
			acked.Add(int64(e.Count))
		}
	})
	defer events.Stop()
	q.StartConsume()
	for i := range n {
		err := ErrBadOption
		for errors.Is(err, ErrBadOption) { // again, if this process was held up until after the deadline
			at := time.Now().Add(time.Duration(5+i%3) * time.Millisecond)
			_, err = q.Send(ctxB, at.Format(time.RFC3339Nano), WithDeadline(at.Add(time.Duration(i%7-3)*50*time.Microsecond)))
		}
		f.must(err)
	}
	eventually(t, "each has its end", func() bool {
		s := f.check()
		return len(s.Messages) == len(s.Garbage)
	})
	eventually(t, "each has one end", func() bool { return int(acked.Load())+len(f.check().Garbage) == n })
	for id, record := range f.check().Fail {
		if record.Failures > 1 || !strings.HasPrefix(record.Error, "message expired") {
			t.Errorf("%s: %+v", id, record)
		}
	}
	days, err := NewMonitor(f.name, f.cli).History(context.Background(), Daily, 2)
	if err != nil {
		t.Fatal(err)
	}
	if ended := days[0].Acked + days[0].Garbage + days[1].Acked + days[1].Garbage; ended != n {
		t.Errorf("counted %+v", days)
	}
}

// TestTimeout: a message's own limit holds in place of the queue's.
func TestTimeout(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	started, release := make(chan string, 10), make(chan struct{})
	q := f.queue(nil).WithConcurrent(3).WithMaxConsumeDuration(100 * time.Millisecond).WithNackRedeliveryDelay(time.Hour).
		WithHandler(func(ctx context.Context, msg *Message) error {
			started <- msg.Payload
			if msg.Payload == "no limit" {
				select {
				case <-release:
				case <-ctx.Done():
					t.Errorf("it is cut off: %v", context.Cause(ctx))
				}
				return nil
			}
			<-ctx.Done()
			return nil
		})
	q.StartConsume()
	free := f.send(q, "no limit", WithTimeout(0))
	receive(t, "it starts", started)
	long := f.send(q, "long", WithTimeout(time.Hour))
	receive(t, "it starts", started)
	for range 3 { // these come and go while the first go on
		failed := f.send(q, "cut off")
		receive(t, "it starts", started)
		eventually(t, "it is cut off", func() bool { return strings.Contains(f.check().Fail[failed.ID].Error, "past its limit of 100ms") })
	}
	short := f.send(q, "short", WithTimeout(20*time.Millisecond))
	eventually(t, "it is cut off", func() bool { return strings.Contains(f.check().Fail[short.ID].Error, "past its limit of 20ms") })
	for _, id := range []string{free.ID, long.ID} {
		if where := f.where(id); where != "unack" {
			t.Errorf("it is %s", where)
		}
	}
	m := NewMonitor(f.name, f.cli)
	for id, want := range map[string]string{free.ID: "true", long.ID: "1h0m0s", short.ID: "20ms"} {
		got, err := m.Get(context.Background(), id)
		if err != nil {
			t.Fatal(err)
		}
		if text := fmt.Sprint(got.Timeout); text != want && fmt.Sprint(got.Timeout < 0) != want {
			t.Errorf("its timeout is %v, want %v", got.Timeout, want)
		}
	}
	close(release)
	if r, err := q.Cancel(context.Background(), long.ID); err != nil || !r.Intercepted {
		t.Errorf("%+v, %v", r, err)
	}
	eventually(t, "the first is acked", func() bool { return f.where(free.ID) == "gone" })
}

// TestLimitsBadOptions: they name what is wrong, and what does not go together.
func TestLimitsBadOptions(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(nil)
	now := time.Now()
	for name, c := range map[string]struct {
		opts []MsgOption
		says []string
	}{
		"timeout without a unit": {[]MsgOption{WithTimeout(30)}, []string{"WithTimeout(30ns)", "did you mean 30*time.Second?"}},
		"negative timeout":       {[]MsgOption{WithTimeout(-time.Second)}, []string{"WithTimeout(-1s)", "at least 1ms"}},
		"endless timeout":        {[]MsgOption{WithTimeout(maxDelay + 1)}, []string{"150 years"}},
		"no time":                {[]MsgOption{WithDeadline(time.Time{})}, []string{"WithDeadline", "zero time"}},
		"year 2200":              {[]MsgOption{WithDeadline(maxDue)}, []string{"WithDeadline", "2200"}},
		"in the past":            {[]MsgOption{WithDeadline(now.Add(-time.Second))}, []string{"WithDeadline", "now"}},
		"before 1970":            {[]MsgOption{WithDeadline(time.Unix(-5, 0))}, []string{"WithDeadline"}},
		"before its delay":       {[]MsgOption{WithDeadline(now.Add(time.Minute)), WithDelay(time.Hour)}, []string{"WithDeadline", "WithDelay"}},
		"before its schedule": {[]MsgOption{WithSchedule(now.Add(time.Hour)), WithDeadline(now.Add(time.Hour))},
			[]string{"WithDeadline", "WithSchedule"}},
	} {
		_, err := q.Send(context.Background(), "x", c.opts...)
		failed := new(SendError)
		if !errors.Is(err, ErrBadOption) || !errors.As(err, &failed) || failed.Stored != StoredNo || failed.ID != "" {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, text := range c.says {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v; want %q in it", name, err, text)
			}
		}
	}
	if err := q.SendDelayMsg("x", time.Hour, WithDeadline(now.Add(time.Minute))); !errors.Is(err, ErrBadOption) {
		t.Errorf("SendDelayMsg: %v", err)
	}
	if err := q.SendScheduleMsg("x", now.Add(time.Hour), WithDeadline(now.Add(2*time.Hour)), WithTimeout(time.Minute)); err != nil {
		t.Errorf("SendScheduleMsg: %v", err)
	}
	if n := len(f.check().Messages); n != 1 {
		t.Errorf("%d messages are stored", n)
	}
}
