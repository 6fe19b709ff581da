package delayqueue

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// A Message is one delivery of a message, as a handler sees it. It belongs to the
// handler: the queue does not look at it again.
type Message struct {
	ID      string            // UUIDv7, made by the sender, never used twice
	Key     string            // the sender's own name for it (WithKey); "" if it has none
	Payload string            // any bytes, unchanged; of a group its first part
	Parts   []string          // of a group (Append): every payload, in the order of the sends, the first among them; else nil
	Headers map[string]string // WithHeader; nil if there are none
	Due     time.Time         // never handed out before this instant of the server's clock; retries do not change it

	// Delivery is the number of this delivery, from 1. It counts every hand-out: after
	// failures, losses, snoozes, and those that no handler started.
	Delivery   int
	Failures   int // failures before this delivery
	MaxRetries int // how many failures are followed by another delivery (WithRetryCount)
}

// MessageInfo names a message that was sent.
type MessageInfo struct {
	ID  string
	Key string    // "" if it has none
	Due time.Time // by the Redis server's clock

	// Existed: this message was there before the send, had its key, and was kept, replaced, rescheduled or appended to
	// (WithKey). Due is then for when it waits; of one that was kept, when it was or is due for the first time, and zero if it was acked
	// and only keeps its key (WithKeyHold).
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
)

// stateNames are what scripts call the states. But for gone, structures have these names.
var stateNames = [...]string{"gone", "pending", "ready", "unack", "retry", "garbage", "done"}

// String names the state, as in "pending"; StateUnack is "unack".
func (s State) String() string { return nameOf("State", int(s), stateNames[:]) }

// nameOf is the name of a constant, or its type and number if it has none.
func nameOf(kind string, n int, names []string) string {
	if n < 0 || n >= len(names) || names[n] == "" {
		return fmt.Sprintf("%s(%d)", kind, n)
	}
	return names[n]
}

// InterceptResult says what Intercept or Cancel did.
type InterceptResult struct {
	// Intercepted: the message was taken out. False: there is none (StateGone), it was handled (StateDone), or it is
	// being handled and Intercept left it alone (StateUnack).
	Intercepted bool
	State       State  // where the message was
	ID          string // of the message; "" if there is none
}

// splitTag reads a tag, the name of one delivery: the id itself for the first, <n>:<id> from
// the second on. The scripts make the later ones. What is neither names a first delivery.
func splitTag(tag string) (id string, n int) {
	num, id, found := strings.Cut(tag, ":")
	if !found || id == "" || len(num) > 9 {
		return tag, 1
	}
	n, err := strconv.Atoi(num)
	if err != nil || n < 2 || num != strconv.Itoa(n) {
		return tag, 1
	}
	return id, n
}

// microseconds is a duration of so many, as long as one can be.
func microseconds(us int64) time.Duration {
	return time.Duration(min(max(us, math.MinInt64/1000), math.MaxInt64/1000)) * time.Microsecond
}

// A serverTime is an instant of Redis's clock, in us since 1970. 0 means none.
type serverTime int64

func (t serverTime) sub(u serverTime) time.Duration { return microseconds(int64(t) - int64(u)) }
