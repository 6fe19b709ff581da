package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// entryOf is the newest entry of a call for many.
func (f *fixture) entryOf(m *Monitor) JournalEntry {
	f.t.Helper()
	for _, e := range f.journal(m) {
		if e.Bulk != nil {
			return e
		}
	}
	f.t.Fatal("no call for many is in the journal")
	return JournalEntry{}
}

// pendingAt sends n messages, an hour and a second apart, and returns when the first is due.
func (f *fixture) pendingAt(n int) (base time.Time) {
	base = time.Now().Add(time.Hour).Truncate(time.Microsecond)
	batch := make([]Outgoing, n)
	for i := range batch {
		batch[i] = Outgoing{Payload: fmt.Sprint(i), Options: []MsgOption{WithSchedule(base.Add(time.Duration(i) * time.Second))}}
	}
	_, err := f.queue(nil).SendBatch(ctxB, batch)
	f.must(err)
	return base
}

func TestJournalOfBulk(t *testing.T) { onSharedServer(t, journalOfBulk) }

// journalOfBulk: a call for many has one entry, which follows it, from before its first step to its end.
func journalOfBulk(f *fixture, m *Monitor) {
	f.pendingAt(10)
	m.WithOperator("ann").WithReason("why")
	few := Bulk{States: []State{StatePending}, Filter: Filter{Limit: 3, Contains: "1"}}
	dry := few
	dry.DryRun = true
	got, err := m.BulkDelete(ctxB, dry)
	if err != nil || got.Entry != "" || len(f.journal(m)) != 0 {
		f.t.Errorf("a dry run has the entry %q, %v", got.Entry, err)
	}
	steps := 0
	few.Progress = func(r *BulkResult) bool {
		steps++
		one, err := m.JournalEntry(ctxB, r.Entry)
		f.must(err)
		b := one.Bulk
		if one.By != "ann" || one.Reason != "why" || one.Act != ActDelete || one.Detail != `what is pending; payload "1"` ||
			b.Phase != BulkRunning || b.Total != 10 || b.Next == "" || b.StopAsked {
			f.t.Errorf("while it runs: %+v, %+v", one, b)
		}
		return true
	}
	got, err = m.BulkDelete(ctxB, few)
	f.bulked("delete", got, err, 10, 1, nil)
	if len(f.journal(m)) != 1 || steps != 4 {
		f.t.Errorf("after %d steps: %+v", steps, f.journal(m))
	}
	if one := f.entryOf(m); one.Messages != 1 || one.Bulk.Phase != BulkFinished || one.Bulk.Looked != 10 ||
		one.Bulk.Next != "" || one.Bulk.Error != "" {
		f.t.Errorf("finished: %+v, %+v", one, one.Bulk)
	}
	few.Contains, few.Spread, few.Progress = "", time.Hour, func(*BulkResult) bool { return false }
	at := time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
	got, err = m.BulkReschedule(ctxB, few, at)
	f.must(err)
	if one := f.entryOf(m); one.Detail != "what is pending; due 2100-01-01T00:00:00Z; spread over 1h0m0s" || one.Messages != 3 ||
		one.Bulk.Phase != BulkStopped || one.Bulk.Next != got.Next {
		f.t.Errorf("stopped by its Progress: %+v, %+v", one, one.Bulk)
	}
	bob := NewMonitor(f.name, f.cli).WithOperator("bob")
	again, err := bob.BulkContinue(ctxB, f.entryOf(m).Bulk.Next, nil)
	f.bulked("continued", again, err, 9, 9, nil)
	all := f.journal(m)
	if len(all) != 3 || again.Entry != got.Entry || all[0].Act != ActContinueBulk || all[0].By != "bob" || all[0].Target != got.Entry ||
		all[1].By != "ann" || all[1].Bulk.Phase != BulkFinished || all[1].Messages != 9 {
		f.t.Errorf("continued: %+v", all)
	}
	f.pendingAt(4)
	ctx, cancel := context.WithCancel(ctxB)
	few.Spread, few.Progress = 0, func(*BulkResult) bool { cancel(); return true }
	if _, err = m.BulkRescheduleBy(ctx, few, time.Second); !errors.Is(err, context.Canceled) {
		f.t.Errorf("canceled: %v", err)
	}
	if one := f.entryOf(m); one.Act != ActReschedule || !strings.HasSuffix(one.Detail, "; by 1s") ||
		one.Bulk.Phase != BulkStopped || one.Bulk.Next == "" {
		f.t.Errorf("canceled: %+v, %+v", one, one.Bulk)
	}
	_, err = m.BulkDelete(ctxB, Bulk{States: []State{StatePending}, Filter: Filter{Limit: 3}, Progress: func(*BulkResult) bool {
		f.must(f.cli.Do(ctxB, "DEL", keysOf("dq", f.name).msg).Err())
		f.must(f.cli.Do(ctxB, "SET", keysOf("dq", f.name).msg, "x").Err())
		return true
	}})
	if !errors.Is(err, ErrWrongType) {
		f.t.Errorf("with a key of somebody else: %v", err)
	}
	if one := f.entryOf(m); one.Bulk.Phase != BulkFailed || !strings.Contains(one.Bulk.Error, "WRONGTYPE") {
		f.t.Errorf("failed: %+v, %+v", one, one.Bulk)
	}
	f.must(f.cli.Del(ctxB, keysOf("dq", f.name).msg, keysOf("dq", f.name).pending).Err())
}

