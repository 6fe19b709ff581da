package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// journal reads the whole journal, the newest first, and leaves out what differs from run to run.
func (f *fixture) journal(m *Monitor) (all []JournalEntry) {
	f.t.Helper()
	last := time.Time{}
	for cursor := ""; ; {
		page, err := m.Journal(ctxB, 3, cursor)
		f.must(err)
		for _, e := range page.Entries {
			one, err := m.JournalEntry(ctxB, e.ID)
			f.silent(one, e)
			if err != nil || !reflect.DeepEqual(*one, e) {
				f.t.Errorf("entry %s by itself is %+v, %v; on the page %+v", e.ID, one, err, e)
			}
			if e.At.After(page.Now) || !last.IsZero() && e.At.After(last) {
				f.t.Errorf("entry %+v is later than %v, or than now, %v", e, last, page.Now)
			}
			last = e.At
			e.ID, e.At = "", time.Time{}
			all = append(all, e)
		}
		if cursor = page.Next; cursor == "" {
			return all
		}
	}
}

// silent wants an entry to be as silent as when it was read before, or more, and clears that.
func (f *fixture) silent(now *JournalEntry, before JournalEntry) {
	if now == nil || now.Bulk == nil || before.Bulk == nil {
		return
	}
	if now.Bulk.Silent < before.Bulk.Silent || before.Bulk.Silent < 0 {
		f.t.Errorf("silent for %v, then for %v", before.Bulk.Silent, now.Bulk.Silent)
	}
	now.Bulk.Silent, before.Bulk.Silent = 0, 0
}

func (f *fixture) journalIs(m *Monitor, want ...JournalEntry) {
	f.t.Helper()
	got := f.journal(m)
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			f.t.Errorf("missing entry %+v", want[i])
		case i >= len(want):
			f.t.Errorf("entry %+v too many", got[i])
		case !reflect.DeepEqual(got[i], want[i]):
			f.t.Errorf("entry %+v, want %+v", got[i], want[i])
		}
	}
}

func TestJournal(t *testing.T) { onSharedServer(t, monitorWritesJournal) }

