package shard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/redis/go-redis/v9"
)

// say sets what a shard says of the number of shards; "": nothing.
func (r *rig) say(shard int, text string) {
	r.T.Helper()
	key := r.set.All[shard].Keys.State
	if text == "" {
		r.Must(r.Cli.HDel(queuetest.CtxB, key, "shards").Err())
	} else {
		r.Must(r.Cli.HSet(queuetest.CtxB, key, "shards", text).Err())
	}
}

// says is what a shard says.
func (r *rig) says(shard int) string {
	return r.Cli.HGet(queuetest.CtxB, r.set.All[shard].Keys.State, "shards").Val()
}

// process makes what a process knows that asks for so many shards.
func (r *rig) process(asked int) *Queue { return New(script.NewStore(r.Base.Cli, "dq", r.Name), asked) }

// fetch is a call that a shard refuses if the queue has another number.
func fetch(s *script.Store) error {
	c := script.NewCaller()
	c.Next()
	settings := script.FetchSettings{Lease: time.Minute, MaxLosses: 3}
	return queuetest.Failure(s.Fetch(queuetest.CtxB, c, script.FetchRequest{Settings: &settings}))
}

// refused wants an error that names both numbers.
func refused(t *testing.T, err error, has, asked int) {
	t.Helper()
	want := fmt.Sprintf("has %d, and this process asks for %d", has, asked)
	if !errors.Is(err, script.ErrShardCount) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

// TestOneNumberWins: of processes that start at once with different numbers, those of one number have it, and all
// others are refused.
func TestOneNumberWins(t *testing.T) {
	t.Parallel()
	for range 50 {
		r := newRig(t, 0)
		asked := []int{3, 6, 6, 3, 4}
		sets, errs := make([]*Set, len(asked)), make([]error, len(asked))
		var wait sync.WaitGroup
		for i, n := range asked {
			wait.Go(func() { sets[i], errs[i] = r.process(n).Find(queuetest.CtxB) })
		}
		wait.Wait()
		has, err := r.Shards(queuetest.CtxB, 0)
		r.Must(err)
		for i, n := range asked {
			if n != has {
				refused(t, errs[i], has, n)
			} else if errs[i] != nil || len(sets[i].All) != n {
				t.Errorf("%+v, %v, want %d shards", sets[i], errs[i], n)
			}
		}
		for i := range has {
			r.Cli.Del(queuetest.CtxB, script.NewShard(r.Base.Cli, "dq", r.Name, i, has).Keys.State)
		}
	}
}

// TestNoNumberAsked: a process that asks for no number takes the queue for one with one shard until it is refused.
func TestNoNumberAsked(t *testing.T) {
	t.Parallel()
	r := newRig(t, 6)
	q := r.process(0)
	before := q.Known()
	if err := fetch(before.All[0]); !errors.Is(err, ErrLearned) {
		t.Errorf("%v, want ErrLearned", err)
	}
	if now := q.Known(); len(now.All) != 6 || before.Replaced.Err() == nil || now.Replaced.Err() != nil {
		t.Errorf("it knows %d shards after a refusal, want 6", len(now.All))
	}
	for _, s := range q.Known().All {
		r.Must(fetch(s))
	}
	one := r.process(1)
	refused(t, fetch(one.Known().All[0]), 6, 1)
	if len(one.Known().All) != 1 {
		t.Errorf("a process that asks for one shard has learned another number")
	}
}

// TestUsedWithoutShards: a queue that a process without the option has used has one shard.
func TestUsedWithoutShards(t *testing.T) {
	t.Parallel()
	r := newRig(t, 0)
	r.Must(fetch(r.process(0).Known().All[0]))
	_, err := r.process(6).Find(queuetest.CtxB)
	refused(t, err, 1, 6)
}

// TestNumberIsWrittenAgain: if a shard has forgotten the number, or says another one than the first, that is mended.
func TestNumberIsWrittenAgain(t *testing.T) {
	t.Parallel()
	for _, says := range []string{"", "3", "x"} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 6)
			q := r.process(6)
			r.Must(queuetest.Failure(q.Find(queuetest.CtxB)))
			for i, s := range q.Known().All {
				if i == 0 && says == "3" {
					continue // it decides
				}
				r.say(i, says)
				r.Must(fetch(s))
				if got := r.says(i); got != "6" {
					t.Errorf("shard %d says %q after %q", i, got, says)
				}
			}
			r.say(0, "3") // the queue was deleted, and used again
			refused(t, fetch(q.Known().All[0]), 3, 6)
			reads := r.process(0)
			if set, err := reads.Look(queuetest.CtxB); err != nil || len(set.All) != 3 {
				t.Errorf("%+v, %v, want 3 shards", set, err)
			}
		})
	}
}

