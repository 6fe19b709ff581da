package script

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// TestScriptLastChanceOfMany: a consumer that holds a message on its last chance looks at the others seldom, and a free
// consumer gets one soon.
func TestScriptLastChanceOfMany(t *testing.T) {
	t.Parallel()
	const n = 1500
	onReal(t, func(r *rig) {
		var ms []*SendMessage
		for i := range n {
			ms = append(ms, msg(fmt.Sprintf("m%04d", i), 0))
		}
		for part := range slices.Chunk(ms, MaxBatch) {
			r.hand(part...)
			var lost []Settlement
			for _, m := range part {
				lost = append(lost, Settlement{Tag: m.ID, ID: m.ID, Number: 1, Kind: OutcomeRetry, Delay: time.Second, Losses: 2})
			}
			r.done(lost...)
		}
		r.at(time.Second)
		c, free := NewCaller(), NewCaller()
		const seconds = 4
		fetches, got := 0, 0
		for end := r.now + seconds*1_000_000; r.now < end; fetches++ {
			c.Next()
			f := r.ask(c, FetchRequest{Want: 10, HoldsLastChance: true})
			if len(f.Tags) > 0 {
				r.t.Fatalf("handed out %s", handed(f))
			}
			now := r.since(r.now)
			switch {
			case f.Next == 0:
				r.at(now + time.Second)
			case f.Next <= f.Now:
				r.at(now + time.Millisecond)
			default:
				r.at(r.since(int64(f.Next)))
			}
			if fetches%100 == 99 {
				for range 10 { // half a second
					f := r.fetch(free, 10)
					if len(f.Tags) > 0 {
						got++
						r.done(ack(names(f.Tags[0])))
						break
					}
					r.at(r.since(r.now) + 50*time.Millisecond)
				}
			}
		}
		r.t.Logf("%d fetches in %d s", fetches, seconds)
		if perSecond := fetches / seconds; perSecond > 50 {
			r.t.Errorf("%d fetches a second", perSecond)
		}
		if got < fetches/100 {
			r.t.Errorf("a free consumer got %d of %d", got, fetches/100)
		}
	})
}
