package script

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// TestScriptConflict: a batch that repeats one key does what as many single sends do, in order, by the policy of
// each. An entry of a key that another program wrote stops no policy that reads the message behind it. TestModel
// compares all policies in all states.
func TestScriptConflict(t *testing.T) {
	k := keyed("k")
	stored := func(r *rig, policies ...Conflict) {
		r.t.Helper()
		for _, policy := range policies {
			r.do("HSET", r.Keys.of("key"), "k", queuetest.IDOf("a"))
			m := part("b", 3*time.Second, 0)
			if policy != ConflictAppend {
				m = on(policy, true, msg("b", 3*time.Second, k))
			}
			r.equal(fmt.Sprint(policy), r.answers(NewCaller(), m), "+3s")
			r.equal("cancel", r.cancel("key", "k"), statePending)
		}
	}
	runScripts(t, map[string]scriptCase{
		"an entry of a message without an envelope": {func(r *rig) {
			stored(r, ConflictRefuse, ConflictKeep, ConflictReplace, ConflictReschedule, ConflictAppend)
		}, "wake 3s"},
		"an entry of a message with another key": {func(r *rig) {
			r.put(msg("a", 5*time.Second))
			stored(r, ConflictReplace, ConflictReschedule)
		}, "pending a@5s wake 3s"},
		"an entry of a done message": {func(r *rig) {
			r.hand(msg("a", 0, k))
			r.done(kept("a", time.Hour, "", "k"))
			stored(r, ConflictReplace, ConflictReschedule)
		}, "done a@1h0m0s fail a=2/0/0@0s wake 3s"},
		"rubbish in place of scores": {func(r *rig) {
			for _, score := range []string{"-inf", "+inf", "1.5", "-5", "9e15"} {
				r.put(msg("a", 5*time.Second, k))
				r.do("ZADD", r.Keys.of("pending"), score, queuetest.IDOf("a"))
				for _, timed := range []bool{false, true} {
					r.equal("kind", r.send(NewCaller(), on(ConflictReplace, timed, msg("b", 3*time.Second, k))).Answers[0].Kind,
						AnswerKept)
				}
				r.equal("cancel", r.cancel("key", "k"), statePending)
			}
		}, "wake 3s"},
	})
}

// TestScriptMaxWait: no send puts a message off for longer than the bound that the first send with a bound set.
// TestModel compares the rest.
func TestScriptMaxWait(t *testing.T) {
	const most = 10 * time.Second
	put := func(name string, c Conflict, d time.Duration, rest ...func(*message.Envelope)) *SendMessage {
		return putOff(most, c, msg(name, d, append(rest, keyed("k"), bounded)...))
	}
	latest := func(r *rig) time.Duration { return r.since(r.read().Messages[queuetest.IDOf("a")].Latest) }
	runScripts(t, map[string]scriptCase{
		"one that waits for a retry": {func(r *rig) {
			r.answers(NewCaller(), put("a", ConflictReplace, 0))
			r.take("a")
			r.at(8 * time.Second)
			r.done(ends(OutcomeRetry, "a", 1, 0, "x"))
			r.equal("within the first ten seconds", r.answers(NewCaller(), put("b", ConflictReplace, 4*time.Second)), "~a@10s")
			r.at(11 * time.Second)
			r.equal("which are over", r.answers(NewCaller(), put("b", ConflictReplace, 4*time.Second)), "~a@15s")
			r.equal("latest", latest(r), 21*time.Second)
			r.at(19 * time.Second)
			r.equal("those that follow", r.answers(NewCaller(), put("c", ConflictReschedule, 4*time.Second)), "~a@21s")
			r.at(22 * time.Second)
			r.equal("until it is handed out", r.answers(NewCaller(), put("d", ConflictReschedule, 4*time.Second)), "~a@21s")
			r.at(50 * time.Second)
			r.equal("however late", r.answers(NewCaller(), put("e", ConflictReplace, 4*time.Second)), "~a@21s")
			r.equal("latest", latest(r), 21*time.Second)
		}, "retry 2:a@21s fail a=2/0/0@8s!x key k=a wake 9s"},
		"replaced for ever": {func(r *rig) {
			r.equal("the first", r.answers(NewCaller(), put("a", ConflictReplace, 4*time.Second)), "+4s")
			for _, step := range []struct {
				at     time.Duration
				answer string
			}{{3 * time.Second, "~a@7s"}, {5 * time.Second, "~a@9s"}, {6*time.Second - 1000, "~a@9.999999s"},
				{6 * time.Second, "~a@10s"}, {9 * time.Second, "~a@10s"},
				{10 * time.Second, "~a@10s"}, {50 * time.Second, "~a@10s"}} {
				r.at(step.at)
				r.equal(step.at.String(), r.answers(NewCaller(),
					put("b", ConflictReplace, 4*time.Second, func(e *message.Envelope) { e.Headers = map[string]string{"h": "v"} })),
					step.answer)
				r.equal("latest", latest(r), most)
			}
			r.equal("payload", r.read().Messages[queuetest.IDOf("a")].Payload, "b")
		}, "pending a@10s key k=a wake 4s"},
	})
}