// TestStopBulk: another process stops a call for many before its next step, once, and each message is moved once in the end.
func TestStopBulk(t *testing.T) { onSharedServer(t, stopBulk) }

func stopBulk(f *fixture, m *Monitor) {
	const n = 20
	base := f.pendingAt(n)
	bob := NewMonitor(f.name, f.cli).WithOperator("bob")
	var next string
	steps := 0
	got, err := m.BulkRescheduleBy(ctxB, Bulk{States: []State{StatePending}, Filter: Filter{Limit: 3}, Progress: func(r *BulkResult) bool {
		if steps++; steps == 2 {
			f.must(bob.StopBulk(ctxB, r.Entry))
			one, err := m.JournalEntry(ctxB, r.Entry)
			f.must(err)
			if !one.Bulk.StopAsked || one.Bulk.Phase != BulkRunning {
				f.t.Errorf("asked to stop: %+v", one.Bulk)
			}
			f.must(bob.StopBulk(ctxB, r.Entry)) // again
		}
		return true
	}}, 5*time.Second)
	if !errors.Is(err, ErrBulkStopped) || steps != 2 || got.Done != 6 || got.Next == "" {
		f.t.Errorf("stopped after %d steps: %+v, %v", steps, got, err)
	}
	one, err := m.JournalEntry(ctxB, got.Entry)
	f.must(err)
	if next = one.Bulk.Next; one.Bulk.Phase != BulkStopped || one.Messages != 6 || next != got.Next || one.Bulk.StopAsked {
		f.t.Errorf("stopped: %+v, %+v", one, one.Bulk)
	}
	if all := f.journal(m); len(all) != 3 || all[0].Act != ActStopBulk || all[0].By != "bob" || all[0].Target != got.Entry {
		f.t.Errorf("%+v", all)
	}
	if err := bob.StopBulk(ctxB, got.Entry); !errors.Is(err, ErrWrongState) {
		f.t.Errorf("stop what has stopped: %v", err)
	}
	got, err = m.BulkContinue(ctxB, next, nil)
	f.bulked("continued", got, err, n, n, nil)
	f.shifted(m, base, 5*time.Second)
}

// TestStopBulkThatFindsNothing: one whose steps have nothing to do sees within about a second that it is to stop.
func TestStopBulkThatFindsNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.pendingAt(10)
	m, bob := NewMonitor(f.name, f.cli), NewMonitor(f.name, f.cli)
	var seen time.Time
	_, err := m.BulkDelete(ctxB, Bulk{States: []State{StatePending}, Filter: Filter{Limit: 1, Contains: "x"},
		Progress: func(r *BulkResult) bool {
			if seen.IsZero() {
				f.must(bob.StopBulk(ctxB, r.Entry))
				seen = time.Now()
			}
			eventually(t, "a second passes", func() bool { return time.Since(seen) > time.Second })
			return true
		}})
	if !errors.Is(err, ErrBulkStopped) {
		t.Errorf("%v", err)
	}
}

// dies runs a call for many whose process is killed in the k-th call of steer, which arrives or does not, and returns its entry.
func (f *fixture) dies(k int, arrives bool, call func(ctx context.Context, m *Monitor) error) JournalEntry {
	f.t.Helper()
	cli := f.client()
	ctx, cancel := context.WithCancel(ctxB)
	defer cancel()
	dead := false
	hookOwn(f.t, cli, commandHook(func(c context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		args := cmd.Args()
		if len(args) > 1 && (args[1] == steerScript.sha || args[1] == steerScript.text) {
			if k--; k == 0 {
				if arrives {
					f.must(f.cli.Do(ctxB, append([]any{"eval", steerScript.text}, args[2:]...)...).Err())
				}
				dead = true
				cancel()
			}
		}
		if dead { // it writes nothing any more, no end into the journal either
			return fmt.Errorf("the process is dead: %w", context.Canceled)
		}
		return next(c, cmd)
	}))
	if err := call(ctx, unhurriedMonitor(f.name, cli).WithOperator("ann")); err == nil {
		f.t.Fatal("it did not die")
	}
	return f.entryOf(NewMonitor(f.name, f.cli))
}

