package consume

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// A Verdict is what a handler's result means.
type Verdict struct {
	Err           error                 // nil: an ack, or a snooze
	Text          string                // of Err, or the reason of a throttle, as it is kept; "": none, or not known yet
	SkipRetry     bool                  // to garbage
	Snooze        bool                  // no failure
	ResetFailures bool                  // of a snooze: failures count from 0
	Throttle      bool                  // of a snooze: nothing of the queue is handed out meanwhile
	Delay         *time.Duration        // the handler's own, of a snooze or a retry
	result        string                // of an ack, what the handler said with SetResult
	follows       []*script.SendMessage // of an ack, what it said with Then
}

// conclude turns a verdict into an outcome and gives it to the settler, whatever the user's functions do. A new outcome of a handler
// needs a case here and in judge (handler.go), and an example. If settle has no such outcome, it needs a kind in Go and Lua, a row in
// docs/PROTOCOL.md, an event, and a case in the model.
func (d *delivery) conclude(ctx context.Context, v Verdict) {
	settings := &d.consumer.settings
	o := outcome{d: d, failures: d.msg.Failures, err: v.Err, text: v.Text}
	defer func() {
		d.consumer.settler.put(o)
		if d.consumer.units.Asks(o.delay) {
			settings.Log.Warn(message.UnitMissing, d.attrs(), slog.Duration("delay", o.delay))
		}
		if o.kind == script.OutcomeRetry && !v.Snooze {
			settings.Log.Info("delayqueue: a delivery failed: its message is to come again", d.attrs(),
				slog.Int("failures", o.failures),
				slog.Int("max_retries", d.msg.MaxRetries), slog.Duration("in", o.delay), slog.String("error", o.text))
		}
	}()
	switch {
	case v.Err == nil && !v.Snooze: // an ack
		o.result, o.follows = v.result, v.follows
		if n := o.bytes(); n > 0 {
			d.consumer.leases.held.grow(d, n)
		}
		return
	case v.Snooze:
		o.kind, o.delay, o.throttle = script.OutcomeRetry, min(*v.Delay, message.MaxDelay), v.Throttle
		if v.ResetFailures {
			o.failures, o.leaves = 0, true
		}
		if v.Throttle {
			settings.Log.Info("delayqueue: a handler throttles the queue: nothing is handed out for a while", d.attrs(),
				slog.Duration("for", o.delay), slog.String("error", v.Text))
		}
		if d.expiredBy(time.Now().Add(o.delay)) {
			o.expire(nil)
		}
		return
	}
	if o.text == "" {
		o.text = cmp.Or(message.ErrorText(v.Err), fmt.Sprintf("%T", v.Err))
	}
	o.failures++
	if v.SkipRetry || o.failures > d.msg.MaxRetries {
		o.kind = script.OutcomeGarbage
	} else if o.kind = script.OutcomeRetry; v.Delay != nil {
		o.delay = min(*v.Delay, message.MaxDelay)
	} else {
		o.delay = DefaultDelay(o.failures)
		if settings.DelayAfter != nil {
			settings.guard("retry delay function", d.attrs(), func() { o.delay = settings.DelayAfter(o.failures, v.Err, d.message()) })
		}
	}
	if o.kind == script.OutcomeRetry && d.expiredBy(time.Now().Add(o.delay)) {
		o.expire(v.Err)
	}
	if settings.OnError != nil {
		settings.guard("error handler", d.attrs(), func() { settings.OnError(ctx, d.message(), v.Err) })
	}
}
