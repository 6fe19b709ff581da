// Package health judges queues, and the servers that keep them, by what ops.Queue and INFO say: one set of rules for
// all that show them to people, the command line and the web page, each of which writes the words in its own way. It
// imports the face and ops, and of internal/shard the error that says how many shards have answered, and of
// internal/message the time in an id.
package health

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
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
	Lane      *ops.Lane   // in which a message has waited longest for others; nil if that is not long, or not known
	Unsent    []Unsent    // schedules for which nothing is sent, the one that is overdue for longest first
	Stuck     []Countdown // countdowns that cannot complete
	Limits    Limits
	Samples   []Sample // of a Watcher: oldest first, this look's is the last
}

// An Unsent is a schedule for which nothing is sent.
type Unsent struct {
	Name   string
	Reason string    // as schedule.Status.Reason says it
	Since  time.Time // its first instant that was not sent; zero: not known
}

// reasons are the words of schedule.Status.Reason.
var reasons = map[string]Text{
	"not run":        say("no process runs it"),
	"wrong clock":    say("it waits for the clock of the server"),
	"sequence moved": say("its sequence has gone on without it"),
	"refused":        say("its message is refused"),
	"unreadable":     say("it cannot be read"),
	"overdue":        say("it is overdue"),
}

func (u Unsent) reason() Text {
	if t, known := reasons[u.Reason]; known {
		return t
	}
	return verbatim(u.Reason)
}

// A Reader reads queues.
type Reader struct {
	Limits Limits
	// Unsent reads the schedules of a queue for which nothing is sent; nil: they are not looked at. This package cannot
	// import the module that has them.
	Unsent func(ctx context.Context, m *ops.Queue) ([]Unsent, error)
}

// A Sample is what is remembered of a look.
type Sample struct {
	At     time.Time
	From   string        // the shards that it is of, in words; "": all
	Waits  int64         // that are pending or ready, or wait for a retry or for others of their lanes
	Behind time.Duration // of the oldest that is ready
	Hour   ops.Tally     // the present one
}

// laneBytes bounds what is read of the message that has waited longest for its lane.
const laneBytes = 64 << 10

// beside is how long the second and the third call wait for the reply of the first. A call that waits for a shard
// which does not answer takes until the end of its context, so after this time the others are made beside it.
const beside = 200 * time.Millisecond

// Read looks at a queue, by three calls of bounded work, and at most three more if a message has waited long for its
// lane. Schedules and countdowns that may not be read are left out.
func (r *Reader) Read(ctx context.Context, m *ops.Queue) *Look {
	l := r.read(ctx, m)
	if l.Err == nil {
		var more sync.WaitGroup // at once, because a shard may not answer
		more.Go(func() { l.Unsent, _ = r.readUnsent(ctx, m) })
		more.Go(func() { l.Stuck, _ = l.readStuck(ctx, m) })
		more.Wait()
	}
	return l
}

func (r *Reader) readUnsent(ctx context.Context, m *ops.Queue) (all []Unsent, err error) {
	if r.Unsent == nil {
		return nil, nil
	}
	err = contained(func() (err error) { all, err = r.Unsent(ctx, m); return err })
	return all, err
}

func (l *Look) readStuck(ctx context.Context, m *ops.Queue) (all []Countdown, err error) {
	err = contained(func() (err error) { all, err = Countdowns(ctx, m, &l.Counts); return err })
	return all, err
}

