package main

import (
	"slices"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// lease hands out messages that wait in pending, or are no more.
func (w *world) lease(name string, end time.Time, tags ...string) {
	w.Helper()
	for _, tag := range tags {
		w.do("ZREM", "pending", tag)
	}
	w.do("ZADD", "unack", end.UnixMicro(), name)
	w.do("HSET", "lease", name, strings.Join(tags, " "), name+"#", len(tags))
}

// Leases that are not whole are mended, and what they held comes back. What a lease holds is left alone.
func tellDoctorLeases(w *world) {
	var ids []string
	for range 5 {
		ids = append(ids, w.send("orders", "a"))
	}
	end := time.Now().Add(time.Hour)
	w.lease("c:1", end, ids[0], nobody, ids[1])
	w.do("HSET", "fail", ids[1], "2 0 0 5 ") // lost in its second delivery
	w.lease("c:2", end, ids[2])
	w.do("HDEL", "lease", "c:2")
	w.lease("c:3", end, ids[3])
	w.do("ZREM", "unack", "c:3")
	w.lease("c:4~", end, ids[4])
	w.do("HSET", "lease", "c:4~#", "x")

	r := w.run("doctor", "orders")
	w.contains(r.out, "no place (3)", "lost lease (1)", "stray lease (1)", "wrong count (1)")
	r = w.run("doctor", "orders", "--repair", "--yes")
	w.contains(r.out, "drop from unack: c:2", "delete from lease: c:3", "bring back message ", "repaired 5 things", "1 finding left")
	w.do("HSET", "lease", "c:4~#", "1")
	s := w.sound("orders")
	for i, want := range []string{"unack", "retry", "retry", "retry", "unack"} {
		if got := s.Where(ids[i]); got != want {
			w.Errorf("message %d is in %s, want %s:\n%s", i, got, want, s.Dump())
		}
	}
	if len(s.Leases) != 2 || s.Fail[ids[1]].Delivery != 3 || s.Fail[ids[2]].Delivery != 2 {
		w.Errorf("leases %v, records %v", s.Leases, s.Fail)
	}

	// What is not wrong any more stays as it is.
	words, err := script.NewStore(w.cli, w.prefix, "orders").Repair(w.Context(), []script.Flaw{{What: "unack", Item: "c:1"},
		{What: "unack", Item: "c:2"}, {What: "lease", Item: "c:1"}, {What: "lease", Item: "c:4~#"}, {What: "lease", Item: "c:3"},
		{What: "place", Item: ids[0]}, {What: "place", Item: ids[1]}, {What: "place", Item: ids[4]}, {What: "place", Item: nobody}})
	if err != nil || slices.ContainsFunc(words, func(word string) bool { return word != "sound" }) {
		w.Errorf("%q, %v", words, err)
	}
	if after := w.sound("orders"); after.Where(ids[0]) != "unack" || len(after.Leases) != 2 || len(after.Retry) != 3 {
		w.Errorf("it was touched:\n%s", after.Dump())
	}
}

// Messages that another program has deleted are missing in the books, until somebody accepts that, whose name the journal has.
func tellDoctorBooks(w *world) {
	var ids []any
	for range 12 {
		ids = append(ids, w.send("orders", "a", delayqueue.WithDelay(time.Hour)))
	}
	r := w.run("doctor", "orders")
	w.contains(r.out, "they balance", "entered     12  12 sent", "left         0", "here        12")
	w.do("HDEL", "msg", ids[:5]...)
	w.do("ZREM", "pending", ids[:5]...)

	w.contains(w.run("stats", "orders").out, "messages have vanished without a word: 5")
	w.contains(w.run("stats", "orders", "--json").out, `"unaccounted":5`)
	r = w.run("doctor", "orders")
	w.contains(r.out, "they do not balance", "unaccounted  5", "books do not balance (1)", "books: 5 messages vanished without a word")
	w.contains(w.run("doctor", "orders", "--json").out, `"unaccounted":5`, `"sent":12`)
	r = w.run("doctor", "orders", "--repair", "--yes", "--operator", "ann")
	w.contains(r.out, "accept in the books: 5 messages vanished without a word", "repaired 1 thing", "accepted in the books: 5 messages vanished without a word", "the queue is sound now")
	r = w.run("doctor", "orders")
	w.contains(r.out, "they balance", "left         5  5 written off")
	w.contains(w.run("journal", "orders").out, "accept balance", "missing", "5", "ann")
}
