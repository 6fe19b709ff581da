package schedule

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/journal"
	"github.com/go-delayqueue/delayqueue/ops"
)

// status is what List says of an entry.
func (f *fixture) status(name string) Status {
	f.Helper()
	all, err := f.s.List(f.ctx())
	f.must(err)
	i := slices.IndexFunc(all, func(s Status) bool { return s.Name == name })
	if i < 0 {
		f.Fatalf("there is no %s: %+v", name, all)
	}
	return all[i]
}

// TestNobodyRuns: that no replica has looked for ten seconds is seen, of each entry that is not paused, and that an
// instant is overdue.
func TestNobodyRuns(t *testing.T) {
	f := newFixture(t)
	f.must(f.s.Set(f.ctx(), Entry{Name: "e", Every: time.Second}))
	f.must(f.s.Set(f.ctx(), Entry{Name: "hourly", Every: time.Hour}))
	f.must(f.s.Set(f.ctx(), Entry{Name: "paused", Every: time.Second}))
	f.must(f.s.Pause(f.ctx(), "paused"))
	f.age("e", time.Minute)
	overdue := f.rec("e").Since + 1
	for range 2 {
		if one := f.status("e"); !errors.Is(one.Trouble, ErrNotRun) || one.Overdue.Unix() != overdue {
			t.Errorf("%+v, overdue since %d", one, overdue)
		}
		if one := f.status("hourly"); !errors.Is(one.Trouble, ErrNotRun) || !one.Overdue.IsZero() {
			t.Errorf("%+v", one)
		}
		if one := f.status("paused"); one.Trouble != nil || !one.Overdue.IsZero() {
			t.Errorf("%+v", one)
		}
		// A replica ran eleven seconds ago.
		f.must(f.cli.HSet(f.ctx(), f.s.table.store.Keys.Schedules, lookedField, f.now()-11).Err())
	}
	stop := f.run(f.s)
	f.until("it runs", func() bool {
		one := f.status("e")
		return one.Trouble == nil && one.Overdue.IsZero() && f.now()-one.Looked.Unix() <= 10
	})
	stop()
	f.must(f.mon.DeleteQueue(f.ctx(), true))
	if _, err := f.s.table.look(f.ctx(), true); err != nil ||
		f.cli.Exists(f.ctx(), f.s.table.store.Keys.Schedules).Val() != 0 {
		t.Errorf("a look made entries: %v", err)
	}
}

// A small queue has no room for large messages.
type small struct{ *delayqueue.Publisher }

func (q small) SendBatch(ctx context.Context, batch []delayqueue.Outgoing) ([]delayqueue.SendResult, error) {
	results, err := q.Publisher.SendBatch(ctx, slices.DeleteFunc(slices.Clone(batch), large))
	for i, out := range batch {
		if large(out) {
			results = slices.Insert(results, i,
				delayqueue.SendResult{Err: fmt.Errorf("%w: 2000 bytes", delayqueue.ErrPayloadTooLarge)})
		}
	}
	return results, err
}

func large(out delayqueue.Outgoing) bool { return len(out.Payload) > 2000 }