// read does not look at schedules and countdowns.
func (r *Reader) read(ctx context.Context, m *ops.Queue) *Look {
	l := &Look{Name: m.Name(), At: time.Now(), Limits: r.Limits}
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
	if l.inLane() > l.laneLate() {
		page, err := ops.Of(m.Monitor()).WithReadLimit(laneBytes).List(ctx, delayqueue.StateWaiting, ops.Filter{Limit: 1}, "")
		if err == nil || errors.Is(err, delayqueue.ErrMissingShards) {
			for _, msg := range page.Messages { // one, or none any more
				l.Lane, _ = m.Lane(ctx, msg.Lane)
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

// Away says which shards have not answered, from 1, of how many, and why the first has not. It is none of 0 if nothing
// is known of that.
func Away(err error) (missing []int, of int, why error) {
	if m := new(shard.MissingError); errors.As(err, &m) {
		return m.Missing, m.Of, m.Err
	}
	return nil, 0, nil
}

// A Watcher looks at queues again and again, and remembers five minutes of it. One goroutine has it.
type Watcher struct {
	Reader
	Limit   time.Duration // for each queue
	AtOnce  int           // queues that are read at a time
	samples map[string][]Sample
	slow    map[string]*slow
}

const (
	slowFor  = 10 * time.Second // for which it is known, at most, which schedules and countdowns stand still
	slowKept = time.Minute      // for which that counts although they cannot be read
)

// slow is what a Watcher remembers of a queue because it costs more to read.
type slow struct {
	asked  time.Time
	unsent lately[Unsent]
	stuck  lately[Countdown]
}

// lately is what was read last.
type lately[T any] struct {
	at  time.Time
	all []T
}

// readAgain looks at a queue, and at its schedules and countdowns if that is long ago.
func (w *Watcher) readAgain(ctx context.Context, m *ops.Queue, known *slow) *Look {
	l := w.read(ctx, m)
	if l.Err != nil {
		return l
	}
	if l.At.Sub(known.asked) >= slowFor {
		known.asked = l.At.Add(-rand.N(slowFor / 2)) // not of all queues in one round
		var more sync.WaitGroup
		more.Go(func() {
			unsent, err := w.readUnsent(ctx, m)
			known.unsent.note(l.At, unsent, err)
		})
		more.Go(func() {
			stuck, err := l.readStuck(ctx, m)
			known.stuck.note(l.At, stuck, err)
		})
		more.Wait()
	}
	l.Unsent, l.Stuck = known.unsent.all, known.stuck.all
	return l
}

// note keeps what was read, and for a while what was read before if it could not be read: this user may not, say.
func (k *lately[T]) note(at time.Time, all []T, err error) {
	if err == nil {
		k.at, k.all = at, all
	} else if at.Sub(k.at) > slowKept {
		k.all = nil
	}
}

// Read looks at all queues, each for itself, so one that does not answer holds up no other. It forgets what it knows
// of others.
func (w *Watcher) Read(ctx context.Context, monitors []*ops.Queue) []*Look {
	all := make([]*Look, len(monitors))
	free := make(chan struct{}, w.AtOnce)
	var reading sync.WaitGroup
	before := w.slow
	w.slow = make(map[string]*slow, len(monitors))
	for i, m := range monitors {
		known := cmp.Or(before[m.Name()], new(slow))
		w.slow[m.Name()] = known
		free <- struct{}{}
		reading.Go(func() {
			defer func() { <-free }()
			soon, cancel := context.WithTimeout(ctx, w.Limit)
			defer cancel()
			all[i] = w.readAgain(soon, m, known)
		})
	}
	reading.Wait()
	old := w.samples
	w.samples = make(map[string][]Sample, len(all))
	for _, l := range all {
		l.Samples = old[l.Name]
		if l.Err == nil {
			l.Samples = l.sampled(l.Samples)
		}
		w.samples[l.Name] = l.Samples
	}
	return all
}

// from says which shards the look is of, so that others can be told from it; "": all.
func (l *Look) from() string {
	if l.Missing == nil {
		return ""
	}
	missing, of, _ := Away(l.Missing)
	return fmt.Sprint(missing, of)
}

// sampled are those before this look and its own; nobody changes them any more.
func (l *Look) sampled(before []Sample) []Sample {
	kept := make([]Sample, 0, len(before)+1)
	for _, old := range before {
		if l.At.Sub(old.At) <= keepFor {
			kept = append(kept, old)
		}
	}
	one := Sample{At: l.At, From: l.from(), Waits: l.Waits(), Behind: l.Counts.Behind}
	if len(l.Hours) > 0 {
		one.Hour = l.Hours[len(l.Hours)-1]
	}
	return append(kept, one)
}

// WorstFirst are the looks in the order of a board: by level; then those of which nothing is known; then by how many
// messages were lost, how late something is, and how many are late. The last three count by powers of two, so that rows
// seldom change places. What is fine stands by name.
func WorstFirst(all []*Look) []*Look {
	type key struct {
		level                    Level
		unread, lost, late, many int
	}
	keys := make(map[*Look]key, len(all))
	for _, l := range all {
		k := key{level: l.Judge().Level}
		if l.Err != nil {
			k.unread = 1
		} else if k.level > Fine {
			k.lost, k.late, k.many = bits.Len64(uint64(max(l.Counts.Unaccounted, 0)+l.Counts.LossMessages)),
				bits.Len64(uint64(max(l.lateness()/time.Minute, 0))), bits.Len64(uint64(max(l.due(), 0)))
		}
		keys[l] = k
	}
	return slices.SortedStableFunc(slices.Values(all), func(a, b *Look) int {
		x, y := keys[a], keys[b]
		return cmp.Or(cmp.Compare(y.level, x.level), cmp.Compare(y.unread, x.unread), cmp.Compare(y.lost, x.lost),
			cmp.Compare(y.late, x.late), cmp.Compare(y.many, x.many), cmp.Compare(a.Name, b.Name))
	})
}

// lateness is for how long something has stood still that should not.
func (l *Look) lateness() time.Duration {
	d := l.longest()
	if !l.Counts.Paused && !l.Counts.Limited { // which is meant so
		d = max(d, l.Counts.Behind, l.inLane())
	}
	for _, u := range l.Unsent {
		if !u.Since.IsZero() {
			d = max(d, l.At.Sub(u.Since))
		}
	}
	for _, c := range l.Stuck {
		d = max(d, l.At.Sub(c.Since))
	}
	return d
}

// due is how many messages are late.
func (l *Look) due() int64 {
	if l.laneDue() {
		return l.Counts.Ready + l.Counts.Waiting
	}
	return l.Counts.Ready
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
// While shards are missing, they are those of the others.
func (l *Look) Rates() (in, out Rate) {
	for _, s := range l.Samples {
		took := l.At.Sub(s.At)
		if took > rateFor || s.From != l.from() { // between counts of some shards and of all there is no rate
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

// since is what came in and went out from a sample on.
func (l *Look) since(s Sample) (n ops.Tally) {
	for _, hour := range l.Hours {
		if !hour.Start.Before(s.Hour.Start) {
			n = plus(n, hour)
		}
	}
	n.Sent -= s.Hour.Sent
	n.Acked -= s.Hour.Acked
	n.Garbage -= s.Hour.Garbage
	n.Superseded -= s.Hour.Superseded
	return n
}

// Recent is what was counted in the present hour and the one before, from its Start on.
func (l *Look) Recent() ops.Tally { return Sum(l.Hours[max(len(l.Hours)-2, 0):]) }

// Sum adds tallies. Its Start is that of the first.
func Sum(all []ops.Tally) (n ops.Tally) {
	for _, t := range all {
		n = plus(n, t)
	}
	if len(all) > 0 {
		n.Start = all[0].Start
	}
	return n
}

func plus(a, b ops.Tally) ops.Tally {
	a.Sent += b.Sent
	a.Delivered += b.Delivered
	a.Acked += b.Acked
	a.Failed += b.Failed
	a.Lost += b.Lost
	a.Garbage += b.Garbage
	a.Superseded += b.Superseded
	if b.Started > 0 {
		a.Lateness = time.Duration((float64(a.Lateness)*float64(a.Started) + float64(b.Lateness)*float64(b.Started)) /
			float64(a.Started+b.Started))
		a.MaxLateness = max(a.MaxLateness, b.MaxLateness)
	}
	a.Started += b.Started
	return a
}

// Failing is how many of a hundred deliveries that were counted failed or were lost; less than 0 if there were none.
func Failing(n ops.Tally) Percent {
	if ended := n.Acked + n.Failed + n.Lost; ended > 0 {
		return Percent(100 * float64(n.Failed+n.Lost) / float64(ended))
	}
	return -1
}
