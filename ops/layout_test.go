package ops

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
)

// TestUnknownLayout: calls for many and DeleteQueue refuse a layout that is not understood, change nothing, and say
// why.
func TestUnknownLayout(t *testing.T) {
	f, m := newQueue(t)
	q := f.Queue(nil)
	buriedIn(f, "dead")
	for _, payload := range []string{"a", "b"} {
		f.Send(q, payload, face.InAnHour)
	}
	all := []delayqueue.State{delayqueue.StatePending, delayqueue.StateReady, delayqueue.StateUnack, delayqueue.StateRetry,
		delayqueue.StateGarbage}
	calls := map[string]func() error{
		"BulkDelete": func() error { _, err := m.BulkDelete(queuetest.CtxB, Bulk{States: all}); return err },
		"BulkDelete, dry": func() error {
			_, err := m.BulkDelete(queuetest.CtxB, Bulk{States: all, DryRun: true})
			return err
		},
		"of none": func() error {
			_, err := m.BulkDelete(queuetest.CtxB, Bulk{States: []delayqueue.State{delayqueue.StateRetry}})
			return err
		},
		"BulkRequeue":      func() error { _, err := m.BulkRequeue(queuetest.CtxB, Bulk{}); return err },
		"BulkRunNow":       func() error { _, err := m.BulkRunNow(queuetest.CtxB, Bulk{}); return err },
		"BulkReschedule":   func() error { _, err := m.BulkReschedule(queuetest.CtxB, Bulk{}, time.Now()); return err },
		"BulkRescheduleBy": func() error { _, err := m.BulkRescheduleBy(queuetest.CtxB, Bulk{}, time.Hour); return err },
		"DeleteQueue":      func() error { return m.DeleteQueue(queuetest.CtxB, false) },
		"by force":         func() error { return m.DeleteQueue(queuetest.CtxB, true) },
	}
	before := f.Check()
	for layout, why := range map[string]string{"2": "it is 2, and this version knows 1: upgrade", "17": "it is 17, and",
		"": "no version writes", "0": "no version writes",
		"01": "no version writes", "x": `is "x", which no version`, "1.0": "no version", "1\r\n+OK": "no version",
		strings.Repeat("9", 400): "no version"} {
		f.Must(f.Cli.HSet(queuetest.CtxB, f.Key("state"), "layout", layout).Err())
		for name, call := range calls {
			err := call()
			if !errors.Is(err, ErrUnknownLayout) || !strings.Contains(err.Error(), why) ||
				!strings.Contains(err.Error(), f.Name) {
				t.Errorf("%s of layout %q: %v, want one that says %q", name, layout, err, why)
			}
		}
	}
	f.Must(f.Cli.HDel(queuetest.CtxB, f.Key("state"), "layout").Err())
	after := f.Check()
	for name, pair := range map[string][2]any{"pending": {before.Pending, after.Pending},
		"garbage":  {before.Garbage, after.Garbage},
		"messages": {before.Messages, after.Messages}} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			t.Errorf("%s were %v, are %v", name, pair[0], pair[1])
		}
	}
	got, err := m.BulkRescheduleBy(queuetest.CtxB, Bulk{}, time.Minute)
	bulked(f, "upgraded", got, err, 2, 2, nil)
}

// TestUnknownLayoutGoesOn: an older process beside a newer one sends, consumes, looks, and takes back.
func TestUnknownLayoutGoesOn(t *testing.T) {
	f, m := newQueue(t)
	var got queuetest.Tally
	q := f.Queue(func(payload string) bool { got.Add(payload); return true })
	f.Must(f.Cli.HSet(queuetest.CtxB, f.Key("state"), "layout", "2").Err())
	q.StartConsume()
	f.Send(q, "now")
	queuetest.Eventually(t, "it is handled", func() bool { n, _ := got.Counts(); return n == 1 })
	later, keyed, other := f.Send(q, "later", face.InAnHour), f.Send(q, "keyed", face.InAnHour, delayqueue.WithKey("k")),
		f.Send(q, "other", face.InAnHour)
	f.Must(q.Reschedule(queuetest.CtxB, later.ID, time.Now().Add(2*time.Hour)))
	f.Must(q.RescheduleKey(queuetest.CtxB, "k", time.Now().Add(2*time.Hour)))
	f.Must(m.RescheduleBy(queuetest.CtxB, keyed.ID, time.Minute))
	f.Must(m.Delete(queuetest.CtxB, other.ID))
	f.Must(m.Pause(queuetest.CtxB))
	f.Must(m.Resume(queuetest.CtxB))
	if counts, err := m.Counts(queuetest.CtxB); err != nil || counts.Pending != 2 {
		t.Errorf("counts: %+v, %v", counts, err)
	}
	if r, err := q.Intercept(queuetest.CtxB, keyed.ID); err != nil || !r.Intercepted {
		t.Errorf("intercept: %+v, %v", r, err)
	}
	f.Must(m.RunNow(queuetest.CtxB, later.ID))
	queuetest.Eventually(t, "the other is handled", func() bool { n, _ := got.Counts(); return n == 2 })
	f.Must(f.Cli.HDel(queuetest.CtxB, f.Key("state"), "layout").Err())
}
