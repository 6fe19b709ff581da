package main

import (
	"context"
	"errors"
	"fmt"
	"os/user"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/journal"
	"github.com/go-delayqueue/delayqueue/ops"
)

// One message among many, by whatever is known of it.
func tellFind(w *world) {
	w.kill("orders", "card refused", "dead needle")
	id := w.send("orders", "x", inAnHour, delayqueue.WithKey("needle"))
	w.send("orders", "y", inAnHour, delayqueue.WithHeader("trace", "a needle"))
	w.inOrder(w.must("find", "orders", "needle", "--json"), `{"in":"key","id":"`+id, `{"in":"payload",`,
		`"header":"trace"`)
	w.contains(w.must("find", "orders", "refused"), "dead needle", "error")
	w.inOrder(w.must("find", "orders", "needle"), "ID", id, "ID", "dead needle", "trace") // in a table of its own, at once
	r := w.run("find", "orders", "needle", "-l", "1")
	w.contains(r.err, "1 message; looked at 0 of 3", "to go on from there: delayqueue find orders needle")
	words := strings.Fields(r.err)
	w.contains(w.must("find", "orders", "needle", "--cursor", words[len(words)-1]), "dead needle", "trace")
	w.contains(w.run("find", "orders", "nothing").err, "0 messages; looked at all, 3 messages")
	w.refused(exitUsage, "bad cursor", "find", "orders", "needle", "--cursor", "x")
	for _, args := range [][]string{{"find", "orders", "needle"}, {"ls", "orders", "garbage"}} {
		w.lacks(w.run(append(args, "--cursor", "x")...).err, "to go on")
	}
	w.send("orders", "z", delayqueue.WithHeader("trace", "needle"))
	r = w.run("find", "orders", "--header", "trace=a needle", "--header-contains", "trace=needle")
	r.says("1 message; looked at all, 4 messages")
	w.contains(r.out, "y")
	w.contains(w.run("find", "orders", "--header-contains", "trace=needle").err, "2 messages (pending 1, ready 1);")
	w.contains(w.must("find", "orders", "--with-key", "needle", "--json"), `{"in":"key","id":"`+id)
	w.send("orders", "=1+1", inAnHour, delayqueue.WithKey("-k"))
	w.contains(w.must("ls", "orders", "pending", "--csv"), "id,key,state,sent,due,", ",'-k,pending,", ",'=1+1,")
	w.contains(w.must("find", "orders", "--with-key", "-k", "--csv"), "in,header,id,key,", ",'=1+1,")
	w.contains(w.must("ls", "orders", "garbage", "--csv"), "id,key,state,", "last_error")
	equal(w, "lines of an empty CSV", strings.Count(w.must("find", "orders", "nothing", "--csv"), "\n"), 1)
	w.refused(exitUsage, `find what in queue "orders"?`, "find", "orders")
	w.refused(exitNotFound, `no queue "1000007"`, "find", "1000007")
	w.refused(exitUsage, "--limit", "find", "orders", "needle", "-l", "0")
	w.sound("orders")
}

// What died, in groups, and a group requeued.
func tellErrors(w *world) {
	w.kill("orders", "card 12 refused", "a", "b")
	w.kill("orders", "card 7 refused", "c")
	w.kill("orders", "no stock", "d")
	got := decode[errorGroupJSON](w, w.must("errors", "orders", "--json"))
	if len(got) != 2 || got[0].Count != 3 || got[0].LastHour != 3 ||
		!strings.Contains(got[0].Pattern, "card # refused") || got[1].Count != 1 {
		w.Fatalf("groups %+v", got)
	}
	w.contains(w.must("errors", "orders", "--csv"), "pattern,count,last_hour,", "no stock,1,1,")
	w.run("errors", "orders", "-l", "1").shows("LAST HOUR", "card # refused", "ITS ERROR", "card 7 refused").
		says("1 further group of 1 message: --limit 2\n", "looked at all, 4 messages")
	w.run("requeue", "orders", "--all", "--error-like", "no st…").shows("requeued 0 messages\n").
		says("take the text from delayqueue errors --json")
	equal(w, "groups of what is retried", w.must("errors", "orders", "--state", "retry", "--json"), "")
	w.contains(w.must("requeue", "orders", "--all", "--error-like", got[0].Pattern), "requeued 3 messages")
	w.refused(exitUsage, "has no errors", "errors", "orders", "--state", "pending")
	w.sound("orders")
}

