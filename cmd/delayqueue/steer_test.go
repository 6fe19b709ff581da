package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

func tellSend(w *world) {
	w.refused(exitNotFound, "--create makes it", "send", "orders", "a")
	id := w.sends("orders", "a", "--create", "--delay", "1d", "--key", "k", "--header", `x="1,y=2"`, "--retries", "7",
		"--ttl", "1h")
	m, err := w.monitor("orders").Get(w.Context(), id)
	ok(w, err)
	if m.Payload != "a" || m.Key != "k" || m.Headers["x"] != `"1,y=2"` || len(m.Headers) != 1 || m.MaxRetries != 7 ||
		time.Until(m.Due) < 23*time.Hour {
		w.Errorf("sent %+v", m)
	}
	w.refused(exitRefused, `key "k" is taken by message `+id, "send", "orders", "b", "--key", "k")
	w.refused(exitUsage, "--delay and --at do not go together", "send", "orders", "b", "--at", "1h", "--delay", "1h")
	w.refused(exitUsage, "--delay 0, or 5s?", "send", "orders", "b", "--delay", "-5s")
	w.refused(exitNotFound, `did you mean "orders"?`, "send", "order", "b")
	equal(w, "from the input", w.runWith("two\nlines", "send", "orders", "-d", "1d", "--json").code, 0)
	w.contains(w.must("ls", "orders", "pending", "--json"), `"payload":"two\nlines"`)

	w.refused(exitUsage, "the input is empty: for a message without a payload write delayqueue send orders ''", "send",
		"orders")

	t := w.terminal("send", "orders")
	t.sees("no payload: give one")
	t.ends(exitUsage)
}

func tellCancel(w *world) {
	id := w.send("orders", "a", delayqueue.WithKey("order-1"), inAnHour)
	w.refused(exitUnconfirmed, "add --yes", "cancel", "orders", id)
	for _, answer := range []string{"n\r", "\r", "what?\r"} {
		w.answers(answer, exitUnconfirmed, "cancel", "orders", id).sees("nothing was done")
	}
	w.answers(ctrlC, exitInterrupted, "cancel", "orders", id)
	equal(w, "state, and nobody said yes", w.state("orders", id), delayqueue.StatePending)
	t := w.answers("y\r", 0, "cancel", "orders", "order-1", "--key")
	w.contains(t.all(), `Cancel 1 message of queue "orders"? [y/N]`, "order-1 canceled (was pending)")
	equal(w, "state", w.state("orders", id), delayqueue.StateGone)
	w.refused(exitNotFound, "it was handled, taken back or deleted", "cancel", "orders", id, "--yes")

	// Several: what fails keeps nothing from being done.
	a, b := w.send("orders", "a", inAnHour), w.send("orders", "b", inAnHour)
	all := decode[outcome](w, w.exits(exitNotFound, "cancel", "orders", a, id, b, "--yes", "--json").out)
	if len(all) != 3 || !all[0].Done || all[1].Done || !all[2].Done || all[1].Error == "" || all[0].Was != "pending" {
		w.Errorf("several: %+v", all)
	}

	w.sendMany("orders", 1200, time.Hour)
	w.refused(exitUsage, "and how, go with --all", "cancel", "orders", "--contains", "p1", "--yes")
	w.refused(exitUsage, "not both", "cancel", "orders", a, "--all", "--yes")
	w.refused(exitUsage, "Give ids, or --all", "cancel", "orders", "--yes")
	t = w.terminal("cancel", "orders", "--all", "--contains", "p1")
	t.sees(`Cancel 600 messages of queue "orders"?`)
	w.contains(t.all(), "counting", "/1200)", " p1\r\n") // some of them
	late := w.send("orders", "p1 came later", inAnHour)
	t.types("yes\r")
	t.ends(0)
	t.sees("canceled 600 messages")
	w.contains(t.all(), "canceling")
	w.contains(w.must("cancel", "orders", late, "--yes"), "was pending") // it was not counted
	equal(w, "cancel --all", w.must("cancel", "orders", "--all", "--yes", "--json"),
		`{"done":600,"looked":600,"by_state":{"pending":600}}`+"\n")
	w.sound("orders")
}