// away makes the first shard not answer while down is true, until release.
func (r *rig) away(down *atomic.Bool) (release func()) {
	first := r.base(0)
	hook := func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if down.Load() && strings.Contains(fmt.Sprintln(cmd.Args()...), first) {
			cmd.SetErr(io.EOF)
			return io.EOF
		}
		return next(ctx, cmd)
	}
	return link.Interpose(r.Base.Cli, queuetest.CommandHook(hook))
}

// TestFirstShardAway: while the first shard does not answer, what another one says counts. If none says anything,
// nobody knows.
func TestFirstShardAway(t *testing.T) {
	t.Parallel()
	r := newRig(t, 6)
	short := func() context.Context {
		ctx, cancel := context.WithTimeout(queuetest.CtxB, 100*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	var down atomic.Bool
	down.Store(true)
	defer r.away(&down)()
	_, err := r.process(6).Find(short())
	want := "how many shards the queue has is not known"
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
	r.say(5, "6")
	q := r.process(6)
	if set, err := q.Find(queuetest.CtxB); err != nil || len(set.All) != 6 {
		t.Fatalf("%+v, %v, want 6 shards", set, err)
	}
	_, err = r.process(12).Find(queuetest.CtxB) // shard 10 of 12 is shard 5 of 6
	refused(t, err, 6, 12)
	r.say(2, "")
	r.Must(fetch(q.Known().All[2])) // what the process knows holds
	r.say(5, "3")                   // the queue was deleted, and made again with another number
	r.say(4, "6")
	r.say(2, "")
	if err := fetch(q.Known().All[2]); err == nil || r.says(2) != "" {
		t.Errorf("copies differ: %v, and shard 2 says %q", err, r.says(2))
	}
	r.say(4, "")
	refused(t, fetch(q.Known().All[2]), 3, 6)
	if q.Known() != nil || r.says(2) != "" {
		t.Errorf("it goes on with %+v, and shard 2 says %q", q.Known(), r.says(2))
	}
	r.say(5, "6")
	reads := r.process(0)
	if _, err := reads.Look(short()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a process that asks for no number: %v", err)
	}
	down.Store(false)
	if set, err := reads.Look(queuetest.CtxB); err != nil || len(set.All) != 6 {
		t.Errorf("%+v, %v, want 6 shards", set, err)
	}
	down.Store(true)
	reads.looked.Set(time.Now().Add(-2 * lookEvery))
	if set, err := reads.Look(queuetest.CtxB); err != nil || len(set.All) != 6 {
		t.Errorf("what was known does not hold: %+v, %v", set, err)
	}
}

// TestReadsMakeNothing: who only reads makes no key, and learns of a new queue at once.
func TestReadsMakeNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, 0)
	q := r.process(0)
	if _, err := q.ReadCounts(queuetest.CtxB); !errors.Is(err, script.ErrNoQueue) || len(q.Known().All) != 1 {
		t.Errorf("%v, want ErrNoQueue", err)
	}
	if n := r.Cli.Exists(queuetest.CtxB, r.Keys.State).Val(); n != 0 {
		t.Error("it has made a key")
	}
	r.Must(queuetest.Failure(r.Shards(queuetest.CtxB, 6)))
	for _, says := range []string{"6", ""} { // a first shard that has forgotten the number changes nothing
		r.say(0, says)
		q.looked.Set(time.Now().Add(-2 * lookEvery))
		s, err := q.By(queuetest.CtxB, "key", "a")
		if err != nil || len(q.Known().All) != 6 || s != q.Known().All[script.ShardOf("a", 6)] {
			t.Errorf("%q: %+v, %v", says, s, err)
		}
	}
}
