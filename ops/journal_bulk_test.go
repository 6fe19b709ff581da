package ops

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/journal"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/redis/go-redis/v9"
)

// entryOf is the newest entry of a call for many.
func entryOf(f *face.Fixture, m *Queue) JournalEntry {
	f.T.Helper()
	for _, e := range journalIn(f, m) {
		if e.Bulk != nil {
			return e
		}
	}
	f.T.Fatal("no call for many is in the journal")
	return JournalEntry{}
}

// pendingAt sends n messages, an hour and a second apart, and returns when the first is due.
func pendingAt(f *face.Fixture, n int) (base time.Time) {
	base = time.Now().Add(time.Hour).Truncate(time.Microsecond)
	batch := make([]delayqueue.Outgoing, n)
	for i := range batch {
		batch[i] = delayqueue.Outgoing{Payload: fmt.Sprint(i),
			Options: []delayqueue.MsgOption{delayqueue.WithSchedule(base.Add(time.Duration(i) * time.Second))}}
	}
	f.Must(queuetest.Failure(f.Queue(nil).SendBatch(queuetest.CtxB, batch)))
	return base
}

// TestJournalOfBulk: a call for many has one entry, which follows it, from before its first step to its end.
func TestJournalOfBulk(t *testing.T) {
	f, m := newQueue(t)
	pendingAt(f, 10)
	m.WithOperator("ann").WithReason("why")
	few := Bulk{States: []delayqueue.State{delayqueue.StatePending}, Filter: Filter{Limit: 3, Contains: "1"}}
	dry := few
	dry.DryRun = true
	got, err := m.BulkDelete(queuetest.CtxB, dry)
	if err != nil || got.Entry != "" || len(journalIn(f, m)) != 0 {
		t.Errorf("a dry run has the entry %q, %v", got.Entry, err)
	}
	steps := 0
	few.Progress = func(r *BulkResult) bool {
		steps++
		one, err := m.JournalEntry(queuetest.CtxB, r.Entry)
		f.Must(err)
		b := one.Bulk
		if one.By != "ann" || one.Reason != "why" || one.Act != journal.Cancel ||
			one.Detail != `what is pending; payload "1"` ||
			b.Phase != journal.Running || b.Total != 10 || b.Task == nil || b.Task.Action != "delete" || b.StopAsked {
			t.Errorf("while it runs: %+v, %+v", one, b)
		}
		return true
	}
	got, err = m.BulkDelete(queuetest.CtxB, few)
	bulked(f, "delete", got, err, 10, 1, nil)
	if len(journalIn(f, m)) != 1 || steps != 4 {
		t.Errorf("after %d steps: %+v", steps, journalIn(f, m))
	}
	if one := entryOf(f, m); one.Messages != 1 || one.Bulk.Phase != journal.Finished || one.Bulk.Looked != 10 ||
		one.Bulk.Error != "" {
		t.Errorf("finished: %+v, %+v", one, one.Bulk)
	}
	few.Contains, few.Spread, few.Progress = "", time.Hour, func(*BulkResult) bool { return false }
	at := time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
	got, err = m.BulkReschedule(queuetest.CtxB, few, at)
	f.Must(err)
	if one := entryOf(f, m); one.Detail != "what is pending; due 2100-01-01T00:00:00Z; spread over 1h0m0s" ||
		one.Messages != 3 ||
		one.Bulk.Phase != journal.Stopped || !one.Bulk.Task.To.Equal(at) || !one.Bulk.Task.At.Equal(got.At) {
		t.Errorf("stopped by its Progress: %+v, %+v", one, one.Bulk)
	}
	few.Progress, few.Before = nil, got.At
	again, err := Of(delayqueue.NewMonitor(f.Name, f.Cli)).WithOperator("bob").BulkReschedule(queuetest.CtxB, few, at)
	bulked(f, "again", again, err, 6, 6, nil)
	all := journalIn(f, m)
	if len(all) != 3 || all[0].By != "bob" || all[0].Bulk.Phase != journal.Finished || all[0].Messages != 6 ||
		all[1].By != "ann" || all[1].Bulk.Phase != journal.Stopped {
		t.Errorf("again: %+v", all)
	}
	few.Before = time.Time{}
	pendingAt(f, 4)
	ctx, cancel := context.WithCancel(queuetest.CtxB)
	few.Spread, few.Progress = 0, func(*BulkResult) bool { cancel(); return true }
	if _, err = m.BulkRescheduleBy(ctx, few, time.Second); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	if one := entryOf(f, m); one.Act != journal.Reschedule || !strings.HasSuffix(one.Detail, "; by 1s") ||
		one.Bulk.Phase != journal.Stopped || one.Bulk.Task.By != time.Second {
		t.Errorf("canceled: %+v, %+v", one, one.Bulk)
	}
	_, err = m.BulkDelete(queuetest.CtxB,
		Bulk{States: []delayqueue.State{delayqueue.StatePending}, Filter: Filter{Limit: 3}, Progress: func(*BulkResult) bool {
			f.Vanished = f.Cli.HLen(queuetest.CtxB, f.Key("msg")).Val()
			f.Must(f.Cli.Do(queuetest.CtxB, "DEL", f.Key("msg")).Err())
			f.Must(f.Cli.Do(queuetest.CtxB, "SET", f.Key("msg"), "x").Err())
			return true
		}})
	if !errors.Is(err, delayqueue.ErrWrongType) {
		t.Errorf("with a key of somebody else: %v", err)
	}
	if one := entryOf(f, m); one.Bulk.Phase != journal.Failed || !strings.Contains(one.Bulk.Error, "WRONGTYPE") {
		t.Errorf("failed: %+v, %+v", one, one.Bulk)
	}
	f.Must(f.Cli.Del(queuetest.CtxB, f.Key("msg"), f.Key("pending")).Err())
}