func tellReschedule(w *world) {
	id := w.send("orders", "a", delayqueue.WithKey("order-1"), inAnHour)
	due := func(least, most time.Duration) {
		w.Helper()
		m, err := w.monitor("orders").Get(w.Context(), id)
		ok(w, err)
		if d := time.Until(m.Due); d < least || d > most {
			w.Errorf("due in %v, want %v", d, most)
		}
	}
	w.contains(w.must("reschedule", "--help"), "--by counts from\nwhen each message was due.")
	w.contains(w.must("reschedule", "orders", id, "--by", "1h"), "rescheduled")
	due(110*time.Minute, 2*time.Hour)
	w.must("reschedule", "orders", "order-1", "--key", "--at", "3d")
	due(71*time.Hour, 72*time.Hour)
	w.must("reschedule", "orders", "--all", "--by", "-24h")
	due(47*time.Hour, 48*time.Hour)
	w.must("reschedule", "orders", "--all", "--at", "30m", "--from", "47h")
	due(20*time.Minute, 30*time.Minute)
	w.refused(exitUsage, "say --at or --by", "reschedule", "orders", id)
	if now := time.Now().UTC(); now.Hour() > 0 {
		passed := now.Add(-time.Hour).Format("15:04")
		w.refused(exitUsage, passed+" has passed: --at now, or --at 'tomorrow "+passed+"'?", "reschedule", "orders", id,
			"--at", passed)
	}
	w.refused(exitUsage, "--at -10m is in the past: --at now, or 10m?", "reschedule", "orders", "--all", "--at", "-10m")
	w.refused(exitUsage, "--at 2020-01-01 is in the past", "send", "orders", "x", "--at", "2020-01-01")
	w.refused(exitUsage, `"tomorrow" is no time`, "reschedule", "orders", id, "--at", "tomorrow")
	w.contains(w.must("run", "orders", "order-1", "--key"), "order-1 made due now")
	equal(w, "state", w.state("orders", id), delayqueue.StateReady)
	w.must("reschedule", "orders", id, "--at", "30m")
	w.contains(w.must("reschedule", "orders", "--all", "--at", "2020-01-01", "--before", "now"),
		"rescheduled 1 message") // the rest of an old one
	dead := w.kill("orders", "no", "b")[0]
	w.refused(exitRefused, "is garbage", "run", "orders", dead)
	w.refused(exitUsage, "Give ids, or --all", "run", "orders")
	w.sound("orders")
}

