package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/message"
)

const (
	idA = "0190a1b2-0000-7000-8000-00000000000a"
	idB = "0190a1b2-0000-7000-8000-00000000000b"

	poison = "message was lost with its consumer too many times in a row"
)

var (
	accept   = entry{Kind: sent, At: sec(0), Payload: "a", ID: idA, Due: sec(1)}
	done     = []entry{starts(1, "c1", 1, 0), ends(1.1, "c1", 1, succeeded)}
	kill     = strike{from: sec(1.05), to: sec(1.05), who: "c1", killed: true, why: "it was killed"}
	harmless = strike{from: sec(1.05), to: sec(1.05), who: "c1", killed: true}
	allow    = rules{lease: time.Second}
)

// sec is an instant, in unix us, that long after the trial began.
func sec(s float64) int64 { return 1_000_000_000 + int64(s*1e6) }

func starts(at float64, who string, delivery, failures int) entry {
	return entry{Kind: started, At: sec(at), Payload: "a", ID: idA, Delivery: delivery, Failures: failures, who: who}
}

func ends(at float64, who string, delivery int, word string) entry {
	return entry{Kind: ended, At: sec(at), Payload: "a", ID: idA, Delivery: delivery, Word: word, who: who}
}

// envelopeDue is an envelope that is due at an instant.
func envelopeDue(us int64) check.Envelope { return check.Envelope{Envelope: message.Envelope{Due: us}} }

// behind are so many messages that started just before 3.1 s, each so late.
func behind(n int, late float64) (all []entry) {
	for i := range n {
		payload, id := fmt.Sprintf("behind%d", i), fmt.Sprintf("0190a1b2-0000-7000-8000-0000000001%02d", i)
		all = append(all, entry{Kind: sent, At: sec(0), Payload: payload, ID: id, Due: sec(3 - late)},
			entry{Kind: started, At: sec(3), Payload: payload, ID: id, Delivery: 1, who: "c3"},
			entry{Kind: ended, At: sec(3), Payload: payload, ID: id, Delivery: 1, Word: succeeded, who: "c3"})
	}
	return all
}

// inGarbage is the state whose garbage is the one message, with its last error.
func inGarbage(text string) *check.State {
	return &check.State{
		Garbage:  []check.Entry{{Tag: idA, ID: idA, Score: sec(9)}},
		Messages: map[string]check.Envelope{idA: envelopeDue(sec(1))},
		Fail:     map[string]check.Fail{idA: {Delivery: 4, Losses: maxLosses, When: sec(9), Error: text}},
	}
}

// A forgery is what a trial may leave, and what the judge must say of it.
type forgery struct {
	entries []entry
	strikes []strike
	state   *check.State
	rules   rules
	clock   func(int64) int64
	results map[string]string
	gauge   *gauge
	want    string // part of the one problem; "": none
	counts  verdict
}

// judged wants the wrong of each forgery found, and nothing else.
func judged(t *testing.T, forgeries map[string]forgery) {
	t.Helper()
	t.Parallel()
	for name, c := range forgeries {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.state == nil {
				c.state = &check.State{}
			}
			if c.state.Fields == nil {
				c.state.Fields = map[string]string{}
			}
			c.state.Fields["big"] = "1000"
			state := wholeOf(&check.Sharded{Shards: []*check.State{c.state}})
			v := judge(evidence{entries: c.entries, strikes: c.strikes, state: state, rules: c.rules, clock: c.clock,
				results: c.results, gauge: c.gauge})
			got := verdict{accepted: v.accepted, handled: v.handled, lost: v.lost, early: v.early, duplicated: v.duplicated}
			if got.accepted != c.counts.accepted || got.handled != c.counts.handled || got.lost != c.counts.lost ||
				got.early != c.counts.early || got.duplicated != c.counts.duplicated {
				t.Errorf("counts are %+v, want %+v", got, c.counts)
			}
			if c.want == "" && len(v.problems) > 0 {
				t.Errorf("found %q, want nothing", v.problems)
			}
			if c.want != "" && !slices.ContainsFunc(v.problems, func(p string) bool { return strings.Contains(p, c.want) }) {
				t.Errorf("found %q, want %q", v.problems, c.want)
			}
		})
	}
}