// TestJournalContinuesTheDead: whatever step a process dies in, and whether or not that was carried out, another one goes on
// from the entry in the journal, and each message is moved once.
func TestJournalContinuesTheDead(t *testing.T) {
	t.Parallel()
	for k := 1; k <= 3; k++ {
		for _, arrives := range []bool{false, true} {
			t.Run(fmt.Sprintf("step %d, arrives %v", k, arrives), func(t *testing.T) {
				t.Parallel()
				f := newFixture(t)
				const n = 10
				base := f.pendingAt(n)
				left := f.dies(k, arrives, func(ctx context.Context, m *Monitor) error {
					_, err := m.BulkRescheduleBy(ctx, Bulk{Filter: Filter{Limit: 3}}, 5*time.Second)
					return err
				})
				if left.Bulk.Phase != BulkRunning || left.Messages != int64(3*(k-1)) || left.Bulk.Next == "" {
					t.Errorf("the dead left %+v, %+v", left, left.Bulk)
				}
				m := NewMonitor(f.name, f.cli)
				got, err := m.BulkContinue(ctxB, left.Bulk.Next, nil)
				f.bulked("continued", got, err, n, n, nil)
				f.shifted(m, base, 5*time.Second)
				if got, err := m.BulkContinue(ctxB, left.Bulk.Next, nil); !errors.Is(err, ErrBadCursor) {
					t.Errorf("continued twice: %+v, %v", got, err)
				}
				f.shifted(m, base, 5*time.Second)
				if one := f.entryOf(m); one.By != "ann" || one.Bulk.Phase != BulkFinished || one.Messages != n {
					t.Errorf("finished: %+v, %+v", one, one.Bulk)
				}
			})
		}
	}
}

// TestJournalContinuesTheLiving: who goes on with a call that its process goes on with as well does nothing twice: one of the two
// is refused, and the entry is the other's.
func TestJournalContinuesTheLiving(t *testing.T) {
	t.Parallel()
	for name, bulk := range map[string]func(m *Monitor, b Bulk) (*BulkResult, error){
		"by": func(m *Monitor, b Bulk) (*BulkResult, error) { return m.BulkRescheduleBy(ctxB, b, 5*time.Second) },
		"delete": func(m *Monitor, b Bulk) (*BulkResult, error) {
			return m.BulkDelete(ctxB, b)
		},
	} {
		for when := range 3 {
			t.Run(fmt.Sprint(name, when), func(t *testing.T) {
				t.Parallel()
				f := newFixture(t)
				const n = 12
				base := f.pendingAt(n)
				m, bob := NewMonitor(f.name, f.cli), NewMonitor(f.name, f.cli)
				steps, finished, done := 0, 0, int64(0)
				account := func(what string, got *BulkResult, err error) {
					switch {
					case err == nil && got.Next == "":
						finished++
						done = got.Done
					case !errors.Is(err, ErrBadCursor):
						t.Errorf("%s: %+v, %v", what, got, err)
					}
				}
				got, err := bulk(m, Bulk{States: []State{StatePending}, Filter: Filter{Limit: 3}, Progress: func(r *BulkResult) bool {
					if steps++; steps == when+1 {
						next := r.Next // as it is between two steps
						if when == 2 {
							next = f.entryOf(m).Bulk.Next // as it was before this one
						}
						got, err := bob.BulkContinue(ctxB, next, nil)
						account("the other", got, err)
					}
					return true
				}})
				account("its process", got, err)
				if finished != 1 && name == "by" || finished < 1 || done != n && name == "by" {
					t.Errorf("%d of the two say that it is finished, %d done", finished, done)
				}
				if name == "by" {
					f.shifted(m, base, 5*time.Second)
				} else {
					f.checkEmpty()
				}
			})
		}
	}
}