// bounded makes room in an envelope for the instant to which a message may be put off.
func bounded(e *message.Envelope) { e.Latest = message.LatestUnknown }

// TestScriptMaxWaitRubbish: an envelope that no version wrote can be replaced and rescheduled.
func TestScriptMaxWaitRubbish(t *testing.T) {
	onReal(t, func(r *rig) {
		for _, fields := range []string{"", "\x05", "\x05\x10", "\x05\x10123", "\x05\x0f123456789012345",
			"\x05\x10xxxxxxxxxxxxxxxx",
			"\x05\x10               1", "\x84" + strings.Repeat("\xff", 20),
			"\x84\xff\xff\xff\xff\x0f", strings.Repeat("\x85\x00", 1000), "\x80\x00\x81\x00\x05\x101717200000000000",
			"\x00\x00"} {
			r.put(msg("a", 5*time.Second, keyed("k")))
			r.do("HSET", r.Keys.msg, queuetest.IDOf("a"), fmt.Sprintf("\x02%d\x00\x01k", r.now+5e6)+fields)
			for _, c := range []Conflict{ConflictReschedule, ConflictReplace} {
				r.equal(fmt.Sprintf("%v of %q", c, fields), r.answers(NewCaller(),
					putOff(10*time.Second, c, msg("b", 3*time.Second, keyed("k"), bounded))), "~a@3s")
			}
			if e := r.read().Messages[queuetest.IDOf("a")]; e.Problem != "" || e.Payload != "b" || e.Latest != r.now+10e6 {
				r.t.Errorf("%q: %+v", fields, e)
			}
			r.equal("cancel", r.cancel("key", "k"), statePending)
		}
	})
}

// fails is the settlement of a delivery that failed and is to be retried after a second.
func fails(name string, key ...string) Settlement { return ends(OutcomeRetry, name, 1, 0, "x", key...) }

// takenOver hands out a. b takes the key of a, and is due after 3 s.
func (r *rig) takenOver(more ...func(*message.Envelope)) {
	r.t.Helper()
	r.hand(msg("a", 0, append(more, keyed("k"))...))
	r.equal("answer", r.answers(NewCaller(), on(ConflictReplace, true, msg("b", 3*time.Second, keyed("k")))), "+3s")
	r.expect("pending b@3s unack a@10s fail a=1/0/0@superseded key k=b wake 3s")
}

// TestScriptSuperseded: if another send took the key of a delivery, its message ends as by an ack, whatever becomes
// of the delivery, also beside what other programs do. TestModel compares the rest.
func TestScriptSuperseded(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"somebody else deleted it": {func(r *rig) {
			r.takenOver()
			r.do("HDEL", r.Keys.msg, queuetest.IDOf("a"))
			r.equal("void", r.settle(NewCaller(), fails("a", "k")), []int{0})
			r.lapse(11 * time.Second) // its record goes with the lease
		}, "pending b@3s key k=b wake 3s"},
		"given back by a repeat": {func(r *rig) {
			c := r.hand(msg("a", 0, sized(300)), msg("d", 0, sized(300), keyed("k")))
			r.equal("answer", r.answers(NewCaller(), on(ConflictReplace, true, msg("b", 3*time.Second, keyed("k")))), "+3s")
			r.equal("handed out", handed(r.ask(c, FetchRequest{Want: 2, Bytes: 400})), "a")
			r.equal("superseded", r.tickOf(c).Replaced, 1)
		}, "pending b@3s unack a@10s key k=b wake 1s"},
		"found in no structure": {func(r *rig) {
			r.takenOver()
			r.do("DEL", r.Keys.of("lease"), r.Keys.of("unack"))
			r.at(3 * time.Second)
			r.take("b")
			r.done(ack("b", "k"))
			words, err := r.Store.Repair(queuetest.CtxB, []Flaw{{"place", queuetest.IDOf("a")}})
			r.equal("repair", []any{words, err}, []any{[]string{"garbage"}, nil})
		}, "garbage a@3s fail a=1/0/0@3s!found_in_no_structure_by_doctor,_and_another_send_took_its_key"},
		"a look": {func(r *rig) {
			r.hand(msg("a", 0, keyed("k")))
			r.done(fails("a", "k"))
			r.at(time.Second)
			r.take("2:a")
			r.equal("answer", r.answers(NewCaller(), on(ConflictReplace, true, msg("b", 3*time.Second, keyed("k")))), "+4s")
			m := r.looks("id", queuetest.IDOf("a"))
			r.equal("a look", []any{m.Superseded, m.Key, m.Delivered.Failures, message.LastError(m.Errors)},
				[]any{true, "k", 1, "x"})
		}, "pending b@4s unack 2:a@11s fail a=2/1/0@superseded!x key k=b wake 4s"},
	})
}

