package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/ops"
)

// Sequences: relays send the rows of outboxes, each row with its number (WithSequence). All relay all rows, whatever the
// others do, and those that are killed are followed by ones which know nothing: each row is one message.
var sequences = []scenario{
	{
		name:  "sequences: relays and consumers killed, replies lost",
		holds: "each of four relays sends all numbers: each is one message, and none is left out",
		setUp: wired(),
		load:  relayed,
		hit:   losing((*trial).killConsumer, (*trial).killProducer),
		every: 20 * time.Millisecond,
		rules: rules{rows: rows},
	},
	{
		name:  "sequences: Sentinel: primary killed, WithReplicaAck(1)",
		holds: "and the same, beside relays and consumers that are killed: a number is sent when the one before is confirmed",
		setUp: sentinel,
		load:  confirmed(1, relayed),
		hit: func(t *trial) {
			t.killConsumer()
			t.killProducer()
			t.failOver()
			t.killProducer()
			t.killConsumer()
		},
		times: 1,
		rules: rules{rows: rows, resume: 5 * time.Second, duplicate: unheard},
	},
}

const (
	outboxes = 8
	rows     = 600 // of each
	relays   = 4
)

func relayed(l *load) {
	l.Rows, l.Messages, l.Producers = rows, outboxes*rows, relays
	l.Over, l.MaxDelay = 7*time.Second, 2*time.Second
}

// rowOf is the payload of a row.
func rowOf(outbox string, n int64) string { return fmt.Sprintf("%s-%06d", outbox, n) }

func outboxName(i int) string { return fmt.Sprintf("outbox%d", i+1) }

// A relayer sends the rows of one outbox.
type relayer struct {
	q       *delayqueue.DelayQueue
	monitor *ops.Queue
	book    ledger
	order   order
	outbox  string
}

// relay sends the rows of all outboxes until all are there.
func relay(ctx context.Context, q *delayqueue.DelayQueue, monitor *ops.Queue, book ledger, o order) {
	var all sync.WaitGroup
	for i := range outboxes {
		r := relayer{q, monitor, book, o, outboxName(i)}
		all.Go(func() {
			for last := int64(0); last < int64(o.Load.Rows) && ctx.Err() == nil; {
				last = r.goOn(ctx)
				select {
				case <-ctx.Done():
				case <-time.After(20*time.Millisecond + rand.N(40*time.Millisecond)):
				}
			}
		})
	}
	all.Wait()
}

// goOn sends the rows that come next, and returns the number of the last one that is safe.
func (r *relayer) goOn(ctx context.Context) (last int64) {
	ctx, cancel := context.WithTimeout(ctx, r.order.Load.Patience)
	defer cancel()
	last, err := r.monitor.Sequence(ctx, r.outbox)
	if err != nil && !errors.Is(err, delayqueue.ErrNotFound) {
		return 0
	}
	committed := r.committed()
	if last == committed && last < int64(r.order.Load.Rows) {
		return last
	}
	// The last one may be another relay's, and not confirmed. A failover could forget it, and take the next one all the same.
	if last > 0 && !r.send(ctx, last) {
		return 0
	}
	numbers := []int64{}
	for n := last + 1; n <= min(last+step, committed); n++ {
		numbers = append(numbers, n)
	}
	if !r.send(ctx, numbers...) {
		return 0
	}
	return last
}

// committed is how many rows there are by now.
func (r *relayer) committed() int64 {
	part := float64(time.Now().UnixMicro()-r.order.Begun) / float64(r.order.Load.Over.Microseconds())
	return int64(min(part, 1) * float64(r.order.Load.Rows))
}

// send sends rows, and says whether all are there for good, whoever sent them.
func (r *relayer) send(ctx context.Context, numbers ...int64) bool {
	batch := make([]delayqueue.Outgoing, len(numbers))
	for i, n := range numbers {
		batch[i].Payload = rowOf(r.outbox, n)
		batch[i].Options = []delayqueue.MsgOption{delayqueue.WithSequence(r.outbox, n), delayqueue.WithDelay(rand.N(r.order.Load.MaxDelay).Truncate(time.Millisecond))}
	}
	begun := time.Now()
	safe := true
	results, _ := r.q.SendBatch(ctx, batch) // each result has its own error
	for i, result := range results {
		e := entry{Kind: refused, Payload: batch[i].Payload, Took: time.Since(begun).Microseconds()}
		switch {
		case result.Err == nil:
			e.Kind, e.ID, e.Due = sent, result.Info.ID, result.Info.Due.UnixMicro()
		case errors.Is(result.Err, delayqueue.ErrNotReplicated), !errors.Is(result.Err, delayqueue.ErrSequence):
			safe = false
			fallthrough
		default:
			e.Word = result.Err.Error()
		}
		r.book.write(e)
	}
	return safe
}

// number wants each row, and each instant of schedules, to be one message, and lets what no relay or replica lived to note count
// as sent.
func (v *verdict) number(ev *evidence, stories []*story) {
	wanted := slices.Clone(ev.rules.instants)
	if ev.rules.rows > 0 {
		for i := range outboxes {
			for n := range int64(ev.rules.rows) {
				wanted = append(wanted, rowOf(outboxName(i), n+1))
			}
		}
	}
	if len(wanted) == 0 {
		return
	}
	messages := map[string]bool{}
	for _, s := range stories {
		messages[s.payload] = s.sent != nil || len(s.runs) > 0
		if len(s.runs) == 0 {
			continue
		}
		v.dropForgotten(ev, s, "it became a message")
		switch {
		case len(ev.rules.instants) > 0:
			v.adoptInstant(ev, s)
		case s.sent == nil:
			s.adopt(ev)
		}
	}
	for _, payload := range wanted {
		if !messages[payload] {
			v.problem("%s: left out", payload)
		}
	}
}

// sentAnew says whether a send that was under way when Redis forgot something was carried out before and after that: the
// answer is of the second time, and the run of the first.
func (ev *evidence) sentAnew(e *entry, r run) bool {
	return slices.ContainsFunc(ev.strikes, func(st strike) bool {
		underWay := e.begun() <= st.to && e.At >= st.from
		return st.who == "" && st.why != "" && underWay && e.begun() <= r.start.At && r.start.At <= st.to
	})
}
