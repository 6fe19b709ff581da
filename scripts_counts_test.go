package delayqueue

import (
	"context"
	"testing"
	"time"
)

func TestScriptCounts(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		want := func(what string, want Counts) {
			r.t.Helper()
			before := r.contents()
			got, err := r.store.counts(context.Background())
			if err != nil {
				r.t.Fatal(err)
			}
			r.equal(what, got.Counts, want)
			r.equal("contents", r.contents(), before)
		}
		at := func(d time.Duration) time.Time { return time.UnixMicro(rigBase).Add(d) }
		want("nothing", Counts{})
		r.put(msg("a", 2*time.Second), msg("b", 2*time.Second), msg("c", 3*time.Second), msg("d", 3*time.Second), msg("e", time.Hour))
		want("pending", Counts{Pending: 5, NextDue: at(2 * time.Second)})
		r.at(2*time.Second - time.Microsecond)
		want("not yet due", Counts{Pending: 5, NextDue: at(2 * time.Second)})
		r.at(2100 * time.Millisecond)
		want("due", Counts{Pending: 3, Ready: 2, Behind: 100 * time.Millisecond, NextDue: at(3 * time.Second)})
		r.take("a b")
		want("handed out", Counts{Pending: 3, Unack: 2, NextDue: at(3 * time.Second)})
		r.done(ends(outcomeReady, "a", 0, 0, ""), ends(outcomeRetry, "b", 1, 0, ""))
		want("released and failed", Counts{Pending: 3, Ready: 1, Retry: 1, NextDue: at(3 * time.Second)})
		r.at(3*time.Second - time.Microsecond)
		want("waiting since it was released", Counts{Pending: 3, Ready: 1, Retry: 1, Behind: 900*time.Millisecond - time.Microsecond,
			NextDue: at(3 * time.Second)})
		r.at(4 * time.Second)
		want("retry due", Counts{Pending: 1, Ready: 4, Behind: 1900 * time.Millisecond, NextDue: at(time.Hour)})
		r.equal("handed out", len(r.fetch(newCaller(), 10).tags), 4)
		r.done(ends(outcomeGarbage, "2:a", 1, 0, ""), ends(outcomeGarbage, "c", 1, 0, ""))
		want("garbage", Counts{Pending: 1, Unack: 2, Garbage: 2, NextDue: at(time.Hour)})
		r.done(ack("2:b"), ack("d"))
		r.equal("intercept", r.intercept(newCaller(), "id", idOf("e")), StatePending)
		want("all settled", Counts{Garbage: 2})
		r.read()
	})
}
