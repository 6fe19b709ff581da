package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
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
	broken     error // why it cannot be handled
	lastChance bool  // its last chance: it was lost before, and is poison if it is lost once more
	bytes      int   // of its envelope
	fetched    time.Time

	started atomicTime                              // when its handler did; set by its worker, read by presence
	leased  atomicTime                              // when its lease began, or a moment earlier; set by decode and leases
	fate    atomic.Int32                            // changed by worker, limit, leases, Shutdown: see below
	overdue atomic.Bool                             // its lease ran out, as far as is known here, and its handler's context has ended; set by leases, read by its worker
	cancel  atomic.Pointer[context.CancelCauseFunc] // ends its handler's context; stored by its worker before the handler starts

	index int // in heldList
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
	msg.Headers = maps.Clone(msg.Headers)
	return &msg
}

// released is the outcome of a delivery that counts neither as a failure nor as a loss.
func (d *delivery) released() outcome {
	return outcome{d: d, kind: outcomeReady, failures: d.msg.Failures, losses: d.losses}
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
		id, number := splitTag(tag)
		d := &all[i]
		ds[i] = d
		d.settler, d.tag, d.msg = s, tag, e.message(id, number, record.failures)
		d.losses, d.ttl, d.broken = record.losses, e.ttl, broken
		d.lastChance = record.losses > 0 && record.losses >= maxLosses-1
		d.bytes, d.fetched = len(got.envelopes[i]), answeredAt
		d.leased.set(sentAt)
	}
	return ds
}

func (e *envelope) message(id string, number, failures int) Message {
	return Message{
		ID: id, Key: e.key, Payload: e.payload, Headers: e.headers, Due: time.UnixMicro(e.due),
		Delivery: number, Failures: failures, MaxRetries: e.retries,
	}
}

// newerDeliveries is how often a message of a newer version is handed out until it is given up: it is set aside for
// a day, in case a consumer that can read it comes.
const newerDeliveries = 1000

// unfit is the outcome of a delivery that no handler should see; ok is false for all others.
func unfit(d *delivery, now serverTime) (o outcome, ok bool) {
	o = outcome{d: d, kind: outcomeGarbage, failures: d.msg.Failures, losses: d.losses}
	switch late := now.sub(serverTime(d.msg.Due.UnixMicro())); {
	case errors.Is(d.broken, errNewerVersion) && d.msg.Delivery < newerDeliveries:
		wait := 5 * time.Second * time.Duration(1+min(d.msg.Delivery/12, 11)) // 5 to 10 s; from the 132nd on 1 to 2 minutes
		o.kind, o.delay, o.text = outcomeRetry, wait+rand.N(wait), d.broken.Error()
		return o, true
	case d.broken != nil:
		o.err = d.broken
	case d.ttl > 0 && d.msg.Delivery == 1 && late > d.ttl:
		o.err = fmt.Errorf("%w: %v past due, its limit is %v", ErrExpired, late, d.ttl)
	default:
		return o, false
	}
	o.text = errorText(o.err)
	return o, true
}

var errNotReceived = errors.New("the message does not come through")

// notReceived is the outcome of a delivery whose message does not come through: a loss.
func notReceived(s *settler, h heldMessage, maxLosses int, answeredAt time.Time) outcome {
	record, err := parseFail(h.fail)
	if err != nil {
		record = failRecord{}
	}
	id, number := splitTag(h.tag)
	d := &delivery{settler: s, tag: h.tag, losses: record.losses, fetched: answeredAt,
		msg: Message{ID: id, Key: h.key, Delivery: number, Failures: record.failures}}
	o := outcome{d: d, kind: outcomeRetry, failures: record.failures, losses: record.losses + 1, text: errNotReceived.Error()}
	o.delay = time.Duration(min(o.losses, 12)) * (5*time.Second + rand.N(5*time.Second))
	if o.losses >= maxLosses {
		o.kind, o.err = outcomeGarbage, errors.Join(ErrPoison, errNotReceived)
		o.text = errorText(o.err)
	}
	return o
}
