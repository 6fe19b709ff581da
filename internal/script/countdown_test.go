package script

import (
	"fmt"
	"slices"
	"strings"
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

// replacing makes a message take the place of another one.
func replacing(m *SendMessage) *SendMessage {
	m.Put.On = ConflictReplace
	return m
}

// waits sends a message p with the key k and a countdown, which is due in an hour.
func (r *rig) waits(n int, rest ...func(*message.Envelope)) {
	r.t.Helper()
	r.equal("answers", r.answers(NewCaller(), waitsFor(n, msg("p", time.Hour, append(rest, keyed("k"))...))), "+1h0m0s")
}

// handsOut wants a fetch to bring p with so many acks missing.
func (r *rig) handsOut(missing int) {
	r.t.Helper()
	f := r.fetch(NewCaller(), 10)
	r.equal("handed out", names(strings.Join(f.Tags, " ")), "p")
	r.equal("missing", f.Missing, map[int]int{0: missing})
}

// ackOfP is the ack of p.
func ackOfP() Settlement {
	s := ack("p", "k")
	s.Countdown = true
	return s
}

// TestScriptCountdown: acks count for the message that waits, each once, and it is due with the last of them, or at its instant.
// TestModel compares the rest.
func TestScriptCountdown(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"garbage keeps what is left, for a requeue": {func(r *rig) {
			r.waits(2)
			r.at(time.Hour)
			r.handsOut(2)
			r.done(ends(OutcomeGarbage, "p", 1, 0, "x", "k"))
			r.hand(msg("a", 0), msg("b", 0))
			r.done(counting("k", ack("a"))) // counts nowhere
			r.requeues("p")
			r.expect("unack b@1h0m10s retry 2:p@1h0m0s missing p=2 fail p=2/0/0@1h0m0s!x key k=p wake 1h0m0s")
			r.done(counting("k", ack("b")))
			r.equal("missing", r.read().Missing[queuetest.IDOf("p")], int64(1))
			r.equal("delete", r.steers("delete", 0, "p"), "ready")
		}, "wake 1h0m0s"},
		"a message that is handed out counts on, and is not hurried": {func(r *rig) {
			r.waits(2)
			r.at(time.Hour)
			r.handsOut(2)
			fails := ends(OutcomeRetry, "p", 1, 0, "too early")
			fails.Delay = time.Minute
			r.done(fails)
			r.hand(msg("a", 0), msg("b", 0))
			r.done(counting("k", ack("a")), counting("k", ack("b")))
			r.at(time.Hour + time.Minute)
			f := r.fetch(NewCaller(), 1)
			r.equal("missing", f.Missing, map[int]int{0: 0})
			s := ackOfP()
			s.Tag = tagFor("2:p")
			r.done(s)
		}, ""},
		"due with the last ack": {func(r *rig) {
			r.waits(3)
			r.hand(msg("a", 0), msg("b", 0), msg("c", 0))
			r.done(counting("k", ack("a")), counting("k", ack("b")))
			r.expect("pending p@1h0m0s unack c@10s missing p=1 key k=p wake 10s~1h0m0s")
			r.at(time.Second)
			r.done(counting("k", ack("c")))
			r.expect("pending p@1s missing p=0 key k=p wake 1s")
			r.handsOut(0)
			r.done(ackOfP())
		}, ""},
		"a billion": {func(r *rig) {
			r.waits(message.MaxCountdown)
			r.hand(msg("a", 0), msg("b", 0))
			r.done(counting("k", ack("a")))
			r.do("HSET", r.Keys.parts, queuetest.IDOf("p")+":0", fmt.Sprint(message.MaxCountdown-1, " ", message.MaxCountdown))
			r.done(counting("k", ack("b")))
		}, "pending p@0s missing p=0 key k=p wake 0s"},
		"an ack of a fetch that the server forgot counts": {func(r *rig) {
			r.waits(5)
			r.hand(msg("a", 0))
			r.forgot(r.Keys.pending, "a")
			r.equal("void", r.settle(NewCaller(), counting("k", ack("a")), counting("k", ack("a"))), []int{1})
		}, "pending p@1h0m0s missing p=4 key k=p wake 0s~1h0m0s"},
		"an ack counts for what is sent with it": {func(r *rig) {
			r.hand(msg("a", 0))
			s := counting("k", ack("a"))
			s.Follows = []*SendMessage{waitsFor(1, msg("p", time.Hour, keyed("k")))}
			r.done(s)
			r.handsOut(0)
			r.done(ackOfP())
		}, ""},
	})
}