// The groups of many errors fit into a small window, the largest first.
func tellManyErrors(w *world) {
	w.columns, w.rows = 80, 24
	kinds := "abcdefghijklm"
	w.sendEach("orders", 2*len(kinds)-1, func(i int) delayqueue.Outgoing {
		return delayqueue.Outgoing{Payload: strings.Repeat(kinds[i/2:i/2+1], 20) + strings.Repeat(" no such card", 9),
			Options: []delayqueue.MsgOption{delayqueue.WithRetryCount(0)}}
	})
	w.consume("orders", func(_ context.Context, m *delayqueue.Message) error { return errors.New(m.Payload) })
	w.until("all are dead", func() bool { return w.counts("orders").Garbage == int64(2*len(kinds)-1) })
	t := w.terminal("errors", "orders")
	t.ends(0)
	lines := strings.Split(strings.TrimSpace(t.screen.String()), "\n")
	if len(lines) != 13 {
		w.Errorf("%d lines:\n%s", len(lines), t.screen)
	}
	w.inOrder(t.screen.String(), "COUNT", "aaaa", "jjjj", "…", "3 further groups of 5 messages: --limit 13",
		"looked at all, 25 messages")
	w.lacks(t.screen.String(), "kkkk")
	w.contains(w.must("errors", "orders", "--limit", "13"), strings.Repeat("m", 20)+strings.Repeat(" no such card", 9))
}

func tellJournal(w *world) {
	w.refused(exitNotFound, "no queue", "journal", "orders")
	w.send("orders", "a", inAnHour)
	w.send("orders", "b", inAnHour)
	w.must("pause", "orders", "--operator", "ann", "--reason", "cards are\x1b[31m down", "--until", "2h")
	w.must("resume", "orders", "--operator", "bob")
	w.must("run", "orders", "--all", "--yes", "--operator", "bob", "--reason", "a test")
	w.contains(w.must("journal", "orders"), "ann", "pause", "cards are [31m down", "until 20", "bob", "resume",
		"run now, finished", "what is pending", "2")
	all := decode[journalJSON](w, w.must("journal", "orders", "--json"))
	w.inOrder(w.must("journal", "orders", "--json"), `"act":"run now"`, `"reason":"a test","messages":2,"job":"finished"`,
		"\n", "\n", `"by":"ann"`)
	w.lacks(w.must("journal", "orders", "-l", "1"), "ann")
	w.refused(exitUsage, "is after --to", "journal", "orders", "--from", "-1h", "--to", "-2h")
	w.refused(exitUsage, "--limit", "journal", "orders", "--limit", "0")
	between := func(from, to time.Time) int {
		return strings.Count(w.must("journal", "orders", "--json", "--from", from.Format(time.RFC3339Nano),
			"--to", to.Format(time.RFC3339Nano)), "\n")
	}
	begun, ended := all[2].At, all[0].At
	equal(w, "acts of a time", []int{between(begun, ended), between(begun.Add(time.Microsecond), ended),
		between(begun, begun), between(ended.Add(time.Microsecond), ended.Add(time.Hour))}, []int{3, 2, 1, 0})
	w.refused(exitNotFound, "not found", "journal", "stop", "orders", "x")
	w.refused(exitRefused, "wrong state", "journal", "stop", "orders", all[0].ID)
	w.sendMany("orders", 600, time.Hour)
	t := w.terminal("run", "orders", "--all", "--rate", "1", "--yes")
	w.until("a job runs", func() bool {
		all = decode[journalJSON](w, w.must("journal", "orders", "--json"))
		return all[0].Job == "running"
	})
	w.contains(w.must("journal", "stop", "orders", all[0].ID, "--json"), `"stop_asked":true`)
	t.ends(exitInterrupted)
	w.must("delete", "orders", "--whole-queue", "--yes", "--operator", "eve")
	w.contains(w.must("journal", "orders"), "delete queue", "eve", "ann")
}

