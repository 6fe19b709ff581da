package ops

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
)

// notHandled are the states of live messages that no handler has.
var notHandled = []delayqueue.State{delayqueue.StatePending, delayqueue.StateReady, delayqueue.StateRetry,
	delayqueue.StateWaiting}

// inLanes sends messages into lanes of several widths, a minute after each other from base on. One lane has a message
// that waits three hours for a retry, with its turn.
func inLanes(f *face.Fixture) (base time.Time, n int64) {
	failed := make(chan struct{}, 1)
	q := f.Queue(nil).WithRetryDelays(3 * time.Hour).WithHandler(func(context.Context, *delayqueue.Message) error {
		failed <- struct{}{}
		return queuetest.ErrBoom
	})
	f.Send(q, "failed 00", delayqueue.WithLane("failed"), delayqueue.WithRetryCount(3))
	q.StartConsume()
	queuetest.Receive(f.T, "a handler", failed)
	f.Must(q.Shutdown(queuetest.CtxB))
	base = time.Now().Add(time.Hour).Truncate(time.Microsecond)
	var batch []delayqueue.Outgoing
	for i, widths := range [][]int{{1, 1, 1, 1, 1}, {2, 2, 2, 2, 2}, {5, 5, 1, 5, 2, 5}, {1, 1, 1}} {
		name := []string{"one", "two", "mixed", "failed"}[i]
		for _, width := range widths {
			batch = append(batch, delayqueue.Outgoing{Payload: fmt.Sprintf("%s %02d", name, len(batch)),
				Options: []delayqueue.MsgOption{
					delayqueue.WithLane(name, width), delayqueue.WithSchedule(base.Add(time.Duration(len(batch)) * time.Minute))}})
		}
	}
	f.Must(queuetest.Failure(q.SendBatch(queuetest.CtxB, batch)))
	return base, int64(len(batch) + 1)
}

// unhandled are all messages that no handler has, by their ids.
func unhandled(f *face.Fixture, m *Queue) map[string]*MessageStatus {
	f.T.Helper()
	f.Check()
	all := map[string]*MessageStatus{}
	for _, state := range notHandled {
		for msg, err := range m.All(queuetest.CtxB, state, Filter{}) {
			f.Must(err)
			all[msg.ID] = msg
		}
	}
	return all
}

// TestBulkOfLanes: a call for many reaches each message of a lane once, wherever it goes because others are changed.
func TestBulkOfLanes(t *testing.T) {
	t.Parallel()
	at := func(d time.Duration) func(*Queue, Bulk, time.Time) (*BulkResult, error) {
		return func(m *Queue, b Bulk, base time.Time) (*BulkResult, error) {
			return m.BulkReschedule(queuetest.CtxB, b, base.Add(d))
		}
	}
	by := func(d time.Duration) func(*Queue, Bulk, time.Time) (*BulkResult, error) {
		return func(m *Queue, b Bulk, _ time.Time) (*BulkResult, error) {
			return m.BulkRescheduleBy(queuetest.CtxB, b, d)
		}
	}
	then := func(d time.Duration) func(_, base time.Time) time.Time {
		return func(_, base time.Time) time.Time { return base.Add(d) }
	}
	later := func(d time.Duration) func(due, _ time.Time) time.Time {
		return func(due, _ time.Time) time.Time { return due.Add(d) }
	}
	for name, c := range map[string]struct {
		call func(*Queue, Bulk, time.Time) (*BulkResult, error)
		want func(due, base time.Time) time.Time // nil: it is deleted; zero: it is due
		once bool                                // it cannot be done again
	}{
		"delete": {func(m *Queue, b Bulk, _ time.Time) (*BulkResult, error) { return m.BulkDelete(queuetest.CtxB, b) }, nil,
			false},
		"run now": {func(m *Queue, b Bulk, _ time.Time) (*BulkResult, error) {
			b.States = nil
			return m.BulkRunNow(queuetest.CtxB, b)
		}, func(_, _ time.Time) time.Time { return time.Time{} }, false},
		"earlier":         {at(-time.Minute), then(-time.Minute), false},
		"later":           {at(9 * time.Hour), then(9 * time.Hour), false},
		"amid them":       {at(450 * time.Second), then(450 * time.Second), false},
		"a little later":  {by(90 * time.Second), later(90 * time.Second), true},
		"much later":      {by(5 * time.Hour), later(5 * time.Hour), true},
		"a little before": {by(-90 * time.Second), later(-90 * time.Second), true},
	} {
		for _, way := range []string{"at once", "step by step", "after a dry run", "all states"} {
			t.Run(name+" "+way, func(t *testing.T) {
				f, m := newQueue(t)
				base, n := inLanes(f)
				before := unhandled(f, m)
				b := Bulk{States: notHandled, Filter: Filter{Limit: 2}}
				if way == "all states" && c.want != nil {
					b.States = nil
				}
				if way == "after a dry run" {
					b.DryRun = true
					counted, err := c.call(m, b, base)
					bulked(f, "dry run", counted, err, n, n, nil)
					b.DryRun, b.Before, b.Most = false, counted.At, counted.Done
				}
				if way == "step by step" && !c.once {
					b.Progress = func(r *BulkResult) bool { return r.Done == 0 }
				}
				got, err := c.call(m, b, base)
				done := got.Done
				for calls := int64(0); err == nil && !got.Finished && calls < 3*n; calls++ {
					b.Before = got.At
					got, err = c.call(m, b, base)
					done += got.Done
				}
				if err != nil || !got.Finished || done != n {
					t.Errorf("%+v, %v; %d of %d done", got, err, done, n)
				}
				after := unhandled(f, m)
				if c.want == nil && len(after) > 0 || c.want != nil && int64(len(after)) != n {
					t.Fatalf("%d are left", len(after))
				}
				for id, msg := range after {
					want := c.want(before[id].At, base)
					if want.IsZero() && msg.At.After(time.Now()) || !want.IsZero() && !msg.At.Equal(want) {
						t.Errorf("%s is due at %v, was at %v, want %v", msg.Payload, msg.At, before[id].At, want)
					}
				}
			})
		}
	}
}

