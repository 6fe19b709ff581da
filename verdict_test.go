package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"testing"
	"time"
)

// concluded is the outcome of a delivery whose handler returned err, without a server.
func concluded(settings settings, d *delivery, v verdict) outcome {
	settings.log = slog.New(slog.DiscardHandler)
	d.settler = &settler{settings: &settings}
	d.conclude(context.Background(), v)
	return d.settler.outbox.some(1)[0]
}

// TestOutcomeOfAHandler: what a handler returns decides where its message goes, when, and with how many failures.
func TestOutcomeOfAHandler(t *testing.T) {
	nack := 7 * time.Second
	for name, c := range map[string]struct {
		err      error
		failures int // before
		want     outcome
	}{
		"nil":              {nil, 1, outcome{kind: outcomeAck, failures: 1}},
		"a failure":        {errBoom, 0, outcome{kind: outcomeRetry, delay: nack, failures: 1, text: "boom"}},
		"the last but one": {errBoom, 2, outcome{kind: outcomeRetry, delay: nack, failures: 3, text: "boom"}},
		"the last":         {errBoom, 3, outcome{kind: outcomeGarbage, failures: 4, text: "boom"}},
		"ErrSkipRetry":     {fmt.Errorf("no: %w", ErrSkipRetry), 0, outcome{kind: outcomeGarbage, failures: 1, text: "no: skip retry"}},
		"RetryAfter": {RetryAfter(time.Minute, errBoom), 0,
			outcome{kind: outcomeRetry, delay: time.Minute, failures: 1, text: "boom (retry after 1m0s)"}},
		"RetryAfter, and none left": {RetryAfter(time.Minute, errBoom), 3,
			outcome{kind: outcomeGarbage, failures: 4, text: "boom (retry after 1m0s)"}},
		"RetryAfter for ever": {RetryAfter(1<<63-1, errBoom), 0,
			outcome{kind: outcomeRetry, delay: maxDelay, failures: 1, text: fmt.Sprintf("boom (retry after %v)", time.Duration(1<<63-1))}},
		"Snooze":          {Snooze(time.Minute), 3, outcome{kind: outcomeRetry, delay: time.Minute, failures: 3}},
		"Snooze, wrapped": {fmt.Errorf("%w", Snooze(time.Minute)), 3, outcome{kind: outcomeRetry, delay: time.Minute, failures: 3}},
		"Again":           {Again(time.Minute), 3, outcome{kind: outcomeRetry, delay: time.Minute}},
		"Throttle": {Throttle(time.Minute, errBoom), 3,
			outcome{kind: outcomeRetry, throttle: true, delay: time.Minute, failures: 3, text: "boom"}},
		"Throttle without a reason": {Throttle(time.Minute, nil), 3,
			outcome{kind: outcomeRetry, throttle: true, delay: time.Minute, failures: 3}},
		"Throttle for too long": {Throttle(24*time.Hour, nil), 0, outcome{kind: outcomeRetry, throttle: true, delay: time.Hour}},
		"Throttle without a unit": {Throttle(30, nil), 0,
			outcome{kind: outcomeRetry, delay: nack, failures: 1, text: fmt.Sprint(Throttle(30, nil))}},
		"ErrSkipRetry and Snooze": {errors.Join(ErrSkipRetry, Snooze(time.Minute)), 0,
			outcome{kind: outcomeGarbage, failures: 1, text: "skip retry\nsnooze for 1m0s"}},
		"an error without a text": {errors.New(""), 3, outcome{kind: outcomeGarbage, failures: 4, text: "*errors.errorString"}},
	} {
		d := &delivery{losses: 2, msg: Message{Failures: c.failures, MaxRetries: 3}}
		got := concluded(settings{nackDelay: &nack}, d, judge(c.err))
		if failed := got.failures > c.failures; (got.err != nil) != failed || failed && !errors.Is(got.err, c.err) {
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

// TestOutcomeWhenTheDelayFunctionPanics: the message waits as it does by default, and the row of losses is over.
func TestOutcomeWhenTheDelayFunctionPanics(t *testing.T) {
	set := settings{retryDelay: func(int, error, *Message) time.Duration { panic("in the function") }}
	got := concluded(set, &delivery{losses: 2, msg: Message{MaxRetries: 3}}, verdict{err: errBoom})
	if got.kind != outcomeRetry || got.failures != 1 || got.losses != 0 || got.delay < time.Second || got.delay > 2*time.Second {
		t.Errorf("%+v", got)
	}
}
