package delayqueue

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// holders make message a, which has the key k, be in some state.
var holders = map[string]struct {
	make func(r *rig)
	text string // the state then
}{
	"nowhere": {func(*rig) {}, ""},
	"pending": {func(r *rig) { r.put(msg("a", 5*time.Second, keyed("k"))) }, "pending a@5s key k=a wake 5s"},
	"due":     {func(r *rig) { r.put(msg("a", 0, keyed("k"))) }, "pending a@0s key k=a wake 0s"},
	"unack":   {func(r *rig) { r.hand(msg("a", 0, keyed("k"))) }, "unack a@10.000001s key k=a"},
	"ready": {func(r *rig) {
		r.hand(msg("a", 0, keyed("k")))
		r.done(ends(outcomeReady, "a", 0, 0, ""))
	}, "ready 2:a fail a=2/0/0@0s key k=a wake 0s"},
	"retry": {func(r *rig) {
		r.hand(msg("a", 0, keyed("k")))
		r.done(ends(outcomeRetry, "a", 1, 0, "x"))
	}, "retry 2:a@1s fail a=2/1/0@0s!x key k=a wake 1s"},
	"garbage": {func(r *rig) {
		r.hand(msg("a", 0, keyed("k")))
		r.done(ends(outcomeGarbage, "a", 1, 0, "x", "k"))
	}, "garbage a@0s fail a=2/1/0@0s!x"},
	"done": {func(r *rig) {
		r.hand(msg("a", 0, keyed("k")))
		s := ack("a", "k")
		s.kind, s.delay = outcomeDone, time.Hour
		r.done(s)
		r.do("HSET", r.keys.key, "k", idOf("a"))
	}, ""},
	"without an envelope": {func(r *rig) { r.do("HSET", r.keys.key, "k", idOf("a")) }, ""},
	"one with another key": {func(r *rig) { r.put(msg("a", 5*time.Second)); r.do("HSET", r.keys.key, "k", idOf("a")) },
		"pending a@5s wake 5s"},
}

// A conflictRow is a send of b with a key that somebody holds: after 3 s (timed), or without saying when.
type conflictRow struct {
	on           Conflict
	timed        bool
	answer, want string
	payload      string // of a, afterwards
}

// asItWas is wanted where a send changes nothing.
const asItWas = "as it was"

