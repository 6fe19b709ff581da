package ops

import (
	"context"
	"fmt"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/journal"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// Reschedule is delayqueue.Monitor.Reschedule with an entry in the journal.
func (m *Queue) Reschedule(ctx context.Context, id string, t time.Time) error {
	return m.reschedule(ctx, "", id, t)
}

// RescheduleKey is delayqueue.Monitor.RescheduleKey with an entry in the journal.
func (m *Queue) RescheduleKey(ctx context.Context, key string, t time.Time) error {
	return m.reschedule(ctx, "key", key, t)
}

func (m *Queue) reschedule(ctx context.Context, by, what string, t time.Time) error {
	w, err := message.Scheduled(t)
	if err != nil {
		return m.failed(err, "reschedule %s", what)
	}
	return m.steerOne(ctx,
		script.SteerRequest{What: script.SteerAt, Us: w.Us, Only: by, Targets: []script.Spot{{Tag: what}}})
}

// RescheduleBy makes a message due later by d, or earlier if d is negative; see Reschedule. It returns ErrBadOption
// if d is not 0 and less than 1ms either way, because that is a number without its unit.
func (m *Queue) RescheduleBy(ctx context.Context, id string, d time.Duration) error {
	if err := message.ValidDelay("shift", d); err != nil {
		return m.failed(err, "reschedule %s", id)
	}
	return m.steerID(ctx, script.SteerBy, d.Microseconds(), id)
}

// RunNow makes a message due now; see Reschedule. It returns ErrExpired if the message would come to no handler,
// because its deadline has come, or because it is due and its TTL is over.
func (m *Queue) RunNow(ctx context.Context, id string) error {
	return m.steerID(ctx, script.SteerAt, 0, id)
}

// Requeue brings a message back from garbage, due now, with all its retries. It returns ErrWrongState if the message
// is not in garbage, ErrDuplicateKey if another live message has its key now, or an acked message holds the key
// (WithKeyHold), and ErrExpired if its deadline (WithDeadline) has come: it would be garbage again at once. Anew
// lifts the deadline. A TTL (WithMsgTTL) does not bind a message that was handed out before.
func (m *Queue) Requeue(ctx context.Context, id string) error {
	return m.steerID(ctx, script.SteerRequeue, 0, id)
}

// Delete deletes a message that is not being handled. It returns ErrWrongState if the message is being handled (use
// Cancel), and that with ErrNotFound if there is none.
func (m *Queue) Delete(ctx context.Context, id string) error {
	return m.steerID(ctx, script.SteerDelete, 0, id)
}

// ReleaseKey ends the hold of a key (WithKeyHold). New messages may have the key again, and messages in garbage that
// had it can be requeued. ReleaseKey returns a *StateError (ErrNotFound) if the key is not held. A live message that
// has the key keeps it.
func (m *Queue) ReleaseKey(ctx context.Context, key string) error {
	return m.steerOne(ctx, script.SteerRequest{What: script.SteerRelease, Only: "key", Targets: []script.Spot{{Tag: key}}})
}

// verbs are the changes that steer makes, in words.
var verbs = map[string]string{script.SteerAt: "reschedule", script.SteerBy: "reschedule",
	script.SteerRequeue: "requeue",
	script.SteerDelete:  "delete", script.SteerCancel: "delete", script.SteerRelease: "release the key",
	script.SteerLast: "skip", script.SteerGarbage: "skip"}

func (m *Queue) steerID(ctx context.Context, what string, us int64, id string) error {
	return m.steerOne(ctx, script.SteerRequest{What: what, Us: us, Targets: []script.Spot{{Tag: id}}})
}

func (s *Queue) steerOne(ctx context.Context, do script.SteerRequest) error {
	do.Anew = s.anew
	one, err := s.store.SteerOne(ctx, &s.calls, do)
	name := do.Targets[0].Tag
	if err != nil {
		return s.failed(err, "%s %s", verbs[do.What], name)
	}
	switch {
	case one.Holder != "":
		dup := &delayqueue.DuplicateKeyError{ID: one.Holder, Held: one.Held}
		if msg, err := s.statusBy(ctx, "id", name, 0); err == nil && msg != nil {
			dup.Key = msg.Key
		}
		return s.failed(dup, "%s %s", verbs[do.What], name)
	case one.Expired:
		return s.failed(fmt.Errorf("%w: its deadline or TTL is over by then; Anew lifts it", delayqueue.ErrExpired), "%s %s",
			verbs[do.What], name)
	case !one.Done:
		no := &delayqueue.StateError{ID: name, State: stateAs(one.State)}
		if do.Only == "key" {
			no.ID, no.Key = "", name
		}
		return s.failed(skipRefused(do.What, no), "%s", verbs[do.What])
	case one.Stays && do.What == script.SteerLast:
		return s.failed(fmt.Errorf("%w: no message of its lane that is due waits behind %s", delayqueue.ErrWrongState, name),
			"%s", verbs[do.What])
	}
	if do.What == script.SteerRelease {
		// Releasing a key concerns no message, so there is no event.
	} else if do.Only == "key" {
		s.tell(acts[do.What], 1) // the id is not known
	} else {
		s.tell(acts[do.What], 1, name)
	}
	s.done(ctx, journalRecord{Act: actOf(do.What, do.Us), Target: name, Detail: steerDetail(do.What, do.Us), N: 1})
	return nil
}

// acts are the events of the changes that steer makes.
var acts = map[string]delayqueue.EventCode{script.SteerAt: delayqueue.RescheduledEvent,
	script.SteerBy: delayqueue.RescheduledEvent, script.SteerRequeue: delayqueue.RequeuedEvent,
	script.SteerDelete: delayqueue.DeletedEvent, script.SteerCancel: delayqueue.DeletedEvent,
	script.SteerLast:    delayqueue.RescheduledEvent,
	script.SteerGarbage: delayqueue.FinalFailedEvent}

// Intercept is delayqueue.Monitor.Intercept with an entry in the journal.
func (m *Queue) Intercept(ctx context.Context, id string) (*delayqueue.InterceptResult, error) {
	return m.intercept(ctx, journal.Intercept, "id", id)
}

// InterceptKey is delayqueue.Monitor.InterceptKey with an entry in the journal.
func (m *Queue) InterceptKey(ctx context.Context, key string) (*delayqueue.InterceptResult, error) {
	return m.intercept(ctx, journal.Intercept, "key", key)
}

// Cancel is delayqueue.Monitor.Cancel with an entry in the journal.
func (m *Queue) Cancel(ctx context.Context, id string) (*delayqueue.InterceptResult, error) {
	return m.intercept(ctx, journal.Cancel, "id", id)
}

// CancelKey is delayqueue.Monitor.CancelKey with an entry in the journal.
func (m *Queue) CancelKey(ctx context.Context, key string) (*delayqueue.InterceptResult, error) {
	return m.intercept(ctx, journal.Cancel, "key", key)
}

func (m *Queue) intercept(ctx context.Context, act string, by, what string) (*delayqueue.InterceptResult, error) {
	running := act == journal.Cancel
	got, err := m.store.InterceptWith(ctx, &m.calls, by, what, running)
	if err != nil {
		return nil, m.failed(err, "%s %s %s", act, by, what)
	}
	r := delayqueue.InterceptResult{Intercepted: got.Out(running), State: stateAs(got.State), ID: got.ID}
	if r.Intercepted {
		m.tell(delayqueue.InterceptedEvent, 1, r.ID)
		m.done(ctx, journalRecord{Act: act, Target: what, Detail: "was " + r.State.String(), N: 1})
	}
	return &r, nil
}
