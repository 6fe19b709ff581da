package script

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// TestScriptConflict: a batch that repeats one key does what as many single sends do, in order, by the policy of each. An entry of
// a key that another program wrote stops no policy that reads the message behind it. TestModel compares all policies in all states.
func TestScriptConflict(t *testing.T) {
	k := keyed("k")
	stored := func(r *rig, policies ...Conflict) {
		r.t.Helper()
		for _, policy := range policies {
			r.do("HSET", r.Keys.key, "k", queuetest.IDOf("a"))
			m := part("b", 3*time.Second, 0)
			if policy != ConflictAppend {
				m = on(policy, true, msg("b", 3*time.Second, k))
			}
			r.equal(fmt.Sprint(policy), r.answers(NewCaller(), m), "+3s")
			r.equal("cancel", r.cancel("key", "k"), statePending)
		}
	}
	runScripts(t, map[string]scriptCase{
		"all policies": {func(r *rig) {
			r.equal("answers", r.answers(NewCaller(), on(ConflictReplace, true, msg("a", 5*time.Second, k)), on(ConflictKeep, true, msg("b", 0, k)),
				on(ConflictReplace, true, msg("c", 6*time.Second, k)),
				on(ConflictRefuse, true, msg("d", 0, k)), on(ConflictReschedule, true, msg("e", 7*time.Second, k)), on(ConflictReplace, false, msg("f", 0, k)),
				on(ConflictKeep, true, msg("g", 0))),
				"+5s ~a@5s ~a@6s =a ~a@7s ~a@7s +0s")
			r.equal("payload", r.read().Messages[queuetest.IDOf("a")].Payload, "f")
		}, "pending g@0s a@7s key k=a wake 0s"},
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
		"a larger one": {func(r *rig) {
			r.answers(NewCaller(), on(ConflictReplace, true, msg("a", 5*time.Second, k)))
			long := on(ConflictReplace, true, msg("b", 5*time.Second, k, sized(5000)))
			r.equal("answer", r.answers(NewCaller(), long), "~a@5s")
			s := r.read()
			r.equal("big, sent", []string{s.Fields["big"], s.Fields["in:stored"]}, []string{fmt.Sprint(len(long.Text) + message.EnvelopeHead), "1"})
		}, "pending a@5s key k=a wake 5s"},
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
		"behind fields that must be known": {func(r *rig) {
			long := func(e *message.Envelope) {
				e.Timeout, e.Retention, e.Deadline, e.TTL = time.Hour, time.Hour, 1<<50, time.Hour
			}
			r.equal("answers", r.answers(NewCaller(), put("a", ConflictReplace, time.Second, long, sized(300)), put("b", ConflictReplace, time.Minute, long)),
				"+1s ~a@10s")
			e := r.read().Messages[queuetest.IDOf("a")]
			r.equal("fields", []time.Duration{e.Timeout, e.Retention, e.TTL}, []time.Duration{time.Hour, time.Hour, time.Hour})
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
