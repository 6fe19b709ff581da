package delayqueue

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Monitor looks at a queue without taking part in it, and steers it (steer.go). It is safe for
// concurrent use, and each of its calls does bounded work however many messages there are. What only looks
// is tried three times while Redis cannot be reached; what changes something is tried until its context
// ends, with the effect of once. The errors name the queue.
type Monitor struct {
	taking
}

// NewMonitor makes a Monitor for the queue of this name. It panics as NewQueue does.
func NewMonitor(name string, cli redis.UniversalClient, opts ...QueueOption) *Monitor {
	s := newSending("NewMonitor", name, cli, opts)
	return &Monitor{taking{store: s.store, events: s.events}}
}

// readAttempts is how often a call that changes nothing is made.
const readAttempts = 3

// failed says which call failed.
func (m *Monitor) failed(err error, format string, args ...any) error {
	return fmt.Errorf("delayqueue: queue %q: %s: %w", m.store.queue, fmt.Sprintf(format, args...), err)
}

// Counts says how many messages of a queue are where. What is due counts as ready wherever it
// waits, so Pending and Retry are only what is not yet due.
type Counts struct {
	Pending int64
	Ready   int64
	Unack   int64 // being handled
	Retry   int64
	Garbage int64

	Behind  time.Duration // how long the oldest ready message has been waiting; 0: none is
	NextDue time.Time     // of what is pending or waits for a retry; zero: nothing is

	Paused      bool
	PausedUntil time.Time // zero: until Resume
}

// Counts is one script call of O(log n).
func (m *Monitor) Counts(ctx context.Context) (Counts, error) {
	var c Counts
	err := repeat(ctx, readAttempts, func() (err error) {
		c, err = m.store.counts(ctx)
		return err
	})
	if err != nil {
		return Counts{}, m.failed(err, "counts")
	}
	return c, nil
}

// GetPendingCount returns how many messages are not yet due; those that wait for a retry do not count.
func (m *Monitor) GetPendingCount(ctx context.Context) (int64, error) {
	c, err := m.Counts(ctx)
	return c.Pending, err
}

// GetReadyCount returns how many messages are due and not yet handed out.
func (m *Monitor) GetReadyCount(ctx context.Context) (int64, error) {
	c, err := m.Counts(ctx)
	return c.Ready, err
}

// GetProcessingCount returns how many messages are being handled.
func (m *Monitor) GetProcessingCount(ctx context.Context) (int64, error) {
	c, err := m.Counts(ctx)
	return c.Unack, err
}

// A MessageStatus is a message and where it is.
type MessageStatus struct {
	Message // Delivery and Failures are those of the next delivery, or of the current one
	State   State

	// At is when it is due (pending), when its next delivery is due (retry), when its lease ends
	// (unack), or when it died (garbage); zero if it is ready.
	At time.Time

	TTL       time.Duration // how long after Due its first delivery may begin (WithMsgTTL); 0: for ever
	Losses    int           // in a row
	LastError string        // "" if there was none
	EndedAt   time.Time     // when its last delivery ended; zero before the second one
	Consumer  string        // unack: the ID of the Consumer that is handling it, "" if that is not known (Get only)
	Broken    error         // its payload and headers cannot be read: a newer version of this library or another program wrote it
}

// statusOf reads an envelope and a fail record.
func statusOf(id string, state State, at int64, text, record string) *MessageStatus {
	e, err := decodeEnvelope(text)
	r := failRecord{delivery: 1}
	if record != "" {
		var rerr error
		if r, rerr = parseFail(record); rerr != nil {
			r.delivery = 1
		}
		err = errors.Join(err, rerr)
	}
	return &MessageStatus{
		Message: e.message(id, r.delivery, r.failures), State: state, At: instantTime(at),
		TTL: e.ttl, Losses: r.losses, LastError: r.text, EndedAt: instantTime(r.when), Broken: err,
	}
}

// Get finds one message by its id; nil means that it is nowhere.
func (m *Monitor) Get(ctx context.Context, id string) (*MessageStatus, error) {
	return m.look(ctx, "id", id)
}

// GetKey finds the live message that has this key; nil means that there is none.
func (m *Monitor) GetKey(ctx context.Context, key string) (*MessageStatus, error) {
	return m.look(ctx, "key", key)
}

