// Package health judges queues, and the servers that keep them, by what ops.Queue and INFO say: one set of rules for
// all that show them to people, the command line and the web page, each of which writes the words in its own way. It
// imports the face and ops, and of internal/shard the error that says how many shards have answered.
package health

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/shard"
	"github.com/go-delayqueue/delayqueue/ops"
)

const (
	keepFor     = 5 * time.Minute // how long samples are kept
	rateFor     = time.Minute     // over which rates are counted
	rateAtLeast = time.Second
)

// A Look is what was seen of a queue at an instant.
type Look struct {
	Name      string
	At        time.Time
	Err       error // then there is nothing else
	Missing   error // some shards do not answer (ErrMissingShards); all else is of the others
	Counts    ops.Counts
	Consumers []ops.Consumer
	Hours     []ops.Tally // the last 48, oldest first
	// of the message that has waited longest for others of its lane; "" if that is not long, or not known
	Lane    string
	Samples []Sample // of a Watcher: oldest first, this look's is the last
}

// A Sample is what is remembered of a look.
type Sample struct {
	At     time.Time
	Waits  int64         // that are pending or ready, or wait for a retry or for others of their lanes
	Behind time.Duration // of the oldest that is ready
	Hour   ops.Tally     // the present one
}

// laneBytes bounds what is read of the message that has waited longest for its lane.
const laneBytes = 64 << 10

// beside is how long the second and the third call wait for the reply of the first. A call that waits for a shard
// which does not answer takes until the end of its context, so after this time the others are made beside it.
const beside = 200 * time.Millisecond

// Read looks at a queue, by three calls of bounded work, and a fourth if a message has waited long for its lane.
func Read(ctx context.Context, m *ops.Queue) *Look {
	l := &Look{Name: m.Name(), At: time.Now()}
	counts, consumers, hours := make(chan error, 1), make(chan error, 1), make(chan error, 1)
	go func() {
		counts <- contained(func() (err error) { l.Counts, err = m.Counts(ctx); return err })
	}()
	late := time.NewTimer(beside)
	defer late.Stop()
	select {
	case err := <-counts:
		if l.note(err); l.Err != nil {
			return &Look{Name: l.Name, At: l.At, Err: l.Err}
		}
		counts <- nil
	case <-late.C:
	}
	go func() {
		consumers <- contained(func() (err error) { l.Consumers, err = m.Consumers(ctx); return err })
	}()
	go func() {
		hours <- contained(func() (err error) { l.Hours, err = m.History(ctx, ops.Hourly, 48); return err })
	}()
	for _, done := range []chan error{counts, consumers, hours} {
		l.note(<-done)
	}
	if l.Err != nil {
		return &Look{Name: l.Name, At: l.At, Err: l.Err}
	}
	if l.Missing == nil && l.inLane() > veryLate {
		if page, err := ops.Of(m.Monitor()).WithReadLimit(laneBytes).List(ctx, delayqueue.StateWaiting, ops.Filter{Limit: 1},
			""); err == nil {
			for _, msg := range page.Messages { // one, or none any more
				l.Lane = msg.Lane
			}
		}
	}
	return l
}

// contained makes an error of a panic.
func contained(call func() error) (err error) {
	defer func() {
		if bad := recover(); bad != nil {
			err = fmt.Errorf("panic: %v", bad)
		}
	}()
	return call()
}

// note keeps the first error of each kind.
func (l *Look) note(err error) {
	switch {
	case err == nil:
	case !errors.Is(err, delayqueue.ErrMissingShards):
		l.Err = cmp.Or(l.Err, err)
	default:
		l.Missing = cmp.Or(l.Missing, err)
	}
}

// Shards says how many of how many shards have answered, and why another has not. It is 0 of 0 if nothing is known of
// that.
func (l *Look) Shards() (answered, all int, why error) {
	if missing := new(shard.MissingError); errors.As(l.Missing, &missing) {
		return missing.Answered, missing.Of, missing.Err
	}
	return 0, 0, nil
}

// A Watcher looks at queues again and again, and remembers five minutes of it. One goroutine has it.
type Watcher struct {
	Limit   time.Duration // for each queue
	AtOnce  int           // queues that are read at a time
	samples map[string][]Sample
}

