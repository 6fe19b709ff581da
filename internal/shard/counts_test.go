package shard

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// missing wants that a call was answered by so many shards only.
func missing(t *testing.T, what string, err error, answered, of int) {
	t.Helper()
	var m *MissingError
	if !errors.As(err, &m) || m.Answered != answered || m.Of != of || !strings.Contains(err.Error(), " shards") {
		t.Errorf("%s: %v, want %d of %d shards", what, err, answered, of)
	}
}

// TestCountsAddUp: the numbers of a queue are the sums of those of its shards, and of those that answer.
func TestCountsAddUp(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3)
	var opened time.Time // the books of the last shard, or a moment before
	for i := range 3 {
		opened = time.Now().Truncate(time.Microsecond)
		for range i + 1 {
			r.send(i, "x", time.Hour)
		}
		r.send(i, "due", 0)
	}
	begun := time.Now().Truncate(time.Microsecond)
	r.send(0, "first", time.Minute)
	sent := time.Now()
	c, err := r.ReadCounts(queuetest.CtxB)
	if due := c.NextDue.Add(-time.Minute); err != nil || c.Pending != 7 || c.Ready != 3 || c.Behind <= 0 || !c.Used ||
		c.Layout != "1" ||
		due.Before(begun) || due.After(sent) {
		t.Errorf("%+v, %v", c, err)
	}
	if b, err := r.Balance(queuetest.CtxB); err != nil || b.Since.Before(opened) || b.Sent != 10 || b.Entered != 10 ||
		b.Here != 10 {
		t.Errorf("%+v, %v", b, err)
	}
	r.Must(r.Cli.HSet(queuetest.CtxB, r.set.All[1].Keys.State, "layout", "7").Err())
	if c, err := r.ReadCounts(queuetest.CtxB); err != nil || c.Layout != "7" {
		t.Errorf("a layout of one shard: %q, %v", c.Layout, err)
	}
	r.Must(r.Cli.HDel(queuetest.CtxB, r.set.All[1].Keys.State, "layout").Err())
	defer r.spoil(2, "waiting")()
	c, err = r.ReadCounts(queuetest.CtxB)
	if missing(t, "counts", err, 2, 3); c.Pending != 4 || c.Ready != 2 || !errors.Is(err, script.ErrWrongType) {
		t.Errorf("%+v, %v", c, err)
	}
	f, err := r.Forecast(queuetest.CtxB, 0, time.Hour, 1)
	if missing(t, "forecast", err, 2, 3); len(f.Due) != 3 || f.Due[0].Pending+f.Due[1].Pending+f.Due[2].Pending != 6 {
		t.Errorf("forecast: %+v, %v", f, err)
	}
}

// TestCountsOfUnusedShards: a queue is there if one of its shards is.
func TestCountsOfUnusedShards(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2)
	r.send(1, "x", 0)
	if c, err := r.ReadCounts(queuetest.CtxB); err != nil || c.Ready != 1 {
		t.Errorf("%+v, %v", c, err)
	}
	if b, err := r.Balance(queuetest.CtxB); err != nil || b.Here != 1 || b.Since.IsZero() || b.Sent != 1 {
		t.Errorf("%+v, %v", b, err)
	}
	if n, err := r.Drop(queuetest.CtxB, true); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if _, err := r.ReadCounts(queuetest.CtxB); !errors.Is(err, script.ErrNoQueue) {
		t.Errorf("deleted: %v", err)
	}
	if _, err := r.Balance(queuetest.CtxB); !errors.Is(err, script.ErrNoQueue) {
		t.Errorf("deleted: %v", err)
	}
	if _, err := r.Drop(queuetest.CtxB, false); !errors.Is(err, script.ErrNoQueue) {
		t.Errorf("deleted: %v", err)
	}
}

// TestBalanceWithoutBooks: if a shard with messages has no books, only what is here is known.
func TestBalanceWithoutBooks(t *testing.T) {
	t.Parallel()
	r := newRig(t, 2)
	r.send(0, "x", 0)
	if b, err := r.Balance(queuetest.CtxB); err != nil || b.Since.IsZero() || b.Sent != 1 {
		t.Errorf("one shard was never used: %+v, %v", b, err)
	}
	r.send(1, "x", 0)
	r.Must(r.Cli.HDel(queuetest.CtxB, r.set.All[1].Keys.State, "in:stored").Err())
	if b, err := r.Balance(queuetest.CtxB); err != nil || b != (script.Balance{Here: 2}) {
		t.Errorf("%+v, %v", b, err)
	}
}