// TestJudgeHandled: what was accepted is handled once, and what was not accepted may be handled or not.
func TestJudgeHandled(t *testing.T) {
	judged(t, map[string]forgery{
		"handled": {entries: append(done, accept), counts: verdict{accepted: 1, handled: 1}},
		"retried": {
			entries: []entry{accept, starts(1, "c1", 1, 0), ends(1, "c1", 1, failed), starts(1.2, "c2", 2, 1),
				ends(1.3, "c2", 2, succeeded)},
			counts: verdict{accepted: 1, handled: 1},
		},
		"never sent":   {entries: done, want: "never sent"},
		"perhaps sent": {entries: append([]entry{{Kind: refused, At: sec(0), Payload: "a"}}, done...)},
		"sent under two ids": {
			entries: append([]entry{{Kind: sent, At: sec(0), Payload: "a", ID: idB, Due: sec(1)}}, done...),
			want:    "accepted as " + idB, counts: verdict{accepted: 1, handled: 1},
		},
	})
}

// TestJudgeLost: an accepted message must have been handled, unless Redis lost it where it may.
func TestJudgeLost(t *testing.T) {
	judged(t, map[string]forgery{
		"never handled": {entries: []entry{accept}, want: "lost", counts: verdict{accepted: 1, lost: 1}},
		"started, not ended": {
			entries: []entry{accept, starts(1, "c1", 1, 0)}, want: "lost", counts: verdict{accepted: 1, lost: 1},
		},
		"only failed": {
			entries: []entry{accept, starts(1, "c1", 1, 0), ends(1, "c1", 1, failed)}, want: "lost",
			counts: verdict{accepted: 1, lost: 1},
		},
		"lost by Redis": {
			entries: []entry{accept}, strikes: []strike{{from: sec(0.5), to: sec(0.6), wiped: true}},
			rules: rules{lossy: "no persistence"}, counts: verdict{accepted: 1, lost: 1},
		},
		"lost, though Redis kept it": {
			entries: []entry{accept},
			strikes: []strike{{from: sec(0.5), to: sec(0.6), wiped: true, kept: map[string]bool{idA: true}}},
			rules:   rules{lossy: "no persistence"}, want: "lost", counts: verdict{accepted: 1, lost: 1},
		},
		"lost by a failover": {
			entries: []entry{accept}, strikes: []strike{{from: sec(0.5), to: sec(0.6), loses: time.Second}},
			rules: rules{lossy: "no replica had it"}, counts: verdict{accepted: 1, lost: 1},
		},
		"lost long before the failover": {
			entries: []entry{accept}, strikes: []strike{{from: sec(5), to: sec(6), loses: time.Second}},
			rules: rules{lossy: "no replica had it"}, want: "lost", counts: verdict{accepted: 1, lost: 1},
		},
	})
}

// TestJudgeEarly: no handler starts before its message is due by the server's clock.
func TestJudgeEarly(t *testing.T) {
	judged(t, map[string]forgery{
		"early": {
			entries: []entry{accept, starts(0.99, "c1", 1, 0), ends(1, "c1", 1, succeeded)},
			want:    "10ms early", counts: verdict{accepted: 1, handled: 1, early: 1},
		},
		"retried early": {
			entries: []entry{accept, starts(1, "c1", 1, 0), ends(1, "c1", 1, failed), starts(1.19, "c2", 2, 1),
				ends(1.3, "c2", 2, succeeded)},
			want: "retried 10ms early", counts: verdict{accepted: 1, handled: 1, early: 1},
		},
		"retried in time for the first of two failures": {
			entries: []entry{accept, starts(1, "c1", 1, 0), starts(1.02, "c2", 1, 0), ends(1.03, "c1", 1, failed),
				ends(1.2, "c2", 1, failed),
				starts(1.24, "c1", 2, 1), ends(1.3, "c1", 2, succeeded)},
			strikes: []strike{{from: sec(0.9), to: sec(1.1), why: "failover"}},
			rules:   rules{lease: time.Second, duplicate: "two primaries"},
			counts:  verdict{accepted: 1, handled: 1, duplicated: 1},
		},
		"retried early for the first of two failures": {
			entries: []entry{accept, starts(1, "c1", 1, 0), starts(1.02, "c2", 1, 0), ends(1.03, "c1", 1, failed),
				ends(1.2, "c2", 1, failed),
				starts(1.22, "c1", 2, 1), ends(1.3, "c1", 2, succeeded)},
			strikes: []strike{{from: sec(0.9), to: sec(1.1), why: "failover"}},
			rules:   rules{lease: time.Second, duplicate: "two primaries"},
			want:    "retried 10ms early", counts: verdict{accepted: 1, handled: 1, early: 1, duplicated: 1},
		},
		"due by the server's clock": {
			entries: []entry{accept, starts(0.5, "c1", 1, 0), ends(0.6, "c1", 1, succeeded)},
			clock:   func(at int64) int64 { return at + 600_000 }, counts: verdict{accepted: 1, handled: 1},
		},
		"early by the server's clock": {
			entries: append([]entry{accept}, done...), clock: func(at int64) int64 { return at - 600_000 },
			want: "600ms early", counts: verdict{accepted: 1, handled: 1, early: 1},
		},
	})
}

