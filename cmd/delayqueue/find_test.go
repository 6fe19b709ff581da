package main

import (
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

func init() {
	scenarios["find"] = tellFind
	scenarios["errors"] = tellErrors
	scenarios["find everywhere"] = tellEverywhere
}

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
	w.refused(exitUsage, "--limit", "find", "orders", "needle", "-l", "0")
	w.sound("orders")
}

// Without a queue: all of them, so far, and one that cannot be read hides no other.
func tellEverywhere(w *world) {
	w.refused(exitNotFound, "no queues", "find", "needle")
	w.kill("orders", "card 12 refused", "a", "b")
	w.kill("mails", "card 7 refused", "the needle")
	w.send("slips", "x", delayqueue.WithDelay(time.Hour), delayqueue.WithKey("k-needle"))
	got := decode[matchJSON](w, w.must("find", "needle", "--json"))
	if len(got) != 2 || got[0].Queue != "mails" || got[0].In != "payload" || got[1].Queue != "slips" || got[1].In != "key" {
		w.Errorf("found %+v", got)
	}
	r := w.run("find", "needle")
	w.contains(r.out, "QUEUE", "mails", "slips")
	w.contains(r.err, "looked at 4 of 4 in 3 queues")
	r = w.run("find", "needle", "-l", "1")
	w.contains(r.err, "the first 1")
	w.refused(exitUsage, "in one queue", "find", "needle", "--cursor", "x")
	groups := decode[errorGroupJSON](w, w.must("errors", "--json"))
	if len(groups) != 2 || groups[0].Queue != "orders" || groups[0].Count != 2 || groups[1].Queue != "mails" {
		w.Errorf("groups %+v", groups)
	}
	w.contains(w.must("errors", "-l", "1"), "QUEUE", "orders", "… and 1 message in other groups")
	w.contains(w.run("errors", "--state", "retry").err, "looked at 0 of 0 in 3 queues")
	w.refused(exitUsage, "has no errors", "errors", "--state", "done")
	w.sendMany("big", manyQueues+1, time.Hour)
	w.contains(w.run("find", "nothing").err, "looked at 10004 of 10005 in 4 queues", "there is more in 1 queue",
		"delayqueue find big nothing --cursor ")
	for _, args := range [][]any{{"SET", "{" + w.prefix + ":bad}:garbage", "x"}, {"HSET", "{" + w.prefix + ":bad}:state", "x", "1"}} {
		if err := w.cli.Do(w.Context(), args...).Err(); err != nil {
			w.Fatal(err)
		}
	}
	r = w.run("find", "needle")
	w.contains(r.out, "mails", "slips")
	w.contains(r.err, "WRONGTYPE", "in 5 queues")
	if r.code == 0 {
		w.Error("it is said to be whole")
	}
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
	w.contains(r.out, "card # refused", "… and 1 message in other groups")
	w.contains(r.err, "looked at 4 of 4")
	w.contains(w.must("errors", "orders", "retry"), "")
	w.contains(w.must("requeue", "orders", "--all", "--error-like", got[0].Pattern), "brought back 3 messages")
	w.refused(exitUsage, "has no errors", "errors", "orders", "pending")
	w.sound("orders")
}
