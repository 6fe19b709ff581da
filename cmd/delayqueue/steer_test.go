package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

func tellSend(w *world) {
	w.refused(exitNotFound, "--create makes it", "send", "orders", "a")
	id, _, _ := strings.Cut(w.must("send", "orders", "a", "--create", "--delay", "1d", "--key", "k", "--header", `x="1,y=2"`,
		"--retries", "7", "--ttl", "1h"), " ")
	m, err := w.monitor("orders").Get(w.Context(), id)
	if err != nil || m == nil {
		w.Fatal(m, err)
	}
	if m.Payload != "a" || m.Key != "k" || m.Headers["x"] != `"1,y=2"` || len(m.Headers) != 1 || m.MaxRetries != 7 ||
		time.Until(m.Due) < 23*time.Hour {
		w.Errorf("sent %+v", m)
	}
	w.refused(exitRefused, `key "k" is taken by message `+id, "send", "orders", "b", "--key", "k")
	w.refused(exitUsage, "[at delay]", "send", "orders", "b", "--at", "1h", "--delay", "1h")
	w.refused(exitUsage, "--delay 0, or 5s?", "send", "orders", "b", "--delay", "-5s")
	w.refused(exitNotFound, `did you mean "orders"?`, "send", "order", "b")
	if r := w.runWith("two\nlines", "send", "orders", "-d", "1d", "--json"); r.code != 0 {
		w.Errorf("from the input: %+v", r)
	}
	w.contains(w.must("ls", "orders", "pending", "--json"), `"payload":"two\nlines"`)

	w.refused(exitUsage, "the input is empty: for a message without a payload write delayqueue send orders ''", "send", "orders")

	t := w.terminal("send", "orders")
	t.sees("no payload: give one")
	t.ends(exitUsage)
	w.sound("orders")
}

func tellCancel(w *world) {
	id := w.send("orders", "a", delayqueue.WithKey("order-1"), delayqueue.WithDelay(time.Hour))
	w.refused(exitUnconfirmed, "add --yes", "cancel", "orders", id)
	for _, answer := range []string{"n\r", "\r", "what?\r"} {
		t := w.terminal("cancel", "orders", id)
		t.sees("[y/N]")
		t.types(answer)
		t.ends(exitUnconfirmed)
		t.sees("nothing was done")
	}
	t := w.terminal("cancel", "orders", id)
	t.sees("[y/N]")
	t.types(ctrlC)
	t.ends(exitInterrupted)
	if s := w.state("orders", id); s != delayqueue.StatePending {
		w.Fatalf("it is %v, though nobody said yes", s)
	}
	t = w.terminal("cancel", "orders", "order-1", "--key")
	t.sees(`Take 1 message out of queue "orders" for good? [y/N]`)
	t.types("y\r")
	t.ends(0)
	t.sees("order-1 taken out (was pending)")
	if s := w.state("orders", id); s != delayqueue.StateGone {
		w.Errorf("it is %v", s)
	}
	w.refused(exitNotFound, "it was handled, taken back or deleted", "cancel", "orders", id, "--yes")

	// Several: what fails keeps nothing from being done.
	a, b := w.send("orders", "a", delayqueue.WithDelay(time.Hour)), w.send("orders", "b", delayqueue.WithDelay(time.Hour))
	r := w.run("cancel", "orders", a, id, b, "--yes", "--json")
	all := decode[outcome](w, r.out)
	if r.code != exitNotFound || len(all) != 3 || !all[0].Done || all[1].Done || !all[2].Done ||
		all[1].Error == "" || all[0].Was != "pending" {
		w.Errorf("several: %d %+v", r.code, all)
	}

	w.sendMany("orders", 1200, time.Hour)
	w.refused(exitUsage, "and how, go with --all", "cancel", "orders", "--contains", "p1", "--yes")
	w.refused(exitUsage, "not both", "cancel", "orders", a, "--all", "--yes")
	w.refused(exitUsage, "Give ids, or --all", "cancel", "orders", "--yes")
	t = w.terminal("cancel", "orders", "--all", "--contains", "p1")
	t.sees(`Delete 600 messages of queue "orders"?`)
	w.contains(t.all(), "counting", "/1200)", "pending  p1") // some of them
	late := w.send("orders", "p1 came later", delayqueue.WithDelay(time.Hour))
	t.types("yes\r")
	t.ends(0)
	t.sees("deleted 600 messages")
	w.contains(t.all(), "deleting")
	w.contains(w.must("cancel", "orders", late, "--yes"), "was pending") // it was not counted
	if got := w.must("cancel", "orders", "--all", "--yes", "--json"); got != "{\"done\":600,\"looked\":600}\n" {
		w.Errorf("all: %q", got)
	}
	w.sound("orders")
}

