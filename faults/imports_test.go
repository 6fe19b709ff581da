package main

import (
	"slices"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/message"
)

const (
	parentID = "0190a1b2-0000-7000-8000-000000000001"
	sumID    = "0190a1b2-0000-7000-8000-00000000000c"
	otherSum = "0190a1b2-0000-7000-8000-00000000000d"
)

var (
	threeRows = rules{lease: time.Second, imports: 1, rows: 4}
	rowIDs    = []string{"", parentID, idA, idB, "0190a1b2-0000-7000-8000-000000000004"} // by number
)

// importRow is the payload of a row, or of the parent, of the one import.
func importRow(number int64) string { return rowOf(importName(0), number) }

// ofImport is a ledger in which the parent and its rows were sent, and with it some runs. The parent waits until 5 at
// most.
func ofImport(runs ...[]entry) (all []entry) {
	for n := int64(parentRow); n <= 4; n++ {
		e := entry{Kind: sent, At: sec(0), Payload: importRow(n), ID: rowIDs[n], Due: sec(0.1)}
		if n == parentRow {
			e.Due = sec(5)
		}
		all = append(all, e)
	}
	return append(all, slices.Concat(runs...)...)
}

// ofRow is a run of a row. Its handler takes 0.05.
func ofRow(number int64, at float64, delivery int, word string) []entry {
	return handles(importRow(number), rowIDs[number], at, delivery, 0, word)
}

// comes is a run of the parent.
func comes(at float64, delivery, left int) []entry {
	run := ofRow(parentRow, at, delivery, succeeded)
	run[0].Left = left
	return run
}

// sums is a run of a sum of the import.
func sums(id string, at float64, delivery int, word string, numbers ...int64) []entry {
	run := handles(storyOfSum(sumPrefix+importName(0), id), id, at, delivery, 0, word)
	for _, n := range numbers {
		run[0].Parts = append(run[0].Parts, importRow(n))
	}
	return run
}

// garbageOf is a state in which one message is garbage.
func garbageOf(id string, envelope check.Envelope) *check.State {
	envelope.Due = sec(0.1)
	return &check.State{
		Garbage:  []check.Entry{{Tag: id, ID: id, Score: sec(9)}},
		Messages: map[string]check.Envelope{id: envelope},
		Fail:     map[string]check.Fail{id: {Delivery: 2, When: sec(9), Error: "skip"}},
	}
}

// TestJudgeParents: the parent of an import comes once, when its rows are acked or at its limit, and not later.
func TestJudgeParents(t *testing.T) {
	all := slices.Concat(ofRow(2, 1, 1, succeeded), ofRow(3, 1.1, 1, succeeded), ofRow(4, 1.2, 1, succeeded))
	sum := sums(sumID, 2, 1, succeeded, 2, 3, 4)
	five := verdict{accepted: 5, handled: 5}
	early := five
	early.early = 1
	twice := five
	twice.duplicated = 1
	short := slices.Concat(ofRow(2, 1, 1, succeeded), ofRow(3, 1.1, 1, succeeded), ofRow(4, 1.2, 1, gaveUp),
		sums(sumID, 2, 1, succeeded, 2, 3))
	judged(t, map[string]forgery{
		"with the last ack": {entries: ofImport(all, sum, comes(1.3, 1, 0)), rules: threeRows, counts: five},
		"early": {entries: ofImport(all, sum, comes(1.22, 1, 0)), rules: threeRows,
			want: "when 2 rows were handled, with CountdownLeft 0 of 3", counts: early},
		"at its limit": {entries: ofImport(short, comes(5.1, 1, 1)), state: garbageOf(rowIDs[4], check.Envelope{}),
			rules:  threeRows,
			counts: five},
		"at its limit, complete all the same": {entries: ofImport(short, comes(5.1, 1, 0)),
			state: garbageOf(rowIDs[4], check.Envelope{}),
			rules: threeRows, want: "when 2 rows were handled, with CountdownLeft 0 of 3", counts: early},
		"before its limit": {entries: ofImport(short, comes(4.9, 1, 1)), state: garbageOf(rowIDs[4], check.Envelope{}),
			rules: threeRows,
			want:  "100ms before its limit with CountdownLeft 1", counts: early},
		"at its limit, and an ack did not count": {entries: ofImport(all, sum, comes(5.4, 1, 1)), rules: threeRows,
			want: "CountdownLeft 1, though 3 rows of 3 had been acked", counts: five},
		"at its limit, before the last ack can have counted": {entries: ofImport(all, sum, comes(5.1, 1, 1)),
			rules: threeRows, counts: five},
		"while a row is not acked": {entries: ofImport(all, sum, ofRow(4, 1.6, 2, succeeded), comes(1.5, 1, 0)),
			rules:   threeRows,
			strikes: []strike{{from: sec(1.26), to: sec(1.26), who: "c1", killed: true, why: "it was killed"}},
			want:    "1 rows were handled after it came", counts: twice},
		"twice": {entries: ofImport(all, sum, comes(1.3, 1, 0), comes(1.9, 2, 0)), rules: threeRows,
			want: "handled twice, and no fault explains it", counts: twice},
		"twice after a kill": {entries: ofImport(all, sum, comes(1.3, 1, 0), comes(2.4, 2, 0)), rules: threeRows,
			strikes: []strike{{from: sec(1.36), to: sec(1.36), who: "c1", killed: true, why: "it was killed"}}, counts: twice},
		"late": {entries: ofImport(all, sum, comes(3.3, 1, 0)), rules: threeRows,
			want: "delivery 1 came after it was due: 2.05s", counts: five},
		"late, behind a backlog": {entries: ofImport(all, sum, comes(3.3, 1, 0), behind(neighbours, 0.1)), rules: threeRows,
			counts: verdict{accepted: 15, handled: 15}},
		"late, but lost with a consumer": {entries: ofImport(all, sum, comes(3.3, 2, 0)), rules: threeRows, counts: five},
		"late after its limit": {entries: ofImport(short, comes(7.1, 1, 1)), state: garbageOf(rowIDs[4], check.Envelope{}),
			rules: threeRows,
			want:  "delivery 1 came after it was due: 2.1s", counts: five},
		"never": {entries: ofImport(all, sum), rules: threeRows, want: "lost",
			counts: verdict{accepted: 5, handled: 4, lost: 1}},
	})
}

