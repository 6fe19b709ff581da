package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// continuedBy runs bob's BulkContinue just before the k-th call that ann's own makes, or after it, and says how both ended; struck:
// there was such a call.
func (f *fixture) continuedBy(next string, k int64, after bool) (ann, bob error, struck bool) {
	f.t.Helper()
	cli := f.client()
	var calls atomic.Int64
	hookOwn(f.t, cli, commandHook(func(ctx context.Context, cmd redis.Cmder, run redis.ProcessHook) error {
		if len(cmd.Args()) < 2 || calls.Add(1) != k {
			return run(ctx, cmd)
		}
		var err error
		if after {
			err = run(ctx, cmd)
		}
		_, bob = NewMonitor(f.name, f.cli).WithOperator("bob").BulkContinue(ctxB, next, nil)
		struck = true
		if after {
			return err
		}
		return run(ctx, cmd)
	}))
	_, ann = NewMonitor(f.name, cli).WithOperator("ann").BulkContinue(ctxB, next, nil)
	return ann, bob, struck
}

// TestBulkContinuedAtOnce: of two who go on from the same Next at the same moment, whichever their calls fall between, one does, each
// message is shifted once, and both say so; with the journal and without.
func TestBulkContinuedAtOnce(t *testing.T) {
	t.Parallel()
	for _, journal := range []bool{true, false} {
		for k := int64(1); k <= 12; k++ {
			for _, after := range []bool{false, true} {
				t.Run(fmt.Sprintf("journal %v, call %d, after it %v", journal, k, after), func(t *testing.T) {
					t.Parallel()
					f := newFixture(t)
					f.continuedAtOnce(journal, k, after)
				})
			}
		}
	}
}

func (f *fixture) continuedAtOnce(journal bool, k int64, after bool) {
	base, m, own := f.pendingAt(9), NewMonitor(f.name, f.cli).WithOperator("cid"), keysOf("dq", f.name).journal
	if !journal {
		f.must(f.cli.Set(ctxB, own, "x", 0).Err()) // of another program
	}
	first, err := m.BulkRescheduleBy(ctxB, Bulk{States: []State{StatePending}, Filter: Filter{Limit: 3},
		Progress: func(*BulkResult) bool { return false }}, 5*time.Second)
	f.must(err)
	ann, bob, struck := f.continuedBy(first.Next, k, after)
	if !struck && k < 4 {
		f.t.Fatalf("it has no call %d", k)
	}
	if !struck {
		bob = ErrBadCursor
	}
	if (ann == nil) == (bob == nil) || ann != nil && !errors.Is(ann, ErrBadCursor) || bob != nil && !errors.Is(bob, ErrBadCursor) {
		f.t.Errorf("ann: %v, bob: %v", ann, bob)
	}
	f.shifted(m, base, 5*time.Second)
	if !journal {
		f.must(f.cli.Del(ctxB, own).Err())
		return
	}
	who := map[bool]string{true: "ann", false: "bob"}[ann == nil]
	all := f.journal(m)
	last := all[len(all)-1]
	goesOn := slices.ContainsFunc(all, func(e JournalEntry) bool { return e.Act == ActContinueBulk && e.By == who })
	if !goesOn || len(all) != 2 || last.By != "cid" || last.Bulk.Phase != BulkFinished || last.Messages != 9 {
		f.t.Errorf("%+v, %+v", all, last.Bulk)
	}
}

// TestBulkContinueLosesReplies: one who goes on and whose every second reply is lost, or whose process dies between two calls, can be
// followed.
func TestBulkContinueLosesReplies(t *testing.T) {
	t.Parallel()
	for k := int64(1); k <= 10; k++ {
		for _, arrives := range []bool{false, true} {
			t.Run(fmt.Sprintf("call %d, arrives %v", k, arrives), func(t *testing.T) {
				t.Parallel()
				f := newFixture(t)
				base, cli := f.pendingAt(9), f.client()
				left := f.dies(2, arrives, func(ctx context.Context, m *Monitor) error {
					_, err := m.BulkRescheduleBy(ctx, Bulk{Filter: Filter{Limit: 3}}, 5*time.Second)
					return err
				})
				ctx, cancel := context.WithCancel(ctxB)
				defer cancel()
				var calls atomic.Int64
				hookOwn(t, cli, commandHook(func(ctx context.Context, cmd redis.Cmder, run redis.ProcessHook) error {
					n := calls.Load()
					if len(cmd.Args()) > 1 {
						n = calls.Add(1)
					}
					if n < k {
						return run(ctx, cmd)
					}
					if n == k && arrives {
						_ = run(ctx, cmd)
					}
					cancel()
					return fmt.Errorf("the process is dead: %w", context.Canceled)
				}))
				_, err := NewMonitor(f.name, cli).BulkContinue(ctx, left.Bulk.Next, nil)
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Errorf("the one who dies: %v", err)
				}
				m := NewMonitor(f.name, f.cli)
				if now := f.entryOf(m); now.Bulk.Phase != BulkFinished {
					got, err := m.BulkContinue(ctxB, now.Bulk.Next, nil)
					f.bulked("in the end", got, err, 9, 9, nil)
				}
				f.shifted(m, base, 5*time.Second)
			})
		}
	}
}

