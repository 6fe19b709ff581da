package delayqueue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// A Monitor looks at a queue without taking part in it, and steers it (steer.go). It is safe for
// concurrent use, and each of its calls does bounded work however many messages there are. While Redis cannot be
// reached, what only looks is tried until its context's deadline, or for 2 s if that has none; what changes
// something is tried until its context ends, with the effect of once. The errors name the queue.
type Monitor struct {
	steerer
	who        onBehalf
	most       int         // bytes that are read of a message; 0: any number
	unwritable atomic.Bool // this user may not write the journal
}

// NewMonitor makes a Monitor for the queue of this name. It panics as NewQueue does.
func NewMonitor(name string, cli redis.UniversalClient, opts ...QueueOption) *Monitor {
	s := newProducer("NewMonitor", name, cli, opts)
	m := &Monitor{steerer: steerer{store: s.store, events: s.events}}
	m.report, m.record = m.publish, m.done
	return m
}

// WithReadLimit makes the Monitor read no message of more than so many bytes, which may be 511 MB: of a larger one only its id, state and
// failures are known, and its Broken is ErrNotRead. Before the first call. Default: none.
func (m *Monitor) WithReadLimit(bytes int) *Monitor {
	m.most = max(bytes, 0)
	return m
}

// What looks at a queue returns these, wrapped.
var (
	// ErrNotRead: a message has more bytes than WithReadLimit allows. In MessageStatus.Broken.
	ErrNotRead = errors.New("too large to be read here")
	// ErrNotFound: there is no such message. From the calls for one message.
	ErrNotFound = errors.New("not found")
	// ErrNoQueue: the queue has no key in Redis. Nothing was ever sent to it and it has had no consumer, or it was
	// deleted, or its name, its prefix or the address of Redis is misspelt. What is to change something of it returns
	// ErrNoQueue too, and makes no key: Pause, SetLimits, Intercept, Cancel, Reschedule, Requeue, Delete, DeleteQueue. It
	// wraps ErrNotFound.
	ErrNoQueue = fmt.Errorf("queue %w: it has no key here: is that its name, its prefix, its Redis?", ErrNotFound)
)

// readFor is how long a call that changes nothing is tried, if its context has no deadline. Only tests change it.
var readFor = 2 * time.Second

// read calls attempt until it succeeds, fails for good, or its time is over.
func read[T any](ctx context.Context, attempt func(context.Context) (T, error)) (got T, err error) {
	_, bounded := ctx.Deadline()
	begun := time.Now()
	err = retry(ctx, nil, func() (err error) {
		got, err = attempt(ctx)
		return err
	}, func(_ int, err error) bool {
		return transient(err) && (bounded || time.Since(begun) <= readFor)
	})
	return got, err
}

// failed says which call failed.
func (s *steerer) failed(err error, format string, args ...any) error {
	return fmt.Errorf("delayqueue: queue %q: %s: %w", s.store.queue, fmt.Sprintf(format, args...), err)
}

// there returns ErrNoQueue if the queue has no key in Redis. Calls that found nothing ask it.
func (m *Monitor) there(ctx context.Context) error {
	_, err := m.counts(ctx)
	return err
}

// Counts says how many messages of a queue are where. What is due counts as ready wherever it
// waits, so Pending and Retry are only what is not yet due.
type Counts struct {
	Pending int64 // not due yet
	Ready   int64 // due, wherever they wait
	Unack   int64 // being handled
	Retry   int64 // failed, snoozed or lost, and not due yet
	Garbage int64 // given up on
	Done    int64 // acked, and kept to be looked at (WithRetention)

	Behind  time.Duration // how long the oldest ready message has been waiting; 0: none is
	NextDue time.Time     // of what is pending or waits for a retry; zero: nothing is

	Paused      bool      // nothing is handed out (Monitor.Pause)
	PausedUntil time.Time // zero: until Resume
	PausedSince time.Time // zero: not known
	PausedBy    string    // who said so last (WithOperator), and
	PauseReason string    // why (WithReason); "" if that was not said

	Limited      bool      // what is ready waits for a limit of the queue or the end of a Throttle, and not for a consumer
	LimitedSince time.Time // as far as is known
	LimitedUntil time.Time // when the next may go; zero: with the next handler that returns (WithQueueConcurrency)
	Overruns     int64     // of 1,000 handlers, those that run on after their deliveries ended, and keep their places (WithQueueConcurrency)

	ThrottledUntil time.Time // a handler has returned Throttle: nothing is handed out before that, unless Unthrottle is called; zero: none has
}

// Counts is one script call of O(log n). It returns ErrNoQueue for a queue that has no key, as do the calls below
// that count, list, and look for consumers and history.
func (m *Monitor) Counts(ctx context.Context) (Counts, error) {
	c, err := m.counts(ctx)
	if err != nil {
		return Counts{}, m.failed(err, "counts")
	}
	return c.Counts, nil
}

