package main

import (
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

func tellLanes(w *world) {
	w.refused(exitNotFound, "no queue", "lanes", "orders")
	w.send("orders", "x", delayqueue.WithDelay(time.Hour))
	if r := w.run("lanes", "orders"); r.code != 0 || r.err != "0 lanes\n" {
		w.Errorf("none: %+v", r)
	}
	send := func(args ...string) string {
		id, _, _ := strings.Cut(w.must(append([]string{"send", "orders"}, args...)...), " ")
		return id
	}
	a := send("a", "--lane", "customer-42:3", "--key", "k")
	b := send("b", "--lane", "customer-42")
	send("c", "--lane", "customer-42", "--delay", "1h")
	send("d", "--lane", "tenant:7:2", "--delay", "1h")
	w.send("orders", "e", delayqueue.WithLane("\xff\n\x1b[31m"), delayqueue.WithDelay(time.Hour))
	w.refused(exitUsage, "behind the last colon", "send", "orders", "x", "--lane", "tenant:seven")
	w.refused(exitUsage, "WithLane", "send", "orders", "x", "--lane", "tenant:101")

	out := w.must("lanes", "orders")
	w.contains(out, "LANE", "WAITS", "SINCE", "TURNS", "STATE", "customer-42", "1/1", "tenant:7", "1/2", "ready", "pending", a)
	if strings.Contains(out, "\x1b") || strings.Count(out, "\n") != 4 || strings.Index(out, "customer-42") > strings.Index(out, "tenant:7") {
		w.Errorf("lanes: %q", out)
	}
	all := decode[laneJSON](w, w.must("lanes", "orders", "--json"))
	if len(all) != 3 || *all[0].Name != "customer-42" || all[0].Waiting != 2 || all[0].Since == nil || all[0].Holders[0].ID != a ||
		all[0].Holders[0].State != "ready" || string(all[2].Name64) != "\xff\n\x1b[31m" {
		w.Errorf("lanes --json: %+v", all)
	}
	if r := w.run("lanes", "orders", "--limit", "1"); strings.Contains(r.out, "tenant") || r.err != "3 lanes\n" {
		w.Errorf("limit: %+v", r)
	}
	w.contains(w.must("lanes", "orders", "customer-42"), "turns      1 of at most 1", "waiting    2 messages", "first due", a, "ready")
	w.refused(exitNotFound, `lane "nobody"`, "lanes", "orders", "nobody")
	w.columns = 80
	t := w.terminal("lanes", "orders")
	t.ends(0)
	w.columns = 0
	if lines := strings.Count(strings.TrimSpace(t.all()), "\n"); lines != 4 || strings.Contains(t.all(), "…\r") {
		w.Errorf("in 80 columns: %q", t.all())
	}

	w.contains(w.must("get", "orders", b), "state     waiting", "lane      customer-42:1")
	w.contains(w.must("ls", "orders", "waiting"), "DUE", b)
	got := decode[messageJSON](w, w.must("get", "orders", a, "--json"))
	if got[0].Lane != "customer-42" || got[0].LaneWidth != 3 {
		w.Errorf("get --json: %+v", got)
	}
	stats := decode[statsJSON](w, w.must("stats", "--json"))
	if stats[0].Waiting != 2 || stats[0].LaneSince == nil || stats[0].Ready != 1 {
		w.Errorf("stats --json: %+v", stats)
	}
	w.contains(w.must("stats"), "WAITING")
	w.contains(w.must("top"), "LANES")

	w.refused(exitUsage, "end garbage", "lanes", "skip", "orders", a)
	w.refused(exitUnconfirmed, "behind all messages of its lane", "lanes", "skip", "orders", a, "--end")
	w.refused(exitRefused, "has no turn", "lanes", "skip", "orders", b, "--end", "--yes")
	w.contains(w.must("lanes", "skip", "orders", "k", "--key", "--end", "--yes"), "waits behind its lane")
	w.contains(w.must("get", "orders", a), "state     waiting")
	w.contains(w.must("lanes", "skip", "orders", b, "--garbage", "--yes", "--operator", "ann", "--reason", "it is broken"), "is garbage")
	w.contains(w.must("get", "orders", b), "garbage", "skipped by ann: it is broken")
	w.contains(w.must("journal", "orders"), "skip", "to garbage", "it is broken", "to the end of its lane")
	w.refused(exitRefused, "waits behind", "lanes", "skip", "orders", a, "--end", "--yes")
	w.contains(w.must("reschedule", "orders", "--all", "--by", "1h", "--state", "waiting"), "rescheduled 1 message")
	w.contains(w.must("cancel", "orders", "--all", "--state", "waiting", "--yes"), "deleted 1 message")
	w.inLane("many", 5)
	w.must("cancel", "orders", "--all", "--yes")
	if stats = decode[statsJSON](w, w.must("stats", "--json")); stats[0].Ready+stats[0].Pending+stats[0].Waiting != 0 {
		w.Errorf("canceled all: %+v", stats)
	}
	w.sound("orders")

	w.must("schedule", "set", "orders", "daily", "x", "--every", "24h", "--lane", "reports:2")
	w.contains(w.must("schedule", "show", "orders", "daily"), "lane      reports:2")
	w.contains(w.must("schedule", "show", "orders", "daily", "--json"), `"lane":"reports","lane_width":2`)
}