// TestStopBulk: another process stops a call for many before its next step, once, and the same call does the rest.
func TestStopBulk(t *testing.T) {
	f, m := newQueue(t)
	const n = 20
	pendingAt(f, n)
	bob := Of(delayqueue.NewMonitor(f.Name, f.Cli)).WithOperator("bob")
	at, steps := time.Now().Add(9*time.Hour), 0
	b := Bulk{States: []delayqueue.State{delayqueue.StatePending}, Filter: Filter{Limit: 3},
		Progress: func(r *BulkResult) bool {
			if steps++; steps == 2 {
				f.Must(bob.StopBulk(queuetest.CtxB, r.Entry))
				one, err := m.JournalEntry(queuetest.CtxB, r.Entry)
				f.Must(err)
				if !one.Bulk.StopAsked || one.Bulk.Phase != journal.Running {
					t.Errorf("asked to stop: %+v", one.Bulk)
				}
				f.Must(bob.StopBulk(queuetest.CtxB, r.Entry)) // again
			}
			return true
		}}
	got, err := m.BulkReschedule(queuetest.CtxB, b, at)
	if !errors.Is(err, ErrBulkStopped) || steps != 2 || got.Done != 6 || got.Finished {
		t.Errorf("stopped after %d steps: %+v, %v", steps, got, err)
	}
	one, err := m.JournalEntry(queuetest.CtxB, got.Entry)
	f.Must(err)
	if one.Bulk.Phase != journal.Stopped || one.Messages != 6 || one.Bulk.StopAsked {
		t.Errorf("stopped: %+v, %+v", one, one.Bulk)
	}
	if all := journalIn(f, m); len(all) != 3 || all[0].Act != journal.StopBulk || all[0].By != "bob" ||
		all[0].Target != got.Entry {
		t.Errorf("%+v", all)
	}
	if err := bob.StopBulk(queuetest.CtxB, got.Entry); !errors.Is(err, delayqueue.ErrWrongState) {
		t.Errorf("stop what has stopped: %v", err)
	}
	b.Progress, b.Before = nil, got.At
	got, err = m.BulkReschedule(queuetest.CtxB, b, at)
	bulked(f, "again", got, err, n-6, n-6, nil)
}

