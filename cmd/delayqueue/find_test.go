package main

import (
	"context"
	"errors"
	"os/user"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// One message among many, by whatever is known of it.
func tellFind(w *world) {
	w.kill("orders", "card refused", "dead needle")
	id := w.send("orders", "x", delayqueue.WithDelay(time.Hour), delayqueue.WithKey("needle"))
	w.send("orders", "y", delayqueue.WithDelay(time.Hour), delayqueue.WithHeader("trace", "a needle"))
	got := decode[matchJSON](w, w.must("find", "orders", "needle", "--json"))
	if len(got) != 3 || got[0].ID != id || got[0].In != "key" || got[1].In != "payload" || got[2].Header != "trace" {
		w.Errorf("found %+v", got)
	}
	w.contains(w.must("find", "orders", "refused"), "dead needle", "error")
	r := w.run("find", "orders", "needle", "-l", "1")
	w.contains(r.err, "1 message; looked at 0 of 3", "to go on from there: delayqueue find orders needle")
	words := strings.Fields(r.err)
	w.contains(w.must("find", "orders", "needle", "--cursor", words[len(words)-1]), "dead needle", "trace")
	w.contains(w.run("find", "orders", "nothing").err, "0 messages; looked at 3 of 3")
	w.refused(exitUsage, "bad cursor", "find", "orders", "needle", "--cursor", "x")
	for _, args := range [][]string{{"find", "orders", "needle"}, {"ls", "orders", "garbage"}} {
		if r := w.run(append(args, "--cursor", "x")...); strings.Contains(r.err, "to go on") {
			w.Errorf("a bad cursor is offered again: %s", r.err)
		}
	}
	w.refused(exitUsage, "--limit", "find", "orders", "needle", "-l", "0")
	w.sound("orders")
}

// What died, in groups, and a group brought back.
func tellErrors(w *world) {
	w.kill("orders", "card 12 refused", "a", "b")
	w.kill("orders", "card 7 refused", "c")
	w.kill("orders", "no stock", "d")
	got := decode[errorGroupJSON](w, w.must("errors", "orders", "--json"))
	if len(got) != 2 || got[0].Count != 3 || !strings.Contains(got[0].Pattern, "card # refused") || got[1].Count != 1 {
		w.Fatalf("groups %+v", got)
	}
	r := w.run("errors", "orders", "-l", "1")
	w.contains(r.out, "card # refused")
	w.contains(r.err, "… and 1 message in other groups", "looked at 4 of 4")
	if r := w.run("requeue", "orders", "--all", "--error-like", "no st…"); r.out != "brought back 0 messages\n" ||
		!strings.Contains(r.err, "take the text from delayqueue errors --json") {
		w.Errorf("a text that was cut: %+v", r)
	}
	w.contains(w.must("errors", "orders", "--state", "retry"), "")
	w.contains(w.must("requeue", "orders", "--all", "--error-like", got[0].Pattern), "brought back 3 messages")
	w.refused(exitUsage, "has no errors", "errors", "orders", "--state", "pending")
	w.sound("orders")
}

// What is in none of the groups that are kept is said with --json too.
func tellManyErrors(w *world) {
	const n = 1002
	batch := make([]delayqueue.Outgoing, n)
	for i := range batch {
		text := string([]byte{'g' + byte(i%11), 'g' + byte(i/11%11), 'g' + byte(i/121)}) // letters, because numbers are folded
		batch[i] = delayqueue.Outgoing{Payload: text, Options: []delayqueue.MsgOption{delayqueue.WithRetryCount(0)}}
	}
	ok(w, errOf(w.publisher("orders").SendBatch(w.Context(), batch)))
	w.consume("orders", func(_ context.Context, m *delayqueue.Message) error { return errors.New(m.Payload) })
	w.until("all are garbage", func() bool { return w.counts("orders").Garbage == n })
	r := w.run("errors", "orders", "--json")
	if got := decode[errorGroupJSON](w, r.out); len(got) != 1000 || r.err != "… and 2 messages in other groups\n" {
		w.Errorf("%d groups, %q", len(got), r.err)
	}
}

func tellJournal(w *world) {
	w.refused(exitNotFound, "no queue", "journal", "orders")
	w.send("orders", "a", delayqueue.WithDelay(time.Hour))
	w.send("orders", "b", delayqueue.WithDelay(time.Hour))
	w.must("pause", "orders", "--operator", "ann", "--reason", "cards are\x1b[31m down", "--until", "2h")
	w.must("resume", "orders", "--operator", "bob")
	w.must("run", "orders", "--all", "--yes", "--operator", "bob", "--reason", "a test")
	w.contains(w.must("journal", "orders"), "ann", "pause", "cards are [31m down", "until 20", "bob", "resume",
		"run now, finished", "what is pending", "2")
	all := decode[journalJSON](w, w.must("journal", "orders", "--json"))
	if len(all) != 3 || all[0].Act != "run now" || all[0].Job != "finished" || all[0].Messages != 2 ||
		all[0].Reason != "a test" || all[2].By != "ann" {
		w.Errorf("journal --json: %+v", all)
	}
	if out := w.must("journal", "orders", "--limit", "1"); strings.Contains(out, "ann") {
		w.Errorf("more than one: %s", out)
	}
	w.refused(exitUsage, "--limit", "journal", "orders", "--limit", "0")
	w.refused(exitNotFound, "not found", "journal", "stop", "orders", "x")
	w.refused(exitRefused, "wrong state", "journal", "stop", "orders", all[0].ID)
	w.sendMany("orders", 60, time.Hour)
	t := w.terminal("run", "orders", "--all", "--rate", "1")
	w.until("a job runs", func() bool {
		all = decode[journalJSON](w, w.must("journal", "orders", "--json"))
		return all[0].Job == "running"
	})
	w.contains(w.must("journal", "stop", "orders", all[0].ID, "--json"), `"stop_asked":true`)
	t.ends(exitInterrupted)
	w.must("purge", "orders", "--whole-queue", "--yes", "--operator", "eve")
	w.contains(w.must("journal", "orders"), "delete queue", "eve", "ann")
}

// Whoever acts is named in the journal in a container and under cron too, where no variable says who that is.
func TestOperatorWithoutVariables(t *testing.T) {
	t.Setenv("USER", "")
	t.Setenv("LOGNAME", "")
	who, _, _ := strings.Cut(operator(), "@")
	if u, err := user.Current(); who == "" || who == "somebody" || err == nil && who != u.Username {
		t.Errorf("%q", operator())
	}
}

func tellTop(w *world) {
	w.refused(exitNotFound, "no queues under the prefix", "top")
	w.refused(exitUsage, "--interval", "top", "--interval", "0s")
	w.send("calm", "a", delayqueue.WithDelay(time.Hour))
	w.consumeNothing("calm")
	w.send("alone", "b")
	w.send("a-queue-with-quite-a-long-name", "c", delayqueue.WithDelay(time.Hour))
	w.must("pause", "a-queue-with-quite-a-long-name", "--reason", "the provider of cards is down, and nobody knows until when")

	out := w.must("top", "-n", "1s") // no terminal: once, without a control character
	order := []int{strings.Index(out, "alone"), strings.Index(out, "a-queue"), strings.Index(out, "calm")}
	if order[0] < 0 || order[0] > order[1] || order[1] > order[2] || strings.Contains(out, "\x1b") {
		w.Errorf("not the worst first, or coloured:\n%q", out)
	}
	w.contains(out, "VERDICT", "IN/S", "no consumers, ", "by ", "nobody knows until when", "fine", "0/")
	all := decode[topJSON](w, w.must("top", "--json", "-n", "1s"))
	if len(all) != 3 || all[0].Queue != "alone" || all[0].Level != "critical" || all[0].Code != "no consumers" || all[0].Waits != 1 ||
		all[0].In == nil || all[0].Behind <= 0 ||
		all[2].Verdict != "fine" || all[2].Workers == 0 || all[2].Failing != nil {
		w.Errorf("top --json: %+v", all)
	}
	if stats := decode[statsJSON](w, w.must("stats", "alone", "--json")); stats[0].Level != all[0].Level || stats[0].Code != all[0].Code {
		w.Errorf("stats --json: %+v", stats)
	}
	if d := decode[diagnosis](w, w.run("doctor", "alone", "--json").out); d[0].Code != "no consumers" {
		w.Errorf("doctor --json: %+v", d)
	}

	w.columns = 80
	t := w.terminal("top", "-n", "50ms")
	t.sees("every 50ms; Ctrl-C ends")
	w.must("resume", "a-queue-with-quite-a-long-name")
	w.send("calm", "d", delayqueue.WithDelay(time.Hour))
	t.sees("fine            ")
	for line := range strings.Lines(t.screen.String()) {
		if len([]rune(strings.TrimRight(line, " \n"))) > 80 {
			w.Errorf("wider than 80: %q", line)
		}
	}
	t.types(ctrlC)
	t.ends(0)
}
