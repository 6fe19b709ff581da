package script

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// history returns the script's answer.
func (r *rig) history() HistoryReply {
	r.t.Helper()
	got, err := r.Store.History(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	return got
}

// TestHistoryIsExact: each event is counted once, before and after a tick moves it to history. Repeats count nothing.
func TestHistoryIsExact(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		r.with.MaxLosses = 1
		hour, day := rigBase/time.Hour.Microseconds(), rigBase/(24*time.Hour.Microseconds())
		want := func(what string, n SpanCounts) {
			r.t.Helper()
			got := r.history()
			r.equal(what+", this hour", got.Hours[hour], n)
			r.equal(what+", today", got.Days[day], n)
		}
		want("nothing", SpanCounts{})
		sender, consumer, settler := NewCaller(), NewCaller(), NewCaller()
		ms := []*SendMessage{msg("a", 0), msg("b", 0), msg("c", 0), msg("d", 0)}
		r.send(sender, ms...)
		r.sendAgain(sender, ms...)
		want("no consumer yet", SpanCounts{Sent: 4})
		r.equal("history holds", len(r.read().History), 0)
		r.fetch(consumer, 4)
		r.fetchAgain(consumer, 4)
		want("handed out", SpanCounts{Sent: 4, Delivered: 4, Started: 4})
		batch := []Settlement{ack("a"), ends(OutcomeRetry, "b", 1, 0, "x"), ends(OutcomeGarbage, "c", 1, 0, "x")}
		r.settle(settler, batch...)
		r.settleAgain(settler, batch...)
		want("settled", SpanCounts{Sent: 4, Delivered: 4, Acked: 1, Failed: 2, Garbage: 1, Started: 4})
		r.lapse(11 * time.Second) // d is lost
		all := SpanCounts{Sent: 4, Delivered: 4, Acked: 1, Failed: 2, Lost: 1, Garbage: 2, Started: 4}
		want("lost", all)
		r.equal("what state holds yet", r.read().Fields["told"], "4 1")
		r.equal("history holds", r.read().History, map[string]string{fmt.Sprint(hour): "4 4 1 2 1 2 0 4 0 0",
			fmt.Sprint("d", day): "4 4 1 2 1 2 0 4 0 0"})
	})
}

// TestHistoryOfLateness: lateness is counted for first deliveries alone, once, from the due instants of their envelopes.
func TestHistoryOfLateness(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		hour := rigBase / time.Hour.Microseconds()
		want := func(what string, started int64, mean, most time.Duration) {
			r.t.Helper()
			n := r.history().Hours[hour]
			r.equal(what, SpanCounts{Started: n.Started, Lateness: n.Lateness, MaxLateness: n.MaxLateness},
				SpanCounts{Started: started, Lateness: mean, MaxLateness: most})
		}
		c := NewCaller()
		r.send(NewCaller(), msg("a", 2*time.Second), msg("b", 4*time.Second))
		r.at(3 * time.Second)
		r.fetch(c, 1)
		want("one second late", 1, time.Second, time.Second)
		r.fetchAgain(c, 1)
		want("asked again", 1, time.Second, time.Second)
		r.settle(NewCaller(), ends(OutcomeRetry, "a", 1, 0, "x"))
		r.at(7 * time.Second)
		r.fetch(c, 5)
		want("another three, and a second delivery", 2, 2*time.Second, 3*time.Second)
		r.send(NewCaller(), msg("c", 0))
		r.fetch(c, 1)
		r.tick()
		want("one in time, and moved", 3, 4*time.Second/3, 3*time.Second)
		for _, envelope := range []string{"", "\x01", "\x01nan             x", "\x01-100000000000000"} {
			r.do("HSET", r.Keys.msg, queuetest.IDOf("f"), envelope)
			r.do("ZADD", r.Keys.pending, rigBase, queuetest.IDOf("f"))
			c.Next()
			if _, err := r.Store.Fetch(queuetest.CtxB, c, FetchRequest{Want: 5, Settings: &r.with}); err != nil {
				r.t.Fatal(err)
			}
		}
		want("those that say no instant count as in time", 7, 4*time.Second/7, 3*time.Second)
		for i := range 40 { // 14 of them are asked: every third, and the last for itself
			r.send(NewCaller(), msg(fmt.Sprint("many ", i), time.Duration(i)*time.Second))
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

// TestHistoryIsSmall: a queue that has been busy for weeks keeps 48 hours and 30 days, in a few KB, which do not expire.
func TestHistoryIsSmall(t *testing.T) {
	t.Parallel()
	const hours, days = 48, 30
	onReal(t, func(r *rig) {
		for i := range 200 { // what somebody else left, or another layout
			r.do("HSET", r.Keys.history, fmt.Sprintf("%d:sent", i), 1)
		}
		c, from := NewCaller(), 35*24
		for h, step := 0, 6; h <= from; h += step {
			if h >= from-hours {
				step = 1
			}
			r.at(time.Duration(h) * time.Hour)
			r.do("HINCRBY", r.Keys.State, "delivered", step*1_000_000_000)
			r.fetch(c, 0)
		}
		held := r.read().History
		r.equal("fields", len(held), hours+days)
		size := 0
		for field, value := range held {
			size += len(field) + len(value)
		}
		if size > 4096 {
			r.t.Errorf("history is %d bytes", size)
		}
		r.equal("history expires in", r.Cli.TTL(queuetest.CtxB, r.Keys.history).Val(), time.Duration(-1))
		got := r.history()
		r.equal("hours", len(got.Hours), hours)
		r.equal("days", len(got.Days), days)
		last := rigBase/time.Hour.Microseconds() + int64(from)
		r.equal("the oldest hour", got.Hours[last-hours+1].Delivered, int64(1_000_000_000))
		r.equal("a whole day", got.Days[last/24-1].Delivered, int64(24_000_000_000))
		r.equal("the oldest day", got.Days[last/24-days+1].Delivered, int64(24_000_000_000))
	})
}

// TestHistoryOfRubbish: rubbish in history counts as nothing, and stops nothing.
func TestHistoryOfRubbish(t *testing.T) {
	t.Parallel()
	onReal(t, func(r *rig) {
		hour := rigBase / time.Hour.Microseconds()
		for _, rubbish := range []string{"", "x", "nan", "inf", "-1", "1e3", "1.5", "1 2 3 4 5", "1 2 3 4 5 6 7 8 x",
			"99999999999999999999999999 1 1 1 1 1 1 1 1"} {
			r.do("HSET", r.Keys.history, fmt.Sprint(hour), rubbish)
			for _, field := range append([]string{"counted"}, counted...) {
				r.do("HSET", r.Keys.State, field, rubbish)
			}
			r.history()
			r.hand(msg("a", 0))
			r.done(ends(OutcomeGarbage, "a", 1, 0, "x"))
			r.history()
			r.tick()
			if n := r.history().Hours[hour]; n.Delivered < 1 || n.Garbage < 1 {
				r.t.Errorf("with %q: %+v", rubbish, n)
			}
			r.intercept(NewCaller(), "id", queuetest.IDOf("a"))
			r.do("DEL", r.Keys.history, r.Keys.State)
		}
	})
}