func (m *Monitor) look(ctx context.Context, by, what string) (*MessageStatus, error) {
	var found *MessageStatus
	err := repeat(ctx, readAttempts, func() (err error) {
		found, err = m.store.look(ctx, by, what)
		return err
	})
	if err != nil {
		return nil, m.failed(err, "get %s %s", by, what)
	}
	return found, nil
}

// A Filter says which messages of a state are wanted, and how many at a time.
type Filter struct {
	From, To time.Time         // by MessageStatus.At, both included; zero: any. Not for StateReady
	Contains string            // in the payload
	Headers  map[string]string // the message has each of these, and its value contains this text
	Error    string            // in the last error
	Limit    int               // how many messages to look at for one page, at most 500; 0: 100
}

func (f *Filter) matches(m *MessageStatus) bool {
	for name, text := range f.Headers {
		if value, ok := m.Headers[name]; !ok || !strings.Contains(value, text) {
			return false
		}
	}
	return strings.Contains(m.Payload, f.Contains) && strings.Contains(m.LastError, f.Error)
}

// A Page is a part of a list.
type Page struct {
	Messages []*MessageStatus // may be fewer than asked for, even none, while Next is not ""
	Next     string           // the cursor of the page that follows; "" if there is none
	looked   int
}

// ErrBadCursor: that is no cursor of a Page.
var ErrBadCursor = errors.New("bad cursor")

// List returns a page of the messages in a state, in order of their time; cursor is "" for the
// first page, and then the Next of the page before. It looks at as many messages as the filter's Limit
// says and returns those that match, so a page may be empty although others follow.
//
// Messages move while they are listed: one that changes its state or its time between two
// pages may be missed or met twice.
func (m *Monitor) List(ctx context.Context, state State, f Filter, cursor string) (*Page, error) {
	page, err := m.page(ctx, state, f, cursor, false)
	if err != nil {
		return nil, m.failed(err, "list %s", state)
	}
	return page, nil
}

// All lists the messages in a state, page by page. It ends after the first error.
func (m *Monitor) All(ctx context.Context, state State, f Filter) iter.Seq2[*MessageStatus, error] {
	return func(yield func(*MessageStatus, error) bool) {
		for cursor := ""; ; {
			page, err := m.List(ctx, state, f, cursor)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, msg := range page.Messages {
				if !yield(msg, nil) {
					return
				}
			}
			if cursor = page.Next; cursor == "" {
				return
			}
		}
	}
}

// A position is where a page ended; a cursor is that, in JSON.
type position struct {
	Place int    `json:"p,omitempty"`
	Score string `json:"s,omitempty"`
	Tag   string `json:"t,omitempty"`
}

// pageSize is how many messages are looked at for one page.
const pageSize = 100

func (m *Monitor) page(ctx context.Context, state State, f Filter, cursor string, back bool) (*Page, error) {
	var at position
	if cursor != "" {
		if err := json.Unmarshal([]byte(cursor), &at); err != nil {
			return nil, fmt.Errorf("%w %q: %w", ErrBadCursor, cursor, err)
		}
	}
	places, err := m.places(state, f)
	if err != nil {
		return nil, err
	}
	if at.Place < 0 || at.Place >= len(places) {
		return nil, fmt.Errorf("%w %q", ErrBadCursor, cursor)
	}
	limit := min(cmp.Or(max(f.Limit, 0), pageSize), maxBatch)
	var got listed
	err = repeat(ctx, readAttempts, func() (err error) {
		got, err = m.store.list(ctx, places[at.Place], limit, at.Score, at.Tag, back)
		return err
	})
	if err != nil {
		return nil, err
	}
	page := &Page{looked: len(got.messages), Messages: slices.DeleteFunc(got.messages, func(msg *MessageStatus) bool { return !f.matches(msg) })}
	next := position{Place: at.Place, Score: got.score, Tag: got.tag}
	if !got.full {
		next = position{Place: at.Place + 1}
	}
	if next.Place < len(places) {
		text, err := json.Marshal(next)
		if err != nil {
			return nil, err
		}
		page.Next = string(text)
	}
	return page, nil
}

