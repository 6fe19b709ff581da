package delayqueue

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// A Conflict says what a send does if another live message has its key (WithKey).
type Conflict int

// The conflicts. If the other message is kept or changed, the MessageInfo of the send names it, with Existed set.
//
// While a handler has the other message, Replace and Reschedule store the new message beside it, and the new message
// gets the key. The handler goes on, and the older message is superseded: it ends as by an ack, and never comes
// again. That holds for a failure, a loss, a release, Snooze and Again, also past its deadline. Unless its handler
// returns nil, Call and Await of the older message return ErrSuperseded, or ErrNoResult if the message is not kept
// (WithRetention). Listeners get a SupersededEvent in place of any other end.
//
// Two handlers of one key may run at the same time. A handler that must not overwrite newer data must compare
// something of its own, such as a version in the payload.
const (
	// Refuse returns ErrDuplicateKey.
	Refuse Conflict = Conflict(script.ConflictRefuse)
	// Keep stores nothing.
	Keep Conflict = Conflict(script.ConflictKeep)
	// Replace gives the other message the payload, headers and options of this one, and forgets its failures. The other
	// message keeps its id. It is due when this message would be. If this send has neither a delay nor a schedule, the
	// due instant of the other message stays, or comes earlier by WithMaxWait. SendDelayMsg always has a delay, and
	// SendScheduleMsg a schedule. A message that is due already, and is to be due now, keeps its place. Its WithMsgTTL
	// counts from its due instant, or from this send if that is later.
	Replace Conflict = Conflict(script.ConflictReplace)
	// Reschedule makes the other message due when this one would be, and changes nothing else. Its WithMsgTTL counts
	// from that instant, or from this send if that is later. Reschedule and Replace cost the server as much as the other
	// message is long. A batch of them takes a round trip for each half a megabyte of other messages.
	Reschedule Conflict = Conflict(script.ConflictReschedule)
	// Append adds this payload to the other message, which is a group, as a further part. The handler gets all parts as
	// Message.Parts. The send is ErrDuplicateKey if the other message was sent without Append, also while it is handled.
	// The due instant changes as with Replace, unless the group waits for a retry. Headers and all other options are
	// those of the first part.
	//
	// A group leaves its key to the next group when it is full (WithMaxParts), has expired (WithMsgTTL, WithDeadline),
	// or a handler has it. It lives on until it is handled, and its Message.Key stays. ops.Queue.GetKey, InterceptKey
	// and CancelKey reach up to 100 such groups, after the message that has the key.
	//
	// An append costs the server as much as the first part is long, so let the first part be small. A callback gets the
	// parts one after the other, within the time of one delivery (WithMaxConsumeDuration). If it does not consume one of
	// them, all come again.
	Append Conflict = Conflict(script.ConflictAppend)
)

var conflictNames = [...]string{"Refuse", "Keep", "Replace", "Reschedule", "Append"}

// String is the name of the constant, as in "Replace".
func (c Conflict) String() string { return nameOf("Conflict", int(c), conflictNames[:]) }

// oneConflict is what one send is to do.
func oneConflict(option string, on []Conflict) (script.Conflict, error) {
	if len(on) == 0 {
		return script.ConflictRefuse, nil
	}
	if len(on) > 1 {
		return script.ConflictRefuse, fmt.Errorf("%w: %s: %v and %v: a message has one of them", ErrBadOption, option, on[0],
			on[1])
	}
	if on[0] < 0 || int(on[0]) >= len(conflictNames) {
		return script.ConflictRefuse, fmt.Errorf("%w: %s: %v is none of Refuse, Keep, Replace, Reschedule and Append",
			ErrBadOption, option, on[0])
	}
	return script.Conflict(on[0]), nil
}

// maxKeyHold is how long a key may stay taken after an ack.
const maxKeyHold = 365 * 24 * time.Hour

// WithKeyHold keeps the key of the message taken for d after its ack, by the server's clock; d is from 1ms to 365
// days. It is for a request that a caller may repeat. A second send within that time is refused with ErrDuplicateKey.
// With Keep it gets the acked message (Existed, and no Due). Replace, Reschedule and Append are refused, because
// nothing waits any longer.
//
// A message that ends in garbage, or is taken out, frees its key at once, because its work was not done. A message
// that its own handler sends with Then may have the key, and after it the key stays taken for the rest of the time.
// ops.Queue.ReleaseKey frees the key. ops.Queue.Requeue is refused as a send is.
func WithKeyHold(d time.Duration) MsgOption {
	return func(m *draft) error {
		if d < message.MinDuration || d > maxKeyHold {
			return fmt.Errorf("%w: WithKeyHold(%v): from %v to %v%s", ErrBadOption, d, message.MinDuration, maxKeyHold,
				message.UnitHint(d))
		}
		m.KeyHold = d
		return nil
	}
}

