package ops

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/redis/go-redis/v9"
)

// TestBulkRescheduleUntilNow: if the time to which ready messages are moved comes meanwhile, the others are done where
// they are, each once.
func TestBulkRescheduleUntilNow(t *testing.T) {
	f, m := newQueue(t)
	q := f.Queue(nil)
	const n = 40
	now := time.Now().UnixMicro()
	for range n { // as if they had been released
		id := f.Send(q, "").ID
		f.Must(f.Cli.ZRem(queuetest.CtxB, f.Key("pending"), id).Err())
		f.Must(f.Cli.HSet(queuetest.CtxB, f.Key("fail"), id, fmt.Sprintf("2 0 0 %d ", now)).Err())
		f.Must(f.Cli.RPush(queuetest.CtxB, f.Key("ready"), "2:"+id).Err())
	}
	at := time.Now().Add(3 * time.Second)
	got, err := m.BulkReschedule(queuetest.CtxB,
		Bulk{States: []delayqueue.State{delayqueue.StateReady}, Filter: Filter{Limit: 10}, Progress: func(*BulkResult) bool {
			queuetest.Eventually(t, "the time has come", func() bool { return time.Now().After(at) })
			return true
		}}, at)
	bulked(f, "rescheduled", got, err, n, n, nil)
}

// TestBulkAfterTheClockWasAhead: a retry whose failure was noted while the server's clock was ahead is not new.
func TestBulkAfterTheClockWasAhead(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	id, ahead := f.Send(f.Queue(nil), "x", face.InAnHour).ID, time.Now().Add(24*time.Hour).UnixMicro()
	f.Must(f.Cli.ZRem(queuetest.CtxB, f.Key("pending"), id).Err())
	f.Must(f.Cli.HSet(queuetest.CtxB, f.Key("fail"), id, fmt.Sprintf("2 1 0 %d ", ahead)).Err())
	f.Must(f.Cli.ZAdd(queuetest.CtxB, f.Key("retry"), redis.Z{Score: float64(ahead), Member: "2:" + id}).Err())
	got, err := Of(delayqueue.NewMonitor(f.Name, f.Cli)).BulkRescheduleBy(queuetest.CtxB, Bulk{}, -23*time.Hour)
	bulked(f, "shifted back", got, err, 1, 1, nil)
}

// TestSpreadFromNow: what was counted a while ago is spread from when it is done, and is not due at once.
func TestSpreadFromNow(t *testing.T) {
	t.Parallel()
	o := operation{task: task{What: script.SteerRequeue, Spread: 60e6,
		States: []delayqueue.State{delayqueue.StateGarbage}},
		reach: reach{Begun: 1e9, Now: 5e9, Result: BulkResult{Total: 2}}}
	if got := o.request(o.places()[0], make([]entry, 2), 2); got.Us != o.Now || got.Step != 30e6 {
		t.Errorf("from %d, one every %d us", got.Us, got.Step)
	}
}

// TestCursorIsMadeUp: a cursor whose fields do not fit each other is refused.
func TestCursorIsMadeUp(t *testing.T) {
	f, m := newQueue(t)
	pendingAt(f, 4)
	b := Bulk{States: []delayqueue.State{delayqueue.StatePending}, Filter: Filter{Limit: 1}, DryRun: true,
		Progress: func(*BulkResult) bool { return false }}
	first, err := m.BulkDelete(queuetest.CtxB, b)
	f.Must(err)
	for what, spoil := range map[string]func(*reach){
		"genuine":         func(*reach) {},
		"before all":      func(r *reach) { r.Place = -1 },
		"behind all":      func(r *reach) { r.Place = 1 },
		"too few places":  func(r *reach) { r.Left = nil },
		"too many places": func(r *reach) { r.Left = append(r.Left, 1) },
		"too few ends":    func(r *reach) { r.Ends = nil },
		"too many ends":   func(r *reach) { r.Ends = append(r.Ends, 1) },
	} {
		var r reach
		f.Must(readCursor(first.Next, &r))
		spoil(&r)
		b.Cursor, err = cursorOf(&r)
		f.Must(err)
		if got, err := m.BulkDelete(queuetest.CtxB, b); errors.Is(err, ErrBadCursor) == (what == "genuine") {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
}
