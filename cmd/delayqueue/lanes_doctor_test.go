package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// inLane sends n messages of a lane that are due in an hour, one after the other.
func (w *world) inLane(lane string, n int, width ...int) (ids []string) {
	w.Helper()
	for i := range n {
		ids = append(ids, w.send("orders", fmt.Sprint(lane, i), delayqueue.WithLane(lane, width...), delayqueue.WithDelay(time.Hour)))
	}
	return ids
}

// memberOf is the member of lanes that a message has.
func (w *world) memberOf(id string) string {
	w.Helper()
	for _, m := range w.read().Lanes {
		if m.Tag.ID == id {
			return m.Member
		}
	}
	w.Fatalf("%s is in no lane", id)
	return ""
}

// hasTurn wants this message to have the turn of its lane, and these to wait behind it in this order.
func (w *world) hasTurn(s *check.State, turn string, waits ...string) {
	w.Helper()
	lane, got, behind := s.Messages[turn].Lane.Name, "", []string(nil)
	for _, m := range s.Lanes {
		if m.Lane == lane && !m.Waits {
			got += m.Tag.ID
		} else if m.Lane == lane {
			behind = append(behind, m.Tag.ID)
		}
	}
	if got != turn || !slices.Equal(behind, waits) || len(waits) > 0 && s.Where(waits[0]) != "waiting" {
		w.Errorf("lane %q has the turn of %s, and %v behind it; want %s and %v", lane, got, behind, turn, waits)
	}
}

// What another program did to lanes is found and mended, also if the messages of a lane are gone or in no structure.
func tellDoctorLanes(w *world) {
	gone, lost, orphan, away := w.inLane("gone", 3), w.inLane("lost", 2), w.inLane("orphan", 3), w.inLane("away", 2)
	idle, wide, taken := w.inLane("idle", 2), w.inLane("wide", 3, 3), w.inLane("taken", 2)
	plain := w.send("orders", "plain", delayqueue.WithDelay(time.Hour))
	w.contains(w.must("doctor", "orders"), "nothing is wrong")

	w.do("HDEL", "msg", gone[0], gone[1])              // what has the turn, and one that waits
	w.do("ZREM", "lanes", w.memberOf(lost[0]))         // a turn
	w.do("ZREM", "lanes", w.memberOf(orphan[1]))       // what waits
	w.do("ZREM", "pending", away[0])                   // what has a turn is in no structure
	w.do("ZREM", "waiting", away[1])                   // what waits is in no structure
	w.do("ZREM", "lanes", w.memberOf(idle[0]))         // a turn of what is gone
	w.do("ZREM", "pending", idle[0])                   //
	w.do("HDEL", "msg", idle[0])                       //
	w.do("ZADD", "lanes", "inf", w.memberOf(taken[0])) // which hides lanes behind it
	due := w.read().Messages[plain].Due
	w.do("ZREM", "pending", plain)
	w.do("ZADD", "waiting", due, plain)
	w.do("ZADD", "lanes", 0, "junk", 0, "wide\x00\x00003"+nobody)
	r := w.run("doctor", "orders")
	w.contains(r.out, "stray lane member (6)", "not in its lane (4)", "wrong lane (4)", "no envelope (2)", "no place (2)", "--repair mends it")
	if r.code != exitUnsound {
		w.Errorf("exit code %d, want %d", r.code, exitUnsound)
	}
	r = w.run("doctor", "orders", "--repair", "--yes")
	w.contains(r.out, "drop from waiting: "+gone[1], "put into its lane message "+lost[0], "give turns right in lane idle",
		"bring back message "+away[0], "the queue is sound now")
	s := w.sound("orders")
	w.hasTurn(s, gone[2])
	w.hasTurn(s, lost[0], lost[1])
	w.hasTurn(s, orphan[0], orphan[1], orphan[2])
	w.hasTurn(s, away[0], away[1])
	w.hasTurn(s, idle[1])
	w.hasTurn(s, taken[0], taken[1])
	for id, want := range map[string]string{plain: "pending", away[0]: "retry", away[1]: "waiting", wide[2]: "pending", lost[0]: "pending"} {
		if got := s.Where(id); got != want {
			w.Errorf("%s is in %s, want %s", id, got, want)
		}
	}
	if len(s.Lanes) != 14 || len(s.Messages) != 15 {
		w.Errorf("%d members of lanes, %d messages:\n%s", len(s.Lanes), len(s.Messages), s.Dump())
	}

	// What is not wrong any more stays as it is.
	var flaws []script.Flaw
	for _, m := range s.Lanes {
		flaws = append(flaws, script.Flaw{What: "member", Item: m.Member}, script.Flaw{What: "laned", Item: m.Tag.ID},
			script.Flaw{What: "lane", Item: m.Lane},
			script.Flaw{What: "waiting", Item: m.Tag.Tag}, script.Flaw{What: "place", Item: m.Tag.ID})
	}
	for _, item := range []string{"", "x", "x\x00", "x\x00\x00001", nobody} {
		flaws = append(flaws, script.Flaw{What: "member", Item: item}, script.Flaw{What: "laned", Item: item},
			script.Flaw{What: "lane", Item: item})
	}
	words, err := script.NewStore(w.cli, w.prefix, "orders").Repair(w.Context(), flaws)
	if err != nil || slices.ContainsFunc(words, func(word string) bool { return word != "sound" }) {
		w.Errorf("%q, %v", words, err)
	}
	after := w.sound("orders")
	if !slices.Equal(after.Lanes, s.Lanes) || !slices.Equal(after.Waiting, s.Waiting) || !slices.Equal(after.Pending, s.Pending) {
		w.Errorf("it was touched:\n%s", after.Dump())
	}
	w.turnsThatAreTooMany()
}

