package script

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

func (r *rig) balance() Balance {
	r.t.Helper()
	b, err := r.Balance(queuetest.CtxB)
	queuetest.Must(r.t, err)
	return b
}

// TestAcceptRubbish: accepted books balance, and go on to, whatever another program has written into them.
func TestAcceptRubbish(t *testing.T) {
	t.Parallel()
	for _, rubbish := range []string{"99999999999999999", "1000000000000000", "-7", "x", "", "1e3", "nan", "12"} {
		subtest(t, rubbish, onReal, func(r *rig) {
			for _, field := range []string{"in:stored", "in:found", "kept", "out:acked", "out:over", "out:lost", "told",
				"books"} {
				r.put(msg("a", time.Hour))
				r.do("HSET", r.Keys.State, field, rubbish)
				if _, err := r.AcceptBalance(queuetest.CtxB, newCall()); err != nil {
					r.t.Errorf("%s: %v", field, err)
				}
				r.equal(field, r.balance().Unaccounted, int64(0))
				r.put(msg("b", time.Hour))
				r.cancel("id", queuetest.IDOf("a"))
				r.cancel("id", queuetest.IDOf("b"))
				r.equal(field+", then", r.balance().Unaccounted, int64(0))
				r.do("HDEL", r.Keys.State, field) // told, books: nothing mends them
				if _, err := r.AcceptBalance(queuetest.CtxB, newCall()); err != nil {
					r.t.Errorf("%s: %v", field, err)
				}
			}
		})
	}
}

// TestBooksOfWhatIsGone: an ack of what another program deleted is void, and the message is missing in the books.
func TestBooksOfWhatIsGone(t *testing.T) {
	onBoth(t, func(r *rig) {
		r.hand(msg("a", 0, keyed("k")))
		r.forgot(r.Keys.of("pending"), "a")
		r.do("HDEL", r.Keys.msg, queuetest.IDOf("a"))
		r.equal("void", r.settle(NewCaller(), ack("a", "k")), []int{0})
		r.do("HDEL", r.Keys.of("key"), "k")
		got := r.balance()
		got.Since = time.Time{}
		r.equal("books", got, Balance{Entered: 1, Sent: 1, Unaccounted: 1})
	})
}

// TestHistoryWithoutTold: if it is not known what history has of the totals, history is not told of all of them again.
func TestHistoryWithoutTold(t *testing.T) {
	t.Parallel()
	for _, told := range []string{"", "x", "-1 5", "9"} {
		subtest(t, told, onBoth, func(r *rig) {
			c := NewCaller()
			r.put(msg("a", time.Hour), msg("b", time.Hour))
			r.fetch(c, 0)
			r.do("HSET", r.Keys.State, "told", told)
			r.at(2 * time.Second)
			r.fetch(c, 0)
			r.put(msg("c", time.Hour))
			r.at(4 * time.Second)
			r.fetch(c, 0)
			sent := int64(0)
			for _, hour := range r.history().Hours {
				sent += hour.Sent
			}
			r.equal("sent", sent, int64(3))
		})
	}
}

// history returns the script's answer.
func (r *rig) history() HistoryReply {
	r.t.Helper()
	got, err := r.Store.History(queuetest.CtxB)
	queuetest.Must(r.t, err)
	return got
}

// TestHistoryIsExact: each event is counted once, before and after a tick moves it to history. TestModel compares the
// rest.
func TestHistoryIsExact(t *testing.T) {
	onBoth(t, func(r *rig) {
		hour, day := rigBase/time.Hour.Microseconds(), rigBase/(24*time.Hour.Microseconds())
		want := func(what string, n SpanCounts) {
			r.t.Helper()
			got := r.history()
			r.equal(what+", this hour", got.Hours[hour], n)
			r.equal(what+", today", got.Days[day], n)
		}
		want("nothing", SpanCounts{})
		r.send(NewCaller(), msg("a", 0), msg("b", 0), msg("c", 0), msg("d", 0))
		want("no consumer yet", SpanCounts{Sent: 4})
		r.equal("history holds", len(r.read().History), 0)
		r.with.MaxLosses = 1
		r.fetch(NewCaller(), 4)
		r.done(ack("a"), fails("b"), ends(OutcomeGarbage, "c", 1, 0, "x"))
		want("settled", SpanCounts{Sent: 4, Delivered: 4, Acked: 1, Failed: 2, Garbage: 1, Started: 4})
		r.lapse(11 * time.Second) // d is lost
		want("lost", SpanCounts{Sent: 4, Delivered: 4, Acked: 1, Failed: 2, Lost: 1, Garbage: 2, Started: 4})
		r.equal("what history was told of", r.read().Fields["told"], "4 1")
		r.equal("history holds", r.read().History, map[string]string{fmt.Sprint(hour): "4 4 1 2 1 2 0 4 0 0",
			fmt.Sprint("d", day): "4 4 1 2 1 2 0 4 0 0"})
	})
}