// conflictRows are such sends, by who holds the key.
var conflictRows = map[string][]conflictRow{
	"nowhere": {
		{Keep, true, "+3s", "pending b@3s key k=b wake 3s", ""},
		{Replace, true, "+3s", "pending b@3s key k=b wake 3s", ""},
		{Replace, false, "+0s", "pending b@0s key k=b wake 0s", ""},
		{Reschedule, true, "+3s", "pending b@3s key k=b wake 3s", ""},
	},
	"pending": {
		{Refuse, true, "=a", asItWas, "a"},
		{Keep, true, "~a@5s", asItWas, "a"},
		{Replace, true, "~a@3s", "pending a@3s key k=a wake 3s", "b"},
		{Replace, false, "~a@5s", asItWas, "b"},
		{Reschedule, true, "~a@3s", "pending a@3s key k=a wake 3s", "a"},
		{Reschedule, false, "~a@0s", "pending a@0s key k=a wake 0s", "a"},
	},
	"due": {
		{Refuse, true, "=a", asItWas, "a"},
		{Keep, true, "~a@0s", asItWas, "a"},
		{Replace, true, "~a@3s", "pending a@3s key k=a wake 0s", "b"},
		{Replace, false, "~a@0s", asItWas, "b"},
		{Reschedule, true, "~a@3s", "pending a@3s key k=a wake 0s", "a"},
		{Reschedule, false, "~a@0s", asItWas, "a"},
	},
	"unack": {
		{Refuse, true, "=a", asItWas, "a"},
		{Keep, true, "~a@0s", asItWas, "a"},
		{Replace, true, "+3s", "pending b@3s unack a@10.000001s fail a=1/0/0@superseded key k=b wake 3s", "a"},
		{Replace, false, "+0s", "pending b@0s unack a@10.000001s fail a=1/0/0@superseded key k=b wake 0s", "a"},
		{Reschedule, true, "+3s", "pending b@3s unack a@10.000001s fail a=1/0/0@superseded key k=b wake 3s", "a"},
		{Reschedule, false, "+0s", "pending b@0s unack a@10.000001s fail a=1/0/0@superseded key k=b wake 0s", "a"},
	},
	"ready": {
		{Refuse, true, "=a", asItWas, "a"},
		{Keep, true, "~a@0s", asItWas, "a"},
		{Replace, true, "~a@3s", "retry 2:a@3s fail a=2/0/0@0s key k=a wake 0s", "b"},
		{Replace, false, "~a@0s", asItWas, "b"},
		{Reschedule, true, "~a@3s", "retry 2:a@3s fail a=2/0/0@0s key k=a wake 0s", "a"},
		{Reschedule, false, "~a@0s", asItWas, "a"},
	},
	"retry": {
		{Refuse, true, "=a", asItWas, "a"},
		{Keep, true, "~a@1s", asItWas, "a"},
		{Replace, true, "~a@3s", "retry 2:a@3s fail a=2/0/0@0s!x key k=a wake 1s", "b"},
		{Replace, false, "~a@1s", "retry 2:a@1s fail a=2/0/0@0s!x key k=a wake 1s", "b"},
		{Reschedule, true, "~a@3s", "retry 2:a@3s fail a=2/1/0@0s!x key k=a wake 1s", "a"},
		{Reschedule, false, "~a@0s", "retry 2:a@0s fail a=2/1/0@0s!x key k=a wake 0s", "a"},
	},
	"garbage": {
		{Refuse, true, "+3s", "pending b@3s garbage a@0s fail a=2/1/0@0s!x key k=b wake 3s", "a"},
		{Keep, true, "+3s", "pending b@3s garbage a@0s fail a=2/1/0@0s!x key k=b wake 3s", "a"},
		{Replace, true, "+3s", "pending b@3s garbage a@0s fail a=2/1/0@0s!x key k=b wake 3s", "a"},
		{Reschedule, true, "+3s", "pending b@3s garbage a@0s fail a=2/1/0@0s!x key k=b wake 3s", "a"},
	},
	"done": {
		{Replace, true, "+3s", "pending b@3s done a@1h0m0s fail a=2/0/0@0s key k=b wake 3s", "a"},
		{Reschedule, true, "+3s", "pending b@3s done a@1h0m0s fail a=2/0/0@0s key k=b wake 3s", "a"},
	},
	"without an envelope": {
		{Refuse, true, "+3s", "pending b@3s key k=b wake 3s", ""},
		{Keep, true, "+3s", "pending b@3s key k=b wake 3s", ""},
		{Replace, true, "+3s", "pending b@3s key k=b wake 3s", ""},
		{Reschedule, true, "+3s", "pending b@3s key k=b wake 3s", ""},
	},
	"one with another key": { // Refuse and Keep believe the entry: they do not read the envelope
		{Replace, true, "+3s", "pending b@3s a@5s key k=b wake 3s", "a"},
		{Reschedule, true, "+3s", "pending b@3s a@5s key k=b wake 3s", "a"},
	},
}

// TestScriptConflict: what a send does while its key is taken, and the whole state after; the same if its reply was
// lost. b is sent with the key: after 3 s (timed), or without saying when.
func TestScriptConflict(t *testing.T) {
	t.Parallel()
	for holder, rows := range conflictRows {
		for _, row := range rows {
			t.Run(fmt.Sprint(holder, " ", row.on, " ", row.timed), func(t *testing.T) {
				onBoth(t, func(r *rig) { row.check(r, holder) })
			})
		}
	}
}

