// Package shard makes one queue of several. A queue over many slots is n queues, its shards, under one name. What is named by a key, a
// lane or a sequence is in the shard of that name, and what is named by an id in the shard that the id says. Calls for the whole queue go
// to all shards at once, and their replies are put together here.
//
// It may import script, link, message and conc. A Queue owns what its process knows of the number of shards, which is in Redis (script.Store.Join).
// No call of a queue with one shard may cost more than without this package, but for a look at the number of shards now and then. Nothing is
// atomic over several shards, and nothing may depend on that.
package shard

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/conc"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/redis/go-redis/v9"
)

// A Queue is a queue with all its shards. The Store is the first shard, which has what the queue has once: the journal, events, schedules, and the
// number of shards. Its other calls are for all shards. A Queue is safe for concurrent use.
type Queue struct {
	*script.Store
	Asked int  // shards that this process asks for; 0: as many as the queue has
	Reads bool // this process does not make the queue have them

	asking  chan struct{}       // holds an element while Find asks
	begun   atomic.Bool         // Current was called
	looking atomic.Bool         // Current has another goroutine ask
	sends   atomic.Bool         // this process sends to all shards that it knows
	settled atomic.Bool         // Redis has said, or was told, which shards have names
	known   atomic.Pointer[Set] // nil: nothing is known
	looked  conc.AtomicTime     // when the queue was asked last

	learning sync.Mutex
	learned  time.Time // when known was learned; guarded by learning
}

// New makes a queue of its first shard.
func New(first *script.Store, asked int) *Queue {
	return &Queue{Store: first, Asked: asked, asking: make(chan struct{}, 1)}
}

// A Set is the shards of a queue at one time. It does not change.
type Set struct {
	All   []*script.Store // in the order of their slots
	Names int             // so many of them have names
}

// lookEvery is how long a process relies on what it knows of the number of shards. Calls by an id or a name are right even if that is old.
const lookEvery = 5 * time.Second

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
func (s *Set) Named(name string) int {
	return script.ShardOf(name, s.Names) * (len(s.All) / s.Names)
}

// Look returns the shards. It asks Redis if it has not done so for a while. If Redis does not answer, what was known holds.
func (q *Queue) Look(ctx context.Context) (*Set, error) { return q.look(ctx, lookEvery) }

// Find returns the shards for a name that is to be sent. It asks until its context ends, unless it is settled which shards have names.
func (q *Queue) Find(ctx context.Context) (set *Set, err error) {
	if q.settled.Load() {
		return q.Current(), nil
	}
	err = link.Repeat(ctx, math.MaxInt, func() error {
		select { // one asks for all that wait
		case q.asking <- struct{}{}:
			defer func() { <-q.asking }()
		case <-ctx.Done():
			return link.Ended(ctx)
		}
		if q.settled.Load() {
			set = q.Known()
			return nil
		}
		begun := time.Now()
		got, err := q.ask(ctx)
		if err == nil && got.N == 0 {
			got, err = q.Store.Join(ctx, 1, 0)
		}
		if err == nil {
			set = q.learn(got, begun)
			q.settled.Store(true)
		}
		return err
	})
	return set, err
}

// First is the first shard alone.
func (q *Queue) First() *Set { return &Set{All: []*script.Store{q.Store}, Names: 1} }

// Known returns the shards as far as they are known, and nil before the first answer. It asks nobody.
func (q *Queue) Known() *Set { return q.known.Load() }

// looks holds an element for each look that nobody waits for. A process may have a thousand queues, and they must not take as many connections.
var looks = make(chan struct{}, 2)

// LookAside is Look for who can wait until few others look. It makes one attempt.
func (q *Queue) LookAside(ctx context.Context) (*Set, error) {
	select {
	case looks <- struct{}{}:
		defer func() { <-looks }()
	case <-ctx.Done():
		return nil, link.Ended(ctx)
	}
	return q.lookOnce(ctx, lookEvery)
}

// currentFor is how old what a sender knows may get. After that it goes on with what it knows, and another goroutine asks.
// Only tests change it.
var currentFor = 10 * time.Second

// Current is Known for who calls again and again.
func (q *Queue) Current() *Set {
	if q.begun.CompareAndSwap(false, true) {
		q.looked.Set(time.Now())
	} else if q.looked.Age(time.Now()) > currentFor && q.looking.CompareAndSwap(false, true) {
		go func() {
			defer q.looking.Store(false)
			ctx, cancel := context.WithTimeout(context.Background(), lookEvery)
			defer cancel()
			_, _ = q.LookAside(ctx) // if nobody answers, what was known holds
		}()
	}
	return q.Known()
}