// TestContinuedInItsOwnName: a Next may have been made up. It names nobody, and writes into no entry but that of the same call.
func TestContinuedInItsOwnName(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.pendingAt(9)
	ann, bob := NewMonitor(f.name, f.cli).WithOperator("ann").WithReason("why"), NewMonitor(f.name, f.cli).WithOperator("bob")
	begin := func(d time.Duration) *BulkResult {
		got, err := ann.BulkRescheduleBy(ctxB, Bulk{States: []State{StatePending}, Filter: Filter{Limit: 3},
			Progress: func(*BulkResult) bool { return false }}, d)
		f.must(err)
		return got
	}
	one, other := begin(time.Second), begin(time.Minute)
	f.must(ann.Pause(ctxB))
	f.must(ann.Resume(ctxB))
	pause, err := ann.Journal(ctxB, 2, "")
	f.must(err)
	before := f.journal(ann)
	for what, entry := range map[string]string{"another call": other.Entry, "no call": pause.Entries[1].ID,
		"nothing": "5-0123456789abcdef", "rubbish": "+inf-x"} {
		made, token, _ := strings.Cut(entry, "-")
		forged := map[string]any{}
		f.must(readCursor(one.Next, &forged))
		forged["entry"], forged["who"], forged["why"], forged["by"] = entryName{made, token}, "carl", "for fun", newCaller().id
		text, err := cursorOf(forged)
		f.must(err)
		got, err := bob.BulkContinue(ctxB, text, func(*BulkResult) bool { return false })
		if err != nil || got.Entry == entry {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
	all := f.journal(ann)
	if len(all) != len(before)+4 {
		t.Fatalf("%d entries, then %d: %+v", len(before), len(all), all)
	}
	for i, e := range all[:4] {
		if e.By != "bob" || e.Reason != "" || e.Act != ActReschedule || e.Bulk == nil {
			t.Errorf("%d: %+v", i, e)
		}
	}
	for i, e := range all[4:] {
		if e.By != "ann" || e.Messages != before[i].Messages {
			t.Errorf("%+v, before %+v", e, before[i])
		}
	}
}

// TestPlanMadeUp: what a plan says of how far it has come is not believed.
func TestPlanMadeUp(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.pendingAt(5)
	m := NewMonitor(f.name, f.cli)
	dry, err := m.BulkDelete(ctxB, Bulk{States: []State{StatePending}, DryRun: true})
	plan := f.planned("all", dry, err, 5)
	f.must(m.Pause(ctxB))
	page, err := m.Journal(ctxB, 1, "")
	f.must(err)
	forged := &operation{}
	f.must(readCursor(plan, forged))
	forged.Result, forged.InPlace, forged.Place, forged.Claim = BulkResult{Done: 1e6, Looked: 1e6, Total: 7}, 1e6, 0, "x"
	forged.Entry, err = parseEntryName(page.Entries[0].ID)
	f.must(err)
	text, err := cursorOf(forged)
	f.must(err)
	got, err := m.BulkCommit(ctxB, text, nil)
	f.bulked("commit", got, err, 5, 5, nil)
	forged.States = slices.Repeat(forged.States, 100_000) // each of which is asked about
	text, err = cursorOf(forged)
	f.must(err)
	if _, err := m.BulkTask(text); !errors.Is(err, ErrBadCursor) {
		t.Errorf("of states without number: %v", err)
	}
	if all := f.journal(m); len(all) != 2 || all[1].Act != ActPause {
		t.Errorf("%+v", all)
	}
}

// TestBulkEnds: a call for many ends although senders put in more than it looks at, and has met all that was there.
func TestBulkEnds(t *testing.T) {
	t.Parallel()
	for name, places := range map[string][]State{"pending": {StatePending}, "waiting": {StatePending, StateReady, StateRetry}} {
		for _, dry := range []bool{false, true} {
			t.Run(fmt.Sprint(name, dry), func(t *testing.T) {
				t.Parallel()
				f := newFixture(t)
				const n = 12
				f.pendingAt(n)
				m, q, steps := NewMonitor(f.name, f.cli), f.queue(nil), 0
				got, err := m.BulkDelete(ctxB, Bulk{States: places, DryRun: dry, Filter: Filter{Limit: 3}, Progress: func(*BulkResult) bool {
					for range 4 { // more than a step looks at
						f.send(q, "new", WithDelay(2*time.Hour))
					}
					steps++
					return steps < 10*n
				}})
				if err != nil || got.Done != n || got.Next != "" || steps >= 10*n {
					t.Errorf("after %d steps: %+v, %v", steps, got, err)
				}
			})
		}
	}
}

// TestPassedOnce: what a step passed over that its process has died in is passed over once.
func TestPassedOnce(t *testing.T) {
	t.Parallel()
	for _, arrives := range []bool{false, true} {
		t.Run(fmt.Sprintf("arrives %v", arrives), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.pendingAt(3)
			m := NewMonitor(f.name, f.cli)
			dry, err := m.BulkDelete(ctxB, Bulk{States: []State{StatePending}, DryRun: true})
			plan := f.planned("all", dry, err, 3)
			f.send(f.queue(nil), "new", WithDelay(time.Minute))
			_ = m.Delete(ctxB, "nobody")                                             // so that the server knows the script
			left := f.dies(2, arrives, func(ctx context.Context, m *Monitor) error { // the first call begins the plan
				_, err := m.BulkCommit(ctx, plan, nil)
				return err
			})
			forged := &operation{}
			f.must(readCursor(left.Bulk.Next, forged))
			forged.Doubt.At.Place = -1
			text, err := cursorOf(forged)
			f.must(err)
			if got, err := m.BulkContinue(ctxB, text, nil); !errors.Is(err, ErrBadCursor) {
				t.Errorf("forged: %+v, %v", got, err)
			}
			got, err := m.BulkContinue(ctxB, left.Bulk.Next, nil)
			if err != nil || got.Done != 3 || got.Looked != 4 || len(got.Passed) != 1 || got.Passed[PassedNew] != 1 || got.Next != "" {
				t.Errorf("continued: %+v, %v", got, err)
			}
			f.must(failure(m.BulkDelete(ctxB, Bulk{States: []State{StatePending}})))
			f.checkEmpty()
		})
	}
}
