package delayqueue

import (
	"strconv"
	"testing"
	"time"
)

func TestScriptExtend(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"held": {func(r *rig) {
			r.hand(msg("a", 0), msg("b", 0))
			r.at(3*time.Second + time.Microsecond)
			r.equal("answers", r.extend("a"), []leaseState{leaseRenewed})
		}, "unack b@10.000001s a@13s"}, // even, whereas those of fetches are odd
		"a shorter lease": {func(r *rig) {
			r.hand(msg("a", 0))
			r.with.lease = time.Second
			r.extend("a")
			r.expect("unack a@10s") // another consumer asks for more
			r.at(10*time.Second + time.Microsecond)
			r.extend("a") // that one is gone
		}, "unack a@11s"},
		"lost, gone, and mixed": {func(r *rig) {
			r.hand(msg("a", 0), msg("b", 0), msg("c", 0, keyed("k")), msg("d", 0), msg("e", 0))
			r.done(ends(outcomeReady, "a", 0, 0, ""), ends(outcomeGarbage, "d", 1, 0, ""))
			r.take("2:a")
			r.equal("cancel", r.cancel("key", "k"), StateUnack)
			names := []string{"a", "b", "c", "2:a", "d", "nobody", "e"}
			want := []leaseState{leaseLost, leaseRenewed, leaseGone, leaseRenewed, leaseLost, leaseGone, leaseRenewed}
			for range 2 { // it may come twice
				r.at(r.since(r.now) + time.Second)
				r.equal("answers", r.extend(names...), want)
			}
		}, "unack b@12s e@12s 2:a@12s garbage d@0s fail a=2/0/0@0s d=2/1/0@0s"},
		"all lost": {func(r *rig) {
			r.hand(msg("a", 0))
			r.tickTo9(11 * time.Second)
			r.equal("answers", r.extend("a"), []leaseState{leaseLost})
		}, "retry 2:a@11s~11.5s fail a=2/0/1@11s!lost wake 11s~11.5s"},
		"ran out, not yet noticed": {func(r *rig) {
			r.hand(msg("a", 0))
			r.at(time.Minute)
			r.equal("answers", r.extend("a"), []leaseState{leaseRenewed})
			r.tick()
		}, "unack a@1m10s"},
		"a repeat of the fetch does not find what was renewed": {func(r *rig) {
			c := r.hand(msg("a", 0), msg("b", 0))
			r.extend("a")
			r.at(time.Second)
			r.equal("the repeat", handed(r.fetchAgain(c, 2)), "b")
		}, "unack a@10s b@11.000001s"},
		"many": {func(r *rig) {
			var ms []*sendMessage
			var all []string
			var want []leaseState
			for i := range maxBatch {
				ms, all, want = append(ms, msg(strconv.Itoa(i), 0)), append(all, strconv.Itoa(i)), append(want, leaseRenewed)
			}
			r.hand(ms...)
			r.equal("answers", r.extend(all...), want)
			for _, name := range all {
				r.done(ack(name))
			}
		}, ""},
	})
}