func tellReschedule(w *world) {
	id := w.send("orders", "a", delayqueue.WithKey("order-1"), delayqueue.WithDelay(time.Hour))
	due := func(least, most time.Duration) {
		w.Helper()
		m, err := w.monitor("orders").Get(w.Context(), id)
		ok(w, err)
		if d := time.Until(m.Due); d < least || d > most {
			w.Errorf("due in %v, want %v", d, most)
		}
	}
	w.contains(w.must("reschedule", "orders", id, "--by", "1h"), "rescheduled")
	due(110*time.Minute, 2*time.Hour)
	w.must("reschedule", "orders", "order-1", "--key", "--at", "3d")
	due(71*time.Hour, 72*time.Hour)
	w.must("reschedule", "orders", "--all", "--by", "-24h")
	due(47*time.Hour, 48*time.Hour)
	w.must("reschedule", "orders", "--all", "--at", "30m", "--from", "47h")
	due(29*time.Minute, 30*time.Minute)
	w.refused(exitUsage, "[at by]", "reschedule", "orders", id)
	if now := time.Now().UTC(); now.Hour() > 0 {
		passed := now.Add(-time.Hour).Format("15:04")
		w.refused(exitUsage, passed+" has passed: --at now, or --at 'tomorrow "+passed+"'?", "reschedule", "orders", id, "--at", passed)
	}
	w.refused(exitUsage, "--at -10m is in the past: --at now, or 10m?", "reschedule", "orders", "--all", "--at", "-10m")
	w.refused(exitUsage, "--at 2020-01-01 is in the past", "send", "orders", "x", "--at", "2020-01-01")
	w.refused(exitUsage, `"tomorrow" is no time`, "reschedule", "orders", id, "--at", "tomorrow")
	w.contains(w.must("run", "orders", "order-1", "--key"), "order-1 due now")
	if s := w.state("orders", id); s != delayqueue.StateReady {
		w.Errorf("it is %v, want ready", s)
	}
	w.must("reschedule", "orders", id, "--at", "30m")
	w.contains(w.must("reschedule", "orders", "--all", "--at", "2020-01-01", "--before", "now"), "rescheduled 1 message") // the rest of an old one
	dead := w.kill("orders", "no", "b")[0]
	w.refused(exitRefused, "is garbage", "run", "orders", dead)
	w.refused(exitUsage, "Give ids, or --all", "run", "orders")
	w.sound("orders")
}