// TestBulkOfLanesWhileTurnsEnd: what gets a turn, or loses one, while a call for many goes on is shifted once.
func TestBulkOfLanesWhileTurnsEnd(t *testing.T) {
	t.Parallel()
	for name, by := range map[string]time.Duration{"later": time.Hour, "earlier": -30 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			f, m := newQueue(t)
			q := f.Queue(nil)
			base := time.Now().Add(time.Hour).Truncate(time.Microsecond)
			var holders []string
			for i := range 6 {
				lane := delayqueue.WithLane(fmt.Sprint(i))
				holders = append(holders,
					f.Send(q, "holds", lane, delayqueue.WithSchedule(base.Add(time.Duration(i)*time.Second))).ID)
				f.Send(q, "waits", lane, delayqueue.WithSchedule(base.Add(time.Duration(60+i)*time.Second)))
			}
			want, ended := map[string]time.Time{}, false
			for id, msg := range unhandled(f, m) {
				want[id] = msg.At.Add(by)
			}
			got, err := m.BulkRescheduleBy(queuetest.CtxB, Bulk{Filter: Filter{Limit: 6}, Progress: func(r *BulkResult) bool {
				for i := 0; i < 3 && r.Done == 6 && !ended; i++ {
					if by > 0 { // those that waited are shifted, and get the turns
						f.Must(m.Delete(queuetest.CtxB, holders[i]))
						continue
					}
					new := f.Send(q, "new", delayqueue.WithLane(fmt.Sprint(i))) // those that had the turns are shifted, and wait
					want[new.ID] = new.Due
				}
				ended = ended || r.Done == 6
				return true
			}}, by)
			if err != nil || !got.Finished || !ended {
				t.Errorf("%+v, %v", got, err)
			}
			for id, msg := range unhandled(f, m) {
				if !msg.At.Equal(want[id]) {
					t.Errorf("%s is due at %v, want %v", msg.Payload, msg.At, want[id])
				}
			}
		})
	}
}

// TestBulkDeleteWaiting: a message that asks for few turns is deleted after those behind it, which would get turns,
// and leave the state.
func TestBulkDeleteWaiting(t *testing.T) {
	f, m := newQueue(t)
	q := f.Queue(nil)
	for i, width := range []int{5, 1, 5, 5} {
		f.Send(q, fmt.Sprint(i), delayqueue.WithLane("l", width), delayqueue.WithDelay(time.Duration(1+i)*time.Hour))
	}
	got, err := m.BulkDelete(queuetest.CtxB, Bulk{States: []delayqueue.State{delayqueue.StateWaiting}})
	bulked(f, "delete", got, err, 3, 3, nil)
	lists(f, m, delayqueue.StatePending, Filter{}, "0")
}

