package script

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// TestScriptLook: a look by id finds a message in every state, with its instant.
func TestScriptLook(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		everywhere(r)
		r.put(msg("far", time.Hour))
		for name, want := range map[string]struct {
			state string
			at    time.Duration
		}{
			"far": {statePending, time.Hour + r.since(r.now)}, "due": {stateReady, r.since(0)}, "ready": {stateReady, r.since(0)},
			"retry": {stateReady, r.since(0)}, "lost": {stateUnack, 10 * time.Second}, "dead": {stateGarbage, 0},
		} {
			if got := r.looks("id", queuetest.IDOf(name)); got == nil || got.State != want.state || r.since(got.At) != want.at || got.Payload != name {
				r.t.Errorf("%s: %+v, want %+v", name, got, want)
			}
		}
	})
}

// TestScriptList: a list returns each message once, forwards and backwards, in pages of any size, also if the last message of a
// page is deleted meanwhile.
func TestScriptList(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		var all []string
		for i := range 9 { // three at each instant
			name := fmt.Sprint("m", i)
			all = append(all, name)
			r.put(msg(name, time.Duration(1+i/3)*time.Second))
		}
		p := ListRequest{In: statePending, From: math.MinInt64, To: math.MaxInt64, Part: "later"}
		walk := func(p ListRequest, limit int, back, delete bool) (got []string) {
			r.t.Helper()
			p.Back, p.Limit = back, limit
			for more := true; more; {
				page, err := r.Store.List(context.Background(), p)
				if err != nil {
					r.t.Fatal(err)
				}
				more = page.Left > len(page.Entries)
				for _, e := range page.Entries {
					got, p.After = append(got, r.payload(e)), e.Spot
				}
				if delete {
					c := newCall()
					if _, err := r.Store.Steer(context.Background(), c,
						SteerRequest{What: "delete", Only: "pending", Targets: []Spot{p.After}}); err != nil {
						r.t.Fatal(err)
					}
				}
			}
			return got
		}
		reversed := slices.Clone(all)
		slices.Reverse(reversed)
		for limit := 1; limit < 11; limit++ {
			r.equal(fmt.Sprint("pages of ", limit), strings.Join(walk(p, limit, false, false), " "), strings.Join(all, " "))
			r.equal(fmt.Sprint("backwards, pages of ", limit), strings.Join(walk(p, limit, true, false), " "), strings.Join(reversed, " "))
		}
		r.at(2 * time.Second)
		r.equal("later", strings.Join(walk(p, 2, false, false), " "), "m6 m7 m8")
		p.Part = "due"
		r.equal("due", strings.Join(walk(p, 2, false, false), " "), "m0 m1 m2 m3 m4 m5")
		p.Part, p.From, p.To = "", rigBase+2_000_000, rigBase+2_000_001
		r.equal("from and to", strings.Join(walk(p, 2, false, false), " "), "m3 m4 m5")
		p.From, p.To = math.MinInt64, math.MaxInt64
		r.equal("while they are deleted", strings.Join(walk(p, 2, false, true), " "), strings.Join(all, " "))
		r.equal("what is left, each page's last one deleted", strings.Join(walk(p, 9, true, false), " "), "m6 m4 m2 m0")
	})
}

// TestScriptReadLimit: of an envelope that is longer than the bound, look and list return the length alone.
func TestScriptReadLimit(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		for i, name := range []string{"small", strings.Repeat("large", 400)} {
			m := msg(name, time.Duration(1+i)*time.Second)
			r.put(m)
		}
		large := queuetest.IDOf(strings.Repeat("large", 400))
		for most, read := range map[int]bool{0: true, 1000: false, 1 << 20: true, -5: true} {
			got, err := r.Store.Look(queuetest.CtxB, "id", large, most)
			if err != nil || got == nil || got.State != statePending || got.ID != large || isLarge(got.Text) == read {
				r.t.Errorf("within %d: %+v, %v", most, got, err)
			}
			p := ListRequest{In: statePending, From: math.MinInt64, To: math.MaxInt64, Most: most, Limit: 10}
			page, err := r.Store.List(queuetest.CtxB, p)
			if err != nil || len(page.Entries) != 2 || r.payload(page.Entries[0]) != "small" ||
				isLarge(page.Entries[1].Text) == read || page.Entries[1].Tag != large {
				r.t.Errorf("a list within %d: %+v, %v", most, page, err)
			}
		}
		// What another program wrote is text like another, also if it reads like that answer.
		for _, text := range []string{"\x00large 5", "\x00large x", "\x00large " + strings.Repeat("9", 500)} {
			r.do("HSET", r.Keys.msg, large, text)
			for _, most := range []int{0, 400, 1000} {
				got, err := r.Store.Look(queuetest.CtxB, "id", large, most)
				if err != nil || got == nil || readOf(got).broken == nil || most == 0 && got.Text != text {
					r.t.Errorf("%.20q within %d: %+v, %v", text, most, got, err)
				}
			}
		}
		r.do("HDEL", r.Keys.msg, large)
		r.do("ZREM", r.Keys.pending, large)
		r.do("HDEL", r.Keys.msg, large)
	})
}

