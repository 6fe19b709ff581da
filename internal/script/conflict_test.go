package script

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// holders put message a, which has the key k, into some state.
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
		r.done(ends(OutcomeReady, "a", 0, 0, ""))
	}, "ready 2:a fail a=2/0/0@0s key k=a wake 0s"},
	"retry": {func(r *rig) {
		r.hand(msg("a", 0, keyed("k")))
		r.done(ends(OutcomeRetry, "a", 1, 0, "x"))
	}, "retry 2:a@1s fail a=2/1/0@0s!x key k=a wake 1s"},
	"garbage": {func(r *rig) {
		r.hand(msg("a", 0, keyed("k")))
		r.done(ends(OutcomeGarbage, "a", 1, 0, "x", "k"))
	}, "garbage a@0s fail a=2/1/0@0s!x"},
	"done": {func(r *rig) {
		r.hand(msg("a", 0, keyed("k")))
		r.done(kept("a", time.Hour, "", "k"))
		r.do("HSET", r.Keys.key, "k", queuetest.IDOf("a"))
	}, ""},
	"without an envelope": {func(r *rig) { r.do("HSET", r.Keys.key, "k", queuetest.IDOf("a")) }, ""},
	"one with another key": {func(r *rig) { r.put(msg("a", 5*time.Second)); r.do("HSET", r.Keys.key, "k", queuetest.IDOf("a")) },
		"pending a@5s wake 5s"},
}

// A conflictRow is a send of b with a key that is taken. b is due after 3 s (timed), or does not say when.
type conflictRow struct {
	on           Conflict
	timed        bool
	answer, want string
	payload      string // of a, afterwards
}

// asItWas stands for the state before a send that changes nothing.
const asItWas = "as it was"