// TestJudgeDuplicated: a message is handled twice only where a fault explains it, and uses no retry for it.
func TestJudgeDuplicated(t *testing.T) {
	judged(t, map[string]forgery{
		"twice for no reason": {
			entries: append([]entry{accept, starts(2, "c2", 2, 0), ends(2, "c2", 2, succeeded)}, done...),
			want:    "no fault explains it", counts: verdict{accepted: 1, handled: 1, duplicated: 1},
		},
		"twice after a kill": {
			entries: []entry{accept, starts(1, "c1", 1, 0), starts(2, "c2", 2, 0), ends(2, "c2", 2, succeeded)},
			strikes: []strike{kill}, rules: allow, counts: verdict{accepted: 1, handled: 1, duplicated: 1},
		},
		"twice after the kill of another": {
			entries: []entry{accept, starts(1, "c3", 1, 0), starts(2, "c2", 2, 0), ends(2, "c2", 2, succeeded)},
			strikes: []strike{kill}, rules: allow, want: "no fault explains it",
			counts: verdict{accepted: 1, handled: 1, duplicated: 1},
		},
		"twice after a kill where nothing may": {
			entries: []entry{accept, starts(1, "c1", 1, 0), starts(2, "c2", 2, 0), ends(2, "c2", 2, succeeded)},
			strikes: []strike{harmless}, want: "no fault explains it", counts: verdict{accepted: 1, handled: 1, duplicated: 1},
		},
		"started late by one that stood still": {
			entries: []entry{accept, starts(2, "c2", 2, 0), ends(2, "c2", 2, succeeded), starts(3, "c1", 1, 0),
				ends(3, "c1", 1, succeeded)},
			strikes: []strike{{from: sec(1), to: sec(2.9), who: "c1", why: "it stood still"}}, rules: allow,
			want: "no fault explains it", counts: verdict{accepted: 1, handled: 1, duplicated: 1},
		},
		"twice long after the strike on all": {
			entries: append([]entry{accept, starts(9, "c2", 2, 0), ends(9, "c2", 2, succeeded)}, done...),
			strikes: []strike{{from: sec(8), to: sec(8.5), why: "Redis forgot"}}, rules: allow,
			want: "no fault explains it", counts: verdict{accepted: 1, handled: 1, duplicated: 1},
		},
		"twice on a machine that was too slow for the lease": {
			entries: []entry{accept, starts(1, "c1", 1, 0), starts(2, "c2", 2, 0), ends(2, "c2", 2, succeeded)}, rules: allow,
			gauge:  &gauge{delays: []delay{{sec(1.2), 500 * time.Millisecond}}},
			counts: verdict{accepted: 1, handled: 1, duplicated: 1},
		},
		"twice on a machine that was slow, but not for the lease": {
			entries: []entry{accept, starts(1, "c1", 1, 0), starts(2, "c2", 2, 0), ends(2, "c2", 2, succeeded)}, rules: allow,
			gauge: &gauge{delays: []delay{{sec(1.2), 499 * time.Millisecond}, {sec(2.1), time.Second}}},
			want:  "no fault explains it", counts: verdict{accepted: 1, handled: 1, duplicated: 1},
		},
		"a retry used by a kill": {
			entries: []entry{accept, starts(1, "c1", 1, 0), starts(2, "c2", 2, 1), ends(2, "c2", 2, succeeded)},
			strikes: []strike{kill}, rules: allow, want: "1 failures behind it",
			counts: verdict{accepted: 1, handled: 1, duplicated: 1},
		},
	})
}