func (row conflictRow) check(r *rig, holder string) {
	holders[holder].make(r)
	m := msg("b", 0, keyed("k"))
	if row.timed {
		m = msg("b", 3*time.Second, keyed("k"))
	}
	numbered(on(row.on, row.timed, m), "s", 1)
	m.put.on, m.put.timed = row.on, row.timed
	c := newCaller()
	first := r.send(c, m)
	r.equal("answer", r.inWords(first), row.answer)
	want, passed := row.want, "#1"
	if want == asItWas {
		want = holders[holder].text
	}
	if strings.HasPrefix(row.answer, "=") {
		passed = row.answer // what was refused for its key has no number
	} else {
		want = withSequence(want)
	}
	r.expect(want)
	r.equal("payload", r.read().Messages[idOf("a")].Payload, row.payload)
	before := r.contents()
	r.equal("the repeat", r.sendAgain(c, m), first)
	r.equal("contents", r.contents(), before)
	r.equal("another call", r.answers(newCaller(), m), passed)
	r.comesOut()
}

// withSequence puts the sequence where the text of a state has it.
func withSequence(text string) string {
	before, after, _ := strings.Cut(text, " wake ")
	text = before + " sequence s=1"
	if after != "" {
		text += " wake " + after
	}
	return text
}

// comesOut hands out and acks all that waits or is handled, and wants nothing to be left but garbage.
func (r *rig) comesOut() {
	r.t.Helper()
	for range 10 {
		r.at(r.since(r.now) + 7*time.Second)
		f := r.fetch(newCaller(), 10)
		for _, d := range decode(nil, &f, 0, time.Time{}, time.Time{}) {
			r.done((&outcome{d: d}).settlement())
		}
	}
	s := r.read()
	r.equal("left", []int{len(s.Messages), len(s.Keys)}, []int{len(s.Garbage) + len(s.Done), 0})
}

// TestScriptConflictBatch: a batch with one key again and again is as many sends in order.
func TestScriptConflictBatch(t *testing.T) {
	k := keyed("k")
	runScripts(t, map[string]scriptCase{
		"all policies": {func(r *rig) {
			r.equal("answers", r.answers(newCaller(), on(Replace, true, msg("a", 5*time.Second, k)), on(Keep, true, msg("b", 0, k)),
				on(Replace, true, msg("c", 6*time.Second, k)),
				on(Refuse, true, msg("d", 0, k)), on(Reschedule, true, msg("e", 7*time.Second, k)), on(Replace, false, msg("f", 0, k)),
				on(Keep, true, msg("g", 0))),
				"+5s ~a@5s ~a@6s =a ~a@7s ~a@7s +0s")
			r.equal("payload", r.read().Messages[idOf("a")].Payload, "f")
		}, "pending g@0s a@7s key k=a wake 0s"},
		"a larger one": {func(r *rig) {
			r.answers(newCaller(), on(Replace, true, msg("a", 5*time.Second, k)))
			long := on(Replace, true, msg("b", 5*time.Second, k, sized(5000)))
			r.equal("answer", r.answers(newCaller(), long), "~a@5s")
			s := r.read()
			r.equal("big, sent", []string{s.Fields["big"], s.Fields["sent"]}, []string{fmt.Sprint(len(long.text) + envelopeHead), "1"})
		}, "pending a@5s key k=a wake 5s"},
		"an instant": {func(r *rig) {
			r.answers(newCaller(), on(Replace, true, msgAt("a", 5*time.Second, k)))
			r.equal("answers", r.answers(newCaller(), on(Replace, true, msgAt("b", 4*time.Second, k)),
				on(Replace, true, msgAt("c", -time.Hour, k))), "~a@4s ~a@0s")
		}, "pending a@0s key k=a wake 0s"},
		"while it is paused": {func(r *rig) {
			r.put(msg("a", 5*time.Second, k))
			c := newCaller()
			c.next()
			if err := r.store.pause(ctxB, c, r.now+9e6, onBehalf{}); err != nil {
				r.t.Fatal(err)
			}
			r.equal("answer", r.answers(newCaller(), on(Reschedule, true, msg("b", 3*time.Second, k))), "~a@3s")
		}, "pending a@3s key k=a wake 5s"},
		"rubbish in place of scores": {func(r *rig) {
			for _, score := range []string{"-inf", "+inf", "1.5", "-5", "9e15"} {
				r.put(msg("a", 5*time.Second, k))
				r.do("ZADD", r.keys.pending, score, idOf("a"))
				for _, timed := range []bool{false, true} {
					r.equal("kind", r.send(newCaller(), on(Replace, timed, msg("b", 3*time.Second, k))).answers[0].kind, answerKept)
				}
				r.equal("cancel", r.cancel("key", "k"), StatePending)
			}
		}, "wake 3s"},
	})
}

