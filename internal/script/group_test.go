package script

import (
	"fmt"
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

// groupHolders put group a, which has the key k, into some state.
var groupHolders = map[string]struct {
	make func(r *rig)
	text string // the state then
}{
	"nowhere": {func(*rig) {}, ""},
	"pending": {func(r *rig) { r.send(NewCaller(), part("a", 5*time.Second, 0)) }, "pending a@5s key k=a wake 5s"},
	"due":     {func(r *rig) { r.send(NewCaller(), part("a", 0, 0)) }, "pending a@0s key k=a wake 0s"},
	"unack":   {func(r *rig) { r.send(NewCaller(), part("a", 0, 0)); r.take("a") }, "unack a@10.000001s key k=a"},
	"ready": {func(r *rig) {
		r.send(NewCaller(), part("a", 0, 0))
		r.take("a")
		r.done(ends(OutcomeReady, "a", 0, 0, ""))
	}, "ready 2:a fail a=2/0/0@0s key k=a wake 0s"},
	"retry": {func(r *rig) {
		r.send(NewCaller(), part("a", 0, 0))
		r.take("a")
		r.done(ends(OutcomeRetry, "a", 1, 0, "x"))
	}, "retry 2:a@1s fail a=2/1/0@0s!x key k=a wake 1s"},
	"garbage": {func(r *rig) {
		r.send(NewCaller(), part("a", 0, 0))
		r.take("a")
		r.done(ends(OutcomeGarbage, "a", 1, 0, "x", "k"))
	}, "garbage a@0s fail a=2/1/0@0s!x"},
	"done": {func(r *rig) {
		r.send(NewCaller(), part("a", 0, 0))
		r.take("a")
		r.done(groupOf(1, kept("a", time.Hour, "", "k")))
	}, "done a@1h0m0s fail a=2/0/0@0s"},
	"acked, and keeps its key": {func(r *rig) {
		r.send(NewCaller(), part("a", 0, 0))
		r.take("a")
		r.done(groupOf(1, holding("a", 5*time.Second, "k")))
	}, "key k=acked:a held k@5s"},
	"without an envelope":     {func(r *rig) { r.do("HSET", r.Keys.key, "k", queuetest.IDOf("a")) }, ""},
	"a message, and no group": {func(r *rig) { r.put(msg("a", 5*time.Second, keyed("k"))) }, "pending a@5s key k=a wake 5s"},
	"no group, and handled":   {func(r *rig) { r.hand(msg("a", 0, keyed("k"))) }, "unack a@10.000001s key k=a"},
}

// TestScriptAppend: what a part does while its key is taken, by the state of the holder, and the whole state after.
func TestScriptAppend(t *testing.T) {
	t.Parallel()
	for holder, rows := range map[string][]struct {
		timed        bool
		most         int
		answer, want string
	}{
		"nowhere": {{true, 0, "+3s", "pending b@3s key k=b wake 3s"}, {false, 0, "+0s", "pending b@0s key k=b wake 0s"}},
		"pending": {
			{true, 0, "~a@3s", "pending a@3s parts a:2=1 key k=a wake 3s"},
			{false, 0, "~a@5s", "pending a@5s parts a:2=1 key k=a wake 5s"},
			{true, 2, "~a@0s", "pending a@0s parts a:2=1 left k=a wake 0s"}, // full
		},
		"due": {
			{true, 0, "~a@3s", "pending a@3s parts a:2=1 key k=a wake 0s"},
			{false, 0, "~a@0s", "pending a@0s parts a:2=1 key k=a wake 0s"},
			{true, 2, "~a@0s", "pending a@0s parts a:2=1 left k=a wake 0s"},
		},
		"unack": {
			{true, 0, "+3s", "pending b@3s unack a@10.000001s left k=a key k=b wake 3s"},
			{false, 2, "+0s", "pending b@0s unack a@10.000001s left k=a key k=b wake 0s"},
		},
		"ready": {
			{true, 0, "~a@0s", "ready 2:a parts a:2=1 fail a=2/0/0@0s key k=a wake 0s"},
			{false, 0, "~a@0s", "ready 2:a parts a:2=1 fail a=2/0/0@0s key k=a wake 0s"},
			{true, 2, "~a@0s", "ready 2:a parts a:2=1 left k=a fail a=2/0/0@0s wake 0s"},
		},
		"retry": {
			{true, 0, "~a@1s", "retry 2:a@1s parts a:2=1 fail a=2/1/0@0s!x key k=a wake 1s"},
			{false, 0, "~a@1s", "retry 2:a@1s parts a:2=1 fail a=2/1/0@0s!x key k=a wake 1s"},
			{true, 2, "~a@1s", "retry 2:a@1s parts a:2=1 left k=a fail a=2/1/0@0s!x wake 1s"},
		},
		"garbage":                  {{true, 0, "+3s", "pending b@3s garbage a@0s fail a=2/1/0@0s!x key k=b wake 3s"}},
		"done":                     {{true, 0, "+3s", "pending b@3s done a@1h0m0s fail a=2/0/0@0s key k=b wake 3s"}},
		"acked, and keeps its key": {{true, 0, "=acked:a", asItWas}},
		"without an envelope":      {{true, 0, "+3s", "pending b@3s key k=b wake 3s"}},
		"a message, and no group":  {{true, 0, "=a", asItWas}, {false, 2, "=a", asItWas}},
		"no group, and handled":    {{true, 0, "=a", asItWas}, {false, 2, "=a", asItWas}},
	} {
		for _, row := range rows {
			t.Run(fmt.Sprint(holder, " ", row.timed, " ", row.most), func(t *testing.T) {
				onBoth(t, func(r *rig) {
					groupHolders[holder].make(r)
					m := part("b", 3*time.Second, row.most)
					if !row.timed {
						m = untimed(part("b", 0, row.most))
					}
					r.answersOnce(m, row.answer, row.want, groupHolders[holder].text)
					if !strings.HasPrefix(holder, "acked") {
						r.comesOut()
					}
				})
			})
		}
	}
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

// TestScriptGroup: parts stay with their message at each end of a delivery, and go with it.
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
		}, "unack 2:a@10.000003s parts a:2=1 a:3=0 a:4=1 fail a=2/0/0@0s!x key k=a"},
		"garbage that is too old": {func(r *rig) {
			r.with.GarbageAge = time.Second
			handGroup(r)
			r.done(ends(OutcomeGarbage, "a", 1, 0, "x", "k"))
			r.at(2 * time.Second)
			r.tick()
		}, ""},
		"garbage that is too much": {func(r *rig) {
			r.with.GarbageMax = 1
			handGroup(r)
			r.put(msg("x", 0))
			r.take("x")
			r.done(ends(OutcomeGarbage, "a", 1, 0, "x", "k"))
			r.at(time.Second)
			r.done(ends(OutcomeGarbage, "x", 1, 0, "x"))
		}, "garbage x@1s fail x=2/1/0@1s!x"},
		"garbage that is too much for a tick": {func(r *rig) {
			handGroup(r)
			r.put(msg("x", 0))
			r.take("x")
			r.done(ends(OutcomeGarbage, "a", 1, 0, "x", "k"))
			r.at(time.Second)
			r.done(ends(OutcomeGarbage, "x", 1, 0, "x"))
			r.with.GarbageMax = 1
			r.at(time.Minute)
			r.tick()
		}, "garbage x@1s fail x=2/1/0@1s!x"},
		"done": {func(r *rig) { handGroup(r); r.done(groupOf(3, kept("a", time.Minute, "v", "k"))) },
			"done a@1m0s result a=1 " + restThere + "fail a=2/0/0@0s"},
		"done, and over": {func(r *rig) {
			handGroup(r)
			r.done(groupOf(3, kept("a", time.Minute, "v", "k")))
			r.at(2 * time.Minute)
			r.tick()
		}, ""},
		"done, and too much": {func(r *rig) {
			r.with.DoneMax = 1
			handGroup(r)
			r.put(msg("x", 0))
			r.take("x")
			r.done(groupOf(3, kept("a", time.Minute, "v", "k")))
			r.done(kept("x", time.Hour, "v"))
		}, "done x@1h0m0s result x=1 fail x=2/0/0@0s"},
		"lost": {func(r *rig) {
			handGroup(r)
			r.lapse(11 * time.Second)
		}, "retry 2:a@11s~11.5s " + restThere + "fail a=2/0/1@11s!lost key k=a wake 11s~11.5s"},
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
		}, "unack a@10.000001s " + restThere + "key k=a"},
	})
}

