package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// decode reads one JSON object a line.
func decode[T any](w *world, text string) []T {
	w.Helper()
	var all []T
	for line := range strings.Lines(text) {
		var one T
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			w.Fatalf("%v in %q", err, line)
		}
		all = append(all, one)
	}
	return all
}

func tellStats(w *world) {
	w.refused(exitNotFound, "no queues under the prefix", "stats")
	w.send("orders", "a", delayqueue.WithDelay(time.Hour))
	w.send("orders", "b", delayqueue.WithDelay(time.Hour))
	w.send("mails", "c")
	w.kill("mails", "no such host", "d") // it takes c along
	out := w.must("stats")
	w.contains(out, "QUEUE", "PENDING", "orders", "mails", "no consumers", "in ")
	if i, j := strings.Index(out, "mails"), strings.Index(out, "orders"); i > j {
		w.Errorf("not in order of name:\n%s", out)
	}
	if got := w.must("queues"); got != "mails\norders\n" && got != "orders\nmails\n" {
		w.Errorf("queues: %q", got)
	}
	all := decode[statsJSON](w, w.must("stats", "orders", "--json"))
	if len(all) != 1 || all[0].Queue != "orders" || all[0].Pending != 2 || all[0].NextDue == nil || all[0].Paused {
		w.Errorf("stats --json: %+v", all)
	}
	if all := decode[map[string]string](w, w.must("queues", "--json")); len(all) != 2 {
		w.Errorf("queues --json: %v", all)
	}

	t := w.terminal("stats")
	t.ends(0)
	w.contains(t.all(), "\x1b[33mno consumers\x1b[0m")
	w.consumeNothing("orders")
	t = w.terminal("stats")
	t.ends(0)
	w.contains(t.all(), "\x1b[32mfine\x1b[0m")
	w.env = []string{"NO_COLOR=1"}
	t = w.terminal("stats")
	t.ends(0)
	w.contains(t.all(), "fine")
	if strings.Contains(t.all(), "\x1b[3") {
		w.Errorf("NO_COLOR, and yet: %q", t.all())
	}
}

func tellWatch(w *world) {
	w.send("orders", "a", delayqueue.WithDelay(time.Hour))
	t := w.terminal("top", "orders", "--interval", "50ms")
	t.sees("Ctrl-C ends")
	ok(w, w.monitor("orders").PauseUntil(w.Context(), time.Now().Add(time.Hour)))
	t.sees("paused until")
	w.consumeNothing("orders")
	ok(w, w.monitor("orders").Resume(w.Context()))
	t.sees("fine")
	if strings.Contains(t.screen.String(), "(in ") {
		w.Errorf("the longer line shows behind the shorter one:\n%s", t.screen.String())
	}
	if screen := t.screen.String(); strings.Count(screen, "QUEUE") != 1 || strings.Count(screen, "orders") != 1 {
		w.Fatalf("not in place:\n%s", screen)
	}
	t.types(ctrlC)
	t.ends(0)
	t.sees("fine") // what was seen last stays
	if !strings.HasSuffix(t.all()[:strings.LastIndex(t.all(), "QUEUE")], mainScreen+"\x1b[2m") {
		w.Errorf("the last frame is not on the main screen: %q", t.all())
	}
	if !t.screen.CursorVisible() {
		w.Error("the cursor is gone")
	}
}