// TestJudgeSums: each row that was acked is in the sums of its import once, and no other row is.
func TestJudgeSums(t *testing.T) {
	rest := slices.Concat(ofRow(2, 1, 1, succeeded), ofRow(3, 1.1, 1, succeeded), comes(1.3, 1, 0))
	all := slices.Concat(ofRow(4, 1.2, 1, succeeded), rest)
	sum := sumPrefix + importName(0)
	five, six := verdict{accepted: 5, handled: 5}, verdict{accepted: 6, handled: 6}
	gave := slices.Concat(ofRow(2, 1, 1, succeeded), ofRow(3, 1.1, 1, succeeded), ofRow(4, 1.2, 1, gaveUp),
		comes(5.1, 1, 1))
	judged(t, map[string]forgery{
		"in two": {entries: ofImport(all, sums(sumID, 2, 1, succeeded, 2), sums(otherSum, 3, 1, succeeded, 3, 4)),
			rules: threeRows, counts: six},
		"one is missing": {entries: ofImport(all, sums(sumID, 2, 1, succeeded, 2, 4)), rules: threeRows,
			want: "1 rows are not in its sums, and 0 are in sums that are garbage: import000-000003", counts: five},
		"one is there twice": {entries: ofImport(all, sums(sumID, 2, 1, succeeded, 2, 3),
			sums(otherSum, 3, 1, succeeded, 3, 4)),
			rules: threeRows, want: "import000-000003: 2 times in the sums of its import", counts: six},
		"one of another import": {entries: ofImport(all, sums(sumID, 2, 1, succeeded, 2, 3, 4, 9)), rules: threeRows,
			want: "import000-000009: in the sums of import000, which has no such row", counts: five},
		"the last delivery counts": {
			entries: ofImport(all, sums(sumID, 1.4, 1, succeeded, 2, 3), sums(sumID, 2.4, 2, succeeded, 2, 3, 4)),
			rules:   threeRows,
			strikes: []strike{{from: sec(1.46), to: sec(1.46), who: "c1", killed: true, why: "it was killed"}},
			counts:  verdict{accepted: 5, handled: 5, duplicated: 1}},
		"of a row in garbage": {entries: ofImport(gave, sums(sumID, 2, 1, succeeded, 2, 3, 4)),
			state: garbageOf(rowIDs[4], check.Envelope{}), rules: threeRows, want: "in garbage, and in the sums", counts: five},
		"in garbage": {entries: ofImport(all, sums(sumID, 2, 1, succeeded, 2, 3), sums(otherSum, 3, 1, gaveUp, 4)),
			state: garbageOf(otherSum, check.Envelope{Envelope: message.Envelope{Key: sum, Group: message.Group{Count: 1}}}),
			rules: threeRows, counts: six},
		"in garbage, and one more is missing": {entries: ofImport(all, sums(sumID, 2, 1, succeeded, 2),
			sums(otherSum, 3, 1, gaveUp, 4)),
			state: garbageOf(otherSum, check.Envelope{Envelope: message.Envelope{Key: sum, Group: message.Group{Count: 1}}}),
			rules: threeRows, want: "2 rows are not in its sums, and 1 are",
			counts: six},
		"never handled to its end": {entries: ofImport(all, sums(sumID, 2, 1, cutOff, 2, 3, 4)), rules: threeRows,
			want:   "lost",
			counts: verdict{accepted: 5, handled: 4, lost: 1}},
	})
}

