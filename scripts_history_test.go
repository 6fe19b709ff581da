package delayqueue

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// history is what the script answers.
func (r *rig) history() historyReply {
	r.t.Helper()
	got, err := r.store.history(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	return got
}

// TestHistoryIsExact: each kind is counted once, whether the tick has moved it or not, and repeats count nothing.
func TestHistoryIsExact(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		r.with.maxLosses = 1
		hour, day := rigBase/time.Hour.Microseconds(), rigBase/(24*time.Hour.Microseconds())
		want := func(what string, n Tally) {
			r.t.Helper()
			got := r.history()
			r.equal(what+", this hour", got.hours[hour], n)
			r.equal(what+", today", got.days[day], n)
		}
		want("nothing", Tally{})
		sender, consumer, settler := newCaller(), newCaller(), newCaller()
		ms := []*sendMessage{msg("a", 0), msg("b", 0), msg("c", 0), msg("d", 0)}
		r.send(sender, ms...)
		r.sendAgain(sender, ms...)
		want("no consumer yet", Tally{Sent: 4})
		r.equal("history holds", len(r.read().History), 0)
		r.fetch(consumer, 4)
		r.fetchAgain(consumer, 4)
		want("handed out", Tally{Sent: 4, Delivered: 4, Started: 4})
		batch := []settlement{ack("a"), ends(outcomeRetry, "b", 1, 0, "x"), ends(outcomeGarbage, "c", 1, 0, "x")}
		r.settle(settler, batch...)
		r.settleAgain(settler, batch...)
		want("settled", Tally{Sent: 4, Delivered: 4, Acked: 1, Failed: 2, Garbage: 1, Started: 4})
		r.tickTo(9 * time.Second)
		r.at(11 * time.Second)
		r.tick() // d is lost
		all := Tally{Sent: 4, Delivered: 4, Acked: 1, Failed: 2, Lost: 1, Garbage: 2, Started: 4}
		want("lost", all)
		r.equal("what state holds yet", r.read().Fields["sent"], "0")
		r.equal("history holds", r.read().History, map[string]string{fmt.Sprint(hour): "4 4 1 2 1 2 0 4 0 0",
			fmt.Sprint("d", day): "4 4 1 2 1 2 0 4 0 0"})
	})
}

// TestHistoryOfLateness: of first deliveries alone, once, by the due instants of their envelopes.
func TestHistoryOfLateness(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		hour := rigBase / time.Hour.Microseconds()
		want := func(what string, started int64, mean, most time.Duration) {
			r.t.Helper()
			n := r.history().hours[hour]
			r.equal(what, Tally{Started: n.Started, Lateness: n.Lateness, MaxLateness: n.MaxLateness},
				Tally{Started: started, Lateness: mean, MaxLateness: most})
		}
		c := newCaller()
		r.send(newCaller(), msg("a", 2*time.Second), msg("b", 4*time.Second))
		r.at(3 * time.Second)
		r.fetch(c, 1)
		want("one second late", 1, time.Second, time.Second)
		r.fetchAgain(c, 1)
		want("asked again", 1, time.Second, time.Second)
		r.settle(newCaller(), ends(outcomeRetry, "a", 1, 0, "x"))
		r.at(7 * time.Second)
		r.fetch(c, 5)
		want("another three, and a second delivery", 2, 2*time.Second, 3*time.Second)
		r.send(newCaller(), msg("c", 0))
		r.fetch(c, 1)
		r.tick()
		want("one in time, and moved", 3, 4*time.Second/3, 3*time.Second)
		for _, envelope := range []string{"", "\x01", "\x01nan             x", "\x01-100000000000000"} {
			r.do("HSET", r.keys.msg, idOf("f"), envelope)
			r.do("ZADD", r.keys.pending, rigBase, idOf("f"))
			c.next()
			if _, err := r.store.fetch(ctxB, c, fetchRequest{want: 5, settings: &r.with}); err != nil {
				r.t.Fatal(err)
			}
		}
		want("those that say no instant count as in time", 7, 4*time.Second/7, 3*time.Second)
		for i := range 40 { // 14 of them are asked: every third, and the last for itself
			r.send(newCaller(), msg(fmt.Sprint("many ", i), time.Duration(i)*time.Second))
		}
		r.at(47 * time.Second)
		r.fetch(c, 40)
		late := 4 * time.Second
		for i := range 40 {
			late += time.Duration(40-i/3*3) * time.Second
		}
		want("forty, in order of their instants", 47, late/47, 40*time.Second)
	})
}

// TestHistoryIsSmall: a queue that has been busy for weeks keeps two days of hours and thirty days, a few KB,
// which do not expire.
func TestHistoryIsSmall(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		for i := range 200 { // what somebody else left, or another layout
			r.do("HSET", r.keys.history, fmt.Sprintf("%d:sent", i), 1)
		}
		c, from := newCaller(), 35*24
		for h := range from + 1 {
			r.at(time.Duration(h) * time.Hour)
			r.do("HINCRBY", r.keys.state, "sent", 1_000_000_000)
			r.fetch(c, 0)
		}
		held := r.read().History
		r.equal("fields", len(held), historyHours+historyDays)
		size := 0
		for field, value := range held {
			size += len(field) + len(value)
		}
		if size > 4096 {
			r.t.Errorf("history is %d bytes", size)
		}
		r.equal("history expires in", r.cli.TTL(ctxB, r.keys.history).Val(), time.Duration(-1))
		got := r.history()
		r.equal("hours", len(got.hours), historyHours)
		r.equal("days", len(got.days), historyDays)
		last := rigBase/time.Hour.Microseconds() + int64(from)
		r.equal("the oldest hour", got.hours[last-historyHours+1].Sent, int64(1_000_000_000))
		r.equal("a whole day", got.days[last/24-1].Sent, int64(24_000_000_000))
		r.equal("the oldest day", got.days[last/24-historyDays+1].Sent, int64(24_000_000_000))
	})
}

// TestHistoryOfRubbish: what somebody else wrote counts as nothing, and stops nothing.
func TestHistoryOfRubbish(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		hour := rigBase / time.Hour.Microseconds()
		for _, rubbish := range []string{"", "x", "nan", "inf", "-1", "1e3", "1.5", "1 2 3 4 5", "1 2 3 4 5 6 7 8 x",
			"99999999999999999999999999 1 1 1 1 1 1 1 1"} {
			r.do("HSET", r.keys.history, fmt.Sprint(hour), rubbish)
			for _, field := range append([]string{"counted"}, counted...) {
				r.do("HSET", r.keys.state, field, rubbish)
			}
			r.history()
			r.hand(msg("a", 0))
			r.done(ends(outcomeGarbage, "a", 1, 0, "x"))
			r.history()
			r.tick()
			if n := r.history().hours[hour]; n.Delivered < 1 || n.Garbage < 1 {
				r.t.Errorf("with %q: %+v", rubbish, n)
			}
			r.intercept(newCaller(), "id", idOf("a"))
			r.do("DEL", r.keys.history, r.keys.state)
		}
	})
}
