package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

func tellStats(w *world) {
	w.refused(exitNotFound, "no queues under the prefix", "stats")
	w.send("orders", "a", inAnHour)
	w.send("orders", "b", inAnHour)
	w.send("mails", "c")
	w.kill("mails", "no such host", "d") // it takes c along
	out := w.must("stats")
	w.contains(out, "QUEUE", "PENDING", "orders", "mails", "no consumers", "in ")
	w.inOrder(out, "mails", "orders", "2 queues: 1 critical (mails), 1 notice\n"+
		"No loss is known. The books of each queue go back to 20")
	w.contains(w.must("queues"), "mails\n", "orders\n")
	w.contains(w.must("stats", "orders", "--json"), `{"queue":"orders","pending":2,`, `"next_due":"2`, `"paused":false`)
	equal(w, "queues --json", len(decode[map[string]string](w, w.must("queues", "--json"))), 2)

	shown := func(args ...string) string {
		t := w.terminal(append([]string{"stats"}, args...)...)
		t.ends(0)
		return t.all()
	}
	w.contains(shown(), "mno consumers; the first message is due at ")
	w.handled("orders")
	w.contains(shown("orders"), "\x1b[32mfine\x1b[0m")
	w.env = []string{"NO_COLOR=1"}
	plain := shown("orders")
	w.contains(plain, "fine")
	w.lacks(plain, "\x1b[3")
	all := shown()
	w.contains(all, "2 queues: 1 critical (mails), 1 fine (not shown)")
	w.lacks(all, "orders")
	w.contains(w.must("stats"), "orders") // nobody is to find a name missing in a pipe

	w.send("zebras", "e", inAnHour) // the worst is the last by name
	ok(w, w.cli.HDel(w.Context(), "{"+w.prefix+":zebras}:msg",
		w.cli.HKeys(w.Context(), "{"+w.prefix+":zebras}:msg").Val()...).Err())
	w.inOrder(w.must("stats"), "\nzebras", "\nmails", "3 queues: 2 critical (zebras, mails), 1 fine\n",
		"lost: at most 1 message in 1 queue: zebras (delayqueue doctor QUEUE)\n")
}

func tellWatch(w *world) {
	w.send("orders", "a", inAnHour)
	t := w.terminal("top", "orders", "--interval", "50ms")
	t.sees("q quits")
	ok(w, w.monitor("orders").PauseUntil(w.Context(), time.Now().Add(time.Hour)))
	t.sees("paused until")
	w.handled("orders")
	ok(w, w.monitor("orders").Resume(w.Context()))
	t.sees("fine")
	w.lacks(t.screen.String(), "(in ") // the longer line, behind the shorter one
	equal(w, "headers on the screen", strings.Count(t.screen.String(), "QUEUE"), 1)
	equal(w, "queues on the screen", strings.Count(t.screen.String(), "orders"), 1)
	t.interrupted(0)
	t.sees("fine") // what was seen last stays
	if !strings.HasSuffix(t.all()[:strings.LastIndex(t.all(), "QUEUE")], mainScreen+"\x1b[2m") {
		w.Errorf("the last frame is not on the main screen: %q", t.all())
	}
	equal(w, "the cursor is visible", t.screen.CursorVisible(), true)
}

func tellList(w *world) {
	var ids, wile []string
	for i := range 30 {
		tenant := []string{"acme", "wile"}[i%2]
		ids = append(ids,
			w.send("orders", fmt.Sprintf("order %d.", i), delayqueue.WithDelay(time.Hour+time.Duration(i)*time.Minute),
				delayqueue.WithHeader("tenant", tenant)))
		if tenant == "wile" {
			wile = append(wile, ids[i])
		}
	}
	pages := func(limit int, args ...string) (seen []string) {
		for cursor, more := "", true; more; more = cursor != "" {
			r := w.run(append([]string{"ls", "orders", "pending", "--json", "--limit", fmt.Sprint(limit), "--cursor", cursor},
				args...)...)
			page := decode[messageJSON](w, r.out)
			for _, m := range page {
				seen = append(seen, m.ID)
			}
			if cursor = cursorOf(r.err); cursor != "" && len(page) != limit {
				w.Errorf("a page has %d messages, want %d", len(page), limit)
			}
		}
		return seen
	}
	equal(w, "pages", pages(10), ids)
	equal(w, "pages with a filter, which end with the last one shown", pages(4, "--header", "tenant=wile"), wile)
	w.contains(w.must("ls", "orders", "pending", "--contains", "order 7."), ids[7], "order 7.", "(in 1h")
	equal(w, "messages of five minutes", strings.Count(w.must("ls", "orders", "pending", "--from", "65m", "--to", "70m"),
		"order "), 5)
	w.refused(exitUsage, `did you mean "pending"?`, "ls", "orders", "pendig")
	w.refused(exitUsage, "bad cursor", "ls", "orders", "pending", "--cursor", "x")
	w.refused(exitUsage, `"soon" is no time`, "ls", "orders", "pending", "--from", "soon")
	w.refused(exitUsage, "Usage: delayqueue ls QUEUE STATE [flags]", "ls", "orders")
	w.refused(exitUsage, "Usage: delayqueue limits clear QUEUE [flags]", "limits", "clear")
}

