package delayqueue

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/conc"
	"github.com/go-delayqueue/delayqueue/internal/message"
)

// A Description is what options say of a message, as plain data. It is for a test with a fake sender, and for code
// that stores options and sends later. A field that no option sets is zero. Durations are nanoseconds in JSON.
type Description struct {
	Delay    time.Duration `json:"delay,omitzero"`    // WithDelay
	Schedule time.Time     `json:"schedule,omitzero"` // WithSchedule
	Timed    bool          `json:"timed,omitzero"`    // one of these two options was there, also if it means now

	Key        string        `json:"key,omitzero"`        // WithKey
	PayloadKey bool          `json:"payloadKey,omitzero"` // WithPayloadKey: the key is made of the payload
	OnConflict Conflict      `json:"onConflict,omitzero"` // of either of them
	KeyHold    time.Duration `json:"keyHold,omitzero"`    // WithKeyHold
	MaxWait    time.Duration `json:"maxWait,omitzero"`    // WithMaxWait
	MaxParts   int           `json:"maxParts,omitzero"`   // WithMaxParts
	Sequence   string        `json:"sequence,omitzero"`   // WithSequence, the name …
	Number     int64         `json:"number,omitzero"`     // … and the number
	Countdown  *int          `json:"countdown,omitzero"`  // WithCountdown; nil: not said
	Counts     string        `json:"counts,omitzero"`     // WithCounts
	Lane       string        `json:"lane,omitzero"`       // WithLane, the name …
	LaneWidth  int           `json:"laneWidth,omitzero"`  // … and the width

	Retries   *int              `json:"retries,omitzero"`   // WithRetryCount; nil: not said
	TTL       time.Duration     `json:"ttl,omitzero"`       // WithMsgTTL
	Timeout   *time.Duration    `json:"timeout,omitzero"`   // WithTimeout; nil: not said; 0: none
	Deadline  time.Time         `json:"deadline,omitzero"`  // WithDeadline
	Retention time.Duration     `json:"retention,omitzero"` // WithRetention
	Headers   map[string]string `json:"headers,omitempty"`  // WithHeader

	// Err is the reason why a send would refuse one of these options, with ErrBadOption in it. Only the send checks
	// whether the options go together.
	Err error `json:"-"`
}

// Describe describes options. If one of them is wrong, the others are described all the same.
//
//	if got := delayqueue.Describe(opts...); got.Delay != 15*time.Minute || got.Key != "order-42" {
//		t.Errorf("sent with %v", got)
//	}
func Describe(opts ...MsgOption) Description {
	m := draft{}
	m.Retries = notSaid
	err := m.apply(opts)
	d := Description{
		Timed: m.put.Timed, Key: m.Key, PayloadKey: m.put.PayloadKey, OnConflict: Conflict(m.put.On), KeyHold: m.KeyHold,
		MaxWait: m.put.MaxWait, MaxParts: m.put.MaxParts,
		Sequence: m.put.Sequence, Number: m.put.Number, Counts: m.Counts, Lane: m.Lane.Name, LaneWidth: m.Lane.Width,
		TTL: m.TTL, Deadline: message.InstantTime(m.Deadline), Retention: m.Retention,
		Headers: maps.Clone(m.Headers), Err: err,
	}
	if m.when.Absolute {
		d.Schedule = time.UnixMicro(m.when.Us)
	} else {
		d.Delay = message.Microseconds(m.when.Us)
	}
	if m.Retries != notSaid {
		d.Retries = &m.Retries
	}
	if m.Timeout != 0 {
		limit := max(m.Timeout, 0)
		d.Timeout = &limit
	}
	if m.counted {
		d.Countdown = &m.Countdown
	}
	return d
}

// notSaid stands for retries that no option has set.
const notSaid = -1

// A saying is one thing that a Description says.
type saying struct {
	name  string
	value any
	opt   MsgOption // nil: an option before it says that, too
}

// all are the things that it says.
func (d Description) all() (all []saying) {
	say := func(said bool, name string, value any, opt MsgOption) {
		if said {
			all = append(all, saying{name, value, opt})
		}
	}
	say(d.Timed && d.Schedule.IsZero(), "delay", d.Delay, WithDelay(d.Delay))
	say(!d.Schedule.IsZero(), "schedule", d.Schedule.UTC().Format(time.RFC3339Nano), WithSchedule(d.Schedule))
	say(d.Key != "", "key", d.Key, WithKey(d.Key, d.OnConflict))
	say(d.PayloadKey, "key", "of the payload", WithPayloadKey(d.OnConflict))
	say(d.OnConflict != Refuse, "on-conflict", d.OnConflict, nil)
	say(d.KeyHold != 0, "key-hold", d.KeyHold, WithKeyHold(d.KeyHold))
	say(d.MaxWait != 0, "max-wait", d.MaxWait, WithMaxWait(d.MaxWait))
	say(d.MaxParts != 0, "max-parts", d.MaxParts, WithMaxParts(d.MaxParts))
	say(d.Sequence != "", "sequence", fmt.Sprintf("%s:%d", d.Sequence, d.Number), WithSequence(d.Sequence, d.Number))
	if d.Countdown != nil {
		say(true, "countdown", *d.Countdown, WithCountdown(*d.Countdown))
	}
	say(d.Counts != "", "counts", d.Counts, WithCounts(d.Counts))
	say(d.Lane != "", "lane", fmt.Sprintf("%s:%d", d.Lane, d.LaneWidth), WithLane(d.Lane, max(d.LaneWidth, 1)))
	if d.Retries != nil {
		say(true, "retries", *d.Retries, WithRetryCount(*d.Retries))
	}
	say(d.TTL != 0, "ttl", d.TTL, WithMsgTTL(d.TTL))
	if d.Timeout != nil {
		say(true, "timeout", *d.Timeout, WithTimeout(*d.Timeout))
	}
	say(!d.Deadline.IsZero(), "deadline", d.Deadline.UTC().Format(time.RFC3339Nano), WithDeadline(d.Deadline))
	say(d.Retention != 0, "retention", d.Retention, WithRetention(d.Retention))
	for _, name := range slices.Sorted(maps.Keys(d.Headers)) {
		say(true, "header "+name, fmt.Sprintf("%q", d.Headers[name]), WithHeader(name, d.Headers[name]))
	}
	say(d.Err != nil, "error", d.Err, func(*draft) error { return d.Err })
	return all
}

// Options returns options that say the same. If Err is set, a send refuses the last of them with Err.
func (d Description) Options() (opts []MsgOption) {
	for _, s := range d.all() {
		if s.opt != nil {
			opts = append(opts, s.opt)
		}
	}
	return opts
}

// String names the fields that are set, as in "delay=15m0s key=order-42".
func (d Description) String() string {
	words := conc.Mapped(d.all(), func(s *saying) string { return fmt.Sprintf("%s=%v", s.name, s.value) })
	return strings.Join(words, " ")
}