// monitorWritesJournal: what a Monitor does is in the journal, with whom, why and what; what is refused is not.
func monitorWritesJournal(f *fixture, m *Monitor) {
	if _, err := m.Journal(ctxB, 0, ""); !errors.Is(err, ErrNoQueue) {
		f.t.Errorf("journal of no queue: %v", err)
	}
	q := f.queue(nil)
	a, b := f.send(q, "a", inAnHour, WithKey("of a")), f.send(q, "b", inAnHour)
	f.journalIs(m)
	ann, bob := NewMonitor(f.name, f.cli).WithOperator("ann").WithReason("a\nreason"), NewMonitor(f.name, f.cli).WithOperator("bob")
	at := time.Date(2100, 1, 2, 3, 4, 5, 0, time.UTC)
	f.must(ann.PauseUntil(ctxB, at))
	f.must(ann.Pause(ctxB))
	f.must(bob.Resume(ctxB))
	f.must(ann.RescheduleKey(ctxB, "of a", at))
	f.must(bob.RescheduleBy(ctxB, a.ID, -time.Minute))
	f.must(m.RunNow(ctxB, b.ID))
	f.must(q.Reschedule(ctxB, b.ID, at)) // by a program
	for what, err := range map[string]error{"requeue": ann.Requeue(ctxB, b.ID), "delete": ann.Delete(ctxB, "nobody"),
		"sequence": ann.DropSequence(ctxB, "s"), "limits": failure(ann.SetLimits(ctxB, Limits{Rate: 1}))} {
		if err == nil {
			f.t.Errorf("%s was done", what)
		}
	}
	f.must(ann.Delete(ctxB, a.ID))
	f.must(failure(bob.Cancel(ctxB, b.ID)))
	f.must(failure(bob.Cancel(ctxB, b.ID))) // it is gone
	if _, err := bob.PassSequence(ctxB, "s", 7); !errors.Is(err, ErrNotFound) {
		f.t.Error(err)
	}
	f.must(failure(m.PassSequence(ctxB, "s", 8))) // by a program
	f.must(bob.DropSequence(ctxB, "s"))
	f.must(failure(ann.SetLimits(ctxB, Limits{Concurrency: 5})))
	f.must(failure(ann.Unthrottle(ctxB))) // there was none
	now := time.Now().UnixMicro()
	f.must(f.cli.HSet(ctxB, keysOf("dq", f.name).state, "throttled", fmt.Sprint(now-60_000_000, " ", now+1800_000_000)).Err())
	f.must(failure(ann.Unthrottle(ctxB)))
	dead := f.buried("dead")[0]
	f.must(ann.Requeue(ctxB, dead))
	f.must(failure(ann.Intercept(ctxB, dead)))
	before := []JournalEntry{
		{By: "ann", Reason: "a reason", Act: ActIntercept, Target: dead, Detail: "was retry", Messages: 1},
		{By: "ann", Reason: "a reason", Act: ActRequeue, Target: dead, Messages: 1},
		{By: "ann", Reason: "a reason", Act: ActUnthrottle},
		{By: "ann", Reason: "a reason", Act: ActSetLimits, Detail: "5 at a time; before: no limit"},
		{By: "bob", Act: ActDropSequence, Target: "s"},
		{By: "bob", Act: ActPassSequence, Target: "s", Detail: "to 7"},
		{By: "bob", Act: ActCancel, Target: b.ID, Detail: "was pending", Messages: 1},
		{By: "ann", Reason: "a reason", Act: ActDelete, Target: a.ID, Messages: 1},
		{Act: ActRunNow, Target: b.ID, Messages: 1},
		{By: "bob", Act: ActReschedule, Target: a.ID, Detail: "by -1m0s", Messages: 1},
		{By: "ann", Reason: "a reason", Act: ActReschedule, Target: "of a", Detail: "due 2100-01-02T03:04:05Z", Messages: 1},
		{By: "bob", Act: ActResume},
		{By: "ann", Reason: "a reason", Act: ActPause},
		{By: "ann", Reason: "a reason", Act: ActPause, Detail: "until 2100-01-02T03:04:05Z"},
	}
	f.journalIs(m, before...)
	f.send(q, "c", inAnHour)
	expires := func(within time.Duration) {
		f.t.Helper()
		if ttl := f.cli.TTL(ctxB, keysOf("dq", f.name).journal).Val(); ttl > within || ttl < within-time.Hour {
			f.t.Errorf("the journal expires in %v, want %v", ttl, within)
		}
	}
	expires(-1)
	f.must(ann.DeleteQueue(ctxB, true))
	f.journalIs(m, append([]JournalEntry{{By: "ann", Reason: "a reason", Act: ActDeleteQueue, Messages: 1}}, before...)...)
	expires(journalOutlives)
	f.send(q, "d", inAnHour)
	f.must(ann.Pause(ctxB))
	expires(-1) // it is used again
	for what, err := range map[string]error{
		"page": failure(m.Journal(ctxB, 201, "")), "less than none": failure(m.Journal(ctxB, -1, "")),
		"cursor": failure(m.Journal(ctxB, 1, "x")), "another cursor": failure(m.Journal(ctxB, 1, "eyJwIjoxfQ")),
	} {
		if !errors.Is(err, ErrBadOption) && !errors.Is(err, ErrBadCursor) {
			f.t.Errorf("%s: %v", what, err)
		}
	}
	for _, id := range []string{"", "x", "5-x", "5-0123456789abcdef", "-5-0123456789abcdef"} {
		if _, err := m.JournalEntry(ctxB, id); !errors.Is(err, ErrNotFound) {
			f.t.Errorf("entry %q: %v", id, err)
		}
		if err := m.StopBulk(ctxB, id); !errors.Is(err, ErrNotFound) {
			f.t.Errorf("stop %q: %v", id, err)
		}
	}
}