// WithPayloadKey is WithKey with the SHA-256 of the payload as the key, in 64 hexadecimal digits. So two messages
// with the same payload are one. Headers do not count.
func WithPayloadKey(on ...Conflict) MsgOption {
	return func(m *draft) (err error) {
		m.Key, m.put.PayloadKey = "", true
		m.put.On, err = oneConflict("WithPayloadKey", on)
		return err
	}
}

// WithMaxWait bounds how long Replace, Reschedule and Append put a message off: the message is due at most d after
// the first send with this option, by the server's clock, however often later sends put it off. If that time is over
// and the message was handed out, a further send begins a new time. d is at least 1ms, and no less than the delay.
//
// A later send without this option:
//   - Replace removes the bound.
//   - Reschedule and Append keep the bound of the first send. If the first send had none, there is none.
func WithMaxWait(d time.Duration) MsgOption {
	return func(m *draft) error {
		if d < message.MinDuration || d > message.MaxDelay {
			return fmt.Errorf("%w: WithMaxWait(%v): from %v to %v%s", ErrBadOption, d, message.MinDuration, message.MaxDelay,
				message.UnitHint(d))
		}
		m.put.MaxWait = d
		return nil
	}
}

// checkKey makes the key of a payload, and refuses options that lack another option or contradict one.
func (m *draft) checkKey() error {
	if m.Key == "" && m.put.PayloadKey {
		sum := sha256.Sum256([]byte(m.Payload))
		m.Key = hex.EncodeToString(sum[:])
	}
	if m.Key == "" && m.KeyHold > 0 {
		return fmt.Errorf("%w: WithKeyHold(%v) without a key: use WithKey or WithPayloadKey", ErrBadOption, m.KeyHold)
	}
	if m.Key != "" && m.TTL > 0 {
		m.Since = message.LatestUnknown
	}
	if err := m.checkGroup(); err != nil || m.put.MaxWait == 0 {
		return err
	}
	if m.put.On < script.ConflictReplace {
		return fmt.Errorf(
			"%w: WithMaxWait(%v) of a message that puts off no other: use WithKey with Replace, Reschedule or Append",
			ErrBadOption, m.put.MaxWait)
	}
	if delay := message.Microseconds(m.when.Us); !m.when.Absolute && delay > m.put.MaxWait {
		return fmt.Errorf("%w: WithMaxWait(%v) is less than the delay of %v", ErrBadOption, m.put.MaxWait, delay)
	}
	m.Latest = message.LatestUnknown
	return nil
}

// WithMaxParts sets how many parts a group (Append) may have, from 1 to 1,000, which is the default. The value of the
// send that adds a part counts. A group is full when it has n parts, or when a part does not fit into 1 MB; then that
// part begins the next group. A full group is due now, unless it waits for a retry, and its key is free for the next
// group.
func WithMaxParts(n int) MsgOption {
	return func(m *draft) error {
		if n < message.MinParts || n > message.MaxParts {
			return fmt.Errorf("%w: WithMaxParts(%d): from %d to %d", ErrBadOption, n, message.MinParts, message.MaxParts)
		}
		m.put.MaxParts = n
		return nil
	}
}

// checkGroup makes a message with Append the first part of a group.
func (m *draft) checkGroup() error {
	switch {
	case m.put.On != script.ConflictAppend && m.put.MaxParts > 0:
		return fmt.Errorf("%w: WithMaxParts(%d) of a message that is no part: use WithKey or WithPayloadKey with Append",
			ErrBadOption, m.put.MaxParts)
	case m.put.On != script.ConflictAppend:
		return nil
	case len(m.Payload) > message.MaxGroupBytes:
		return fmt.Errorf("%w: a part (Append) of %d bytes, at most %d", ErrPayloadTooLarge, len(m.Payload),
			message.MaxGroupBytes)
	case m.put.MaxParts == 1: // it is full
		m.when, m.put.Timed = message.When{}, true
	}
	m.Group = message.Group{Count: 1}
	return nil
}

