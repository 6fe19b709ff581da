package consume

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// concluded is the outcome of a delivery with this verdict, without a server.
func concluded(settings Settings, d *delivery, v Verdict) outcome {
	settings.Log = slog.New(slog.DiscardHandler)
	d.consumer = &Consumer{settings: settings}
	d.consumer.settler.lifecycle = newLifecycle(time.Hour, settings.Log, nil)
	d.conclude(context.Background(), v)
	return d.consumer.settler.outbox.All()[0]
}

// always is a function that answers with the same delay.
func always(d time.Duration) func(int, error, *message.Delivered) time.Duration {
	return func(int, error, *message.Delivered) time.Duration { return d }
}

// TestOutcome: the verdict on a handler's result decides where its message goes, when, and with how many failures.
func TestOutcome(t *testing.T) {
	nack, minute, ever := 7*time.Second, time.Minute, time.Duration(1<<63-1)
	for name, c := range map[string]struct {
		v        Verdict
		failures int // before
		want     outcome
	}{
		"an ack": {Verdict{}, 1, outcome{kind: script.OutcomeAck, failures: 1}},
		"a failure": {Verdict{Err: queuetest.ErrBoom, Text: "boom"}, 0,
			outcome{kind: script.OutcomeRetry, delay: nack, failures: 1, text: "boom"}},
		"the last but one": {Verdict{Err: queuetest.ErrBoom, Text: "boom"}, 2,
			outcome{kind: script.OutcomeRetry, delay: nack, failures: 3, text: "boom"}},
		"the last": {Verdict{Err: queuetest.ErrBoom, Text: "boom"}, 3,
			outcome{kind: script.OutcomeGarbage, failures: 4, text: "boom"}},
		"no retry": {Verdict{Err: queuetest.ErrBoom, Text: "no", SkipRetry: true}, 0,
			outcome{kind: script.OutcomeGarbage, failures: 1, text: "no"}},
		"a delay of its own": {Verdict{Err: queuetest.ErrBoom, Text: "boom", Delay: &minute}, 0,
			outcome{kind: script.OutcomeRetry, delay: time.Minute, failures: 1, text: "boom"}},
		"a delay of its own, and none left": {Verdict{Err: queuetest.ErrBoom, Text: "boom", Delay: &minute}, 3,
			outcome{kind: script.OutcomeGarbage, failures: 4, text: "boom"}},
		"a delay for ever": {Verdict{Err: queuetest.ErrBoom, Text: "boom", Delay: &ever}, 0,
			outcome{kind: script.OutcomeRetry, delay: message.MaxDelay, failures: 1, text: "boom"}},
		"a snooze": {Verdict{Snooze: true, Delay: &minute}, 3,
			outcome{kind: script.OutcomeRetry, delay: time.Minute, failures: 3}},
		"a snooze for ever": {Verdict{Snooze: true, Delay: &ever}, 3,
			outcome{kind: script.OutcomeRetry, delay: message.MaxDelay, failures: 3}},
		"failures from 0": {Verdict{Snooze: true, ResetFailures: true, Delay: &minute}, 3,
			outcome{kind: script.OutcomeRetry, delay: time.Minute, leaves: true}},
		"a throttle": {Verdict{Snooze: true, Throttle: true, Delay: &minute, Text: "boom"}, 3,
			outcome{kind: script.OutcomeRetry, throttle: true, delay: time.Minute, failures: 3, text: "boom"}},
		"an error whose text is not known": {Verdict{Err: queuetest.ErrBoom}, 3,
			outcome{kind: script.OutcomeGarbage, failures: 4, text: "boom"}},
		"an error without a text": {Verdict{Err: errors.New("")}, 3,
			outcome{kind: script.OutcomeGarbage, failures: 4, text: "*errors.errorString"}},
	} {
		d := &delivery{losses: 2, msg: message.Delivered{Failures: c.failures, MaxRetries: 3}, terms: &noTerms}
		got := concluded(Settings{DelayAfter: always(nack)}, d, c.v)
		if got.err != c.v.Err {
			t.Errorf("%s: the garbage handler would get %v", name, got.err)
		}
		if got.d != d {
			t.Errorf("%s: it is of another delivery", name)
		}
		got.d, got.err = nil, nil
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// TestDefaultDelay: without a function the delay doubles with each failure, to 10 minutes. Half of it is chance.
func TestDefaultDelay(t *testing.T) {
	for n, most := 1, 2*time.Second; n < 40; n, most = n+1, min(2*most, 10*time.Minute) {
		for range 20 {
			d := &delivery{msg: message.Delivered{Failures: n - 1, MaxRetries: n}, terms: &noTerms}
			if got := concluded(Settings{}, d, Verdict{Err: queuetest.ErrBoom}); got.delay < most/2 || got.delay > most {
				t.Fatalf("delay after failure %d is %v, want %v to %v", n, got.delay, most/2, most)
			}
		}
	}
}

// TestOutcomeWhenTheDelayFunctionPanics: the message waits as it does by default, and the row of losses is over.
func TestOutcomeWhenTheDelayFunctionPanics(t *testing.T) {
	set := Settings{DelayAfter: func(int, error, *message.Delivered) time.Duration { panic("in the function") }}
	got := concluded(set, &delivery{losses: 2, msg: message.Delivered{MaxRetries: 3}, terms: &noTerms},
		Verdict{Err: queuetest.ErrBoom})
	if got.kind != script.OutcomeRetry || got.failures != 1 || got.losses != 0 || got.delay < time.Second ||
		got.delay > 2*time.Second {
		t.Errorf("%+v", got)
	}
}