func tellRequeue(w *world) {
	dead := w.kill("orders", "connection refused", "a", "b", "c")
	w.kill("orders", "card refused", "d")
	equal(w, "requeue", w.must("requeue", "orders", dead[0]), dead[0]+" requeued\n")
	w.refused(exitRefused, "is ready", "requeue", "orders", dead[0])
	equal(w, "by error", w.must("requeue", "orders", "--all", "--error-contains", "connection"),
		"requeued 2 messages\n")
	equal(w, "by age", w.must("requeue", "orders", "--all", "--to", "-1h"), "requeued 0 messages\n")
	w.refused(exitUsage, "--from 1h is in the future, and nothing has died then: did you mean --from -1h?", "requeue",
		"orders", "--all", "--from", "1h")
	w.refused(exitUsage, "--from -1h is after --to -2h", "requeue", "orders", "--all", "--from", "-1h", "--to", "-2h")
	if n := w.counts("orders"); n.Ready != 3 || n.Garbage != 1 {
		w.Errorf("counts: %+v", n)
	}

	// A deadline that has come.
	deadline := time.Now().Add(time.Second)
	late := w.send("orders", "late", delayqueue.WithDeadline(deadline), delayqueue.WithRetryCount(0))
	w.kill("orders", "no", "beside")
	w.reaches("orders", late, delayqueue.StateGarbage)
	w.until("its deadline has come", func() bool { return time.Now().After(deadline) })
	w.refused(exitRefused, "Anew", "requeue", "orders", late)
	w.exits(exitRefused, "requeue", "orders", "--all", "--contains", "late").
		shows("passed over 1 message: past its deadline", "requeued 0 messages")
	w.contains(w.must("requeue", "orders", "--all", "--contains", "late", "--anew"), "requeued 1 message\n")

	// A key that another message has taken.
	w.must("delete", "orders", "--whole-queue", "--yes")
	keyed := w.send("orders", "e", delayqueue.WithKey("k"), delayqueue.WithRetryCount(0))
	w.kill("orders", "no", "f")
	w.reaches("orders", keyed, delayqueue.StateGarbage)
	holder := w.send("orders", "g", delayqueue.WithKey("k"), inAnHour)
	w.refused(exitRefused, holder, "requeue", "orders", keyed)
	w.exits(exitRefused, "requeue", "orders", "--all").
		shows("requeued 1 message", "passed over 1 message: another message has its key now")
	w.contains(w.must("ls", "orders", "garbage", "--with-key", "k", "--json"), keyed)
	w.contains(w.must("get", "orders", "k", "--key"), holder, "pending") // the live one
	w.must("cancel", "orders", "k", "--key", "--yes")
	w.contains(w.must("get", "orders", "k", "--key"), keyed, "garbage")
	w.contains(w.must("requeue", "orders", "k", "--key"), "k requeued")
	w.sound("orders")
}

func tellDelete(w *world) {
	dead := w.kill("orders", "no", "a", "b", "c")
	waiting := w.send("orders", "d", inAnHour)
	w.refused(exitUnconfirmed, "Delete all of 3 messages that are garbage", "delete", "orders", "--all")
	w.refused(exitRefused, "is pending", "delete", "orders", waiting, "--yes")
	w.contains(w.must("delete", "orders", dead[1], "--yes"), dead[1]+" deleted (was garbage)")
	t := w.answers("y\r", 0, "delete", "orders", "--all")
	w.contains(t.all(), `Delete 2 messages of queue "orders"?`, "deleted 2 messages")
	if n := w.counts("orders"); n.Garbage != 0 || n.Pending != 1 {
		w.Errorf("counts: %+v", n)
	}

	q := w.consume("orders", func(context.Context, *delayqueue.Message) error { return nil })
	w.heardOf("orders")
	w.refused(exitRefused, "alive", "delete", "orders", "--whole-queue", "--yes")
	ok(w, q.Shutdown(w.Context()))
	w.refused(exitUsage, "names messages", "delete", "orders", waiting, "--whole-queue", "--yes")
	for _, more := range []string{"--all", "--dry-run", "--most=1", "--before=now", "--rate=1", "--key", "--contains=x"} {
		name, _, _ := strings.Cut(strings.TrimPrefix(more, "--"), "=")
		w.refused(exitUsage, "--whole-queue and --"+name+" do not go together", "delete", "orders", "--whole-queue", "--yes",
			more)
	}
	t = w.answers("y\r", 0, "delete", "orders", "--whole-queue")
	w.contains(t.all(), `Delete the queue "orders" with all of its 1 message? [y/N]`, "pending") // and a sample
	w.refused(exitNotFound, `no queue "orders"`, "stats", "orders")
}

