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

// A delivery is one message in the hands of this run.
type delivery struct {
	tag         string
	id          string
	key         string
	number      int
	failures    int
	losses      int
	ttl         time.Duration
	msg         Message
	broken      error // why it cannot be handled
	lastAttempt bool  // it is poison if it is lost
	size        int   // bytes of its envelope

	fetched time.Time
	started atomic.Int64 // when its handler did, as instantOf counts
	leased  atomic.Int64 // when its lease began, or a moment earlier, as instantOf counts
	fate    atomic.Int32
	overdue atomic.Bool                             // its lease is over as far as is known here, and its handler's context has ended
	cancel  atomic.Pointer[context.CancelCauseFunc] // set once its handler is about to start

	prev, next *delivery // in heldList
}

// The fate of a delivery changes once from open, and whoever changes it does what follows
// from it, so nothing is settled twice. A lost one changes once more: to left when its worker
// goes on, or to abandoned when that worker is replaced first.
const (
	fateOpen      = iota
	fateSettled   // it has an outcome, which goes to the settler
	fateLost      // it is not ours any more; what the handler says is void
	fateLeft      // it was lost, and its worker has gone on
	fateAbandoned // its callback runs on in a worker that was replaced
)

func (d *delivery) claim(fate int32) bool { return d.fate.CompareAndSwap(fateOpen, fate) }

func idsOf(ds []*delivery) []string {
	ids := make([]string, len(ds))
	for i, d := range ds {
		ids[i] = d.id
	}
	return ids
}

func (d *delivery) attrs() slog.Attr { return d.msg.attrs() }

// began is where this process's own clock begins; no step of the wall clock moves it.
var processStart = time.Now()

func processTime(t time.Time) int64 { return int64(t.Sub(processStart)) }

// over says whether the lease has run out, as far as is known here: this process may have stood
// still since.
func (d *delivery) leaseOver(lease time.Duration, now time.Time) bool {
	return processTime(now)-d.leased.Load() > int64(lease)
}

// decode makes deliveries of what a fetch brought.
func (c *consumer) decode(got *fetched, asked, at time.Time) []*delivery {
	all := make([]delivery, len(got.tags))
	ds := make([]*delivery, len(got.tags))
	for i, tag := range got.tags {
		d := &all[i]
		ds[i] = d
		var record failRecord
		d.tag, d.fetched, d.size = tag, at, len(got.envelopes[i])
		d.id, d.number = splitTag(tag)
		e, broken := decodeEnvelope(got.envelopes[i])
		if i < len(got.fails) && got.fails[i] != "" {
			var err error
			record, err = parseFail(got.fails[i])
			broken = errors.Join(broken, err)
		}
		d.broken = broken
		d.leased.Store(processTime(asked))
		d.lastAttempt = record.losses > 0 && record.losses >= c.agreed.maxLosses-1
		d.key, d.ttl, d.failures, d.losses = e.key, e.ttl, record.failures, record.losses
		d.msg = e.message(d.id, d.number, record.failures)
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

// unfit settles a delivery that no handler should see, and says so.
func (c *consumer) unfit(d *delivery, now int64) bool {
	o := outcome{d: d, kind: outcomeGarbage, failures: d.failures, losses: d.losses}
	switch late := time.Duration(now-d.msg.Due.UnixMicro()) * time.Microsecond; {
	case errors.Is(d.broken, errNewerVersion) && d.number < newerDeliveries:
		wait := 5 * time.Second * time.Duration(1+min(d.number/12, 11)) // a minute each, after ten
		o.kind, o.delay = outcomeRetry, wait+rand.N(wait)
		o.text = d.broken.Error()
		c.unloggedNewer++
	case d.broken != nil:
		o.err = d.broken
		c.log.Error("delayqueue: a broken message goes to garbage: another program writes to this queue", d.attrs(), slog.Any("error", d.broken))
	case d.ttl > 0 && d.number == 1 && late > d.ttl:
		o.err = fmt.Errorf("%w: %v past due, its limit is %v", ErrExpired, late, d.ttl)
	default:
		return false
	}
	if o.err != nil {
		o.text = errorText(o.err)
	}
	c.unhandled.Add(-1)
	if d.claim(fateSettled) {
		c.outbox.put(o)
	}
	return true
}

// message is a copy for the user's code, which may do with it what it likes.
func (d *delivery) message() *Message {
	msg := d.msg
	msg.Headers = maps.Clone(msg.Headers)
	return &msg
}

// released is the outcome of a delivery that counts for nothing.
func (d *delivery) releasedOutcome() outcome {
	return outcome{d: d, kind: outcomeReady, failures: d.failures, losses: d.losses}
}
