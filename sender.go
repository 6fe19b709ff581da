package delayqueue

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"
)

// noContext is how long a send without a context tries.
const noContext = 10 * time.Second

// An Outgoing is one message of a SendBatch.
type Outgoing struct {
	Payload string
	Options []MsgOption
}

// A SendResult says what became of one message of a SendBatch: Info is set unless the
// message was not made at all, Err is nil if it was accepted.
type SendResult struct {
	Info *MessageInfo
	Err  error
}

// sending is the half of a queue that sends and takes back. DelayQueue and Publisher
// embed it. It is safe for concurrent use.
//
// Concurrent sends share script calls: who finds no call under way starts one at once;
// who comes while one is under way goes with the next.
type sending struct {
	store          *store
	defaultRetries int
	replicas       int
	replicaTimeout time.Duration
	callers        callers
	ids            idSource
	sent           func(in time.Duration) // told how soon stored messages are due; nil if nobody listens

	sendMu  sync.Mutex
	waiting []*outgoing
	flights int // goroutines that carry messages
}

// maxFlights is how many script calls carry messages at a time: one is on the wire
// while the next is made up.
const maxFlights = 2

// outgoing is a message on its way to Redis.
type outgoing struct {
	id   string
	when string
	tail string
	key  string
	call *sendCall

	// From here on guarded by sending.sendMu until the call is done.
	flying bool  // in a script call, so perhaps in Redis
	last   error // of the last attempt, if that failed
	due    time.Time
	err    error
}

// sendCall is one call of a user, with the messages that it waits for.
type sendCall struct {
	ctx  context.Context
	left int // messages without an outcome, guarded by sending.sendMu
	done chan struct{}
}

// SendDelayMsg sends a message that is due after d, by the server's clock; zero or less
// means now. It gives up after 10 s without Redis; see Send for the errors.
func (s *sending) SendDelayMsg(payload string, d time.Duration, opts ...MsgOption) error {
	w, err := delayed(d)
	return s.sendAt(payload, w, err, opts)
}

// SendScheduleMsg sends a message that is due at t, the caller's wall clock read as an
// instant of the server's; the past means now. It gives up after 10 s without Redis;
// see Send for the errors.
func (s *sending) SendScheduleMsg(payload string, t time.Time, opts ...MsgOption) error {
	w, err := scheduled(t)
	return s.sendAt(payload, w, err, opts)
}

func (s *sending) sendAt(payload string, w when, err error, opts []MsgOption) error {
	if err != nil {
		return fmt.Errorf("delayqueue: queue %q: %w", s.store.queue, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), noContext)
	defer cancel()
	m, err := s.draft(payload, draft{when: w, fixed: true}, opts)
	if err != nil {
		return err
	}
	s.deliver(ctx, []*outgoing{m})
	return s.failure(m)
}

// Send sends a message; WithDelay or WithSchedule says when it is due, else it is due now.
//
// It tries until ctx ends: a connection that fails is tried again, and a call whose reply
// was lost has the effect of one. If ctx ends while the message is on the wire, it may
// have been accepted or not; the error names its id. Errors: ErrBadOption,
// ErrDuplicateKey, ErrPayloadTooLarge, ErrWrongType, what Redis answered, or ctx's; and
// ErrNotReplicated, with the info of the message, for it was stored.
func (s *sending) Send(ctx context.Context, payload string, opts ...MsgOption) (*MessageInfo, error) {
	m, err := s.draft(payload, draft{when: "+0"}, opts)
	if err != nil {
		return nil, err
	}
	s.deliver(ctx, []*outgoing{m})
	if err := s.failure(m); err != nil && !errors.Is(err, ErrNotReplicated) {
		return nil, err
	}
	return m.info(), s.failure(m)
}

