package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// retry calls attempt until it succeeds, ctx ends, or again returns false for the number of attempts and the last error.
// From the beginning of an attempt to that of the next there is a backoff at least. The close of hurry, which may be nil, cuts one such wait short, and again is asked
// once more then.
func retry(ctx context.Context, hurry <-chan struct{}, attempt func() error, again func(n int, err error) bool) error {
	var last error
	for n := 1; ; n++ {
		if err := ended(ctx); err != nil {
			return withLast(err, last)
		}
		begun := time.Now()
		err := attempt()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			continue // that ended the attempt
		case !again(n, err):
			return err
		}
		last = err
		select {
		case <-time.After(backoff(n) - time.Since(begun)):
		case <-ctx.Done():
		case <-hurry:
			if hurry = nil; !again(n, err) {
				return err
			}
		}
	}
}

// repeat calls attempt until it succeeds, fails for good, ctx ends, or maxAttempts is reached.
func repeat(ctx context.Context, maxAttempts int, attempt func() error) error {
	return retry(ctx, nil, attempt, func(n int, err error) bool { return transient(err) && n < maxAttempts })
}

// sleep waits d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// backoff is how long to wait before attempt n (from 1) of the same call: it doubles
// from 10 ms to a second, with half of it at random.
func backoff(n int) time.Duration {
	d := min(10*time.Millisecond<<min(n-1, 10), time.Second)
	return d/2 + rand.N(d/2+1)
}

// withLast adds to the end of a context why the last attempt failed, if one did.
func withLast(err, last error) error {
	if last == nil {
		return err
	}
	return fmt.Errorf("%w (last attempt: %w)", err, last)
}

// ended is why ctx ended: its error, and its cause if that is another; nil while it lives.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == nil || errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
