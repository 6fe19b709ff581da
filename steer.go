package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrWrongState: a message is in a state in which that cannot be done. A *StateError says which.
var ErrWrongState = errors.New("message is in the wrong state")

// A StateError says in which state a message is. errors.Is finds ErrWrongState in it, and ErrNotFound if it is gone.
type StateError struct {
	Queue string // its name
	ID    string // that it was looked for by; "" if it was by its key
	Key   string // that it was looked for by; "" if it was by its ID
	State State  // that it is in
}

func (e *StateError) Error() string {
	by, what := "id", e.ID
	if e.ID == "" {
		by, what = "key", e.Key
	}
	if e.State == StateGone {
		return fmt.Sprintf("message with %s %s: %v", by, what, notFound(by, what))
	}
	return fmt.Sprintf("message with %s %s is %s, in which state this cannot be done", by, what, e.State)
}

// Is makes errors.Is find ErrWrongState, and ErrNotFound.
func (e *StateError) Is(target error) bool {
	return target == ErrWrongState || target == ErrNotFound && e.State == StateGone
}

// Reschedule makes a message due at t, the caller's wall clock read as an instant of the server's; the past
// means now. It keeps its id, key and failures. One that waits for a retry is delivered then; one that is due now
// already keeps its place. It returns a *StateError (ErrWrongState) for a message that is being handled, is in
// garbage, or is nowhere (ErrNotFound too).
func (s *steerer) Reschedule(ctx context.Context, id string, t time.Time) error {
	return s.reschedule(ctx, "", id, t)
}

// RescheduleKey is Reschedule for the live message that has this key (WithKey).
func (s *steerer) RescheduleKey(ctx context.Context, key string, t time.Time) error {
	return s.reschedule(ctx, "key", key, t)
}

func (s *steerer) reschedule(ctx context.Context, by, what string, t time.Time) error {
	s.made()
	w, err := scheduled(t)
	if err != nil {
		return s.failed(err, "reschedule %s", what)
	}
	return s.steerOne(ctx, steerRequest{what: steerAt, us: w.us, only: by, targets: []spot{{tag: what}}})
}

// RescheduleBy is Reschedule by a duration, later or (if negative) earlier than it is due now. Less than 1ms either
// way is an error, for it is a number without its unit.
func (m *Monitor) RescheduleBy(ctx context.Context, id string, d time.Duration) error {
	if err := validDelay("shift", d); err != nil {
		return m.failed(err, "reschedule %s", id)
	}
	return m.steerID(ctx, steerBy, d.Microseconds(), id)
}

// RunNow makes a message due now; see Reschedule.
func (m *Monitor) RunNow(ctx context.Context, id string) error {
	return m.steerID(ctx, steerAt, 0, id)
}

// Requeue brings a message back from garbage, due now, with all its retries. It returns ErrWrongState if
// it is not there, and ErrDuplicateKey if another live message has its key now, or an acked one keeps it (WithKeyHold).
func (m *Monitor) Requeue(ctx context.Context, id string) error {
	return m.steerID(ctx, steerRequeue, 0, id)
}

// Delete deletes a message that is not being handled; for one that is, use Cancel. It
// returns ErrWrongState if it is being handled or nowhere.
func (m *Monitor) Delete(ctx context.Context, id string) error {
	return m.steerID(ctx, steerDelete, 0, id)
}

// ReleaseKey ends the hold of a key (WithKeyHold): it may be sent with again, and what is in garbage with it can be requeued. It
// returns a *StateError (ErrNotFound) if the key is not held. A live message that has the key keeps it.
func (m *Monitor) ReleaseKey(ctx context.Context, key string) error {
	return m.steerOne(ctx, steerRequest{what: steerRelease, only: "key", targets: []spot{{tag: key}}})
}

// verbs are what steer does, in words.
var verbs = map[string]string{steerAt: "reschedule", steerBy: "reschedule", steerRequeue: "requeue",
	steerDelete: "delete", steerCancel: "delete", steerRelease: "release the key"}

func (m *Monitor) steerID(ctx context.Context, what string, us int64, id string) error {
	return m.steerOne(ctx, steerRequest{what: what, us: us, targets: []spot{{tag: id}}})
}