// TestSumOfCounts: what is no sum.
func TestSumOfCounts(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	one, two := script.CountsReply{Layout: "1", Now: 5}, script.CountsReply{Layout: "2", Now: 7}
	one.QueueCounts = script.QueueCounts{Counts: script.Counts{Behind: 2, NextDue: at(9)}, Paused: true,
		PausedUntil: at(20), PausedBy: "a", PausedSince: at(1), Limited: true, LimitedSince: at(4), ThrottledUntil: at(3),
		BooksSince: at(4)}
	two.QueueCounts = script.QueueCounts{Counts: script.Counts{Behind: 1, NextDue: at(8)}, LaneSince: at(2), Paused: true,
		PausedUntil: at(30), PausedBy: "b", Limited: true, LimitedSince: at(3), LimitedUntil: at(6), Unaccounted: -1,
		BooksSince: at(3)}
	set := script.RateLimits{Rate: 5, Per: 20 * time.Second, Burst: 2}
	one.Set, two.Set, two.Asked = set, set, script.RateLimits{Concurrency: 3}
	got := sumOf([]script.CountsReply{one, two}, 2)
	want := script.CountsReply{Layout: "2", Now: 7, Set: script.RateLimits{Rate: 5, Per: 10 * time.Second, Burst: 4},
		Asked: script.RateLimits{Concurrency: 6}}
	want.QueueCounts = script.QueueCounts{Counts: script.Counts{Behind: 2, NextDue: at(8)}, LaneSince: at(2), Paused: true,
		PausedUntil: at(30), PausedBy: "a", PausedSince: at(1), Limited: true, LimitedSince: at(3), LimitedUntil: at(6),
		Unaccounted: -1, ThrottledUntil: at(3), BooksSince: at(4)}
	if got != want {
		t.Errorf("%+v,\nwant %+v", got, want)
	}
	two.PausedUntil = time.Time{}
	for _, both := range [][]script.CountsReply{{one, two}, {two, one}} {
		if got := sumOf(both, 2); !got.Paused || !got.PausedUntil.IsZero() {
			t.Errorf("one until Resume: %+v", got)
		}
	}
}

// TestSpansAddUp: the mean is that of all messages.
func TestSpansAddUp(t *testing.T) {
	t.Parallel()
	all := map[int64]script.SpanCounts{1: {Sent: 1, Started: 1, Lateness: 4 * time.Second, MaxLateness: 4 * time.Second}}
	addSpans(all,
		map[int64]script.SpanCounts{1: {Sent: 2, Acked: 1, Started: 3, Lateness: 8 * time.Second,
			MaxLateness: 9 * time.Second}, 2: {Lost: 1}})
	if all[1] != (script.SpanCounts{Sent: 3, Acked: 1, Started: 4, Lateness: 7 * time.Second,
		MaxLateness: 9 * time.Second}) || all[2] != (script.SpanCounts{Lost: 1}) {
		t.Errorf("%+v", all)
	}
	r := newRig(t, 2)
	r.send(0, "x", 0)
	r.send(1, "x", 0)
	h, err := r.History(queuetest.CtxB)
	if day := h.Now / (24 * time.Hour).Microseconds(); err != nil || h.Days[day].Sent != 2 {
		t.Errorf("%+v, %v", h, err)
	}
	defer r.spoil(1, "history")()
	h, err = r.History(queuetest.CtxB)
	if missing(t, "history", err, 1, 2); h.Days[h.Now/(24*time.Hour).Microseconds()].Sent != 1 {
		t.Errorf("%+v", h)
	}
}

// TestDivideLimits: the shards together have the rate that was asked for, and each shard can hand out something.
func TestDivideLimits(t *testing.T) {
	t.Parallel()
	l := script.RateLimits{Rate: 5, Per: time.Second, Burst: 7, Concurrency: 2}
	for n, want := range map[int]script.RateLimits{
		1: l,
		3: {Rate: 5, Per: 3 * time.Second, Burst: 3, Concurrency: 1},
	} {
		if got, err := Divide(l, n); got != want || err != nil {
			t.Errorf("%d: %v, %v", n, got, err)
		}
	}
	if got := Whole(script.RateLimits{Rate: 5, Per: 3 * time.Second, Burst: 3, Concurrency: 1},
		3); got != (script.RateLimits{Rate: 5, Per: time.Second, Burst: 9, Concurrency: 3}) {
		t.Errorf("whole: %v", got)
	}
	if Whole(l, 1) != l {
		t.Errorf("whole of one: %v", Whole(l, 1))
	}
	for _, none := range []script.RateLimits{{}, {Concurrency: 4}} {
		if got, err := Divide(none, 4); err != nil || got.Rated() {
			t.Errorf("%v: %v, %v", none, got, err)
		}
	}
	for _, slow := range []time.Duration{200 * 24 * time.Hour, 1<<63 - 1} {
		if _, err := Divide(script.RateLimits{Rate: 1, Per: slow, Burst: 1}, 2); !errors.Is(err, message.ErrBadOption) {
			t.Errorf("one in %v: %v", slow, err)
		}
	}
}