// TestScriptCountdownOfOthers: a countdown may be replaced, and belong to a group.
// TestModel compares the rest.
func TestScriptCountdownOfOthers(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"replaced: what has counted stays counted": {func(r *rig) {
			r.waits(1000)
			r.hand(msg("a", 0), msg("b", 0), msg("c", 0))
			r.done(counting("k", ack("a")), counting("k", ack("b")))
			untimed := func(m *SendMessage) *SendMessage { m.Put.On, m.Put.Timed = ConflictReplace, false; return m }
			r.equal("answers", r.answers(NewCaller(), untimed(waitsFor(3, msg("q", 0, keyed("k"))))), "~p@1h0m0s")
			r.expect("pending p@1h0m0s unack c@10s missing p=1 key k=p wake 10s~1h0m0s")
			r.at(time.Second)
			r.equal("answers", r.answers(NewCaller(), untimed(waitsFor(2, msg("q", 0, keyed("k"))))), "~p@1s")
			r.done(counting("k", ack("c")))
			r.expect("pending p@1s missing p=0 key k=p wake 1s")
			r.equal("answers", r.answers(NewCaller(), on(ConflictReplace, false, msg("q", 0, keyed("k")))), "~p@1s")
		}, "pending p@1s key k=p wake 1s"},
		"of a group, with the results of what counts": {func(r *rig) {
			r.equal("answers", r.answers(NewCaller(), waitsFor(2, part("p", time.Hour, 0))), "+1h0m0s")
			r.hand(msg("a", 0), msg("b", 0))
			r.done(counting("k", then(ack("a"), untimed(part("x", 0, 0)))), counting("k", then(ack("b"), untimed(part("y", 0, 0)))))
			f := r.fetch(NewCaller(), 1)
			r.equal("parts", r.partsFrom(f), "p=p,x,y")
			r.equal("missing", f.Missing, map[int]int{0: 0})
			s := groupOf(3, ackOfP())
			r.done(s)
		}, ""},
	})
}

// TestScriptCountdownStaysComplete: once no ack is missing, no send puts the message off, but a person may.
// TestModel compares the rest.
func TestScriptCountdownStaysComplete(t *testing.T) {
	complete := func(r *rig) {
		r.equal("answers", r.answers(NewCaller(), waitsFor(1, part("p", time.Hour, 0))), "+1h0m0s")
		r.hand(msg("a", 0))
		r.done(counting("k", then(ack("a"), part("x", time.Hour, 0))))
	}
	runScripts(t, map[string]scriptCase{
		"a person": {func(r *rig) {
			complete(r)
			r.steers("at", rigBase+3600e6, "p")
		}, "pending p@1h0m0s parts p:2=1 missing p=0 key k=p wake 0s"},
		"a number that is lower for a while": {func(r *rig) {
			r.waits(5)
			r.hand(msg("a", 0), msg("b", 0), msg("c", 0), msg("d", 0), msg("e", 0))
			for _, name := range []string{"a", "b", "c"} {
				r.done(counting("k", ack(name)))
			}
			r.equal("answers", r.answers(NewCaller(), replacing(waitsFor(2, msg("q", time.Hour, keyed("k"))))), "~p@0s")
			r.done(counting("k", ack("d")))
			r.equal("answers", r.answers(NewCaller(), replacing(waitsFor(5, msg("q", time.Hour, keyed("k"))))), "~p@1h0m0s")
			r.done(counting("k", ack("e")))
		}, "pending p@0s missing p=0 key k=p wake 0s"},
		"replaced while it is handled, and all have counted": {func(r *rig) {
			r.waits(3)
			r.hand(msg("a", 0), msg("b", 0))
			r.done(counting("k", ack("a")), counting("k", ack("b")))
			r.steers("at", rigBase, "p")
			r.handsOut(1)
			r.equal("answers", r.answers(NewCaller(), replacing(waitsFor(2, msg("q", time.Hour, keyed("k"))))), "+0s")
			r.done(ackOfP())
		}, "pending q@0s missing q=0 key k=q wake 0s"},
		"append": {func(r *rig) {
			complete(r)
			r.hand(msg("b", 0))
			r.done(counting("k", then(ack("b"), part("y", time.Hour, 0))))
			r.equal("answers", r.answers(NewCaller(), part("z", 2*time.Hour, 0)), "~p@0s")
		}, "pending p@0s parts p:2=1 p:3=1 p:4=1 missing p=0 key k=p wake 0s"},
		"reschedule": {func(r *rig) {
			complete(r)
			r.equal("answers", r.answers(NewCaller(), on(ConflictReschedule, true, msg("z", 2*time.Hour, keyed("k")))), "~p@0s")
		}, "pending p@0s parts p:2=1 missing p=0 key k=p wake 0s"},
		"replace": {func(r *rig) {
			complete(r)
			r.equal("answers", r.answers(NewCaller(), replacing(waitsFor(1, msg("z", 2*time.Hour, keyed("k"))))), "~p@0s")
			r.equal("answers", r.answers(NewCaller(), replacing(waitsFor(2, msg("z", 2*time.Hour, keyed("k"))))), "~p@2h0m0s")
		}, "pending p@2h0m0s missing p=1 key k=p wake 0s"},
		"replace, with a bound": {func(r *rig) {
			complete(r)
			bound := func(n int) *SendMessage {
				m := replacing(waitsFor(n, msg("z", 2*time.Hour, keyed("k"), bounded)))
				m.Put.MaxWait = 10 * time.Second
				return m
			}
			r.equal("answers", r.answers(NewCaller(), bound(1)), "~p@0s")
			r.equal("answers", r.answers(NewCaller(), bound(2)), "~p@10s")
		}, "pending p@10s missing p=1 key k=p wake 0s"},
		"its TTL counts from the last ack": {func(r *rig) {
			r.waits(1, func(e *message.Envelope) { e.TTL, e.Since = time.Second, message.LatestUnknown })
			r.hand(msg("a", 0))
			r.at(2 * time.Second)
			r.done(counting("k", ack("a")))
			r.at(4 * time.Second)
			d := takenOf(r.fetch(NewCaller(), 1))[0]
			r.equal("due", r.since(d.msg.Due.UnixMicro()), 2*time.Second)
			r.done(ackOfP())
		}, ""},
		"whose envelope another program has deleted": {func(r *rig) {
			r.waits(1)
			r.hand(msg("a", 0))
			r.do("HDEL", r.Keys.msg, queuetest.IDOf("p"))
			r.done(counting("k", ack("a")))
			r.equal("there", r.Cli.HExists(queuetest.CtxB, r.Keys.msg, queuetest.IDOf("p")).Val(), false)
			r.do("DEL", r.Keys.pending, r.Keys.parts, r.Keys.key)
		}, "wake 1h0m0s"},
	})
}