// TestJudgeLate: calls, redeliveries and handlers have their limits of time.
func TestJudgeLate(t *testing.T) {
	judged(t, map[string]forgery{
		"back too late": {
			entries: []entry{accept, starts(1, "c1", 1, 0), starts(3.1, "c2", 2, 0), ends(3.2, "c2", 2, succeeded)},
			strikes: []strike{kill}, rules: allow, want: "came back after the kill: 2.05s",
			counts: verdict{accepted: 1, handled: 1, duplicated: 1},
		},
		"back late on its last chance": {
			entries: []entry{accept, starts(1, "c1", maxLosses-1, 0), starts(8, "c2", maxLosses, 0),
				ends(8.1, "c2", maxLosses, succeeded)},
			strikes: []strike{kill}, rules: allow, counts: verdict{accepted: 1, handled: 1, duplicated: 1},
		},
		"back too late on its last chance": {
			entries: []entry{accept, starts(1, "c1", maxLosses-1, 0), starts(8.2, "c2", maxLosses, 0),
				ends(8.3, "c2", maxLosses, succeeded)},
			strikes: []strike{kill}, rules: allow, want: "want at most 7s",
			counts: verdict{accepted: 1, handled: 1, duplicated: 1},
		},
		"back late, because consumers were cut off for half a lease": {
			entries: []entry{accept, starts(1, "c1", 1, 0), starts(5, "c2", 2, 0), ends(5.1, "c2", 2, succeeded)},
			gauge:   &gauge{delays: []delay{{sec(1.2), 500 * time.Millisecond}}},
			strikes: []strike{kill}, rules: allow, counts: verdict{accepted: 1, handled: 1, duplicated: 1},
		},
		"back late, behind a backlog": {
			entries: slices.Concat([]entry{accept, starts(1, "c1", 1, 0), starts(3.1, "c2", 2, 0),
				ends(3.2, "c2", 2, succeeded)}, behind(neighbours, 0.1)),
			strikes: []strike{kill}, rules: allow, counts: verdict{accepted: 11, handled: 11, duplicated: 1},
		},
		"back too late for the backlog": {
			entries: slices.Concat([]entry{accept, starts(1, "c1", 1, 0), starts(3.1, "c2", 2, 0),
				ends(3.2, "c2", 2, succeeded)}, behind(neighbours, 0.04)),
			strikes: []strike{kill}, rules: allow, want: "came back after the kill: 2.05s, want at most 2.04s",
			counts: verdict{accepted: 11, handled: 11, duplicated: 1},
		},
		"back late, with an outage in between": {
			entries: []entry{accept, starts(1, "c1", 1, 0), starts(3.1, "c2", 2, 0), ends(3.2, "c2", 2, succeeded)},
			strikes: []strike{kill, {from: sec(2), to: sec(3)}}, rules: allow,
			counts: verdict{accepted: 1, handled: 1, duplicated: 1},
		},
		"sent slowly": {
			entries: append([]entry{{Kind: sent, At: sec(0), Payload: "a", ID: idA, Due: sec(1), Took: 2_100_000}}, done...),
			rules:   rules{send: 2 * time.Second}, want: "its send was sent: 2.1s, want at most 2s",
			counts: verdict{accepted: 1, handled: 1},
		},
		"refused slowly": {
			entries: append([]entry{accept, {Kind: refused, At: sec(0), Payload: "b", Took: 2_100_000}}, done...),
			rules:   rules{send: 2 * time.Second}, want: "its send was refused: 2.1s, want at most 2s",
			counts: verdict{accepted: 1, handled: 1},
		},
		"stuck": {
			entries: []entry{accept, starts(3.6, "c1", 1, 0), ends(3.7, "c1", 1, succeeded)},
			rules:   rules{late: 2500 * time.Millisecond},
			want:    "stuck after it was due: 2.6s, want at most 2.5s", counts: verdict{accepted: 1, handled: 1},
		},
		"a long outage after a strike": {
			entries: append(done, accept, entry{Kind: sent, At: sec(7), Payload: "b", ID: idB},
				entry{Kind: started, At: sec(8), Payload: "b", ID: idB, who: "c1", Delivery: 1},
				entry{Kind: ended, At: sec(8), Payload: "b", ID: idB, who: "c1", Delivery: 1, Word: succeeded}),
			strikes: []strike{{from: sec(2), to: sec(3)}}, rules: rules{resume: 2 * time.Second},
			want: ": 5s, want at most 2s", counts: verdict{accepted: 2, handled: 2},
		},
	})
}

// once is a state in which a loss was enough for poison.
func once(s *check.State) *check.State {
	s.Fail[idA] = check.Fail{Delivery: 2, Losses: 1, When: sec(9), Error: poison}
	return s
}