// conflictRows are the sends to try, by the state of the message that holds the key.
var conflictRows = map[string][]conflictRow{
	"nowhere": {
		{ConflictKeep, true, "+3s", "pending b@3s key k=b wake 3s", ""},
		{ConflictReplace, true, "+3s", "pending b@3s key k=b wake 3s", ""},
		{ConflictReplace, false, "+0s", "pending b@0s key k=b wake 0s", ""},
		{ConflictReschedule, true, "+3s", "pending b@3s key k=b wake 3s", ""},
	},
	"pending": {
		{ConflictRefuse, true, "=a", asItWas, "a"},
		{ConflictKeep, true, "~a@5s", asItWas, "a"},
		{ConflictReplace, true, "~a@3s", "pending a@3s key k=a wake 3s", "b"},
		{ConflictReplace, false, "~a@5s", asItWas, "b"},
		{ConflictReschedule, true, "~a@3s", "pending a@3s key k=a wake 3s", "a"},
		{ConflictReschedule, false, "~a@0s", "pending a@0s key k=a wake 0s", "a"},
	},
	"due": {
		{ConflictRefuse, true, "=a", asItWas, "a"},
		{ConflictKeep, true, "~a@0s", asItWas, "a"},
		{ConflictReplace, true, "~a@3s", "pending a@3s key k=a wake 0s", "b"},
		{ConflictReplace, false, "~a@0s", asItWas, "b"},
		{ConflictReschedule, true, "~a@3s", "pending a@3s key k=a wake 0s", "a"},
		{ConflictReschedule, false, "~a@0s", asItWas, "a"},
	},
	"unack": {
		{ConflictRefuse, true, "=a", asItWas, "a"},
		{ConflictKeep, true, "~a@0s", asItWas, "a"},
		{ConflictReplace, true, "+3s", "pending b@3s unack a@10.000001s fail a=1/0/0@superseded key k=b wake 3s", "a"},
		{ConflictReplace, false, "+0s", "pending b@0s unack a@10.000001s fail a=1/0/0@superseded key k=b wake 0s", "a"},
		{ConflictReschedule, true, "+3s", "pending b@3s unack a@10.000001s fail a=1/0/0@superseded key k=b wake 3s", "a"},
		{ConflictReschedule, false, "+0s", "pending b@0s unack a@10.000001s fail a=1/0/0@superseded key k=b wake 0s", "a"},
	},
	"ready": {
		{ConflictRefuse, true, "=a", asItWas, "a"},
		{ConflictKeep, true, "~a@0s", asItWas, "a"},
		{ConflictReplace, true, "~a@3s", "retry 2:a@3s fail a=2/0/0@0s key k=a wake 0s", "b"},
		{ConflictReplace, false, "~a@0s", asItWas, "b"},
		{ConflictReschedule, true, "~a@3s", "retry 2:a@3s fail a=2/0/0@0s key k=a wake 0s", "a"},
		{ConflictReschedule, false, "~a@0s", asItWas, "a"},
	},
	"retry": {
		{ConflictRefuse, true, "=a", asItWas, "a"},
		{ConflictKeep, true, "~a@1s", asItWas, "a"},
		{ConflictReplace, true, "~a@3s", "retry 2:a@3s fail a=2/0/0@0s!x key k=a wake 1s", "b"},
		{ConflictReplace, false, "~a@1s", "retry 2:a@1s fail a=2/0/0@0s!x key k=a wake 1s", "b"},
		{ConflictReschedule, true, "~a@3s", "retry 2:a@3s fail a=2/1/0@0s!x key k=a wake 1s", "a"},
		{ConflictReschedule, false, "~a@0s", "retry 2:a@0s fail a=2/1/0@0s!x key k=a wake 0s", "a"},
	},
	"garbage": {
		{ConflictRefuse, true, "+3s", "pending b@3s garbage a@0s fail a=2/1/0@0s!x key k=b wake 3s", "a"},
		{ConflictKeep, true, "+3s", "pending b@3s garbage a@0s fail a=2/1/0@0s!x key k=b wake 3s", "a"},
		{ConflictReplace, true, "+3s", "pending b@3s garbage a@0s fail a=2/1/0@0s!x key k=b wake 3s", "a"},
		{ConflictReschedule, true, "+3s", "pending b@3s garbage a@0s fail a=2/1/0@0s!x key k=b wake 3s", "a"},
	},
	"done": {
		{ConflictReplace, true, "+3s", "pending b@3s done a@1h0m0s fail a=2/0/0@0s key k=b wake 3s", "a"},
		{ConflictReschedule, true, "+3s", "pending b@3s done a@1h0m0s fail a=2/0/0@0s key k=b wake 3s", "a"},
	},
	"without an envelope": {
		{ConflictRefuse, true, "+3s", "pending b@3s key k=b wake 3s", ""},
		{ConflictKeep, true, "+3s", "pending b@3s key k=b wake 3s", ""},
		{ConflictReplace, true, "+3s", "pending b@3s key k=b wake 3s", ""},
		{ConflictReschedule, true, "+3s", "pending b@3s key k=b wake 3s", ""},
	},
	"one with another key": { // ConflictRefuse and ConflictKeep believe the entry: they do not read the envelope
		{ConflictReplace, true, "+3s", "pending b@3s a@5s key k=b wake 3s", "a"},
		{ConflictReschedule, true, "+3s", "pending b@3s a@5s key k=b wake 3s", "a"},
	},
}

// TestScriptConflict: what a send does while its key is taken, by its policy and by the state of the holder.
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
	m.Put = &PutOptions{On: row.on, Timed: row.timed}
	r.answersOnce(m, row.answer, row.want, holders[holder].text)
	r.equal("payload", r.read().Messages[queuetest.IDOf("a")].Payload, row.payload)
	r.comesOut()
}

// answersOnce sends a message as a number of a sequence, and wants an answer and a state, which is before if it is asItWas. A
// repeat of the call says and changes no more, and for another call the number has passed, if it was stored.
func (r *rig) answersOnce(m *SendMessage, answer, want, before string) {
	r.t.Helper()
	m.Put.Sequence, m.Put.Number = "s", 1
	c := NewCaller()
	first := r.send(c, m)
	r.equal("answer", r.inWords(first), answer)
	if want == asItWas {
		want = before
	}
	passed := "#1"
	if strings.HasPrefix(answer, "=") {
		passed = answer // what was refused for its key has no number
	} else {
		want = withSequence(want)
	}
	r.expect(want)
	contents := r.contents()
	r.equal("the repeat", r.sendAgain(c, m), first)
	r.equal("contents", r.contents(), contents)
	r.equal("another call", r.answers(NewCaller(), m), passed)
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
		f := r.fetch(NewCaller(), 10)
		for _, d := range takenOf(f) {
			r.done(d.ends(OutcomeAck))
		}
		if f.Next == 0 && r.Cli.ZCard(queuetest.CtxB, r.Keys.unack).Val() == 0 {
			break
		}
	}
	s := r.read()
	r.equal("left", []int{len(s.Messages), len(s.Keys)}, []int{len(s.Garbage) + len(s.Done), 0})
}