// look is lookOnce that is tried as all reads are, while nothing is known.
func (q *Queue) look(ctx context.Context, fresh time.Duration) (*Set, error) {
	return link.Read(ctx, func(ctx context.Context) (*Set, error) { return q.lookOnce(ctx, fresh) })
}

// lookOnce returns what is known if it is fresh, and else asks. If nobody answers, what was known holds.
func (q *Queue) lookOnce(ctx context.Context, fresh time.Duration) (*Set, error) {
	known := q.Known()
	if known != nil && q.looked.Age(time.Now()) < fresh {
		return known, nil
	}
	begun := time.Now()
	got, err := q.ask(ctx)
	switch {
	case err == nil:
		return q.learn(got, begun), nil
	case known != nil:
		q.looked.Set(time.Now())
		return known, nil
	}
	return nil, err
}

// ask asks how many shards there are. If possible, it makes the queue have as many as this process wants, or sends to, so that none has messages
// and no consumer. N is 0 if no shard says how many there are.
func (q *Queue) ask(ctx context.Context) (script.ShardsReply, error) {
	var known script.ShardsReply
	if set := q.Known(); set != nil && q.settled.Load() {
		known = script.ShardsReply{N: len(set.All), Names: set.Names}
	}
	want := 0
	if q.sends.Load() {
		want = max(q.Asked, known.N)
	} else if !q.Reads {
		want = q.Asked
	}
	says, err := q.askFor(ctx, want, known)
	if err == nil && want > 1 && says.N > 1 && says != known {
		q.copyTo(ctx, says)
	}
	return says, err
}

// askFor is ask of a process that wants so many, and knows so many. It asks the first shard. If that does not answer, or says less, it may have
// forgotten, and the other shards are asked.
func (q *Queue) askFor(ctx context.Context, want int, known script.ShardsReply) (script.ShardsReply, error) {
	least := max(q.Asked, known.N)
	says, err := q.Store.Shards(ctx)
	switch {
	case err == nil && (says.N >= least || least <= 1):
		return says, nil
	case err != nil && (known.N > 0 || link.Ended(ctx) != nil || !link.Transient(err) && q.Asked <= 1):
		return says, err
	}
	first := says
	if others := q.askOthers(ctx, least, first.N == 0); more(others, says) {
		says = others
	}
	if err != nil && says.N == 0 {
		return says, err
	} else if err != nil {
		return says, nil
	}
	be := says
	if be.N == 0 { // there is no queue, or it was deleted: names stay where this process sends them
		be.Names = known.Names
	}
	if want > be.N && want%max(be.N, 1) == 0 {
		be.N = want
	}
	if want > 1 && be != first {
		joined, err := q.Store.Join(ctx, be.N, be.Names)
		if err != nil && max(says.N, known.N) == 0 {
			return says, err
		}
		if err == nil && more(joined, says) {
			says = joined
		}
	}
	if says.N == 0 {
		says = known
	}
	return says, nil
}

// more says whether a reply is of a time when there were more shards, or more of them with names, than in another one.
func more(a, b script.ShardsReply) bool { return a.N > b.N || a.N == b.N && a.Names > b.Names }

// Only tests change these.
var (
	// othersWait is how long the answers of other shards are waited for, after one has said how many there are.
	othersWait = 250 * time.Millisecond
	// copyTime bounds the copies of the number of shards. Some may be on a node that does not answer.
	copyTime = time.Second
)

// primes are those up to script.MaxShards: each number of shards has a prime factor p, and so a shard at 1/p of the circle.
var primes = []int{2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61}

// askOthers asks the other shards of n, all at once because some of them may be on a node that does not answer either, and returns what the one says
// that says most. With anywhere, and in a Cluster, it asks one shard of each possible number, too. N is 0 if none says anything.
func (q *Queue) askOthers(ctx context.Context, n int, anywhere bool) (most script.ShardsReply) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var shards []*script.Store
	for i := 1; i < n; i++ {
		shards = append(shards, q.shard(i, n))
	}
	if _, cluster := q.Cli.(*redis.ClusterClient); cluster && anywhere {
		for _, p := range primes {
			if max(n, 1)%p > 0 {
				shards = append(shards, q.shard(1, p))
			}
		}
	}
	replies := make(chan script.ShardsReply, len(shards))
	for _, s := range shards {
		go func() {
			r, _ := s.Shards(ctx) // N is 0 beside an error
			replies <- r
		}()
	}
	var over <-chan time.Time
	for range shards {
		select {
		case r := <-replies:
			if more(r, most) {
				most = r
			}
		case <-over:
			return most
		}
		if most.N > 0 && over == nil {
			over = time.After(othersWait)
		}
	}
	return most
}

