package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-delayqueue/delayqueue"
)

// acks waits until so many acks of a message with a countdown are missing.
func (w *world) acks(id string, missing int) {
	w.Helper()
	w.until(fmt.Sprint("acks that are missing: ", missing), func() bool {
		m, err := w.monitor("orders").Get(w.Context(), id)
		ok(w, err)
		return m.CountdownLeft == missing
	})
}

func tellCountdown(w *world) {
	total := w.sends("orders", "total", "--create", "--key", "import-42", "--delay", "1h", "--countdown", "500")
	row := w.sends("orders", "row 1", "--delay", "1h", "--counts", "import-42")
	w.contains(w.must("get", "orders", total), "waits for  500 acks; 0 of 500 have come\n")
	w.contains(w.must("get", "orders", row), "counts for  import-42\n")
	w.contains(w.must("get", "orders", total, "--json"), `"countdown":500,"countdown_left":500,`)
	out := w.must("get", "orders", row, "--json")
	w.contains(out, `"counts":"import-42"`)
	w.lacks(out, `"countdown`)
	w.must("send", "orders", "row 2", "--counts", "import-42", "--key", "row-2")
	w.handled("orders")
	w.acks(total, 499)
	w.contains(w.must("get", "orders", total), "waits for  499 acks; 1 of 500 have come\n")
	equal(w, "replaced", w.sends("orders", "total", "--key", "import-42", "--key-policy", "replace", "--countdown", "2"),
		total)
	w.contains(w.must("ls", "orders", "pending", "--json"), `"countdown":2,"countdown_left":1,`)
	w.contains(w.must("find", "orders", "import-42", "--json"), `"countdown_left":1`)
	w.must("run", "orders", row)
	w.reaches("orders", total, delayqueue.StateGone) // the last ack makes it due
	evil := w.sends("orders", "a", "--delay", "1h", "--counts", "k\x1b[31m\nl")
	w.contains(w.must("get", "orders", evil), "counts for  k·[31m l\n")

	w.refused(exitUsage, "bad option or argument: WithCountdown(5) without a key: WithCounts names the key",
		"send", "orders",
		"x",
		"--delay", "1h", "--countdown", "5")
	w.refused(exitUsage, "WithCountdown(-1): from 0", "send", "orders", "x", "--key", "k", "--delay", "1h",
		"--countdown=-1")
	w.refused(exitUsage, "WithCounts: 0 bytes: a key has 1 to 512", "send", "orders", "x", "--counts", "")
	w.sound("orders")
}

// What steers messages does so with those that wait for acks, and those whose acks count, and what counts is right
// after it.
func tellCountdownSteered(w *world) {
	waits := func(key string, acks int, opts ...delayqueue.MsgOption) string {
		return w.send("orders", key, append(opts, delayqueue.WithKey(key), inAnHour, delayqueue.WithCountdown(acks))...)
	}
	total := waits("import-42", 5, delayqueue.WithRetryCount(0))
	waits("other", 2, delayqueue.WithCounts("import-42"))
	waits("left", 2)
	for i := range 3 {
		w.send("orders", fmt.Sprint("row ", i), inAnHour, delayqueue.WithCounts("import-42"))
	}
	w.contains(w.must("reschedule", "orders", "--all", "--by", "1h"), "rescheduled 6 messages")
	w.contains(w.must("run", "orders", "--all", "--contains", "row"), "made due now 3 messages")
	w.consume("orders", func(_ context.Context, m *delayqueue.Message) error {
		if m.Key != "" {
			return errors.New("no")
		}
		return nil
	})
	w.acks(total, 2)
	for range 2 {
		w.must("run", "orders", "import-42", "--key")
		w.reaches("orders", total, delayqueue.StateGarbage)
		w.contains(w.must("get", "orders", total), "lacks          2 acks; 3 of 5 have come\n")
		w.must("pause", "orders")
		w.must("requeue", "orders", total)
		w.must("reschedule", "orders", total, "--by", "1h")
		w.must("resume", "orders")
	}
	w.contains(w.must("cancel", "orders", "other", "--key", "--yes"), "other canceled (was pending)")
	w.must("run", "orders", "import-42", "--key")
	w.reaches("orders", total, delayqueue.StateGarbage)
	w.contains(w.must("delete", "orders", "--all", "--yes"), "deleted 1 message")
	if s := w.sound("orders"); len(s.Missing) != 1 || len(s.Messages) != 1 {
		w.Errorf("what is left:\n%s", s.Dump())
	}
}

// What a countdown lacks is not known without its number, and doctor says so. A number without a message is deleted.
func tellDoctorCountdown(w *world) {
	total := w.send("orders", "total", delayqueue.WithKey("total"), inAnHour, delayqueue.WithCountdown(3))
	w.contains(w.must("doctor", "orders"), "holds 1 message", "its data is sound")
	w.do("HDEL", "parts", total+":0")
	w.do("HSET", "parts", nobody+":0", "3")
	w.run("doctor", "orders").shows("lost parts (1)", "message "+total+
		" has a countdown of 3, and how many acks are missing is not known",
		"stray part (1)", "the acks of message "+nobody+" are \"3\"", "comes at its own instant")
	r := w.exits(exitUnsound, "doctor", "orders", "--repair", "--yes").
		shows("delete from parts: "+nobody+":0\n", "repaired 1 thing", "1 finding left")
	w.lacks(r.out, "parts: "+total)
	w.exits(exitUnsound, "doctor", "orders", "--repair", "--yes").shows("lost parts (1)",
		"nothing of it can be repaired safely")

	w.contains(w.must("get", "orders", total), "waits for  3 acks; 0 of 3 have come\n")
	w.contains(w.must("send", "orders", "anew", "--key", "total", "--key-policy", "replace", "--countdown", "2"), total)
	w.handled("orders")
	w.send("orders", "row", delayqueue.WithCounts("total"))
	w.acks(total, 1)
	w.sound("orders")
}
