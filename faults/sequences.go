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

// Sequences: relays send the rows of outboxes, each row with its number (WithSequence). All relay all rows, whatever
// the others do, and those that are killed are followed by ones which know nothing: each row is one message.
var sequences = []scenario{
	{
		name:  "sequences: relays and consumers killed, replies lost",
		holds: "each of four relays sends all numbers: each is one message, and none is left out",
		setUp: wired(),
		load:  relayed,
		hit:   losing(often, (*trial).killConsumer, (*trial).killProducer),
		every: 20 * time.Millisecond,
		rules: rules{rows: rows},
	},
	{
		name:  "sequences: Sentinel: primary killed, WithReplicaAck(1)",
		holds: "and the same, beside relays and consumers that are killed: a number is sent when the one before is confirmed",
		setUp: sentinel,
		load:  confirmed(1, relayed),
		hit:   amongKills((*trial).failOver),
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
	begun   time.Time // from then on the rows are written, evenly over a time
	over    time.Duration
	batch   int64         // how many go at once at most
	pause   time.Duration // between two batches, half as long at least
	options func(n int64) []delayqueue.MsgOption
}

// relay sends the rows of all outboxes until all are there.
func relay(ctx context.Context, template relayer) {
	l := template.order.Load
	var all sync.WaitGroup
	for i := range outboxes {
		r := template
		r.outbox, r.batch, r.pause = outboxName(i), step, 60*time.Millisecond
		r.begun, r.over = time.UnixMicro(r.order.Begun), l.Over
		r.options = func(int64) []delayqueue.MsgOption { return []delayqueue.MsgOption{withSomeDelay(l)} }
		all.Go(func() { r.sendAll(ctx) })
	}
	all.Wait()
}

// withSomeDelay is a delay that the load allows.
func withSomeDelay(l load) delayqueue.MsgOption {
	return delayqueue.WithDelay(rand.N(l.MaxDelay).Truncate(time.Millisecond))
}

// sendAll sends all rows.
func (r relayer) sendAll(ctx context.Context) {
	for last := int64(0); last < int64(r.order.Load.Rows) && ctx.Err() == nil; {
		last = r.goOn(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(r.pause/2 + rand.N(r.pause/2)):
		}
	}
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
	// The last one may be another relay's, and not confirmed. A failover could forget it, and take the next one all the
	// same.
	if last > 0 && !r.send(ctx, last) {
		return 0
	}
	numbers := []int64{}
	for n := last + 1; n <= min(last+r.batch, committed); n++ {
		numbers = append(numbers, n)
	}
	if !r.send(ctx, numbers...) {
		return 0
	}
	return last
}

// committed is how many rows there are by now.
func (r *relayer) committed() int64 {
	part := float64(time.Since(r.begun)) / float64(r.over)
	return int64(min(part, 1) * float64(r.order.Load.Rows))
}

// send sends rows, and says whether all are there for good, whoever sent them.
func (r *relayer) send(ctx context.Context, numbers ...int64) bool {
	batch := make([]delayqueue.Outgoing, len(numbers))
	for i, n := range numbers {
		batch[i].Payload = rowOf(r.outbox, n)
		batch[i].Options = append(r.options(n), delayqueue.WithSequence(r.outbox, n))
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

// outboxes are the names of all outboxes.
func (r rules) outboxes() (names []string) {
	for i := range r.imports {
		names = append(names, importName(i))
	}
	for i := 0; r.imports == 0 && i < outboxes; i++ {
		names = append(names, outboxName(i))
	}
	return names
}

// number wants each row, and each instant of schedules, to be one message, and lets what no relay or replica lived to
// note count as sent.
func (v *verdict) number(ev *evidence, stories []*story) {
	wanted := slices.Clone(ev.rules.instants)
	if ev.rules.rows > 0 {
		for _, outbox := range ev.rules.outboxes() {
			for n := range int64(ev.rules.rows) {
				wanted = append(wanted, rowOf(outbox, n+1))
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

// sentAnew says whether a send that was under way when Redis forgot something was carried out before and after that:
// the answer is of the second time, and the run of the first.
func (ev *evidence) sentAnew(e *entry, r run) bool {
	return slices.ContainsFunc(ev.strikes, func(st strike) bool {
		underWay := e.begun() <= st.to && e.At >= st.from
		return st.who == "" && st.why != "" && underWay && e.begun() <= r.start.At && r.start.At <= st.to
	})
}