// TestStopBulkThatFindsNothing: one whose steps have nothing to do sees within about a second that it is to stop.
func TestStopBulkThatFindsNothing(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	pendingAt(f, 10)
	m, bob := Of(delayqueue.NewMonitor(f.Name, f.Cli)), Of(delayqueue.NewMonitor(f.Name, f.Cli))
	var seen time.Time
	_, err := m.BulkDelete(queuetest.CtxB,
		Bulk{States: []delayqueue.State{delayqueue.StatePending}, Filter: Filter{Limit: 1, Contains: "x"},
			Progress: func(r *BulkResult) bool {
				if seen.IsZero() {
					f.Must(bob.StopBulk(queuetest.CtxB, r.Entry))
					seen = time.Now()
				}
				queuetest.Eventually(t, "a second passes", func() bool { return time.Since(seen) > time.Second })
				return true
			}})
	if !errors.Is(err, ErrBulkStopped) {
		t.Errorf("%v", err)
	}
}

// dies runs a call for many whose process is killed in the k-th call of steer, which arrives or does not, and returns
// its entry.
func diesIn(f *face.Fixture, k int, arrives bool, call func(ctx context.Context, m *Queue) error) JournalEntry {
	f.T.Helper()
	cli := f.Client()
	ctx, cancel := context.WithCancel(queuetest.CtxB)
	defer cancel()
	dead := false
	f.T.Cleanup(link.Interpose(cli,
		queuetest.CommandHook(func(c context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			args := cmd.Args()
			if len(args) > 1 && (args[1] == script.SteerScript.SHA || args[1] == script.SteerScript.Text) {
				if k--; k == 0 {
					if arrives {
						f.Must(f.Cli.Do(queuetest.CtxB, append([]any{"eval", script.SteerScript.Text}, args[2:]...)...).Err())
					}
					dead = true
					cancel()
				}
			}
			if dead { // it writes nothing any more, no end into the journal either
				return fmt.Errorf("the process is dead: %w", context.Canceled)
			}
			return next(c, cmd)
		})))
	if err := call(ctx, Of(delayqueue.NewMonitor(f.Name, cli)).WithOperator("ann")); err == nil {
		f.T.Fatal("it did not die")
	}
	return entryOf(f, Of(delayqueue.NewMonitor(f.Name, f.Cli)))
}

// TestJournalOfTheDead: whatever step a process dies in, and whether or not that was carried out, the entry in the
// journal says how far it had come, and what it was told: the same call does the rest.
func TestJournalOfTheDead(t *testing.T) {
	t.Parallel()
	for k := 1; k <= 3; k++ {
		for _, arrives := range []bool{false, true} {
			t.Run(fmt.Sprintf("step %d, arrives %v", k, arrives), func(t *testing.T) {
				t.Parallel()
				f := face.New(t)
				const n = 10
				pendingAt(f, n)
				left := diesIn(f, k, arrives, func(ctx context.Context, m *Queue) error {
					_, err := m.BulkDelete(ctx, Bulk{States: []delayqueue.State{delayqueue.StatePending}, Filter: Filter{Limit: 3}})
					return err
				})
				if _, ok := left.Rest(); ok || left.Bulk.Phase != journal.Running || left.Messages != int64(3*(k-1)) ||
					left.Bulk.Total != n ||
					left.Bulk.Task.Action != "delete" {
					t.Errorf("the dead left %+v, %+v", left, left.Bulk)
				}
				left.Bulk.Silent += time.Hour
				told, ok := left.Rest()
				if !ok || !told.Before.Equal(left.Bulk.Task.At) {
					t.Errorf("there is no rest of %+v: %+v", left, told)
				}
				rest := int64(n) - left.Messages
				if arrives {
					rest -= 3
				}
				f.Send(f.Queue(nil), "new", face.InAnHour)
				m := Of(delayqueue.NewMonitor(f.Name, f.Cli))
				got, err := m.BulkDelete(queuetest.CtxB, told)
				bulked(f, "again", got, err, rest+1, rest, map[Reason]int64{PassedNew: 1})
				lists(f, m, delayqueue.StatePending, Filter{}, "new")
			})
		}
	}
}

