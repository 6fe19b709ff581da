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

// counts makes the ack of a message count for the message with that key.
func counts(key string) func(*message.Envelope) { return func(e *message.Envelope) { e.Counts = key } }

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
func TestScriptCountdown(t *testing.T) {
	runScripts(t, map[string]scriptCase{
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
		"due at its instant": {func(r *rig) {
			r.waits(3)
			r.hand(msg("a", 0))
			r.done(counting("k", ack("a")))
			r.at(time.Hour)
			r.handsOut(2)
			r.done(ackOfP())
		}, ""},
		"a repeat counts once": {func(r *rig) {
			r.waits(5)
			r.hand(msg("a", 0))
			c := newCall()
			for range 2 {
				_, err := r.Store.Settle(queuetest.CtxB, c, r.leased([]Settlement{counting("k", ack("a"))}))
				r.equal("error", err, nil)
			}
		}, "pending p@1h0m0s missing p=4 key k=p wake 1h0m0s"},
		"a void ack counts nowhere": {func(r *rig) {
			r.waits(5)
			r.hand(msg("a", 0))
			r.done(ends(OutcomeReady, "a", 0, 0, ""))
			r.equal("void", r.settle(NewCaller(), counting("k", ack("a")), counting("k", ack("nobody"))), []int{0, 1})
		}, "pending p@1h0m0s ready 2:a missing p=5 fail a=2/0/0@0s key k=p wake 0s"},
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
		"a done message counts": {func(r *rig) {
			r.waits(5)
			r.hand(msg("a", 0))
			r.done(counting("k", kept("a", time.Minute, "")))
			r.at(2 * time.Minute)
			r.fetch(NewCaller(), 1)
		}, "pending p@1h0m0s missing p=4 key k=p wake 1h0m0s"},
		"a superseded delivery counts nowhere": {func(r *rig) {
			r.waits(5)
			r.hand(msg("a", 0, keyed("l")))
			r.answers(NewCaller(), on(ConflictReplace, true, msg("b", 2*time.Hour, keyed("l"))))
			r.done(counting("k", ack("a", "l")))
		}, "pending p@1h0m0s b@2h0m0s missing p=5 key k=p l=b wake 10s~1h0m0s"},
		"garbage counts when it is requeued and acked": {func(r *rig) {
			r.waits(5)
			r.hand(msg("a", 0))
			r.done(ends(OutcomeGarbage, "a", 1, 0, "x"))
			r.expect("pending p@1h0m0s garbage a@0s missing p=5 fail a=2/1/0@0s!x key k=p wake 1h0m0s")
			r.requeues("a")
			r.take("2:a")
			r.done(counting("k", ack("2:a")))
		}, "pending p@1h0m0s missing p=4 key k=p wake 10s~1h0m0s"},
		"a message that is gone": {func(r *rig) {
			r.waits(5)
			r.hand(msg("a", 0), msg("b", 0))
			r.equal("intercept", r.intercept(NewCaller(), "key", "k"), statePending)
			r.done(counting("k", ack("a")))
			r.put(msg("q", time.Hour, keyed("k")))
			r.done(counting("k", ack("b")))
		}, "pending q@1h0m0s key k=q wake 10s~1h0m0s"},
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
	})
}