// cursorOf is what ls says to go on with.
func cursorOf(text string) string {
	_, rest, _ := strings.Cut(text, "--cursor ")
	return strings.Trim(strings.TrimSpace(rest), "'")
}

func tellGet(w *world) {
	id := w.send("orders", "to pay: \xff", delayqueue.WithKey("order-42"), inAnHour,
		delayqueue.WithHeader("tenant", "acme"))
	w.contains(w.must("get", "orders", id), id, "order-42", "pending", "header tenant", "acme", "0 of at most 4")
	got := decode[messageJSON](w, w.must("get", "orders", "order-42", "--key", "--json"))[0]
	if got.ID != id || got.Key != "order-42" || string(got.Base64) != "to pay: \xff" || got.Payload != nil ||
		got.At == nil || !got.At.Equal(got.Due) {
		w.Errorf("get --json: %+v", got)
	}
	const most = 1 << 18
	long := w.send("orders", strings.Repeat("x", most), inAnHour)
	if out := w.must("get", "orders", long); len(out) > 5000 {
		w.Errorf("get prints %d bytes of a long payload", len(out))
	}
	w.contains(w.must("get", "orders", long), "… 258,048 bytes more: --payload or --json prints all")
	equal(w, "all of a long payload", len(w.must("get", "orders", long, "--payload")), most)
	w.must("cancel", "orders", long, "--yes")
	equal(w, "get --payload", w.must("get", "orders", id, "--payload"), "to pay: \xff")
	dead := w.kill("orders", "card refused", "x")[0]
	w.contains(w.must("get", "orders", dead), "garbage", "card refused", "1 of at most 1", "died")

	twice := w.kill("twice", "card\x1b refused", "x")[0]
	w.must("requeue", "twice", twice)
	w.consume("twice", func(context.Context, *delayqueue.Message) error { return errors.New("no such card") })
	w.reaches("twice", twice, delayqueue.StateGarbage)
	w.inOrder(w.must("get", "twice", twice), "last error", "no such card\nbefore that", "delivery", " ago): card",
		" refused\n")
	w.inOrder(w.must("get", "twice", twice, "--json"), `"last_errors":[{"at":"`, `"error":"no such card"},{"at":"`,
		`"delivery":`, "refused")
	done := w.sends("reports", "june", "--keep", "1h", "--create")
	w.contains(w.must("get", "reports", done), "kept for", "1h")
	w.consume("reports", func(ctx context.Context, m *delayqueue.Message) error {
		return delayqueue.SetResult(ctx, "30 pages\xff")
	})
	w.reaches("reports", done, delayqueue.StateDone)
	w.contains(w.must("get", "reports", done), "done", "kept until", "30 pages")
	w.contains(w.must("get", "reports", done, "--json"), `"state":"done"`, `"result_base64":"MzAgcGFnZXP/"`,
		`"ended_at":"`, `"retention_seconds":3600`)
	equal(w, "get --result", w.must("get", "reports", done, "--result"), "30 pages\xff")
	w.contains(w.must("ls", "reports", "done"), done, "KEPT UNTIL", "june")
	w.contains(w.must("stats", "reports"), "DONE")
	w.contains(w.must("stats", "reports", "--json"), `"done":1,`)
	w.refused(exitRefused, "is pending: only what is done has a result", "get", "orders", id, "--result")
	w.refused(exitRefused, "is done", "run", "reports", done)
	w.contains(w.must("cancel", "reports", "--all", "--state", "done", "--yes"), "canceled 1 message")

	w.refused(exitNotFound, `has the key "42": delayqueue find orders 42 `, "get", "orders", "42")
	w.refused(exitNotFound, "0000-7000-8000-000000000001; delayqueue find orders 42 ", "run", "orders", "42")
	w.refused(exitNotFound, "it was handled, taken back or deleted", "get", "orders",
		"01890000-0000-7000-8000-000000000000")
	w.contains(w.must("get", "orders", "order-42"), id)
	w.refused(exitNotFound, "is the key of message "+id, "run", "orders", "order-42")
	w.refused(exitNotFound, `has the key "oder-42": did you mean "order-42"?`, "get", "orders", "oder-42", "--key")
	w.refused(exitNotFound, `no dead message of queue "orders" has the key "order-42": that of message `+id+
		", which is pending", "requeue",
		"orders", "order-42", "--key")
	w.must("delete", "orders", "--all", "--yes")
	buried := w.send("orders", "x", delayqueue.WithKey("order-43"), delayqueue.WithRetryCount(0))
	w.kill("orders", "card refused", "y")
	w.reaches("orders", buried, delayqueue.StateGarbage)
	w.refused(exitNotFound, `no live message of queue "orders" has the key "order-43": that of message `+buried+
		", which is garbage", "run",
		"orders", "order-43", "--key")
	if full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0); err == nil { // of Linux
		for _, args := range [][]string{{"get", "orders", id, "--payload"}, {"get", "orders", id, "--json"},
			{"get", "orders", id}, {"stats"}} {
			cmd := w.command(args...)
			cmd.Stdout = full
			if _ = cmd.Run(); cmd.ProcessState.ExitCode() != exitFailed {
				w.Errorf("%q onto a full disk: exit code %d", args, cmd.ProcessState.ExitCode())
			}
		}
		_ = full.Close()
	}
	w.refused(exitNotFound, `no queue "ordres"`, "get", "ordres", id)
	w.refused(exitNotFound, `did you mean "orders"?`, "stats", "ordres")
}