// TestScriptConflictBatch: a batch that repeats one key does what as many single sends do, in order.
func TestScriptConflictBatch(t *testing.T) {
	k := keyed("k")
	runScripts(t, map[string]scriptCase{
		"all policies": {func(r *rig) {
			r.equal("answers", r.answers(NewCaller(), on(ConflictReplace, true, msg("a", 5*time.Second, k)), on(ConflictKeep, true, msg("b", 0, k)),
				on(ConflictReplace, true, msg("c", 6*time.Second, k)),
				on(ConflictRefuse, true, msg("d", 0, k)), on(ConflictReschedule, true, msg("e", 7*time.Second, k)), on(ConflictReplace, false, msg("f", 0, k)),
				on(ConflictKeep, true, msg("g", 0))),
				"+5s ~a@5s ~a@6s =a ~a@7s ~a@7s +0s")
			r.equal("payload", r.read().Messages[queuetest.IDOf("a")].Payload, "f")
		}, "pending g@0s a@7s key k=a wake 0s"},
		"a larger one": {func(r *rig) {
			r.answers(NewCaller(), on(ConflictReplace, true, msg("a", 5*time.Second, k)))
			long := on(ConflictReplace, true, msg("b", 5*time.Second, k, sized(5000)))
			r.equal("answer", r.answers(NewCaller(), long), "~a@5s")
			s := r.read()
			r.equal("big, sent", []string{s.Fields["big"], s.Fields["sent"]}, []string{fmt.Sprint(len(long.Text) + message.EnvelopeHead), "1"})
		}, "pending a@5s key k=a wake 5s"},
		"an instant": {func(r *rig) {
			r.answers(NewCaller(), on(ConflictReplace, true, msgAt("a", 5*time.Second, k)))
			r.equal("answers", r.answers(NewCaller(), on(ConflictReplace, true, msgAt("b", 4*time.Second, k)),
				on(ConflictReplace, true, msgAt("c", -time.Hour, k))), "~a@4s ~a@0s")
		}, "pending a@0s key k=a wake 0s"},
		"while it is paused": {func(r *rig) {
			r.put(msg("a", 5*time.Second, k))
			r.pause(9 * time.Second)
			r.equal("answer", r.answers(NewCaller(), on(ConflictReschedule, true, msg("b", 3*time.Second, k))), "~a@3s")
		}, "pending a@3s key k=a wake 5s"},
		"rubbish in place of scores": {func(r *rig) {
			for _, score := range []string{"-inf", "+inf", "1.5", "-5", "9e15"} {
				r.put(msg("a", 5*time.Second, k))
				r.do("ZADD", r.Keys.pending, score, queuetest.IDOf("a"))
				for _, timed := range []bool{false, true} {
					r.equal("kind", r.send(NewCaller(), on(ConflictReplace, timed, msg("b", 3*time.Second, k))).Answers[0].Kind, AnswerKept)
				}
				r.equal("cancel", r.cancel("key", "k"), statePending)
			}
		}, "wake 3s"},
	})
}