// TestHistoryOfLateness: lateness is read as a mean and a maximum. First deliveries that say no instant count as in
// time.
func TestHistoryOfLateness(t *testing.T) {
	onBoth(t, func(r *rig) {
		want := func(what string, started int64, mean, most time.Duration) {
			r.t.Helper()
			n := r.history().Hours[rigBase/time.Hour.Microseconds()]
			r.equal(what, []any{n.Started, n.Lateness, n.MaxLateness}, []any{started, mean, most})
		}
		c := NewCaller()
		r.send(NewCaller(), msg("a", 2*time.Second), msg("b", 4*time.Second))
		r.at(7 * time.Second)
		r.fetch(c, 2)
		want("five and three seconds late", 2, 4*time.Second, 5*time.Second)
		for _, envelope := range []string{"", "\x01", "\x01nan             x", "\x01-100000000000000"} {
			r.do("HSET", r.Keys.msg, queuetest.IDOf("f"), envelope)
			r.do("ZADD", r.Keys.of("pending"), rigBase, queuetest.IDOf("f"))
			c.Next()
			queuetest.Must(r.t, queuetest.Failure(r.Store.Fetch(queuetest.CtxB, c, FetchRequest{Want: 5, Settings: &r.with})))
		}
		want("those that say no instant", 6, 8*time.Second/6, 5*time.Second)
		for i := range 40 { // 14 of them are asked: every third, and the last for itself
			r.send(NewCaller(), msg(fmt.Sprint("many ", i), time.Duration(i)*time.Second))
		}
		r.at(47 * time.Second)
		r.fetch(c, 40)
		late := 8 * time.Second
		for i := range 40 {
			late += time.Duration(40-i/3*3) * time.Second
		}
		want("forty, in order of their instants", 46, late/46, 40*time.Second)
	})
}

// TestHistoryIsSmall: a queue that has been busy for weeks keeps 48 hours and 30 days, in a few KB, which do not
// expire.
func TestHistoryIsSmall(t *testing.T) {
	const hours, days = 48, 30
	onReal(t, func(r *rig) {
		for i := range 200 { // what somebody else left, or another layout
			r.do("HSET", r.Keys.of("history"), fmt.Sprintf("%d:sent", i), 1)
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
		r.equal("history expires in", r.Cli.TTL(queuetest.CtxB, r.Keys.of("history")).Val(), time.Duration(-1))
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
	onReal(t, func(r *rig) {
		hour := rigBase / time.Hour.Microseconds()
		for _, rubbish := range []string{"", "x", "nan", "inf", "-1", "1e3", "1.5", "1 2 3 4 5", "1 2 3 4 5 6 7 8 x",
			"99999999999999999999999999 1 1 1 1 1 1 1 1"} {
			r.do("HSET", r.Keys.of("history"), fmt.Sprint(hour), rubbish)
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
			r.do("DEL", r.Keys.of("history"), r.Keys.State)
		}
	})
}

// TestLossIsNotedOnce: what several consumers notice of one loss counts once, and so does a call that is made again. A
// later loss is added.
func TestLossIsNotedOnce(t *testing.T) {
	t.Parallel()
	subtest(t, "loss", onReal, func(r *rig) {
		r.put(msg("a", time.Hour))
		call := newCall()
		for i, step := range []struct {
			caller *Caller
			loss   Loss
			want   int64
		}{
			{newCall(), Loss{From: 10, At: 20, Messages: 5, All: true}, 5},
			{newCall(), Loss{From: 9, At: 90_000_000, Messages: 7, All: true}, 7},
			{newCall(), Loss{From: 95_000_000, At: 96_000_000, Messages: 2, All: true}, 9},
			{call, Loss{From: 96_000_001, At: 96_000_001, Messages: 1}, 10},
			{call, Loss{From: 96_000_001, At: 96_000_001, Messages: 1}, 10},
			{newCall(), Loss{From: 96_000_001, At: 96_000_001, Messages: 1}, 11},
		} {
			if err := r.NoteLoss(queuetest.CtxB, step.caller, step.loss); err != nil {
				r.t.Fatal(i, err)
			}
			c, err := r.Counts(queuetest.CtxB)
			if err != nil || c.LossMessages != step.want || c.LossSince.UnixMicro() > 10 {
				r.t.Errorf("step %d: %d since %v, %v, want %d", i, c.LossMessages, c.LossSince, err, step.want)
			}
		}
		got, err := r.AcceptBalance(queuetest.CtxB, newCall())
		if c, cerr := r.Counts(queuetest.CtxB); err != nil || cerr != nil || got.LossMessages != 11 || !c.LossSince.IsZero() {
			r.t.Errorf("accepted %+v, %v; then %+v, %v", got, err, c.LossSince, cerr)
		}
	})
}
