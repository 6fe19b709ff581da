package delayqueue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/produce"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/internal/shard"
	"github.com/go-delayqueue/delayqueue/internal/userlog"
	"github.com/redis/go-redis/v9"
)

// An Outgoing is one message of a SendBatch.
type Outgoing struct {
	Payload string      // any bytes
	Options []MsgOption // the options that Send takes; nil: none
}

// A SendResult says what became of one message of a SendBatch. Info is nil if the message was refused before it was
// made. Err is nil if the message was accepted, and else a *SendError.
type SendResult struct {
	Info *MessageInfo
	Err  error
}

// A producer is the half of a queue that sends and takes back. DelayQueue and Publisher embed it. It is safe for
// concurrent use.
type producer struct {
	steerer
	defaultRetries int
	ids            message.IdSource
	sender         produce.Sender
	units          message.UnitQuestion
}

// newProducer makes a producer. It panics as NewQueue does, and the panic names call.
func newProducer(call, name string, cli redis.UniversalClient, opts []QueueOption) producer {
	if !script.ValidName(name) {
		panic(fmt.Sprintf("delayqueue: %s: name %q: %s", call, name, script.NameRule))
	}
	link.CheckClient(call, name, cli)
	id := identity{prefix: "dq"}
	for i, opt := range opts {
		if opt == nil {
			panic(fmt.Sprintf("delayqueue: %s(%q): option %d is nil", call, name, i+1))
		}
		opt(&id)
	}
	st, ev := script.NewStore(cli, id.prefix, name), new(events)
	all := shard.New(st, id.shards)
	settings := &produce.Settings{Events: ev, ForgetOdds: produce.DefaultForgetOdds}
	return producer{steerer: steerer{store: all, events: ev}, defaultRetries: 3, ids: message.NewIDSource(),
		sender: produce.Sender{Queue: all, Batcher: produce.Batcher{Settings: settings, Store: st}}}
}

// route says where a message goes by its names: its key, its lane, its sequence, and the key for whose countdown it
// counts.
func (d *draft) route() (r produce.Route) {
	for _, name := range [...]string{d.Key, d.Lane.Name, d.put.Sequence, d.Counts} {
		switch {
		case name == "":
		case r.Name == "":
			r.Name = name
		case r.Err == nil && script.HashTag(name) != script.HashTag(r.Name):
			r.Err = fmt.Errorf(
				"%w: the names %q and %q lie in different shards (WithShards): with braces only what is between them counts, as "+
					"in %q",
				ErrBadOption, r.Name, name, "{"+script.HashTag(r.Name)+"}"+name)
		}
	}
	return r
}

// A Publisher is the sending half of a queue, for a process that does not consume. It sends, takes back (Intercept,
// Cancel), reschedules, and reports events as a DelayQueue does, and is safe for concurrent use.
type Publisher struct {
	producer
}

// NewPublisher makes a Publisher for the queue of this name. It panics as NewQueue does.
func NewPublisher(name string, cli redis.UniversalClient, opts ...QueueOption) *Publisher {
	return &Publisher{newProducer("NewPublisher", name, cli, opts)}
}

// WithDefaultRetryCount sets the retry count of messages that this Publisher sends without WithRetryCount. Default 3;
// 0 means one delivery. The sender of a message decides how often it is retried, so the setting of a consumer does
// not count. Call WithDefaultRetryCount before the first send.
func (p *Publisher) WithDefaultRetryCount(n int) *Publisher {
	must(fmt.Sprintf("WithDefaultRetryCount(%d)", n), n >= 0, notNegative)
	p.defaultRetries = n
	return p
}

// WithLogger sets the log for outages while sending; see DelayQueue.WithLogger. Default: slog.Default. Call it
// before the first send.
func (p *Publisher) WithLogger(log *slog.Logger) *Publisher {
	must("WithLogger", log != nil, loggerRule)
	p.made()
	p.events.log.Store(userlog.Contain(log))
	return p
}

// WithReplicaAck is DelayQueue.WithReplicaAck. Call it before the first send.
func (p *Publisher) WithReplicaAck(n int, timeout time.Duration) *Publisher {
	must(fmt.Sprintf("WithReplicaAck(%d, %v)", n, timeout), validReplicaAck(n, timeout), replicaAckRule)
	p.sender.Replicas, p.sender.ReplicaTimeout = n, timeout
	return p
}

// A loneSend has everything that a call for one message needs once the message is made, in one allocation.
type loneSend struct {
	item  produce.BatchItem
	call  produce.SendCall
	items [1]*produce.BatchItem
	route produce.Route
}

// drafts are those that no call has. All are zero.
var drafts = sync.Pool{New: func() any { return new(draft) }}