// TestJournalOfALostStep: a call that another one asked about before it arrived is never carried out.
func TestJournalOfALostStep(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.pendingAt(6)
	cli := f.client()
	bob := NewMonitor(f.name, f.cli)
	steps := 0
	hookOwn(t, cli, commandHook(func(c context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if args := cmd.Args(); len(args) > 1 && (args[1] == steerScript.sha || args[1] == steerScript.text) {
			if steps++; steps == 1 { // on its way, while somebody takes it for dead
				got, err := bob.BulkContinue(ctxB, f.entryOf(bob).Bulk.Next, nil)
				f.bulked("the other", got, err, 6, 6, nil)
			}
		}
		return next(c, cmd)
	}))
	got, err := NewMonitor(f.name, cli).BulkDelete(ctxB, Bulk{States: []State{StatePending}, Filter: Filter{Limit: 2}})
	if !errors.Is(err, ErrBadCursor) || got.Next != "" || got.Done != 0 {
		t.Errorf("its process: %+v, %v", got, err)
	}
	if one := f.entryOf(bob); one.Bulk.Phase != BulkFinished || one.Messages != 6 {
		t.Errorf("%+v, %+v", one, one.Bulk)
	}
	f.checkEmpty()
}

// TestJournalOfBulkAfterAnOutage: a call for many that finds no Redis for a while is seen and stopped after that as before.
func TestJournalOfBulkAfterAnOutage(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.pendingAt(6)
	cli, bob := f.client(), NewMonitor(f.name, f.cli)
	away, since, refused := false, time.Time{}, 0
	hookOwn(t, cli, commandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if args := cmd.Args(); len(args) > 1 && (args[1] == noteScript.sha || args[1] == noteScript.text) && away {
			if refused++; refused == 1 {
				since = time.Now()
			}
			if away = time.Since(since) < journalTime+time.Second/2; away {
				return fmt.Errorf("away: %w", context.DeadlineExceeded)
			}
		}
		return next(ctx, cmd)
	}))
	got, err := unhurriedMonitor(f.name, cli).BulkDelete(ctxB,
		Bulk{States: []State{StatePending}, Filter: Filter{Limit: 2}, Progress: func(r *BulkResult) bool {
			if r.Done == 2 {
				away = true
			} else {
				f.must(bob.StopBulk(ctxB, r.Entry))
			}
			return true
		}})
	if !errors.Is(err, ErrBulkStopped) || got.Done != 4 || refused == 0 {
		t.Errorf("after %d refusals: %+v, %v", refused, got, err)
	}
	if one := f.entryOf(bob); one.Bulk.Phase != BulkStopped || one.Messages != 4 || one.Bulk.Next != got.Next {
		t.Errorf("%+v, %+v", one, one.Bulk)
	}
	got, err = bob.BulkContinue(ctxB, got.Next, nil)
	f.bulked("continued", got, err, 6, 6, nil)
	f.checkEmpty()
}

// TestJournalContinuedLongAgo: what must not be done twice is not, also when Redis has forgotten who has done it; the Next of the
// entry goes on.
func TestJournalContinuedLongAgo(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const n = 9
	base, m, k := f.pendingAt(n), NewMonitor(f.name, f.cli), keysOf("dq", f.name)
	once := func(*BulkResult) bool { return false }
	forget := func() {
		for field := range f.cli.HGetAll(ctxB, k.state).Val() {
			if strings.HasPrefix(field, "call:") {
				f.must(f.cli.HDel(ctxB, k.state, field).Err())
			}
		}
		for _, z := range f.cli.ZRangeWithScores(ctxB, k.journal, 0, -1).Val() {
			words := strings.SplitN(z.Member.(string), " ", 4)
			f.must(f.cli.ZRem(ctxB, k.journal, z.Member).Err())
			words[2] = fmt.Sprint(time.Now().Add(-time.Hour).UnixMicro())
			f.must(f.cli.ZAdd(ctxB, k.journal, redis.Z{Score: z.Score, Member: strings.Join(words, " ")}).Err())
		}
	}
	refused := func(what, next string) {
		t.Helper()
		if got, err := m.BulkContinue(ctxB, next, nil); !errors.Is(err, ErrBadCursor) || got.Next != "" {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
	first, err := m.BulkRescheduleBy(ctxB, Bulk{States: []State{StatePending}, Filter: Filter{Limit: 3}, Progress: once}, 5*time.Second)
	f.must(err)
	forget()
	second, err := m.BulkContinue(ctxB, first.Next, once)
	f.must(err)
	forget()
	refused("continued, and stopped again", first.Next)
	last, err := m.BulkContinue(ctxB, f.entryOf(m).Bulk.Next, nil)
	f.bulked("continued", last, err, n, n, nil)
	forget()
	refused("finished", first.Next)
	refused("finished", second.Next)
	f.shifted(m, base, 5*time.Second)
}
