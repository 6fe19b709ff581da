package delayqueue

import (
	"fmt"
	"time"
)

// A MsgOption sets something of one message. Options are applied in order; the last one wins.
type MsgOption func(*draft) error

// draft is a message that is being made.
type draft struct {
	envelope
	when  when
	fixed bool // the call itself says when
	put   putOptions
}

// when says when a message is due: us after the server's now, or at that unix us if it is absolute.
type when struct {
	us       int64
	absolute bool
}

// due is the instant at which the send script makes a message due, in unix us as now is.
func (w when) due(now int64) int64 {
	if w.absolute {
		return max(w.us, now)
	}
	return now + w.us
}

const (
	// minDuration is the least that a user may say, if not 0: delays, TTLs, holds, timeouts, pauses, settings. A shorter
	// one is a number without its unit: time.Duration(3600) is 3.6 µs, and would mean at once. Every new duration keeps to it.
	minDuration = time.Millisecond
	maxDelay    = 150 * 365 * 24 * time.Hour
	maxKey      = 512

	minRetention = time.Second
	maxRetention = 90 * 24 * time.Hour
)

// unitHint asks about a duration that looks like a number without its unit.
func unitHint(d time.Duration) string {
	switch {
	case d <= 0 || d >= minDuration:
		return ""
	case d < 1000:
		return fmt.Sprintf(": did you mean %d*time.Second?", d)
	default:
		return fmt.Sprintf(": did you mean %d*time.Second, or %[1]d*time.Millisecond?", d)
	}
}

// Instants that a message may mean. What is far before 1970 is a number that wrapped, as time.Unix(math.MaxInt64, 0) does,
// which is meant as for ever and would be now.
var (
	minDue = time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC)
	maxDue = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)
)

func delayed(d time.Duration) (when, error) {
	d = max(d, 0)
	if err := validDelay("delay", d); err != nil {
		return when{}, err
	}
	return when{us: d.Microseconds() + roundUp(d)}, nil
}

// validDelay refuses a duration that is too long, or a number without its unit.
func validDelay(what string, d time.Duration) error {
	if d > maxDelay {
		return fmt.Errorf("%w: %s %v: at most %v (150 years)", ErrBadOption, what, d, maxDelay)
	}
	return unitless(what, d)
}

// unitless refuses a duration that is a number without its unit, which would mean now.
func unitless(what string, d time.Duration) error {
	if d == 0 || d.Abs() >= minDuration {
		return nil
	}
	return fmt.Errorf("%w: %s %v: 0, or at least %v%s", ErrBadOption, what, d, minDuration, unitHint(d.Abs()))
}

// roundUp is 1 if d is not whole microseconds: a message is never early.
func roundUp(d time.Duration) int64 {
	if d%time.Microsecond != 0 {
		return 1
	}
	return 0
}

func scheduled(t time.Time) (when, error) {
	if t.IsZero() {
		return when{}, fmt.Errorf("%w: schedule: the zero time: nobody has set it; now is time.Now()", ErrBadOption)
	}
	if !t.Before(maxDue) {
		return when{}, fmt.Errorf("%w: schedule %v: must be before the year 2200", ErrBadOption, t)
	}
	if t.Before(minDue) {
		return when{}, fmt.Errorf("%w: schedule %v: before 1900, which no message means: has its number of seconds wrapped?", ErrBadOption, t)
	}
	if t.Before(time.Unix(0, 0)) {
		return when{absolute: true}, nil
	}
	return when{us: t.UnixMicro() + roundUp(time.Duration(t.Nanosecond())), absolute: true}, nil
}

// WithDelay makes the message due after d, by the server's clock. Zero or less means
// now. More than 150 years is an error. So is less than 1ms, which is a number without its
// unit; for an instant there is WithSchedule. For Send and SendBatch; an error elsewhere.
func WithDelay(d time.Duration) MsgOption {
	w, err := delayed(d)
	return func(m *draft) error { return m.setWhen("WithDelay", w, err) }
}

// WithSchedule makes the message due at t, the caller's wall clock read as an instant of
// the server's. The past means now. 2200 or later is an error, and so is what is before
// 1900: the zero time, or a number that wrapped. For Send and SendBatch; an error elsewhere.
func WithSchedule(t time.Time) MsgOption {
	w, err := scheduled(t)
	return func(m *draft) error { return m.setWhen("WithSchedule", w, err) }
}

func (m *draft) setWhen(option string, w when, err error) error {
	if m.fixed {
		return fmt.Errorf("%w: %s: this call already says when; use Send or SendBatch", ErrBadOption, option)
	}
	m.when, m.put.timed = w, true
	return err
}

// WithRetryCount sets how many failures are followed by another delivery; the one after
// that makes the message garbage. 0 means one delivery. Default: WithDefaultRetryCount.
func WithRetryCount(n int) MsgOption {
	return func(m *draft) error {
		if n < 0 {
			return fmt.Errorf("%w: WithRetryCount(%d): must not be negative", ErrBadOption, n)
		}
		m.retries = n
		return nil
	}
}

