package delayqueue

import (
	"context"
	"fmt"
)

// Name is the queue's.
func (s *taking) Name() string {
	s.made()
	return s.store.queue
}

// TryIntercept takes back a message that was sent, unless it is being handled; it gives up after 10 s
// without Redis. See Intercept.
func (s *taking) TryIntercept(info *MessageInfo) (*InterceptResult, error) {
	s.made()
	if info == nil {
		return nil, fmt.Errorf("delayqueue: queue %q: TryIntercept(nil): pass what Send returned", s.store.queue)
	}
	return s.Intercept(s.timeout.context(noContext), info.ID)
}

// Intercept takes out the message with this id, also out of garbage, and says where it was: it is never
// delivered again. One that is being handled is left alone, for its handler has begun: Intercepted is false and
// State StateUnack; see Cancel. A message that is not there is a result (StateGone), not an error.
//
// A message that was intercepted may have been handled before, by a handler that failed or was lost.
func (s *taking) Intercept(ctx context.Context, id string) (*InterceptResult, error) {
	return s.intercept(ctx, "intercept", "id", id)
}

// InterceptKey is Intercept for the live message that has this key (WithKey).
func (s *taking) InterceptKey(ctx context.Context, key string) (*InterceptResult, error) {
	return s.intercept(ctx, "intercept", "key", key)
}

// Cancel is Intercept for a message in any state. If it was being handled (StateUnack), its handler's context ends
// within a third of a lease, with the cause ErrCanceled; what the handler has done until then it has done, and what
// it returns has no effect.
func (s *taking) Cancel(ctx context.Context, id string) (*InterceptResult, error) {
	return s.intercept(ctx, "cancel", "id", id)
}

// CancelKey is Cancel for the live message that has this key (WithKey).
func (s *taking) CancelKey(ctx context.Context, key string) (*InterceptResult, error) {
	return s.intercept(ctx, "cancel", "key", key)
}

func (s *taking) intercept(ctx context.Context, verb, by, what string) (*InterceptResult, error) {
	s.made()
	var r InterceptResult
	running := verb == "cancel"
	err := s.calls.call(ctx, func(c *caller) error {
		got, err := s.store.intercept(ctx, c, interceptRequest{by, what, running})
		r.State, r.ID = got.state, got.id
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("delayqueue: queue %q: %s %s %s: %w", s.store.queue, verb, by, what, err)
	}
	r.Intercepted = r.State != StateGone && (running || r.State != StateUnack)
	if r.Intercepted {
		s.tell(InterceptedEvent, 1, r.ID)
	}
	return &r, nil
}
