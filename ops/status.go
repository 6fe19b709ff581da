package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/internal/shard"
)

// ErrNotRead: a message has more bytes than WithReadLimit allows. It stands in MessageStatus.Broken.
var ErrNotRead = errors.New("too large to be read here")

// A MessageStatus is a message and where it is.
type MessageStatus struct {
	delayqueue.Message // Delivery and Failures are those of the next delivery, or of the current one
	State              delayqueue.State

	// At is the due instant (pending, waiting), the due instant of the next delivery (retry), the end of the lease
	// (unack), the time of death (garbage), or the instant until which the message is kept (done). In StateReady, List
	// has the instant since when it is ready, and Get has zero. Of an unacked message Get has zero, too, if there are
	// more than 5,000 leases.
	At time.Time

	// how many messages of Lane are handled at a time at most (WithLane); 0: the message has no lane
	LaneWidth int
	TTL       time.Duration // how long after Due the first delivery may begin (WithMsgTTL); 0: for ever
	Deadline  time.Time     // the instant from which on there is no delivery (WithDeadline); zero: none
	Retention time.Duration // how long the message is kept after its ack (WithRetention); 0: it is deleted
	Timeout   time.Duration // how long a handler may run (WithTimeout); 0: as the queue says; negative: for any time
	PartCount int           // how many parts a group has (Append); only Get reads them; 0: the message is no group
	PartBytes int           // how many bytes the parts have
	// for how many acks the message was to wait (WithCountdown), of which CountdownLeft are missing now; 0: none
	Countdown int
	Counts    string // the key of the message for whose countdown the ack counts (WithCounts); "": none
	// GetKey: ids of live groups that have left the key by which this one was found, the newest first
	Earlier    []string
	Losses     int         // in a row
	LastError  string      // the first of LastErrors; "" if there is none
	LastErrors []KeptError // why deliveries ended without an ack: the newest first, at most five
	// another send took the key (Replace, Reschedule); in unack the message will end with this delivery, in done it ended
	// so, without an ack
	Superseded bool
	Result     string    // Get, in done: the result of the handler (SetResult); "" if there is none
	EndedAt    time.Time // when the last delivery ended; zero before the second delivery
	Consumer   string    // Get, in unack: the ID of the Consumer that handles the message; "" if that is not known
	// why payload and headers cannot be read: a newer version of this library or another program wrote them, or ErrNotRead
	Broken error
}

// A KeptError says why a delivery of a message ended: with a failure, a loss, or in garbage. The message keeps its
// last five until it is acked, and longer if it is kept after that (WithRetention).
type KeptError struct {
	At       time.Time // by the server's clock; zero: not known
	Delivery int       // the number of that delivery; 0: not known
	Text     string    // UTF-8, at most 1,024 bytes; of an error before the last failure, 200
}

// A KeyHeldError says that no live message has a key, because a message that was acked holds it (WithKeyHold).
// errors.Is finds delayqueue.ErrNotFound in it.
type KeyHeldError struct {
	Key   string    // the key that was looked for
	ID    string    // the id of the acked message
	Until time.Time // when the key becomes free, by the server's clock
}

func (e *KeyHeldError) Error() string {
	return fmt.Sprintf("no live message has key %q: it is held until %s by message %s, which was acked (WithKeyHold)",
		e.Key,
		e.Until.UTC().Format(time.RFC3339), e.ID)
}

// Is makes errors.Is(err, delayqueue.ErrNotFound) true.
func (e *KeyHeldError) Is(target error) bool { return target == delayqueue.ErrNotFound }

// statusBy is statusIn for the shard of the message.
func (m *Queue) statusBy(ctx context.Context, by, what string, most int) (*MessageStatus, error) {
	s, err := m.store.By(ctx, by, what)
	if err != nil {
		return nil, err
	}
	return shard.One(ctx, s, func(ctx context.Context, s *script.Store) (*MessageStatus, error) {
		return link.Read(ctx, func(ctx context.Context) (*MessageStatus, error) { return statusIn(ctx, s, by, what, most) })
	})
}

