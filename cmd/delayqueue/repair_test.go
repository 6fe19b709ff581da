package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/check"
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

	w.run("doctor", "orders").shows("no place (3)", "lost lease (1)", "stray lease (1)", "wrong count (1)")
	w.run("doctor", "orders", "--repair", "--yes").shows("drop from unack: c:2", "delete from lease: c:3",
		"bring back message ", "repaired 5 things", "1 finding left")
	w.do("HSET", "lease", "c:4~#", "1")
	s := w.sound("orders")
	w.places(s, map[string]string{ids[0]: "unack", ids[1]: "retry", ids[2]: "retry", ids[3]: "retry", ids[4]: "unack"})
	if len(s.Leases) != 2 || s.Fail[ids[1]].Delivery != 3 || s.Fail[ids[2]].Delivery != 2 {
		w.Errorf("leases %v, records %v", s.Leases, s.Fail)
	}

	// What is not wrong any more stays as it is.
	words, err := script.NewStore(w.cli, w.prefix, "orders").Repair(w.Context(),
		[]script.Flaw{{What: "unack", Item: "c:1"},
			{What: "unack", Item: "c:2"}, {What: "lease", Item: "c:1"}, {What: "lease", Item: "c:4~#"},
			{What: "lease", Item: "c:3"},
			{What: "place", Item: ids[0]}, {What: "place", Item: ids[1]}, {What: "place", Item: ids[4]},
			{What: "place", Item: nobody}})
	if err != nil || slices.ContainsFunc(words, func(word string) bool { return word != "sound" }) {
		w.Errorf("%q, %v", words, err)
	}
	if after := w.sound("orders"); after.Where(ids[0]) != "unack" || len(after.Leases) != 2 || len(after.Retry) != 3 {
		w.Errorf("it was touched:\n%s", after.Dump())
	}
}

// Messages that another program has deleted are missing in the books, until somebody accepts that, whose name the
// journal has.
func tellDoctorBooks(w *world) {
	var ids []any
	for range 12 {
		ids = append(ids, w.send("orders", "a", inAnHour))
	}
	w.run("doctor", "orders").shows("they balance", "entered     12  12 sent", "left         0", "here        12")
	w.do("HDEL", "msg", ids[:5]...)
	w.do("ZREM", "pending", ids[:5]...)

	w.contains(w.run("stats", "orders").out, "messages have vanished without a word: 5")
	w.contains(w.run("stats", "orders", "--json").out, `"unaccounted":5`)
	w.run("doctor", "orders").shows("they do not balance", "unaccounted  5", "books do not balance (1)",
		"books: 5 messages vanished without a word")
	w.contains(w.run("doctor", "orders", "--json").out, `"unaccounted":5`, `"sent":12`)
	w.run("doctor", "orders", "--repair", "--yes", "--operator",
		"ann").shows("accept in the books: 5 messages vanished without a word", "repaired 1 thing",
		"accepted in the books: 5 messages vanished without a word", "the queue is sound now")
	w.run("doctor", "orders").shows("they balance", "left         5  5 written off")
	w.contains(w.run("journal", "orders").out, "accept balance", "missing", "5", "ann")
}

// A loss that a consumer has noticed is critical until somebody accepts it.
func tellDoctorLoss(w *world) {
	w.send("orders", "a", inAnHour)
	now := time.Now().UnixMicro()
	w.do("HSET", "state", "loss", fmt.Sprintf("%d %d 40661", now, now))
	w.contains(w.run("stats", "orders").out, "messages were lost: at most 40,661, since",
		"to accept that: doctor --repair")
	w.contains(w.run("stats", "orders", "--json").out, `"loss_messages":40661`, `"loss_since":`)
	w.run("doctor", "orders").shows("messages were lost (1)", "books: at most 40,661 messages lost, since",
		"they balance")
	w.run("doctor", "orders", "--repair", "--yes", "--operator", "ann").shows(
		"accept the loss: at most 40,661 messages lost", "accepted in the books: at most 40,661 messages lost",
		"the queue is sound now")
	w.contains(w.must("doctor", "orders"), "its data is sound")
	w.contains(w.run("journal", "orders").out, "accept balance", "lost since", "40,661", "ann")
}

