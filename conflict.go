package delayqueue

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"
)

// A Conflict says what a send does if another message has its key (WithKey).
type Conflict int

// What a send can do. While a handler has the other message, Replace and Reschedule store the new message beside that one
// and give it the key, and the handler goes on. The older delivery is superseded: whatever becomes of it, its message ends
// as by an ack, and never comes again. That holds for a failure, a loss, a release, Snooze and Again, and past its deadline
// as well. Call and Await of the older message return ErrSuperseded, unless its handler returns nil. Listeners are told of a
// SupersededEvent in place of any other end, and History counts it as Superseded. Two handlers of one key may run at the same
// time: a handler that must not overwrite what a newer one wrote compares something of its own, such as a version in the
// payload.
const (
	// Refuse: ErrDuplicateKey.
	Refuse Conflict = iota
	// Keep stores nothing. The other message is what MessageInfo names, with Existed set.
	Keep
	// Replace makes the other message this one: payload, headers, options, and when it is due if this send says so (a
	// delay or a schedule; SendDelayMsg and SendScheduleMsg always do). It keeps its id, and its place if it is due
	// already and is to be due now, but its WithMsgTTL counts from this send; its failures are forgotten. MessageInfo
	// names it, with Existed set.
	Replace
	// Reschedule makes the other message due when this one would be, and changes nothing else of it; its WithMsgTTL counts
	// from then, or from this send. MessageInfo names it, with Existed set. It costs the server as much as the other message is
	// long, as Replace does, and a batch of either a round trip for each half a megabyte of those.
	Reschedule
	// Append adds this payload to the other message as a further part, and its handler gets all of them as Message.Parts; if
	// that was sent without Append, also while it is handled, the send is ErrDuplicateKey. The group is due when this send says,
	// as with Replace, unless it waits for a retry; headers and all other options are those of its first part, and MessageInfo
	// names it, with Existed set. A group leaves its key to the next one when it is full (WithMaxParts), has expired
	// (WithMsgTTL, WithDeadline), or a handler has it. It lives on until it is handled, its Message.Key stays, and GetKey,
	// InterceptKey and CancelKey reach it after the message that has the key, of at most 100 that have left it.
	//
	// An append costs the server as much as the first part is long: let that be small. A bare callback gets the parts one after
	// the other, within the time of one delivery (WithMaxConsumeDuration), and all again if it does not consume one of them.
	Append
)

var conflictNames = [...]string{"Refuse", "Keep", "Replace", "Reschedule", "Append"}

// conflictWords are what put calls them.
var conflictWords = [...]any{Refuse: "refuse", Keep: "keep", Replace: "replace", Reschedule: "reschedule", Append: "append"}

// String is the name of the constant, as in "Replace".
func (c Conflict) String() string { return nameOf("Conflict", int(c), conflictNames[:]) }

// oneConflict is what one send is to do.
func oneConflict(option string, on []Conflict) (Conflict, error) {
	if len(on) == 0 {
		return Refuse, nil
	}
	if len(on) > 1 {
		return Refuse, fmt.Errorf("%w: %s: %v and %v: a message has one of them", ErrBadOption, option, on[0], on[1])
	}
	if on[0] < 0 || int(on[0]) >= len(conflictNames) {
		return Refuse, fmt.Errorf("%w: %s: %v is none of Refuse, Keep, Replace, Reschedule and Append", ErrBadOption, option, on[0])
	}
	return on[0], nil
}

// How long a key may stay taken after an ack, and how long a message may be put off.
const (
	maxKeyHold = 365 * 24 * time.Hour
	// latestUnknown stands in an envelope where put writes to when its message may be put off, or from when its TTL counts.
	latestUnknown = 1
)

// WithKeyHold keeps the key of the message taken for d after it is acked, by the server's clock: who sends it again within
// that time, because a caller has repeated its request, say, is refused with ErrDuplicateKey, or gets the message that was
// acked (Keep: Existed, and no Due). As nothing waits then, Replace, Reschedule and Append are refused, too. A message that
// ends otherwise, in garbage or taken out, frees its key at once, for its work was not done. What its own handler sends with
// Then gets the key, which stays taken behind that one too, for what is left of the time. Nothing that a Monitor does frees it
// but ReleaseKey: Requeue is refused as a send is. d is from 1ms to 365 days.
func WithKeyHold(d time.Duration) MsgOption {
	return func(m *draft) error {
		if d < minDuration || d > maxKeyHold {
			return fmt.Errorf("%w: WithKeyHold(%v): from %v to %v%s", ErrBadOption, d, minDuration, maxKeyHold, unitHint(d))
		}
		m.keyHold = d
		return nil
	}
}

// WithPayloadKey makes the SHA-256 of the payload, in 64 hexadecimal digits, the key of the message, as WithKey does: two
// messages with the same payload are one. Headers do not count.
func WithPayloadKey(on ...Conflict) MsgOption {
	return func(m *draft) (err error) {
		m.key, m.put.payloadKey = "", true
		m.put.on, err = oneConflict("WithPayloadKey", on)
		return err
	}
}

func payloadKey(payload string) string {
	sum := sha256.Sum256([]byte(payload))
	return hex.EncodeToString(sum[:])
}

// WithMaxWait bounds how long Replace, Reschedule and Append put a message off: it is due no later than d after the first send
// that says so, by the server's clock, however often later ones put it off, and whether it was handed out meanwhile or not.
// Once that is over and the message was handed out, it begins anew. A send without it that replaces the message takes the
// bound off, and one that reschedules it or appends to it is bound all the same; what was sent without it, and is
// rescheduled or appended to, keeps none. d is at least 1ms, and no less than the delay.
func WithMaxWait(d time.Duration) MsgOption {
	return func(m *draft) error {
		if d < minDuration || d > maxDelay {
			return fmt.Errorf("%w: WithMaxWait(%v): from %v to %v%s", ErrBadOption, d, minDuration, maxDelay, unitHint(d))
		}
		m.put.maxWait = d
		return nil
	}
}

// checkKey makes the key of a payload, and refuses options that lack another or contradict one.
func (m *draft) checkKey() error {
	if m.key == "" && m.put.payloadKey {
		m.key = payloadKey(m.payload)
	}
	if m.key == "" && m.keyHold > 0 {
		return fmt.Errorf("%w: WithKeyHold(%v) without a key: use WithKey or WithPayloadKey", ErrBadOption, m.keyHold)
	}
	if m.key != "" && m.ttl > 0 {
		m.since = latestUnknown
	}
	if err := m.checkGroup(); err != nil || m.put.maxWait == 0 {
		return err
	}
	if m.put.on < Replace {
		return fmt.Errorf("%w: WithMaxWait(%v) of a message that puts off no other: use WithKey with Replace, Reschedule or Append",
			ErrBadOption, m.put.maxWait)
	}
	if delay := microseconds(m.when.us); !m.when.absolute && delay > m.put.maxWait {
		return fmt.Errorf("%w: WithMaxWait(%v) is less than the delay of %v", ErrBadOption, m.put.maxWait, delay)
	}
	m.latest = latestUnknown
	return nil
}