// TestJournalOnce: an entry whose reply is lost is written once; one that never gets there is in the log, with all that it
// would say, and what was done stands.
func TestJournalOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.send(f.queue(nil), "a", inAnHour)
	cli := f.client()
	lost, never := 2, false
	hookOwn(t, cli, commandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if args := cmd.Args(); len(args) < 2 || args[1] != noteScript.sha && args[1] != noteScript.text || lost == 0 {
			return next(ctx, cmd)
		}
		if never {
			return fmt.Errorf("not sent: %w", context.DeadlineExceeded)
		}
		if err := next(ctx, cmd); err != nil { // NOSCRIPT
			return err
		}
		lost--
		return fmt.Errorf("the reply is lost: %w", context.DeadlineExceeded)
	}))
	m := unhurriedMonitor(f.name, cli).WithOperator("ann")
	m.events.log.Store(slog.New(slog.NewTextHandler(f.log, nil)))
	f.must(m.Pause(ctxB))
	f.journalIs(NewMonitor(f.name, f.cli), JournalEntry{By: "ann", Act: ActPause})
	lost, never = 1, true
	f.must(m.WithReason("it is over").Resume(ctxB))
	f.journalIs(NewMonitor(f.name, f.cli), JournalEntry{By: "ann", Act: ActPause})
	for _, text := range []string{"is not in the journal", "act=resume", "by=ann", `reason="it is over"`} {
		eventually(t, "the log says "+text, func() bool { return f.log.count(text) > 0 })
	}
}

// TestJournalWithoutTheRight: who may not write the journal does what it may, and is told once.
func TestJournalWithoutTheRight(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	f := fixtureOn(t, server.Client(t))
	f.send(f.queue(nil), "a", inAnHour)
	rule := "ACL SETUSER old on >secret ~* resetchannels &* +@all"
	setUser(t, server.Client(t), strings.ReplaceAll(rule, "~*", "~{dq:"+f.name+"}:[a-ik-z]*")) // all of its keys but this one
	cli := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "old", Password: "secret"})
	t.Cleanup(func() { _ = cli.Close() })
	m := NewMonitor(f.name, cli)
	m.events.log.Store(slog.New(slog.NewTextHandler(f.log, nil)))
	f.must(m.Pause(ctxB))
	f.must(m.Resume(ctxB))
	got, err := m.BulkDelete(ctxB, Bulk{States: []State{StatePending}})
	f.bulked("bulk", got, err, 1, 1, nil)
	if got.Entry != "" {
		t.Errorf("its entry is %s", got.Entry)
	}
	f.log.says(t, 1, "is not in the journal")
	if n := len(refusals(t, server.Client(t))); n != 1 {
		t.Errorf("%d refusals in ACL LOG", n)
	}
	f.journalIs(NewMonitor(f.name, f.cli))
}

// TestJournalEntryIsAtItsLargest: texts of which JSON makes six times as much are within the bound of the checker.
func TestJournalEntryIsAtItsLargest(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := NewMonitor(f.name, f.cli).WithOperator(strings.Repeat("<", maxBy)).WithReason(strings.Repeat("&", maxWhy))
	all := map[Reason]int64{}
	for _, reason := range []Reason{PassedMoved, PassedNew, PassedKey, PassedUnknown} {
		all[reason] = 1 << 53
	}
	b := &bulkRecord{Phase: BulkFinished, Total: 1 << 53, Looked: 1 << 53, Passed: all, Next: strings.Repeat("x", maxEntryNext),
		Error: strings.Repeat("\x01", maxErrorText)}
	r := journalRecord{By: m.who.by, Why: m.who.why, Act: ActReschedule, Target: strings.Repeat(">", maxTarget),
		Detail: strings.Repeat("<", maxDetail), N: 1 << 53, Bulk: b}
	_, err := m.writeDown(ctxB, &r, journalNote{word: journalDone, token: newToken()})
	f.must(err)
	if s := f.check(); len(s.Journal) != 1 || len(s.Journal[0].Member) < 90_000 {
		t.Errorf("%d entries", len(s.Journal))
	}
	page, err := m.Journal(ctxB, 0, "")
	if err != nil || len(page.Entries) != 1 || page.Entries[0].Bulk.Next != b.Next || page.Entries[0].Detail != r.Detail {
		t.Errorf("it is read otherwise: %v", err)
	}
}