func tellPause(w *world) {
	w.send("orders", "a", inAnHour)
	w.contains(w.must("pause", "orders"), "is paused until delayqueue resume orders")
	if n := w.counts("orders"); !n.Paused || !n.PausedUntil.IsZero() {
		w.Errorf("counts: %+v", n)
	}
	w.contains(w.must("stats", "orders"), "paused")
	type paused struct {
		Until time.Time `json:"paused_until"`
	}
	out := w.must("pause", "orders", "--until", "1h", "--json") // by the server's clock, whose instant is said
	if n := w.counts("orders"); !n.Paused || time.Until(n.PausedUntil) < 55*time.Minute ||
		!n.PausedUntil.Equal(decode[paused](w, out)[0].Until) {
		w.Errorf("counts: %+v; said: %s", n, out)
	}
	then := time.Now().Add(2 * time.Hour).Truncate(time.Second)
	w.must("pause", "orders", "--until", then.Format(time.RFC3339))
	equal(w, "paused until", w.counts("orders").PausedUntil.Unix(), then.Unix())
	w.contains(w.must("stats", "orders"), "paused until ")
	w.must("pause", "orders", "--operator", "ann", "--reason", "cards are\x1b[31m down")
	w.contains(w.must("stats", "orders"), "paused, by ann: cards are [31m down")
	w.contains(w.must("stats", "orders", "--json"), `"paused_since":"2`,
		`"paused_by":"ann","pause_reason":"cards are [31m down"`)
	w.contains(w.must("resume", "orders"), "goes on")
	equal(w, "paused after resume", w.counts("orders").Paused, false)
	w.refused(exitNotFound, `did you mean "orders"?`, "pause", "oders")
	w.refused(exitUsage, "is in the past: delayqueue resume ends a pause", "pause", "orders", "--until", "-1h")
}

func tellLimits(w *world) {
	w.send("orders", "a", inAnHour)
	w.contains(w.must("limits", "orders"), "in force: no limit")
	w.contains(w.must("limits", "set", "orders", "--rate", "100/1s", "--concurrency", "5"), "set before: no limit",
		"in force: 100 in 1s, burst 1, 5 at a time")
	w.contains(w.must("limits", "set", "orders", "--rate", "50/1m", "--burst", "10"),
		"set before: 100 in 1s, burst 1, 5 at a time",
		"in force: 50 in 1m0s, burst 10")
	w.contains(w.must("limits", "orders", "--json"), `"in_force":{"rate":50,"per_seconds":60,"burst":10}`)
	w.contains(w.must("limits", "clear", "orders"), "set before: 50 in 1m0s, burst 10", "in force: no limit")
	w.refused(exitUsage, "say --rate, --concurrency or both", "limits", "set", "orders")
	w.refused(exitUsage, "a burst of 1 to a million", "limits", "set", "orders", "--rate", "100/1s", "--burst", "-2")
	w.refused(exitUsage, "100/1s is 100 a second", "limits", "set", "orders", "--rate", "100")
	w.refused(exitNotFound, `did you mean "orders"?`, "limits", "oders")

	w.contains(w.must("limits", "lift", "orders"), "orders was not throttled", "in force: no limit")
	w.send("orders", "429")
	w.consume("orders", func(context.Context, *delayqueue.Message) error { return delayqueue.Throttle(time.Hour, nil) })
	w.until("it is throttled", func() bool { return !w.counts("orders").ThrottledUntil.IsZero() })
	w.contains(w.must("limits", "orders"), "a handler has throttled it until", "delayqueue limits lift orders")
	w.contains(w.must("limits", "orders", "--json"), `"throttled_until":"2`)
	w.contains(w.must("stats", "orders"), "throttled until")
	w.contains(w.must("stats", "orders", "--json"), `"throttled_until":"2`)
	w.contains(w.must("limits", "lift", "orders"), "orders is throttled no more")
	w.lacks(w.must("limits", "lift", "orders", "--json"), "throttled")
}

func tellConsumers(w *world) {
	w.send("orders", "a")
	w.contains(w.must("consumers", "orders"), "nobody consumes queue orders")
	release := make(chan struct{})
	w.consume("orders", func(context.Context, *delayqueue.Message) error {
		<-release
		return nil
	})
	defer close(release)
	id := ""
	w.until("it says what it handles", func() bool {
		all, err := w.monitor("orders").Consumers(w.Context())
		if err != nil || len(all) == 0 || len(all[0].Handling) == 0 {
			return false
		}
		id = all[0].Handling[0].ID
		return true
	})
	w.contains(w.must("consumers", "orders"), "1/1", id, "HEARD", "ago")
	w.contains(w.must("consumers", "orders", "--json"), fmt.Sprintf(`"pid":%d,`, os.Getpid()),
		`"concurrency":1,"handling":[{"id":"`+id+`",`)
	all, err := w.monitor("orders").Consumers(w.Context())
	ok(w, err)
	w.contains(w.must("get", "orders", id), "unack", "lease ends", "held by", all[0].ID)
	w.refused(exitRefused, "is unack", "run", "orders", id)
	w.contains(w.must("cancel", "orders", id, "--yes"), "canceled (was unack)")
}

