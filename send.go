package delayqueue

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// noContextTimeout is how long a call without a context tries.
const noContextTimeout = 10 * time.Second

// An Outgoing is one message of a SendBatch.
type Outgoing struct {
	Payload string      // any bytes
	Options []MsgOption // as those of Send; nil: none
}

// A SendResult says what became of one message of a SendBatch: Info is set unless the
// message was not made at all, Err is nil if it was accepted and else a *SendError.
type SendResult struct {
	Info *MessageInfo
	Err  error
}

// A producer is the half of a queue that sends and takes back. DelayQueue and Publisher embed it. It is safe for
// concurrent use.
type producer struct {
	steerer
	defaultRetries int
	ids            idSource
	batcher        batcher
}

// newProducer makes a producer for call, which is what a panic names: it panics for what NewQueue panics for.
func newProducer(call, name string, cli redis.UniversalClient, opts []QueueOption) producer {
	if !validName(name) {
		panic(fmt.Sprintf("delayqueue: %s: name %q: %s", call, name, nameRule))
	}
	checkClient(call, name, cli)
	id := identity{prefix: "dq"}
	for i, opt := range opts {
		if opt == nil {
			panic(fmt.Sprintf("delayqueue: %s(%q): option %d is nil", call, name, i+1))
		}
		opt(&id)
	}
	st, ev := newStore(cli, id.prefix, name), new(events)
	return producer{steerer: steerer{store: st, events: ev}, defaultRetries: 3, ids: newIDSource(),
		batcher: batcher{store: st, events: ev, forgetOdds: defaultForgetOdds}}
}

// SendDelayMsg sends a message that is due after d, by the server's clock; zero or less
// means now. It gives up after 10 s without Redis; see Send for the errors.
func (p *producer) SendDelayMsg(payload string, d time.Duration, opts ...MsgOption) error {
	w, err := delayed(d)
	return p.sendAt(payload, w, err, opts)
}

// SendScheduleMsg sends a message that is due at t, the caller's wall clock read as an
// instant of the server's; the past means now. It gives up after 10 s without Redis;
// see Send for the errors.
func (p *producer) SendScheduleMsg(payload string, t time.Time, opts ...MsgOption) error {
	w, err := scheduled(t)
	return p.sendAt(payload, w, err, opts)
}

func (p *producer) sendAt(payload string, w when, err error, opts []MsgOption) error {
	p.made()
	l := newLoneSend()
	l.draft.when, l.draft.fixed, l.draft.put.timed = w, true, true
	if err != nil {
		return p.notMade(&l.draft, err)
	}
	if err := p.makeMessage(&l.item, payload, &l.draft, opts); err != nil {
		return err
	}
	p.batcher.send(p.timeout.context(noContextTimeout), &l.call)
	return p.sendError(&l.item)
}

// Send sends a message; WithDelay or WithSchedule says when it is due, else it is due now.
//
// It tries until ctx ends: a connection that fails is tried again, and a call whose reply
// was lost has the effect of one. While Redis is away that is in the log, once for each outage.
// With a context that never ends it returns only when there is an answer.
//
// An error is a *SendError, which says whether the message was stored, and names its id. In it:
// ErrBadOption, ErrDuplicateKey, ErrSequence, ErrPayloadTooLarge, ErrTooManyWaiting, ErrWrongType, what Redis
// answered, or ctx's error; and ErrNotReplicated, which by itself comes with the info of the message, for
// it was stored.
func (p *producer) Send(ctx context.Context, payload string, opts ...MsgOption) (*MessageInfo, error) {
	l := newLoneSend()
	m := &l.item
	if err := p.makeMessage(m, payload, &l.draft, opts); err != nil {
		return nil, err
	}
	p.batcher.send(ctx, &l.call)
	err := p.sendError(m)
	if err != nil && m.stored != StoredYes {
		return nil, err
	}
	info := m.info()
	return &info, err
}

// SendBatch sends messages with as few round trips as can be; it is not one transaction.
// There is a result for each message, in order. The error is nil if all were accepted; else
// errors.Is and errors.As find each failure in it, and its text shows the first few.
func (p *producer) SendBatch(ctx context.Context, batch []Outgoing) ([]SendResult, error) {
	results := make([]SendResult, len(batch))
	items := make([]batchItem, len(batch))
	infos := make([]MessageInfo, len(batch))
	made := make([]*batchItem, 0, len(batch))
	var d draft
	var last map[string]int64 // of each sequence
	for i := range batch {
		d = draft{}
		err := p.makeMessage(&items[i], batch[i].Payload, &d, batch[i].Options)
		if d.put.sequence != "" {
			if last == nil {
				last = make(map[string]int64)
			}
			put := d.put
			if bad := put.follows(last); bad == nil {
				items[i].put = &put // also of what is not sent: what stands behind it is not stored
			} else if err == nil {
				items[i], err = batchItem{}, p.notMade(&d, bad)
			}
		}
		if results[i].Err = err; err == nil {
			made = append(made, &items[i])
		}
	}
	p.batcher.send(ctx, &sendCall{items: made})
	var failed []error
	for i := range batch {
		if m := &items[i]; m.id != "" {
			infos[i] = m.info()
			results[i] = SendResult{Info: &infos[i], Err: p.sendError(m)}
		}
		if results[i].Err != nil {
			failed = append(failed, results[i].Err)
		}
	}
	if failed == nil {
		return results, nil
	}
	findStops(items, results)
	return results, &batchError{queue: p.store.queue, of: len(batch), failed: failed}
}

// sendError is the error of a message as the user gets it.
func (p *producer) sendError(m *batchItem) error {
	if m.err == nil {
		return nil
	}
	return &SendError{Queue: p.store.queue, ID: cmp.Or(m.holder, m.id), Key: m.key, Stored: m.stored, Err: m.err}
}

// notMade is the error of a message that gets no id.
func (p *producer) notMade(d *draft, err error) error {
	return &SendError{Queue: p.store.queue, Key: d.key, Stored: StoredNo, Err: err}
}

// makeMessage makes m of a draft. Without an error it has an id.
func (p *producer) makeMessage(m *batchItem, payload string, d *draft, opts []MsgOption) error {
	p.made()
	d.payload, d.retries = payload, p.defaultRetries
	if err := d.apply(opts); err != nil {
		return p.notMade(d, err)
	}
	if err := d.check(); err != nil {
		return p.notMade(d, err)
	}
	size := len(payload)
	for k, v := range d.headers {
		size += len(k) + len(v)
	}
	if err := fits(size); err != nil {
		return p.notMade(d, err)
	}
	m.id, m.key, m.when = p.ids.next(), d.key, d.when
	m.version, m.text = d.version(), d.encode(d.when)
	if d.put.wanted() {
		put := d.put
		m.put = &put
	}
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
