package delayqueue

import (
	"fmt"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/script"
)

// A Message is one delivery of a message, as a handler sees it. It belongs to the
// handler: the queue does not look at it again.
type Message struct {
	ID      string // UUIDv7, made by the sender, never used twice
	Key     string // the sender's own name for the message (WithKey); "" if it has none
	Payload string // any bytes, unchanged; of a group its first part
	// of a group (Append): every payload, in the order of the sends, the first among them; else nil
	Parts   []string
	Headers map[string]string // WithHeader; nil if there are none
	Lane    string            // WithLane; "" if it has none
	Due     time.Time         // never handed out before this instant of the server's clock; retries do not change it

	// Delivery is the number of this delivery, from 1. It counts every hand-out: after
	// failures, losses, snoozes, and those that no handler started.
	Delivery   int
	Failures   int // failures before this delivery
	MaxRetries int // how many failures are followed by another delivery (WithRetryCount)

	// how many acks were missing when the message was handed out (WithCountdown); 0 if it came because none was, or has no
	// countdown
	CountdownLeft int
}

// MessageInfo names a message that was sent.
type MessageInfo struct {
	ID  string
	Key string    // "" if it has none
	Due time.Time // by the Redis server's clock

	// Existed: this message was there before the send and had the key, so it was kept, replaced, rescheduled or appended
	// to (WithKey). Due is the instant for which it waits now. Of a message that was kept, Due is the instant of its
	// next delivery, or now if it is ready or handled. Due is zero if the message was acked and only holds its key
	// (WithKeyHold).
	Existed bool
}

// A State says where a message is.
type State int

// The states of a message.
const (
	StateGone    State = iota // nowhere: acked, intercepted, aged out, or never sent
	StatePending              // not yet due
	StateReady                // due, next to be handed out
	StateUnack                // handed out, being handled
	StateRetry                // failed, snoozed or lost, waiting for its next delivery
	StateGarbage              // given up on
	StateDone                 // acked, and kept to be looked at (WithRetention)
	StateWaiting              // due or not, behind other messages of its lane (WithLane)
)

// String names the state, as in "pending" or "unack".
func (s State) String() string { return nameOf("State", int(s), script.StateWords[:]) }

// MarshalText makes it that word, also in JSON.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads that word.
func (s *State) UnmarshalText(text []byte) error {
	n := script.StateNumber(string(text))
	if n < 0 {
		return fmt.Errorf("state %q: one of %s", text, strings.Join(script.StateWords[:], ", "))
	}
	*s = State(n)
	return nil
}

// nameOf is the name of a constant, or its type and number if the constant has no name.
func nameOf(kind string, n int, names []string) string {
	if n < 0 || n >= len(names) || names[n] == "" {
		return fmt.Sprintf("%s(%d)", kind, n)
	}
	return names[n]
}

// InterceptResult says what Intercept or Cancel did.
type InterceptResult struct {
	// Intercepted: the message was taken out. It is false if there is no such message (StateGone), if it was handled
	// (StateDone), and if Intercept left it alone because it is being handled (StateUnack).
	Intercepted bool
	State       State  // where the message was
	ID          string // of the message; "" if there is none
}
