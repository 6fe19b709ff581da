package delayqueue

import (
	"context"
	"time"
)

// retry calls attempt until it succeeds, ctx ends, or again, which gets the number of attempts and the last error, says
// no. It waits a backoff between attempts. If hurry is closed meanwhile, it asks again once more and waits no longer.
func retry(ctx context.Context, hurry <-chan struct{}, attempt func() error, again func(n int, err error) bool) error {
	var last error
	for n := 1; ; n++ {
		if err := ended(ctx); err != nil {
			return withLast(err, last)
		}
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
		timer := time.NewTimer(backoff(n))
		select {
		case <-timer.C:
		case <-ctx.Done():
		case <-hurry:
			hurry = nil
			if !again(n, err) {
				timer.Stop()
				return err
			}
		}
		timer.Stop()
	}
}

// repeat calls attempt until it succeeds, fails for good, ctx ends, or maxAttempts is reached.
func repeat(ctx context.Context, maxAttempts int, attempt func() error) error {
	return retry(ctx, nil, attempt, func(n int, err error) bool { return transient(err) && n < maxAttempts })
}

// sleep waits d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