// WithCountdown makes the message due as soon as n acks have counted for it, or at its own due instant, whichever
// comes first. So the message can wait until other messages are handled (WithCounts). Message.CountdownLeft says how
// many acks were missing. n is from 0 to 10^9; with 0 the message is due now. The message needs a key (WithKey), by
// which the acks count, and a time (WithDelay, WithSchedule), which says how long it waits at most. Send it before
// the messages that count.
//
//   - Acks count in the step of the ack, each once, while the message is live. A message that was handed out comes
//     again when its retry says, and not sooner because an ack counts.
//   - A message that is garbage, taken out or acked counts nothing any more, and neither does a group that is full.
//     After ops.Queue.Requeue, what is left counts on.
//   - Once no ack is missing, another send with the same key does not put the message off, except a Replace without a
//     countdown.
//   - An ack costs the server the same whatever n and the payloads are. The last one also costs as much as the
//     message is long, once.
//   - Another send with the same key and Replace sets another n. The acks that have counted stay counted. So a sender
//     that does not know how many there will be begins with more, and says the number later.
func WithCountdown(n int) MsgOption {
	return func(m *draft) error {
		if n < 0 || n > message.MaxCountdown {
			return fmt.Errorf("%w: WithCountdown(%d): from 0 to %d", ErrBadOption, n, message.MaxCountdown)
		}
		m.Countdown, m.counted = n, true
		return nil
	}
}

// WithCounts makes the ack of this message count for the countdown of the message of the same queue with that key
// (WithCountdown), in the same step and once, whoever handles it. If no live message has the key at the ack, or it
// has no countdown, the ack counts nowhere. Only an ack counts: a failure, Snooze, Again, garbage, Intercept, Cancel
// and a delivery that was superseded do not. A message may both count and have a countdown of its own.
//
// A message that is sent twice counts twice. A sender that may be cut off and begin again gives each message a key
// with a hold (WithKeyHold) or a number in a sequence (WithSequence).
func WithCounts(key string) MsgOption {
	return func(m *draft) error {
		m.Counts = key
		return checkKeyBytes("WithCounts", key)
	}
}

func checkKeyBytes(option, key string) error {
	switch {
	case key == "" || len(key) > message.MaxKey:
		return fmt.Errorf("%w: %s: %d bytes: a key has 1 to %d", ErrBadOption, option, len(key), message.MaxKey)
	case strings.TrimSpace(key) == "":
		return fmt.Errorf("%w: %s(%q): a key of blanks only", ErrBadOption, option, key)
	}
	return nil
}

// checkCountdown refuses a countdown for which nobody can count, or that would wait for nothing. One of 0 acks makes
// the message due now.
func (m *draft) checkCountdown() error {
	if m.counted && m.Key == "" && !m.put.PayloadKey {
		return fmt.Errorf("%w: WithCountdown(%d) without a key: WithCounts names the key for which an ack counts",
			ErrBadOption, m.Countdown)
	}
	if m.Counts != "" && m.Counts == m.Key {
		return fmt.Errorf("%w: WithCounts(%q): a message does not count for itself", ErrBadOption, m.Counts)
	}
	stays := !m.put.Timed &&
		(m.put.On == script.ConflictReplace || m.put.On == script.ConflictAppend) // due when the other message was
	switch {
	case m.counted && m.Countdown == 0:
		m.when, m.put.Timed = message.When{}, true
	case m.counted && !stays && !m.when.Absolute && m.when.Us <= 0:
		return fmt.Errorf(
			"%w: WithCountdown(%d) of a message that is due now: WithDelay or WithSchedule says how long it waits at most",
			ErrBadOption, m.Countdown)
	}
	return nil
}

// WithSequence makes the message number n of a sequence of this queue. The name has 1 to 512 bytes. The message is
// stored only if n is greater than the last number that was stored, and refused with ErrSequence otherwise. It is for
// data that is numbered elsewhere: rows of an outbox, offsets of a log, minutes of a schedule. Each number makes one
// message, however often, from how many machines and how late it is sent again. Numbers may be negative, and may have
// gaps.
//
// A message that is refused for another reason, such as its key, does not count. The numbers of a SendBatch must rise
// in each sequence (else ErrBadOption). If one is not stored for another reason than ErrSequence, later numbers of
// that sequence in the batch are not stored either (ErrSequenceStopped). So a call that was refused in part, or whose
// outcome is not known, may be repeated as it is.
//
// A number that is lower than the last can never be stored. So a sender must not pass over a row that is missing yet,
// or that was refused. A failover may forget a number with its message, and the number is lost if the next one is
// sent all the same. If no number may be lost, use WithReplicaAck, and send a number only after the one before is
// confirmed: its send returned nil, or ErrSequence without ErrNotReplicated.
//
// Redis keeps a name until ops.Queue.DropSequence or ops.Queue.DeleteQueue.
func WithSequence(name string, n int64) MsgOption {
	return func(m *draft) error {
		m.put.Sequence, m.put.Number = name, n
		return message.CheckSequence("WithSequence", name)
	}
}