// makeLone makes a lone send of a draft from drafts, and puts the draft back.
func (p *producer) makeLone(payload string, d *draft, opts []MsgOption) (*loneSend, error) {
	l := new(loneSend)
	if err := p.makeMessage(&l.item.SendMessage, payload, d, opts); err != nil {
		return nil, err
	}
	l.route = d.route()
	*d = draft{}
	drafts.Put(d)
	l.items[0] = &l.item
	l.call.Items = l.items[:]
	return l, nil
}

// SendDelayMsg sends a message that is due after d, by the server's clock. Zero or less
// means now. It gives up after 10 s without Redis. See Send for the errors.
func (p *producer) SendDelayMsg(payload string, d time.Duration, opts ...MsgOption) error {
	w, err := message.Delayed(d)
	return p.sendAt(payload, w, err, opts)
}

// SendScheduleMsg sends a message that is due at t, which is read as an instant of the server's clock. The past means
// now. It gives up after 10 s without Redis. See Send for the errors.
func (p *producer) SendScheduleMsg(payload string, t time.Time, opts ...MsgOption) error {
	w, err := message.Scheduled(t)
	return p.sendAt(payload, w, err, opts)
}

func (p *producer) sendAt(payload string, w message.When, err error, opts []MsgOption) error {
	p.made()
	if err != nil {
		return p.notMade(err)
	}
	d := drafts.Get().(*draft)
	d.when, d.fixed, d.put.Timed = w, true, true
	l, err := p.makeLone(payload, d, opts)
	if err != nil {
		return err
	}
	p.sender.SendOne(p.timeout.Context(produce.NoContextTimeout), &l.call, &l.item, l.route)
	return p.sendError(&l.item)
}

// Send sends a message, which is due now unless WithDelay or WithSchedule sets another time.
//
// It tries until ctx ends: a connection that fails is tried again, and a call that is repeated within an hour has the
// effect of one. Each outage of Redis is in the log once. With a context that never ends, Send waits for as long as
// Redis is away.
//
// An error is a *SendError, which says whether the message was stored, and names its id. It wraps ErrBadOption,
// ErrDuplicateKey, ErrSequence, ErrPayloadTooLarge, ErrTooManyWaiting, ErrWrongType, ErrClusterNode,
// ErrNotReplicated, an answer of Redis, or ctx's error. The MessageInfo comes beside the error if the message was
// stored (ErrNotReplicated).
func (p *producer) Send(ctx context.Context, payload string, opts ...MsgOption) (*MessageInfo, error) {
	l, err := p.makeLone(payload, drafts.Get().(*draft), opts)
	if err != nil {
		return nil, err
	}
	m := &l.item
	p.sender.SendOne(ctx, &l.call, m, l.route)
	err = p.sendError(m)
	if err != nil && m.Stored != produce.StoredYes {
		return nil, err
	}
	info := infoOf(m)
	return &info, err
}

