package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// noContext is how long a call without a context tries.
const noContext = 10 * time.Second

// A sharedTimeout makes contexts that end when some time has passed, always the same, or up to a hundredth more.
// Those that are made within that hundredth share one, which is a fifth of what a send costs this process.
type sharedTimeout struct {
	mu    sync.Mutex
	ctx   context.Context
	until time.Time // shared until then
}

func (p *sharedTimeout) context(d time.Duration) context.Context {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); now.After(p.until) {
		shared := d / 100
		ctx, cancel := context.WithTimeout(context.Background(), shared+d)
		context.AfterFunc(ctx, cancel)
		p.ctx, p.until = sharedContext{ctx}, now.Add(shared)
	}
	return p.ctx
}

type sharedContext struct{ context.Context }

// mine says whether ctx is one of these.
func (*sharedTimeout) mine(ctx context.Context) bool {
	_, ok := ctx.(sharedContext)
	return ok
}

// An Outgoing is one message of a SendBatch.
type Outgoing struct {
	Payload string
	Options []MsgOption
}

// A SendResult says what became of one message of a SendBatch: Info is set unless the
// message was not made at all, Err is nil if it was accepted and else a *SendError.
type SendResult struct {
	Info *MessageInfo
	Err  error
}

// taking is what takes messages back. It is safe for concurrent use.
type taking struct {
	store   *store
	calls   limitedCalls
	timeout sharedTimeout
	events  *events
	report  func(Event) // tells everybody what was done; nil: only this process is told
}

// sending is the half of a queue that sends and takes back. DelayQueue and Publisher
// embed it. It is safe for concurrent use.
type sending struct {
	taking
	defaultRetries int
	replicas       int
	replicaTimeout time.Duration
	ids            idSource
	sent           func(in time.Duration) // told how soon stored messages are due; nil if nobody listens

	flights
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
	l := newLone()
	l.draft.when, l.draft.fixed = w, true
	if err != nil {
		return s.notMade(&l.draft, err)
	}
	if err := s.draft(&l.msg, payload, &l.draft, opts); err != nil {
		return err
	}
	s.deliver(s.timeout.context(noContext), &l.call)
	return s.failure(&l.msg)
}

// Send sends a message; WithDelay or WithSchedule says when it is due, else it is due now.
//
// It tries until ctx ends: a connection that fails is tried again, and a call whose reply
// was lost has the effect of one. While Redis is away that is in the log, once for each outage.
// With a context that never ends it returns only when there is an answer.
//
// An error is a *SendError, which says whether the message was stored, and names its id. In it:
// ErrBadOption, ErrDuplicateKey, ErrPayloadTooLarge, ErrTooManyWaiting, ErrWrongType, what Redis
// answered, or ctx's error; and ErrNotReplicated, which alone comes with the info of the message, for
// it was stored.
func (s *sending) Send(ctx context.Context, payload string, opts ...MsgOption) (*MessageInfo, error) {
	l := newLone()
	m := &l.msg
	if err := s.draft(m, payload, &l.draft, opts); err != nil {
		return nil, err
	}
	s.deliver(ctx, &l.call)
	err := s.failure(m)
	if err != nil && !errors.Is(err, ErrNotReplicated) {
		return nil, err
	}
	return &MessageInfo{ID: m.id, Key: m.key, Due: m.due}, err
}

// SendBatch sends messages with as few round trips as can be; it is not one transaction.
// There is a result for each message, in order. The error is nil if all were accepted; else
// errors.Is and errors.As find each failure in it, and its text shows the first few.
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
	s.deliver(ctx, &sendCall{msgs: made})
	var failed []error
	for i := range batch {
		if m := &messages[i]; m.id != "" {
			infos[i] = MessageInfo{ID: m.id, Key: m.key, Due: m.due}
			results[i] = SendResult{Info: &infos[i], Err: s.failure(m)}
		}
		if results[i].Err != nil {
			failed = append(failed, results[i].Err)
		}
	}
	if failed == nil {
		return results, nil
	}
	return results, &batchError{queue: s.store.queue, of: len(batch), failed: failed}
}

// failure is the message's error as the user gets it.
func (s *sending) failure(m *outgoing) error {
	if m.err == nil {
		return nil
	}
	return &SendError{Queue: s.store.queue, ID: m.id, Key: m.key, Stored: m.stored, Err: m.err}
}

// notMade is the error of a message that does not get as far as an id.
func (s *sending) notMade(d *draft, err error) error {
	return &SendError{Queue: s.store.queue, Key: d.key, Stored: StoredNo, Err: err}
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
			return s.notMade(d, err)
		}
	}
	size := len(payload)
	for k, v := range d.headers {
		size += len(k) + len(v)
	}
	if err := fits(size); err != nil {
		return s.notMade(d, err)
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
