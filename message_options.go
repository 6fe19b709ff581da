package delayqueue

import (
	"fmt"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// A MsgOption sets something of one message. Options are applied in order; the last one wins.
type MsgOption func(*draft) error

// draft is a message that is being made.
type draft struct {
	message.Envelope
	when  message.When
	fixed bool // the call itself sets when the message is due
	put   script.PutOptions

	counted bool // a countdown was said, perhaps of 0 acks
}

const (
	minRetention = time.Second
	maxRetention = 90 * 24 * time.Hour
)

// WithDelay makes the message due after d, by the server's clock. Zero or less means now. More than 150 years is an
// error. If d is below 1ms, the log asks whether its unit is missing, at most once a minute. For an instant there is
// WithSchedule. It is an option of Send, SendBatch, Call and Then, and an error elsewhere.
func WithDelay(d time.Duration) MsgOption {
	w, err := message.Delayed(d)
	return func(m *draft) error { return m.setWhen("WithDelay", w, err) }
}

// WithSchedule makes the message due at t, which is read as an instant of the server's clock. The past means now. The
// year 2200 or later is an error. So is a time before 1900, such as the zero time, or a number that wrapped. It is an
// option of Send, SendBatch, Call and Then, and an error elsewhere.
func WithSchedule(t time.Time) MsgOption {
	w, err := message.Scheduled(t)
	return func(m *draft) error { return m.setWhen("WithSchedule", w, err) }
}

func (m *draft) setWhen(option string, w message.When, err error) error {
	if m.fixed {
		return fmt.Errorf("%w: %s: this call already says when; use Send or SendBatch", ErrBadOption, option)
	}
	m.when, m.put.Timed = w, true
	return err
}

// WithRetryCount sets how many failures are followed by another delivery. The next failure
// makes the message garbage. 0 or less means one delivery. Default: WithDefaultRetryCount.
func WithRetryCount(n int) MsgOption {
	return func(m *draft) error {
		m.Retries = max(n, 0)
		return nil
	}
}

// WithKey gives the message a key (order-42) of 1 to 512 bytes, not all of them blanks. While a message with that key
// is live, a second send with the key is refused with ErrDuplicateKey (Refuse, the default). With another Conflict it
// keeps, replaces, reschedules or appends to the first message: see Conflict.
//
// The key is free again when the message is acked, intercepted or garbage. WithKeyHold keeps it taken for a while
// after the ack. A batch with one key twice is two sends in order.
func WithKey(key string, on ...Conflict) MsgOption {
	return func(m *draft) (err error) {
		if err := checkKeyBytes("WithKey", key); err != nil {
			return err
		}
		m.Key, m.put.PayloadKey = key, false
		m.put.On, err = oneConflict("WithKey", on)
		return err
	}
}

// WithLane gives the message a lane: a name of 1 to 200 bytes without NUL, such as "customer-42". Messages of one
// lane are handled one after the other, in the order of their due instants, and at one instant in the order in which
// they were sent by the clocks of the senders. They are handled beside all other messages. With a width from 2 to
// 100, at most so many messages of the lane are handled at a time, and begin in about that order.
//
//   - A message has its turn until it is acked, garbage or taken out. So a message that failed or was snoozed comes
//     again before those behind it, however long it waits. Again ends the turn, and so does a call that makes the
//     message due later, or gives it another lane or width.
//   - A message that is not due yet stands in nobody's way.
//   - A message that gets its turn comes behind all messages that are due already. So while a backlog waits for
//     workers, a lane handles as many messages as it is wide, and then the rest of the backlog comes first.
//   - If the consumer that handles a message dies, the message comes first again when its lease is over.
//   - If messages of a lane have different widths, the smallest width holds of those that have a turn, and of the
//     next. Logs say so once.
//   - Order and number hold as far as leases do. A handler that runs on after its lease was lost, after Cancel or
//     past its limit runs beside the next one.
//   - A TTL (WithMsgTTL) and a deadline go on while the message waits for its turn.
//   - Messages that wait behind others of their lane cost about 200 bytes more of Redis's memory.
func WithLane(name string, width ...int) MsgOption {
	return func(m *draft) error {
		l := message.Lane{Name: name, Width: 1}
		if len(width) > 0 {
			l.Width = width[0]
		}
		switch {
		case len(width) > 1:
			return fmt.Errorf("%w: WithLane(%q, %v): a lane has one width", ErrBadOption, name, width)
		case l.Width < 1 || l.Width > message.MaxWidth:
			return fmt.Errorf("%w: WithLane(%q, %d): a width is from 1 to %d", ErrBadOption, name, l.Width, message.MaxWidth)
		case !l.Valid():
			return fmt.Errorf("%w: WithLane(%.300q): %d bytes: a name has 1 to %d, and no NUL", ErrBadOption, name, len(name),
				message.MaxLane)
		}
		m.Lane = l
		return nil
	}
}

// WithMsgTTL bounds lateness: a message that could not be handed out for the first time within d after its due
// instant goes to garbage (ErrExpired). It does not bind a message that was handed out once, even if no handler
// started; WithDeadline does. A send that replaces or reschedules the message starts the time anew (WithKey). d must
// be at least 1ms. Default: none, a message waits for ever.
func WithMsgTTL(d time.Duration) MsgOption {
	return func(m *draft) error {
		if d < message.MinDuration {
			return fmt.Errorf("%w: WithMsgTTL(%v): must be at least 1ms%s", ErrBadOption, d, message.UnitHint(d))
		}
		m.TTL = d
		return nil
	}
}

// WithTimeout sets how long a handler of this message may run, in place of the queue's WithMaxConsumeDuration: at
// least 1ms, at most 150 years; 0 means any time. It is the Deadline of the handler's context.
func WithTimeout(d time.Duration) MsgOption {
	return func(m *draft) error {
		if d != 0 && (d < message.MinDuration || d > message.MaxDelay) {
			return fmt.Errorf("%w: WithTimeout(%v): must be at least 1ms and at most 150 years; 0 means no limit%s",
				ErrBadOption, d, message.UnitHint(d))
		}
		if m.Timeout = d.Truncate(time.Microsecond); d == 0 {
			m.Timeout = message.NoTimeout
		}
		return nil
	}
}

// WithDeadline sets an instant t, by the server's clock, from which on the message is neither delivered nor retried.
// Default: none.
//
//   - A handler that is at work at t is cut off, as by WithMaxConsumeDuration.
//   - If the next delivery would be at t or later (after a failure, Snooze or Again), the message goes to garbage at
//     once.
//   - If the message comes again all the same (its consumer died, or it was rescheduled or requeued), it goes to
//     garbage when it would be handed out.
//
// The reason is ErrExpired around the last error. t must be after the instant at which the message is due, and before
// the year 2200. The send checks that by its own clock (ErrBadOption). A Replace without a delay or a schedule does not
// know when the other message is due, so it compares t with now. If the other message is due at t or later, it goes to
// garbage when it is due.
func WithDeadline(t time.Time) MsgOption {
	return func(m *draft) error {
		if t.IsZero() {
			return fmt.Errorf("%w: WithDeadline: the zero time, which nobody has set", ErrBadOption)
		}
		if !t.Before(message.MaxDue) || t.Before(message.MinDue) {
			return fmt.Errorf("%w: WithDeadline(%v): must be before the year 2200, and not before 1900", ErrBadOption, t)
		}
		m.Deadline = max(t.UnixMicro(), 1)
		return nil
	}
}

// apply applies all options, and returns the first error. It goes on after an error, because messages behind a
// numbered message must know its number.
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

// check refuses options that contradict each other.
func (m *draft) check() error {
	if err := m.checkCountdown(); err != nil {
		return err
	}
	if err := m.checkKey(); err != nil {
		return err
	}
	if m.Deadline != 0 {
		if due := m.when.Due(time.Now().UnixMicro()); m.Deadline <= due {
			return fmt.Errorf("%w: WithDeadline(%v): the message is due at %v (WithDelay, WithSchedule, or else now), "+
				"and nothing is delivered from its deadline on",
				ErrBadOption, time.UnixMicro(m.Deadline), time.UnixMicro(due))
		}
	}
	return nil
}

// WithRetention keeps the message for d after its ack, 1 s to 90 days. Then it is done (StateDone): it can be looked
// at and awaited (Await), with the result that its handler has set (SetResult). Its key is free as after any ack.
// Default, and 0: an acked message is deleted at once.
//
// A queue keeps 100,000 such messages in Redis's memory, so for results of 1 MB WithDoneLimit should be smaller.
// Consumers delete messages whose time is over. d does not matter for garbage, which WithGarbageRetention bounds.
func WithRetention(d time.Duration) MsgOption {
	return func(m *draft) error {
		if d != 0 && (d < minRetention || d > maxRetention) {
			return fmt.Errorf("%w: WithRetention(%v): 0, or %v to %v (90 days)%s",
				ErrBadOption, d, minRetention, maxRetention, message.UnitHint(d))
		}
		m.Retention = d
		return nil
	}
}

// WithHeader adds a header, which travels with the message beside its payload. A message has at most 10,000 headers.
// Values of the context of a send do not travel: send them as headers.
func WithHeader(key, value string) MsgOption {
	return func(m *draft) error {
		if key == "" {
			return fmt.Errorf("%w: WithHeader: the key must not be empty", ErrBadOption)
		}
		if m.Headers == nil {
			m.Headers = make(map[string]string)
		}
		if m.Headers[key] = value; len(m.Headers) > message.MaxHeaders {
			return fmt.Errorf("%w: WithHeader: more than %d headers: that is what a payload is for", ErrBadOption,
				message.MaxHeaders)
		}
		return nil
	}
}
