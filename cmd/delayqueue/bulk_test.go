package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/spf13/cobra"
)

// A backlog can be canceled, postponed and run as what is pending can.
func tellBulkStates(w *world) {
	w.kill("orders", "no", "dead")
	for i := range 3 {
		w.send("orders", fmt.Sprint("due ", i))
		w.send("orders", fmt.Sprint("later ", i), inAnHour)
	}
	w.contains(w.must("cancel", "orders", "--all", "--dry-run"), "would have canceled 6 messages (pending 3, ready 3)\n",
		"later 2")
	w.contains(w.must("cancel", "orders", "--all", "--dry-run", "--json"), `"by_state":{"pending":3,"ready":3}`)
	if n := w.counts("orders"); n.Ready != 3 || n.Pending != 3 || n.Garbage != 1 {
		w.Errorf("a dry run changed something: %+v", n)
	}
	w.contains(w.must("reschedule", "orders", "--all", "--state", "ready", "--by", "2h"), "rescheduled 3 messages")
	if n := w.counts("orders"); n.Ready != 0 || n.Pending != 6 {
		w.Errorf("postponed: %+v", n)
	}
	w.contains(w.must("run", "orders", "--all", "--contains", "due", "--spread", "1s"), "made due now 3 messages")
	w.until("they are due", func() bool { return w.counts("orders").Ready == 3 })
	w.contains(w.must("cancel", "orders", "--all", "--state", "ready", "--yes"), "canceled 3 messages")
	w.contains(w.must("cancel", "orders", "--all", "--state", "garbage,pending", "--yes"), "canceled 4 messages")
	w.refused(exitUsage, "cannot be rescheduled", "reschedule", "orders", "--all", "--state", "unack", "--at", "now")
	w.refused(exitUsage, `did you mean "ready"?`, "cancel", "orders", "--all", "--state", "redy", "--yes")
	w.refused(exitUsage, "go with --all", "cancel", "orders", nobody, "--dry-run")
	w.refused(exitUsage, "go with --all", "reschedule", "orders", nobody, "--by", "1h", "--cursor", "x")
	w.sound("orders")
}

// A variable of the shell that is not set selects nothing.
func tellBulkEmpty(w *world) {
	w.send("orders", "a", inAnHour, delayqueue.WithHeader("tenant", "acme"))
	for text, flag := range map[string]string{
		"--with-key: it is empty": "--with-key=", "--lane: it is empty": "--lane=",
		"--contains: it is empty": "--contains=",
		"--error: it is empty":    "--error=", "--error-like '(no error)' selects": "--error-like=",
		"--state is empty":            "--state=",
		"--header: the name is empty": "--header==acme", "--header tenant= is empty": "--header=tenant=",
		"--header: want a name": "--header=tenant",
	} {
		w.refused(exitUsage, text, "cancel", "orders", "--all", "--yes", flag)
	}
	w.refused(exitUsage, "--key: it is empty", "send", "orders", "b", "--key", "")
	w.refused(exitUsage, "--header: the name is given twice", "send", "orders", "b", "--header", "a=1", "--header",
		"a=2")
	equal(w, "pending, after what did nothing", w.counts("orders").Pending, 1)
}