// SendBatch sends messages with as few round trips as can be; it is not one transaction.
// There is a result for each message, in order; the error joins their failures.
func (s *sending) SendBatch(ctx context.Context, batch []Outgoing) ([]SendResult, error) {
	results := make([]SendResult, len(batch))
	made := make([]*outgoing, len(batch))
	var errs []error
	for i := range batch {
		var err error
		if made[i], err = s.draft(batch[i].Payload, draft{when: "+0"}, batch[i].Options); err != nil {
			results[i].Err = err
			errs = append(errs, err)
		}
	}
	s.deliver(ctx, slices.DeleteFunc(slices.Clone(made), func(m *outgoing) bool { return m == nil }))
	for i, m := range made {
		if m == nil {
			continue
		}
		results[i] = SendResult{Info: m.info(), Err: s.failure(m)}
		if results[i].Err != nil {
			errs = append(errs, results[i].Err)
		}
	}
	return results, errors.Join(errs...)
}

func (m *outgoing) info() *MessageInfo { return &MessageInfo{ID: m.id, Key: m.key, Due: m.due} }

// failure is the message's error as the user gets it.
func (s *sending) failure(m *outgoing) error {
	if m.err == nil {
		return nil
	}
	return fmt.Errorf("delayqueue: queue %q: send message %s: %w", s.store.queue, m.id, m.err)
}

// draft makes a message.
func (s *sending) draft(payload string, d draft, opts []MsgOption) (*outgoing, error) {
	d.payload, d.retries = payload, s.defaultRetries
	for i, opt := range opts {
		var err error
		if opt == nil {
			err = fmt.Errorf("%w: option %d is nil", ErrBadOption, i+1)
		} else {
			err = opt(&d)
		}
		if err != nil {
			return nil, fmt.Errorf("delayqueue: queue %q: %w", s.store.queue, err)
		}
	}
	size := len(payload)
	for k, v := range d.headers {
		size += len(k) + len(v)
	}
	if err := fits(size); err != nil {
		return nil, fmt.Errorf("delayqueue: queue %q: %w", s.store.queue, err)
	}
	return &outgoing{id: s.ids.next(), when: string(d.when), tail: d.tail(), key: d.key}, nil
}

// maxPayload, headers included, keeps an envelope within Redis's proto-max-bulk-len of 512 MB.
const maxPayload = 511 << 20

func fits(size int) error {
	if size > maxPayload {
		return fmt.Errorf("%w: %d bytes with its headers, at most %d", ErrPayloadTooLarge, size, maxPayload)
	}
	return nil
}

// deliver sends messages of one call and waits for their outcomes, or for ctx.
func (s *sending) deliver(ctx context.Context, msgs []*outgoing) {
	if len(msgs) == 0 {
		return
	}
	call := &sendCall{ctx: ctx, left: len(msgs), done: make(chan struct{})}
	for _, m := range msgs {
		m.call = call
	}
	if err := ended(ctx); err != nil {
		for _, m := range msgs {
			m.err = fmt.Errorf("not sent: %w", err)
		}
		return
	}
	s.sendMu.Lock()
	s.waiting = append(s.waiting, msgs...)
	if s.flights < maxFlights {
		s.flights++
		go s.fly()
	}
	s.sendMu.Unlock()

	select {
	case <-call.done:
		return
	case <-ctx.Done():
	}
	s.sendMu.Lock()
	defer s.sendMu.Unlock()
	if call.left == 0 {
		return
	}
	// What has not left yet never will; what is under way is out of our hands. Outcomes that
	// come later are dropped, for the user owns the results from here on.
	s.waiting = slices.DeleteFunc(s.waiting, func(m *outgoing) bool { return m.call == call })
	for _, m := range msgs {
		switch {
		case m.call == nil: // has its outcome
		case m.flying:
			m.err = fmt.Errorf("may or may not have been accepted: %w", ended(ctx))
			if m.last != nil {
				m.err = fmt.Errorf("%w (last attempt: %w)", m.err, m.last)
			}
		default:
			m.err = fmt.Errorf("not sent: %w", ended(ctx))
		}
		m.call = nil
	}
}

