// Package shard makes one queue of several. A queue over many slots is n queues, its shards, under one name. What is
// named by a key, a lane or a sequence is in the shard of that name, and what is named by an id in the shard that the
// id says. Calls for the whole queue go to all shards at once, and their replies are put together here.
//
// It may import script, link, message and conc. A Queue owns what its process knows of the number of shards. The
// first shard has that number, and it does not change until the queue is deleted: the first call of a process that
// asks for several writes it, if the queue is new. The scripts that send and fetch refuse another number
// (script.Store.FindShards). So a process that asks for none begins with one shard, and a queue with one costs no
// call more than without this package. Nothing is atomic over several shards, and nothing may depend on that.
package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/conc"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/redis/go-redis/v9"
)

// A Queue is a queue with all its shards. The Store is the first shard, which has what the queue has once: the
// journal, events, schedules, and the number of shards. Its other calls are for all shards. A Queue is safe for
// concurrent use.
type Queue struct {
	*script.Store
	Asked int // shards that this process asks for; 0: as many as the queue has

	asking chan struct{}       // holds an element while one asks for all
	known  atomic.Pointer[Set] // nil: nothing is known
	looked conc.AtomicTime     // when a process that asks for no number has asked last
}

// New makes a queue of its first shard.
func New(first *script.Store, asked int) *Queue {
	q := &Queue{Store: first, Asked: asked, asking: make(chan struct{}, 1)}
	q.looked.Set(time.Now().Add(-lookEvery))
	if asked <= 1 {
		q.learn(1)
	}
	return q
}

// A Set is the shards of a queue.
type Set struct {
	All      []*script.Store // in the order of their slots
	Replaced context.Context // ends when this process has learned that the queue has another number

	replace context.CancelFunc
}

// A process that asks for no number relies for so long on what the queue has said. Sends and consumers need not: a
// wrong number is refused.
const (
	lookEvery   = time.Minute     // who reads
	changeEvery = 5 * time.Second // who changes the whole queue
)

// circle is the number of places that an id can say.
const circle = 1024

// At is where shard i lies on the circle. It does not depend on how many shards there are.
func (s *Set) At(i int) int { return i * circle / len(s.All) }

// at is the shard at this place; nil if there is none.
func (s *Set) at(place int) *script.Store {
	n := len(s.All)
	if i := (place*n + circle - 1) / circle; i < n && s.At(i) == place {
		return s.All[i]
	}
	return nil
}

// Named is the number of the shard of a name, among all.
func (s *Set) Named(name string) int { return script.ShardOf(name, len(s.All)) }

// Known returns the shards as far as they are known, and asks nobody. A process that asks for no number takes the
// queue for one with one shard until it is refused. A process that asks for several knows nothing (nil) until the
// first answer.
func (q *Queue) Known() *Set { return q.known.Load() }

// Find returns the shards for a send. It asks until its context ends, if nothing is known.
func (q *Queue) Find(ctx context.Context) (*Set, error) {
	if known := q.Known(); known != nil {
		return known, nil
	}
	set, err := q.Reach(ctx)
	if err != nil && !errors.Is(err, script.ErrShardCount) {
		err = fmt.Errorf("how many shards the queue has is not known: %w", err)
	}
	return set, err
}

// Look returns the shards for who reads. If Redis does not answer, what was known holds.
func (q *Queue) Look(ctx context.Context) (*Set, error) { return q.look(ctx, lookEvery) }

func (q *Queue) look(ctx context.Context, fresh time.Duration) (*Set, error) {
	return link.Read(ctx, func(ctx context.Context) (*Set, error) { return q.Ask(ctx, fresh) })
}

// Reach returns the shards for a change of the whole queue. It asks until its context ends.
func (q *Queue) Reach(ctx context.Context) (*Set, error) { return q.reach(ctx, changeEvery) }

func (q *Queue) reach(ctx context.Context, fresh time.Duration) (set *Set, err error) {
	err = link.Repeat(ctx, func() error {
		set, err = q.Ask(ctx, fresh)
		return err
	})
	return set, err
}

