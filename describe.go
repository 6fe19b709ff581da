package delayqueue

import (
	"maps"
	"slices"
	"time"

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
//		t.Errorf("sent with %+v", got)
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

// Check returns the error for which a send would refuse a message with this payload and these options, before it asks
// Redis: Err, or ErrBadOption of options that do not go together, or ErrPayloadTooLarge.
func (d Description) Check(payload string) error {
	var m draft
	if err := m.apply(d.Options()); err != nil {
		return err
	}
	if err := m.check(); err != nil {
		return err
	}
	return m.fits(payload)
}

// notSaid stands for retries that no option has set.
const notSaid = -1

// Options returns options that say the same. If Err is set, a send refuses the last of them with Err.
func (d Description) Options() (opts []MsgOption) {
	say := func(said bool, opt MsgOption) {
		if said {
			opts = append(opts, opt)
		}
	}
	say(d.Timed && d.Schedule.IsZero(), WithDelay(d.Delay))
	say(!d.Schedule.IsZero(), WithSchedule(d.Schedule))
	say(d.Key != "", WithKey(d.Key, d.OnConflict))
	say(d.PayloadKey, WithPayloadKey(d.OnConflict))
	say(d.KeyHold != 0, WithKeyHold(d.KeyHold))
	say(d.MaxWait != 0, WithMaxWait(d.MaxWait))
	say(d.MaxParts != 0, WithMaxParts(d.MaxParts))
	say(d.Sequence != "", WithSequence(d.Sequence, d.Number))
	if d.Countdown != nil {
		say(true, WithCountdown(*d.Countdown))
	}
	say(d.Counts != "", WithCounts(d.Counts))
	say(d.Lane != "", WithLane(d.Lane, max(d.LaneWidth, 1)))
	if d.Retries != nil {
		say(true, WithRetryCount(*d.Retries))
	}
	say(d.TTL != 0, WithMsgTTL(d.TTL))
	if d.Timeout != nil {
		say(true, WithTimeout(*d.Timeout))
	}
	say(!d.Deadline.IsZero(), WithDeadline(d.Deadline))
	say(d.Retention != 0, WithRetention(d.Retention))
	for _, name := range slices.Sorted(maps.Keys(d.Headers)) {
		say(true, WithHeader(name, d.Headers[name]))
	}
	say(d.Err != nil, func(*draft) error { return d.Err })
	return opts
}
