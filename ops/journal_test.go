package ops

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/journal"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/redis/go-redis/v9"
)

// journal reads the whole journal, the newest first, and leaves out what differs from run to run.
func journalIn(f *face.Fixture, m *Queue) (all []JournalEntry) {
	f.T.Helper()
	last := time.Time{}
	for cursor := ""; ; {
		page, err := m.Journal(queuetest.CtxB, 3, cursor)
		f.Must(err)
		for _, e := range page.Entries {
			one, err := m.JournalEntry(queuetest.CtxB, e.ID)
			silentIn(f, one, e)
			if err != nil || !reflect.DeepEqual(*one, e) {
				f.T.Errorf("entry %s by itself is %+v, %v; on the page %+v", e.ID, one, err, e)
			}
			if e.At.After(page.Now) || !last.IsZero() && e.At.After(last) {
				f.T.Errorf("entry %+v is later than %v, or than now, %v", e, last, page.Now)
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
func silentIn(f *face.Fixture, now *JournalEntry, before JournalEntry) {
	if now == nil || now.Bulk == nil || before.Bulk == nil {
		return
	}
	if now.Bulk.Silent < before.Bulk.Silent || before.Bulk.Silent < 0 {
		f.T.Errorf("silent for %v, then for %v", before.Bulk.Silent, now.Bulk.Silent)
	}
	now.Bulk.Silent, before.Bulk.Silent = 0, 0
}

func journalIs(f *face.Fixture, m *Queue, want ...JournalEntry) {
	f.T.Helper()
	got := journalIn(f, m)
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			f.T.Errorf("missing entry %+v", want[i])
		case i >= len(want):
			f.T.Errorf("entry %+v too many", got[i])
		case !reflect.DeepEqual(got[i], want[i]):
			f.T.Errorf("entry %+v, want %+v", got[i], want[i])
		}
	}
}

// TestJournal: what a Monitor does is in the journal, with whom, why and what; what is refused is not.
func TestJournal(t *testing.T) {
	f, m := newQueue(t)
	q := f.Queue(nil)
	a, b := f.Send(q, "a", face.InAnHour, delayqueue.WithKey("of a")), f.Send(q, "b", face.InAnHour)
	journalIs(f, m)
	ann, bob := Of(delayqueue.NewMonitor(f.Name, f.Cli)).WithOperator("ann").WithReason("a\nreason"),
		Of(delayqueue.NewMonitor(f.Name, f.Cli)).WithOperator("bob")
	at := time.Date(2100, 1, 2, 3, 4, 5, 0, time.UTC)
	f.Must(ann.PauseUntil(queuetest.CtxB, at))
	f.Must(ann.Pause(queuetest.CtxB))
	f.Must(bob.Resume(queuetest.CtxB))
	f.Must(ann.RescheduleKey(queuetest.CtxB, "of a", at))
	f.Must(bob.RescheduleBy(queuetest.CtxB, a.ID, -time.Minute))
	f.Must(m.RunNow(queuetest.CtxB, b.ID))
	f.Must(q.Reschedule(queuetest.CtxB, b.ID, at)) // by a program
	for what, err := range map[string]error{"requeue": ann.Requeue(queuetest.CtxB, b.ID),
		"delete":   ann.Delete(queuetest.CtxB, "nobody"),
		"sequence": ann.DropSequence(queuetest.CtxB, "s"),
		"limits":   queuetest.Failure(ann.SetLimits(queuetest.CtxB, Limits{Rate: 1}))} {
		if err == nil {
			t.Errorf("%s was done", what)
		}
	}
	f.Must(ann.Delete(queuetest.CtxB, a.ID))
	f.Must(queuetest.Failure(bob.Cancel(queuetest.CtxB, b.ID)))
	f.Must(queuetest.Failure(bob.Cancel(queuetest.CtxB, b.ID))) // it is gone
	if _, err := bob.PassSequence(queuetest.CtxB, "s", 7); !errors.Is(err, delayqueue.ErrNotFound) {
		t.Error(err)
	}
	f.Must(queuetest.Failure(m.PassSequence(queuetest.CtxB, "s", 8))) // by a program
	f.Must(bob.DropSequence(queuetest.CtxB, "s"))
	f.Must(queuetest.Failure(ann.SetLimits(queuetest.CtxB, Limits{Concurrency: 5})))
	f.Must(queuetest.Failure(ann.Unthrottle(queuetest.CtxB))) // there was none
	now := time.Now().UnixMicro()
	f.Must(f.Cli.HSet(queuetest.CtxB, f.Key("state"), "throttled",
		fmt.Sprint(now-60_000_000, " ", now+1800_000_000)).Err())
	f.Must(queuetest.Failure(ann.Unthrottle(queuetest.CtxB)))
	dead := buriedIn(f, "dead")[0]
	f.Must(ann.Requeue(queuetest.CtxB, dead))
	f.Must(queuetest.Failure(ann.Intercept(queuetest.CtxB, dead)))
	taken := f.Send(q, "c", face.InAnHour)
	f.Must(queuetest.Failure(ann.Intercept(queuetest.CtxB, taken.ID)))
	before := []JournalEntry{
		{By: "ann", Reason: "a reason", Act: journal.Intercept, Target: taken.ID, Detail: "was pending", Messages: 1},
		{By: "ann", Reason: "a reason", Act: journal.Intercept, Target: dead, Detail: "was retry", Messages: 1},
		{By: "ann", Reason: "a reason", Act: journal.Requeue, Target: dead, Messages: 1},
		{By: "ann", Reason: "a reason", Act: journal.Unthrottle},
		{By: "ann", Reason: "a reason", Act: journal.SetLimits, Detail: "5 at a time; before: no limit"},
		{By: "bob", Act: journal.DropSequence, Target: "s"},
		{By: "bob", Act: journal.PassSequence, Target: "s", Detail: "to 7"},
		{By: "bob", Act: journal.Cancel, Target: b.ID, Detail: "was pending", Messages: 1},
		{By: "ann", Reason: "a reason", Act: journal.Delete, Target: a.ID, Messages: 1},
		{Act: journal.RunNow, Target: b.ID, Messages: 1},
		{By: "bob", Act: journal.Reschedule, Target: a.ID, Detail: "by -1m0s", Messages: 1},
		{By: "ann", Reason: "a reason", Act: journal.Reschedule, Target: "of a", Detail: "due 2100-01-02T03:04:05Z",
			Messages: 1},
		{By: "bob", Act: journal.Resume},
		{By: "ann", Reason: "a reason", Act: journal.Pause},
		{By: "ann", Reason: "a reason", Act: journal.Pause, Detail: "until 2100-01-02T03:04:05Z"},
	}
	journalIs(f, m, before...)
	f.Send(q, "c", face.InAnHour)
	expires := func(within time.Duration) {
		t.Helper()
		if ttl := f.Cli.TTL(queuetest.CtxB, f.Key("journal")).Val(); ttl > within || ttl < within-time.Hour {
			t.Errorf("the journal expires in %v, want %v", ttl, within)
		}
	}
	expires(-1)
	f.Must(ann.DeleteQueue(queuetest.CtxB, true))
	journalIs(f, m, append([]JournalEntry{{By: "ann", Reason: "a reason", Act: journal.DeleteQueue, Messages: 1}},
		before...)...)
	expires(journalOutlives)
	f.Send(q, "d", face.InAnHour)
	f.Must(ann.Pause(queuetest.CtxB))
	expires(-1) // it is used again
	refused(t, map[string]error{
		"page":           queuetest.Failure(m.Journal(queuetest.CtxB, 201, "")),
		"less than none": queuetest.Failure(m.Journal(queuetest.CtxB, -1, "")),
		"cursor":         queuetest.Failure(m.Journal(queuetest.CtxB, 1, "x")),
		"another cursor": queuetest.Failure(m.Journal(queuetest.CtxB, 1, "eyJwIjoxfQ")),
	})
	for _, id := range []string{"", "x", "5-x", "5-0123456789abcdef", "-5-0123456789abcdef"} {
		if _, err := m.JournalEntry(queuetest.CtxB, id); !errors.Is(err, delayqueue.ErrNotFound) {
			t.Errorf("entry %q: %v", id, err)
		}
		if err := m.StopBulk(queuetest.CtxB, id); !errors.Is(err, delayqueue.ErrNotFound) {
			t.Errorf("stop %q: %v", id, err)
		}
	}
}

// TestJournalOnce: an entry whose reply is lost is written once; one that never gets there is in the log, with all
// that it would say, and what was done stands.
func TestJournalOnce(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	f.Send(f.Queue(nil), "a", face.InAnHour)
	cli := f.Client()
	lost, never := 2, false
	t.Cleanup(link.Interpose(cli,
		queuetest.CommandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if args := cmd.Args(); len(args) < 2 || args[1] != script.NoteScript.SHA && args[1] != script.NoteScript.Text ||
				lost == 0 {
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
		})))
	m := Of(delayqueue.NewMonitor(f.Name, cli)).WithOperator("ann")
	m.log = f.Logger()
	f.Must(m.Pause(queuetest.CtxB))
	journalIs(f, Of(delayqueue.NewMonitor(f.Name, f.Cli)), JournalEntry{By: "ann", Act: journal.Pause})
	lost, never = 1, true
	f.Must(m.WithReason("it is over").Resume(queuetest.CtxB))
	journalIs(f, Of(delayqueue.NewMonitor(f.Name, f.Cli)), JournalEntry{By: "ann", Act: journal.Pause})
	for _, text := range []string{"is not in the journal", "act=resume", "by=ann", `reason="it is over"`} {
		queuetest.Eventually(t, "the log says "+text, func() bool { return f.Log.Count(text) > 0 })
	}
}

// TestJournalWithoutTheRight: who may not write the journal does what it may, and is told once.
func TestJournalWithoutTheRight(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	f := face.On(t, server.Client(t))
	f.Send(f.Queue(nil), "a", face.InAnHour)
	rule := "ACL SETUSER old on >secret ~* resetchannels &* +@all"
	queuetest.SetUser(t, server.Client(t),
		strings.ReplaceAll(rule, "~*", "~{dq:"+f.Name+"}:[a-ik-z]*")) // all of its keys but this one
	cli := queuetest.ClientWith(t, &redis.Options{Addr: server.Addr(), Username: "old", Password: "secret"})
	m := Of(delayqueue.NewMonitor(f.Name, cli))
	m.log = f.Logger()
	f.Must(m.Pause(queuetest.CtxB))
	f.Must(m.Resume(queuetest.CtxB))
	got, err := m.BulkDelete(queuetest.CtxB, Bulk{States: []delayqueue.State{delayqueue.StatePending}})
	bulked(f, "bulk", got, err, 1, 1, nil)
	if got.Entry != "" {
		t.Errorf("its entry is %s", got.Entry)
	}
	f.Log.Says(t, 1, "is not in the journal")
	if n := len(queuetest.Refusals(t, server.Client(t))); n != 1 {
		t.Errorf("%d refusals in ACL LOG", n)
	}
	journalIs(f, Of(delayqueue.NewMonitor(f.Name, f.Cli)))
}

// TestJournalEntryIsAtItsLargest: texts of which JSON makes six times as much are within the bound of the checker.
func TestJournalEntryIsAtItsLargest(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	m := Of(delayqueue.NewMonitor(f.Name, f.Cli)).WithOperator(strings.Repeat("<",
		script.MaxBy)).WithReason(strings.Repeat("&", script.MaxWhy))
	all := map[Reason]int64{}
	for _, reason := range []Reason{PassedMoved, PassedNew, PassedKey} {
		all[reason] = 1 << 53
	}
	b := &bulkRecord{Phase: journal.Finished, Total: 1 << 53, Looked: 1 << 53, Passed: all,
		Task:  &task{Filter: coldFilter{Contains: make([]byte, 34<<10)}},
		Error: strings.Repeat("\x01", message.MaxErrorText)}
	r := journalRecord{By: m.who.by, Why: m.who.why, Act: journal.Reschedule, Target: strings.Repeat(">", maxTarget),
		Detail: strings.Repeat("<", maxDetail), N: 1 << 53, Bulk: b}
	_, err := m.writeDown(queuetest.CtxB, &r, script.JournalNote{Word: script.JournalDone, Token: newToken()})
	f.Must(err)
	if s := f.Check(); len(s.Journal) != 1 || len(s.Journal[0].Member) < 70_000 {
		t.Errorf("%d entries", len(s.Journal))
	}
	page, err := m.Journal(queuetest.CtxB, 0, "")
	if err != nil || len(page.Entries) != 1 || len(page.Entries[0].Bulk.Task.Filter.Contains) != 34<<10 ||
		page.Entries[0].Detail != r.Detail {
		t.Errorf("it is read otherwise: %v", err)
	}
	f.Send(f.Queue(nil), "x", face.InAnHour)
	_, err = m.BulkRunNow(queuetest.CtxB, Bulk{Filter: Filter{Contains: strings.Repeat("x", maxEntryTask)}})
	f.Must(err)
	if one := entryOf(f, m); one.Bulk.Phase != journal.Finished || one.Bulk.Task != nil {
		t.Errorf("what was told at length: %+v", one.Bulk)
	}
}

// TestJournalOfAnotherProgram: entries that no Monitor wrote stop no page.
func TestJournalOfAnotherProgram(t *testing.T) {
	f, m := newQueue(t)
	f.Send(f.Queue(nil), "x", face.InAnHour)
	for _, member := range []string{"", " ", "x", "-5", "nan", "9 9 9 9 9 9 9 9 ", "\xff\x00\n", "0123456789abcdef runs 5",
		"0123456789abcdef runs x {}",
		"0123456789abcdef runs 5 {", "0123456789abcdef  5 {}", `0123456789abcdef runs 5 {"bulk":{},"n":-1}`} {
		for _, score := range []string{"5", "+inf", "-inf", "1.5", strconv.FormatInt(time.Now().UnixMicro(), 10)} {
			f.Must(f.Cli.Do(queuetest.CtxB, "ZADD", f.Key("journal"), score, member, "1e300", member+"!").Err())
			f.Must(m.Pause(queuetest.CtxB))
			found, pages := 0, 0
			for cursor := ""; pages == 0 || cursor != ""; pages++ {
				page, err := m.Journal(queuetest.CtxB, 1, cursor)
				if err != nil || pages > 100 {
					t.Fatalf("%q at %s: page %d: %v", member, score, pages, err)
				}
				for _, e := range page.Entries {
					if e.Act == journal.Pause {
						found++
					}
				}
				cursor = page.Next
			}
			if found != 1 {
				t.Errorf("%q at %s: %d entries of Pause", member, score, found)
			}
			f.Must(f.Cli.Del(queuetest.CtxB, f.Key("journal")).Err())
		}
	}
}

// TestOneLine: what people say is kept as one line of valid text, however long it is and whatever it holds.
func TestOneLine(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "ann": "ann", " a\nb\r\tc\x00 ": "a b  c", "\xffa": "\uFFFDa", "12345678": "12345678",
		"123456789": "12345678",
		"1234567é":  "1234567", "a\u2028b\u0085c": "a b c", strings.Repeat("x", 1000): "xxxxxxxx", "\n\n\n\n\n\n\n\n\n\n": "",
	} {
		if got := script.OneLine(text, 8); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	m := new(Queue).WithOperator(strings.Repeat("é", 500)).WithReason(strings.Repeat("世", 1000))
	if by, why := m.who.by, m.who.why; len(by) > script.MaxBy || len(by) < script.MaxBy-3 || len(why) > script.MaxWhy ||
		len(why) < script.MaxWhy-3 || !utf8.ValidString(by+why) {
		t.Errorf("%d bytes by whom, %d why", len(by), len(why))
	}
}