func (s *steerer) steerOne(ctx context.Context, do steerRequest) error {
	var done []steered
	err := s.calls.call(ctx, func(c *caller) (err error) {
		done, err = s.store.steer(ctx, c, do)
		return err
	})
	name := do.targets[0].tag
	if err != nil {
		return s.failed(err, "%s %s", verbs[do.what], name)
	}
	switch one := done[0]; {
	case one.holder != "":
		dup := &DuplicateKeyError{Queue: s.store.queue, ID: one.holder, Held: one.held}
		if msg, err := s.store.look(ctx, "id", name); err == nil && msg != nil {
			dup.Key = msg.Key
		}
		return s.failed(dup, "%s %s", verbs[do.what], name)
	case !one.done && do.only == "key":
		return s.failed(&StateError{Queue: s.store.queue, Key: name, State: one.state}, "%s", verbs[do.what])
	case !one.done:
		return s.failed(&StateError{Queue: s.store.queue, ID: name, State: one.state}, "%s", verbs[do.what])
	}
	if do.what == steerRelease {
		// It is about no message, and nobody waits to be told.
	} else if do.only == "key" {
		s.tell(acts[do.what], 1) // with an id that is not known
	} else {
		s.tell(acts[do.what], 1, name)
	}
	s.noted(ctx, journalRecord{Act: actOf(do.what, do.us), Target: name, Detail: steerDetail(do.what, do.us), N: 1})
	return nil
}

// acts are what is told of what steer does.
var acts = map[string]EventCode{steerAt: RescheduledEvent, steerBy: RescheduledEvent, steerRequeue: RequeuedEvent,
	steerDelete: DeletedEvent, steerCancel: DeletedEvent}

// Pause makes all consumers hand out nothing until Resume: they obey within a second. Handlers that
// are running go on, and sends are accepted.
func (m *Monitor) Pause(ctx context.Context) error { return m.pause(ctx, forever) }

// PauseUntil is Pause until t, the caller's wall clock read as an instant of the server's. An instant that is not after the
// server's now is an error (ErrBadOption): it would end a pause.
func (m *Monitor) PauseUntil(ctx context.Context, t time.Time) error {
	w, err := scheduled(t)
	if err != nil {
		return m.failed(err, "pause")
	}
	return m.pause(ctx, max(w.us, 1)) // 0 is Resume
}

// PauseFor is Pause for so long, by the server's clock.
func (m *Monitor) PauseFor(ctx context.Context, d time.Duration) error {
	err := validDelay("pause", d)
	if err == nil && d <= 0 {
		err = fmt.Errorf("%w: a pause of %v", ErrBadOption, d)
	}
	var until int64
	if err == nil {
		err = m.calls.call(ctx, func(c *caller) (err error) {
			until, err = m.store.pauseFor(ctx, c, d.Microseconds(), m.who)
			return err
		})
	}
	return m.paused(ctx, until, err)
}

// Resume ends a pause.
func (m *Monitor) Resume(ctx context.Context) error { return m.pause(ctx, 0) }

func (m *Monitor) pause(ctx context.Context, until int64) error {
	return m.paused(ctx, until, m.calls.call(ctx, func(c *caller) error { return m.store.pause(ctx, c, until, m.who) }))
}

// paused tells of a pause until then, or of its end.
func (m *Monitor) paused(ctx context.Context, until int64, err error) error {
	if err != nil {
		return m.failed(err, "pause or resume")
	}
	code, r := PausedEvent, journalRecord{Act: ActPause}
	switch until {
	case 0:
		code, r.Act = ResumedEvent, ActResume
	case forever:
	default:
		r.Detail = "until " + instantText(instantTime(until))
	}
	m.tell(code, 0)
	m.noted(ctx, r)
	return nil
}

// ErrConsumersAlive: a queue is in use.
var ErrConsumersAlive = errors.New("consumers of this queue are alive")

// DeleteQueue deletes a queue with all its messages. It returns ErrConsumersAlive while consumers are
// alive, unless forced; those find that their messages are gone, and go on with what is sent from then on. It returns
// ErrUnknownLayout, forced or not, if a newer version of this library writes the queue. It
// is tried once: after an error of the network the queue may or may not have been deleted.
func (m *Monitor) DeleteQueue(ctx context.Context, force bool) error {
	alive, messages, err := m.store.drop(ctx, force)
	if err == nil && alive > 0 && !force {
		err = fmt.Errorf("%w: %d: stop them, or force it", ErrConsumersAlive, alive)
	}
	if err != nil {
		return m.failed(err, "delete it")
	}
	m.tell(QueueDeletedEvent, 0)
	m.noted(ctx, journalRecord{Act: ActDeleteQueue, N: int64(messages)})
	return nil
}