// A filter takes what it names, and nothing that only contains it. Who is asked sees whose messages they are.
func tellBulkExact(w *world) {
	const customers = 500
	w.sendEach("orders", customers, func(i int) delayqueue.Outgoing {
		return delayqueue.Outgoing{Payload: fmt.Sprint("work of ", i),
			Options: []delayqueue.MsgOption{inAnHour, delayqueue.WithHeader("customer", fmt.Sprint(i))}}
	})
	w.contains(w.must("cancel", "orders", "--all", "--header", "customer=77", "--dry-run"),
		"would have canceled 1 message\n", "customer=77", "work of 77")
	sample := decode[bulkJSON](w,
		w.must("cancel", "orders", "--all", "--header-contains", "customer=77", "--dry-run", "--json"))[0]
	if sample.Done != 5 || sample.Sample[4].Headers["customer"] != "477" {
		w.Errorf("with 77 in the header: %+v", sample)
	}
	w.contains(w.run("cancel", "orders", "--all", "--header", "customer=7 ", "--yes").err,
		"--header-contains is a part of it")
	w.answers("y\r", 0, "cancel", "orders", "--all", "--header", "customer=77").sees("work of 77")
	equal(w, "left", w.counts("orders").Pending, customers-1)
	id := decode[messageJSON](w, w.must("ls", "orders", "pending", "--header", "customer=4", "--json"))
	w.answers("n\r", exitUnconfirmed, "cancel", "orders", id[0].ID).sees("work of 4")
	for _, text := range []string{"refused", "not refused", "refused twice"} {
		w.kill("orders", text, text)
	}
	whole := decode[messageJSON](w, w.must("ls", "orders", "garbage", "--error", "refused", "--json"))
	if len(whole) != 1 || len(id) != 1 {
		w.Errorf("exactly this error: %+v; customer 4: %+v", whole, id)
	}
	w.contains(w.must("requeue", "orders", "--all", "--error-contains", "refused", "--dry-run"),
		"would have requeued 3 messages")
}

// Nothing of size happens without a yes.
func tellBulkAsks(w *world) {
	w.sendMany("orders", many+1, time.Hour)
	w.refused(exitUnconfirmed, "Reschedule all of 101 messages", "reschedule", "orders", "--all", "--at", "now")
	w.refused(exitUnconfirmed, "Run now what matches of 101 messages", "run", "orders", "--all", "--contains", "p1")
	equal(w, "pending, and nobody said yes", w.counts("orders").Pending, many+1)
	w.answers("y\r", 0, "reschedule", "orders", "--all", "--at", "now").sees("rescheduled 101 messages")
	w.sound("orders")
}

// What a dry run counted is done by the command that it prints, that and no more.
func tellBulkCounted(w *world) {
	w.sendMany("orders", 3, time.Hour)
	counted := decode[bulkJSON](w, w.must("cancel", "orders", "--all", "--dry-run", "--json"))[0]
	if counted.Done != 3 || len(counted.Sample) != 3 || counted.Before == nil || counted.Most != 3 {
		w.Fatalf("counted %+v", counted)
	}
	said := w.run("run", "orders", "--all", "--rate", "5", "--dry-run").err
	w.contains(said, "this does it, and leaves alone what came later:\ndelayqueue run orders --all ",
		"--rate 5 --before 2", " --most 3\n")
	w.lacks(said, "--dry-run")
	w.refused(exitUnconfirmed, "Cancel at most 2, and all of 3 messages", "cancel", "orders", "--all", "--most", "2")
	w.send("orders", "new", inAnHour)
	cancel := []string{"cancel", "orders", "--all", "--yes", "--before", counted.Before.Format(time.RFC3339Nano)}
	w.contains(w.must(append(cancel, "--most", "2")...), "canceled 2 messages")
	w.contains(w.must(cancel...), "canceled 1 message\n", "passed over 1 message: came in later")
	w.contains(w.must("cancel", "orders", "--all", "--rate", "100", "--yes"), "canceled 1 message\n")
	w.refused(exitUsage, "go with --all", "cancel", "orders", nobody, "--rate", "1")
	w.refused(exitUsage, "go with --all", "cancel", "orders", nobody, "--most", "1")
	w.refused(exitUsage, "Bulk.Most -1", "cancel", "orders", "--all", "--most=-1", "--yes")
	for _, wrong := range []string{"--rate=-5", "--most=-1", "--spread=-5m"} {
		if r := w.run("run", "orders", "--all", "--yes", wrong); r.code != exitUsage || r.out != "" {
			w.Errorf("%s: %+v", wrong, r)
		}
	}
	w.sound("orders")
}

