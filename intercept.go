package delayqueue

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// A steerer takes back and reschedules messages that were sent. It is safe for concurrent use.
type steerer struct {
	store   *store
	calls   limitedCalls
	timeout sharedTimeout // of calls without a context
	events  *events
	looker  looker      // of Await
	report  func(Event) // tells the listeners of all processes what was done; nil: only those of this process are told

	record func(context.Context, journalRecord) // writes down what was done; nil: that is not written down
}

// made panics for a zero value, which has no Redis.
func (s *steerer) made() {
	if s.store == nil {
		panic("delayqueue: the zero value of a DelayQueue or Publisher is of no use: make one with NewQueue or NewPublisher")
	}
}

// Name is the queue's.
func (s *steerer) Name() string {
	s.made()
	return s.store.queue
}

// Redis returns the client and the prefix with which the queue was made, for a module that keeps something of its own
// beside it (schedule/).
func (s *steerer) Redis() (cli redis.UniversalClient, prefix string) {
	s.made()
	return s.store.cli, s.store.prefix
}

// TryIntercept takes back a message that was sent, unless it is being handled; it gives up after 10 s
// without Redis. See Intercept.
func (s *steerer) TryIntercept(info *MessageInfo) (*InterceptResult, error) {
	s.made()
	if info == nil {
		return nil, s.failed(errors.New("pass what Send returned"), "TryIntercept(nil)")
	}
	return s.Intercept(s.timeout.context(noContextTimeout), info.ID)
}

// Intercept takes out the message with this id, also out of garbage, and says where it was: it is never
// delivered again. One that is being handled is left alone, for its handler has begun: Intercepted is false and
// State StateUnack; see Cancel. So is one that is done (StateDone). A message that is not there is a result
// (StateGone), not an error. Two slips are errors: what is no id (ErrNotFound), and a queue that does not exist
// (ErrNoQueue).
//
// A message that was intercepted may have been handled before, by a handler that failed or was lost.
func (s *steerer) Intercept(ctx context.Context, id string) (*InterceptResult, error) {
	return s.intercept(ctx, "intercept", "id", id)
}

// InterceptKey is Intercept for the live message that has this key (WithKey). One whose key another send took while it was
// handled (Replace, Reschedule) ends by itself. Groups that have left the key (Append) come after the message that has it, the
// newest first: a call takes out the first of these that no handler has. Call again until State is StateGone or StateUnack to
// take out all.
func (s *steerer) InterceptKey(ctx context.Context, key string) (*InterceptResult, error) {
	return s.intercept(ctx, "intercept", "key", key)
}

// Cancel is Intercept for a message in any state. If it was being handled (StateUnack), its handler's context ends
// within a third of a lease, with the cause ErrCanceled; what the handler has done until then it has done, and what
// it returns has no effect.
func (s *steerer) Cancel(ctx context.Context, id string) (*InterceptResult, error) {
	return s.intercept(ctx, "cancel", "id", id)
}

// CancelKey is Cancel for the live message that has this key (WithKey). Groups that have left the key (Append) come after it, one
// with each call, until State is StateGone.
func (s *steerer) CancelKey(ctx context.Context, key string) (*InterceptResult, error) {
	return s.intercept(ctx, "cancel", "key", key)
}

func (s *steerer) intercept(ctx context.Context, verb, by, what string) (*InterceptResult, error) {
	s.made()
	var r InterceptResult
	running := verb == "cancel"
	err := s.calls.call(ctx, func(c *caller) (err error) {
		r, err = s.store.intercept(ctx, c, by, what, running)
		return err
	})
	if err == nil && r.State == StateGone && by == "id" && !anID(what) { // else a key in its place passes for what was handled
		err = notFound(by, what)
	}
	if err != nil {
		return nil, s.failed(err, "%s %s %s", verb, by, what)
	}
	r.Intercepted = r.State != StateGone && r.State != StateDone && (running || r.State != StateUnack)
	if r.Intercepted {
		s.tell(InterceptedEvent, 1, r.ID)
		act := ActIntercept
		if running {
			act = ActCancel
		}
		s.noted(ctx, journalRecord{Act: act, Target: what, Detail: "was " + r.State.String(), N: 1})
	}
	return &r, nil
}