// killer are so many deliveries of the message p-1, each in a process of kills.
func killer(deliveries int) []entry {
	all := []entry{accept}
	for n := range deliveries {
		all = append(all, starts(float64(2+n), fmt.Sprint("c", n), 1+n, 0))
	}
	for i := range all {
		all[i].Payload = "p-1"
	}
	return all
}

// kills are the strikes that killer explains.
func kills(n int) (all []strike) {
	for n := range n {
		at := float64(2 + n)
		all = append(all, strike{from: sec(at), to: sec(at + 0.5), who: fmt.Sprint("c", n), why: "a message killed it"})
	}
	return all
}

// TestJudgeGarbage: a message is in garbage by its handler, or as poison after kills.
func TestJudgeGarbage(t *testing.T) {
	judged(t, map[string]forgery{
		"garbage without a reason": {
			entries: []entry{accept, starts(1, "c1", 1, 0), ends(1, "c1", 1, failed)}, state: inGarbage("boom"),
			want: "lost", counts: verdict{accepted: 1, lost: 1},
		},
		"garbage by its handler": {
			entries: []entry{accept, starts(1, "c1", 1, 0), ends(1, "c1", 1, gaveUp)}, state: inGarbage("skip"),
			counts: verdict{accepted: 1, handled: 1},
		},
		"poison without kills": {entries: []entry{accept}, state: inGarbage(poison), want: "lost",
			counts: verdict{accepted: 1, lost: 1}},
		"poison": {
			entries: []entry{accept}, state: inGarbage(poison), strikes: []strike{kill, kill, kill}, rules: allow,
			counts: verdict{accepted: 1, handled: 1},
		},
		"poison that kills": {
			entries: killer(maxLosses), strikes: kills(maxLosses), state: inGarbage(poison), rules: rules{killsOne: 2},
			counts: verdict{accepted: 1, handled: 1, duplicated: maxLosses - 1},
		},
		"poison that kills once more": {
			entries: killer(maxLosses + 1), strikes: kills(maxLosses + 1), state: inGarbage(poison), rules: rules{killsOne: 2},
			want: "lost", counts: verdict{accepted: 1, lost: 1, duplicated: maxLosses},
		},
		"poison that killed once": {
			entries: killer(1), strikes: kills(1), state: once(inGarbage(poison)), rules: rules{killsOne: 2},
			want: "lost", counts: verdict{accepted: 1, lost: 1},
		},
		"poison that kills, and is not there": {
			entries: killer(maxLosses), strikes: kills(maxLosses), rules: rules{killsOne: 2},
			want: "lost", counts: verdict{accepted: 1, lost: 1, duplicated: maxLosses - 1},
		},
		"poison that kills none, beside one that does": {
			entries: killer(maxLosses), strikes: kills(maxLosses), state: inGarbage(poison), rules: rules{killsOne: 4},
			want: "lost", counts: verdict{accepted: 1, lost: 1, duplicated: maxLosses - 1},
		},
	})
}

// TestJudgeLeftBehind: nothing of a trial is left in Redis or in its processes.
func TestJudgeLeftBehind(t *testing.T) {
	judged(t, map[string]forgery{
		"a breach": {
			entries: append([]entry{accept}, done...), state: &check.State{Strays: []string{"rubbish"}},
			want: "none of those", counts: verdict{accepted: 1, handled: 1},
		},
		"a breach of the scenario's own making": {
			entries: append([]entry{accept}, done...), state: &check.State{Strays: []string{"rubbish"}},
			rules: rules{tolerated: []string{"rubbish"}}, counts: verdict{accepted: 1, handled: 1},
		},
		"left behind": {
			entries: append(done, accept), want: "in pending",
			state: &check.State{Pending: []check.Entry{{Tag: idA, ID: idA, Delivery: 1, Score: sec(1)}},
				Messages: map[string]check.Envelope{idA: envelopeDue(sec(1))}},
			counts: verdict{accepted: 1, handled: 1},
		},
		"goroutines": {
			entries: append(done, accept, entry{Kind: quit, At: sec(9), Count: 2, who: "c1"}),
			want:    "2 goroutines were left", counts: verdict{accepted: 1, handled: 1},
		},
		"goroutines that gather": {
			entries: append(done, accept, entry{Kind: standing, At: sec(0), Count: 20, who: "c1"},
				entry{Kind: standing, At: sec(8), Count: 50, who: "c1"}, entry{Kind: quit, At: sec(9), who: "c1"}),
			want: "30 goroutines more", counts: verdict{accepted: 1, handled: 1},
		},
	})
}
