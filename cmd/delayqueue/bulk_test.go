package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

func init() {
	scenarios["bulk in every state"] = tellBulkStates
	scenarios["bulk asks"] = tellBulkAsks
	scenarios["bulk goes on"] = tellBulkGoesOn
	scenarios["bulk does what was counted"] = tellBulkPlan
}

// A backlog can be canceled, postponed and run as what is pending can.
func tellBulkStates(w *world) {
	w.kill("orders", "no", "dead")
	for i := range 3 {
		w.send("orders", fmt.Sprint("due ", i))
		w.send("orders", fmt.Sprint("later ", i), delayqueue.WithDelay(time.Hour))
	}
	if got := w.must("cancel", "orders", "--all", "--dry-run"); !strings.HasPrefix(got, "would have deleted 6 messages\n") ||
		!strings.Contains(got, "later 2") {
		w.Errorf("dry run: %q", got)
	}
	if n := w.counts("orders"); n.Ready != 3 || n.Pending != 3 || n.Garbage != 1 {
		w.Errorf("a dry run changed something: %+v", n)
	}
	w.contains(w.must("reschedule", "orders", "--all", "--state", "ready", "--by", "2h"), "rescheduled 3 messages")
	if n := w.counts("orders"); n.Ready != 0 || n.Pending != 6 {
		w.Errorf("postponed: %+v", n)
	}
	w.contains(w.must("run", "orders", "--all", "--contains", "due", "--spread", "1s"), "made due 3 messages")
	w.until("they are due", func() bool { return w.counts("orders").Ready == 3 })
	w.contains(w.must("cancel", "orders", "--all", "--state", "ready", "--yes"), "deleted 3 messages")
	w.contains(w.must("cancel", "orders", "--all", "--state", "garbage,pending", "--yes"), "deleted 4 messages")
	w.refused(exitUsage, "cannot be rescheduled", "reschedule", "orders", "--all", "--state", "unack", "--at", "now")
	w.refused(exitUsage, `did you mean "ready"?`, "cancel", "orders", "--all", "--state", "redy", "--yes")
	w.refused(exitUsage, "go with --all", "cancel", "orders", nobody, "--dry-run")
	w.sound("orders")
}

// Nothing of size happens without a yes.
func tellBulkAsks(w *world) {
	w.sendMany("orders", many+1, time.Hour)
	w.refused(exitUnconfirmed, "Reschedule all of 101 messages", "reschedule", "orders", "--all", "--at", "now")
	w.refused(exitUnconfirmed, "Make due now what matches of 101 messages", "run", "orders", "--all", "--contains", "p1")
	if n := w.counts("orders"); n.Pending != many+1 {
		w.Errorf("nobody said yes: %+v", n)
	}
	t := w.terminal("reschedule", "orders", "--all", "--at", "now")
	t.sees("[y/N]")
	t.types("y\r")
	t.ends(0)
	t.sees("rescheduled 101 messages")
	w.refused(exitUsage, "bad cursor", "continue", "orders", "x")
	w.sendMany("orders", 1001, time.Hour)
	t = w.terminal("cancel", "orders", "--all", "--state", "pending", "--state", "unack")
	t.sees("more than 1,000 match")
	t.ends(exitUnconfirmed)
	w.sound("orders")
}

// What a dry run counted is done later, that and no more, once.
func tellBulkPlan(w *world) {
	w.sendMany("orders", 3, time.Hour)
	plan := decode[bulkJSON](w, w.must("cancel", "orders", "--all", "--dry-run", "--json"))[0]
	if plan.Done != 3 || len(plan.Sample) != 3 || plan.Plan == "" || plan.Next != "" {
		w.Fatalf("counted %+v", plan)
	}
	w.contains(w.run("run", "orders", "--all", "--dry-run").err, "delayqueue continue orders ", "just that, once")
	w.send("orders", "new", delayqueue.WithDelay(time.Hour))
	w.refused(exitUnconfirmed, "Delete 3 messages", "continue", "orders", plan.Plan)
	w.contains(w.must("continue", "orders", plan.Plan, "--yes"), "done to 3 messages")
	w.refused(exitRefused, "count again", "continue", "orders", plan.Plan, "--yes")
	w.contains(w.must("cancel", "orders", "--all", "--rate", "100", "--yes"), "deleted 1 message\n")
	w.refused(exitUsage, "go with --all", "cancel", "orders", nobody, "--rate", "1")
	w.sound("orders")
}

// What was cut off is continued by the command that was printed: no message is shifted twice.
func tellBulkGoesOn(w *world) {
	const n = 6000
	w.sendMany("orders", n, time.Hour)
	count, err := w.monitor("orders").BulkDelete(w.Context(),
		delayqueue.Bulk{States: []delayqueue.State{delayqueue.StatePending}, DryRun: true,
			Progress: func(*delayqueue.BulkResult) bool { return false }})
	if err != nil || count.Next == "" {
		w.Fatalf("%+v, %v", count, err)
	}
	w.contains(w.must("continue", "orders", count.Next), fmt.Sprintf("altogether, would be done to %s", plural(n, "message")))
	t := w.terminal("reschedule", "orders", "--all", "--by", "6h", "--yes", "--json")
	w.until("some are done", func() bool { return shifted(w) > 0 })
	t.types(ctrlC)
	<-t.ended
	first := decode[bulkJSON](w, strings.ReplaceAll(t.all()[strings.Index(t.all(), "{"):strings.LastIndex(t.all(), "}")+1], "\r", ""))[0]
	for next := first.Next; next != ""; {
		r := w.run("continue", "orders", next, "--json")
		if r.code != 0 {
			w.Fatalf("%+v", r)
		}
		last := decode[bulkJSON](w, r.out)[0]
		if next = last.Next; next == "" && last.Done != n {
			w.Errorf("%d were done altogether, want %d", last.Done, n)
		}
	}
	if got := shifted(w); got != n {
		w.Errorf("%d were shifted, want %d", got, n)
	}
	for msg, err := range w.monitor("orders").All(w.Context(), delayqueue.StatePending,
		delayqueue.Filter{From: time.Now().Add(8 * time.Hour), Limit: 500}) {
		w.Fatalf("shifted twice: %+v %v", msg, err)
	}
	w.sound("orders")
}

func shifted(w *world) int64 {
	w.Helper()
	r, err := w.monitor("orders").BulkRunNow(w.Context(),
		delayqueue.Bulk{DryRun: true, Filter: delayqueue.Filter{From: time.Now().Add(2 * time.Hour), Limit: 500}})
	if err != nil {
		w.Fatal(err)
	}
	return r.Done
}