// An act that was done in some shards has not simply failed.
func TestActOfSomeShards(t *testing.T) {
	for looked, want := range map[int64]string{
		600: "delete, done in 5 of 6 shards: canceled in 5 of 6 shards, not in shard 2: no answer",
		599: "delete, failed: canceled in 5 of 6 shards, not in shard 2: no answer",
	} {
		e := &ops.JournalEntry{Act: journal.Delete, Bulk: &ops.BulkState{Phase: journal.Failed, Total: 600, Looked: looked,
			Error: "canceled in 5 of 6 shards, not in shard 2: no answer"}}
		equal(t, "act", actOf(e), want)
	}
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
	w.send("calm", "a", inAnHour)
	w.handled("calm")
	w.send("alone", "b")
	w.send("a-queue-with-quite-a-long-name", "c", inAnHour)
	w.must("pause", "a-queue-with-quite-a-long-name", "--reason",
		"the provider of cards is down, and nobody knows until when")

	out := w.must("top", "-n", "1s")           // no terminal: once, without a control character
	w.inOrder(out, "alone", "a-queue", "calm") // the worst first
	w.contains(out, "VERDICT", "IN/S", "no consumers, ", "by ", "nobody knows until when", "fine", "0/")
	all := decode[topJSON](w, w.must("top", "--json", "-n", "1s"))
	if len(all) != 3 || all[0].Queue != "alone" || all[0].Level != "critical" || all[0].Code != "no consumers" ||
		all[0].Waits != 1 ||
		all[0].In == nil || all[0].Behind <= 0 ||
		all[2].Verdict != "fine" || all[2].Workers == 0 || all[2].Failing != nil ||
		all[0].Since == nil || time.Since(*all[0].Since) < time.Hour || time.Since(*all[0].Since) > 3*time.Hour {
		w.Errorf("top --json: %+v", all)
	}
	w.contains(w.must("stats", "alone", "--json"), `"level":"critical","code":"no consumers"`)
	w.run("doctor", "alone", "--json").shows(`"code":"no consumers"`)

	w.columns = 80
	t := w.terminal("top", "-n", "50ms")
	t.sees("rows 1 to 3 of 3, by worst; s sorts, arrows scroll, q quits")
	w.must("resume", "a-queue-with-quite-a-long-name")
	w.send("calm", "d", inAnHour)
	t.sees("fine            ")
	for line := range strings.Lines(t.screen.String()) {
		if len([]rune(strings.TrimRight(line, " \n"))) > 80 {
			w.Errorf("wider than 80: %q", line)
		}
	}
	t.interrupted(0)
}

// TestKinds: the consumers of a queue say what fails.
func TestKinds(t *testing.T) {
	w := onServer(t)
	long := strings.Repeat("kind ", 40)
	q := w.consumer("orders", func(_ context.Context, m *delayqueue.Message) error {
		if m.Headers["type"] == "ship" {
			return delayqueue.ErrSkipRetry
		}
		return nil
	}).WithKindHeader("type")
	kinds := []string{"ship", "mail", "mail", "ship", "mail", "", long}
	for i := range 20 {
		kinds = append(kinds, fmt.Sprint("z", i))
	}
	for _, kind := range kinds {
		w.send("orders", "x", delayqueue.WithHeader("type", kind))
	}
	done := q.StartConsume()
	w.Cleanup(func() {
		q.StopConsume()
		<-done
	})
	out := ""
	w.until("all is counted", func() bool {
		out = w.must("consumers", "orders")
		return strings.Contains(out, "other kinds: 4 handled, 0 failed")
	})
	w.inOrder(out, "KIND", "HANDLED", "FAILED", "FAILING", "HALF WITHIN", "95% WITHIN",
		"ship ", "2       2     100%", "mail ", "3       0       0%", "(none) ", "1       0       0%")
	w.columns = 80
	term := w.terminal("consumers", "orders")
	term.sees("kin…        1       0       0%")
	term.ends(0)
	all := decode[consumerJSON](w, w.must("consumers", "orders", "--json"))
	if len(all) != 1 || len(all[0].Kinds) != 24 || all[0].Kinds[0].Kind != "ship" || all[0].Kinds[0].Failed != 2 {
		t.Errorf("%+v", all)
	}
}