// Ask returns the shards, as the queue has said not longer ago than fresh, or says now. It makes one attempt.
func (q *Queue) Ask(ctx context.Context, fresh time.Duration) (*Set, error) {
	select { // one asks for all that wait
	case q.asking <- struct{}{}:
		defer func() { <-q.asking }()
	case <-ctx.Done():
		return nil, link.Ended(ctx)
	}
	known := q.Known()
	switch {
	case q.Asked > 0 && known != nil || q.Asked == 0 && q.looked.Age(time.Now()) < fresh:
		return known, nil
	case q.Asked > 0:
		has, err := q.fix(ctx, q.Asked)
		if err == nil {
			err = q.other(q.Asked, has)
		}
		if err != nil {
			return nil, err
		}
		return q.learn(has), nil
	}
	has, err := link.Within(ctx, q.Store.Server, func(ctx context.Context) (int, error) {
		return q.Store.Shards(ctx, 0)
	})
	if err != nil && link.Transient(err) && len(known.All) == 1 {
		if guess := q.guess(ctx); guess > 0 {
			has, err = guess, nil
		}
	}
	switch {
	case err != nil && len(known.All) == 1:
		return nil, err
	case err == nil && has == 0: // it is new, or has forgotten the number, which somebody writes again
		return known, nil
	case err == nil:
		known = q.learn(has)
	}
	q.looked.Set(time.Now())
	return known, nil
}

// fix makes a new queue have n shards, and returns how many it has. If the first shard does not answer, what another
// one of n says counts.
func (q *Queue) fix(ctx context.Context, n int) (has int, err error) {
	if has, err = q.Store.Shards(ctx, n); err == nil || !link.Transient(err) {
		return has, err
	}
	if has = copied(ctx, q.shards(n)[1:]); has > 0 {
		return has, nil
	}
	return 0, fmt.Errorf("its first shard does not answer, and no other says it: %w", err)
}

// guess is how many shards a queue in a Cluster has by others than the first, for a process that has just started; 0:
// none says it. Where the others lie depends on their number, so each number is tried. Of all even numbers, the shard
// in the middle lies in one place.
func (q *Queue) guess(ctx context.Context) int {
	if _, is := q.Cli.(*redis.ClusterClient); !is { // the others are where the first is
		return 0
	}
	others := []*script.Store{script.NewShard(q.Cli, q.Prefix, q.Queue, 1, 2)}
	for n := 3; n <= script.MaxShards; n += 2 {
		others = append(others, script.NewShard(q.Cli, q.Prefix, q.Queue, n/2, n))
	}
	return copied(ctx, others)
}

// copied is how many shards the queue has by others than the first; 0: none says it, or they differ, because the queue
// was deleted while some were away.
func copied(ctx context.Context, others []*script.Store) (has int) {
	copies, _ := each(ctx, others, "", func(ctx context.Context, s *script.Store) (int, error) {
		return s.Shards(ctx, 0)
	})
	for _, one := range copies {
		if one <= 1 {
			continue // it has no copy: with one shard there is no other
		}
		if has > 0 && one != has {
			return 0
		}
		has = one
	}
	return has
}

// ErrLearned: the queue has another number of shards than this process took it for, which asks for none. It knows
// that now.
var ErrLearned = fmt.Errorf("%w than this process has known so far", script.ErrShardCount)

// agree finds out why a shard has refused a call for a queue with n shards. If there is no reason, or none any more,
// the call can be made again.
func (q *Queue) agree(ctx context.Context, s *script.Store, n int) error {
	has, err := q.fix(ctx, n)
	if err != nil {
		return err
	}
	if has != n && q.Asked == 0 {
		q.learn(has)
		return ErrLearned
	}
	if err = q.other(n, has); err != nil {
		if known := q.Known(); q.Asked > 1 && known != nil {
			q.known.CompareAndSwap(known, nil) // else sends to shards that do not refuse would go on
		}
		return err
	}
	if s.Keys.State == q.Keys.State {
		return nil
	}
	return s.CopyShards(ctx, n)
}

// other is the error of a process for which the queue has so many shards, if it has another number.
func (q *Queue) other(asked, has int) error {
	if has == asked {
		return nil
	}
	return fmt.Errorf("%w: it has %d, and this process asks for %d: give all processes the same number (WithShards). "+
		"The number of a queue does not change: for another one take a new name, and drain this queue",
		script.ErrShardCount, has, asked)
}

// learn notes that the queue has n shards.
func (q *Queue) learn(n int) *Set {
	known := q.Known()
	if known != nil && len(known.All) == n {
		return known
	}
	set := &Set{All: q.shards(n)}
	set.Replaced, set.replace = context.WithCancel(context.Background())
	if !q.known.CompareAndSwap(known, set) {
		return q.learn(n)
	}
	if known != nil {
		known.replace()
	}
	return set
}