// The cause for which nothing went on is said, and that nobody interrupted it.
func TestBulkWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &app{command: &cobra.Command{}, started: true}
		a.command.SetContext(t.Context())
		readOnly := errors.New("READONLY you can't write against a read only replica")
		_, err := a.runBulk(t.Context(), "canceling", 1, ops.Bulk{},
			func(ctx context.Context, _ ops.Bulk) (*ops.BulkResult, error) {
				<-ctx.Done()
				return &ops.BulkResult{}, fmt.Errorf("%w (last attempt: %w)", ctx.Err(), readOnly)
			})
		if code, text := a.explain(err); code != exitNoRedis || !errors.Is(err, readOnly) ||
			!strings.HasPrefix(text, "no answer for 30s") ||
			!strings.Contains(text, "READONLY") {
			t.Errorf("%d %s", code, text)
		}
	})
}

// What was cut off is done by the command that was printed, which leaves alone what came later.
func tellBulkGoesOn(w *world) {
	const n = 300
	w.sendMany("orders", n, time.Hour)
	at := time.Now().Add(6 * time.Hour).UTC().Format(time.RFC3339)
	t := w.terminal("reschedule", "orders", "--all", "--at", at, "--yes", "--json", "--rate", "1")
	w.until("the program knows of one step", func() bool { return shifted(w) > 1 })
	t.types(ctrlC)
	testkit.Receive(w, "its end", t.ended)
	first := decode[bulkJSON](w, strings.ReplaceAll(t.all()[strings.Index(t.all(), "{"):strings.LastIndex(t.all(), "}")+1],
		"\r", ""))[0]
	if first.Before == nil || first.Done == 0 || first.Done == n {
		w.Fatalf("%+v", first)
	}
	w.sendMany("orders", 3, time.Hour)
	again := decode[bulkJSON](w, w.must("reschedule", "orders", "--all", "--at", at, "--yes", "--json",
		"--before", first.Before.Format(time.RFC3339Nano)))[0]
	if again.Before != nil || again.Passed[ops.PassedNew] != 3 {
		w.Errorf("%+v", again)
	}
	equal(w, "rescheduled", shifted(w), n)
	w.sound("orders")
}

// A shift that was cut off goes on by the command that was printed, and shifts no message twice.
func tellShiftGoesOn(w *world) {
	w.sendMany("orders", 300, 3*time.Hour)
	shift := []string{"reschedule", "orders", "--all", "--by", "3h", "--yes", "--rate", "1"}
	later := func(than time.Duration) int64 {
		r, err := w.monitor("orders").BulkRunNow(w.Context(),
			ops.Bulk{DryRun: true, Filter: ops.Filter{From: time.Now().Add(than), Limit: 500}})
		ok(w, err)
		return r.Done
	}
	for i := range 2 { // the first begins, and the second goes on
		before := later(4 * time.Hour)
		t := w.terminal(shift...)
		w.until("the program knows of one step", func() bool { return later(4*time.Hour) > before })
		t.types(ctrlC)
		testkit.Receive(w, "its end", t.ended)
		all := strings.ReplaceAll(t.all(), "\r\n", "\n")
		if strings.Contains(all, "is not known") { // a slow machine was cut off within a step
			return
		}
		w.contains(all, fmt.Sprintf("rescheduled %s\n", plural(int(later(4*time.Hour)), "message")))
		equal(w, "says that it counts on", strings.Contains(all, "with those of the command that was cut off"), i == 1)
		_, cursor, _ := strings.Cut(all, "--cursor ")
		cursor, _, _ = strings.Cut(strings.Join(strings.Fields(cursor), ""), "delayqueue:")
		shift = append(shift[:8:8], "--cursor", cursor, "--yes")
	}
	equal(w, "shifted twice", later(7*time.Hour), 0)
	again := shift[:5:5]
	const said = "the same command was stopped "
	w.refused(exitUnconfirmed, said, append(again, "--yes")...)
	w.refused(exitUnconfirmed, said, again...)
	w.exits(0, append(again, "--dry-run")...).says(said, "--cursor", "It began with the latest of each state")
	w.answers("n\r", exitUnconfirmed, again...).sees("Begin all the same? [y/N]")
	w.lacks(w.exits(0, "reschedule", "orders", "--all", "--by", "2h", "--dry-run").err, said)
	w.refused(exitUsage, "--cursor and --dry-run do not go together", append(shift, "--dry-run")...)
	w.refused(exitUsage, "it is of another call", append(shift, "--most", "7")...)
}

