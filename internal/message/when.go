package message

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync/atomic"
	"time"
)

// This file has instants, durations, and places in a sequence, as Redis keeps them.

// ErrBadOption is in each error that refuses such a number.
var ErrBadOption = errors.New("bad option or argument")

// When says when a message is due: us after the server's now, or at that unix us if it is absolute.
type When struct {
	Us       int64
	Absolute bool
}

// Due is the instant at which the send script makes a message due, in unix us as now is.
func (w When) Due(now int64) int64 {
	if w.Absolute {
		return max(w.Us, now)
	}
	return now + w.Us
}

const (
	// MinDuration is the shortest duration, besides 0, of every setting: TTLs, holds, timeouts, pauses. A shorter one is
	// taken for a number without its unit: time.Duration(3600) is 3.6 µs, and would mean now. A shorter delay may have
	// been computed.
	MinDuration = time.Millisecond
	// MaxDelay is the longest delay.
	MaxDelay = 150 * 365 * 24 * time.Hour
)

// UnitHint asks about a duration that looks like a number without its unit.
func UnitHint(d time.Duration) string {
	switch {
	case d <= 0 || d >= MinDuration:
		return ""
	case d < 1000:
		return fmt.Sprintf(": did you mean %d*time.Second?", d)
	default:
		return fmt.Sprintf(": did you mean %d*time.Second, or %[1]d*time.Millisecond?", d)
	}
}

// MinDue and MaxDue bound the instants of messages. An instant far before 1970 is a number that wrapped: the sender of
// time.Unix(math.MaxInt64, 0) means for ever, and the message would be due now.
var (
	MinDue = time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC)
	MaxDue = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
)

// Delayed is when a message with this delay is due. A delay below 0 is 0.
func Delayed(d time.Duration) (When, error) {
	if d > MaxDelay {
		return When{}, tooLong("delay", d)
	}
	d = max(d, 0)
	return When{Us: d.Microseconds() + roundUp(d)}, nil
}

// Delay is how long after a send a message is due, 0 if it is due at an instant.
func (w When) Delay() time.Duration {
	if w.Absolute {
		return 0
	}
	return time.Duration(w.Us) * time.Microsecond
}

// A UnitQuestion asks in the log whether a delay is a number without its unit, at most once a minute. Such a delay is
// taken as it is, because delays are computed. The zero value is ready. It is safe for concurrent use.
type UnitQuestion struct{ asked atomic.Int64 }

// UnitMissing is that question.
const UnitMissing = "delayqueue: a delay is below 1ms: is its unit missing, as in 5*time.Second?"

// Asks reports whether the log is to ask about a delay now.
func (q *UnitQuestion) Asks(d time.Duration) bool {
	if d <= 0 || d >= MinDuration {
		return false
	}
	now, last := time.Now().UnixNano(), q.asked.Load()
	return now-last >= int64(time.Minute) && q.asked.CompareAndSwap(last, now)
}

// ValidDelay refuses a duration that is too long, or a number without its unit.
func ValidDelay(what string, d time.Duration) error {
	if d > MaxDelay {
		return tooLong(what, d)
	}
	return Unitless(what, d)
}

func tooLong(what string, d time.Duration) error {
	return fmt.Errorf("%w: %s %v: at most %v (150 years)", ErrBadOption, what, d, MaxDelay)
}

// Unitless refuses a duration that is a number without its unit, which would mean now.
func Unitless(what string, d time.Duration) error {
	if d == 0 || d.Abs() >= MinDuration {
		return nil
	}
	return fmt.Errorf("%w: %s %v: 0, or at least %v%s", ErrBadOption, what, d, MinDuration, UnitHint(d.Abs()))
}

// roundUp is 1 if d is not whole microseconds: a message is never early.
func roundUp(d time.Duration) int64 {
	if d%time.Microsecond != 0 {
		return 1
	}
	return 0
}

// Scheduled is when a message with this schedule is due. An instant before 1970 is taken for 1970.
func Scheduled(t time.Time) (When, error) {
	if t.IsZero() {
		return When{}, fmt.Errorf("%w: schedule: the zero time: nobody has set it; now is time.Now()", ErrBadOption)
	}
	if !t.Before(MaxDue) {
		return When{}, fmt.Errorf("%w: schedule %v: must be before the year 2200", ErrBadOption, t)
	}
	if t.Before(MinDue) {
		return When{}, fmt.Errorf("%w: schedule %v: before 1900, which no message means: has its number of seconds wrapped?",
			ErrBadOption, t)
	}
	if t.Before(time.Unix(0, 0)) {
		return When{Absolute: true}, nil
	}
	return When{Us: t.UnixMicro() + roundUp(time.Duration(t.Nanosecond())), Absolute: true}, nil
}

// Microseconds converts microseconds to a duration, within the bounds of one.
func Microseconds(us int64) time.Duration {
	return time.Duration(min(max(us, math.MinInt64/1000), math.MaxInt64/1000)) * time.Microsecond
}

// A ServerTime is an instant of Redis's clock, in us since 1970. 0 means none.
type ServerTime int64

func (t ServerTime) Sub(u ServerTime) time.Duration { return Microseconds(int64(t) - int64(u)) }

// InstantTime is an instant that Redis holds, in unix us, as a time. 0 is the zero time.
func InstantTime(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(max(min(us, LastInstant), FirstInstant))
}

// JSON has room for the years 1 to 9999. An instant that another program wrote may lie beyond.
const (
	FirstInstant = -62135596800_000000 // unix us
	LastInstant  = 253402214400_000000 // a day before the end of 9999, because of time zones east of UTC
)

// Forever is the end of a pause that lasts until Resume: the year 2200.
var Forever = MaxDue.UnixMicro()

// maxSequence is how long the name of a sequence may be, in bytes.
const maxSequence = 512

// SequenceDigits is a number as Redis keeps it. Two such texts compare as their numbers do.
func SequenceDigits(n int64) string { return fmt.Sprintf("%020d", uint64(n)^1<<63) }

// SequenceNumber reads SequenceDigits.
func SequenceNumber(digits string) (int64, error) {
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || len(digits) != 20 {
		return 0, fmt.Errorf("sequence number %q", digits)
	}
	return int64(n ^ 1<<63), nil
}

// CheckSequence refuses a name of a sequence that is empty or too long.
func CheckSequence(option, name string) error {
	if name == "" || len(name) > maxSequence {
		return fmt.Errorf("%w: %s: %d bytes: a name has 1 to %d", ErrBadOption, option, len(name), maxSequence)
	}
	return nil
}
