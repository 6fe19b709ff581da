package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrWrongState: a message is in a state in which that cannot be done. A *StateError says which.
var ErrWrongState = errors.New("message is in the wrong state")

// A StateError wraps ErrWrongState.
type StateError struct {
	Queue string
	ID    string
	State State // that it is in
}

func (e *StateError) Error() string {
	return fmt.Sprintf("message %s is %s, in which state this cannot be done", e.ID, e.State)
}

// Unwrap makes errors.Is(err, ErrWrongState) true.
func (e *StateError) Unwrap() error { return ErrWrongState }

// Reschedule makes a message due at t, the caller's wall clock read as an instant of the server's; the past
// means now. It keeps its id, key and failures. One that waits for a retry is delivered then. It
// returns ErrWrongState for a message that is being handled, is in garbage, or is nowhere.
func (m *Monitor) Reschedule(ctx context.Context, id string, t time.Time) error {
	w, err := scheduled(t)
	if err != nil {
		return m.failed(err, "reschedule %s", id)
	}
	return m.steerOne(ctx, "at", w.us, id)
}

// RescheduleBy is Reschedule by a duration, later or (if negative) earlier than it is due now.
func (m *Monitor) RescheduleBy(ctx context.Context, id string, d time.Duration) error {
	if err := validShift(d); err != nil {
		return m.failed(err, "reschedule %s", id)
	}
	return m.steerOne(ctx, "by", d.Microseconds(), id)
}

func validShift(d time.Duration) error {
	if d > maxDelay {
		return fmt.Errorf("%w: %v: at most %v (150 years)", ErrBadOption, d, maxDelay)
	}
	return nil
}

// RunNow makes a message due now; see Reschedule.
func (m *Monitor) RunNow(ctx context.Context, id string) error {
	return m.steerOne(ctx, "at", 0, id)
}

// Requeue brings a message back from garbage, due now, with all its retries. It returns ErrWrongState if
// it is not there, and ErrDuplicateKey if another live message holds its key now.
func (m *Monitor) Requeue(ctx context.Context, id string) error {
	return m.steerOne(ctx, "requeue", 0, id)
}

// Delete deletes a message that is not being handled; for one that is, use Cancel. It
// returns ErrWrongState if it is being handled or nowhere.
func (m *Monitor) Delete(ctx context.Context, id string) error {
	return m.steerOne(ctx, "delete", 0, id)
}

// verbs are what steer does, in words.
var verbs = map[string]string{"at": "reschedule", "by": "reschedule", "requeue": "requeue", "delete": "delete", "cancel": "delete"}

func (m *Monitor) steerOne(ctx context.Context, what string, us int64, id string) error {
	done, err := m.steer(ctx, steering{what: what, us: us, marks: []mark{{tag: id}}})
	if err != nil {
		return m.failed(err, "%s %s", verbs[what], id)
	}
	switch s := done[0]; {
	case s.holder != "":
		dup := &DuplicateKeyError{Queue: m.store.queue, ID: s.holder}
		if msg, err := m.Get(ctx, id); err == nil && msg != nil {
			dup.Key = msg.Key
		}
		return m.failed(dup, "%s %s", verbs[what], id)
	case !s.done:
		return m.failed(&StateError{Queue: m.store.queue, ID: id, State: s.state}, "%s", verbs[what])
	}
	return nil
}

func (m *Monitor) steer(ctx context.Context, do steering) (done []steered, err error) {
	err = m.callers.call(ctx, func(c *caller) error {
		done, err = m.store.steer(ctx, c, do)
		return err
	})
	return done, err
}

// Pause makes all consumers hand out nothing until Resume: they obey within a second. Handlers that
// are running go on, and sends are accepted.
func (m *Monitor) Pause(ctx context.Context) error { return m.pause(ctx, forever) }

// PauseUntil is Pause until t, the caller's wall clock read as an instant of the server's.
func (m *Monitor) PauseUntil(ctx context.Context, t time.Time) error {
	w, err := scheduled(t)
	if err != nil {
		return m.failed(err, "pause")
	}
	return m.pause(ctx, w.us)
}

// Resume ends a pause.
func (m *Monitor) Resume(ctx context.Context) error { return m.pause(ctx, 0) }

func (m *Monitor) pause(ctx context.Context, until int64) error {
	err := m.callers.call(ctx, func(c *caller) error { return m.store.pause(ctx, c, until) })
	if err != nil {
		return m.failed(err, "pause or resume")
	}
	return nil
}

// ErrConsumersAlive: a queue is in use.
var ErrConsumersAlive = errors.New("consumers of this queue are alive")

// DeleteQueue deletes a queue with all its messages. It returns ErrConsumersAlive while consumers are
// alive, unless forced; those find that their messages are gone, and go on with what is sent from then on. It
// is tried once: after an error of the network the queue may or may not have been deleted.
func (m *Monitor) DeleteQueue(ctx context.Context, force bool) error {
	alive, err := m.store.drop(ctx, force)
	if err == nil && alive > 0 && !force {
		err = fmt.Errorf("%w: %d: stop them, or force it", ErrConsumersAlive, alive)
	}
	if err != nil {
		return m.failed(err, "delete it")
	}
	return nil
}