// statusIn finds one message, and the consumer that handles it. It returns nil if the message is nowhere, and a
// *KeyHeldError if an acked one holds the key.
func statusIn(ctx context.Context, s *script.Store, by, what string, most int) (*MessageStatus, error) {
	r, err := s.Look(ctx, by, what, most)
	if r == nil || err != nil {
		return nil, err
	}
	if r.Held {
		return nil, &KeyHeldError{Key: what, ID: r.ID, Until: message.InstantTime(r.At)}
	}
	m := statusWithin(r.ID, stateAs(r.State), r.At, r.Text, r.Record, most)
	m.Result, m.Earlier, m.CountdownLeft = r.Result, r.Earlier, r.Missing
	m.setParts(r.Parts)
	if m.State != delayqueue.StateUnack {
		return m, nil
	}
	entries, err := s.Consumers(ctx)
	for _, e := range entries {
		c, alive := consumerOf(e.ID, e.Text, e.Now)
		if alive && slices.ContainsFunc(c.Handling, func(h Handling) bool { return h.ID == r.ID }) {
			m.Consumer = c.ID
		}
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

// statusWithin is statusOf for what was read with a limit of most bytes; 0: none.
func statusWithin(id string, state delayqueue.State, at int64, text, record string, most int) *MessageStatus {
	if size, large := script.Unread(text); large && most > 0 {
		m := statusOf(id, state, at, "", record)
		m.Broken = fmt.Errorf("%w: %d bytes", ErrNotRead, size)
		return m
	}
	return statusOf(id, state, at, text, record)
}

// statusOf reads an envelope and a fail record.
func statusOf(id string, state delayqueue.State, at int64, text, record string) *MessageStatus {
	e, err := message.DecodeEnvelope(text)
	r := message.FailRecord{Delivery: 1}
	if record != "" {
		var rerr error
		if r, rerr = message.ParseFail(record); rerr != nil {
			r.Delivery = 1
		}
		err = errors.Join(err, rerr)
	}
	var kept []KeptError
	for _, e := range message.KeptErrors(r.Errors, message.MaxErrors) {
		kept = append(kept, KeptError(e))
	}
	parts := 0
	if e.Group.Count > 0 {
		parts = len(e.Payload) + e.Group.Bytes
	}
	msg := delayqueue.Message(e.Delivered(id, r.Delivery, r.Failures))
	msg.Parts = nil
	return &MessageStatus{
		PartCount: e.Group.Count, PartBytes: parts, Countdown: e.Countdown, Counts: e.Counts, LaneWidth: e.Lane.Width,
		Message: msg, State: state, At: message.InstantTime(at),
		TTL: e.TTL, Deadline: message.InstantTime(e.Deadline), Timeout: e.Timeout, Retention: e.Retention,
		Losses: r.Losses, LastError: message.LastError(r.Errors), LastErrors: kept, EndedAt: message.InstantTime(r.When),
		Broken:     err,
		Superseded: r.Superseded,
	}
}

// setParts sets the parts of a group. parts are all but the first.
func (m *MessageStatus) setParts(parts []string) {
	if m.Broken != nil || m.PartCount == 0 {
		return
	}
	g := message.Group{Count: m.PartCount, Bytes: m.PartBytes - len(m.Payload)}
	if m.Broken = g.Fill(parts); m.Broken == nil {
		m.Parts = append([]string{m.Payload}, parts...)
	}
}

// Get returns the message with this id. It returns ErrNotFound if there is none.
func (m *Queue) Get(ctx context.Context, id string) (*MessageStatus, error) {
	return m.look(ctx, "id", id)
}

// GetKey returns the live message that has this key. If there is none, it returns the newest live group that has left
// the key (Append). Of a group, Earlier names the other live groups that have left the key.
//
// GetKey returns ErrNotFound if there is neither. If the key is held then (WithKeyHold), the error is a
// *KeyHeldError, which says by which message and until when. A dead message has no key: list garbage with Filter.Key.
func (m *Queue) GetKey(ctx context.Context, key string) (*MessageStatus, error) {
	return m.look(ctx, "key", key)
}

func (m *Queue) look(ctx context.Context, by, what string) (*MessageStatus, error) {
	found, err := m.statusBy(ctx, by, what, m.most)
	if err == nil && found == nil {
		err = cmp.Or(m.there(ctx), script.NoID(by, what), delayqueue.ErrNotFound)
	}
	if err != nil {
		return nil, m.failed(err, "get %s %s", by, what)
	}
	return found, nil
}

// stateAs is the State with this name in scripts.
func stateAs(word string) delayqueue.State { return delayqueue.State(script.StateNumber(word)) }
