package delayqueue

import (
	"context"
	"fmt"
)

// TryIntercept takes back a message that was sent, wherever it is; it gives up after 10 s
// without Redis. See Intercept.
func (s *sending) TryIntercept(info *MessageInfo) (*InterceptResult, error) {
	if info == nil {
		return nil, fmt.Errorf("delayqueue: queue %q: TryIntercept(nil): pass what Send returned", s.store.queue)
	}
	return s.Intercept(s.timeout.context(), info.ID)
}

// Intercept takes out the message with this id, wherever it is, also out of garbage, and
// says where it was. If it was being handled its handler's context ends within a third of
// a lease (ErrIntercepted), and it is never delivered again. A message that is not
// there is a result (StateGone), not an error.
func (s *sending) Intercept(ctx context.Context, id string) (*InterceptResult, error) {
	return s.intercept(ctx, "id", id)
}

// InterceptKey is Intercept for the live message that has this key (WithKey).
func (s *sending) InterceptKey(ctx context.Context, key string) (*InterceptResult, error) {
	return s.intercept(ctx, "key", key)
}

func (s *sending) intercept(ctx context.Context, by, what string) (*InterceptResult, error) {
	failed := func(err error) (*InterceptResult, error) {
		return nil, fmt.Errorf("delayqueue: queue %q: intercept %s %s: %w", s.store.queue, by, what, err)
	}
	c, err := s.callers.get(ctx)
	if err != nil {
		return failed(err)
	}
	defer s.callers.put(c)
	c.next()
	var last error
	for attempt := 1; ; attempt++ {
		if err := ended(ctx); err != nil {
			return failed(withLast(err, last))
		}
		state, err := s.store.intercept(ctx, c, by, what)
		switch {
		case err == nil:
			return &InterceptResult{Intercepted: state != StateGone, State: state}, nil
		case ctx.Err() != nil: // that ended the attempt
		case !worthRepeating(err, attempt):
			return failed(err)
		default:
			last = err
			pause(ctx, backoff(attempt))
		}
	}
}