// leaves makes group a, of two parts, leave its key while it is handled. Group b has the key then.
func leaves(r *rig) {
	r.t.Helper()
	r.answers(NewCaller(), part("a", 0, 0), untimed(part("p", 0, 0)))
	r.take("a")
	r.equal("the next", r.answers(NewCaller(), part("b", time.Hour, 0)), "+1h0m0s")
}

// byKey wants a look by key to find these: the message that has the key, then the groups that left it.
func (r *rig) byKey(want string) {
	r.t.Helper()
	got := "nothing"
	if m := r.looks("key", "k"); m != nil {
		got = names(strings.Join(append([]string{m.Delivered.ID}, m.Earlier...), " "))
	}
	r.equal("by key", got, want)
}

// takesOut intercepts or cancels by the key, and wants this state and message.
func (r *rig) takesOut(running bool, want string) {
	r.t.Helper()
	c := newCall()
	got, err := r.Store.Intercept(queuetest.CtxB, c, "key", "k", running)
	r.equal("taken out", strings.TrimSpace(got.State+" "+names(got.ID)), want)
	again, err2 := r.Store.Intercept(queuetest.CtxB, c, "key", "k", running)
	r.equal("the same again", []any{again, err, err2}, []any{got, nil, nil})
}

// TestScriptLeftByKey: calls by key reach the message that has the key, and then the groups that left it, the newest
// first.
func TestScriptLeftByKey(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"intercept": {func(r *rig) {
			leaves(r)
			r.byKey("b a")
			r.takesOut(false, "pending b")
			r.takesOut(false, "unack a")
			r.byKey("a")
			r.done(ends(OutcomeRetry, "a", 1, 0, "x", "k"))
			r.takesOut(false, "retry a")
			r.takesOut(false, "gone")
			r.byKey("nothing")
		}, "wake 1s"},
		"beside a key that is held": {func(r *rig) {
			leaves(r)
			r.steers("at", r.now, "b")
			r.take("b")
			r.takesOut(false, "unack b") // the first of those that may not be taken out
			r.done(groupOf(1, holding("b", time.Minute, "k")))
			r.byKey("a")
			r.done(groupOf(2, ack("a", "k")))
			if m, err := r.Store.Look(queuetest.CtxB, "key", "k", 0); err != nil || m == nil || !m.Held ||
				m.ID != queuetest.IDOf("b") {
				r.t.Errorf("%+v, %v", m, err)
			}
		}, "key k=acked:b holds k@1m0s"},
		"more than are listed": {func(r *rig) {
			for i := range 103 {
				r.answers(NewCaller(), part(fmt.Sprint("a", i), time.Hour, 2), part(fmt.Sprint("b", i), time.Hour, 2))
			}
			if m := r.looks("key", "k"); names(m.Delivered.ID) != "a102" || len(m.Earlier) != 99 ||
				names(m.Earlier[98]) != "a3" {
				r.t.Errorf("%+v", m)
			}
			for range 100 {
				r.equal("state", r.intercept(NewCaller(), "key", "k"), stateReady)
			}
			r.equal("state", r.intercept(NewCaller(), "key", "k"), StateGone)
			for _, name := range []string{"a0", "a1", "a2"} {
				r.equal("by id", r.intercept(NewCaller(), "id", queuetest.IDOf(name)), stateReady)
			}
		}, "wake 0s"},
	})
}

// TestScriptLeftRubbish: another program's text in place of a list of groups is passed over.
func TestScriptLeftRubbish(t *testing.T) {
	t.Parallel()
	for name, list := range map[string]string{
		"nothing": "", "blanks": "  ", "no ids": "x y\n\x00", "of another key": queuetest.IDOf("z"),
		"the same twice": queuetest.IDOf("a") + " " + queuetest.IDOf("a"),
		"very long":      strings.Repeat(queuetest.IDOf("x")+" ", 10000) + queuetest.IDOf("a"),
	} {
		subtest(t, name, onReal, func(r *rig) {
			leaves(r)
			r.put(msg("z", time.Hour, keyed("other")))
			r.do("HSET", r.Keys.of("parts"), ":k", list)
			queuetest.Must(r.t, queuetest.Failure(r.Store.Look(queuetest.CtxB, "key", "k", 0)))
			r.takesOut(true, "pending b")
			r.cancel("key", "k")
			r.equal("the other one", r.intercept(NewCaller(), "key", "other"), statePending)
			r.settle(NewCaller(), groupOf(2, ack("a", "k")))
			r.do("HDEL", r.Keys.of("parts"), ":k")
			r.read()
		})
	}
}
