package delayqueue

import (
	"context"
	"time"
)

// awaitGrace is how long await waits, after its context has ended, for f to say why it was not done.
const awaitGrace = 5 * time.Millisecond

// errUnanswered is of a call that is not waited for any longer. Whether it was carried out is not known.
var errUnanswered = &timeoutError{}

// await calls f, which may not end when its context does, in another goroutine, and waits for it until ctx ends.
func await(ctx context.Context, f func() error) error {
	result := make(chan error, 1)
	go func() {
		err := error(errUnanswered) // if f ends its goroutine
		defer func() { result <- err }()
		defer contain(&err)
		err = f()
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
	}
	timer := time.NewTimer(awaitGrace)
	defer timer.Stop()
	select {
	case err := <-result:
		return err
	case <-timer.C:
		return errUnanswered
	}
}
