package script

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// waitsFor gives a message a countdown of n acks.
func waitsFor(n int, m *SendMessage) *SendMessage {
	text := m.Text
	if !m.When.Absolute {
		text = fmt.Sprintf("%c%016d%s", m.Version, 1, text)
	}
	e, err := message.DecodeEnvelope(text)
	if err != nil {
		panic(err)
	}
	e.Countdown = n
	m.Text, m.Version = e.Encode(m.When), e.Version()
	if m.Put == nil {
		m.Put = &PutOptions{Timed: true}
	}
	m.Put.Countdown = n
	return m
}

// counting is the ack of such a message.
func counting(key string, s Settlement) Settlement {
	s.Counts = key
	return s
}

// waits sends a message p with the key k and a countdown, which is due in an hour.
func (r *rig) waits(n int) {
	r.t.Helper()
	r.equal("answers", r.answers(NewCaller(), waitsFor(n, msg("p", time.Hour, keyed("k")))), "+1h0m0s")
}

// TestScriptCountdown: acks count for the longest countdown, and for none of a message that is gone. TestModel
// compares all others.
func TestScriptCountdown(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"whose envelope another program has deleted": {func(r *rig) {
			r.waits(1)
			r.hand(msg("a", 0))
			r.do("HDEL", r.Keys.msg, queuetest.IDOf("p"))
			r.done(counting("k", ack("a")))
			r.equal("there", r.Cli.HExists(queuetest.CtxB, r.Keys.msg, queuetest.IDOf("p")).Val(), false)
			r.do("DEL", r.Keys.of("pending"), r.Keys.of("parts"), r.Keys.of("key"))
		}, "wake 1h0m0s"},
		"a billion": {func(r *rig) {
			r.waits(message.MaxCountdown)
			r.hand(msg("a", 0), msg("b", 0))
			r.done(counting("k", ack("a")))
			r.do("HSET", r.Keys.of("parts"), queuetest.IDOf("p")+":0",
				fmt.Sprint(message.MaxCountdown-1, " ", message.MaxCountdown))
			r.done(counting("k", ack("b")))
		}, "pending p@0s missing p=0 key k=p wake 0s"},
	})
}

// TestScriptSettleIsBounded: a call that would read more than half a megabyte of other messages settles the first of
// its outcomes, and says how many. The rest goes with the next call.
func TestScriptSettleIsBounded(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"of groups": {func(r *rig) {
			for _, key := range []string{"k1", "k2", "k3"} {
				r.send(NewCaller(), on(ConflictAppend, true, msg(key, time.Hour, keyed(key), grouped, sized(300<<10))))
			}
			r.hand(msg("a", 0), msg("b", 0), msg("c", 0), msg("d", 0), msg("e", 0))
			all := r.leased([]Settlement{ack("e")})
			for i, name := range []string{"a", "b", "c"} {
				x := on(ConflictAppend, true, msg("x"+name, 2*time.Hour, keyed(fmt.Sprint("k", i+1)), grouped))
				all = append(all, r.leased([]Settlement{then(ack(name), x)})...)
			}
			all = append(all, r.leased([]Settlement{ack("d", "none")})...)
			calls := 0
			for len(all) > 0 {
				c := newCall()
				got := r.settling(c, all...)
				r.equal("a repeat", r.settling(c, all...), got)
				var left []Settlement
				for _, i := range got.Left {
					left = append(left, all[i])
				}
				all = left
				calls++
			}
			r.equal("calls", calls, 3)
		}, "pending k1@2h0m0s k2@2h0m0s k3@2h0m0s parts k1:2=2 k2:2=2 k3:2=2 key k1=k1 k2=k2 k3=k3 wake 0s~1h0m0s"},
		"of a message that is due with the last ack": {func(r *rig) {
			r.answers(NewCaller(), waitsFor(1, msg("p", time.Hour, keyed("k"), sized(400<<10))),
				waitsFor(1, msg("q", time.Hour, keyed("l"), sized(400<<10))))
			r.hand(msg("a", 0), msg("b", 0))
			all := r.leased([]Settlement{counting("k", ack("a")), counting("l", ack("b"))})
			got := r.settling(newCall(), all...)
			r.equal("left", got.Left, []int{1})
			r.expect("pending p@0s q@1h0m0s unack b@10s missing p=0 q=1 key k=p l=q wake 0s")
			r.done(all[1])
		}, "pending p@0s q@0s missing p=0 q=0 key k=p l=q wake 0s"},
	})
}

// TestScriptSettleTooMuch: an ack whose sends would change over 4 MB is not carried out, nor is what stands behind it.
func TestScriptSettleTooMuch(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"of messages that are there": {func(r *rig) {
			var follow []*SendMessage
			for i := range 6 {
				key := fmt.Sprint("k", i)
				r.put(msg(key, time.Hour, keyed(key), sized(1<<20)))
				follow = append(follow, on(ConflictReschedule, true, msg("x"+key, 2*time.Hour, keyed(key))))
			}
			r.hand(msg("a", 0), msg("b", 0), msg("c", 0))
			all := r.leased([]Settlement{then(ack("a"), follow...), ack("c"), then(ack("b"), follow[:3]...)})
			got := r.settling(newCall(), all...)
			r.equal("left", got.Left, []int{0, 2})
			r.equal("too much", got.TooMuch, []int{0})
			got = r.settling(newCall(), all[2:]...)
			r.equal("left", got.Left, []int(nil))
			r.do("DEL", r.Keys.of("pending"), r.Keys.msg, r.Keys.of("key"), r.Keys.of("unack"), r.Keys.of("lease"), r.Keys.Wake)
		}, "armed 0s~1h0m0s"},
		"of a group that they make": {func(r *rig) {
			follow := []*SendMessage{on(ConflictAppend, true, msg("g", time.Hour, keyed("k"), grouped, sized(900<<10)))}
			for i := range 6 {
				follow = append(follow, part(fmt.Sprint("x", i), time.Hour, 0))
			}
			r.hand(msg("a", 0))
			got := r.settling(newCall(), then(ack("a"), follow...))
			r.equal("too much", got.TooMuch, []int{0})
		}, "unack a@10s"},
	})
}

// TestSettleCallKeepsNothing: an attempt that nobody waits for any longer may write its arguments while the settler
// uses the slice again.
func TestSettleCallKeepsNothing(t *testing.T) {
	all := []Settlement{
		counting("k", then(ack("a", "key"), on(ConflictAppend, true, msg("x", 0, keyed("l"), grouped)))),
		ends(OutcomeRetry, "b", 1, 0, "no"), ack("c"),
	}
	for i := range all {
		all[i].Lease = &Lease{Name: "a:1"}
	}
	texts := func(call settleCall) (all []string) {
		for _, arg := range call.args {
			if text, ok := arg.(*string); ok {
				arg = *text
			}
			all = append(all, fmt.Sprint(arg))
		}
		return all
	}
	call := newSettleCall(newCall(), all, false)
	before := texts(call)
	clear(all)
	if after := texts(call); !slices.Equal(after, before) {
		t.Errorf("%q, then %q", before, after)
	}
}
