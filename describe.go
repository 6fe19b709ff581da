package delayqueue

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// A Description is what options say of a message, for a test whose sender is a fake one. What no option says is zero.
type Description struct {
	Delay    time.Duration // WithDelay
	Schedule time.Time     // WithSchedule
	Timed    bool          // one of these two was there, perhaps to say: now

	Key        string        // WithKey
	PayloadKey bool          // WithPayloadKey: the key is made of the payload
	OnConflict Conflict      // of either of them
	KeyHold    time.Duration // WithKeyHold
	MaxWait    time.Duration // WithMaxWait
	MaxParts   int           // WithMaxParts
	Sequence   string        // WithSequence, the name …
	Number     int64         // … and the number

	Retries   *int              // WithRetryCount; nil: not said
	TTL       time.Duration     // WithMsgTTL
	Timeout   *time.Duration    // WithTimeout; nil: not said; 0: none
	Deadline  time.Time         // WithDeadline
	Retention time.Duration     // WithRetention
	Headers   map[string]string // WithHeader

	// Err is why a send would refuse these options, ErrBadOption in it; nil: it would not for any of them by itself. Whether they go
	// together a send looks at.
	Err error
}

// Describe says what options hold: also all others, if one of them is wrong.
//
//	if got := delayqueue.Describe(opts...); got.Delay != 15*time.Minute || got.Key != "order-42" {
//		t.Errorf("sent with %v", got)
//	}
func Describe(opts ...MsgOption) Description {
	m := draft{}
	m.retries = notSaid
	err := m.apply(opts)
	d := Description{
		Timed: m.put.timed, Key: m.key, PayloadKey: m.put.payloadKey, OnConflict: m.put.on, KeyHold: m.keyHold,
		MaxWait: m.put.maxWait, MaxParts: m.put.maxParts,
		Sequence: m.put.sequence, Number: m.put.number, TTL: m.ttl, Deadline: instantTime(m.deadline), Retention: m.retention,
		Headers: maps.Clone(m.headers), Err: err,
	}
	if m.when.absolute {
		d.Schedule = time.UnixMicro(m.when.us)
	} else {
		d.Delay = microseconds(m.when.us)
	}
	d.Retries, d.Timeout = m.pointers()
	return d
}

// notSaid stands for retries that no option has set.
const notSaid = -1

// pointers are the retries and the timeout of a draft, nil for what no option has set.
func (m *draft) pointers() (retries *int, timeout *time.Duration) {
	if m.retries != notSaid {
		retries = &m.retries
	}
	if m.timeout != 0 {
		limit := max(m.timeout, 0)
		timeout = &limit
	}
	return retries, timeout
}

// String names what is said, as in "delay=15m0s key=order-42".
func (d Description) String() string {
	var words []string
	say := func(said bool, name string, value any) {
		if said {
			words = append(words, fmt.Sprintf("%s=%v", name, value))
		}
	}
	say(d.Timed && d.Schedule.IsZero(), "delay", d.Delay)
	say(!d.Schedule.IsZero(), "schedule", d.Schedule.UTC().Format(time.RFC3339Nano))
	say(d.Key != "", "key", d.Key)
	say(d.PayloadKey, "key", "of the payload")
	say(d.OnConflict != Refuse, "on-conflict", d.OnConflict)
	say(d.KeyHold != 0, "key-hold", d.KeyHold)
	say(d.MaxWait != 0, "max-wait", d.MaxWait)
	say(d.MaxParts != 0, "max-parts", d.MaxParts)
	say(d.Sequence != "", "sequence", fmt.Sprintf("%s:%d", d.Sequence, d.Number))
	if d.Retries != nil {
		say(true, "retries", *d.Retries)
	}
	say(d.TTL != 0, "ttl", d.TTL)
	if d.Timeout != nil {
		say(true, "timeout", *d.Timeout)
	}
	say(!d.Deadline.IsZero(), "deadline", d.Deadline.UTC().Format(time.RFC3339Nano))
	say(d.Retention != 0, "retention", d.Retention)
	for _, name := range slices.Sorted(maps.Keys(d.Headers)) {
		say(true, "header "+name, fmt.Sprintf("%q", d.Headers[name]))
	}
	say(d.Err != nil, "error", d.Err)
	return strings.Join(words, " ")
}