// TestScriptCountdownOfOthers: a countdown may follow an ack, be replaced, and belong to a group, and what counts may wait itself.
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
		"follows an ack": {func(r *rig) {
			r.hand(msg("a", 0), msg("b", 0))
			r.done(then(ack("a"), waitsFor(1, msg("p", time.Hour, keyed("k")))), counting("k", ack("b")))
			r.handsOut(0)
			r.done(ackOfP())
		}, ""},
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
		"of two levels": {func(r *rig) {
			r.equal("answers", r.answers(NewCaller(), waitsFor(1, msg("top", time.Hour, keyed("top"))),
				waitsFor(2, msg("p", time.Hour, keyed("k"), counts("top")))), "+1h0m0s +1h0m0s")
			r.hand(msg("a", 0), msg("b", 0))
			r.done(counting("k", ack("a")), counting("k", ack("b")))
			r.expect("pending p@0s top@1h0m0s missing p=0 top=1 key k=p top=top wake 0s")
			r.handsOut(0)
			r.done(counting("top", ackOfP()))
		}, "pending top@0s missing top=0 key top=top wake 0s"},
		"rescheduled and run now": {func(r *rig) {
			r.waits(2)
			r.steers("at", rigBase+1e6, "p")
			r.expect("pending p@1s missing p=2 key k=p wake 1s")
			r.at(time.Second)
			r.handsOut(2)
			r.done(ackOfP())
		}, ""},
		"canceled while it is handled": {func(r *rig) {
			r.waits(2)
			r.at(time.Hour)
			r.handsOut(2)
			r.cancel("key", "k")
			r.equal("void", r.settle(NewCaller(), ackOfP()), []int{0})
			r.hand(msg("a", 0))
			r.done(counting("k", ack("a")))
		}, ""},
		"superseded while it is handled": {func(r *rig) {
			r.waits(2)
			r.at(time.Hour)
			r.handsOut(2)
			r.answers(NewCaller(), replacing(waitsFor(1, msg("q", time.Hour, keyed("k")))))
			r.hand(msg("a", 0))
			r.done(counting("k", ack("a")))
			r.done(ends(OutcomeRetry, "p", 1, 0, "x", "k"))
		}, "pending q@1h0m0s missing q=0 key k=q wake 1h0m0s"},
	})
}

