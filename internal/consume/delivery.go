package consume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/conc"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// A delivery is one message in the hands of a consumer. The fields of the first group do not change after decode.
type delivery struct {
	consumer *Consumer
	lease    *lease
	tag      string
	msg      message.Delivered
	losses   int
	fetched  time.Time
	*terms   // never nil

	started  conc.AtomicTime          // when its handler did; set by its worker, read by presence
	fate     atomic.Int32             // changed by worker, timer of the time limit, leases, Shutdown: see below
	handling atomic.Pointer[handling] // nil of a bare callback; stored by its worker before the handler starts

	index int // in heldList
	bytes int // of its envelope, and of what its handler said; from add on guarded by heldList.mu
}

// The terms of a delivery are what few messages have. They do not change after decode.
type terms struct {
	ttl       time.Duration
	since     message.ServerTime // from which ttl counts, if it is after the due instant
	timeout   time.Duration      // as in envelope
	deadline  message.ServerTime // 0: none
	expires   time.Time          // the deadline by the clock of this process, or a moment earlier; zero: none
	errors    string             // of its record, before this delivery
	keyHold   time.Duration      // for how long its key stays taken after the ack; 0: not
	retention time.Duration      // for how long it is kept after the ack; 0: not
	counts    string             // the key of the message for whose countdown its ack counts; "": none
	countdown bool               // it has one itself
	lane      string             // its lane, as message.Lane.Text
	broken    error              // why it cannot be handled
}

// noTerms are those of most deliveries.
var noTerms terms

// The fate of a delivery changes once from open. The goroutine that changes it does what follows, so nothing is
// settled twice. A lost delivery changes once more: to left when its worker goes on, or to abandoned or given up when
// that worker is replaced first.
const (
	fateOpen      = iota
	fateSettled   // it has an outcome, which goes to the settler
	fateLost      // this consumer does not hold it any more; what the handler returns is void
	fateLeft      // it was lost, and its worker has gone on
	fateAbandoned // its callback runs on in a worker that was replaced
	fateGivenUp   // the same, because Shutdown's context has ended
)

func (d *delivery) claim(fate int32) bool { return d.fate.CompareAndSwap(fateOpen, fate) }

// isReplaced reports whether another worker has taken the place of its worker.
func (d *delivery) isReplaced() bool { return d.fate.Load() >= fateAbandoned }

// leaseOver reports whether the lease has run out by this process's clock, because Redis did not answer or the
// process was suspended.
func (d *delivery) leaseOver(lease time.Duration, now time.Time) bool {
	return d.lease.began.Age(now) > lease
}

// cancelHandler ends the handler's context, if it has one yet.
func (d *delivery) cancelHandler(cause error) {
	if h := d.handling.Load(); h != nil {
		h.cancel(cause)
	}
}

// message is a copy for the user's code, which may change it and keep it.
func (d *delivery) message() *message.Delivered {
	msg := d.msg
	msg.ID = strings.Clone(msg.ID) // it is a part of the text with all ids of the fetch
	msg.Headers, msg.Parts = maps.Clone(msg.Headers), slices.Clone(msg.Parts)
	return &msg
}

// released is the outcome of a delivery that counts neither as a failure nor as a loss. A message past its deadline
// becomes garbage.
func (d *delivery) released() outcome {
	o := outcome{d: d, kind: script.OutcomeReady, failures: d.msg.Failures, losses: d.losses}
	if d.expiredBy(time.Now()) {
		o.expire(nil)
	}
	return o
}

// expiredBy reports whether the deadline has come at an instant.
func (d *delivery) expiredBy(t time.Time) bool { return !d.expires.IsZero() && !t.Before(d.expires) }

// pastDeadline is why a message is garbage whose deadline has come: ErrExpired around last, or, if last is nil,
// around the error of the delivery before.
func (d *delivery) pastDeadline(last error) error {
	lastError := message.LastError(d.errors)
	if before, again := strings.CutPrefix(lastError, ErrExpired.Error()); again && last == nil { // it was requeued
		return fmt.Errorf("%w%s", ErrExpired, before)
	}
	deadline := time.UnixMicro(int64(d.deadline)).UTC().Format(time.RFC3339Nano)
	switch {
	case last != nil:
		return fmt.Errorf("%w: no delivery after its deadline %s: %w", ErrExpired, deadline, last)
	case lastError != "":
		return fmt.Errorf("%w: no delivery after its deadline %s: %s", ErrExpired, deadline, lastError)
	}
	return fmt.Errorf("%w: no delivery after its deadline %s", ErrExpired, deadline)
}