// If the lanes to be mended need more turns than one call gives, doctor makes more calls.
func tellRepairInSteps(w *world) {
	const lanes, width = 4, 100
	for l := range lanes {
		batch := make([]delayqueue.Outgoing, 2*width)
		for i := range batch {
			batch[i].Options = []delayqueue.MsgOption{delayqueue.WithLane(fmt.Sprint("l", l), width), delayqueue.WithDelay(time.Hour)}
		}
		_, err := w.publisher("orders").SendBatch(w.Context(), batch)
		ok(w, err)
	}
	for _, m := range w.read().Lanes { // all that have turns are deleted
		if !m.Waits {
			w.do("ZREM", "lanes", m.Member)
			w.do("ZREM", "pending", m.Tag.ID)
			w.do("HDEL", "msg", m.Tag.ID)
		}
	}
	w.contains(w.run("doctor", "orders", "--repair", "--yes").out, "repaired 5 things", "the queue is sound now")
	if s := w.sound("orders"); len(s.Pending) != lanes*width {
		w.Errorf("%d have turns", len(s.Pending))
	}
}

// turnsThatAreTooMany: of turns that are too many those go that have not begun, and what is held or ready has a turn although the lane is
// full.
func (w *world) turnsThatAreTooMany() {
	full := w.inLane("full", 4, 2)
	w.do("ZREM", "lanes", w.memberOf(full[2]))
	w.do("ZREM", "waiting", full[2])
	w.lease("c:1", time.Now().Add(time.Hour), full[2]) // as if a fetch had handed it out
	w.contains(w.run("doctor", "orders").out, "not in its lane (1)")
	w.contains(w.run("doctor", "orders", "--repair", "--yes").out, "put into its lane message "+full[2], "1 finding left")
	w.contains(w.run("doctor", "orders").out, `wrong lane (1)`, `lane "full" has 3 turns, want at most 2`)
	w.contains(w.must("doctor", "orders", "--repair", "--yes"), "give turns right in lane full", "the queue is sound now")
	s := w.sound("orders")
	for i, want := range []string{"pending", "waiting", "unack", "waiting"} {
		if got := s.Where(full[i]); got != want {
			w.Errorf("message %d of the full lane is in %s, want %s", i, got, want)
		}
	}
}

// While messages wait, get turns, fail and end, nothing is wrong, and what is wrong is mended with lanes in order.
func tellDoctorBusyLanes(w *world) {
	const lanes, each = 40, 60
	var batch []delayqueue.Outgoing
	for i := range each {
		for lane := range lanes {
			batch = append(batch, delayqueue.Outgoing{Payload: strconv.Itoa(i), Options: []delayqueue.MsgOption{
				delayqueue.WithLane(fmt.Sprint("lane ", lane), 1+lane%3), delayqueue.WithRetryCount(5)}})
		}
	}
	ok(w, errOf(w.publisher("orders").SendBatch(w.Context(), batch)))
	for lane := range lanes / 2 { // messages that are in no lane, and turns of nobody
		name := fmt.Sprint("lane ", lane)
		for _, m := range w.read().Lanes {
			if m.Lane == name && m.Waits {
				w.do("ZREM", "lanes", m.Member)
				break
			}
		}
		w.do("ZADD", "lanes", 0, name+"\x00\x00003"+nobody)
	}
	w.contains(w.must("doctor", "orders", "--repair", "--yes"), "the queue is sound now")

	var mu sync.Mutex
	var wrong []string
	next, failed := map[string]int{}, map[string]bool{}
	handle := func(_ context.Context, m *delayqueue.Message) error {
		time.Sleep(2 * time.Millisecond) // it works
		mu.Lock()
		defer mu.Unlock()
		n, _ := strconv.Atoi(m.Payload)
		if lane, _ := strconv.Atoi(m.Lane[len("lane "):]); lane%3 == 0 && n != next[m.Lane] { // of width 1
			wrong = append(wrong, fmt.Sprintf("%s: %d, want %d", m.Lane, n, next[m.Lane]))
		}
		if n%10 == 7 && !failed[m.ID] {
			failed[m.ID] = true
			return fmt.Errorf("no")
		}
		next[m.Lane]++
		return nil
	}
	w.consume("orders", handle, func(q *delayqueue.DelayQueue) { q.WithConcurrent(8).WithRetryDelays(100 * time.Millisecond) })
	w.heardOf("orders")
	looks := 0
	w.contains(w.must("doctor", "orders", "--repair"), "nothing is wrong")
	for left := lanes * each; left > 0; looks++ {
		s, found, err := check.Inspect(w.Context(), w.cli, w.prefix, "orders", nil)
		if ok(w, err); len(found) > 0 {
			w.Errorf("%d of %d messages are left, and it finds %d, as %+v", len(s.Messages), lanes*each, len(found), found[0])
		}
		left = len(s.Messages)
	}
	if w.Logf("it looked %d times", looks); looks < 2 || len(wrong) > 0 {
		w.Errorf("it looked %d times; out of order: %v", looks, wrong)
	}
	w.sound("orders")
}