func (m *Monitor) counts(ctx context.Context) (countsReply, error) {
	c, err := read(ctx, m.store.counts)
	if err == nil && !c.used {
		err = ErrNoQueue
	}
	return c, err
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
	// (unack), when it died (garbage), or until when it is kept (done). Of what is ready: since when it is (List), or zero (Get).
	At time.Time

	TTL        time.Duration // how long after Due its first delivery may begin (WithMsgTTL); 0: for ever
	Deadline   time.Time     // from which on there is no delivery (WithDeadline); zero: none
	Retention  time.Duration // how long it is kept once it is acked (WithRetention); 0: it is not
	Timeout    time.Duration // how long a handler may run (WithTimeout); 0: as the queue says; negative: for any time
	PartCount  int           // how many parts a group has (Append), of which Parts are read by Get alone; 0: it is none
	PartBytes  int           // and how many bytes they have
	Earlier    []string      // ids of live groups that have left the key by which this was found, the newest first (GetKey only)
	Losses     int           // in a row
	LastError  string        // the first of LastErrors; "" if there was none
	LastErrors []KeptError   // why deliveries ended that were not acked: the newest first, at most five
	Superseded bool          // unack: another send took its key (Replace, Reschedule), so it ends in any case; done: so it ended, not acked
	Result     string        // done: what its handler said (SetResult), "" if nothing (Get only)
	EndedAt    time.Time     // when its last delivery ended; zero before the second one
	Consumer   string        // unack: the ID of the Consumer that is handling it, "" if that is not known (Get and InFlight only)
	Broken     error         // its payload and headers cannot be read: a newer version of this library or another program wrote it
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
	kept := keptErrors(r.errors, maxErrors)
	parts := 0
	if e.group.count > 0 {
		parts = len(e.payload) + e.group.bytes
	}
	msg := e.message(id, r.delivery, r.failures)
	msg.Parts = nil
	return &MessageStatus{
		PartCount: e.group.count, PartBytes: parts,
		Message: msg, State: state, At: instantTime(at),
		TTL: e.ttl, Deadline: instantTime(e.deadline), Timeout: e.timeout, Retention: e.retention,
		Losses: r.losses, LastError: lastError(r.errors), LastErrors: kept, EndedAt: instantTime(r.when), Broken: err,
		Superseded: r.superseded,
	}
}

// unread says whether an envelope stands for one that is larger than what is read, and how large that is.
func unread(text string) (size int64, large bool) {
	digits, large := strings.CutPrefix(text, "\x00large ")
	if large {
		size, _ = strconv.ParseInt(digits, 10, 64) // 0 of what is none, which nobody writes
	}
	return size, large
}

// withoutEnvelope is what is known of a message that is too large to be read.
func withoutEnvelope(id string, state State, at int64, size int64, record string) *MessageStatus {
	m := statusOf(id, state, at, "", record)
	m.Broken = fmt.Errorf("%w: %d bytes", ErrNotRead, size)
	return m
}

// setParts takes those of a group, but the first.
func (m *MessageStatus) setParts(parts []string) {
	if m.Broken != nil || m.PartCount == 0 {
		return
	}
	g := group{count: m.PartCount, bytes: m.PartBytes - len(m.Payload)}
	if m.Broken = g.fill(parts); m.Broken == nil {
		m.Parts = append([]string{m.Payload}, parts...)
	}
}

// Get finds one message by its id. It returns ErrNotFound if that is nowhere.
func (m *Monitor) Get(ctx context.Context, id string) (*MessageStatus, error) {
	return m.look(ctx, "id", id)
}

// GetKey finds the live message that has this key; if there is none, the newest live group that has left the key (Append). If
// that is a group, Earlier names the other groups that have left the key. GetKey returns ErrNotFound if there are none; then a
// *KeyHeldError says until when and by which message the key is held, if it is (WithKeyHold). One that is dead has no key any
// more: list garbage with Filter.Key.
func (m *Monitor) GetKey(ctx context.Context, key string) (*MessageStatus, error) {
	return m.look(ctx, "key", key)
}

func (m *Monitor) look(ctx context.Context, by, what string) (*MessageStatus, error) {
	found, err := read(ctx, func(ctx context.Context) (*MessageStatus, error) { return m.store.lookWithin(ctx, by, what, m.most) })
	if err == nil && found == nil {
		err = cmp.Or(m.there(ctx), notFound(by, what))
	}
	if err != nil {
		return nil, m.failed(err, "get %s %s", by, what)
	}
	return found, nil
}

// anID reports whether a text can be the id of a message. Each call by id that finds nothing asks it.
func anID(text string) bool { return uuid.Validate(text) == nil }

// notFound says what else it may be if it is no id.
func notFound(by, what string) error {
	if by == "id" && !anID(what) {
		return fmt.Errorf("%w: that is no id, which Send returns: if it is a key (WithKey), use the method whose name ends in Key", ErrNotFound)
	}
	return ErrNotFound
}