// SendBatch sends messages with as few round trips as possible. It is not one transaction. There is a result for each
// message, in order. The error is nil if all messages were accepted. Else errors.Is and errors.As find each failure
// in the error, and its text shows the first three. Besides the errors of Send there is ErrSequenceStopped.
func (p *producer) SendBatch(ctx context.Context, batch []Outgoing) ([]SendResult, error) {
	results := make([]SendResult, len(batch))
	items := make([]produce.BatchItem, len(batch))
	infos := make([]MessageInfo, len(batch))
	made, routes := make([]*produce.BatchItem, 0, len(batch)), make([]produce.Route, 0, len(batch))
	var d draft
	last := maps.Clone(script.Reached(ctx)) // of each sequence
	for i := range batch {
		d = draft{}
		err := p.makeMessage(&items[i].SendMessage, batch[i].Payload, &d, batch[i].Options)
		if d.put.Sequence != "" {
			if last == nil {
				last = make(map[string]int64)
			}
			put := d.put
			if bad := follows(&put, last); bad == nil {
				items[i].Put = &put // also of a message that is not sent, because messages behind it are not stored then
			} else if err == nil {
				items[i], err = produce.BatchItem{}, p.notMade(bad)
			}
		}
		if results[i].Err = err; err == nil {
			made, routes = append(made, &items[i]), append(routes, d.route())
		}
	}
	p.sender.SendAll(ctx, made, routes)
	var failed []error
	for i := range batch {
		if m := &items[i]; m.ID != "" {
			infos[i] = infoOf(m)
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
	return results, &batchError{queue: p.store.Queue, of: len(batch), failed: failed}
}

// sendError is the error of a message as the user gets it.
func (p *producer) sendError(m *produce.BatchItem) error {
	err := p.refusal(m)
	if err == nil {
		return nil
	}
	return &SendError{Queue: p.store.Queue, ID: cmp.Or(keptFor(m), m.ID), Stored: Stored(m.Stored), Err: err}
}

// refusal is why a message was refused, or its send failed.
func (p *producer) refusal(m *produce.BatchItem) error {
	switch answer := &m.Answer; answer.Kind {
	case script.AnswerTaken:
		return refusedFor(&DuplicateKeyError{Key: m.Key, ID: answer.Holder, Held: answer.Held}, m.Err)
	case script.AnswerPassed:
		return refusedFor(&SequenceError{Last: answer.Last, name: m.Put.Sequence, n: m.Put.Number}, m.Err)
	case script.AnswerStopped:
		return &SequenceError{Last: m.Put.After, name: m.Put.Sequence, n: m.Put.Number, stopped: true}
	default:
		return m.Err
	}
}

// keptFor is the id of the message that is there in place of m; "" if m itself is there, or no message.
func keptFor(m *produce.BatchItem) string {
	if m.Answer.Kind == script.AnswerKept {
		return m.Answer.Holder
	}
	return ""
}

// infoOf names the message that is there.
func infoOf(m *produce.BatchItem) MessageInfo {
	info := MessageInfo{ID: m.ID, Key: m.Key}
	if m.Stored == produce.StoredYes {
		info.Due = message.InstantTime(m.Answer.Due)
	}
	if there := keptFor(m); there != "" {
		info.ID, info.Existed = there, true
	}
	return info
}

// refusedFor is the error of a message that was refused because of another message. replicated is nil, or says that
// too few replicas have the other message: a failover may forget it, and the refused message is nowhere then.
func refusedFor(refusal, replicated error) error {
	if replicated == nil {
		return refusal
	}
	return fmt.Errorf("%w (of what is there: %w)", refusal, replicated)
}

// findStops names in the errors of a batch's messages the number at which each sequence stopped.
func findStops(items []produce.BatchItem, results []SendResult) {
	at := map[string]int64{}
	for i := range items {
		put, err := items[i].Put, results[i].Err
		if err == nil || put == nil || put.Sequence == "" || items[i].Stored == produce.StoredYes ||
			errors.Is(err, ErrSequence) {
			continue
		}
		first, some := at[put.Sequence]
		if stopped := (*SequenceError)(nil); errors.As(err, &stopped) {
			if some {
				stopped.Last = first
			}
		} else if !some {
			at[put.Sequence] = put.Number
		}
	}
}

// notMade is the error of a message that gets no id.
func (p *producer) notMade(err error) error {
	return &SendError{Queue: p.store.Queue, Stored: StoredNo, Err: err}
}

// makeMessage makes m of a draft. If there is no error, m has an id.
func (p *producer) makeMessage(m *script.SendMessage, payload string, d *draft, opts []MsgOption) error {
	p.made()
	d.Payload, d.Retries = payload, p.defaultRetries
	if err := d.apply(opts); err != nil {
		return p.notMade(err)
	}
	if err := d.check(); err != nil {
		return p.notMade(err)
	}
	if err := d.fits(payload); err != nil {
		return p.notMade(err)
	}
	m.ID, m.Key, m.When = p.ids.Next(), d.Key, d.when
	if delay := d.when.Delay(); p.units.Asks(delay) {
		p.events.Logger().Warn(message.UnitMissing, slog.String("id", m.ID), slog.Duration("delay", delay))
	}
	m.Version, m.Text = d.Version(), d.Encode(d.when)
	d.put.Countdown, d.put.Laned = d.Countdown, d.Lane.Width > 0
	if d.put.Wanted() {
		put := d.put
		m.Put = &put
	}
	return nil
}

// maxPayload, headers included, keeps an envelope within Redis's proto-max-bulk-len of 512 MB.
const maxPayload = 511 << 20

// fits says whether a message has room, with its headers.
func (d *draft) fits(payload string) error {
	size := len(payload)
	for k, v := range d.Headers {
		size += len(k) + len(v)
	}
	return fits(size)
}

func fits(size int) error {
	if size > maxPayload {
		return fmt.Errorf("%w: %d bytes with its headers, at most %d", ErrPayloadTooLarge, size, maxPayload)
	}
	return nil
}

// follows notes in o which number of its sequence stands before it in the batch, and refuses a number that is not
// greater. last has the last number of each sequence by name.
func follows(o *script.PutOptions, last map[string]int64) error {
	before, some := last[o.Sequence]
	if some && o.Number <= before {
		return fmt.Errorf("%w: WithSequence(%q, %d): number %d stands before it in the same batch, and numbers must rise",
			ErrBadOption,
			o.Sequence, o.Number, before)
	}
	last[o.Sequence] = o.Number
	o.Behind, o.After = some, before
	return nil
}