// inLane sends n messages of a lane that are due in an hour, one after the other.
func (w *world) inLane(lane string, n int, width ...int) (ids []string) {
	w.Helper()
	for i := range n {
		ids = append(ids, w.send("orders", fmt.Sprint(lane, i), delayqueue.WithLane(lane, width...), inAnHour))
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
	plain := w.send("orders", "plain", inAnHour)
	w.contains(w.must("doctor", "orders"), "its data is sound")

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
	w.exits(exitUnsound, "doctor", "orders").shows("stray lane member (6)", "not in its lane (4)", "wrong lane (4)",
		"no envelope (2)", "no place (2)", "--repair mends it")
	r := w.run("doctor", "orders", "--repair", "--yes")
	w.contains(r.out, "drop from waiting: "+gone[1], "put into its lane message "+lost[0], "give turns right in lane idle",
		"bring back message "+away[0], "the queue is sound now")
	s := w.sound("orders")
	w.hasTurn(s, gone[2])
	w.hasTurn(s, lost[0], lost[1])
	w.hasTurn(s, orphan[0], orphan[1], orphan[2])
	w.hasTurn(s, away[0], away[1])
	w.hasTurn(s, idle[1])
	w.hasTurn(s, taken[0], taken[1])
	w.places(s, map[string]string{plain: "pending", away[0]: "retry", away[1]: "waiting", wide[2]: "pending",
		lost[0]: "pending"})
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
	if !slices.Equal(after.Lanes, s.Lanes) || !slices.Equal(after.Waiting, s.Waiting) ||
		!slices.Equal(after.Pending, s.Pending) {
		w.Errorf("it was touched:\n%s", after.Dump())
	}
	w.turnsThatAreTooMany()
}

// tellDoctorLostLanes: one repair lets a lane go on in which some envelopes were replaced by ones without a lane, also
// if a turn was given on since the repair was planned.
func tellDoctorLostLanes(w *world) {
	replace := func(ids ...string) {
		for _, id := range ids {
			texts, err := w.cli.HMGet(w.Context(), w.key("msg"), w.send("orders", "plain", inAnHour), id).Result()
			if err != nil {
				w.Fatal(err)
			}
			plain, own := texts[0].(string), texts[1].(string)
			w.do("HSET", "msg", id, plain[:1]+own[1:17]+plain[17:]) // due as before
		}
	}
	ids := w.inLane("l", 7)
	replace(ids[:4]...)
	w.contains(w.run("doctor", "orders", "--repair", "--yes").out, "the queue is sound now")
	w.hasTurn(w.sound("orders"), ids[4], ids[5], ids[6])

	replace(ids[5])
	planned := script.Flaw{What: "member", Item: w.memberOf(ids[5])}
	if err := w.monitor("orders").Delete(w.Context(), ids[4]); err != nil { // gives its turn on
		w.Fatal(err)
	}
	words, err := script.NewStore(w.cli, w.prefix, "orders").Repair(w.Context(), []script.Flaw{planned})
	if err != nil || !slices.Equal(words, []string{"done"}) {
		w.Errorf("%q, %v", words, err)
	}
	w.hasTurn(w.sound("orders"), ids[6])

	// Messages that cannot be read give up their turns, and nobody waits for one whose end no consumer could tell.
	broken := w.inLane("broken", 5)
	w.do("HSET", "msg", broken[0], "inf", broken[1], "x", broken[2], "y")
	w.do("ZADD", "garbage", 1, broken[2])
	w.do("HSET", "fail", broken[3], "9 3", broken[2], "2 0 0 1 e")
	w.contains(w.run("doctor", "orders", "--repair", "--yes").out, "set right the record of message "+broken[3],
		"3 findings left")
	s := w.read()
	w.hasTurn(s, broken[3], broken[4])
	w.places(s, map[string]string{broken[0]: "pending", broken[1]: "pending", broken[2]: "garbage"})
	if f, there := s.Fail[broken[3]]; there {
		w.Errorf("a first delivery has the record %+v", f)
	}
	for _, id := range broken[:3] {
		w.must("cancel", "orders", id, "--yes")
	}
	w.sound("orders")
}

// If the lanes to be mended need more turns than one call gives, doctor makes more calls.
func tellRepairInSteps(w *world) {
	const lanes, width = 4, 100
	for l := range lanes {
		w.sendEach("orders", 2*width, func(int) delayqueue.Outgoing {
			return delayqueue.Outgoing{Options: []delayqueue.MsgOption{delayqueue.WithLane(fmt.Sprint("l", l), width), inAnHour}}
		})
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

// turnsThatAreTooMany: of turns that are too many those go that have not begun, and what is held or ready has a turn
// although the lane is full.
func (w *world) turnsThatAreTooMany() {
	full := w.inLane("full", 4, 2)
	w.do("ZREM", "lanes", w.memberOf(full[2]))
	w.do("ZREM", "waiting", full[2])
	w.lease("c:1", time.Now().Add(time.Hour), full[2]) // as if a fetch had handed it out
	w.contains(w.run("doctor", "orders").out, "not in its lane (1)")
	w.contains(w.run("doctor", "orders", "--repair", "--yes").out, "put into its lane message "+full[2], "1 finding left")
	w.contains(w.run("doctor", "orders").out, `wrong lane (1)`, `lane "full" has 3 turns, want at most 2`)
	w.contains(w.must("doctor", "orders", "--repair", "--yes"), "give turns right in lane full", "the queue is sound now")
	w.places(w.sound("orders"), map[string]string{full[0]: "pending", full[1]: "waiting", full[2]: "unack",
		full[3]: "waiting"})
}
