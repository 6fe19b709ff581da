package delayqueue

import (
	"context"
	"fmt"
)

// A canceller takes back and reschedules messages that were sent. It is safe for concurrent use.
type canceller struct {
	store   *store
	calls   limitedCalls
	timeout sharedTimeout // of calls without a context
	events  *events
	report  func(Event) // tells the listeners of all processes what was done; nil: only those of this process are told
}

// made panics for a zero value, which has no Redis.
func (t *canceller) made() {
	if t.store == nil {
		panic("delayqueue: the zero value of a DelayQueue or Publisher is of no use: make one with NewQueue or NewPublisher")
	}
}

// Name is the queue's.
func (t *canceller) Name() string {
	t.made()
	return t.store.queue
}

// TryIntercept takes back a message that was sent, unless it is being handled; it gives up after 10 s
// without Redis. See Intercept.
func (t *canceller) TryIntercept(info *MessageInfo) (*InterceptResult, error) {
	t.made()
	if info == nil {
		return nil, fmt.Errorf("delayqueue: queue %q: TryIntercept(nil): pass what Send returned", t.store.queue)
	}
	return t.Intercept(t.timeout.context(noContextTimeout), info.ID)
}

// Intercept takes out the message with this id, also out of garbage, and says where it was: it is never
// delivered again. One that is being handled is left alone, for its handler has begun: Intercepted is false and
// State StateUnack; see Cancel. A message that is not there is a result (StateGone), not an error.
//
// A message that was intercepted may have been handled before, by a handler that failed or was lost.
func (t *canceller) Intercept(ctx context.Context, id string) (*InterceptResult, error) {
	return t.intercept(ctx, "intercept", "id", id)
}

// InterceptKey is Intercept for the live message that has this key (WithKey).
func (t *canceller) InterceptKey(ctx context.Context, key string) (*InterceptResult, error) {
	return t.intercept(ctx, "intercept", "key", key)
}

// Cancel is Intercept for a message in any state. If it was being handled (StateUnack), its handler's context ends
// within a third of a lease, with the cause ErrCanceled; what the handler has done until then it has done, and what
// it returns has no effect.
func (t *canceller) Cancel(ctx context.Context, id string) (*InterceptResult, error) {
	return t.intercept(ctx, "cancel", "id", id)
}

// CancelKey is Cancel for the live message that has this key (WithKey).
func (t *canceller) CancelKey(ctx context.Context, key string) (*InterceptResult, error) {
	return t.intercept(ctx, "cancel", "key", key)
}

func (t *canceller) intercept(ctx context.Context, verb, by, what string) (*InterceptResult, error) {
	t.made()
	var r InterceptResult
	running := verb == "cancel"
	err := t.calls.call(ctx, func(c *caller) error {
		got, err := t.store.intercept(ctx, c, interceptRequest{by, what, running})
		r.State, r.ID = got.state, got.id
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("delayqueue: queue %q: %s %s %s: %w", t.store.queue, verb, by, what, err)
	}
	r.Intercepted = r.State != StateGone && (running || r.State != StateUnack)
	if r.Intercepted {
		t.tell(InterceptedEvent, 1, r.ID)
	}
	return &r, nil
}
