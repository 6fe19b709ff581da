package main

import (
	"fmt"
	"strings"

	"github.com/go-delayqueue/delayqueue"
)

func tellLanes(w *world) {
	w.refused(exitNotFound, "no queue", "lanes", "orders")
	w.send("orders", "x", inAnHour)
	equal(w, "without any", w.run("lanes", "orders"), result{w: w, err: "0 lanes\n"})
	send := func(payload string, args ...string) string { return w.sends("orders", payload, args...) }
	a := send("a", "--lane", "customer-42:3", "--key", "k")
	b := send("b", "--lane", "customer-42")
	send("c", "--lane", "customer-42", "--delay", "1h")
	send("d", "--lane", "tenant:7:2", "--delay", "1h")
	w.send("orders", "e", delayqueue.WithLane("\xff\n\x1b[31m"), inAnHour)
	w.refused(exitUsage, "behind the last colon", "send", "orders", "x", "--lane", "tenant:seven")
	w.refused(exitUsage, "WithLane", "send", "orders", "x", "--lane", "tenant:101")

	out := w.must("lanes", "orders")
	w.contains(out, "LANE", "WAITS", "SINCE", "TURNS", "STATE", "customer-42", "1/1", "tenant:7", "1/2", "ready",
		"pending", a)
	equal(w, "lines", strings.Count(out, "\n"), 4)
	w.inOrder(out, "customer-42", "tenant:7")
	w.inOrder(w.must("lanes", "orders", "--json"), `{"name":"customer-42",`, `"waiting":2,"since":"`, `"holders":[{"id":"`+
		a+`","state":"ready",`,
		"\n", "\n", `"name_base64":"/wobWzMxbQ=="`)
	w.lacks(w.exits(0, "lanes", "orders", "--limit", "1").says("3 lanes\n").out, "tenant")
	w.contains(w.must("lanes", "orders", "customer-42"), "turns      1 of at most 1", "waiting    2 messages", "first due",
		a, "ready")
	w.refused(exitNotFound, `lane "nobody"`, "lanes", "orders", "nobody")
	w.columns = 80
	t := w.terminal("lanes", "orders")
	t.ends(0)
	w.contains(t.all(), a, "customer-42")
	w.lacks(t.all(), "…")

	w.contains(w.must("get", "orders", b), "state     waiting", "lane      customer-42:1")
	w.contains(w.must("ls", "orders", "waiting"), "DUE", b)
	w.contains(w.must("get", "orders", a, "--json"), `"lane":"customer-42","lane_width":3`)
	w.contains(w.must("stats", "--json"), `"ready":1,"waiting":2,`, `"lane_since":"`)
	w.contains(w.must("stats"), "WAITING")
	w.contains(w.must("top"), "LANES")

	w.refused(exitUsage, "say --end or --garbage", "lanes", "skip", "orders", a)
	w.refused(exitUnconfirmed, "behind all messages of its lane", "lanes", "skip", "orders", a, "--end")
	w.refused(exitRefused, "has no turn", "lanes", "skip", "orders", b, "--end", "--yes")
	w.contains(w.must("lanes", "skip", "orders", "k", "--key", "--end", "--yes"), "waits behind its lane")
	w.contains(w.must("get", "orders", a), "state     waiting")
	w.contains(w.must("lanes", "skip", "orders", b, "--garbage", "--yes", "--operator", "ann", "--reason", "it is broken"),
		"is garbage")
	w.contains(w.must("get", "orders", b), "garbage", "skipped by ann: it is broken")
	w.contains(w.must("journal", "orders"), "skip", "to garbage", "it is broken", "to the end of its lane")
	w.refused(exitRefused, "waits behind", "lanes", "skip", "orders", a, "--end", "--yes")
	ls := w.must("ls", "orders", "pending", "--lane", "tenant:7")
	w.contains(ls, "d")
	equal(w, "messages of the lane", strings.Count(ls, "\n"), 2)
	w.contains(w.run("ls", "orders", "pending", "--lane", "tenant:7:2").err, "without a width")
	w.contains(w.must("cancel", "orders", "--all", "--lane", "customer-42", "--dry-run"), "would have canceled 2 messages")
	w.contains(w.must("reschedule", "orders", "--all", "--by", "1h", "--state", "waiting"), "rescheduled 1 message")
	w.contains(w.must("cancel", "orders", "--all", "--state", "waiting", "--yes"), "canceled 1 message")
	w.inLane("many", 5)
	w.must("cancel", "orders", "--all", "--yes")
	w.contains(w.must("stats", "--json"), `"pending":0,"ready":0,"waiting":0,`)
	w.sound("orders")

	w.must("schedule", "set", "orders", "daily", "x", "--every", "24h", "--lane", "reports:2")
	w.contains(w.must("schedule", "show", "orders", "daily"), "lane      reports:2")
	w.contains(w.must("schedule", "show", "orders", "daily", "--json"), `"lane":"reports","lane_width":2`)
}

func tellSequences(w *world) {
	w.refused(exitNotFound, `no queue`, "sequences", "orders")
	w.send("orders", "a", inAnHour)
	equal(w, "without any", w.run("sequences", "orders"), result{w: w, err: "0 sequences\n"})
	w.send("orders", "a", inAnHour, delayqueue.WithSequence("outbox", 4711))
	w.send("orders", "a", inAnHour, delayqueue.WithSequence("a longer name", -12))
	w.send("orders", "a", inAnHour, delayqueue.WithSequence("\xff\n\x1b[31m", 1))
	out := w.must("sequences", "orders")
	w.contains(out, "SEQUENCE       LAST\n", "outbox         4711\n", "a longer name   -12\n")
	equal(w, "lines, of which one has a hostile name", strings.Count(out, "\n"), 4)
	equal(w, "named", w.must("sequences", "orders", "outbox", "\xff\n\x1b[31m", "--json"),
		`{"name":"outbox","last":4711}`+"\n"+`{"name_base64":"/wobWzMxbQ==","last":1}`+"\n")
	w.exits(exitNotFound, "sequences", "orders", "nothing", "outbox").shows("4711").says(`"nothing": not found`)

	w.refused(exitUsage, "--drop needs the names", "sequences", "orders", "--drop")
	w.refused(exitUnconfirmed, `Forget sequence "outbox" of queue "orders"`, "sequences", "orders", "outbox", "--drop")
	w.answers("n\r", exitUnconfirmed, "sequences", "orders", "outbox", "--drop").sees("any number may come next? [y/N]")
	w.must("sequences", "orders", "outbox")
	r := w.exits(exitNotFound, "sequences", "orders", "outbox", "nothing", "a longer name", "--drop", "--yes")
	equal(w, "dropped", r.out, "outbox dropped\na longer name dropped\n")
	w.refused(exitNotFound, "not found", "sequences", "orders", "outbox")
	w.sound("orders")
}

func tellSequencePages(w *world) {
	const n = 1500
	w.sendEach("orders", n, func(i int) delayqueue.Outgoing {
		return delayqueue.Outgoing{Options: []delayqueue.MsgOption{inAnHour,
			delayqueue.WithSequence(fmt.Sprint("s", i), int64(i))}}
	})
	seen := map[string]bool{}
	for _, s := range decode[sequenceJSON](w, w.must("sequences", "orders", "--json")) {
		equal(w, "sequence", *s.Name, fmt.Sprint("s", s.Last))
		seen[*s.Name] = true
	}
	equal(w, "sequences", len(seen), n)
}
