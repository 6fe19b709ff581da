package delayqueue

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestUnknownLayout: calls for many and DeleteQueue refuse a layout that is not understood, change nothing, and say why.
func TestUnknownLayout(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q, m := f.queue(nil), NewMonitor(f.name, f.cli)
	f.buried("dead")
	for _, payload := range []string{"a", "b"} {
		f.send(q, payload, inAnHour)
	}
	all := []State{StatePending, StateReady, StateUnack, StateRetry, StateGarbage}
	stopped, err := m.BulkRescheduleBy(ctxB, Bulk{Filter: Filter{Limit: 1}, Progress: func(*BulkResult) bool { return false }}, time.Minute)
	f.must(err)
	calls := map[string]func() error{
		"BulkDelete":       func() error { _, err := m.BulkDelete(ctxB, Bulk{States: all}); return err },
		"BulkDelete, dry":  func() error { _, err := m.BulkDelete(ctxB, Bulk{States: all, DryRun: true}); return err },
		"of none":          func() error { _, err := m.BulkDelete(ctxB, Bulk{States: []State{StateRetry}}); return err },
		"BulkRequeue":      func() error { _, err := m.BulkRequeue(ctxB, Bulk{}); return err },
		"BulkRunNow":       func() error { _, err := m.BulkRunNow(ctxB, Bulk{}); return err },
		"BulkReschedule":   func() error { _, err := m.BulkReschedule(ctxB, Bulk{}, time.Now()); return err },
		"BulkRescheduleBy": func() error { _, err := m.BulkRescheduleBy(ctxB, Bulk{}, time.Hour); return err },
		"BulkContinue":     func() error { _, err := m.BulkContinue(ctxB, stopped.Next, nil); return err },
		"DeleteQueue":      func() error { return m.DeleteQueue(ctxB, false) },
		"by force":         func() error { return m.DeleteQueue(ctxB, true) },
	}
	before := f.check()
	for layout, why := range map[string]string{"2": "it is 2, and this version knows 1: upgrade", "17": "it is 17, and",
		"": "no version writes", "0": "no version writes",
		"01": "no version writes", "x": `is "x", which no version`, "1.0": "no version", "1\r\n+OK": "no version",
		strings.Repeat("9", 400): "no version"} {
		f.must(f.cli.HSet(ctxB, q.store.keys.state, "layout", layout).Err())
		for name, call := range calls {
			err := call()
			if !errors.Is(err, ErrUnknownLayout) || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), f.name) {
				t.Errorf("%s of layout %q: %v, want one that says %q", name, layout, err, why)
			}
		}
	}
	f.must(f.cli.HDel(ctxB, q.store.keys.state, "layout").Err())
	after := f.check()
	for name, pair := range map[string][2]any{"pending": {before.Pending, after.Pending}, "garbage": {before.Garbage, after.Garbage},
		"messages": {before.Messages, after.Messages}} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			t.Errorf("%s were %v, are %v", name, pair[0], pair[1])
		}
	}
	got, err := m.BulkContinue(ctxB, stopped.Next, nil)
	f.bulked("upgraded", got, err, 2, 2, nil)
}

// TestUnknownLayoutGoesOn: an older process beside a newer one sends, consumes, looks, and takes back.
func TestUnknownLayoutGoesOn(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := NewMonitor(f.name, f.cli)
	var got tally
	q := f.queue(func(payload string) bool { got.add(payload); return true })
	f.must(f.cli.HSet(ctxB, q.store.keys.state, "layout", "2").Err())
	q.StartConsume()
	f.send(q, "now")
	eventually(t, "it is handled", func() bool { n, _ := got.counts(); return n == 1 })
	later, keyed, other := f.send(q, "later", inAnHour), f.send(q, "keyed", inAnHour, WithKey("k")), f.send(q, "other", inAnHour)
	f.must(q.Reschedule(ctxB, later.ID, time.Now().Add(2*time.Hour)))
	f.must(q.RescheduleKey(ctxB, "k", time.Now().Add(2*time.Hour)))
	f.must(m.RescheduleBy(ctxB, keyed.ID, time.Minute))
	f.must(m.Delete(ctxB, other.ID))
	f.must(m.Pause(ctxB))
	f.must(m.Resume(ctxB))
	if counts, err := m.Counts(ctxB); err != nil || counts.Pending != 2 {
		t.Errorf("counts: %+v, %v", counts, err)
	}
	if r, err := q.Intercept(ctxB, keyed.ID); err != nil || !r.Intercepted {
		t.Errorf("intercept: %+v, %v", r, err)
	}
	f.must(m.RunNow(ctxB, later.ID))
	eventually(t, "the other is handled", func() bool { n, _ := got.counts(); return n == 2 })
	f.must(f.cli.HDel(ctxB, q.store.keys.state, "layout").Err())
}

// TestUnknownLayoutMeanwhile: the call itself looks, so a queue that a newer version takes over between two steps is
// left alone from then on, and what was begun goes on after an upgrade.
func TestUnknownLayoutMeanwhile(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q, m := f.queue(nil), NewMonitor(f.name, f.cli)
	const n = 5
	for range n {
		f.send(q, "x", inAnHour)
	}
	got, err := m.BulkDelete(ctxB, Bulk{States: []State{StatePending}, Filter: Filter{Limit: 2}, Progress: func(*BulkResult) bool {
		f.must(f.cli.HSet(ctxB, q.store.keys.state, "layout", "2").Err())
		return true
	}})
	if !errors.Is(err, ErrUnknownLayout) || got.Done != 2 || got.Next == "" {
		t.Fatalf("%+v, %v; want 2 done, and then refused", got, err)
	}
	if got, err := m.BulkContinue(ctxB, got.Next, nil); !errors.Is(err, ErrUnknownLayout) || got.Done != 2 {
		t.Errorf("%+v, %v; want it refused again", got, err)
	}
	f.must(f.cli.HDel(ctxB, q.store.keys.state, "layout").Err())
	got, err = m.BulkContinue(ctxB, got.Next, nil)
	f.bulked("after the upgrade", got, err, n, n, nil)
}

// TestScriptUnknownLayout: steer, for many, does nothing and says why; but a call that was carried out is answered.
func TestScriptUnknownLayout(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		r.put(msg("a", time.Hour), msg("b", time.Hour))
		steer := func(c *caller, name, only string) error {
			_, err := r.store.steer(context.Background(), c, steerRequest{what: "delete", only: only, targets: []spot{{tag: idOf(name)}}})
			return err
		}
		c := newCaller()
		c.next()
		if err := steer(c, "a", "pending"); err != nil {
			r.t.Fatal(err)
		}
		r.do("HSET", r.keys.state, "layout", "2")
		before := r.contents()
		if err := steer(c, "a", "pending"); err != nil {
			r.t.Errorf("a repeat of what was done: %v", err)
		}
		c.next()
		for _, only := range []string{"pending", "ready", "unack", "retry", "garbage"} {
			if err := steer(c, "b", only); !errors.Is(err, ErrUnknownLayout) {
				r.t.Errorf("in %s: %v", only, err)
			}
		}
		for _, force := range []bool{false, true} {
			if _, _, err := r.store.drop(context.Background(), force); !errors.Is(err, ErrUnknownLayout) {
				r.t.Errorf("drop: %v", err)
			}
		}
		r.equal("contents", r.contents(), before)
		if err := steer(c, "b", ""); err != nil {
			r.t.Errorf("one message: %v", err)
		}
		r.do("HDEL", r.keys.state, "layout")
	})
}