// TestJournalRest: of which calls there is a rest, and how many messages that has.
func TestJournalRest(t *testing.T) {
	t.Parallel()
	at := time.UnixMicro(1_700_000_000_000_000)
	for what, c := range map[string]struct {
		is   BulkState
		done int64
		ok   bool
		most int64
	}{
		"stopped":              {BulkState{Phase: journal.Stopped, Task: &BulkTask{}}, 5, true, 0},
		"failed, with a bound": {BulkState{Phase: journal.Failed, Task: &BulkTask{Most: 7}}, 5, true, 2},
		"it has done all":      {BulkState{Phase: journal.Stopped, Task: &BulkTask{Most: 7}}, 7, false, 0},
		"finished":             {BulkState{Phase: journal.Finished, Task: &BulkTask{}}, 5, false, 0},
		"it runs":              {BulkState{Phase: journal.Running, Task: &BulkTask{}}, 5, false, 0},
		"interrupted": {BulkState{Phase: journal.Running, Silent: 2 * time.Minute, Task: &BulkTask{}}, 5, true,
			0},
		"what shifted":            {BulkState{Phase: journal.Stopped, Task: &BulkTask{By: time.Hour}}, 5, false, 0},
		"its task was not stored": {BulkState{Phase: journal.Stopped}, 5, false, 0},
	} {
		if c.is.Task != nil {
			c.is.Task.At = at
		}
		b, ok := (&JournalEntry{Messages: c.done, Bulk: &c.is}).Rest()
		if ok != c.ok || b.Most != c.most || ok && !b.Before.Equal(at) {
			t.Errorf("%s: %+v, %v", what, b, ok)
		}
	}
	if _, ok := (&JournalEntry{}).Rest(); ok {
		t.Error("there is a rest of one act")
	}
}

// TestJournalOfBulkAfterAnOutage: a call for many that finds no Redis for a while is seen and stopped after that as
// before.
func TestJournalOfBulkAfterAnOutage(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	pendingAt(f, 6)
	cli, bob := f.Client(), Of(delayqueue.NewMonitor(f.Name, f.Cli))
	away, since, refused := false, time.Time{}, 0
	t.Cleanup(link.Interpose(cli,
		queuetest.CommandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if args := cmd.Args(); len(args) > 1 && (args[1] == script.NoteScript.SHA || args[1] == script.NoteScript.Text) &&
				away {
				if refused++; refused == 1 {
					since = time.Now()
				}
				if away = time.Since(since) < journalTime+time.Second/2; away {
					return fmt.Errorf("away: %w", context.DeadlineExceeded)
				}
			}
			return next(ctx, cmd)
		})))
	got, err := Of(delayqueue.NewMonitor(f.Name, cli)).BulkDelete(queuetest.CtxB,
		Bulk{States: []delayqueue.State{delayqueue.StatePending}, Filter: Filter{Limit: 2},
			Progress: func(r *BulkResult) bool {
				if r.Done == 2 {
					away = true
				} else {
					f.Must(bob.StopBulk(queuetest.CtxB, r.Entry))
				}
				return true
			}})
	if !errors.Is(err, ErrBulkStopped) || got.Done != 4 || refused == 0 {
		t.Errorf("after %d refusals: %+v, %v", refused, got, err)
	}
	if one := entryOf(f, bob); one.Bulk.Phase != journal.Stopped || one.Messages != 4 {
		t.Errorf("%+v, %+v", one, one.Bulk)
	}
	got, err = bob.BulkDelete(queuetest.CtxB, Bulk{States: []delayqueue.State{delayqueue.StatePending}, Before: got.At})
	bulked(f, "again", got, err, 2, 2, nil)
	f.CheckEmpty()
}