// fly carries waiting messages to Redis until there are none.
func (s *sending) fly() {
	for {
		s.sendMu.Lock()
		batch := s.board()
		if len(batch) == 0 {
			s.flights--
			s.sendMu.Unlock()
			return
		}
		s.sendMu.Unlock()
		s.carry(batch)
	}
}

// board takes the next batch out of those that wait, with sendMu held.
func (s *sending) board() []*outgoing {
	n, size := 0, 0
	for n < len(s.waiting) && n < maxBatch && (n == 0 || size+len(s.waiting[n].tail) <= maxBatchBytes) {
		size += len(s.waiting[n].tail)
		s.waiting[n].flying = true
		n++
	}
	batch := slices.Clone(s.waiting[:n])
	clear(s.waiting[:n])
	if s.waiting = s.waiting[n:]; len(s.waiting) == 0 {
		s.waiting = nil
	}
	return batch
}

// carry sends one batch, with repeats under one call number, until there is an answer or
// nobody waits for it any more.
func (s *sending) carry(batch []*outgoing) {
	calls := make([]*sendCall, len(batch)) // who waits; kept apart, for deliver clears m.call
	s.sendMu.Lock()
	for i, m := range batch {
		calls[i] = m.call
	}
	s.sendMu.Unlock()
	ctx := context.Background() // one caller's end is not the others'
	c, err := s.callers.get(ctx)
	if err != nil {
		s.land(batch, stored{}, err)
		return
	}
	defer s.callers.put(c)
	c.next()
	var out stored
	for attempt := 1; ; attempt++ {
		out, err = s.store.send(ctx, c, batch, s.replicas, s.replicaTimeout)
		if err == nil || errors.Is(err, ErrNotReplicated) || !transient(err) {
			break
		}
		s.sendMu.Lock()
		for _, m := range batch {
			m.last = err
		}
		s.sendMu.Unlock()
		if !waitFor(calls, backoff(attempt)) {
			return // everybody has left, with their context's error
		}
	}
	s.land(batch, out, err)
}

// ended is why ctx ended: its error, and its cause if that is another; nil while it lives.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == nil || errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// waitFor waits d and says whether anybody still waits for these calls.
func waitFor(calls []*sendCall, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for _, c := range calls {
		if c == nil {
			continue
		}
		select {
		case <-timer.C:
			return true
		case <-c.ctx.Done(): // on to the next one
		}
	}
	return false
}

// land hands out the outcomes of a batch.
func (s *sending) land(batch []*outgoing, out stored, err error) {
	if out.now != 0 && s.sent != nil {
		soonest := int64(math.MaxInt64)
		for _, m := range batch {
			soonest = min(soonest, dueOf(m.when, out.now)-out.now)
		}
		s.sent(time.Duration(soonest) * time.Microsecond)
	}
	s.sendMu.Lock()
	defer s.sendMu.Unlock()
	for i, m := range batch {
		if m.call == nil {
			continue // its caller left
		}
		m.err = err
		if holder, ok := out.refused[i]; ok {
			m.err = &DuplicateKeyError{Queue: s.store.queue, Key: m.key, ID: holder}
		} else if out.now != 0 {
			m.due = time.UnixMicro(dueOf(m.when, out.now))
		}
		m.call.left--
		if m.call.left == 0 {
			close(m.call.done)
		}
		m.call = nil
	}
}

// dueOf is the instant at which the send script made a message due.
func dueOf(when string, now int64) int64 {
	n, _ := strconv.ParseInt(when, 10, 64) // our own figure, with or without a +
	if when[0] == '+' {
		return now + n
	}
	return max(n, now)
}

// idSource makes UUIDv7s from buffered random bytes.
type idSource struct {
	mu     sync.Mutex
	random io.Reader
}

func newIDSource() idSource { return idSource{random: bufio.NewReader(rand.Reader)} }

func (s *idSource) next() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, err := uuid.NewV7FromReader(s.random)
	if err != nil {
		panic(fmt.Sprintf("delayqueue: the system gives no random bytes: %v", err)) // crypto/rand never does this
	}
	return id.String()
}