// TestScriptMaxWait: a message is due at the latest so long after the first send that says so, whoever puts it off.
func TestScriptMaxWait(t *testing.T) {
	const most = 10 * time.Second
	put := func(name string, c Conflict, d time.Duration, rest ...func(*envelope)) *sendMessage {
		return putOff(most, c, msg(name, d, append(rest, keyed("k"), bounded)...))
	}
	latest := func(r *rig) time.Duration { return r.since(r.read().Messages[idOf("a")].Latest) }
	runScripts(t, map[string]scriptCase{
		"replaced for ever": {func(r *rig) {
			r.equal("the first", r.answers(newCaller(), put("a", Replace, 4*time.Second)), "+4s")
			for _, step := range []struct {
				at     time.Duration
				answer string
			}{{3 * time.Second, "~a@7s"}, {5 * time.Second, "~a@9s"}, {6*time.Second - 1000, "~a@9.999999s"},
				{6 * time.Second, "~a@10s"}, {9 * time.Second, "~a@10s"},
				{10 * time.Second, "~a@10s"}, {50 * time.Second, "~a@10s"}} {
				r.at(step.at)
				r.equal(step.at.String(), r.answers(newCaller(),
					put("b", Replace, 4*time.Second, func(e *envelope) { e.headers = map[string]string{"h": "v"} })), step.answer)
				r.equal("latest", latest(r), most)
			}
			r.equal("payload", r.read().Messages[idOf("a")].Payload, "b")
		}, "pending a@10s key k=a wake 4s"},
		"rescheduled for ever": {func(r *rig) {
			r.answers(newCaller(), put("a", Reschedule, 4*time.Second))
			for at := time.Second; at < 20*time.Second; at += time.Second {
				r.at(at)
				r.answers(newCaller(), put("b", Reschedule, 4*time.Second))
			}
			r.equal("latest", latest(r), most)
		}, "pending a@10s key k=a wake 4s"},
		"instants": {func(r *rig) {
			instant := func(name string, at time.Duration) *sendMessage {
				return putOff(most, Replace, msgAt(name, at, keyed("k"), bounded))
			}
			r.equal("answers", r.answers(newCaller(), instant("a", time.Minute), instant("b", 4*time.Second), instant("c", time.Hour),
				instant("d", -time.Hour)), "+10s ~a@4s ~a@10s ~a@0s")
			r.equal("latest", latest(r), most)
		}, "pending a@0s key k=a wake 0s"},
		"one that waits for a retry": {func(r *rig) {
			r.answers(newCaller(), put("a", Replace, 0))
			r.take("a")
			r.at(8 * time.Second)
			r.done(ends(outcomeRetry, "a", 1, 0, "x"))
			r.equal("within the first ten seconds", r.answers(newCaller(), put("b", Replace, 4*time.Second)), "~a@10s")
			r.at(11 * time.Second)
			r.equal("which are over", r.answers(newCaller(), put("b", Replace, 4*time.Second)), "~a@15s")
			r.equal("latest", latest(r), 21*time.Second)
			r.at(19 * time.Second)
			r.equal("those that follow", r.answers(newCaller(), put("c", Reschedule, 4*time.Second)), "~a@21s")
			r.at(22 * time.Second)
			r.equal("until it is handed out", r.answers(newCaller(), put("d", Reschedule, 4*time.Second)), "~a@21s")
			r.at(50 * time.Second)
			r.equal("however late", r.answers(newCaller(), put("e", Replace, 4*time.Second)), "~a@21s")
			r.equal("latest", latest(r), 21*time.Second)
		}, "retry 2:a@21s fail a=2/0/0@8s!x key k=a wake 9s"},
		"one that is handled": {func(r *rig) {
			r.answers(newCaller(), put("a", Replace, 0))
			r.take("a")
			r.at(9 * time.Second)
			r.equal("is left alone", r.answers(newCaller(), put("b", Replace, 4*time.Second)), "+13s")
		}, "pending b@13s unack a@10.000001s fail a=1/0/0@superseded key k=b wake 13s"},
		"one that stays due when it was": {func(r *rig) {
			stays := func(name string) *sendMessage {
				m := put(name, Replace, 0)
				m.put.timed = false
				return m
			}
			r.put(msg("a", time.Hour, keyed("k")))
			r.equal("sooner", r.answers(newCaller(), stays("b")), "~a@10s")
			r.at(time.Second)
			r.equal("as it was", r.answers(newCaller(), stays("c")), "~a@10s")
			r.equal("without", r.answers(newCaller(), on(Replace, false, msg("d", 0, keyed("k")))), "~a@10s")
			r.at(50 * time.Second)
			r.equal("due", r.answers(newCaller(), stays("e")), "~a@10s")
		}, "pending a@10s key k=a wake 10s"},
		"without, and with": {func(r *rig) {
			r.put(msg("a", 4*time.Second, keyed("k")))
			r.equal("rescheduled with", r.answers(newCaller(), put("b", Reschedule, 9*time.Second)), "~a@9s")
			r.equal("no room", latest(r), -time.Duration(rigBase)*time.Microsecond)
			r.at(time.Second)
			r.equal("replaced with", r.answers(newCaller(), put("c", Replace, 9*time.Second)), "~a@10s")
			r.equal("latest", latest(r), 11*time.Second)
			r.equal("rescheduled without", r.answers(newCaller(), on(Reschedule, true, msg("d", time.Minute, keyed("k")))), "~a@11s")
			r.equal("replaced without", r.answers(newCaller(), on(Replace, true, msg("e", time.Minute, keyed("k")))), "~a@1m1s")
		}, "pending a@1m1s key k=a wake 4s"},
		"behind fields that must be known": {func(r *rig) {
			long := func(e *envelope) { e.timeout, e.retention, e.deadline, e.ttl = time.Hour, time.Hour, 1<<50, time.Hour }
			r.equal("answers", r.answers(newCaller(), put("a", Replace, time.Second, long, sized(300)), put("b", Replace, time.Minute, long)),
				"+1s ~a@10s")
			e := r.read().Messages[idOf("a")]
			r.equal("fields", []int64{e.Timeout, e.Retention, e.TTL}, []int64{3600e6, 3600e6, 3600e6})
		}, "pending a@10s key k=a wake 1s"},
	})
}

