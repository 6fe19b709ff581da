package delayqueue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// A verdict is what a handler's result means.
type verdict struct {
	err           error          // nil: an ack, or a snooze
	text          string         // of err, as it is kept; "": not known yet
	skipRetry     bool           // to garbage
	snooze        bool           // no failure
	resetFailures bool           // of a snooze: failures count from 0
	throttle      bool           // of a snooze: it holds for the whole queue
	delay         *time.Duration // the handler's own, of a snooze or a retry
	result        string         // what the handler said with SetResult; counts if this is an ack
	follows       []*sendMessage // and with Then
}

// judge reads a handler's error.
func judge(err error) (v verdict) {
	if err == nil {
		return v
	}
	v.err, v.text, v.skipRetry = err, errorText(err), errors.Is(err, ErrSkipRetry)
	var snooze *snoozeError
	var after *retryAfterError
	switch {
	case v.skipRetry:
	case errors.As(err, &snooze):
		v = verdict{snooze: true, resetFailures: snooze.fresh, throttle: snooze.throttle, delay: &snooze.delay}
		if snooze.why != nil {
			v.text = errorText(snooze.why)
		}
	case errors.As(err, &after):
		v.delay = &after.delay
	}
	return v
}

// conclude turns a verdict into an outcome and gives it to the settler, whatever the user's functions do.
func (d *delivery) conclude(ctx context.Context, v verdict) {
	settings := d.settler.settings
	o := outcome{d: d, failures: d.msg.Failures, err: v.err, text: v.text}
	defer func() {
		d.settler.outbox.put(o)
		if o.kind == outcomeRetry && !v.snooze {
			settings.log.Log(context.Background(), settings.failureLevel, "delayqueue: a delivery failed: its message is to come again", d.attrs(),
				slog.Int("failures", o.failures),
				slog.Int("max_retries", d.msg.MaxRetries), slog.Duration("in", o.delay), slog.String("error", o.text))
		}
	}()
	switch {
	case v.err == nil && !v.snooze: // an ack
		o.result, o.follows = v.result, v.follows
		if n := o.bytes(); n > 0 {
			d.settler.leases.held.grow(d, n)
		}
		return
	case v.snooze:
		o.kind, o.delay, o.throttle = outcomeRetry, min(*v.delay, maxDelay), v.throttle
		if v.resetFailures {
			o.failures = 0
		}
		if v.throttle {
			settings.log.Info("delayqueue: a handler throttles the queue: nothing is handed out for a while", d.attrs(),
				slog.Duration("for", o.delay), slog.String("error", v.text))
		}
		if d.expiredBy(time.Now().Add(o.delay)) {
			o.expire(nil)
		}
		return
	}
	if o.text == "" {
		o.text = cmp.Or(errorText(v.err), fmt.Sprintf("%T", v.err))
	}
	o.failures++
	if v.skipRetry || o.failures > d.msg.MaxRetries {
		o.kind = outcomeGarbage
	} else if o.kind = outcomeRetry; v.delay != nil {
		o.delay = min(*v.delay, maxDelay)
	} else {
		o.delay = defaultDelay(o.failures)
		settings.guard("retry delay function", d.attrs(), func() { o.delay = settings.delayAfter(o.failures, v.err, d.message()) })
	}
	if o.kind == outcomeRetry && d.expiredBy(time.Now().Add(o.delay)) {
		o.expire(v.err)
	}
	if settings.onError != nil {
		settings.guard("error handler", d.attrs(), func() { settings.onError(ctx, d.message(), v.err) })
	}
}
