package delayqueue

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
)

// noContext is how long a call without a context tries.
const noContext = 10 * time.Second

// A sharedTimeout makes contexts that end when noContext has passed. Calls that begin within a tenth of
// a second share one, which is a fifth of what a send costs this process.
type sharedTimeout struct {
	mu    sync.Mutex
	ctx   context.Context
	until time.Time // shared until then
}

func (p *sharedTimeout) context() context.Context {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); now.After(p.until) {
		const shared = noContext / 100
		ctx, cancel := context.WithTimeout(context.Background(), shared+noContext)
		context.AfterFunc(ctx, cancel)
		p.ctx, p.until = ctx, now.Add(shared)
	}
	return p.ctx
}

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

// taking is what takes messages back. It is safe for concurrent use.
type taking struct {
	store   *store
	callers callers
	timeout sharedTimeout
	events  *events
	report  func(Event) // tells everybody what was done; nil: only this process is told
}

// sending is the half of a queue that sends and takes back. DelayQueue and Publisher
// embed it. It is safe for concurrent use.
//
// Concurrent sends share script calls: who finds a flight on the ground leaves with it at
// once; who comes while all are under way goes with the next.
type sending struct {
	taking
	defaultRetries int
	replicas       int
	replicaTimeout time.Duration
	ids            idSource
	sent           func(in time.Duration) // told how soon stored messages are due; nil if nobody listens

	sendMu  sync.Mutex
	waiting []*outgoing
	landed  []*caller // of flights that are not under way
	flights int       // how many there are, under way or not
	trouble error     // of the last attempt, if that failed
}

// maxFlights is how many script calls carry messages at a time: one is on the wire while the
// next is made up.
const maxFlights = 2

// outgoing is a message on its way to Redis.
type outgoing struct {
	id   string
	when when
	text string // its envelope, as encode makes it
	key  string
	call *sendCall

	// From here on guarded by sending.sendMu until the call is done.
	flying bool  // in a script call, so perhaps in Redis
	last   error // of the last attempt, if that failed
	due    time.Time
	err    error
}

// sendCall is one call of a user, with the messages that it waits for. All but ctx is
// guarded by sending.sendMu.
type sendCall struct {
	ctx  context.Context
	left int // messages without an outcome
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
	s.made()
	if err != nil {
		return fmt.Errorf("delayqueue: queue %q: %w", s.store.queue, err)
	}
	m := new(outgoing)
	if err := s.draft(m, payload, &draft{when: w, fixed: true}, opts); err != nil {
		return err
	}
	s.deliver(s.timeout.context(), m)
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
	m := new(outgoing)
	if err := s.draft(m, payload, new(draft), opts); err != nil {
		return nil, err
	}
	s.deliver(ctx, m)
	err := s.failure(m)
	if err != nil && !errors.Is(err, ErrNotReplicated) {
		return nil, err
	}
	return &MessageInfo{ID: m.id, Key: m.key, Due: m.due}, err
}

// SendBatch sends messages with as few round trips as can be; it is not one transaction.
// There is a result for each message, in order; the error joins their failures.
func (s *sending) SendBatch(ctx context.Context, batch []Outgoing) ([]SendResult, error) {
	results := make([]SendResult, len(batch))
	messages := make([]outgoing, len(batch))
	infos := make([]MessageInfo, len(batch))
	made := make([]*outgoing, 0, len(batch))
	var d draft
	for i := range batch {
		d = draft{}
		if results[i].Err = s.draft(&messages[i], batch[i].Payload, &d, batch[i].Options); results[i].Err == nil {
			made = append(made, &messages[i])
		}
	}
	s.deliver(ctx, made...)
	var errs []error
	for i := range batch {
		if m := &messages[i]; m.id != "" {
			infos[i] = MessageInfo{ID: m.id, Key: m.key, Due: m.due}
			results[i] = SendResult{Info: &infos[i], Err: s.failure(m)}
		}
		if results[i].Err != nil {
			errs = append(errs, results[i].Err)
		}
	}
	return results, errors.Join(errs...)
}

// failure is the message's error as the user gets it.
func (s *sending) failure(m *outgoing) error {
	if m.err == nil {
		return nil
	}
	return fmt.Errorf("delayqueue: queue %q: send message %s: %w", s.store.queue, m.id, m.err)
}

// draft makes m; without an error it has an id.
func (s *sending) draft(m *outgoing, payload string, d *draft, opts []MsgOption) error {
	s.made()
	d.payload, d.retries = payload, s.defaultRetries
	for i, opt := range opts {
		var err error
		if opt == nil {
			err = fmt.Errorf("%w: option %d is nil", ErrBadOption, i+1)
		} else {
			err = opt(d)
		}
		if err != nil {
			return fmt.Errorf("delayqueue: queue %q: %w", s.store.queue, err)
		}
	}
	size := len(payload)
	for k, v := range d.headers {
		size += len(k) + len(v)
	}
	if err := fits(size); err != nil {
		return fmt.Errorf("delayqueue: queue %q: %w", s.store.queue, err)
	}
	m.id, m.when, m.text, m.key = s.ids.next(), d.when, d.encode(d.when), d.key
	return nil
}

// maxPayload, headers included, keeps an envelope within Redis's proto-max-bulk-len of 512 MB.
const maxPayload = 511 << 20

func fits(size int) error {
	if size > maxPayload {
		return fmt.Errorf("%w: %d bytes with its headers, at most %d", ErrPayloadTooLarge, size, maxPayload)
	}
	return nil
}

