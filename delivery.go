package delayqueue

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
)

// A delivery is one message in the hands of a consumer. The fields of the first group do not change after decode.
type delivery struct {
	settler    *settler // of its queue, with the settings of that
	tag        string
	msg        Message
	losses     int
	ttl        time.Duration
	since      serverTime    // from which that counts, if it is after the due instant
	timeout    time.Duration // as in envelope
	deadline   serverTime    // 0: none
	expires    time.Time     // the deadline, by the clock of this process and not later; zero: none
	errors     string        // of its record, before this delivery
	keyHold    time.Duration // for which its key stays taken once it is acked; 0: it does not
	retention  time.Duration // for how long it is kept once it is acked; 0: it is not
	broken     error         // why it cannot be handled
	lastChance bool          // its last chance: it was lost before, and is poison if it is lost once more
	fetched    time.Time

	started atomicTime                              // when its handler did; set by its worker, read by presence
	leased  atomicTime                              // when its lease began, or a moment earlier; set by decode and leases
	fate    atomic.Int32                            // changed by worker, limit, leases, Shutdown: see below
	overdue atomic.Bool                             // its lease ran out, as far as is known here; set by leases, read by its worker
	cancel  atomic.Pointer[context.CancelCauseFunc] // ends its handler's context; stored by its worker before the handler starts

	handling *handling // nil of a bare callback; stored by its worker before the handler starts, read by that worker and its limit

	index int // in heldList
	bytes int // of its envelope, and of what its handler said; from add on guarded by heldList.mu
}

// The fate of a delivery changes once from open, and whoever changes it does what follows
// from it, so nothing is settled twice. A lost one changes once more: to left when its worker
// goes on, or to abandoned when that worker is replaced first.
const (
	fateOpen      = iota
	fateSettled   // it has an outcome, which goes to the settler
	fateLost      // it is not ours any more; what the handler returns is void
	fateLeft      // it was lost, and its worker has gone on
	fateAbandoned // its callback runs on in a worker that was replaced
)

func (d *delivery) claim(fate int32) bool { return d.fate.CompareAndSwap(fateOpen, fate) }

// leaseOver reports whether the lease has run out, as far as is known here: this process may have been suspended.
func (d *delivery) leaseOver(lease time.Duration, now time.Time) bool {
	return d.leased.age(now) > lease
}

// cancelHandler ends the handler's context, if it has one yet.
func (d *delivery) cancelHandler(cause error) {
	if cancel := d.cancel.Load(); cancel != nil {
		(*cancel)(cause)
	}
}

// message is a copy for the user's code, which may do with it what it likes.
func (d *delivery) message() *Message {
	msg := d.msg
	msg.Headers, msg.Parts = maps.Clone(msg.Headers), slices.Clone(msg.Parts)
	return &msg
}

// released is the outcome of a delivery that counts neither as a failure nor as a loss. What would come again after its
// deadline is garbage.
func (d *delivery) released() outcome {
	o := outcome{d: d, kind: outcomeReady, failures: d.msg.Failures, losses: d.losses}
	if d.expiredBy(time.Now()) {
		o.expire(nil)
	}
	return o
}

// expiredBy reports whether the deadline has come at an instant.
func (d *delivery) expiredBy(t time.Time) bool { return !d.expires.IsZero() && !t.Before(d.expires) }