// TestBulkSpreadKeepsLanes: a spread does not change the order of a lane that has one width.
func TestBulkSpreadKeepsLanes(t *testing.T) {
	t.Parallel()
	for name, to := range map[string]time.Duration{"earlier": -40 * time.Minute, "later": 9 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			f, m := newQueue(t)
			base, n := inLanes(f)
			got, err := m.BulkReschedule(queuetest.CtxB, Bulk{Filter: Filter{Limit: 3}, Spread: time.Minute}, base.Add(to))
			if err != nil || !got.Finished || got.Done != n {
				t.Errorf("%+v, %v; want %d done", got, err, n)
			}
			all := slices.SortedFunc(maps.Values(unhandled(f, m)), func(a, b *MessageStatus) int {
				return strings.Compare(a.Payload, b.Payload)
			})
			last := map[string]time.Time{}
			for _, msg := range all { // in each lane in the order before
				if msg.Lane != "mixed" && msg.At.Before(last[msg.Lane]) || msg.At.Before(base.Add(to)) ||
					msg.At.After(base.Add(to+time.Minute)) {
					t.Errorf("%s is due at %v, behind %v", msg.Payload, msg.At, last[msg.Lane])
				}
				last[msg.Lane] = msg.At
			}
		})
	}
}

// TestBulkOfWideLane: a step ends if the messages that it has made due earlier had to look at many turns, and the
// next step does the rest.
func TestBulkOfWideLane(t *testing.T) {
	f, m := newQueue(t)
	const n = 300
	batch := make([]delayqueue.Outgoing, n)
	for i := range batch {
		batch[i].Options = []delayqueue.MsgOption{delayqueue.WithLane("l", 100),
			delayqueue.WithDelay(20*time.Hour + time.Duration(i)*time.Second)}
	}
	f.Must(queuetest.Failure(f.Queue(nil).SendBatch(queuetest.CtxB, batch)))
	last, most := int64(0), int64(0)
	b := Bulk{Progress: func(r *BulkResult) bool {
		if r.Done <= 100 { // the others come behind these, and wait
			most = max(most, r.Done-last)
		}
		last = r.Done
		return true
	}}
	got, err := m.BulkRescheduleBy(queuetest.CtxB, b, -15*time.Hour)
	bulked(f, "earlier", got, err, n, n, nil)
	if most > 10 {
		t.Errorf("%d messages in one step, of which each looks at 100 turns", most)
	}
}

// TestBulkWhileLanesMove: a call that makes messages due now reaches also those that get their turns, and lose them
// again, while it goes over what waits. A dry run counts each once.
func TestBulkWhileLanesMove(t *testing.T) {
	t.Parallel()
	for _, dry := range []bool{false, true} {
		t.Run(fmt.Sprint("dry ", dry), func(t *testing.T) {
			f, m := newQueue(t)
			end := make(chan struct{})
			q := f.Queue(nil).WithConcurrent(10).WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
				if msg.Payload == "live" {
					<-end
				}
				return nil
			})
			const n, lanes = 5, 3
			for l := range lanes {
				lane := delayqueue.WithLane(fmt.Sprint("l", l))
				f.Send(q, "live", lane)
				for i := range n {
					f.Send(q, fmt.Sprint("far ", i), lane, delayqueue.WithDelay(3*time.Hour))
				}
			}
			q.StartConsume()
			queuetest.Eventually(t, "all lanes are busy", func() bool { return len(f.Held()) == lanes })
			moved := false
			b := Bulk{DryRun: dry, Filter: Filter{Limit: 4}, Progress: func(r *BulkResult) bool {
				if !moved && r.Looked > 0 { // in the middle of what waits
					moved = true
					close(end)
					queuetest.Eventually(t, "all have ended", func() bool { return len(f.Held()) == 0 })
				}
				return true
			}}
			got, err := m.BulkRunNow(queuetest.CtxB, b)
			if err != nil || !got.Finished || got.Total != n*lanes || got.Done != n*lanes || got.Passed[PassedNew] > 0 {
				t.Errorf("%+v, %v; want %d done", got, err, n*lanes)
			}
			if !dry {
				f.Drained()
			} else if left := len(unhandled(f, m)); left != n*lanes {
				t.Errorf("%d are left", left)
			}
		})
	}
}

