package main

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
)

// waits sends a message with a countdown, which is due in an hour.
func (w *world) waits(key string, acks int, opts ...delayqueue.MsgOption) (id string) {
	w.Helper()
	return w.send("orders", key, append(opts, delayqueue.WithKey(key), delayqueue.WithDelay(time.Hour), delayqueue.WithCountdown(acks))...)
}

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
	send := func(args ...string) string {
		id, _, _ := strings.Cut(w.must(append([]string{"send", "orders"}, args...)...), " ")
		return id
	}
	total := send("total", "--create", "--key", "import-42", "--delay", "1h", "--countdown", "500")
	row := send("row 1", "--delay", "1h", "--counts", "import-42")
	w.contains(w.must("get", "orders", total), "waits for  500 of 500 acks\n")
	w.contains(w.must("get", "orders", row), "counts for  import-42\n")
	w.contains(w.must("get", "orders", total, "--json"), `"countdown":500,"countdown_left":500,`)
	if out := w.must("get", "orders", row, "--json"); !strings.Contains(out, `"counts":"import-42"`) || strings.Contains(out, `"countdown`) {
		w.Errorf("get --json: %s", out)
	}
	send("row 2", "--counts", "import-42", "--key", "row-2")
	w.consume("orders", func(context.Context, *delayqueue.Message) error { return nil })
	w.acks(total, 499)
	w.contains(w.must("get", "orders", total), "waits for  499 of 500 acks\n")
	if again := send("total", "--key", "import-42", "--key-policy", "replace", "--countdown", "2"); again != total {
		w.Errorf("replaced %s, want %s", again, total)
	}
	w.contains(w.must("ls", "orders", "pending", "--json"), `"countdown":2,"countdown_left":1,`)
	w.must("run", "orders", row)
	w.until("the last ack makes it due", func() bool { return w.state("orders", total) == delayqueue.StateGone })
	evil := send("a", "--delay", "1h", "--counts", "k\x1b[31m\nl")
	w.contains(w.must("get", "orders", evil), "counts for  k·[31m l\n")

	w.refused(exitUsage, "bad message option: WithCountdown(5) without a key: WithCounts names the key", "send", "orders", "x", "--delay", "1h", "--countdown", "5")
	w.refused(exitUsage, "WithDelay or WithSchedule says how long it waits at most", "send", "orders", "x", "--key", "k", "--countdown", "5")
	w.refused(exitUsage, "WithCountdown(-1): from 0 to 1000000000", "send", "orders", "x", "--key", "k", "--delay", "1h", "--countdown=-1")
	w.refused(exitUsage, "a message does not count for itself", "send", "orders", "x", "--key", "k", "--counts", "k")
	w.refused(exitUsage, "WithCounts: 0 bytes: a key has 1 to 512", "send", "orders", "x", "--counts", "")
	w.sound("orders")
}