func isLarge(text string) bool {
	_, large := Unread(text)
	return large
}

// payload is that of a listed message.
func (r *rig) payload(l Listed) string {
	r.t.Helper()
	e, err := message.DecodeEnvelope(l.Text)
	r.equal("envelope", err, nil)
	return e.Payload
}

func TestScriptCounts(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		want := func(what string, want QueueCounts) {
			r.t.Helper()
			before := r.contents()
			got, err := r.Store.Counts(context.Background())
			if err != nil {
				r.t.Fatal(err)
			}
			r.equal(what, got.QueueCounts, want)
			r.equal("contents", r.contents(), before)
		}
		at := func(d time.Duration) time.Time { return time.UnixMicro(rigBase).Add(d) }
		want("nothing", QueueCounts{})
		r.put(msg("a", 2*time.Second), msg("b", 2*time.Second), msg("c", 3*time.Second), msg("d", 3*time.Second), msg("e", time.Hour))
		want("pending", QueueCounts{Pending: 5, NextDue: at(2 * time.Second)})
		r.at(2*time.Second - time.Microsecond)
		want("not yet due", QueueCounts{Pending: 5, NextDue: at(2 * time.Second)})
		r.at(2100 * time.Millisecond)
		want("due", QueueCounts{Pending: 3, Ready: 2, Behind: 100 * time.Millisecond, NextDue: at(3 * time.Second)})
		r.take("a b")
		want("handed out", QueueCounts{Pending: 3, Unack: 2, NextDue: at(3 * time.Second)})
		r.done(ends(OutcomeReady, "a", 0, 0, ""), ends(OutcomeRetry, "b", 1, 0, ""))
		want("released and failed", QueueCounts{Pending: 3, Ready: 1, Retry: 1, NextDue: at(3 * time.Second)})
		r.at(3*time.Second - time.Microsecond)
		want("waiting since it was released", QueueCounts{Pending: 3, Ready: 1, Retry: 1, Behind: 900*time.Millisecond - time.Microsecond,
			NextDue: at(3 * time.Second)})
		r.at(4 * time.Second)
		want("retry due", QueueCounts{Pending: 1, Ready: 4, Behind: 1900 * time.Millisecond, NextDue: at(time.Hour)})
		r.equal("handed out", len(r.fetch(NewCaller(), 10).Tags), 4)
		r.done(ends(OutcomeGarbage, "2:a", 1, 0, ""), ends(OutcomeGarbage, "c", 1, 0, ""))
		want("garbage", QueueCounts{Pending: 1, Unack: 2, Garbage: 2, NextDue: at(time.Hour)})
		r.done(ack("2:b"), ack("d"))
		r.equal("intercept", r.intercept(NewCaller(), "id", queuetest.IDOf("e")), statePending)
		want("all settled", QueueCounts{Garbage: 2})
		r.read()
	})
}

// TestScriptForecast: each message counts in one span, whatever score another program gave it, and a span has its first
// instant and not its last.
func TestScriptForecast(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		counted := func(what string, from int64, step time.Duration, n int, want ...int64) ForecastReply {
			r.t.Helper()
			before := r.contents()
			got, err := r.Store.Forecast(context.Background(), from, step, n)
			var dues []int64 // before, in each, after; pending and retry of each
			for _, d := range got.Due {
				dues = append(dues, d.Pending, d.Retry)
			}
			if err != nil || !slices.Equal(dues, want) || got.Now != r.now {
				r.t.Errorf("%s: %+v, %v; want %v at %d", what, got, err, want, r.now)
			}
			r.equal("the queue", r.contents(), before)
			return got
		}
		counted("an empty queue", 0, time.Second, 2, 0, 0, 0, 0, 0, 0, 0, 0)
		add := func(key string, scores ...string) {
			for i, score := range scores {
				r.do("ZADD", key, score, fmt.Sprint(i))
			}
		}
		at := func(d time.Duration) string { return fmt.Sprint(rigBase + d.Microseconds()) }
		add(r.Keys.pending, at(-time.Microsecond), at(0), at(time.Second-time.Microsecond), at(time.Second),
			at(2*time.Second-time.Microsecond), at(2*time.Second), "+inf")
		add(r.Keys.retry, "-inf", at(-time.Hour), at(time.Second), at(time.Second)+".5", "1e300")
		got := counted("from now on", 0, time.Second, 2, 1, 2, 2, 0, 2, 2, 2, 1)
		r.equal("from", got.From, rigBase)
		counted("from elsewhere", rigBase+1_000_000, time.Second, 1, 3, 2, 2, 2, 2, 1)
		counted("from the beginning", 1, time.Hour, 1, 0, 1, 0, 0, 7, 4)
		counted("to the end", rigBase, message.MaxDelay, 1, 1, 2, 5, 2, 1, 1)
		if _, err := r.Store.Forecast(context.Background(), message.Forever, message.MaxDelay, 500); err != nil {
			r.t.Error(err)
		}
		r.do("DEL", r.Keys.pending, r.Keys.retry)
	})
}