// TestScriptThenPolicies: what follows an ack does to the message that has its key what a send would.
// TestModel compares the rest.
func TestScriptThenPolicies(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"replace and reschedule": {func(r *rig) {
			r.put(msg("o", time.Hour, keyed("k")))
			r.hand(msg("a", 0), msg("b", 0))
			_, answers := r.follows(then(ack("a"), on(ConflictReplace, true, msg("x", 3*time.Hour, keyed("k")))),
				then(ack("b"), on(ConflictReschedule, true, msg("y", 2*time.Hour, keyed("k")))))
			r.equal("answers", answers, "0.0~o@3h0m0s 1.0~o@2h0m0s")
			r.equal("changed", r.read().Fields["changed"], "1")
		}, "pending o@2h0m0s key k=o wake 1h0m0s"},
		"append to a group that is handled, and ends in the same call": {func(r *rig) {
			r.answers(NewCaller(), part("g", 0, 0))
			r.fetch(NewCaller(), 1)
			r.hand(msg("a", 0))
			r.follows(then(ack("a"), part("x", time.Hour, 3)), ends(OutcomeGarbage, "g", 1, 0, "no", "k"))
		}, "pending x@1h0m0s garbage g@0s fail g=2/1/0@0s!no key k=x wake 1h0m0s"},
		"replace a message that is handled, and ends in the same call": {func(r *rig) {
			r.hand(msg("a", 0), msg("o", 0, keyed("k")))
			r.follows(then(ack("a"), on(ConflictReplace, true, msg("x", time.Hour, keyed("k")))), ends(OutcomeRetry, "o", 1, 0, "no", "k"))
		}, "pending x@1h0m0s key k=x wake 1h0m0s"},
		"replace what keeps its own key": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")))
			r.follows(then(holding("a", 5*time.Second, "k"), on(ConflictReplace, true, msg("x", time.Hour, keyed("k")))))
		}, "pending x@1h0m0s key k=x held k@5s wake 1h0m0s"},
	})
}

// TestScriptSettleIsBounded: a call that would read more than half a megabyte of other messages settles the first of its outcomes, and
// says how many. The rest goes with the next call.
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
			r.answers(NewCaller(), waitsFor(1, msg("p", time.Hour, keyed("k"), sized(400<<10))), waitsFor(1, msg("q", time.Hour, keyed("l"), sized(400<<10))))
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
			r.do("DEL", r.Keys.pending, r.Keys.msg, r.Keys.key, r.Keys.unack, r.Keys.lease, r.Keys.Wake)
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

// TestSettleCallKeepsNothing: an attempt that nobody waits for any longer may write its arguments while the settler uses the slice again.
func TestSettleCallKeepsNothing(t *testing.T) {
	all := []Settlement{
		counting("k", then(ack("a", "key"), on(ConflictAppend, true, msg("x", 0, keyed("l"), grouped)))), ends(OutcomeRetry, "b", 1, 0, "no"), ack("c"),
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
	call := newSettleCall(newCall(), all, "")
	before := texts(call)
	clear(all)
	if after := texts(call); !slices.Equal(after, before) {
		t.Errorf("%q, then %q", before, after)
	}
}
