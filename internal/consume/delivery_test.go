package consume

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// TestUnfit: what is broken goes to garbage, what a newer version wrote waits for a day, and a TTL counts for a first
// delivery alone.
func TestUnfit(t *testing.T) {
	const now = message.ServerTime(queuetest.Clock)
	due := func(n int, ago time.Duration) message.Delivered {
		return message.Delivered{Delivery: n, Due: time.UnixMicro(queuetest.Clock).Add(-ago)}
	}
	for name, c := range map[string]struct {
		d      *delivery
		unfit  bool
		kind   script.OutcomeKind
		reason error
	}{
		"all is well": {&delivery{msg: due(1, 0), terms: &noTerms}, false, 0, nil},
		"broken": {&delivery{msg: due(1, 0), terms: &terms{broken: queuetest.ErrBoom}}, true,
			script.OutcomeGarbage, queuetest.ErrBoom},
		"of a newer version": {&delivery{msg: due(newerDeliveries-1, 0),
			terms: &terms{broken: message.ErrNewerVersion}}, true, script.OutcomeRetry, nil},
		"of a newer version, again": {&delivery{msg: due(newerDeliveries, 0),
			terms: &terms{broken: message.ErrNewerVersion}}, true, script.OutcomeGarbage, message.ErrNewerVersion},
		"in time": {&delivery{msg: due(1, time.Second), terms: &terms{ttl: time.Second}}, false, 0,
			nil},
		"too late": {&delivery{msg: due(1, time.Second+time.Microsecond),
			terms: &terms{ttl: time.Second}}, true, script.OutcomeGarbage, ErrExpired},
		"too late, but its TTL counts anew": {&delivery{msg: due(1, time.Hour),
			terms: &terms{ttl: time.Second, since: now - 1e6}}, false, 0, nil},
		"too late, also anew": {&delivery{msg: due(1, time.Hour),
			terms: &terms{ttl: time.Second, since: now - 1e6 - 1}}, true, script.OutcomeGarbage, ErrExpired},
		"too late, but not first": {&delivery{msg: due(2, time.Hour), terms: &terms{ttl: time.Second}}, false, 0,
			nil},
	} {
		d := c.d
		d.msg.Failures, d.losses = 2, 1
		o, unfit := unfit(d, now)
		if unfit != c.unfit {
			t.Errorf("%s: unfit is %v", name, unfit)
		}
		if !unfit {
			continue
		}
		if o.d != d || o.kind != c.kind || !errors.Is(o.err, c.reason) || o.text == "" || o.failures != 2 || o.losses != 1 {
			t.Errorf("%s: %+v", name, o)
		}
		if (o.delay > 0) != (c.kind == script.OutcomeRetry) {
			t.Errorf("%s: it waits %v", name, o.delay)
		}
	}
}

// expiring is a delivery of a message whose deadline is so far away.
func expiring(in time.Duration, lastError string) *delivery {
	return &delivery{losses: 2, msg: message.Delivered{Delivery: 2, Failures: 1, MaxRetries: 3},
		terms: &terms{errors: lastError,
			deadline: message.ServerTime(queuetest.Clock) + message.ServerTime(in.Microseconds()), expires: time.Now().Add(in)}}
}