func tellList(w *world) {
	var ids []string
	for i := range 30 {
		ids = append(ids, w.send("orders", fmt.Sprintf("order %d.", i), delayqueue.WithDelay(time.Hour+time.Duration(i)*time.Minute),
			delayqueue.WithHeader("tenant", []string{"acme", "wile"}[i%2])))
	}
	cursor := ""
	var seen []string
	for range 3 {
		r := w.run("ls", "orders", "pending", "--json", "--limit", "10", "--cursor", cursor)
		for _, m := range decode[messageJSON](w, r.out) {
			seen = append(seen, m.ID)
		}
		cursor = cursorOf(r.err)
	}
	if strings.Join(seen, " ") != strings.Join(ids, " ") {
		w.Errorf("pages: %v, want %v", seen, ids)
	}

	// A page with a filter ends with the last one shown, however many were looked at.
	r := w.run("ls", "orders", "pending", "--json", "--limit", "4", "--header", "tenant=wile")
	first := decode[messageJSON](w, r.out)
	cursor = cursorOf(r.err)
	second := decode[messageJSON](w, w.must("ls", "orders", "pending", "--json", "--limit", "100", "--header",
		"tenant=wile", "--cursor", cursor))
	all := append(first, second...)
	if len(first) != 4 || len(all) != 15 {
		w.Fatalf("%d and %d messages of the tenant, want 4 and 11", len(first), len(second))
	}
	for i, m := range all {
		if m.ID != ids[2*i+1] || m.Headers["tenant"] != "wile" || m.State != "pending" {
			w.Errorf("message %d: %+v, want %s", i, m, ids[2*i+1])
		}
	}
	w.contains(w.must("ls", "orders", "pending", "--contains", "order 7."), ids[7], "order 7.", "(in 1h")
	if out := w.must("ls", "orders", "pending", "--from", "65m", "--to", "70m"); strings.Count(out, "order ") != 5 {
		w.Errorf("ls by time:\n%s", out)
	}
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
	id := w.send("orders", "to pay: \xff", delayqueue.WithKey("order-42"), delayqueue.WithDelay(time.Hour),
		delayqueue.WithHeader("tenant", "acme"))
	w.contains(w.must("get", "orders", id), id, "order-42", "pending", "header tenant", "acme", "0 of at most 4")
	got := decode[messageJSON](w, w.must("get", "orders", "order-42", "--key", "--json"))[0]
	if got.ID != id || got.Key != "order-42" || string(got.Base64) != "to pay: \xff" || got.Payload != nil ||
		got.At == nil || !got.At.Equal(got.Due) {
		w.Errorf("get --json: %+v", got)
	}
	if out := w.must("get", "orders", id, "--payload"); out != "to pay: \xff" {
		w.Errorf("get --payload: %q", out)
	}
	dead := w.kill("orders", "card refused", "x")[0]
	w.contains(w.must("get", "orders", dead), "garbage", "card refused", "1 of at most 1", "died")

	twice := w.kill("twice", "card\x1b refused", "x")[0]
	w.must("requeue", "twice", twice)
	w.consume("twice", func(context.Context, *delayqueue.Message) error { return errors.New("no such card") })
	w.until("it died again", func() bool { return w.state("twice", twice) == delayqueue.StateGarbage })
	if out := w.must("get", "twice", twice); !regexp.MustCompile(`last error +no such card\nbefore that +delivery \d+, .* ago\): card.* refused\n`).MatchString(out) || strings.Contains(out, "\x1b") {
		w.Errorf("get: %q", out)
	}
	if got := decode[messageJSON](w, w.must("get", "twice", twice, "--json"))[0].LastErrors; len(got) != 2 ||
		got[0].Error != "no such card" || got[1].Delivery < 1 || got[1].At == nil {
		w.Errorf("get --json: %+v", got)
	}

	done := strings.Fields(w.must("send", "reports", "june", "--keep", "1h", "--create"))[0]
	w.contains(w.must("get", "reports", done), "kept for", "1h")
	w.consume("reports", func(ctx context.Context, m *delayqueue.Message) error {
		return delayqueue.SetResult(ctx, "30 pages\xff")
	})
	w.until("a message is done", func() bool { return w.state("reports", done) == delayqueue.StateDone })
	w.contains(w.must("get", "reports", done), "done", "kept until", "30 pages")
	if kept := decode[messageJSON](w, w.must("get", "reports", done, "--json"))[0]; kept.State != "done" ||
		string(kept.Result64) != "30 pages\xff" || kept.EndedAt == nil || kept.Retention != 3600 {
		w.Errorf("get --json: %+v", kept)
	}
	if out := w.must("get", "reports", done, "--result"); out != "30 pages\xff" {
		w.Errorf("get --result: %q", out)
	}
	w.contains(w.must("ls", "reports", "done"), done, "KEPT UNTIL", "june")
	w.contains(w.must("stats", "reports"), "DONE")
	if s := decode[statsJSON](w, w.must("stats", "reports", "--json"))[0]; s.Done != 1 {
		w.Errorf("stats --json: %+v", s)
	}
	w.refused(exitRefused, "is pending: only what is done has a result", "get", "orders", id, "--result")
	w.refused(exitRefused, "is done", "run", "reports", done)
	w.contains(w.must("cancel", "reports", "--all", "--state", "done", "--yes"), "deleted 1 message")

	w.refused(exitNotFound, "an id is a UUID", "get", "orders", "42")
	w.refused(exitNotFound, "it was handled, taken back or deleted", "get", "orders", "01890000-0000-7000-8000-000000000000")
	w.refused(exitNotFound, "is the key of message "+id, "get", "orders", "order-42")
	w.refused(exitNotFound, `has the key "oder-42": did you mean "order-42"?`, "get", "orders", "oder-42", "--key")
	w.refused(exitNotFound, `no dead message of queue "orders" has the key "order-42": that of message `+id+", which is pending", "requeue",
		"orders", "order-42", "--key")
	w.must("purge", "orders", "--all", "--yes")
	buried := w.send("orders", "x", delayqueue.WithKey("order-43"), delayqueue.WithRetryCount(0))
	w.kill("orders", "card refused", "y")
	w.until("message is garbage", func() bool { return w.state("orders", buried) == delayqueue.StateGarbage })
	w.refused(exitNotFound, `no live message of queue "orders" has the key "order-43": that of message `+buried+", which is garbage", "run",
		"orders", "order-43", "--key")
	if full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0); err == nil { // of Linux
		for _, args := range [][]string{{"get", "orders", id, "--payload"}, {"get", "orders", id, "--json"}, {"get", "orders", id}, {"stats"}} {
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
	id := w.send("orders", evil, delayqueue.WithDelay(time.Hour), delayqueue.WithKey("k\x1b[31m"), delayqueue.WithHeader("h\x1b[31m", evil))
	for _, args := range [][]string{{"get", "orders", id}, {"ls", "orders", "pending"}} {
		t := w.terminal(args...)
		t.ends(0)
		if raw := t.all(); strings.Contains(raw, "\x1b]0") || strings.Contains(raw, "\x1b[2J") || strings.Contains(raw, "\x1b[31m") ||
			!strings.Contains(raw, "load") {
			w.Errorf("%q: %q", args, raw)
		}
	}
}

func tellHistory(w *world) {
	w.send("orders", "a", delayqueue.WithDelay(time.Hour))
	w.kill("orders", "no", "b", "c")
	w.contains(w.must("history", "orders"), "SINCE", "SENT", "FAILED")
	hours := decode[map[string]any](w, w.must("history", "orders", "--json", "--last", "48"))
	now, before := hours[47], hours[46] // the hour may have ended meanwhile
	sum := func(what string) float64 { return now[what].(float64) + before[what].(float64) }
	if len(hours) != 48 || sum("sent") != 3 || sum("garbage") != 2 || sum("failed") != 2 {
		w.Errorf("history --json: %d, %v %v", len(hours), before, now)
	}
	if days := decode[map[string]any](w, w.must("history", "orders", "--json", "--days", "--last", "7")); len(days) != 7 {
		w.Errorf("%d days, want 7", len(days))
	}
	w.refused(exitUsage, "from 1 to 30", "history", "orders", "--days", "--last", "31")
}