// TestScriptMaxWait: no send puts a message off for longer than the bound that the first send with a bound set.
func TestScriptMaxWait(t *testing.T) {
	const most = 10 * time.Second
	put := func(name string, c Conflict, d time.Duration, rest ...func(*message.Envelope)) *SendMessage {
		return putOff(most, c, msg(name, d, append(rest, keyed("k"), bounded)...))
	}
	latest := func(r *rig) time.Duration { return r.since(r.read().Messages[queuetest.IDOf("a")].Latest) }
	runScripts(t, map[string]scriptCase{
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
					put("b", ConflictReplace, 4*time.Second, func(e *message.Envelope) { e.Headers = map[string]string{"h": "v"} })), step.answer)
				r.equal("latest", latest(r), most)
			}
			r.equal("payload", r.read().Messages[queuetest.IDOf("a")].Payload, "b")
		}, "pending a@10s key k=a wake 4s"},
		"rescheduled for ever": {func(r *rig) {
			r.answers(NewCaller(), put("a", ConflictReschedule, 4*time.Second))
			for at := time.Second; at < 20*time.Second; at += time.Second {
				r.at(at)
				r.answers(NewCaller(), put("b", ConflictReschedule, 4*time.Second))
			}
			r.equal("latest", latest(r), most)
		}, "pending a@10s key k=a wake 4s"},
		"instants": {func(r *rig) {
			instant := func(name string, at time.Duration) *SendMessage {
				return putOff(most, ConflictReplace, msgAt(name, at, keyed("k"), bounded))
			}
			r.equal("answers", r.answers(NewCaller(), instant("a", time.Minute), instant("b", 4*time.Second), instant("c", time.Hour),
				instant("d", -time.Hour)), "+10s ~a@4s ~a@10s ~a@0s")
			r.equal("latest", latest(r), most)
		}, "pending a@0s key k=a wake 0s"},
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
		"one that is handled": {func(r *rig) {
			r.answers(NewCaller(), put("a", ConflictReplace, 0))
			r.take("a")
			r.at(9 * time.Second)
			r.equal("is left alone", r.answers(NewCaller(), put("b", ConflictReplace, 4*time.Second)), "+13s")
		}, "pending b@13s unack a@10.000001s fail a=1/0/0@superseded key k=b wake 13s"},
		"one that stays due when it was": {func(r *rig) {
			stays := func(name string) *SendMessage {
				m := put(name, ConflictReplace, 0)
				m.Put.Timed = false
				return m
			}
			r.put(msg("a", time.Hour, keyed("k")))
			r.equal("sooner", r.answers(NewCaller(), stays("b")), "~a@10s")
			r.at(time.Second)
			r.equal("as it was", r.answers(NewCaller(), stays("c")), "~a@10s")
			r.equal("without", r.answers(NewCaller(), on(ConflictReplace, false, msg("d", 0, keyed("k")))), "~a@10s")
			r.at(50 * time.Second)
			r.equal("due", r.answers(NewCaller(), stays("e")), "~a@10s")
		}, "pending a@10s key k=a wake 10s"},
		"without, and with": {func(r *rig) {
			r.put(msg("a", 4*time.Second, keyed("k")))
			r.equal("rescheduled with", r.answers(NewCaller(), put("b", ConflictReschedule, 9*time.Second)), "~a@9s")
			r.equal("no room", latest(r), -time.Duration(rigBase)*time.Microsecond)
			r.at(time.Second)
			r.equal("replaced with", r.answers(NewCaller(), put("c", ConflictReplace, 9*time.Second)), "~a@10s")
			r.equal("latest", latest(r), 11*time.Second)
			r.equal("rescheduled without", r.answers(NewCaller(), on(ConflictReschedule, true, msg("d", time.Minute, keyed("k")))), "~a@11s")
			r.equal("replaced without", r.answers(NewCaller(), on(ConflictReplace, true, msg("e", time.Minute, keyed("k")))), "~a@1m1s")
		}, "pending a@1m1s key k=a wake 4s"},
		"behind fields that must be known": {func(r *rig) {
			long := func(e *message.Envelope) {
				e.Timeout, e.Retention, e.Deadline, e.TTL = time.Hour, time.Hour, 1<<50, time.Hour
			}
			r.equal("answers", r.answers(NewCaller(), put("a", ConflictReplace, time.Second, long, sized(300)), put("b", ConflictReplace, time.Minute, long)),
				"+1s ~a@10s")
			e := r.read().Messages[queuetest.IDOf("a")]
			r.equal("fields", []int64{e.Timeout, e.Retention, e.TTL}, []int64{3600e6, 3600e6, 3600e6})
		}, "pending a@10s key k=a wake 1s"},
	})
}

// bounded makes room in an envelope for the instant to which a message may be put off.
func bounded(e *message.Envelope) { e.Latest = message.LatestUnknown }

// TestScriptMaxWaitRubbish: an envelope that no version wrote can be replaced and rescheduled.
func TestScriptMaxWaitRubbish(t *testing.T) {
	t.Parallel()
	onReal(t, func(r *rig) {
		for _, fields := range []string{"", "\x05", "\x05\x10", "\x05\x10123", "\x05\x0f123456789012345", "\x05\x10xxxxxxxxxxxxxxxx",
			"\x05\x10               1", "\x84" + strings.Repeat("\xff", 20),
			"\x84\xff\xff\xff\xff\x0f", strings.Repeat("\x85\x00", 1000), "\x80\x00\x81\x00\x05\x101717200000000000", "\x00\x00"} {
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