// places are the structures in which messages of a state wait.
func (m *Monitor) places(state State, f Filter) ([]place, error) {
	k := &m.store.keys
	from, to := "-inf", "+inf"
	if !f.From.IsZero() {
		from = fmt.Sprint(f.From.UnixMicro())
	}
	if !f.To.IsZero() {
		to = fmt.Sprint(f.To.UnixMicro())
	}
	switch state {
	case StatePending:
		return []place{{k.pending, state, from, to, "later"}}, nil
	case StateRetry:
		return []place{{k.retry, state, from, to, "later"}}, nil
	case StateUnack:
		return []place{{k.unack, state, from, to, ""}}, nil
	case StateGarbage:
		return []place{{k.garbage, state, from, to, ""}}, nil
	case StateReady:
		if from != "-inf" || to != "+inf" {
			return nil, fmt.Errorf("%w: From and To are not for %s", ErrBadOption, state)
		}
		return []place{{k.ready, state, from, to, ""}, {k.retry, state, from, to, "due"}, {k.pending, state, from, to, "due"}}, nil
	default:
		return nil, fmt.Errorf("%w: state %s has no messages", ErrBadOption, state)
	}
}

// A Tally is what was counted in an hour or a day.
type Tally struct {
	Start     time.Time // in UTC
	Sent      int64
	Delivered int64 // deliveries handed out
	Acked     int64
	Failed    int64 // deliveries that failed
	Lost      int64 // deliveries whose lease ran out
	Garbage   int64 // messages that went to garbage
}

func (t *Tally) count(what string, n int64) {
	switch what {
	case "sent":
		t.Sent += n
	case "delivered":
		t.Delivered += n
	case "acked":
		t.Acked += n
	case "failed":
		t.Failed += n
	case "lost":
		t.Lost += n
	case "dead":
		t.Garbage += n
	}
}

func (t *Tally) add(o *Tally) {
	t.Sent += o.Sent
	t.Delivered += o.Delivered
	t.Acked += o.Acked
	t.Failed += o.Failed
	t.Lost += o.Lost
	t.Garbage += o.Garbage
}

// A Span is the length of time that a Tally counts.
type Span int64

// What History can count by, in hours.
const (
	Hourly Span = 1
	Daily  Span = 24
)

// historyDays is how long history goes back.
const historyDays = 30

// History returns what was counted in each of the last n hours or days, the oldest first; the last
// one is the present one, not yet over. It goes back 30 days; hours and days are those of UTC and of the
// server's clock.
func (m *Monitor) History(ctx context.Context, by Span, n int) ([]Tally, error) {
	if by != Hourly && by != Daily {
		return nil, m.failed(fmt.Errorf("%w: %d: use Hourly or Daily", ErrBadOption, by), "history")
	}
	var now int64
	var hours map[int64]*Tally
	err := repeat(ctx, readAttempts, func() (err error) {
		now, hours, err = m.store.history(ctx)
		return err
	})
	if err != nil {
		return nil, m.failed(err, "history")
	}
	last := now / time.Hour.Microseconds() / int64(by) // span that is not yet over
	n = max(min(n, historyDays*24/int(by)), 0)
	out := make([]Tally, n)
	for i := range out {
		out[i].Start = time.Unix((last-int64(n-1-i))*int64(by)*3600, 0).UTC()
	}
	for hour, t := range hours {
		if i := n - 1 - int(last-hour/int64(by)); i >= 0 && i < n {
			out[i].add(t)
		}
	}
	return out, nil
}

// Queues finds the queues under a prefix (UseCustomPrefix; dq without it), in no order, a page of the
// keyspace at a time: it takes as long as the server has keys. It ends after the first error.
func Queues(ctx context.Context, cli redis.UniversalClient, opts ...QueueOption) iter.Seq2[string, error] {
	id := identity{prefix: "dq"}
	for _, opt := range opts {
		opt(&id)
	}
	return func(yield func(string, error) bool) {
		queues(ctx, cli, id.prefix, func(name string, err error) bool {
			if err != nil {
				err = fmt.Errorf("delayqueue: queues of prefix %q: %w", id.prefix, err)
			}
			return yield(name, err)
		})
	}
}
