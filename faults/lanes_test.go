package main

import (
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/check"
)

// TestJudgeLanes: messages of a lane have their turns in order, and no more of them at a time than its width.
func TestJudgeLanes(t *testing.T) {
	const (
		one  = "lane00" // of width 1
		wide = "lane01" // of width 3
	)
	bound := rules{lease: time.Second, lanes: true}
	ids := map[string]string{"1": idA, "2": idB, "3": "0190a1b2-0000-7000-8000-00000000000c",
		"4": "0190a1b2-0000-7000-8000-00000000000d"}
	payload := func(lane, n string) string { return lane + laneMark + "p1-00000" + n }
	accepts := func(lane, n string, due float64) entry {
		return entry{Kind: sent, At: sec(0.1), Payload: payload(lane, n), ID: ids[n], Due: sec(due)}
	}
	run := func(lane, n, who string, from, to float64, delivery, failures int, word string) []entry {
		first := handles(payload(lane, n), ids[n], from, delivery, failures, word)
		first[0].who, first[1].who, first[1].At = who, who, sec(to)
		return first
	}
	handled := func(lane, n string, from, to float64) []entry { return run(lane, n, "c1", from, to, 1, 0, succeeded) }
	all := func(parts ...[]entry) (all []entry) {
		for _, part := range parts {
			all = append(all, part...)
		}
		return all
	}
	two := []entry{accepts(one, "1", 0), accepts(one, "2", 0.5)}
	four := []entry{accepts(wide, "1", 0), accepts(wide, "2", 0.1), accepts(wide, "3", 0.2), accepts(wide, "4", 0.3)}
	both, allFour := verdict{accepted: 2, handled: 2}, verdict{accepted: 4, handled: 4}
	again := verdict{accepted: 2, handled: 2, duplicated: 1}
	killed := strike{from: sec(1.05), to: sec(1.05), who: "c1", killed: true, why: "it was killed"}
	frozen := func(who string) strike { return strike{from: sec(1), to: sec(2.2), who: who, why: "it stood still"} }
	failover := strike{from: sec(3), to: sec(3.5), why: "it had less"}
	anew := entry{Kind: sent, At: sec(3.6), Took: 1_000_000, Payload: payload(one, "1"), ID: idA, Due: sec(3.5)}
	judged(t, map[string]forgery{
		"in order": {entries: all(two, handled(one, "1", 1, 1.1), handled(one, "2", 1.1, 1.2)), rules: bound, counts: both},
		"out of order": {entries: all(two, handled(one, "2", 1, 1.1), handled(one, "1", 1.1, 1.2)), rules: bound,
			want: payload(one, "2") + ": started at", counts: both},
		"in the order of the batch": {entries: all([]entry{accepts(one, "1", 0.5), accepts(one, "2", 0.5)},
			handled(one, "1", 1, 1.1),
			handled(one, "2", 1.1, 1.2)), rules: bound, counts: both},
		"not in the order of the batch": {entries: all([]entry{accepts(one, "1", 0.5), accepts(one, "2", 0.5)},
			handled(one, "2", 1, 1.1),
			handled(one, "1", 1.1, 1.2)), rules: bound, want: "the turns of 1 messages before it were not over", counts: both},
		"two at a time": {entries: all(two, handled(one, "1", 1, 1.1), handled(one, "2", 1.09, 1.2)), rules: bound,
			want: "2 messages have a turn at", counts: both},
		"an earlier one that came later": {entries: all([]entry{accepts(one, "1", 1.2), accepts(one, "2", 0.5)},
			handled(one, "2", 1, 1.3),
			handled(one, "1", 1.3, 1.4)), rules: bound, counts: both},
		"beside another lane": {entries: all([]entry{accepts(one, "1", 0), accepts(wide, "2", 0.5)},
			handled(one, "1", 1, 1.1),
			handled(wide, "2", 1, 1.1)), rules: bound, counts: both},
		"after a retry": {entries: all(two, run(one, "1", "c1", 1, 1.1, 1, 0, failed),
			run(one, "1", "c1", 1.4, 1.5, 2, 1, succeeded),
			handled(one, "2", 1.6, 1.7)), rules: bound, counts: both},
		"before a retry": {entries: all(two, run(one, "1", "c1", 1, 1.1, 1, 0, failed), handled(one, "2", 1.2, 1.3),
			run(one, "1", "c1", 1.4, 1.5, 2, 1, succeeded)), rules: bound, want: "were not over", counts: both},
		"after one was given up": {entries: all(two, run(one, "1", "c1", 1, 1.1, 1, 0, gaveUp), handled(one, "2", 1.2, 1.3)),
			rules: bound,
			state: inGarbage("skip"), counts: both},
		"after a kill, and it came again": {entries: all(two, handled(one, "1", 1, 1.1)[:1],
			run(one, "1", "c2", 2, 2.1, 2, 0, succeeded),
			handled(one, "2", 2.2, 2.3)), strikes: []strike{killed}, rules: bound, counts: again},
		"after a kill, and before it came again": {entries: all(two, handled(one, "1", 1, 1.1)[:1],
			handled(one, "2", 1.5, 1.6),
			run(one, "1", "c2", 2, 2.1, 2, 0, succeeded)), strikes: []strike{killed}, rules: bound, want: "were not over",
			counts: again},
		"a handler that has lost its lease runs on": {entries: all(two, run(one, "1", "c1", 1, 2.5, 1, 0, succeeded),
			run(one, "1", "c2", 2, 2.1, 2, 0, succeeded), handled(one, "2", 2.2, 2.3)), strikes: []strike{killed}, rules: bound,
			counts: again},
		"a consumer that was frozen starts what has ended elsewhere": {entries: all(two,
			run(one, "1", "c1", 1, 1.1, 1, 0, cutOff),
			run(one, "1", "c2", 2, 2.1, 3, 0, succeeded), run(one, "1", "c3", 2.2, 2.5, 2, 0, succeeded),
			handled(one, "2", 2.3, 2.4)),
			strikes: []strike{frozen("c1"), frozen("c2")},
			rules:   bound, counts: verdict{accepted: 2, handled: 2, duplicated: 2}},
		"three at a time": {entries: all(four, handled(wide, "2", 1, 1.5), handled(wide, "1", 1.1, 1.3),
			handled(wide, "3", 1.2, 1.5),
			handled(wide, "4", 1.4, 1.5)), rules: bound, counts: allFour},
		"four at a time": {entries: all(four, handled(wide, "1", 1, 1.5), handled(wide, "2", 1.1, 1.5),
			handled(wide, "3", 1.2, 1.5),
			handled(wide, "4", 1.4, 1.5)), rules: bound, want: "4 messages have a turn at", counts: allFour},
		"three before one that did not wait": {entries: all(four, handled(wide, "4", 1, 1.1), handled(wide, "1", 1.2, 1.5),
			handled(wide, "2", 1.2, 1.5), handled(wide, "3", 1.2, 1.5)), rules: bound, want: "the turns of 3 messages before it",
			counts: allFour},
		"again after a failover, in order": {entries: all(two, handled(one, "1", 2.8, 2.9), handled(one, "2", 2.95, 2.97),
			run(one, "1", "c2", 3.6, 3.7, 1, 0, succeeded), run(one, "2", "c2", 3.8, 3.9, 1, 0, succeeded)),
			strikes: []strike{failover}, rules: bound, counts: verdict{accepted: 2, handled: 2, duplicated: 2}},
		"sent anew, because a failover forgot it": {entries: all([]entry{anew, accepts(one, "2", 0.5)},
			handled(one, "1", 2.8, 2.9), handled(one, "2", 2.95, 2.97), run(one, "1", "c2", 4.6, 4.7, 1, 0, succeeded)),
			strikes: []strike{failover}, rules: bound, counts: verdict{accepted: 2, handled: 2, duplicated: 1}},
		"out of order long after a failover": {entries: all(two, handled(one, "2", 5, 5.1), handled(one, "1", 5.1, 5.2)),
			strikes: []strike{failover}, rules: bound, want: "were not over", counts: both},
		"left": {entries: all(two, handled(one, "1", 1, 1.1), handled(one, "2", 1.1, 1.2)), rules: bound,
			state: &check.State{Lanes: []check.LaneMember{{Member: "lane00"}}}, want: "1 messages are left in lanes",
			counts: both},
	})
}
