package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Monitor looks at a queue without taking part in it, and steers it (steer.go). It is safe for
// concurrent use, and each of its calls does bounded work however many messages there are. What only looks
// is tried three times while Redis cannot be reached; what changes something is tried until its context
// ends, with the effect of once. The errors name the queue.
type Monitor struct {
	taking
}

// NewMonitor makes a Monitor for the queue of this name. It panics as NewQueue does.
func NewMonitor(name string, cli redis.UniversalClient, opts ...QueueOption) *Monitor {
	s := newSending("NewMonitor", name, cli, opts)
	return &Monitor{taking{store: s.store, events: s.events}}
}

// readAttempts is how often a call that changes nothing is made.
const readAttempts = 3

// failed says which call failed.
func (m *Monitor) failed(err error, format string, args ...any) error {
	return fmt.Errorf("delayqueue: queue %q: %s: %w", m.store.queue, fmt.Sprintf(format, args...), err)
}

// Counts says how many messages of a queue are where. What is due counts as ready wherever it
// waits, so Pending and Retry are only what is not yet due.
type Counts struct {
	Pending int64
	Ready   int64
	Unack   int64 // being handled
	Retry   int64
	Garbage int64

	Behind  time.Duration // how long the oldest ready message has been waiting; 0: none is
	NextDue time.Time     // of what is pending or waits for a retry; zero: nothing is

	Paused      bool
	PausedUntil time.Time // zero: until Resume
}

// Counts is one script call of O(log n).
func (m *Monitor) Counts(ctx context.Context) (Counts, error) {
	var c Counts
	err := repeat(ctx, readAttempts, func() (err error) {
		c, err = m.store.counts(ctx)
		return err
	})
	if err != nil {
		return Counts{}, m.failed(err, "counts")
	}
	return c, nil
}

// GetPendingCount returns how many messages are not yet due; those that wait for a retry do not count.
func (m *Monitor) GetPendingCount(ctx context.Context) (int64, error) {
	c, err := m.Counts(ctx)
	return c.Pending, err
}

// GetReadyCount returns how many messages are due and not yet handed out.
func (m *Monitor) GetReadyCount(ctx context.Context) (int64, error) {
	c, err := m.Counts(ctx)
	return c.Ready, err
}

// GetProcessingCount returns how many messages are being handled.
func (m *Monitor) GetProcessingCount(ctx context.Context) (int64, error) {
	c, err := m.Counts(ctx)
	return c.Unack, err
}

// A MessageStatus is a message and where it is.
type MessageStatus struct {
	Message // Delivery and Failures are those of the next delivery, or of the current one
	State   State

	// At is when it is due (pending), when its next delivery is due (retry), when its lease ends
	// (unack), or when it died (garbage); zero if it is ready.
	At time.Time

	TTL       time.Duration // how long after Due its first delivery may begin (WithMsgTTL); 0: for ever
	Losses    int           // in a row
	LastError string        // "" if there was none
	EndedAt   time.Time     // when its last delivery ended; zero before the second one
	Consumer  string        // unack: the ID of the Consumer that is handling it, "" if that is not known (Get only)
	Broken    error         // its payload and headers cannot be read: a newer version of this library or another program wrote it
}

// statusOf reads an envelope and a fail record.
func statusOf(id string, state State, at int64, text, record string) *MessageStatus {
	e, err := decodeEnvelope(text)
	r := failRecord{delivery: 1}
	if record != "" {
		var rerr error
		if r, rerr = parseFail(record); rerr != nil {
			r.delivery = 1
		}
		err = errors.Join(err, rerr)
	}
	return &MessageStatus{
		Message: e.message(id, r.delivery, r.failures), State: state, At: instantTime(at),
		TTL: e.ttl, Losses: r.losses, LastError: r.text, EndedAt: instantTime(r.when), Broken: err,
	}
}

// Get finds one message by its id; nil means that it is nowhere.
func (m *Monitor) Get(ctx context.Context, id string) (*MessageStatus, error) {
	return m.look(ctx, "id", id)
}

// GetKey finds the live message that has this key; nil means that there is none.
func (m *Monitor) GetKey(ctx context.Context, key string) (*MessageStatus, error) {
	return m.look(ctx, "key", key)
}

func (m *Monitor) look(ctx context.Context, by, what string) (*MessageStatus, error) {
	var found *MessageStatus
	err := repeat(ctx, readAttempts, func() (err error) {
		found, err = m.store.look(ctx, by, what)
		return err
	})
	if err != nil {
		return nil, m.failed(err, "get %s %s", by, what)
	}
	return found, nil
}
