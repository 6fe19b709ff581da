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

// TryIntercept takes back a message that was sent, wherever it is; it gives up after 10 s
// without Redis. See Intercept.
func (s *taking) TryIntercept(info *MessageInfo) (*InterceptResult, error) {
	s.made()
	if info == nil {
		return nil, fmt.Errorf("delayqueue: queue %q: TryIntercept(nil): pass what Send returned", s.store.queue)
	}
	return s.Intercept(s.timeout.context(), info.ID)
}

// Intercept takes out the message with this id, wherever it is, also out of garbage, and
// says where it was. If it was being handled its handler's context ends within a third of
// a lease (ErrIntercepted), and it is never delivered again. A message that is not
// there is a result (StateGone), not an error.
func (s *taking) Intercept(ctx context.Context, id string) (*InterceptResult, error) {
	return s.intercept(ctx, "id", id)
}

// InterceptKey is Intercept for the live message that has this key (WithKey).
func (s *taking) InterceptKey(ctx context.Context, key string) (*InterceptResult, error) {
	return s.intercept(ctx, "key", key)
}

func (s *taking) intercept(ctx context.Context, by, what string) (*InterceptResult, error) {
	s.made()
	state := StateGone
	err := s.callers.call(ctx, func(c *caller) (err error) {
		state, err = s.store.intercept(ctx, c, by, what)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("delayqueue: queue %q: intercept %s %s: %w", s.store.queue, by, what, err)
	}
	var ids []string
	if by == "id" {
		ids = []string{what}
	}
	if state != StateGone {
		s.events.tell(InterceptedEvent, 1, ids...)
	}
	return &InterceptResult{Intercepted: state != StateGone, State: state}, nil
}