func tellRequeue(w *world) {
	dead := w.kill("orders", "connection refused", "a", "b", "c")
	w.kill("orders", "card refused", "d")
	if out := w.must("requeue", "orders", dead[0]); out != dead[0]+" brought back\n" {
		w.Errorf("one: %q", out)
	}
	w.refused(exitRefused, "is ready", "requeue", "orders", dead[0])
	if out := w.must("requeue", "orders", "--all", "--error", "connection"); out != "brought back 2 messages\n" {
		w.Errorf("by error: %q", out)
	}
	if out := w.must("requeue", "orders", "--all", "--to", "-1h"); out != "brought back 0 messages\n" {
		w.Errorf("by age: %q", out)
	}
	w.refused(exitUsage, "--from 1h is in the future, and nothing has died then: did you mean --from -1h?", "requeue",
		"orders", "--all", "--from", "1h")
	w.refused(exitUsage, "--from -1h is after --to -2h", "requeue", "orders", "--all", "--from", "-1h", "--to", "-2h")
	if n := w.counts("orders"); n.Ready != 3 || n.Garbage != 1 {
		w.Errorf("counts: %+v", n)
	}

	// A key that another message has taken.
	w.must("purge", "orders", "--whole-queue", "--yes")
	keyed := w.send("orders", "e", delayqueue.WithKey("k"), delayqueue.WithRetryCount(0))
	w.kill("orders", "no", "f")
	w.until("the keyed one is garbage", func() bool { return w.state("orders", keyed) == delayqueue.StateGarbage })
	holder := w.send("orders", "g", delayqueue.WithKey("k"), delayqueue.WithDelay(time.Hour))
	w.refused(exitRefused, holder, "requeue", "orders", keyed)
	t := w.terminal("requeue", "orders", "--all")
	t.ends(exitRefused)
	t.sees("brought back 1 message")
	t.sees("passed over 1 message: another message has its key now")
	w.contains(w.must("ls", "orders", "garbage", "--with-key", "k", "--json"), keyed)
	w.contains(w.must("get", "orders", "k", "--key"), holder, "pending") // the live one
	w.must("cancel", "orders", "k", "--key", "--yes")
	w.contains(w.must("get", "orders", "k", "--key"), keyed, "garbage")
	w.contains(w.must("requeue", "orders", "k", "--key"), "k brought back")
	w.sound("orders")
}

func tellPurge(w *world) {
	dead := w.kill("orders", "no", "a", "b", "c")
	waiting := w.send("orders", "d", delayqueue.WithDelay(time.Hour))
	w.refused(exitUnconfirmed, "Delete all of 3 messages that are garbage", "purge", "orders", "--all")
	w.refused(exitRefused, "is pending", "purge", "orders", waiting, "--yes")
	w.contains(w.must("purge", "orders", dead[1], "--yes"), dead[1]+" deleted (was garbage)")
	t := w.terminal("purge", "orders", "--all")
	t.sees(`Delete 2 messages of queue "orders"?`)
	t.types("y\r")
	t.ends(0)
	t.sees("deleted 2 messages")
	if n := w.counts("orders"); n.Garbage != 0 || n.Pending != 1 {
		w.Errorf("counts: %+v", n)
	}

	q := w.consume("orders", func(context.Context, *delayqueue.Message) error { return nil })
	w.heardOf("orders")
	w.refused(exitRefused, "alive", "purge", "orders", "--whole-queue", "--yes")
	ok(w, q.Shutdown(w.Context()))
	w.refused(exitUsage, "names messages", "purge", "orders", waiting, "--whole-queue", "--yes")
	for _, more := range []string{"--all", "--dry-run", "--most=1", "--before=now", "--rate=1", "--key", "--contains=x"} {
		name, _, _ := strings.Cut(strings.TrimPrefix(more, "--"), "=")
		w.refused(exitUsage, "[whole-queue "+name+"] are set", "purge", "orders", "--whole-queue", "--yes", more)
	}
	t = w.terminal("purge", "orders", "--whole-queue")
	t.sees(`Delete the queue "orders" with all of its 1 message? [y/N]`)
	t.types("y\r")
	t.ends(0)
	w.refused(exitNotFound, `no queue "orders"`, "stats", "orders")
}

func tellPause(w *world) {
	w.send("orders", "a", delayqueue.WithDelay(time.Hour))
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
	if n := w.counts("orders"); !n.PausedUntil.Equal(then) {
		w.Errorf("until %v: %+v", then, n)
	}
	w.contains(w.must("stats", "orders"), "paused until ")
	w.must("pause", "orders", "--operator", "ann", "--reason", "cards are\x1b[31m down")
	w.contains(w.must("stats", "orders"), "paused, by ann: cards are [31m down")
	if s := decode[statsJSON](w, w.must("stats", "orders", "--json"))[0]; s.PausedBy != "ann" ||
		s.PauseReason != "cards are [31m down" || s.PausedSince == nil {
		w.Errorf("stats --json: %+v", s)
	}
	w.contains(w.must("resume", "orders"), "goes on")
	if w.counts("orders").Paused {
		w.Error("paused after resume")
	}
	w.refused(exitNotFound, `did you mean "orders"?`, "pause", "oders")
	w.refused(exitUsage, "is in the past: delayqueue resume ends a pause", "pause", "orders", "--until", "-1h")
}