func tellEvents(w *world) {
	p := w.publisher("orders")
	report := p.EnableReport()
	defer report.Stop()
	w.send("orders", "a", inAnHour) // makes the queue; this publisher does not report
	t := w.terminal("events", "orders")
	t.sees("Ctrl-C ends")
	info, err := p.Send(w.Context(), "b", inAnHour)
	ok(w, err)
	t.sees(info.ID)
	t.sees("new")
	ok(w, errOf(p.Intercept(w.Context(), info.ID)))
	t.sees("intercepted")
	w.must("pause", "orders", "--operator", "ann")
	t.sees("by ann")
	w.must("resume", "orders", "--operator", "bob\x1b[31m")
	t.sees("by bob [31m")
	t.interrupted(0)

	t = w.terminal("events", "orders", "--json")
	w.until("a message is heard of", func() bool {
		ok(w, errOf(p.Send(w.Context(), "c", inAnHour)))
		return strings.Contains(t.all(), `"event":"new"`)
	})
	t.interrupted(0)
	w.inOrder(t.all(), `{"event":"new",`, `"count":1,"ids":["`, `"]`)
}

func tellConditions(w *world) {
	send := func(payload string, args ...string) string {
		return w.sends("orders", payload, append(args, "--delay", "1h")...)
	}
	id := send("a", "--create", "--key", "k", "--timeout", "90s", "--deadline", "2h", "--sequence", "a=b=7")
	out := w.must("get", "orders", id)
	w.contains(out, "timeout   1m30s", "deadline  ", "key       k")
	w.refused(exitRefused, `sequence "a=b" is at 7, and this is 7`, "send", "orders", "b", "--sequence", "a=b=7")
	w.contains(w.must("sequences", "orders", "a=b"), "7")

	w.refused(exitRefused, "is taken by message "+id, "send", "orders", "b", "--key", "k", "--key-policy", "refuse")
	w.contains(w.must("send", "orders", "b", "--key", "k", "--key-policy", "keep"), id+" has the key, due ")
	equal(w, "replaced", send("c", "--key", "k", "--key-policy", "replace"), id)
	w.contains(w.must("send", "orders", "d", "--key", "k", "--key-policy", "reschedule", "--delay", "3h", "--json"), id,
		`"existed":true`)
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
		equal(w, "appended to", send("two\nand \xff", "--key", "g", "--key-policy", "append", "--max-parts", "3"), group)
	}
	w.contains(w.must("get", "orders", group), "parts     3 parts, 21 bytes", "part 1    one\n", "part 3    two and ")
	w.contains(w.must("get", "orders", group, "--json"), `"part_count":3,`, `"dHdvCmFuZCD/"]`)
	w.lacks(send("three", "--key", "g", "--key-policy", "append"), group) // which is full

	w.refused(exitUsage, "WithMaxWait", "send", "orders", "x", "--max-wait", "1h")
	w.refused(exitUsage, "--key-policy goes with --key", "send", "orders", "x", "--key-policy", "keep")
	w.refused(exitUsage, `did you mean "replace"?`, "send", "orders", "x", "--key", "k", "--key-policy", "replase")
	w.refused(exitUsage, "as in outbox=42", "send", "orders", "x", "--sequence", "outbox")
	w.refused(exitUsage, "no whole number", "send", "orders", "x", "--sequence", "outbox=9223372036854775808")
	w.refused(exitUsage, "--deadline -2h is in the past", "send", "orders", "x", "--deadline", "-2h")
	w.refused(exitUsage, "WithDeadline", "send", "orders", "x", "--delay", "2h", "--deadline", "1h")
	w.sound("orders")
}
