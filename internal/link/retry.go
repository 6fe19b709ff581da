package link

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Retry calls attempt until it succeeds, ctx ends, or again returns false for the number of attempts and the last error. A
// backoff at least passes from the beginning of one attempt to the beginning of the next. The close of hurry, which may be
// nil, cuts one wait short, and again is called once more.
func Retry(ctx context.Context, hurry <-chan struct{}, attempt func() error, again func(n int, err error) bool) error {
	var last error
	for n := 1; ; n++ {
		if err := Ended(ctx); err != nil {
			return WithLast(err, last)
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
		case <-time.After(Backoff(n) - time.Since(begun)):
		case <-ctx.Done():
		case <-hurry:
			if hurry = nil; !again(n, err) {
				return err
			}
		}
	}
}

// Repeat calls attempt until it succeeds, fails for good, or ctx ends.
func Repeat(ctx context.Context, attempt func() error) error {
	return Retry(ctx, nil, attempt, func(_ int, err error) bool { return Transient(err) })
}

// Sleep waits d, or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// Backoff is how long lies between the beginnings of attempt n (from 1) of a call and of the next: it doubles
// from 10 ms to a second, with half of it at random.
func Backoff(n int) time.Duration {
	d := min(10*time.Millisecond<<min(n-1, 10), time.Second)
	return d/2 + rand.N(d/2+1)
}

// WithLast adds the error of the last attempt, which may be nil, to the error of a context that has ended.
func WithLast(err, last error) error {
	if last == nil {
		return err
	}
	return fmt.Errorf("%w (last attempt: %w)", err, last)
}

// Ended is why ctx ended: its error, and its cause if that differs. Ended is nil while ctx lives.
func Ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == nil || errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// callGrace is how long callUntil waits, after its context has ended, for f to say why it was not done.
const callGrace = 5 * time.Millisecond

// callUntil calls f in another goroutine, because f may not end when its context does. It waits for f until ctx ends.
func callUntil(ctx context.Context, f func() error) error {
	result := start(f)
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-result:
		return err
	case <-time.After(callGrace):
		return errUnanswered
	}
}

// start calls f in another goroutine, and returns where its error comes.
func start(f func() error) <-chan error {
	result := make(chan error, 1)
	go func() {
		err := error(errUnanswered) // if f ends its goroutine
		defer func() { result <- err }()
		defer contain(&err)
		err = f()
	}()
	return result
}

// ReadFor is how long a call that changes nothing is tried, if its context has no deadline. Only tests change it.
var ReadFor = 2 * time.Second

// Read calls attempt until it succeeds, fails for good, or its time is over.
func Read[T any](ctx context.Context, attempt func(context.Context) (T, error)) (got T, err error) {
	_, bounded := ctx.Deadline()
	begun := time.Now()
	err = Retry(ctx, nil, func() (err error) {
		got, err = attempt(ctx)
		return err
	}, func(_ int, err error) bool {
		return Transient(err) && (bounded || time.Since(begun) <= ReadFor)
	})
	return got, err
}
