package script

import (
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// grouped makes a message the first part of a group, if it is stored.
func grouped(e *message.Envelope) { e.Group.Count = 1 }

// part is a message with the key k that is appended to a group, which has at most so many parts; 0: as many as there may be.
func part(name string, d time.Duration, most int, rest ...func(*message.Envelope)) *SendMessage {
	m := msg(name, d, append([]func(*message.Envelope){keyed("k"), grouped}, rest...)...)
	m.Put = &PutOptions{On: ConflictAppend, Timed: true, MaxParts: most}
	return m
}

// untimed is a message that does not say when it is due.
func untimed(m *SendMessage) *SendMessage {
	m.Put.Timed = false
	return m
}

// partsFrom are the parts of each message that a fetch brings.
func (r *rig) partsFrom(f FetchReply) string {
	r.t.Helper()
	var all []string
	for _, d := range takenOf(f) {
		if d.broken != nil {
			all = append(all, "broken")
			continue
		}
		all = append(all, names(d.tag)+"="+strings.Join(d.msg.Parts, ","))
	}
	return strings.Join(all, " ")
}

// groupOf is an ack of a group of n parts.
func groupOf(n int, s Settlement) Settlement {
	s.Parts = n
	return s
}

// steers changes one message, and returns the state in which it was.
func (r *rig) steers(what string, us int64, name string) string {
	r.t.Helper()
	got, err := r.Store.Steer(queuetest.CtxB, newCall(), SteerRequest{What: what, Us: us, Targets: targetsOf(name)})
	if err != nil || !got[0].Done {
		r.t.Errorf("%s: %+v, %v", what, got, err)
	}
	return got[0].State
}

// growGroup sends a group of three parts, a, b and an empty one.
func growGroup(r *rig, d time.Duration, rest ...func(*message.Envelope)) {
	r.equal("answers", len(r.send(NewCaller(), part("a", d, 0, rest...), part("b", d, 0), part("c", d, 0, sized(0))).Answers), 3)
}

// handGroup sends that group and hands it out.
func handGroup(r *rig, rest ...func(*message.Envelope)) {
	growGroup(r, 0, rest...)
	r.equal("parts", r.partsFrom(r.fetch(NewCaller(), 1)), "a=a,b,")
}

// restThere are the second and third part of that group.
const restThere = "parts a:2=1 a:3=0 "

// TestScriptGroup: parts stay with their message at each end of a delivery, and go with it when it is replaced, taken out or deleted.
func TestScriptGroup(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"ack": {func(r *rig) { handGroup(r); r.done(groupOf(3, ack("a", "k"))) }, ""},
		"release": {func(r *rig) { handGroup(r); r.done(ends(OutcomeReady, "a", 0, 0, "")) },
			"ready 2:a " + restThere + "fail a=2/0/0@0s key k=a wake 0s"},
		"failure": {func(r *rig) { handGroup(r); r.done(ends(OutcomeRetry, "a", 1, 0, "x")) },
			"retry 2:a@1s " + restThere + "fail a=2/1/0@0s!x key k=a wake 1s"},
		"garbage": {func(r *rig) { handGroup(r); r.done(ends(OutcomeGarbage, "a", 1, 0, "x", "k")) },
			"garbage a@0s " + restThere + "fail a=2/1/0@0s!x"},
		"garbage that is requeued": {func(r *rig) {
			handGroup(r)
			r.done(ends(OutcomeGarbage, "a", 1, 0, "x", "k"))
			r.equal("requeue", r.steers("requeue", r.now, "a"), "garbage")
			r.equal("appended", r.answers(NewCaller(), untimed(part("d", 0, 0))), "~a@0s")
			r.equal("parts", r.partsFrom(r.fetch(NewCaller(), 1)), "2:a=a,b,,d")
		}, "unack 2:a@10s parts a:2=1 a:3=0 a:4=1 fail a=2/0/0@0s!x key k=a"},
		"garbage that is too old": {func(r *rig) {
			r.with.GarbageAge = time.Second
			handGroup(r)
			r.done(ends(OutcomeGarbage, "a", 1, 0, "x", "k"))
			r.at(2 * time.Second)
			r.tick()
		}, ""},
		"done": {func(r *rig) { handGroup(r); r.done(groupOf(3, kept("a", time.Minute, "v", "k"))) },
			"done a@1m0s result a=1 " + restThere + "fail a=2/0/0@0s"},
		"poison": {func(r *rig) {
			handGroup(r)
			r.with.MaxLosses = 1
			f := r.lapse(11 * time.Second)
			e, err := message.DecodeEnvelope(f.Dead[0].Envelope)
			r.equal("the dead one", []any{f.Dead[0].ID, e.Payload, f.Parts[-1], err}, []any{queuetest.IDOf("a"), "a", []string{"b", ""}, nil})
		}, "garbage a@11s " + restThere + "fail a=2/0/1@11s!poison"},
		"fields on both sides": {func(r *rig) {
			handGroup(r, func(e *message.Envelope) {
				e.Timeout, e.Retention, e.Deadline, e.TTL, e.KeyHold = time.Hour, time.Hour, rigBase+1e12, time.Hour, time.Hour
				e.Headers = map[string]string{"h": "v"}
			})
		}, "unack a@10s " + restThere + "key k=a"},
		"intercepted by its id": {func(r *rig) {
			growGroup(r, time.Minute)
			r.equal("state", r.intercept(NewCaller(), "id", queuetest.IDOf("a")), statePending)
		}, "wake 1m0s"},
		"canceled": {func(r *rig) { handGroup(r); r.equal("state", r.cancel("id", queuetest.IDOf("a")), stateUnack) }, ""},
		"deleted":  {func(r *rig) { growGroup(r, time.Minute); r.equal("state", r.steers("delete", 0, "a"), "pending") }, "wake 1m0s"},
		"deleted from garbage": {func(r *rig) {
			handGroup(r)
			r.done(ends(OutcomeGarbage, "a", 1, 0, "x", "k"))
			r.equal("state", r.steers("delete", 0, "a"), "garbage")
		}, ""},
		"replaced": {func(r *rig) {
			growGroup(r, time.Minute)
			r.equal("answer", r.answers(NewCaller(), on(ConflictReplace, true, msg("d", time.Second, keyed("k")))), "~a@1s")
			r.equal("no group any more", r.answers(NewCaller(), part("e", time.Second, 0)), "=a")
			r.at(time.Second)
			r.equal("parts", r.partsFrom(r.fetch(NewCaller(), 1)), "a=")
		}, "unack a@11s key k=a"},
	})
}