// TestOutcomeAndDeadline: what would come again at the deadline or later is garbage now, with ErrExpired around the
// last error; all else is as it was.
func TestOutcomeAndDeadline(t *testing.T) {
	minute, hours, ever := time.Minute, 2*time.Hour, time.Duration(1<<63-1)
	failed := Verdict{Err: queuetest.ErrBoom, Text: "boom"}
	after := func(d *time.Duration) Verdict { return Verdict{Err: queuetest.ErrBoom, Text: "boom", Delay: d} }
	snoozed := func(d *time.Duration) Verdict { return Verdict{Snooze: true, Delay: d} }
	again := func(d *time.Duration) Verdict { return Verdict{Snooze: true, ResetFailures: true, Delay: d} }
	for name, c := range map[string]struct {
		v         Verdict
		in        time.Duration // until the deadline
		lastError string
		kind      script.OutcomeKind // garbage: it has expired
		failures  int
		text      string // is in what is kept
	}{
		"ack":              {Verdict{}, -time.Hour, "before", script.OutcomeAck, 1, ""},
		"failure, in time": {failed, time.Hour, "before", script.OutcomeRetry, 2, "boom"},
		"failure, too late": {failed, time.Second, "before", script.OutcomeGarbage, 2,
			"message expired: no delivery after its deadline 2024-06-01T00:00:01Z: boom"},
		"a delay, in time":  {after(&minute), time.Hour, "", script.OutcomeRetry, 2, "boom"},
		"a delay, too late": {after(&hours), time.Hour, "", script.OutcomeGarbage, 2, ": boom"},
		"a delay, for ever": {after(&ever), time.Hour, "", script.OutcomeGarbage, 2, "boom"},
		"snooze, in time":   {snoozed(&minute), time.Hour, "before", script.OutcomeRetry, 1, ""},
		"snooze, too late": {snoozed(&hours), time.Hour, "before", script.OutcomeGarbage, 1,
			"message expired: no delivery after its deadline 2024-06-01T01:00:00Z: before"},
		"snooze, nothing has failed": {snoozed(&hours), time.Hour, "", script.OutcomeGarbage, 1, "Z"},
		"snooze, expired before that": {snoozed(&hours), time.Hour, "message expired: no delivery after its deadline x: y",
			script.OutcomeGarbage,
			1, "message expired: no delivery after its deadline x: y"},
		"again, in time":  {again(&minute), time.Hour, "before", script.OutcomeRetry, 0, ""},
		"again, too late": {again(&hours), time.Hour, "before", script.OutcomeGarbage, 0, ": before"},
	} {
		o := concluded(Settings{DelayAfter: always(7 * time.Second)}, expiring(c.in, c.lastError), c.v)
		if o.kind != c.kind || o.failures != c.failures || !strings.Contains(o.text, c.text) ||
			(o.kind == script.OutcomeGarbage) != errors.Is(o.err, ErrExpired) || o.losses != 0 {
			t.Errorf("%s: %+v", name, o)
		}
		if o.kind == script.OutcomeGarbage &&
			(o.delay != 0 || o.text != message.ErrorText(o.err) ||
				errors.Is(c.v.Err, queuetest.ErrBoom) != errors.Is(o.err, queuetest.ErrBoom)) {
			t.Errorf("%s: %+v", name, o)
		}
	}
	for in, kind := range map[time.Duration]script.OutcomeKind{-time.Second: script.OutcomeGarbage,
		time.Hour: script.OutcomeReady} {
		if o := expiring(in, "").released(); o.kind != kind || o.failures != 1 || o.losses != 2 ||
			(o.err != nil) != (kind == script.OutcomeGarbage) {
			t.Errorf("released %v before its deadline: %+v", in, o)
		}
	}
	if o := (&delivery{terms: &noTerms}).released(); o.kind != script.OutcomeReady {
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
		"no timeout":                    {time.Minute, message.NoTimeout, 0, 0, ErrConsumeTimeout},
		"a deadline alone":              {0, 0, time.Hour, time.Hour, ErrExpired},
		"a deadline, the queue's first": {time.Minute, 0, time.Hour, time.Minute, ErrConsumeTimeout},
		"a deadline before the queue's": {time.Hour, 0, time.Minute, time.Minute, ErrExpired},
		"a deadline, no timeout":        {time.Minute, message.NoTimeout, time.Hour, time.Hour, ErrExpired},
		"a deadline, timeout first":     {0, time.Minute, time.Hour, time.Minute, ErrConsumeTimeout},
		"both at once":                  {0, time.Minute, time.Minute, time.Minute, ErrExpired},
		"a deadline that has come":      {0, 0, -time.Second, 1, ErrExpired},
	} {
		d := &delivery{terms: &terms{timeout: c.timeout}}
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
	deadline := queuetest.Clock + time.Minute.Microseconds()
	e := message.Envelope{Due: 1, Deadline: deadline, Timeout: time.Second, Payload: "x",
		Group: message.Group{Count: 2, Bytes: 5}}
	got := script.FetchReply{Now: message.ServerTime(queuetest.Clock), Tags: []string{"2:" + queuetest.IDOf("a")},
		Envelopes: []string{e.Encode(message.When{Us: 1, Absolute: true})},
		Fails:     []string{"2 1 0 1 before"}, Extras: script.Extras{Parts: map[int][]string{0: {"hello"}}}}
	d := decode(nil, &got, sent, sent.Add(time.Second))[0]
	if d.deadline != message.ServerTime(deadline) || !d.expires.Equal(sent.Add(time.Minute)) || d.errors != "before" ||
		d.timeout != time.Second || d.broken != nil || d.bytes != len(got.Envelopes[0])+5 {
		t.Errorf("%+v", d)
	}
	for _, c := range []struct {
		now   int64
		unfit bool
	}{{deadline - 1, false}, {deadline, true}, {deadline + 1, true}} {
		if o, unfit := unfit(d, message.ServerTime(c.now)); unfit != c.unfit ||
			unfit && (o.kind != script.OutcomeGarbage || o.failures != 1 || !errors.Is(o.err, ErrExpired) ||
				!strings.HasSuffix(o.text, ": before")) {
			t.Errorf("at %d: %+v", c.now-deadline, o)
		}
	}
}