// TestWhatCannotBeSentIsSeen: List says which entries cannot be sent, and why: what nobody can send, and what a
// replica was refused.
func TestWhatCannotBeSentIsSeen(t *testing.T) {
	f := newFixture(t)
	f.must(f.s.Set(f.ctx(), Entry{Name: "large", Every: time.Second, Payload: strings.Repeat("x", 3000)}))
	f.must(f.cli.HSet(f.ctx(), f.s.table.store.Keys.Schedules,
		"kept", `{"v":1,"gen":1,"since":1,"every":5,"options":{"retention":1}}`,
		"waits", `{"v":1,"gen":1,"since":1,"every":5,"options":{"countdown":5}}`,
		"a\nname", `{"v":1,"gen":1,"since":1,"every":5}`,
		"last", fmt.Sprintf(`{"v":1,"gen":%d,"since":1,"every":5}`, maxGen),
		"newer", `{"v":2,"gen":1,"since":1,"every":5}`,
		"field", `{"v":1,"gen":1,"since":1,"every":5,"sundays":true}`,
		"option", `{"v":1,"gen":1,"since":1,"every":5,"options":{"priority":5}}`,
	).Err())
	f.run(New(small{f.pub}).WithLogger(f.s.log))
	f.until("it is refused", func() bool {
		return f.status("large").Trouble != nil && errors.Is(f.status("large").Trouble, ErrRefused)
	})
	if one := f.status("large"); one.Broken != nil || !strings.Contains(one.Trouble.Error(), "2000") {
		t.Errorf("%+v", one)
	}
	if n, err := f.s.Stuck(f.ctx()); err != nil || len(n) != 6 || n["refused"] != 1 || n["unreadable"] != 7 {
		t.Errorf("stuck are %v, %v", n, err)
	}
	if unsent, err := Unsent(f.ctx(), f.s.monitor.Monitor()); err != nil || len(unsent) != 8 {
		t.Errorf("unsent are %v, %v", unsent, err)
	}
	for _, name := range []string{"kept", "waits", "a\nname", "last", "newer", "field", "option"} {
		one := f.status(name)
		if one.Reason() != "unreadable" {
			t.Errorf("%s: %s", name, one.Reason())
		}
		if newer := slices.Contains([]string{"newer", "field", "option"}, name); one.Broken == nil ||
			!errors.Is(one.Trouble, ErrBadEntry) ||
			errors.Is(one.Broken, ErrNewer) != newer || !one.Next.IsZero() {
			t.Errorf("%+v", one)
		}
	}
	for _, name := range []string{"newer", "field", "option"} {
		before, err := f.s.table.read(f.ctx(), name)
		f.must(err)
		for what, err := range map[string]error{
			"pause": f.s.Pause(f.ctx(), name), "resume": f.s.Resume(f.ctx(), name),
			"set": f.s.Set(f.ctx(), Entry{Name: name, Every: time.Second}),
		} {
			if !errors.Is(err, ErrNewer) {
				t.Errorf("%s %s: %v", what, name, err)
			}
		}
		if after, _ := f.s.table.read(f.ctx(), name); after != before {
			t.Errorf("%s became %s", before, after)
		}
	}
	for _, name := range []string{"kept", "waits", "a\nname", "last", "newer", "field"} {
		f.must(f.s.Remove(f.ctx(), name))
	}
	f.must(f.s.Set(f.ctx(), Entry{Name: "large", Every: time.Second, Payload: "small"}))
	f.until("it is sent", func() bool { return f.status("large").Trouble == nil && !f.status("large").Last.IsZero() })
}

// TestLastGeneration: an entry whose sequence is at the last generation can be removed, and the journal says so.
func TestLastGeneration(t *testing.T) {
	f := newFixture(t)
	f.must(f.s.Set(f.ctx(), Entry{Name: "e", Every: time.Hour}))
	f.pass("e", maxGen, 5)
	f.must(f.s.Remove(f.ctx(), "e"))
	page, err := f.mon.Journal(f.ctx(), 1, "")
	f.must(err)
	if last := page.Entries[0]; last.Act != journal.RemoveSchedule || last.Target != "e" {
		t.Errorf("the journal says last: %+v", last)
	}
	if err := f.s.Set(f.ctx(), Entry{Name: "e", Every: time.Hour}); err == nil ||
		!strings.Contains(err.Error(), "DropSequence") {
		t.Errorf("set: %v", err)
	}
	f.must(f.mon.DropSequence(f.ctx(), sequenceOf("e")))
	f.must(f.s.Set(f.ctx(), Entry{Name: "e", Every: time.Hour}))
}

