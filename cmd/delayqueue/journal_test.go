package main

import (
	"os/user"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

func init() { scenarios["journal"] = tellJournal }

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
