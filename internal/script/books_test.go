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
		r.hand(msg("d", 0))
		r.done(kept("d", 7*time.Minute, "")) // over when a fetch accepts
		r.do("HDEL", r.Keys.msg, queuetest.IDOf("a"))
		r.do("ZREM", r.Keys.pending, queuetest.IDOf("a"))
		r.equal("unaccounted", r.balance().Unaccounted, int64(1))
		r.do("HSET", r.Keys.State, "acked", "1")
		r.vanished = 0
		r.equal("books", r.balance(), Balance{Here: 3})
		r.read()
		for _, at := range []time.Duration{5 * time.Minute, 11 * time.Minute} {
			r.at(at)
			r.fetch(c, 0)
		}
		b := r.balance()
		r.equal("written off, over, unaccounted, here", []int64{b.WrittenOff, b.Over, b.Unaccounted, b.Here}, []int64{1, 1, 0, 2})
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

// TestBooksOfRareWays: what leaves in ways that are rare is counted once, under its cause.
func TestBooksOfRareWays(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		do   func(r *rig)
		want Balance // but for Since
	}{
		"superseded, acked, and kept": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")))
			r.answers(NewCaller(), on(ConflictReplace, true, msg("b", time.Hour, keyed("k"))))
			r.settle(NewCaller(), kept("a", time.Minute, "", "k"))
		}, Balance{Entered: 2, Sent: 2, Here: 2}},
		"acked, and gone, after a fetch was forgotten": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")))
			r.forgot(r.Keys.pending, "a")
			r.do("HDEL", r.Keys.msg, queuetest.IDOf("a"))
			r.equal("void", r.settle(NewCaller(), ack("a", "k")), []int{0})
			r.do("HDEL", r.Keys.key, "k")
		}, Balance{Entered: 1, Sent: 1, Unaccounted: 1}},
		"too many in garbage": {func(r *rig) {
			r.with.GarbageMax = 1
			r.hand(msg("a", 0), msg("b", 0), msg("c", 0))
			r.done(ends(OutcomeGarbage, "a", 1, 0, "x"), ends(OutcomeGarbage, "b", 1, 0, "x"), ends(OutcomeGarbage, "c", 1, 0, "x"))
		}, Balance{Entered: 3, Sent: 3, Left: 2, Trimmed: 2, Here: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(r *rig) {
				c.do(r)
				got := r.balance()
				got.Since = time.Time{}
				r.equal("books", got, c.want)
				r.read()
			})
		})
	}
}

// TestHistoryWithoutTold: if it is not known what history has of the totals, history is not told of all of them again.
func TestHistoryWithoutTold(t *testing.T) {
	t.Parallel()
	for _, told := range []string{"", "x", "-1 5", "9"} {
		t.Run(told, func(t *testing.T) {
			onBoth(t, func(r *rig) {
				c := NewCaller()
				r.put(msg("a", time.Hour), msg("b", time.Hour))
				r.fetch(c, 0)
				r.do("HSET", r.Keys.State, "told", told)
				r.at(2 * time.Second)
				r.fetch(c, 0)
				r.put(msg("c", time.Hour))
				r.at(4 * time.Second)
				r.fetch(c, 0)
				sent := int64(0)
				for _, hour := range r.history().Hours {
					sent += hour.Sent
				}
				r.equal("sent", sent, int64(3))
			})
		})
	}
}