// Read looks at all queues, each for itself, so one that does not answer holds up no other. It forgets what it knows
// of others.
func (w *Watcher) Read(ctx context.Context, monitors []*ops.Queue) []*Look {
	all := make([]*Look, len(monitors))
	free := make(chan struct{}, w.AtOnce)
	var reading sync.WaitGroup
	for i, m := range monitors {
		free <- struct{}{}
		reading.Go(func() {
			defer func() { <-free }()
			soon, cancel := context.WithTimeout(ctx, w.Limit)
			defer cancel()
			all[i] = Read(soon, m)
		})
	}
	reading.Wait()
	old := w.samples
	w.samples = make(map[string][]Sample, len(all))
	for _, l := range all {
		l.Samples = old[l.Name]
		if l.Err == nil && l.Missing == nil { // between counts of some shards and of all there is no rate
			l.Samples = l.sampled(l.Samples)
		}
		w.samples[l.Name] = l.Samples
	}
	return all
}

// sampled are those before this look and its own; nobody changes them any more.
func (l *Look) sampled(before []Sample) []Sample {
	kept := make([]Sample, 0, len(before)+1)
	for _, old := range before {
		if l.At.Sub(old.At) <= keepFor {
			kept = append(kept, old)
		}
	}
	one := Sample{At: l.At, Waits: l.Waits(), Behind: l.Counts.Behind}
	if len(l.Hours) > 0 {
		one.Hour = l.Hours[len(l.Hours)-1]
	}
	return append(kept, one)
}

// WorstFirst are the looks in the order of a board.
func WorstFirst(all []*Look) []*Look {
	return slices.SortedStableFunc(slices.Values(all), func(a, b *Look) int {
		return cmp.Or(cmp.Compare(b.Judge().Level, a.Judge().Level), cmp.Compare(a.Name, b.Name))
	})
}

// Waits is how many messages are to be delivered.
func (l *Look) Waits() int64 {
	return l.Counts.Pending + l.Counts.Ready + l.Counts.Retry + l.Counts.Waiting
}

// Workers says how many of how many are busy.
func (l *Look) Workers() (busy, all int) {
	for _, c := range l.Consumers {
		busy += min(len(c.Handling), c.Concurrency)
		all += c.Concurrency
	}
	return busy, all
}

// Rates say how many messages come in and go out a second, over the last minute or as long as somebody has looked.
// While shards are missing, they are not known.
func (l *Look) Rates() (in, out Rate) {
	if l.Missing != nil {
		return Rate{}, Rate{}
	}
	for _, s := range l.Samples {
		took := l.At.Sub(s.At)
		if took > rateFor {
			continue
		}
		if took < rateAtLeast {
			break
		}
		n := l.since(s)
		return RateOf(n.Sent, took), RateOf(n.Acked+n.Garbage+n.Superseded, took)
	}
	return Rate{}, Rate{}
}

// since is what was counted from a sample on.
func (l *Look) since(s Sample) (n ops.Tally) {
	for _, hour := range l.Hours {
		if !hour.Start.Before(s.Hour.Start) {
			n = plus(n, hour, 1)
		}
	}
	return plus(n, s.Hour, -1)
}

// LastHour is what was counted in it: in the present one, and of the one before a share as long as is missing.
func (l *Look) LastHour() (n ops.Tally) {
	if len(l.Hours) == 0 {
		return n
	}
	n = l.Hours[len(l.Hours)-1]
	if len(l.Hours) > 1 {
		n = plus(n, l.Hours[len(l.Hours)-2], 1-min(max(float64(l.At.Sub(n.Start))/float64(time.Hour), 0), 1))
	}
	return n
}

// Sum adds tallies.
func Sum(all []ops.Tally) (n ops.Tally) {
	for _, t := range all {
		n = plus(n, t, 1)
	}
	return n
}

func plus(a, b ops.Tally, times float64) ops.Tally {
	part := func(n int64) int64 { return int64(math.Round(float64(n) * times)) }
	a.Sent += part(b.Sent)
	a.Delivered += part(b.Delivered)
	a.Acked += part(b.Acked)
	a.Failed += part(b.Failed)
	a.Lost += part(b.Lost)
	a.Garbage += part(b.Garbage)
	a.Superseded += part(b.Superseded)
	if began := part(b.Started); began > 0 {
		a.Lateness = time.Duration((float64(a.Lateness)*float64(a.Started) + float64(b.Lateness)*float64(began)) / float64(
			a.Started+began))
		a.MaxLateness = max(a.MaxLateness, b.MaxLateness)
	}
	a.Started += part(b.Started)
	return a
}

// Failing is how many of a hundred deliveries that were counted failed or were lost; less than 0 if there were none.
func Failing(n ops.Tally) Percent {
	if ended := n.Acked + n.Failed + n.Lost; ended > 0 {
		return Percent(100 * float64(n.Failed+n.Lost) / float64(ended))
	}
	return -1
}