// pastDeadline is why a message is garbage whose deadline has come: ErrExpired around the last error; nil: the one before
// this delivery, if there was any.
func (d *delivery) pastDeadline(last error) error {
	lastError := lastError(d.errors)
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

// runLimit is how long a handler that starts now may run, 0: for ever, and why it is cut off then.
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

func (d *delivery) attrs() slog.Attr { return d.msg.attrs() }

// attrsOf are those of several messages.
func attrsOf(ds []*delivery) slog.Attr { return slog.Group("message", slog.Any("ids", idsOf(ds))) }

func idsOf(ds []*delivery) []string {
	return mapped(ds, func(d **delivery) string { return (*d).msg.ID })
}

func tagsOf(ds []*delivery) []string {
	return mapped(ds, func(d **delivery) string { return (*d).tag })
}

// decode makes deliveries of the answer to a fetch.
func decode(s *settler, got *fetchReply, maxLosses int, sentAt, answeredAt time.Time) []*delivery {
	all := make([]delivery, len(got.tags))
	ds := make([]*delivery, len(got.tags))
	for i, tag := range got.tags {
		e, broken := decodeEnvelope(got.envelopes[i])
		var record failRecord
		if i < len(got.fails) && got.fails[i] != "" {
			var err error
			record, err = parseFail(got.fails[i])
			broken = errors.Join(broken, err)
		}
		if broken == nil && (e.group.count > 0 || got.parts[i] != nil) {
			broken = e.group.fill(got.parts[i])
		}
		id, number := splitTag(tag)
		d := &all[i]
		ds[i] = d
		d.settler, d.tag, d.msg = s, tag, e.message(id, number, record.failures)
		d.losses, d.errors, d.ttl, d.retention, d.broken = record.losses, record.errors, e.ttl, e.retention, broken
		d.lastChance = record.losses > 0 && record.losses >= maxLosses-1
		d.bytes, d.fetched = len(got.envelopes[i])+e.group.bytes, answeredAt
		d.leased.set(sentAt)
		d.timeout, d.keyHold, d.since = e.timeout, e.keyHold, serverTime(e.since)
		if e.deadline != 0 {
			d.deadline = serverTime(e.deadline)
			d.expires = sentAt.Add(d.deadline.sub(got.now))
		}
	}
	return ds
}

func (e *envelope) message(id string, number, failures int) Message {
	return Message{
		ID: id, Key: cmp.Or(e.key, e.group.key), Payload: e.payload, Parts: e.allParts(), Headers: e.headers, Due: time.UnixMicro(e.due),
		Delivery: number, Failures: failures, MaxRetries: e.retries,
	}
}

// newerDeliveries is how often a message of a newer version is handed out until it is given up: it is set aside for
// a day, in case a consumer that can read it comes.
const newerDeliveries = 1000

// unfit is the outcome of a delivery that no handler should see; ok is false for all others.
func unfit(d *delivery, now serverTime) (o outcome, ok bool) {
	o = outcome{d: d, kind: outcomeGarbage, failures: d.msg.Failures, losses: d.losses}
	switch late := now.sub(max(serverTime(d.msg.Due.UnixMicro()), d.since)); {
	case errors.Is(d.broken, errNewerVersion) && d.msg.Delivery < newerDeliveries:
		wait := 5 * time.Second * time.Duration(1+min(d.msg.Delivery/12, 11)) // 5 to 10 s; from the 132nd on 1 to 2 minutes
		o.kind, o.delay, o.text = outcomeRetry, wait+rand.N(wait), errorText(d.broken)
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
	o.text = errorText(o.err)
	return o, true
}

var errNotReceived = errors.New("the message does not come through")

// notReceived is the outcome of a delivery whose message does not come through: a loss.
func notReceived(s *settler, h heldMessage, maxLosses int, answeredAt time.Time) outcome {
	record, _ := parseFail(h.fail) // a broken one counts nothing
	id, number := splitTag(h.tag)
	d := &delivery{settler: s, tag: h.tag, losses: record.losses, errors: record.errors, fetched: answeredAt,
		msg: Message{ID: id, Key: h.key, Delivery: number, Failures: record.failures}}
	o := outcome{d: d, kind: outcomeRetry, failures: record.failures, losses: record.losses + 1, text: errNotReceived.Error()}
	o.delay = time.Duration(min(o.losses, 12)) * (5*time.Second + rand.N(5*time.Second))
	if o.losses >= maxLosses {
		o.kind, o.err = outcomeGarbage, errors.Join(ErrPoison, errNotReceived)
		o.text = errorText(o.err)
	}
	return o
}
