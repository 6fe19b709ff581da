package observe

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/go-delayqueue/delayqueue/outbox"
)

// This file reads outboxes. Their numbers come from a database, so Redis may be away.

// outboxGauges are of an outbox; their names begin with outboxPrefix. Totals are the database's own, so each process
// that reads them says the same.
var outboxGauges = []Gauge{
	{"outbox_up", "outbox.up", "1", "",
		"Whether the tables of the outbox could be read: 1, or 0 and nothing else is known of it.",
		single(func(r *Reading) float64 { return number(r.Up) })},
	{"outbox_rows", "outbox.rows", "{row}", "state",
		"Rows of the outbox by state: waiting until they are in Redis, or dead, which can never be sent.",
		func(r *Reading) map[string]float64 {
			return map[string]float64{"waiting": float64(r.Outbox.Waiting), "dead": float64(r.Outbox.Dead)}
		}},
	{"outbox_oldest_waiting_age_seconds", "outbox.oldest_waiting.age", "s", "",
		"How long the oldest row of the outbox has been waiting, by the database's clock; 0 if none waits.",
		single(func(r *Reading) float64 { return max(r.Outbox.Oldest.Seconds(), 0) })},
	{"outbox_relayed", "outbox.relayed", "1", "", "Whether some Box relays the rows of the queue to Redis: 1 or 0.",
		single(func(r *Reading) float64 { return number(r.Outbox.Relayed) })},
	{"outbox_sent_total", "outbox.sent.messages", "{message}", "",
		"Messages of the outbox that came to Redis, by the database; each counts again when it is healed.",
		single(func(r *Reading) float64 { return float64(r.Outbox.Sent) })},
	{"outbox_healed_total", "outbox.healed.messages", "{message}", "",
		"Messages of the outbox that Redis had forgotten, by the database.",
		single(func(r *Reading) float64 { return float64(r.Outbox.Healed) })},
	{"outbox_refused_total", "outbox.refused.messages", "{message}", "",
		"Messages of the outbox that were refused because a live message had their key, by the database.",
		single(func(r *Reading) float64 { return float64(r.Outbox.Refused) })},
}

const outboxPrefix = "outbox_"

// A box is an outbox that is read.
type box struct {
	*outbox.Box
	reading chan struct{} // has an element while the database is asked
	down    bool          // as it was last logged
}

// AddOutbox adds an outbox. It panics if that of one of its queues is there already.
func (q *Queues) AddOutbox(b *outbox.Box) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, other := range q.boxes {
		for _, name := range b.Queues() {
			if slices.Contains(other.Queues(), name) {
				panic(fmt.Sprintf("delayqueue: WatchOutbox: the outbox of queue %q is watched already: "+
					"give boxes of several databases metrics of their own", name))
			}
		}
	}
	q.boxes = append(q.boxes, &box{Box: b, reading: make(chan struct{}, 1)})
}

// readOutboxes reads all outboxes at once, until ctx ends. Each queue has one reading: of the Box that has the queue,
// or else of the first whose tables have rows for it.
func (q *Queues) readOutboxes(ctx context.Context) []Reading {
	q.mu.Lock()
	boxes := q.boxes[:len(q.boxes):len(q.boxes)]
	q.mu.Unlock()
	stats, errs := make([][]outbox.Stats, len(boxes)), make([]error, len(boxes))
	var wg sync.WaitGroup
	for i, b := range boxes {
		wg.Go(func() {
			stats[i], errs[i] = b.read(ctx)
			q.logOutbox(b, errs[i])
		})
	}
	wg.Wait()
	var all []Reading
	add := func(name string, up bool, s outbox.Stats) {
		if !slices.ContainsFunc(all, func(r Reading) bool { return r.Queue == name }) {
			all = append(all, Reading{Queue: name, Up: up, Outbox: &s})
		}
	}
	for i, b := range boxes {
		for _, name := range b.Queues() {
			s := outbox.Stats{Queue: name}
			if at := slices.IndexFunc(stats[i], func(s outbox.Stats) bool { return s.Queue == name }); at >= 0 {
				s = stats[i][at]
			}
			add(name, errs[i] == nil, s)
		}
	}
	for _, found := range stats {
		for _, s := range found { // of queues that no Box here has: nobody sends their rows, unless another service does
			add(Text(s.Queue), true, s)
		}
	}
	return all
}

// read asks the database, and returns when ctx ends, even if the driver does not. So a database that hangs keeps one
// goroutine and one connection, however often it is read.
func (b *box) read(ctx context.Context) ([]outbox.Stats, error) {
	select {
	case b.reading <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	type answer struct {
		stats []outbox.Stats
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		defer func() { <-b.reading }()
		stats, err := b.Stats(ctx)
		answers <- answer{stats, err}
	}()
	select {
	case got := <-answers:
		return got.stats, got.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// logOutbox logs that an outbox cannot be read, or that it can be read again.
func (q *Queues) logOutbox(b *box, err error) {
	q.mu.Lock()
	changed := b.down == (err == nil)
	b.down = err != nil
	q.mu.Unlock()
	queues := slog.String("queues", strings.Join(b.Queues(), ", "))
	switch {
	case !changed:
	case err == nil:
		q.log().Info("delayqueue: metrics: the outbox can be read again", queues)
	default:
		q.log().Warn("delayqueue: metrics: the outbox cannot be read", queues, slog.Any("error", err))
	}
}
