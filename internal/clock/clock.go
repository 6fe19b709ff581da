// Package clock has the clock of a test rig (delayqueuetest), which stands still until the rig moves it. It travels
// in a context: from the rig to DelayQueue.Drain, and from there to handlers. It imports the standard library alone.
package clock

import (
	"context"
	"time"
)

type key struct{}

// With returns a context whose clock is now.
func With(ctx context.Context, now func() time.Time) context.Context {
	return context.WithValue(ctx, key{}, now)
}

// Of returns the clock of a context, nil if it has none.
func Of(ctx context.Context) (now func() time.Time) {
	now, _ = ctx.Value(key{}).(func() time.Time)
	return now
}

// Now is what time it is by the clock of a context, or else by that of this machine.
func Now(ctx context.Context) time.Time {
	if now := Of(ctx); now != nil {
		return now()
	}
	return time.Now()
}
