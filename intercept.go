package delayqueue

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/conc"
	"github.com/go-delayqueue/delayqueue/internal/produce"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/internal/shard"
	"github.com/redis/go-redis/v9"
)

// A steerer takes back and reschedules messages that were sent. It is safe for concurrent use.
type steerer struct {
	store   *shard.Queue
	calls   script.LimitedCalls
	timeout conc.SharedTimeout // of calls without a context
	events  *events
	lookers sync.Map    // *script.Store -> *looker: a shard has its own, so a silent node delays no answer of another one
	report  func(Event) // tells the listeners of all processes; nil: only listeners of this process are told
}

// made panics if s is a zero value, which has no Redis.
func (s *steerer) made() {
	if s.store == nil {
		panic("delayqueue: the zero value of a DelayQueue or Publisher is of no use: make one with NewQueue or NewPublisher")
	}
}

// Name is the name of the queue.
func (s *steerer) Name() string {
	s.made()
	return s.store.Queue
}

// Redis returns the client and the prefix with which the queue was made. It is for a module that keeps something of
// its own beside the queue, as schedule/ does.
func (s *steerer) Redis() (cli redis.UniversalClient, prefix string) {
	s.made()
	return s.store.Cli, s.store.Prefix
}

// TryIntercept takes back a message that was sent, unless a handler has it. It gives up after 10 s without Redis. See
// Intercept.
func (s *steerer) TryIntercept(info *MessageInfo) (*InterceptResult, error) {
	s.made()
	if info == nil {
		return nil, s.failed(fmt.Errorf("%w: pass what Send returned", ErrBadOption), "TryIntercept(nil)")
	}
	return s.Intercept(s.timeout.Context(produce.NoContextTimeout), info.ID)
}

// Intercept takes out the message with this id, also out of garbage, so that it is never delivered again, and returns
// its state. It leaves a message alone that is being handled (StateUnack; see Cancel) or done (StateDone): then
// Intercepted is false. A message that is not there is a result (StateGone), not an error. A text that is no id is an
// error (ErrNotFound), and so is a queue that does not exist (ErrNoQueue).
//
// A message that was intercepted may have been handled before, by a handler that failed or was lost.
func (s *steerer) Intercept(ctx context.Context, id string) (*InterceptResult, error) {
	return s.intercept(ctx, "intercept", "id", id)
}

// InterceptKey is Intercept for the live message that has this key (WithKey). It does not reach a message whose key
// another send took while it was handled (Replace, Reschedule): that message ends by itself.
//
// Groups that have left the key (Append) come after the message that has the key, the newest first. A call takes out
// the first of these that no handler has. To take out all, call again until State is StateGone or StateUnack.
func (s *steerer) InterceptKey(ctx context.Context, key string) (*InterceptResult, error) {
	return s.intercept(ctx, "intercept", "key", key)
}

// Cancel takes out a message also while it is being handled (StateUnack). Then the context of its handler ends within
// a third of a lease, with the cause ErrCanceled. The handler's work is not undone, and its return value has no
// effect. Else Cancel is Intercept.
func (s *steerer) Cancel(ctx context.Context, id string) (*InterceptResult, error) {
	return s.intercept(ctx, "cancel", "id", id)
}

// CancelKey is Cancel for the live message that has this key (WithKey). Groups that have left the key (Append) come
// after that message, one with each call, until State is StateGone.
func (s *steerer) CancelKey(ctx context.Context, key string) (*InterceptResult, error) {
	return s.intercept(ctx, "cancel", "key", key)
}

// Reschedule makes a message due at t, which is read as an instant of the server's clock. The past means now. Bounds
// of t are those of WithSchedule (ErrBadOption). The message keeps its id, key and failures. A message that waits for
// a retry is delivered at t. A message that is due already, and is to be due now, keeps its place. Reschedule returns
// a *StateError (ErrWrongState) for a message that is being handled, is garbage or done, or is nowhere (ErrNotFound,
// too).
func (s *steerer) Reschedule(ctx context.Context, id string, t time.Time) error {
	return s.reschedule(ctx, "", id, t)
}

// RescheduleKey is Reschedule for the live message that has this key (WithKey).
func (s *steerer) RescheduleKey(ctx context.Context, key string, t time.Time) error {
	return s.reschedule(ctx, "key", key, t)
}