// TestJudgeForgottenImports: what a failover forgets it forgets together: an ack, its count, and what it added to a
// sum.
func TestJudgeForgottenImports(t *testing.T) {
	failover := []strike{{from: sec(3), to: sec(3.5), why: unheard}}
	before := slices.Concat(ofRow(2, 1, 1, succeeded), ofRow(3, 1.1, 1, succeeded))
	acked := ofImport(before, ofRow(4, 2.8, 1, succeeded), comes(2.9, 1, 0)) // the end of which is forgotten
	again := slices.Concat(ofRow(4, 3.6, 1, succeeded), comes(3.7, 1, 0))
	kept := map[string]string{sumID: importRow(2) + " " + importRow(3), otherSum: importRow(4)}
	first := sums(sumID, 2, 1, succeeded, 2, 3)
	counts := verdict{accepted: 6, handled: 6, duplicated: 2}
	judged(t, map[string]forgery{
		"forgotten together": {entries: slices.Concat(acked, again, first, sums(otherSum, 4, 1, succeeded, 4)),
			strikes: failover, results: kept,
			rules: threeRows, counts: counts},
		"a sum was handled and forgotten": {
			entries: slices.Concat(acked, again, first, sums("gone", 2.95, 1, succeeded, 4), sums(otherSum, 4, 1, succeeded, 4)),
			strikes: failover, results: kept, rules: threeRows, counts: verdict{accepted: 7, handled: 7, duplicated: 2}},
		"a sum was begun and forgotten": {
			entries: slices.Concat(acked, again, first, sums("gone", 2.95, 1, failed, 4), sums(otherSum, 4, 1, succeeded, 4)),
			strikes: failover, results: kept, rules: threeRows, counts: counts},
		"the ack, and not what it added": {
			entries: slices.Concat(acked, again, first, sums(otherSum, 2.95, 1, succeeded, 4), sums("two", 4, 1, succeeded, 4)),
			strikes: failover,
			results: map[string]string{sumID: kept[sumID], otherSum: importRow(4), "two": importRow(4)}, rules: threeRows,
			want: "import000-000004: 2 times in the sums", counts: verdict{accepted: 7, handled: 7, duplicated: 2}},
		"what it added, and not the ack": {entries: slices.Concat(acked, first, sums(otherSum, 2.95, 1, succeeded, 4)),
			strikes: failover,
			results: map[string]string{sumID: kept[sumID]}, rules: threeRows, want: "1 rows are not in its sums",
			counts: verdict{accepted: 6, handled: 6}},
		"kept otherwise than it was handled": {entries: slices.Concat(acked, again, first,
			sums(otherSum, 4, 1, succeeded, 3)), strikes: failover,
			results: kept, rules: threeRows, want: "kept with parts that no handler had", counts: counts},
		"the parent came long before": {
			entries: slices.Concat(ofImport(before, ofRow(4, 1.2, 1, succeeded), comes(0.95, 1, 0), ofRow(4, 3.6, 1, succeeded)),
				first,
				sums(otherSum, 4, 1, succeeded, 4)),
			strikes: failover, results: kept, rules: threeRows, want: "rows were handled after it came",
			counts: verdict{accepted: 6, handled: 6, duplicated: 1, early: 1}},
	})
}

// TestImports: what differs between imports.
func TestImports(t *testing.T) {
	l := usual
	imported(&l)
	worst := 0 // imports of which a row ends in garbage
	for i := range l.Imports {
		garbage := 0
		for n := 1; n <= l.Rows; n++ {
			m := mannersIn(l, rowOf(importName(i), int64(n)))
			if ends := m.givesUp || m.failures > retries; ends && (i%10 != spoiled || n == parentRow) {
				t.Errorf("number %d of import %d ends in garbage", n, i)
			} else if ends {
				garbage++
			}
		}
		if garbage > 0 {
			worst++
		}
	}
	if worst < l.Imports/20 {
		t.Errorf("rows of %d imports end in garbage", worst)
	}
	for i, want := range map[int]time.Duration{20: 6 * time.Second, 25: 1500 * time.Millisecond, 21: 15 * time.Second} {
		if got := limitOf(i, l); got != want {
			t.Errorf("import %d waits for %v, want %v", i, got, want)
		}
	}
}