// TestScriptGroupFull: a full group is due at once, and leaves its key to the next group, but shows it to the handler.
func TestScriptGroupFull(t *testing.T) {
	long := strings.Repeat("x", 700<<10)
	large := func(name string, n int, d time.Duration) *SendMessage { return part(name, d, 0, sized(n)) }
	key := func(r *rig) string {
		return takenOf(r.fetch(NewCaller(), 1))[0].msg.Key
	}
	runScripts(t, map[string]scriptCase{
		"by number": {func(r *rig) {
			r.equal("answers", r.answers(NewCaller(), part("a", time.Minute, 3), part("b", time.Minute, 3), part("c", time.Minute, 3),
				part("d", time.Minute, 3)), "+1m0s ~a@1m0s ~a@0s +1m0s")
			r.equal("its name", key(r), "k")
		}, "pending d@1m0s unack a@10s parts a:2=1 a:3=1 left k=a key k=d wake 1m0s"},
		"by bytes": {func(r *rig) {
			r.equal("answers", r.answers(NewCaller(), large("a", 700<<10, time.Minute)), "+1m0s")
			r.equal("no room", r.answers(NewCaller(), large("b", 400<<10, time.Minute)), "+1m0s")
			r.equal("room", r.answers(NewCaller(), large("c", 600<<10, time.Minute)), "~b@1m0s")
			r.equal("none is left", r.answers(NewCaller(), large("d", 24<<10, time.Minute)), "~b@0s")
			r.equal("the next", r.answers(NewCaller(), part("e", time.Hour, 0)), "+1h0m0s")
			f := r.fetch(NewCaller(), 2)
			r.equal("one at a time", len(f.Tags), 1)
			r.equal("payload", takenOf(f)[0].msg.Payload, long)
		}, "pending b@0s e@1h0m0s unack a@10s parts b:2=614400 b:3=24576 left k=b+a key k=e wake 0s"},
		"that waits for a retry, and was to wait no longer": {func(r *rig) {
			bound := func(name string) *SendMessage {
				m := part(name, 4*time.Second, 0, bounded)
				m.Put.MaxWait = 5 * time.Second
				return m
			}
			r.equal("answers", r.answers(NewCaller(), bound("a"), bound("b")), "+4s ~a@4s")
			r.at(3 * time.Second)
			r.equal("bound", r.answers(NewCaller(), bound("c")), "~a@5s")
			r.at(5 * time.Second)
			r.take("a")
			s := ends(OutcomeRetry, "a", 1, 0, "x")
			s.Delay = time.Hour
			r.done(s)
			r.equal("its time", r.answers(NewCaller(), bound("d"), part("e", 0, 0)), "~a@1h0m5s ~a@1h0m5s")
		}, "retry 2:a@1h0m5s parts a:2=1 a:3=1 a:4=1 a:5=1 fail a=2/1/0@5s!x key k=a wake 1h0m5s"},
		"a key of 512 bytes": {func(r *rig) {
			long := strings.Repeat("k", 512)
			named := func(name string) *SendMessage {
				m := msg(name, time.Minute, keyed(long), grouped)
				m.Put = &PutOptions{On: ConflictAppend, Timed: true, MaxParts: 2}
				return m
			}
			r.equal("answers", r.answers(NewCaller(), named("a"), named("b")), "+1m0s ~a@0s")
			r.equal("its name", key(r), long)
		}, "unack a@10s parts a:2=1 left " + strings.Repeat("k", 512) + "=a"},
	})
}
