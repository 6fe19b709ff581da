package main

import (
	"context"
	"errors"
	"regexp"
	"strings"

	"github.com/go-delayqueue/delayqueue"
)

// What a message, the next one of a lane, and all of a customer wait for.
func tellWhy(w *world) {
	w.refused(exitNotFound, "no queue", "why", "orders", "k")
	a := w.send("orders", "a", delayqueue.WithLane("customer-42"), delayqueue.WithRetryCount(3))
	b := w.send("orders", "b", delayqueue.WithLane("customer-42"), delayqueue.WithKey("k"),
		delayqueue.WithHeader("customer", "42"))
	w.send("orders", "c", inAnHour, delayqueue.WithHeader("customer", "42"))
	w.must("pause", "orders", "--operator", "ada", "--reason", "a deploy")
	out := w.must("why", "orders", "k")
	w.contains(out, " (key k), waiting:\n   due ", "\n   delayqueue resume orders")
	w.inOrder(strings.Join(strings.Fields(out), " "), "The queue is paused since ", "(ada: a deploy).",
		"To end the pause: delayqueue", "No consumer of the queue is alive.", "message "+a+" is in front, and is due, too.")
	for line := range strings.Lines(out) {
		if len(line) > 81 && !strings.HasPrefix(line, "   delayqueue ") {
			w.Errorf("a line of %d: %s", len(line)-1, line)
		}
	}
	w.must("resume", "orders")
	w.consume("orders", func(context.Context, *delayqueue.Message) error { return errors.New("boom") })
	w.reaches("orders", a, delayqueue.StateRetry)
	w.heardOf("orders")
	got := decode[whyJSON](w, w.must("why", "orders", "--lane", "customer-42", "--json"))[0].Causes[0]
	if got.Code != "lane" || got.Message != a || got.Until == nil || got.Since == nil ||
		!strings.Contains(got.Text, "Its next try is delivery 2 at") || !strings.Contains(got.Remedy, "lanes skip") {
		w.Errorf("%+v", got)
	}
	out = w.must("why", "orders", "k")
	skip := regexp.MustCompile(`(?m)^   (delayqueue lanes skip orders ` + a + ` --end.*)$`).FindStringSubmatch(out)
	w.inOrder(strings.Join(strings.Fields(out), " "), "It has failed 1 of at most 4 times, the last time with: boom.",
		"until a message in front succeeds, is given up or is skipped. To let the next one pass: delayqueue lanes skip",
		" --end", " --garbage")
	w.lacks(out, "SkipTo", "Since", " it waits for delivery")
	if skip == nil {
		w.Errorf("no command to copy: %s", out)
	}
	w.inOrder(w.must("why", "orders", "--header", "customer=42"), "1 message: lane", "for example "+b,
		"1 message: instant", "It is not due before")
	equal(w, "groups", len(decode[whyGroupJSON](w, w.must("why", "orders", "--header", "customer=42", "--json"))), 2)
	w.contains(w.must("why", "orders", "--header", "customer=4"), "has this header")
	w.must("lanes", "skip", "orders", a, "--garbage", "--yes")
	w.reaches("orders", b, delayqueue.StateRetry)
	w.contains(w.must("why", "orders", a), "given up on", "delayqueue requeue")
	total := w.send("orders", "t", inAnHour, delayqueue.WithKey("total"), delayqueue.WithCountdown(2))
	row := w.send("orders", "r", delayqueue.WithKey("row-1"), delayqueue.WithCounts("total"), delayqueue.WithRetryCount(0))
	w.reaches("orders", row, delayqueue.StateGarbage)
	w.inOrder(strings.Join(strings.Fields(w.must("why", "orders", "total")), " "),
		"Dead messages that count for it: 1; the last of them: row-1.", " delayqueue requeue orders "+row,
		" delayqueue run orders "+total)
	got = decode[whyJSON](w, w.must("why", "orders", "total", "--json"))[0].Causes[0]
	equal(w, "dead", strings.Join(got.Dead, " "), row)
	w.refused(exitUsage, "name one of these", "why", "orders")
	w.refused(exitUsage, "name one of these", "why", "orders", a, "--lane", "l")
	w.refused(exitNotFound, "it was handled", "why", "orders", "0190f3a0-0000-7000-8000-000000000001")
	w.refused(exitNotFound, "has the key", "why", "orders", "nobody")
	w.refused(exitNotFound, "lane", "why", "orders", "--lane", "nobody")
	w.sound("orders")
}
