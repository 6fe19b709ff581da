package main

import (
	"context"
	"errors"
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
	w.inOrder(out, b+" (key k), waiting:", "The queue is paused (ada: a deploy).",
		"delayqueue resume", "No consumer of the queue is alive.", "message "+a, "in front,", "and is due, too.")
	for line := range strings.Lines(out) {
		if len(line) > 81 {
			w.Errorf("a line of %d: %s", len(line)-1, line)
		}
	}
	w.must("resume", "orders")
	w.consume("orders", func(context.Context, *delayqueue.Message) error { return errors.New("boom") })
	w.reaches("orders", a, delayqueue.StateRetry)
	w.heardOf("orders")
	got := decode[whyJSON](w, w.must("why", "orders", "--lane", "customer-42", "--json"))[0].Causes[0]
	if got.Code != "lane" || got.Message != a || got.Until == nil || got.Since == nil ||
		!strings.Contains(got.Text, "waits for delivery 2 until") || !strings.Contains(got.Remedy, "lanes skip") {
		w.Errorf("%+v", got)
	}
	w.inOrder(w.must("why", "orders", "--header", "customer=42"), "1 message: lane", "for example "+b,
		"1 message: instant", "It is not due before")
	equal(w, "groups", len(decode[whyGroupJSON](w, w.must("why", "orders", "--header", "customer=42", "--json"))), 2)
	w.contains(w.must("why", "orders", "--header", "customer=4"), "has this header")
	w.must("lanes", "skip", "orders", a, "--garbage", "--yes")
	w.reaches("orders", b, delayqueue.StateRetry)
	w.contains(w.must("why", "orders", a), "given up on", "delayqueue requeue")
	w.refused(exitUsage, "name one of these", "why", "orders")
	w.refused(exitUsage, "name one of these", "why", "orders", a, "--lane", "l")
	w.refused(exitNotFound, "it was handled", "why", "orders", "0190f3a0-0000-7000-8000-000000000001")
	w.refused(exitNotFound, "has the key", "why", "orders", "nobody")
	w.refused(exitNotFound, "lane", "why", "orders", "--lane", "nobody")
	w.sound("orders")
}