// runLimit is how long a handler that starts now may run, and why it is cut off then. 0 means for ever.
func (d *delivery) runLimit(ofQueue time.Duration, now time.Time) (limit time.Duration, why error) {
	limit = ofQueue
	if d.timeout != 0 {
		limit = max(d.timeout, 0)
	}
	if d.expires.IsZero() || limit > 0 && now.Add(limit).Before(d.expires) {
		return limit, ErrConsumeTimeout
	}
	return max(d.expires.Sub(now), 1), ErrExpired
}

func (d *delivery) attrs() slog.Attr { return d.msg.Attrs() }

// attrsOf is the log attribute of several messages.
func attrsOf(ds []*delivery) slog.Attr { return slog.Group("message", slog.Any("ids", idsOf(ds))) }

func idsOf(ds []*delivery) []string {
	return conc.Mapped(ds, func(d **delivery) string { return (*d).msg.ID })
}

// together is how many deliveries share one piece of memory.
const together = 8

// decode makes deliveries of the answer to a fetch.
func decode(c *Consumer, got *script.FetchReply, sentAt, answeredAt time.Time) []*delivery {
	l := &lease{Lease: got.Lease, listed: len(got.Tags)}
	l.began.Set(sentAt)
	var some []delivery // stay in memory together: few, because the handler of one may run for long
	ds := make([]*delivery, len(got.Tags))
	for i, tag := range got.Tags {
		e, broken := message.DecodeEnvelope(got.Envelopes[i])
		var record message.FailRecord
		if i < len(got.Fails) && got.Fails[i] != "" {
			var err error
			record, err = message.ParseFail(got.Fails[i])
			broken = errors.Join(broken, err)
		}
		if broken == nil && (e.Group.Count > 0 || got.Parts[i] != nil) {
			broken = e.Group.Fill(got.Parts[i])
		}
		id, number := message.SplitTag(tag)
		if len(some) == 0 {
			some = make([]delivery, min(together, len(ds)-i))
		}
		d := &some[0]
		ds[i], some = d, some[1:]
		d.consumer, d.lease, d.tag, d.msg = c, l, tag, e.Delivered(id, number, record.Failures)
		d.losses, d.fetched, d.terms = record.Losses, answeredAt, &noTerms
		d.bytes = len(got.Envelopes[i]) + e.Group.Bytes
		asked := terms{ttl: e.TTL, since: message.ServerTime(e.Since), timeout: e.Timeout,
			deadline: message.ServerTime(e.Deadline),
			errors:   record.Errors, keyHold: e.KeyHold, retention: e.Retention, counts: e.Counts, countdown: e.Countdown > 0,
			lane: e.Lane.Text(), broken: broken}
		if broken != nil {
			asked.lane = script.LaneUnknown
		}
		if e.Countdown > 0 {
			d.msg.CountdownLeft = missingIn(&got.Extras, i, &e)
		}
		if e.Deadline != 0 {
			asked.expires = sentAt.Add(asked.deadline.Sub(got.Now))
		}
		if asked != noTerms {
			d.terms = new(terms)
			*d.terms = asked
		}
	}
	return ds
}

// missingIn is how many acks the message with that index in a reply waits for. If the reply does not say, none has
// counted as far as is known.
func missingIn(got *script.Extras, i int, e *message.Envelope) int {
	if missing, known := got.Missing[i]; known {
		return missing
	}
	return e.Countdown
}

// newerDeliveries is how often a message of a newer version is handed out until it is given up. That takes a day, in
// which a consumer that can read it may come.
const newerDeliveries = 1000

// unfit is the outcome of a delivery that no handler should see; ok is false for all others.
func unfit(d *delivery, now message.ServerTime) (o outcome, ok bool) {
	o = outcome{d: d, kind: script.OutcomeGarbage, failures: d.msg.Failures, losses: d.losses}
	switch late := now.Sub(max(message.ServerTime(d.msg.Due.UnixMicro()), d.since)); {
	case errors.Is(d.broken, message.ErrNewerVersion) && d.msg.Delivery < newerDeliveries:
		wait := 5 * time.Second * time.Duration(1+min(d.msg.Delivery/12, 11)) // 5 to 10 s; from the 132nd on 1 to 2 minutes
		o.kind, o.delay, o.text = script.OutcomeRetry, wait+rand.N(wait), message.ErrorText(d.broken)
		return o, true
	case d.broken != nil:
		o.err = d.broken
	case d.deadline != 0 && now >= d.deadline:
		o.err = d.pastDeadline(nil)
	case d.ttl > 0 && d.msg.Delivery == 1 && late > d.ttl:
		o.err = fmt.Errorf("%w before its first delivery: %v past due, its limit is %v", ErrExpired, late, d.ttl)
	default:
		return o, false
	}
	o.text = message.ErrorText(o.err)
	return o, true
}

