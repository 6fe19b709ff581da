package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"
)

// dues are the numbers of a forecast: before, in each, after; pending and retry of each.
func (f *Forecast) dues() (n []int64) {
	for _, d := range slices.Concat([]Due{f.Before}, f.Buckets, []Due{f.After}) {
		n = append(n, d.Pending, d.Retry)
	}
	return n
}

// TestScriptForecast: each message counts in one span, whatever score another program gave it, and a span has its first
// instant and not its last.
func TestScriptForecast(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		counted := func(what string, from int64, step time.Duration, n int, want ...int64) *Forecast {
			r.t.Helper()
			before := r.contents()
			got, err := r.store.forecast(context.Background(), from, step, n)
			if err != nil || !slices.Equal(got.dues(), want) || !got.At.Equal(time.UnixMicro(r.now)) {
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
		add(r.keys.pending, at(-time.Microsecond), at(0), at(time.Second-time.Microsecond), at(time.Second),
			at(2*time.Second-time.Microsecond), at(2*time.Second), "+inf")
		add(r.keys.retry, "-inf", at(-time.Hour), at(time.Second), at(time.Second)+".5", "1e300")
		got := counted("from now on", 0, time.Second, 2, 1, 2, 2, 0, 2, 2, 2, 1)
		for i, start := range []time.Time{got.Buckets[0].Start, got.Buckets[1].Start, got.After.Start} {
			r.equal("start", start.UnixMicro(), rigBase+int64(i)*1_000_000)
		}
		counted("from elsewhere", rigBase+1_000_000, time.Second, 1, 3, 2, 2, 2, 2, 1)
		counted("from the beginning", 1, time.Hour, 1, 0, 1, 0, 0, 7, 4)
		counted("to the end", rigBase, maxDelay, 1, 1, 2, 5, 2, 1, 1)
		if _, err := r.store.forecast(context.Background(), forever, maxDelay, maxBuckets); err != nil {
			r.t.Error(err)
		}
		r.do("DEL", r.keys.pending, r.keys.retry)
	})
}

// TestForecast: what is asked for is checked, and a queue without a key is none.
func TestForecast(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := NewMonitor(f.name, f.cli)
	if _, err := m.Forecast(ctxB, time.Time{}, time.Minute, 1); !errors.Is(err, ErrNoQueue) {
		t.Errorf("of nothing: %v", err)
	}
	q := f.queue(nil)
	f.send(q, "due")
	f.send(q, "later", WithDelay(90*time.Minute))
	got, err := m.Forecast(ctxB, time.Time{}, time.Hour, 3)
	f.must(err)
	if want := []int64{1, 0, 0, 0, 1, 0, 0, 0, 0, 0}; !slices.Equal(got.dues(), want) ||
		got.Buckets[0].Start != got.At || got.Step != time.Hour {
		t.Errorf("%+v, want %v", got, want)
	}
	early, err := m.Forecast(ctxB, time.Unix(-1, 0), time.Hour, 1)
	f.must(err)
	if want := []int64{0, 0, 0, 0, 2, 0}; !slices.Equal(early.dues(), want) {
		t.Errorf("from before 1970: %+v, want %v", early, want)
	}
	for _, bad := range []struct {
		from time.Time
		step time.Duration
		n    int
	}{{step: 30, n: 1}, {step: -time.Hour, n: 1}, {n: 1}, {step: math.MaxInt64, n: 1}, {step: time.Hour},
		{step: time.Hour, n: maxBuckets + 1}, {maxDue, time.Hour, 1}} {
		if _, err := m.Forecast(ctxB, bad.from, bad.step, bad.n); !errors.Is(err, ErrBadOption) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}