func tellLimits(w *world) {
	w.send("orders", "a", delayqueue.WithDelay(time.Hour))
	w.contains(w.must("limits", "orders"), "in force: no limit")
	w.contains(w.must("limits", "set", "orders", "--rate", "100/1s", "--concurrency", "5"), "set before: no limit",
		"in force: 100 in 1s, burst 1, 5 at a time")
	w.contains(w.must("limits", "set", "orders", "--rate", "50/1m", "--burst", "10"), "set before: 100 in 1s, burst 1, 5 at a time",
		"in force: 50 in 1m0s, burst 10")
	if out := w.must("limits", "orders", "--json"); !strings.Contains(out, `"in_force":{"rate":50,"per_seconds":60,"burst":10}`) {
		w.Error(out)
	}
	w.contains(w.must("limits", "clear", "orders"), "set before: 50 in 1m0s, burst 10", "in force: no limit")
	w.refused(exitUsage, "say --rate, --concurrency or both", "limits", "set", "orders")
	w.refused(exitUsage, "a burst of 1 to a million", "limits", "set", "orders", "--rate", "100/1s", "--burst", "-2")
	w.refused(exitUsage, "as in 100/1s", "limits", "set", "orders", "--rate", "100")
	if r := w.run("limits", "set", "orders", "--concurrency", "-1"); r.code == 0 || !strings.Contains(r.err, "at least 1 at a time") {
		w.Errorf("%+v", r)
	}
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
	if out := w.must("limits", "lift", "orders", "--json"); strings.Contains(out, "throttled") {
		w.Error(out)
	}
}

func tellConsumers(w *world) {
	w.send("orders", "a")
	w.contains(w.must("consumers", "orders"), "nobody consumes queue orders")
	release := make(chan struct{})
	w.consume("orders", func(ctx context.Context, _ *delayqueue.Message) error {
		select {
		case <-release:
		case <-ctx.Done():
		}
		return errors.New("enough")
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
	all := decode[consumerJSON](w, w.must("consumers", "orders", "--json"))
	if len(all) != 1 || len(all[0].Handling) != 1 || all[0].Handling[0].ID != id || all[0].PID == 0 || all[0].Concurrency != 1 {
		w.Errorf("consumers --json: %+v", all)
	}
	w.contains(w.must("get", "orders", id), "unack", "lease ends", "held by", all[0].ID)
	w.refused(exitRefused, "is unack", "run", "orders", id)
	w.contains(w.must("cancel", "orders", id, "--yes"), "taken out (was unack)")
}

func tellEvents(w *world) {
	p := w.publisher("orders")
	report := p.EnableReport()
	defer report.Stop()
	w.send("orders", "a", delayqueue.WithDelay(time.Hour)) // makes the queue; this publisher does not report
	t := w.terminal("events", "orders")
	t.sees("Ctrl-C ends")
	info, err := p.Send(w.Context(), "b", delayqueue.WithDelay(time.Hour))
	ok(w, err)
	t.sees(info.ID)
	t.sees("new")
	ok(w, errOf(p.Intercept(w.Context(), info.ID)))
	t.sees("intercepted")
	w.must("pause", "orders", "--operator", "ann")
	t.sees("by ann")
	w.must("resume", "orders", "--operator", "bob\x1b[31m")
	t.sees("by bob [31m")
	t.types(ctrlC)
	t.ends(0)

	t = w.terminal("events", "orders", "--json")
	w.until("a message is heard of", func() bool {
		ok(w, errOf(p.Send(w.Context(), "c", delayqueue.WithDelay(time.Hour))))
		return strings.Contains(t.all(), `"event":"new"`)
	})
	t.types(ctrlC)
	t.ends(0)
	line, _, _ := strings.Cut(strings.TrimSpace(t.all()), "\r\n")
	if e := decode[eventJSON](w, line)[0]; e.Event != "new" || e.Count != 1 || len(e.IDs) != 1 {
		w.Errorf("events --json: %+v", e)
	}
}