// Why a delivery ended without an ack, or why the context of a handler ended or is refused. The face gives each error
// its public name.
var (
	ErrNacked          = errors.New("callback returned false")
	ErrPanicked        = errors.New("handler panicked")
	ErrConsumeTimeout  = errors.New("handler ran past its limit")
	ErrExpired         = errors.New("message expired")
	ErrPoison          = errors.New(script.PoisonText)
	ErrDeliveryLost    = errors.New("delivery was lost: its lease ran out")
	ErrCanceled        = errors.New("message was canceled")
	ErrShutdown        = errors.New("consumer is shutting down")
	ErrNotHandling     = fmt.Errorf("%w: this is not the context of a running handler", message.ErrBadOption)
	ErrPayloadTooLarge = errors.New("payload too large")
)

// A Verdict is what a handler's result means.
type Verdict struct {
	Err           error                 // nil: an ack, or a snooze
	Text          string                // of Err, or the reason of a throttle, as it is kept; "": none, or not known yet
	SkipRetry     bool                  // to garbage
	Snooze        bool                  // no failure
	ResetFailures bool                  // of a snooze: failures count from 0
	Throttle      bool                  // of a snooze: nothing of the queue is handed out meanwhile
	Delay         *time.Duration        // the handler's own, of a snooze or a retry
	result        string                // of an ack, what the handler said with SetResult
	follows       []*script.SendMessage // of an ack, what it said with Then
}

// conclude turns a verdict into an outcome and gives it to the settler, whatever the user's functions do. A new
// outcome of a handler needs a case in unacked and in judge (handler.go), and an example. If settle has no such
// outcome, it needs a kind in Go and Lua, a row in docs/redis.md, an event, and a case in the model.
func (d *delivery) conclude(ctx context.Context, v Verdict) {
	if k := &d.consumer.kinds; k.header != "" {
		now := time.Now()
		k.count(d.msg.Headers, v.Err != nil, d.started.Age(now), now)
	}
	if v.Err != nil || v.Snooze {
		d.unacked(ctx, v)
		return
	}
	o := outcome{d: d, failures: d.msg.Failures, result: v.result, follows: v.follows}
	if n := o.bytes(); n > 0 {
		d.consumer.leases.held.grow(d, n)
	}
	d.consumer.settler.put(o)
}

// unacked is conclude for all but an ack. It is by itself because of its large frame: for an ack, the small stack of
// a new worker would have to grow, which costs a tenth of a message's CPU.
func (d *delivery) unacked(ctx context.Context, v Verdict) {
	settings := &d.consumer.settings
	o := outcome{d: d, failures: d.msg.Failures, err: v.Err, text: v.Text}
	defer func() {
		d.consumer.settler.put(o)
		if d.consumer.units.Asks(o.delay) {
			settings.Log.Warn(message.UnitMissing, d.attrs(), slog.Duration("delay", o.delay))
		}
		if o.kind == script.OutcomeRetry && !v.Snooze {
			settings.Log.Info("delayqueue: a delivery failed: its message is to come again", d.attrs(),
				slog.Int("failures", o.failures),
				slog.Int("max_retries", d.msg.MaxRetries), slog.Duration("in", o.delay), slog.String("error", o.text))
		}
	}()
	if v.Snooze {
		o.kind, o.delay, o.throttle = script.OutcomeRetry, min(*v.Delay, message.MaxDelay), v.Throttle
		if v.ResetFailures {
			o.failures, o.leaves = 0, true
		}
		if v.Throttle {
			settings.Log.Info("delayqueue: a handler throttles the queue: nothing is handed out for a while", d.attrs(),
				slog.Duration("for", o.delay), slog.String("error", v.Text))
		}
		if d.expiredBy(time.Now().Add(o.delay)) {
			o.expire(nil)
		}
		return
	}
	if o.text == "" {
		o.text = cmp.Or(message.ErrorText(v.Err), fmt.Sprintf("%T", v.Err))
	}
	o.failures++
	if v.SkipRetry || o.failures > d.msg.MaxRetries {
		o.kind = script.OutcomeGarbage
	} else if o.kind = script.OutcomeRetry; v.Delay != nil {
		o.delay = min(*v.Delay, message.MaxDelay)
	} else {
		o.delay = DefaultDelay(o.failures)
		if settings.DelayAfter != nil {
			settings.guard("retry delay function", d.attrs(), func() {
				o.delay = settings.DelayAfter(o.failures, v.Err, d.message())
			})
		}
	}
	if o.kind == script.OutcomeRetry && d.expiredBy(time.Now().Add(o.delay)) {
		o.expire(v.Err)
	}
	if settings.OnError != nil {
		settings.guard("error handler", d.attrs(), func() { settings.OnError(ctx, d.message(), v.Err) })
	}
}