// TestScriptGroupChanged: parts stay with, or go with, a message that is changed or deleted without a delivery, canceled, or
// deleted from garbage.
func TestScriptGroupChanged(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"intercepted": {func(r *rig) {
			growGroup(r, time.Minute)
			r.equal("state", r.intercept(NewCaller(), "key", "k"), statePending)
		}, "wake 1m0s"},
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
		"rescheduled": {func(r *rig) {
			growGroup(r, time.Minute)
			r.equal("answer", r.answers(NewCaller(), on(ConflictReschedule, true, msg("d", time.Second, keyed("k")))), "~a@1s")
		},
			"pending a@1s " + restThere + "key k=a wake 1s"},
		"kept": {func(r *rig) {
			growGroup(r, time.Minute)
			r.equal("answer", r.answers(NewCaller(), on(ConflictKeep, true, msg("d", time.Second, keyed("k")))), "~a@1m0s")
		},
			"pending a@1m0s " + restThere + "key k=a wake 1m0s"},
		"replaced": {func(r *rig) {
			growGroup(r, time.Minute)
			r.equal("answer", r.answers(NewCaller(), on(ConflictReplace, true, msg("d", time.Second, keyed("k")))), "~a@1s")
			r.equal("no group any more", r.answers(NewCaller(), part("e", time.Second, 0)), "=a")
			r.at(time.Second)
			r.equal("parts", r.partsFrom(r.fetch(NewCaller(), 1)), "a=")
		}, "unack a@11.000001s key k=a"},
		"dropped": {func(r *rig) {
			growGroup(r, time.Minute)
			_, _, err := r.Store.Drop(queuetest.CtxB, true)
			r.equal("error", err, nil)
		}, ""},
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
		}, "pending d@1m0s unack a@10.000001s parts a:2=1 a:3=1 left k=a key k=d wake 1m0s"},
		"by what a later one says": {func(r *rig) {
			r.equal("answers", r.answers(NewCaller(), part("a", time.Minute, 0), part("b", time.Minute, 0), part("c", time.Minute, 0),
				part("d", time.Minute, 3)), "+1m0s ~a@1m0s ~a@1m0s +1m0s")
		}, "pending a@0s d@1m0s parts a:2=1 a:3=1 left k=a key k=d wake 0s"},
		"by bytes": {func(r *rig) {
			r.equal("answers", r.answers(NewCaller(), large("a", 700<<10, time.Minute)), "+1m0s")
			r.equal("no room", r.answers(NewCaller(), large("b", 400<<10, time.Minute)), "+1m0s")
			r.equal("room", r.answers(NewCaller(), large("c", 600<<10, time.Minute)), "~b@1m0s")
			r.equal("none is left", r.answers(NewCaller(), large("d", 24<<10, time.Minute)), "~b@0s")
			r.equal("the next", r.answers(NewCaller(), part("e", time.Hour, 0)), "+1h0m0s")
			f := r.fetch(NewCaller(), 2)
			r.equal("one at a time", len(f.Tags), 1)
			r.equal("payload", takenOf(f)[0].msg.Payload, long)
		}, "pending b@0s e@1h0m0s unack a@10.000001s parts b:2=614400 b:3=24576 left k=b+a key k=e wake 0s"},
		"while it waits for a retry": {func(r *rig) {
			r.answers(NewCaller(), part("a", 0, 0), untimed(part("b", 0, 0)))
			r.take("a")
			r.done(ends(OutcomeRetry, "a", 1, 0, "x"))
			r.equal("appended", r.answers(NewCaller(), part("c", time.Minute, 3), part("d", time.Minute, 3)), "~a@1s +1m0s")
			r.at(time.Second)
			r.equal("parts", r.partsFrom(r.fetch(NewCaller(), 1)), "2:a=a,b,c")
		}, "pending d@1m0s unack 2:a@11.000001s parts a:2=1 a:3=1 left k=a fail a=2/1/0@0s!x key k=d wake 1m0s"},
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
		}, "unack a@10.000001s parts a:2=1 left " + strings.Repeat("k", 512) + "=a"},
		"a key that was taken over": {func(r *rig) {
			r.answers(NewCaller(), part("a", 0, 0), untimed(part("b", 0, 0)))
			r.take("a")
			r.equal("the next", r.answers(NewCaller(), part("c", time.Minute, 0)), "+1m0s")
			r.done(ends(OutcomeRetry, "a", 1, 0, "x"))
			r.at(time.Second)
			r.equal("its name", key(r), "k")
			r.done(groupOf(2, ack("2:a", "k")))
		}, "pending c@1m0s key k=c wake 1m0s"},
		"while it is paused": {func(r *rig) {
			r.answers(NewCaller(), part("a", time.Hour, 2))
			r.pause(9 * time.Second)
			r.equal("full", r.answers(NewCaller(), part("b", time.Hour, 2)), "~a@0s")
		}, "pending a@0s parts a:2=1 left k=a wake 9s"},
	})
}