// What others wrote cannot steer the terminal.
func tellHostile(w *world) {
	evil := "\x1b]0;owned\a\x1b[2Jpay\nload"
	id := w.send("orders", evil, inAnHour, delayqueue.WithKey("k\x1b[31m"), delayqueue.WithHeader("h\x1b[31m", evil))
	for _, args := range [][]string{{"get", "orders", id}, {"ls", "orders", "pending"}} {
		t := w.terminal(args...)
		t.ends(0)
		w.contains(t.all(), "load")
		w.lacks(t.all(), "\x1b]0", "\x1b[2J", "\x1b[31m")
	}
}

func tellForecast(w *world) {
	w.refused(exitNotFound, "no queue", "forecast", "orders")
	begin := time.Now().UTC().Truncate(24 * time.Hour).Add(72 * time.Hour) // 0:00, more than 47 hours from now
	for _, after := range []time.Duration{-time.Hour, 18 * time.Hour, 18*time.Hour + 59*time.Minute, 20 * time.Hour,
		24 * time.Hour} {
		w.send("orders", "a", delayqueue.WithSchedule(begin.Add(after)))
	}
	w.send("orders", "due")
	at := func(after time.Duration) string { return begin.Add(after).Format("2006-01-02 15:04") }
	r := w.exits(0, "forecast", "orders", "--from", at(17*time.Hour+30*time.Minute), "--to", at(24*time.Hour))
	r.says("17:30:00 to ", ": 3 messages; before: 2; after: 1\n")
	w.inOrder(r.out, "FROM", "17:30:00    0", "18:00:00    1", "18:30:00    1", "20:00:00    1", "23:30:00    0")
	spans := decode[dueJSON](w, w.must("forecast", "orders", "--from", at(12*time.Hour), "--to", at(60*time.Hour),
		"--json"))
	var sum int64
	for i, one := range spans {
		sum += one.Pending
		if i > 0 && !one.Start.Equal(spans[i-1].End) {
			w.Errorf("%v begins after %v", one.Start, spans[i-1].End)
		}
	}
	if len(spans) != 24 || sum != 4 || !spans[23].End.Equal(begin.Add(60*time.Hour)) {
		w.Errorf("%d spans with %d messages, the last until %v", len(spans), sum, spans[len(spans)-1].End)
	}
	w.exits(0, "forecast", "orders").says(": 0 messages; before: 1; after: 5")
	w.refused(exitUsage, "is not before", "forecast", "orders", "--from", "2h", "--to", "1h")
}

func tellHistory(w *world) {
	w.send("orders", "a", inAnHour)
	w.kill("orders", "no", "b", "c")
	w.contains(w.must("history", "orders"), "SINCE", "SENT", "FAILED")
	equal(w, "lines, also of hours without data", strings.Count(w.must("history", "orders", "-l", "9"), "\n"), 1+9)
	t := w.terminal("history", "orders")
	t.ends(0)
	if lines := strings.Count(t.all(), "\n"); lines < 2 || lines > 3 { // the hour may have ended meanwhile
		w.Errorf("%d lines, with hours in which nothing had happened yet", lines)
	}
	hours := decode[map[string]any](w, w.must("history", "orders", "--json", "--last", "48"))
	now, before := hours[47], hours[46] // the hour may have ended meanwhile
	sum := func(what string) float64 { return now[what].(float64) + before[what].(float64) }
	if len(hours) != 48 || sum("sent") != 3 || sum("garbage") != 2 || sum("failed") != 2 {
		w.Errorf("history --json: %d, %v %v", len(hours), before, now)
	}
	equal(w, "days", strings.Count(w.must("history", "orders", "--json", "--days", "--last", "7"), "\n"), 7)
	w.refused(exitUsage, "from 1 to 30", "history", "orders", "--days", "--last", "31")
}