// shards makes the stores of a queue with n shards.
func (q *Queue) shards(n int) (all []*script.Store) {
	if n == 1 {
		all = append(all, q.Store)
	}
	for i := len(all); i < n; i++ {
		all = append(all, script.NewShard(q.Cli, q.Prefix, q.Queue, i, n))
	}
	for _, s := range all {
		if s.FindShards != nil {
			continue // the first shard, as the only one
		}
		s.FindShards = func(ctx context.Context) error { return q.agree(ctx, s, n) }
	}
	return all
}

// By returns the shard of a name, if by is "key", or of an id, for who reads.
func (q *Queue) By(ctx context.Context, by, what string) (*script.Store, error) {
	return q.by(ctx, by, what, q.look)
}

// by asks, if it must, as look or reach do.
func (q *Queue) by(ctx context.Context, by, what string, ask func(context.Context, time.Duration) (*Set, error)) (
	*script.Store, error) {
	if by == "key" {
		set, err := ask(ctx, lookEvery)
		if err != nil {
			return nil, err
		}
		return set.All[set.Named(what)], nil
	}
	place, set := message.ShardIn(what), q.Known()
	if place == 0 && set == nil {
		return q.Store, nil
	}
	if set == nil || set.at(place) == nil {
		var err error
		if set, err = ask(ctx, 0); err != nil {
			return nil, err
		}
	}
	return cmp.Or(set.at(place), set.All[0]), nil
}

// ErrMissing is in each MissingError.
var ErrMissing = errors.New("some shards are missing")

// A MissingError says that not all shards have answered, or have done what they were told.
type MissingError struct {
	Answered, Of int
	Missing      []int  // the others, from 1
	Did          string // what was done in those that answered; "": they were read
	Err          error  // of the first that is missing
}

func (e *MissingError) Error() string {
	var names []string
	for _, i := range e.Missing {
		names = append(names, strconv.Itoa(i))
	}
	which := "shard " + strings.Join(names, ", ")
	if len(names) > 1 {
		which = "shards " + strings.Join(names, ", ")
	}
	if e.Did == "" {
		return fmt.Sprintf("only %d of %d shards answer, not %s: %v", e.Answered, e.Of, which, e.Err)
	}
	return fmt.Sprintf("%s in %d of %d shards, not in %s: %v; repeat the call when its node is back", e.Did, e.Answered,
		e.Of, which, e.Err)
}

func (e *MissingError) Unwrap() []error { return []error{ErrMissing, e.Err} }

// An Absence is the shards that were left out, because they did not answer. Its JSON is in cursors.
type Absence struct {
	Out []int `json:"out,omitempty"` // from 1
	why error // of the first; nil: a call before this one has left it out
}

// errEarlier is why a shard is missing from the pages behind the one for which it did not answer.
var errEarlier = errors.New("it did not answer before")

// Leave leaves out shard i, from 0.
func (a *Absence) Leave(i int, why error) {
	if !a.Lacks(i) {
		a.Out = append(a.Out, i+1)
	}
	a.why = cmp.Or(a.why, why)
}

// Lacks says whether shard i, from 0, was left out.
func (a *Absence) Lacks(i int) bool { return slices.Contains(a.Out, i+1) }

// Err is a *MissingError if some of so many shards were left out, and why the first was if all were. did is as in a
// MissingError.
func (a *Absence) Err(of int, did string) error {
	why := cmp.Or(a.why, errEarlier)
	switch {
	case len(a.Out) == 0:
		return nil
	case len(a.Out) >= of:
		return why
	}
	return &MissingError{of - len(a.Out), of, slices.Sorted(slices.Values(a.Out)), did, why}
}

// each calls f for all shards at once, and returns the replies of those that answer, in the order of the shards. If
// some do not, the error is a *MissingError that says what was done. If none does, it is that of the first. Of several
// shards, each is waited for as link.Within says.
func each[T any](ctx context.Context, shards []*script.Store, did string,
	f func(context.Context, *script.Store) (T, error)) (answered []T, err error) {
	got, errs := make([]T, len(shards)), make([]error, len(shards))
	var wait sync.WaitGroup
	for i, s := range shards {
		wait.Go(func() { got[i], errs[i] = One(ctx, s, f) })
	}
	wait.Wait()
	var out Absence
	for i, err := range errs {
		if err == nil {
			answered = append(answered, got[i])
		} else {
			out.Leave(i, err)
		}
	}
	return answered, out.Err(len(shards), did)
}

// One calls f for a shard. If the queue has others, the shard is waited for as link.Within says.
func One[T any](ctx context.Context, s *script.Store, f func(context.Context, *script.Store) (T, error)) (T, error) {
	if s.Shard == "" {
		return f(ctx, s)
	}
	return link.Within(ctx, s.Server, func(ctx context.Context) (T, error) { return f(ctx, s) })
}