// TestActsAreInTheJournal: what is done to an entry is in the journal of the queue, with who and why, and in its
// Status; that it is set to what it is, is not.
func TestActsAreInTheJournal(t *testing.T) {
	f := newFixture(t)
	s := f.replica().WithOperator("ann").WithReason("card provider\ndown")
	e := Entry{Name: "e", Cron: "0 9 * * *"}
	f.must(f.s.Set(f.ctx(), e))
	f.must(f.s.Set(f.ctx(), e))
	e.Zone, e.Payload = "Asia/Tokyo", "secret"
	f.must(s.Set(f.ctx(), e))
	begun := f.now()
	f.must(s.Pause(f.ctx(), "e"))
	f.must(s.Pause(f.ctx(), "e"))
	if one := f.status("e"); one.ChangedBy != "ann" || one.ChangeReason != "card provider down" ||
		one.Changed.Unix() < begun {
		t.Errorf("%+v", one)
	}
	f.must(s.Resume(f.ctx(), "e"))
	_, err := s.RunNow(f.ctx(), "e")
	f.must(err)
	f.must(s.Remove(f.ctx(), "e"))
	page, err := f.mon.Journal(f.ctx(), 0, "")
	f.must(err)
	want := []ops.JournalEntry{
		{Act: journal.RemoveSchedule}, {Act: journal.RunSchedule, Detail: "message "}, {Act: journal.ResumeSchedule},
		{Act: journal.PauseSchedule},
		{Act: journal.SetSchedule, Detail: "cron 0 9 * * * becomes cron 0 9 * * * in Asia/Tokyo; the payload"},
		{Act: journal.SetSchedule, Detail: "new: cron 0 9 * * *"},
	}
	if len(page.Entries) != len(want) {
		t.Fatalf("%+v", page.Entries)
	}
	for i, got := range page.Entries {
		by, why := "ann", "card provider down"
		if i == len(want)-1 {
			by, why = "", ""
		}
		if got.Act != want[i].Act || got.Target != "e" || !strings.HasPrefix(got.Detail, want[i].Detail) || got.By != by ||
			got.Reason != why {
			t.Errorf("%+v, want %+v by %q", got, want[i], by)
		}
	}
}

// TestCountLooksAtEachDayOnce: counting what was missed costs no more than the days in which it lies.
func TestCountLooksAtEachDayOnce(t *testing.T) {
	t.Parallel()
	c := mustCron(t, "* * * * *", "Europe/Berlin")
	looked := 0
	c.monthRules = []dayRule{func(time.Time) bool { looked++; return false }}
	c.days = 0 // so that the rules are asked: none of the days is meant
	to := time.Date(2026, 11, 23, 17, 0, 0, 0, time.UTC).Unix()
	if n := c.count(to-17*3600, to); n != 0 || looked > 6 {
		t.Errorf("%d instants; %d days were looked at", n, looked)
	}
	c.monthRules = []dayRule{func(time.Time) bool { looked++; return true }}
	looked = 0
	if n := c.count(to-10*365*daySeconds, to); n != mostCounted || looked > 6 {
		t.Errorf("%d instants; %d days were looked at", n, looked)
	}
}

// TestChangeKeepsWhatItDoesNotName: Change gets the entry as it is.
func TestChangeKeepsWhatItDoesNotName(t *testing.T) {
	f := newFixture(t)
	if err := f.s.Change(f.ctx(), "e", func(*Entry) error { return nil }); !errors.Is(err, ErrNoEntry) {
		t.Errorf("of none: %v", err)
	}
	f.must(f.s.SetAll(f.ctx(), "billing", Entry{
		Name: "e", Cron: "0 9 * * *", Zone: "Asia/Tokyo", Payload: "p", Overlap: Skip, CatchUp: 7, Jitter: time.Minute,
		Begin: time.Unix(1_900_000_000, 5), End: time.Unix(2_000_000_000, 5),
		Options: []delayqueue.MsgOption{delayqueue.WithHeader("a", "b"), delayqueue.WithRetryCount(7)},
	}))
	no := errors.New("no")
	if err := f.s.Change(f.ctx(), "e", func(e *Entry) error { e.Payload = "other"; return no }); !errors.Is(err, no) {
		t.Errorf("refused: %v", err)
	}
	f.must(f.s.Change(f.ctx(), "e", func(e *Entry) error { e.Cron = "0 10 * * *"; return nil }))
	one := f.status("e")
	settings := delayqueue.Describe(one.Options...)
	if one.Cron != "0 10 * * *" || one.Zone != "Asia/Tokyo" || one.Payload != "p" || one.Overlap != Skip ||
		one.CatchUp != 7 ||
		one.Jitter != time.Minute || one.Begin.Unix() != 1_900_000_001 || one.End.Unix() != 2_000_000_000 ||
		one.Program != "billing" ||
		settings.Headers["a"] != "b" || *settings.Retries != 7 {
		t.Errorf("%+v", one)
	}
	if err := f.s.Change(f.ctx(), "e", func(e *Entry) error { e.Name = "f"; return nil }); !errors.Is(err, ErrBadEntry) {
		t.Errorf("another name: %v", err)
	}
}