// deliver sends the messages of one call and waits for their outcomes, or for ctx.
func (s *sending) deliver(ctx context.Context, msgs ...*outgoing) {
	if err := ended(ctx); err != nil {
		for _, m := range msgs {
			m.err = fmt.Errorf("not sent: %w", err)
		}
		return
	}
	if len(msgs) == 0 {
		return
	}
	call := &sendCall{ctx: ctx, left: len(msgs), done: make(chan struct{})}
	for _, m := range msgs {
		m.call = call
	}
	s.sendMu.Lock()
	s.waiting = append(s.waiting, msgs...)
	if n := len(s.landed); n > 0 {
		go s.fly(s.landed[n-1])
		s.landed = s.landed[:n-1]
	} else if s.flights < maxFlights {
		s.flights++
		go s.fly(newCaller())
	}
	s.sendMu.Unlock()
	s.await(call, msgs)
}

// await waits for the outcomes of a call's messages, or for its context.
func (s *sending) await(call *sendCall, msgs []*outgoing) {
	select {
	case <-call.done:
		return
	case <-call.ctx.Done():
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
			m.err = withLast(fmt.Errorf("may or may not have been accepted: %w", ended(call.ctx)), m.last)
		default:
			m.err = withLast(fmt.Errorf("not sent: %w", ended(call.ctx)), s.trouble)
		}
		m.call = nil
	}
}

// fly carries waiting messages to Redis until there are none.
func (s *sending) fly(c *caller) {
	for {
		s.sendMu.Lock()
		batch := s.board()
		if len(batch) == 0 {
			s.landed = append(s.landed, c)
			s.sendMu.Unlock()
			return
		}
		s.sendMu.Unlock()
		s.carry(c, batch)
		runtime.Gosched() // those whose messages have landed may have more: they go first, and go together
	}
}

// board takes the next batch out of those that wait, with sendMu held.
func (s *sending) board() []*outgoing {
	n, size := 0, 0
	for n < len(s.waiting) && n < maxBatch && (n == 0 || size+len(s.waiting[n].text) <= maxBatchBytes) {
		size += len(s.waiting[n].text)
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
// nobody waits for it any more. One caller's end is not the others': the call has no context.
func (s *sending) carry(c *caller, batch []*outgoing) {
	c.next()
	for attempt := 1; ; attempt++ {
		out, err := s.store.send(context.Background(), c, batch, s.replicas, s.replicaTimeout)
		if err == nil || errors.Is(err, ErrNotReplicated) || !worthRepeating(err, attempt) {
			s.land(batch, out, err)
			return
		}
		if !waitFor(s.failed(batch, err), backoff(attempt)) {
			return // everybody has left, with their context's error
		}
	}
}

// failed notes why an attempt failed, and returns the contexts of those who wait.
func (s *sending) failed(batch []*outgoing, err error) (waiting []context.Context) {
	s.sendMu.Lock()
	defer s.sendMu.Unlock()
	s.trouble = err
	for _, m := range batch {
		m.last = err
		if m.call != nil {
			waiting = append(waiting, m.call.ctx)
		}
	}
	return waiting
}

// ended is why ctx ended: its error, and its cause if that is another; nil while it lives.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == nil || errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// withLast adds to the end of a context why the last attempt failed, if one did.
func withLast(err, last error) error {
	if last == nil {
		return err
	}
	return fmt.Errorf("%w (last attempt: %w)", err, last)
}

// waitFor waits d and says whether any of these contexts is alive then.
func waitFor(ctxs []context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for _, ctx := range ctxs {
		select {
		case <-timer.C:
			return true
		case <-ctx.Done(): // on to the next one
		}
	}
	return false
}

// land hands out the outcomes of a batch.
func (s *sending) land(batch []*outgoing, out stored, err error) {
	soonest := int64(math.MaxInt64)
	var sent []string
	told := out.now != 0 && s.events.on()
	s.sendMu.Lock()
	s.trouble = nil
	for i, m := range batch {
		due := m.when.due(out.now)
		soonest = min(soonest, due)
		if told && out.refused[i] == "" {
			sent = append(sent, m.id)
		}
		if m.call == nil {
			continue // its caller left
		}
		m.err = err
		if holder, ok := out.refused[i]; ok {
			m.err = &DuplicateKeyError{Queue: s.store.queue, Key: m.key, ID: holder}
		} else if out.now != 0 {
			m.due = time.UnixMicro(due)
		}
		m.call.left--
		if m.call.left == 0 {
			close(m.call.done)
		}
		m.call = nil
	}
	s.sendMu.Unlock()
	s.events.tell(NewMessageEvent, len(sent), sent...)
	if out.now != 0 && s.sent != nil {
		s.sent(time.Duration(soonest-out.now) * time.Microsecond)
	}
}

// idSource makes UUIDv7s from buffered random bytes.
type idSource struct {
	mu     sync.Mutex
	random io.Reader
}

func newIDSource() idSource { return idSource{random: bufio.NewReader(rand.Reader)} }

func (s *idSource) next() string {
	s.mu.Lock()
	id, err := uuid.NewV7FromReader(s.random)
	s.mu.Unlock()
	if err != nil {
		panic(fmt.Sprintf("delayqueue: the system gives no random bytes: %v", err)) // crypto/rand never does this
	}
	return id.String()
}