// WithKey names the message (order-42), by 1 to 512 bytes. While a message with that key is live, a second send does
// what on says: it is refused with ErrDuplicateKey (Refuse, the default), or keeps, replaces, reschedules or appends to the
// message that is there. The key is free again once the message is acked (unless WithKeyHold keeps it taken for a while),
// intercepted or garbage. A batch with one key twice is two sends in order. While a handler has the message, Replace, Reschedule
// and Append store the new one beside it, and that has the key: see Conflict.
func WithKey(key string, on ...Conflict) MsgOption {
	return func(m *draft) (err error) {
		if key == "" || len(key) > maxKey {
			return fmt.Errorf("%w: WithKey: %d bytes: a key has 1 to %d", ErrBadOption, len(key), maxKey)
		}
		m.key, m.put.payloadKey = key, false
		m.put.on, err = oneConflict("WithKey", on)
		return err
	}
}

// WithMsgTTL bounds lateness: a message that could not be handed out for the first time
// within d after its due instant goes to garbage (ErrExpired) instead. A message that was
// handed out once is not bound by it, even if no handler started (WithDeadline bounds that
// too). A send that replaces or reschedules the message starts the time anew (WithKey). d must be at least 1ms.
// Default: none, a message waits for ever.
func WithMsgTTL(d time.Duration) MsgOption {
	return func(m *draft) error {
		if d < minDuration {
			return fmt.Errorf("%w: WithMsgTTL(%v): must be at least 1ms%s", ErrBadOption, d, unitHint(d))
		}
		m.ttl = d
		return nil
	}
}

// WithTimeout is how long a handler of this message may run, in place of the queue's
// WithMaxConsumeDuration, and like that the Deadline of its context: at least 1ms, at most 150 years; 0 means for any time.
func WithTimeout(d time.Duration) MsgOption {
	return func(m *draft) error {
		if d != 0 && (d < minDuration || d > maxDelay) {
			return fmt.Errorf("%w: WithTimeout(%v): must be at least 1ms and at most 150 years; 0 means no limit%s", ErrBadOption, d, unitHint(d))
		}
		if m.timeout = d.Truncate(time.Microsecond); d == 0 {
			m.timeout = noTimeout
		}
		return nil
	}
}

// WithDeadline ends what a message is good for at t, the caller's wall clock read as an
// instant of the server's: from then on there is no delivery and no retry. A handler that is
// at work at t is cut off, as by WithMaxConsumeDuration. What would come again at t or later
// (after a failure, by Snooze or Again) goes to garbage at once, and what comes again although it
// should not (its consumer died, or somebody rescheduled or requeued it) when it would be handed
// out; the reason is ErrExpired around the last error.
//
// t must be after the instant at which the message is due, and before 2200. Of a Replace that does not say when, which
// leaves the other message due when it was, only now is compared: if that is at t or later, it goes to garbage then.
// Default: none.
func WithDeadline(t time.Time) MsgOption {
	return func(m *draft) error {
		if t.IsZero() {
			return fmt.Errorf("%w: WithDeadline: the zero time: nobody has set it", ErrBadOption)
		}
		if !t.Before(maxDue) || t.Before(minDue) {
			return fmt.Errorf("%w: WithDeadline(%v): must be before the year 2200, and not before 1900", ErrBadOption, t)
		}
		m.deadline = max(t.UnixMicro(), 1)
		return nil
	}
}

// apply applies options, all of them, for what stands behind a numbered message must know its number whatever is wrong with
// it. It returns the first error.
func (m *draft) apply(opts []MsgOption) (first error) {
	for i, opt := range opts {
		var err error
		if opt == nil {
			err = fmt.Errorf("%w: option %d is nil", ErrBadOption, i+1)
		} else {
			err = opt(m)
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// check refuses options that do not go together.
func (m *draft) check() error {
	if err := m.checkKey(); err != nil {
		return err
	}
	if m.deadline != 0 {
		if due := m.when.due(time.Now().UnixMicro()); m.deadline <= due {
			return fmt.Errorf("%w: WithDeadline(%v): the message is due at %v (WithDelay, WithSchedule, or else now), "+
				"and nothing is delivered from its deadline on",
				ErrBadOption, time.UnixMicro(m.deadline), time.UnixMicro(due))
		}
	}
	return nil
}

// WithRetention keeps the message for d after it was acked, to be looked at (StateDone) and awaited (Await) with what
// its handler said (SetResult). Its key is free as after any ack. 1 s to 90 days. A queue keeps 100,000 such messages,
// unless WithDoneLimit says otherwise; consumers delete those whose time is over. Garbage is kept for as long as
// WithGarbageRetention says, whatever d is. All of it is in Redis's memory: results of 1 MB want a smaller limit.
// Default: an acked message is deleted at once.
func WithRetention(d time.Duration) MsgOption {
	return func(m *draft) error {
		if d < minRetention || d > maxRetention {
			return fmt.Errorf("%w: WithRetention(%v): %v to %v (90 days)%s", ErrBadOption, d, minRetention, maxRetention, unitHint(d))
		}
		m.retention = d
		return nil
	}
}

// WithHeader adds a header, which travels with the message and is not part of its payload. A message has at
// most 10,000.
func WithHeader(key, value string) MsgOption {
	return func(m *draft) error {
		if key == "" {
			return fmt.Errorf("%w: WithHeader: the key must not be empty", ErrBadOption)
		}
		if m.headers == nil {
			m.headers = make(map[string]string)
		}
		if m.headers[key] = value; len(m.headers) > maxHeaders {
			return fmt.Errorf("%w: WithHeader: more than %d headers: that is what a payload is for", ErrBadOption, maxHeaders)
		}
		return nil
	}
}
