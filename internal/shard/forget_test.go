package shard

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/script"
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
func (r *rig) process(asked int) *Queue {
	return New(script.NewStore(r.Cli, "dq", r.Name), asked)
}

// wantSet checks what a process knows when it has looked again.
func (r *rig) wantSet(q *Queue, n, names int) {
	r.T.Helper()
	q.looked.Set(time.Now().Add(-time.Hour))
	set, err := q.Look(queuetest.CtxB)
	if err != nil || len(set.All) != n || set.Names != names {
		r.T.Errorf("%+v, %v, want %d shards, %d with names", set, err, n, names)
	}
}

// TestForgottenNumber: if the first shard forgets how many there are, or says less than the others, names stay where they are.
func TestForgottenNumber(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"", "1 1", "3 3", "06 06", "x"} {
		for _, asked := range []int{6, 12} {
			t.Run(fmt.Sprintf("%q %d", first, asked), func(t *testing.T) {
				t.Parallel()
				r := newRig(t, 6)
				before := r.process(6)
				r.wantSet(before, 6, 6) // and has made copies
				r.say(0, first)
				if set, err := r.process(asked).Find(queuetest.CtxB); err != nil || len(set.All) != asked || set.Names != 6 {
					t.Errorf("%+v, %v", set, err)
				}
				r.wantSet(before, asked, 6)
			})
		}
	}
}

// TestKnownNumber: a process that knows the number keeps it if the first shard forgets it. If it sends, it says so again.
func TestKnownNumber(t *testing.T) {
	t.Parallel()
	r := newRig(t, 6)
	reads, sends := r.process(0), r.process(0)
	r.wantSet(reads, 6, 6)
	r.wantSet(sends, 6, 6)
	r.say(0, "") // and there are no copies: the queue was deleted
	r.wantSet(reads, 6, 6)
	if n := r.says(0); n != "" {
		t.Errorf("who only reads has written %q", n)
	}
	sends.Sends()
	r.wantSet(sends, 6, 6)
	if n := r.says(0); n != "6 6" {
		t.Errorf("the first shard says %q", n)
	}
	for i := range 6 {
		r.say(i, "")
	}
	r.say(0, "3 3") // it was deleted, and used again
	r.wantSet(reads, 3, 3)
	r.wantSet(sends, 6, 3) // so that a consumer finds what was sent meanwhile
}

// TestReadsMakeNothing: who only reads makes no key, and no shards.
func TestReadsMakeNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3)
	q := r.process(6)
	q.Reads = true
	r.wantSet(q, 3, 3)
	r.say(0, "")
	q = r.process(6)
	q.Reads = true
	r.wantSet(q, 1, 1)
	if _, err := q.ReadCounts(queuetest.CtxB); !errors.Is(err, script.ErrNoQueue) {
		t.Errorf("%v, want ErrNoQueue", err)
	}
	if n := r.says(0); n != "" {
		t.Errorf("it has written %q", n)
	}
}

// TestJoinRefused: a process that cannot make the queue have more shards uses those that it has.
func TestJoinRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3)
	r.Must(r.Cli.HSet(queuetest.CtxB, r.set.All[0].Keys.State, "pause", "9000000000000000").Err())
	r.wantSet(r.process(6), 3, 3)
	r.Must(r.Cli.HDel(queuetest.CtxB, r.set.All[0].Keys.State, "pause").Err())
}

// TestCopiesAreMended: a process that starts with the option mends copies that were lost.
func TestCopiesAreMended(t *testing.T) {
	t.Parallel()
	r := newRig(t, 6)
	r.say(2, "3 3")
	r.say(5, "")
	r.wantSet(r.process(6), 6, 6)
	for i := range 6 {
		if n := r.says(i); n != "6 6" {
			t.Errorf("shard %d says %q", i, n)
		}
	}
}

// TestNamesBeforeTheFirst: what a process knows of a queue that nobody has used does not say where names are.
func TestNamesBeforeTheFirst(t *testing.T) {
	t.Parallel()
	r := newRig(t, 0)
	q := r.process(0)
	r.wantSet(q, 1, 1)
	_, err := r.Join(queuetest.CtxB, 6, 0)
	r.Must(err)
	if s, err := q.By(queuetest.CtxB, "key", "a"); err != nil || s.Shard != r.process(6).shard(script.ShardOf("a", 6), 6).Shard {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestChangedInPart: a pause that is not in all shards says so, and limits that are not in all do not count as those of the queue.
func TestChangedInPart(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3)
	for i := range 3 {
		r.send(i, "x", time.Hour)
	}
	until := time.Now().Add(time.Hour).UnixMicro()
	r.Must(r.set.All[1].Pause(queuetest.CtxB, script.NewCaller(), until, "ann", "a deploy"))
	_, err := r.set.All[1].SetLimits(queuetest.CtxB, script.NewCaller(), script.RateLimits{Concurrency: 4})
	r.Must(err)
	c, err := r.ReadCounts(queuetest.CtxB)
	if want := "only in 1 of 3 shards: a deploy"; err != nil || !c.Paused || c.PausedBy != "ann" || c.PauseReason != want || c.Set.Concurrency != 0 {
		t.Errorf("%+v, %v", c, err)
	}
	r.Must(r.Pause(queuetest.CtxB, &r.calls, until, "ann", "a deploy"))
	_, err = r.SetLimits(queuetest.CtxB, &r.calls, script.RateLimits{Concurrency: 12})
	r.Must(err)
	if c, err := r.ReadCounts(queuetest.CtxB); err != nil || !c.Paused || c.PauseReason != "a deploy" || c.Set.Concurrency != 12 {
		t.Errorf("%+v, %v", c, err)
	}
}