// What steers messages does so with those that wait for acks, and those whose acks count, and what counts is right after it.
func tellCountdownSteered(w *world) {
	var fails atomic.Bool
	handled := make(chan *delayqueue.Message, 10)
	fails.Store(true)
	total := w.waits("import-42", 5, delayqueue.WithRetryCount(0), delayqueue.WithRetention(time.Hour))
	w.waits("other", 2, delayqueue.WithCounts("import-42"))
	for i := range 3 {
		w.send("orders", fmt.Sprint("row ", i), delayqueue.WithDelay(time.Hour), delayqueue.WithCounts("import-42"))
	}
	w.contains(w.must("cancel", "orders", "--all", "--dry-run"), "would have deleted 5 messages")
	w.contains(w.must("reschedule", "orders", "--all", "--by", "1h"), "rescheduled 5 messages")
	w.contains(w.must("run", "orders", "--all", "--contains", "row"), "made due 3 messages")
	w.consume("orders", func(_ context.Context, m *delayqueue.Message) error {
		if fails.Load() && m.Key != "" {
			return fmt.Errorf("no")
		}
		handled <- m
		return nil
	})
	w.acks(total, 2)
	found := decode[matchJSON](w, w.must("find", "orders", "import-42", "--json"))
	if len(found) != 1 || found[0].ID != total || found[0].Missing == nil || *found[0].Missing != 2 {
		w.Errorf("find: %+v", found)
	}

	w.must("run", "orders", "import-42", "--key")
	w.until("it is garbage", func() bool { return w.state("orders", total) == delayqueue.StateGarbage })
	w.contains(w.must("get", "orders", total), "lacks          2 of 5 acks\n")
	fails.Store(false)
	w.must("requeue", "orders", total)
	for m := testkit.Receive(w, "a message", handled); m.ID != total; m = testkit.Receive(w, "a message", handled) {
		w.contains(m.Payload, "row ")
	}
	w.until("it is done", func() bool { return w.state("orders", total) == delayqueue.StateDone })
	w.contains(w.must("get", "orders", total), "lacks          2 of 5 acks\n")
	w.sound("orders")

	w.contains(w.must("cancel", "orders", "other", "--key", "--yes"), "other taken out (was pending)")
	w.contains(w.must("cancel", "orders", "--all", "--state", "done", "--yes"), "deleted 1 message")
	fails.Store(true)
	dead := w.waits("dead", 2, delayqueue.WithRetryCount(0))
	w.waits("left", 2)
	w.must("reschedule", "orders", "dead", "--key", "--at", "now")
	w.until("it is garbage", func() bool { return w.state("orders", dead) == delayqueue.StateGarbage })
	w.contains(w.must("purge", "orders", "--all", "--yes"), "deleted 1 message")
	w.contains(w.must("journal", "orders"), "cancel", "reschedule", "run now", "requeue", "delete")
	if s := w.sound("orders"); len(s.Missing) != 1 || len(s.Messages) != 1 {
		w.Errorf("what is left:\n%s", s.Dump())
	}
}

// What a countdown lacks is not known without its number: doctor says so, and the message comes at its own instant. A number without a
// message is deleted.
func tellDoctorCountdown(w *world) {
	total := w.waits("total", 3)
	due := time.Now().Add(5 * time.Second).Truncate(time.Microsecond)
	soon := w.send("orders", "soon", delayqueue.WithKey("soon"), delayqueue.WithSchedule(due), delayqueue.WithCountdown(3))
	for range 3 {
		w.send("orders", "row", delayqueue.WithDelay(time.Hour), delayqueue.WithCounts("soon"))
	}
	w.contains(w.must("doctor", "orders"), "holds 5 messages", "nothing is wrong with it")
	w.do("HDEL", "parts", total+":0", soon+":0")
	w.do("HSET", "parts", nobody+":0", "3")
	lost := fmt.Sprintf("message %s has a countdown of 3, and how many acks are missing is not known", total)
	r := w.run("doctor", "orders")
	w.contains(r.out, "lost parts (2)", lost, "stray part (1)", "the acks of message "+nobody+" are \"3\"", "comes at its own instant")
	r = w.run("doctor", "orders", "--repair", "--yes")
	if strings.Contains(r.out, "parts: "+total) || r.code != exitUnsound {
		w.Errorf("exit code %d, want %d", r.code, exitUnsound)
	}
	w.contains(r.out, "delete from parts: "+nobody+":0\n", "repaired 1 thing", "2 findings left")
	w.contains(w.run("doctor", "orders", "--repair", "--yes").out, "lost parts (2)", "nothing of it can be repaired safely")

	handled := make(chan *delayqueue.Message, 10)
	w.consume("orders", func(_ context.Context, m *delayqueue.Message) error { handled <- m; return nil })
	w.contains(w.must("run", "orders", "--all", "--contains", "row"), "made due 3 messages")
	for range 4 {
		if m := testkit.Receive(w, "a message", handled); m.ID == soon && !m.Due.Equal(due) {
			w.Errorf("%+v was due at %v", m, due)
		}
	}
	w.contains(w.must("get", "orders", total), "waits for  3 of 3 acks\n")
	w.contains(w.must("send", "orders", "anew", "--key", "total", "--key-policy", "replace", "--countdown", "2"), total)
	w.until("it is acked", func() bool { return w.state("orders", soon) == delayqueue.StateGone })
	w.sound("orders")
	w.send("orders", "row", delayqueue.WithCounts("total"))
	w.acks(total, 1)
}