// TestScriptCountdownStaysComplete: once no ack is missing, no send puts the message off, but a person may.
func TestScriptCountdownStaysComplete(t *testing.T) {
	complete := func(r *rig) {
		r.equal("answers", r.answers(NewCaller(), waitsFor(1, part("p", time.Hour, 0))), "+1h0m0s")
		r.hand(msg("a", 0))
		r.done(counting("k", then(ack("a"), part("x", time.Hour, 0))))
	}
	runScripts(t, map[string]scriptCase{
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
		"replace, without a countdown": {func(r *rig) {
			complete(r)
			r.equal("answers", r.answers(NewCaller(), on(ConflictReplace, true, msg("z", 2*time.Hour, keyed("k")))), "~p@2h0m0s")
		}, "pending p@2h0m0s key k=p wake 0s"},
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
		"replaced while it is handled": {func(r *rig) {
			r.waits(3)
			r.hand(msg("a", 0), msg("b", 0), msg("c", 0))
			r.done(counting("k", ack("a")), counting("k", ack("b")))
			r.steers("at", rigBase, "p")
			r.handsOut(1)
			r.equal("answers", r.answers(NewCaller(), replacing(waitsFor(3, msg("q", time.Hour, keyed("k"))))), "+1h0m0s")
			r.done(counting("k", ack("c")), ackOfP())
		}, "pending q@0s missing q=0 key k=q wake 0s"},
		"replaced while it is handled, and all have counted": {func(r *rig) {
			r.waits(3)
			r.hand(msg("a", 0), msg("b", 0))
			r.done(counting("k", ack("a")), counting("k", ack("b")))
			r.steers("at", rigBase, "p")
			r.handsOut(1)
			r.equal("answers", r.answers(NewCaller(), replacing(waitsFor(2, msg("q", time.Hour, keyed("k"))))), "+0s")
			r.done(ackOfP())
		}, "pending q@0s missing q=0 key k=q wake 0s"},
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

// TestScriptCountdownOfMany: a countdown costs the same whatever its number, and one of 10^9 counts.
func TestScriptCountdownOfMany(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"a billion": {func(r *rig) {
			r.waits(message.MaxCountdown)
			r.hand(msg("a", 0))
			r.done(counting("k", ack("a")))
			r.do("HSET", r.Keys.parts, queuetest.IDOf("p")+":0", fmt.Sprint(message.MaxCountdown-1, " ", message.MaxCountdown))
			r.hand(msg("b", 0))
			r.done(counting("k", ack("b")))
		}, "pending p@0s missing p=0 key k=p wake 0s"},
	})
}

// TestScriptThenPolicies: what follows an ack does to the message that has its key what a send would.
func TestScriptThenPolicies(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"keep": {func(r *rig) {
			r.put(msg("o", time.Hour, keyed("k")))
			r.hand(msg("a", 0))
			_, answers := r.follows(then(ack("a"), on(ConflictKeep, true, msg("b", 0, keyed("k"))), msg("c", 2*time.Hour)))
			r.equal("answers", answers, "0.0~o@1h0m0s")
		}, "pending o@1h0m0s c@2h0m0s key k=o wake 1h0m0s"},
		"replace and reschedule": {func(r *rig) {
			r.put(msg("o", time.Hour, keyed("k")))
			r.hand(msg("a", 0), msg("b", 0))
			_, answers := r.follows(then(ack("a"), on(ConflictReplace, true, msg("x", 3*time.Hour, keyed("k")))),
				then(ack("b"), on(ConflictReschedule, true, msg("y", 2*time.Hour, keyed("k")))))
			r.equal("answers", answers, "0.0~o@3h0m0s 1.0~o@2h0m0s")
			r.equal("changed", r.read().Fields["changed"], "1")
		}, "pending o@2h0m0s key k=o wake 1h0m0s"},
		"append": {func(r *rig) {
			r.hand(msg("a", 0), msg("b", 0), msg("c", 0))
			_, answers := r.follows(then(ack("a"), part("x", time.Hour, 3)), then(ack("b"), part("y", time.Hour, 3)),
				then(ack("c"), part("z", time.Hour, 3)))
			r.equal("answers", answers, "1.0~x@1h0m0s 2.0~x@0s")
			r.equal("parts", r.partsFrom(r.fetch(NewCaller(), 1)), "x=x,y,z")
			r.done(groupOf(3, ack("x", "k")))
		}, ""},
		"append to no group": {func(r *rig) {
			r.put(msg("o", time.Hour, keyed("k")))
			r.hand(msg("a", 0))
			_, answers := r.follows(then(ack("a"), part("x", time.Hour, 3)))
			r.equal("answers", answers, "0.0=o")
		}, "pending o@1h0m0s key k=o wake 1h0m0s"},
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
				got, err := r.Store.Settle(queuetest.CtxB, c, all)
				r.equal("error", err, nil)
				again, err := r.Store.Settle(queuetest.CtxB, c, all)
				r.equal("error", err, nil)
				r.equal("a repeat", again, got)
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
			got, err := r.Store.Settle(queuetest.CtxB, newCall(), all)
			r.equal("error", err, nil)
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
			got, err := r.Store.Settle(queuetest.CtxB, newCall(), all)
			r.equal("error", err, nil)
			r.equal("left", got.Left, []int{0, 2})
			r.equal("too much", got.TooMuch, []int{0})
			got, err = r.Store.Settle(queuetest.CtxB, newCall(), all[2:])
			r.equal("error", err, nil)
			r.equal("left", got.Left, []int(nil))
			r.do("DEL", r.Keys.pending, r.Keys.msg, r.Keys.key, r.Keys.unack, r.Keys.lease, r.Keys.Wake)
		}, "armed 0s~1h0m0s"},
		"of a group that they make": {func(r *rig) {
			follow := []*SendMessage{on(ConflictAppend, true, msg("g", time.Hour, keyed("k"), grouped, sized(900<<10)))}
			for i := range 6 {
				follow = append(follow, part(fmt.Sprint("x", i), time.Hour, 0))
			}
			r.hand(msg("a", 0))
			got, err := r.Store.Settle(queuetest.CtxB, newCall(), r.leased([]Settlement{then(ack("a"), follow...)}))
			r.equal("error", err, nil)
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