// copyTo tells the other shards how many there are, for a process that starts while the first does not answer, or has forgotten. That may fail.
func (q *Queue) copyTo(ctx context.Context, r script.ShardsReply) {
	ctx, cancel := context.WithTimeout(ctx, copyTime)
	defer cancel()
	var wait sync.WaitGroup
	for i := 1; i < r.N; i++ {
		wait.Go(func() { _, _ = q.shard(i, r.N).Join(ctx, r.N, r.Names) })
	}
	wait.Wait()
}

// Sends says that this process sends to all shards that it knows. If the queue is deleted meanwhile, it has them again.
func (q *Queue) Sends() { q.sends.Store(true) }

func (q *Queue) shard(i, of int) *script.Store {
	return script.NewShard(q.Cli, q.Prefix, q.Queue, i, of)
}

// learn notes how many shards there are, as an answer says that was asked for at this instant.
func (q *Queue) learn(got script.ShardsReply, asked time.Time) *Set {
	q.learning.Lock()
	defer q.learning.Unlock()
	n, names, known := max(got.N, 1), max(got.Names, 1), q.Known()
	if known != nil && n < len(known.All) && asked.Before(q.learned) { // a queue gets no fewer, so this answer is older, or the next one says so
		return known
	}
	q.learned = time.Now()
	q.looked.Set(q.learned)
	if got.N > 0 {
		defer q.settled.Store(true) // after known, which Find relies on
	}
	if known != nil && len(known.All) == n && known.Names == names {
		return known
	}
	set := &Set{All: []*script.Store{q.Store}, Names: names}
	if n > 1 {
		set.All[0] = q.shard(0, n)
	}
	for i := 1; i < n; i++ {
		set.All = append(set.All, q.shard(i, n))
	}
	q.known.Store(set)
	return set
}

// ByID returns the shard of an id. A message of a sender that knows of more shards may be in one that this process has not seen.
func (q *Queue) ByID(ctx context.Context, id string) (*script.Store, error) {
	place, set := message.ShardIn(id), q.Current()
	switch {
	case place == 0 && set == nil:
		return q.Store, nil
	case place == 0:
		return set.All[0], nil
	case set != nil && set.at(place) != nil:
		return set.at(place), nil
	}
	set, err := q.look(ctx, 0)
	if err != nil {
		return nil, err
	}
	if s := set.at(place); s != nil {
		return s, nil
	}
	return set.All[0], nil
}

// ByName returns the shard of a key, a lane or a sequence.
func (q *Queue) ByName(ctx context.Context, name string) (set *script.Store, err error) {
	known := q.Current()
	if known == nil || !q.settled.Load() { // the first message with a name may have settled it since
		if known, err = q.look(ctx, 0); err != nil {
			return nil, err
		}
	}
	return known.All[known.Named(name)], nil
}

// By returns the shard of "key" or an id.
func (q *Queue) By(ctx context.Context, by, what string) (*script.Store, error) {
	if by == "key" {
		return q.ByName(ctx, what)
	}
	return q.ByID(ctx, what)
}

// ErrMissing is in each MissingError.
var ErrMissing = errors.New("some shards are missing")

// A MissingError says that not all shards have answered, or have done what they were told.
type MissingError struct {
	Answered, Of int
	Err          error // of one of the others
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("only %d of %d shards: %v", e.Answered, e.Of, e.Err)
}

func (e *MissingError) Unwrap() []error { return []error{ErrMissing, e.Err} }

// each calls f for all shards at once, and returns the replies of those that answer, in the order of the shards. If some do not,
// the error is a *MissingError. If none does, it is that of the first.
func each[T any](ctx context.Context, shards []*script.Store, f func(context.Context, *script.Store) (T, error)) ([]T, error) {
	if len(shards) == 1 {
		got, err := f(ctx, shards[0])
		if err != nil {
			return nil, err
		}
		return []T{got}, nil
	}
	got, errs := make([]T, len(shards)), make([]error, len(shards))
	var wait sync.WaitGroup
	for i, s := range shards {
		wait.Go(func() { got[i], errs[i] = f(ctx, s) })
	}
	wait.Wait()
	var answered []T
	var first error
	for i, err := range errs {
		if err == nil {
			answered = append(answered, got[i])
		} else if first == nil {
			first = fmt.Errorf("shard %d of %d: %w", i+1, len(shards), err)
		}
	}
	if first == nil {
		return answered, nil
	}
	if len(answered) == 0 {
		return nil, errors.Unwrap(first)
	}
	return answered, &MissingError{len(answered), len(shards), first}
}