func shifted(w *world) int64 {
	w.Helper()
	r, err := w.monitor("orders").BulkRunNow(w.Context(),
		ops.Bulk{DryRun: true, Filter: ops.Filter{From: time.Now().Add(2 * time.Hour), Limit: 500}})
	ok(w, err)
	return r.Done
}

// What is interrupted says how far it came, and how to go on.
func TestInterrupted(t *testing.T) {
	w := onServer(t)
	const n = 3000 // 15 pages
	w.sendMany("orders", n, time.Hour)
	wire := redistest.NewWire(t, shared.Addr())
	w.url = "redis://" + wire.Addr()
	term := w.terminal("doctor", "orders")
	term.ends(0)
	term.wrote("reading") // in pages, so nobody is asked
	term.sees("its data is sound")

	// held interrupts a command that gets no answer to its tenth call of a script any more.
	held := func(args ...string) *terminal {
		t.Helper()
		calls := 0
		struck, release := wire.HoldReply(func(cmd []string) bool {
			if strings.HasPrefix(strings.ToUpper(cmd[0]), "EVALSHA") {
				calls++
			}
			return calls == 10
		})
		defer release()
		term := w.terminal(args...)
		testkit.Receive(t, "the call", struck)
		term.interrupted(exitInterrupted)
		return term
	}
	w.contains(held("ls", "orders", "pending", "--contains", "p1", "--limit", "1000000", "--json").all(), "payload",
		"to go on from there: delayqueue ls orders pending", "--cursor ")
	all := held("cancel", "orders", "--all").all()
	w.contains(all, "nothing was canceled: it was still being counted")
	if w.lacks(all, "this does the rest"); w.counts("orders").Pending != n {
		t.Error("a count has canceled something")
	}

	term = w.terminal("cancel", "orders", "--all", "--yes", "--rate", "10")
	term.wrote("canceling")
	w.until("the program knows of one step", func() bool { return w.counts("orders").Pending < n-10 })
	cut := syscall.SIGHUP // as if its line had been cut
	if signal.Ignored(cut) {
		cut = syscall.SIGTERM // under nohup it goes on
	}
	ok(t, term.cmd.Process.Signal(cut))
	term.ends(exitInterrupted)
	left, said := int(w.counts("orders").Pending), 0
	w.contains(term.screen.String(), "interrupted", "this does the rest")
	_, rest, _ := strings.Cut(term.all(), "canceled ")
	ok(t, errOf(fmt.Sscan(rest, &said)))
	if said < 10 || said > n-left { // of a step that a slow machine cut off it knows nothing
		t.Errorf("it says that %d are canceled, and %d are", said, n-left)
	}
	w.contains(w.must("cancel", "orders", "--all", "--yes"), "canceled "+plural(left, "message"))
	w.contains(w.must("journal", "orders"), "cancel, stopped")
}

// A command that has done all of --most has no rest, because --most 0 would be any number.
func TestNoRestOfMost(t *testing.T) {
	r := &ops.BulkResult{At: time.Now(), Done: 2}
	if rest := restOf(&bulkWork{}, &ops.Bulk{Most: 2}, r); rest != nil {
		t.Errorf("2 of 2: %+v", rest)
	}
	if rest := restOf(&bulkWork{}, &ops.Bulk{Most: 3}, r); rest == nil || rest.most != 1 {
		t.Errorf("2 of 3: %+v", rest)
	}
}
