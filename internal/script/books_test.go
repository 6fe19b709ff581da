package script

import (
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

func (r *rig) balance() Balance {
	r.t.Helper()
	b, err := r.Balance(queuetest.CtxB)
	queuetest.Must(r.t, err)
	return b
}

// TestBooksBesideAnOlderVersion: while a version writes that keeps no books, they are not judged. Then a fetch accepts what that version did.
func TestBooksBesideAnOlderVersion(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		c := NewCaller()
		r.put(msg("a", time.Hour), msg("b", time.Hour), msg("c", time.Hour))
		r.fetch(c, 0)
		r.do("HDEL", r.Keys.msg, queuetest.IDOf("a"))
		r.do("ZREM", r.Keys.pending, queuetest.IDOf("a"))
		r.equal("unaccounted", r.balance().Unaccounted, int64(1))
		r.do("HSET", r.Keys.State, "acked", "1")
		r.vanished = 0
		r.equal("books", r.balance(), Balance{Here: 2})
		r.read()
		for _, at := range []time.Duration{5 * time.Minute, 11 * time.Minute} {
			r.at(at)
			r.fetch(c, 0)
		}
		b := r.balance()
		r.equal("written off, unaccounted, here", []int64{b.WrittenOff, b.Unaccounted, b.Here}, []int64{1, 0, 2})
		_, left := r.read().Fields["acked"]
		r.equal("acked is there", left, false)
	})
}

// TestAcceptRubbish: accepted books balance, and go on to, whatever another program has written into them.
func TestAcceptRubbish(t *testing.T) {
	t.Parallel()
	for _, rubbish := range []string{"99999999999999999", "1000000000000000", "-7", "x", "", "1e3", "nan", "12"} {
		t.Run(rubbish, func(t *testing.T) {
			onReal(t, func(r *rig) {
				for _, field := range []string{"in:stored", "in:found", "kept", "out:acked", "out:over", "out:lost", "told", "books", "sent"} {
					r.put(msg("a", time.Hour))
					r.do("HSET", r.Keys.State, field, rubbish)
					if _, err := r.AcceptBalance(queuetest.CtxB, newCall()); err != nil {
						t.Errorf("%s: %v", field, err)
					}
					r.equal(field, r.balance().Unaccounted, int64(0))
					r.put(msg("b", time.Hour))
					r.cancel("id", queuetest.IDOf("a"))
					r.cancel("id", queuetest.IDOf("b"))
					r.equal(field+", then", r.balance().Unaccounted, int64(0))
					r.do("HDEL", r.Keys.State, field) // told, books: nothing mends them
					if _, err := r.AcceptBalance(queuetest.CtxB, newCall()); err != nil {
						t.Errorf("%s: %v", field, err)
					}
				}
			})
		})
	}
}