// TestSetAll: what is not on the list of a program any more is removed, and nothing else; what was lost comes again
// by itself.
func TestSetAll(t *testing.T) {
	f, _ := ownFixture(t)
	entry := func(name string) Entry { return Entry{Name: name, Every: time.Second} }
	names := func() (all []string) {
		list, err := f.s.List(f.ctx())
		if !errors.Is(err, delayqueue.ErrNoQueue) {
			f.must(err)
		}
		for _, one := range list {
			all = append(all, one.Name+" "+one.Program)
		}
		return all
	}
	f.must(f.s.Set(f.ctx(), entry("own")))
	f.must(f.s.SetAll(f.ctx(), "mails", entry("mail")))
	f.must(f.s.SetAll(f.ctx(), "billing", entry("a"), entry("b"), entry("c")))
	f.must(f.s.Set(f.ctx(), entry("c"))) // somebody took it over
	f.must(f.s.SetAll(f.ctx(), "billing", entry("b"), entry("d")))
	if got := names(); !slices.Equal(got, []string{"b billing", "c ", "d billing", "mail mails", "own "}) {
		t.Errorf("%q", got)
	}
	if err := f.s.SetAll(f.ctx(), "billing", entry("b"), entry("b")); !errors.Is(err, ErrBadEntry) {
		t.Errorf("twice: %v", err)
	}
	if err := f.s.SetAll(f.ctx(), "", entry("b")); !errors.Is(err, ErrBadEntry) {
		t.Errorf("of nobody: %v", err)
	}
	f.run(f.s)
	f.until("they run", func() bool { return !f.status("d").Last.IsZero() })
	f.must(f.cli.FlushAll(f.ctx()).Err())
	f.log.Says(t, 1, "all entries are gone")
	f.until("they are there again", func() bool {
		return slices.Equal(names(), []string{"b billing", "d billing", "mail mails"}) && !f.status("d").Last.IsZero()
	})
	f.must(f.s.SetAll(f.ctx(), "billing"))
	if got := names(); !slices.Equal(got, []string{"mail mails"}) {
		t.Errorf("%q", got)
	}
}

// TestJitterBeginEnd: jitter moves all instants of an entry alike, and each entry's otherwise; none is before Begin
// or after End, and an entry that is over is shown as that.
func TestJitterBeginEnd(t *testing.T) {
	f := newFixture(t)
	by := map[int64]bool{}
	for i := range 20 {
		name := fmt.Sprint("j", i)
		f.must(f.s.Set(f.ctx(), Entry{Name: name, Cron: "0 0 * * *", Jitter: time.Hour}))
		next, err := f.s.Next(f.ctx(), name, 2)
		f.must(err)
		after := next[0].Unix() % daySeconds
		if after >= 3600 || next[1].Sub(next[0]) != 24*time.Hour {
			t.Errorf("%s: %v", name, next)
		}
		by[after] = true
	}
	if len(by) < 10 {
		t.Errorf("20 entries come at %d instants", len(by))
	}
	begin := time.Unix(f.now()+3600, 500_000_000)
	some := Entry{Name: "some", Every: time.Second, Begin: begin, End: begin.Add(2 * time.Second), CatchUp: 1000}
	f.must(f.s.Set(f.ctx(), some))
	next, err := f.s.Next(f.ctx(), "some", 5)
	if err != nil || len(next) != 2 || next[0].Before(begin) || next[1].After(some.End) {
		t.Fatalf("from %v to %v: %v, %v", begin, some.End, next, err)
	}
	// One that ended while nobody ran it sends what it missed.
	some.Begin, some.End = some.Begin.Add(-2*time.Hour), some.End.Add(-2*time.Hour)
	f.must(f.s.Remove(f.ctx(), "some"))
	f.must(f.s.Set(f.ctx(), some))
	f.age("some", 3*time.Hour)
	got := f.consume(nil)
	f.run(f.s, f.replica())
	f.until("it is over", func() bool { return len(got.payloads()) == 2 && f.status("some").Trouble == nil })
	instants, most := got.of("some")
	if at := some.Begin.Unix() + 1; len(instants) != 2 || most != 1 || instants[at] != 1 || instants[at+1] != 1 {
		t.Errorf("ran %v, want two from %d on", instants, at)
	}
	if one := f.status("some"); !one.Next.IsZero() || !one.Overdue.IsZero() {
		t.Errorf("%+v", one)
	}
}
