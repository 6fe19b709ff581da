package shard

import (
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// TestCurrentFollows: who knows the shards learns after a while that the queue has more, or fewer, and meanwhile goes on with what it knows.
func TestCurrentFollows(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3)
	q := New(r.Store, 0)
	if set, err := q.Find(queuetest.CtxB); err != nil || len(set.All) != 3 {
		t.Fatalf("%+v, %v", set, err)
	}
	for _, n := range []int{6, 3} {
		before := len(q.Current().All)
		if n > before {
			_, err := r.Join(queuetest.CtxB, n, 0)
			r.Must(err)
		} else {
			r.Must(r.Base.Cli.HSet(queuetest.CtxB, r.base(0)+"state", "shards", "3 3").Err()) // the queue was deleted, and used again
		}
		if got := len(q.Current().All); got != before {
			t.Errorf("it knows %d shards at once, want %d for a while", got, before)
		}
		q.looked.Set(time.Now().Add(-2 * currentFor))
		queuetest.Eventually(t, "it has learned", func() bool { return len(q.Current().All) == n })
	}
}

// TestOlderAnswer: of two looks that are under way at once, the one that began before the queue grew may be answered last.
func TestOlderAnswer(t *testing.T) {
	r := newRig(t, 3)
	q := New(r.Store, 0)
	begun := time.Now()
	q.learn(script.ShardsReply{N: 6, Names: 3}, begun)
	if got := q.learn(script.ShardsReply{N: 3, Names: 3}, begun); len(got.All) != 6 || len(q.Known().All) != 6 {
		t.Errorf("it knows %d shards after an older answer, want 6", len(q.Known().All))
	}
	if got := q.learn(script.ShardsReply{N: 3, Names: 3}, time.Now()); len(got.All) != 3 { // the queue was deleted
		t.Errorf("it knows %d shards after a newer answer, want 3", len(got.All))
	}
}
