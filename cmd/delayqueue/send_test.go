package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

func tellSequences(w *world) {
	w.refused(exitNotFound, `no queue`, "sequences", "orders")
	hour := delayqueue.WithDelay(time.Hour)
	w.send("orders", "a", hour)
	if r := w.run("sequences", "orders"); r.code != 0 || r.out != "" || r.err != "0 sequences\n" {
		w.Errorf("none: %+v", r)
	}
	w.send("orders", "a", hour, delayqueue.WithSequence("outbox", 4711))
	w.send("orders", "a", hour, delayqueue.WithSequence("a longer name", -12))
	w.send("orders", "a", hour, delayqueue.WithSequence("\xff\n\x1b[31m", 1))
	out := w.must("sequences", "orders")
	w.contains(out, "SEQUENCE       LAST\n", "outbox         4711\n", "a longer name   -12\n")
	if strings.Contains(out, "\x1b") || strings.Count(out, "\n") != 4 {
		w.Errorf("a hostile name: %q", out)
	}
	all := decode[sequenceJSON](w, w.must("sequences", "orders", "outbox", "\xff\n\x1b[31m", "--json"))
	if len(all) != 2 || *all[0].Name != "outbox" || all[0].Last != 4711 || string(all[1].Name64) != "\xff\n\x1b[31m" {
		w.Errorf("named: %+v", all)
	}
	r := w.run("sequences", "orders", "nothing", "outbox")
	if r.code != exitNotFound || !strings.Contains(r.err, `"nothing": not found`) || !strings.Contains(r.out, "4711") {
		w.Errorf("one of two: %+v", r)
	}

	w.refused(exitUsage, "--drop needs the names", "sequences", "orders", "--drop")
	w.refused(exitUnconfirmed, `Forget sequence "outbox" of queue "orders"`, "sequences", "orders", "outbox", "--drop")
	t := w.terminal("sequences", "orders", "outbox", "--drop")
	t.sees("any number may come next? [y/N]")
	t.types("n\r")
	t.ends(exitUnconfirmed)
	w.must("sequences", "orders", "outbox")
	r = w.run("sequences", "orders", "outbox", "nothing", "a longer name", "--drop", "--yes")
	if r.code != exitNotFound || r.out != "outbox dropped\na longer name dropped\n" {
		w.Errorf("dropped: %+v", r)
	}
	w.refused(exitNotFound, "not found", "sequences", "orders", "outbox")
	w.sound("orders")
}

func tellSequencePages(w *world) {
	const n = 1500
	batch := make([]delayqueue.Outgoing, n)
	for i := range batch {
		batch[i].Options = []delayqueue.MsgOption{delayqueue.WithDelay(time.Hour), delayqueue.WithSequence(fmt.Sprint("s", i), int64(i))}
	}
	ok(w, errOf(w.publisher("orders").SendBatch(w.Context(), batch)))
	seen := map[string]bool{}
	for _, s := range decode[sequenceJSON](w, w.must("sequences", "orders", "--json")) {
		if *s.Name != fmt.Sprint("s", s.Last) {
			w.Errorf("%s is at %d", *s.Name, s.Last)
		}
		seen[*s.Name] = true
	}
	if len(seen) != n {
		w.Errorf("%d of %d", len(seen), n)
	}
}

func tellConditions(w *world) {
	send := func(args ...string) string {
		id, _, _ := strings.Cut(w.must(append([]string{"send", "orders", "--delay", "1h"}, args...)...), " ")
		return id
	}
	id := send("a", "--create", "--key", "k", "--timeout", "90s", "--deadline", "2h", "--sequence", "a=b=7")
	out := w.must("get", "orders", id)
	w.contains(out, "timeout   1m30s", "deadline  ", "key       k")
	w.refused(exitRefused, `sequence "a=b" is at 7, and this is 7`, "send", "orders", "b", "--sequence", "a=b=7")
	w.contains(w.must("sequences", "orders", "a=b"), "7")

	w.refused(exitRefused, "is taken by message "+id, "send", "orders", "b", "--key", "k", "--key-policy", "refuse")
	w.contains(w.must("send", "orders", "b", "--key", "k", "--key-policy", "keep"), id+" has the key, due ")
	if again := send("c", "--key", "k", "--key-policy", "replace"); again != id {
		w.Errorf("replaced %s, want %s", again, id)
	}
	w.contains(w.must("send", "orders", "d", "--key", "k", "--key-policy", "reschedule", "--delay", "3h", "--json"), id, `"existed":true`)
	m, err := w.monitor("orders").Get(w.Context(), id)
	if err != nil || m.Payload != "c" || time.Until(m.Due) < 2*time.Hour || m.Timeout != 0 {
		w.Errorf("%+v, %v", m, err)
	}
	if m, err = w.monitor("orders").Get(w.Context(), send("e", "--timeout", "0")); err != nil || m.Timeout >= 0 {
		w.Errorf("no limit: %+v, %v", m, err)
	}

	group := send("one", "--key", "g", "--key-policy", "append", "--max-wait", "2h")
	w.refused(exitRefused, "is taken by message "+group, "send", "orders", "x", "--key", "g")
	for range 2 { // the third is full
		if again := send("two\nand \xff", "--key", "g", "--key-policy", "append", "--max-parts", "3"); again != group {
			w.Errorf("appended to %s, want %s", again, group)
		}
	}
	w.contains(w.must("get", "orders", group), "parts     3 parts, 21 bytes", "part 1    one\n", "part 3    two and ")
	if all := decode[messageJSON](w, w.must("get", "orders", group, "--json")); all[0].PartCount != 3 ||
		string(all[0].Parts64[2]) != "two\nand \xff" {
		w.Errorf("%+v", all)
	}
	if next := send("three", "--key", "g", "--key-policy", "append"); next == group {
		w.Error("a full group was appended to")
	}

	w.refused(exitUsage, "WithMaxWait", "send", "orders", "x", "--max-wait", "1h")
	w.refused(exitUsage, "WithMaxParts", "send", "orders", "x", "--key", "k", "--max-parts", "5")
	w.refused(exitUsage, "--key-policy goes with --key", "send", "orders", "x", "--key-policy", "keep")
	w.refused(exitUsage, `did you mean "replace"?`, "send", "orders", "x", "--key", "k", "--key-policy", "replase")
	w.refused(exitUsage, "as in outbox=42", "send", "orders", "x", "--sequence", "outbox")
	w.refused(exitUsage, "no whole number", "send", "orders", "x", "--sequence", "outbox=9223372036854775808")
	w.refused(exitUsage, "--deadline -2h is in the past", "send", "orders", "x", "--deadline", "-2h")
	w.refused(exitUsage, "WithDeadline", "send", "orders", "x", "--delay", "2h", "--deadline", "1h")
	w.refused(exitUsage, "WithTimeout", "send", "orders", "x", "--timeout", "-1s")
	w.sound("orders")
}