// TestBulkSpreadInSteps: a page that is changed in several steps, because each of its messages looks at many turns,
// keeps its order.
func TestBulkSpreadInSteps(t *testing.T) {
	f, m := newQueue(t)
	var batch []delayqueue.Outgoing
	for i := range 200 {
		payload := fmt.Sprintf("%03d", i)
		if i < 30 {
			payload += " x"
		}
		batch = append(batch, delayqueue.Outgoing{Payload: payload, Options: []delayqueue.MsgOption{
			delayqueue.WithLane("l", 100), delayqueue.WithDelay(20*time.Hour + time.Duration(i)*time.Second)}})
	}
	f.Must(queuetest.Failure(f.Queue(nil).SendBatch(queuetest.CtxB, batch)))
	at, steps := time.Now().Add(time.Hour), 0
	b := Bulk{Filter: Filter{Contains: "x"}, Spread: time.Minute, Progress: func(*BulkResult) bool {
		steps++
		return true
	}}
	got, err := m.BulkReschedule(queuetest.CtxB, b, at)
	if err != nil || got.Done != 30 || steps < 3 {
		t.Errorf("%+v, %v, in %d steps", got, err, steps)
	}
	var all []*MessageStatus
	for _, msg := range unhandled(f, m) {
		if strings.Contains(msg.Payload, "x") {
			all = append(all, msg)
		}
	}
	slices.SortFunc(all, func(a, b *MessageStatus) int { return strings.Compare(a.Payload, b.Payload) })
	for i, msg := range all {
		if i > 0 && !msg.At.After(all[i-1].At) || msg.At.Before(at) || msg.At.After(at.Add(time.Minute)) {
			t.Errorf("%s is due at %v, and the one before at %v", msg.Payload, msg.At, all[max(i-1, 0)].At)
		}
	}
}

// TestDryRunOfLanesGoesOn: a dry run that goes on counts each message with a lane once, and each that is new once.
func TestDryRunOfLanesGoesOn(t *testing.T) {
	f, m := newQueue(t)
	_, n := inLanes(f)
	b := Bulk{Filter: Filter{Limit: 4}, DryRun: true, Progress: func(*BulkResult) bool { return false }}
	got, err := m.BulkRunNow(queuetest.CtxB, b)
	for i := 0; err == nil && got.Next != "" && i < 100; i++ {
		b.Cursor = got.Next
		got, err = m.BulkRunNow(queuetest.CtxB, b)
	}
	if err != nil || !got.Finished || got.Done != n || got.Looked != n {
		t.Errorf("%+v, %v; want %d counted", got, err, n)
	}
	f.Send(f.Queue(nil), "new", face.InAnHour, delayqueue.WithLane("one"))
	b = Bulk{DryRun: true, Before: got.At}
	got, err = m.BulkRunNow(queuetest.CtxB, b)
	if err != nil || got.Done != n || got.Passed[PassedNew] != 1 {
		t.Errorf("%+v, %v; want %d counted, and 1 new", got, err, n)
	}
}

// TestBulkOfOneLane: a filter by lane takes the messages of this lane in every state, and the journal names the lane.
func TestBulkOfOneLane(t *testing.T) {
	t.Parallel()
	face.OnServers(t, func(t *testing.T, f *face.Fixture) {
		_, n := inLanes(f)
		m := Of(delayqueue.NewMonitor(f.Name, f.Cli))
		page, err := m.List(queuetest.CtxB, delayqueue.StateWaiting, Filter{Lane: "one"}, "")
		f.Must(err)
		for _, msg := range page.Messages {
			if msg.Lane != "one" {
				t.Errorf("of lane one: %+v", msg)
			}
		}
		got, err := m.BulkDelete(queuetest.CtxB, Bulk{States: notHandled, Filter: Filter{Lane: "one"}})
		f.Must(err)
		if left := len(unhandled(f, m)); len(page.Messages) != 4 || got.Done != 5 || left != int(n)-5 {
			t.Errorf("%d of the lane wait, deleted: %d, left: %d of %d", len(page.Messages), got.Done, left, n)
		}
		entries, err := m.Journal(queuetest.CtxB, 1, "")
		f.Must(err)
		if e := entries.Entries[0]; e.Bulk.Task.Filter.Lane != "one" || !strings.Contains(e.Detail, `lane "one"`) {
			t.Errorf("the journal: %+v", e)
		}
	})
}