// bounded makes room in an envelope for the instant to which a message may be put off.
func bounded(e *envelope) { e.latest = latestUnknown }

// TestScriptMaxWaitRubbish: an envelope that no version wrote is replaced, and stops nothing.
func TestScriptMaxWaitRubbish(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		for _, fields := range []string{"", "\x05", "\x05\x10", "\x05\x10123", "\x05\x0f123456789012345", "\x05\x10xxxxxxxxxxxxxxxx",
			"\x05\x10               1", "\x84" + strings.Repeat("\xff", 20),
			"\x84\xff\xff\xff\xff\x0f", strings.Repeat("\x85\x00", 1000), "\x80\x00\x81\x00\x05\x101717200000000000", "\x00\x00"} {
			r.put(msg("a", 5*time.Second, keyed("k")))
			r.do("HSET", r.keys.msg, idOf("a"), fmt.Sprintf("\x02%d\x00\x01k", r.now+5e6)+fields)
			for _, c := range []Conflict{Reschedule, Replace} {
				r.equal(fmt.Sprintf("%v of %q", c, fields), r.answers(newCaller(),
					putOff(10*time.Second, c, msg("b", 3*time.Second, keyed("k"), bounded))), "~a@3s")
			}
			if e := r.read().Messages[idOf("a")]; e.Problem != "" || e.Payload != "b" || e.Latest != r.now+10e6 {
				r.t.Errorf("%q: %+v", fields, e)
			}
			r.equal("cancel", r.cancel("key", "k"), StatePending)
		}
	})
}
