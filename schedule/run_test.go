package schedule

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/ops"
)

// onBoth tests on one server and on a Cluster.
func onBoth(t *testing.T, test func(f *fixture)) {
	t.Parallel()
	t.Run("single", func(t *testing.T) { test(newFixture(t)) })
	t.Run("cluster", func(t *testing.T) { test(fixtureOn(t, redistest.StartCluster(t, 3, 0).Client(t))) })
}

// TestRun: each instant makes one message, which says what it is, however many replicas run.
func TestRun(t *testing.T) {
	onBoth(t, func(f *fixture) {
		got := f.consume(nil)
		begun := f.now()
		e := Entry{
			Name: "a/b", Every: 2 * time.Second, Offset: time.Second, Zone: "Asia/Tokyo", Payload: "\xff", CatchUp: 1000,
			Options: []delayqueue.MsgOption{delayqueue.WithRetryCount(7), delayqueue.WithHeader("x", "y")},
		}
		f.must(f.s.Set(f.ctx(), e))
		f.run(f.s, f.replica(), f.replica())
		f.until("three have run", func() bool { n, _ := got.of("a/b"); return len(n) >= 3 })
		instants, most := got.of("a/b")
		sorted := slices.Sorted(maps.Keys(instants))
		if most != 1 || sorted[0] <= begun || sorted[2]-sorted[0] != 4 || sorted[0]%2 != 1 {
			f.Errorf("ran at %v, at most %d times; set at %d", sorted, most, begun)
		}
		msg := got.messages()[0]
		if name, at := Of(msg); name != "a/b" || at.After(msg.Due) || msg.Payload != "\xff" || msg.MaxRetries != 7 ||
			msg.Headers["x"] != "y" ||
			msg.Headers["schedule-instant"][19:] != "+09:00" {
			f.Errorf("the message is %+v", msg)
		}
		now := f.now()
		all, err := f.s.List(f.ctx())
		if err != nil || len(all) != 1 || all[0].Last.Unix() < sorted[0] || all[0].Next.Unix() <= now ||
			all[0].Payload != "\xff" || all[0].Broken != nil {
			f.Errorf("List: %+v, %v", all, err)
		}
	})
}

// TestChangedWhileDue: while an entry is changed again and again, by several at once, each of its instants makes one
// message.
func TestChangedWhileDue(t *testing.T) {
	f := newFixture(t)
	got := f.consume(nil)
	entries := []Entry{{Name: "a", Every: time.Second, CatchUp: 1000}, {Name: "b", Every: time.Second, CatchUp: 1000}}
	for _, e := range entries {
		f.must(f.s.Set(f.ctx(), e))
	}
	f.run(f.s, f.replica(), f.replica())
	begun := f.now()
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() {
			s := f.replica()
			for n := 0; f.now() < begun+6; n++ {
				e := entries[rand.IntN(2)]
				e.Payload = fmt.Sprint(i, n)
				if err := s.Set(f.ctx(), e); err != nil {
					f.Error(err)
				}
				time.Sleep(rand.N(50 * time.Millisecond))
			}
		})
	}
	wg.Wait()
	f.judge(got, entries, begun)
}

// TestTakenBack: what was sent ahead is taken back when an entry is changed, paused or removed, and what a replica
// sends that has not heard of it is refused.
func TestTakenBack(t *testing.T) {
	onBoth(t, func(f *fixture) {
		const payload, other = "as it was", "as it is"
		e := Entry{Name: "e", Every: 2 * time.Second, Payload: payload}
		for what, change := range map[string]func() error{
			"changed": func() error { e := e; e.Payload = other; return f.s.Set(f.ctx(), e) },
			"paused":  func() error { return f.s.Pause(f.ctx(), "e") },
			"removed": func() error { return f.s.Remove(f.ctx(), "e") },
			"another time": func() error {
				e := e
				e.Every, e.Cron, e.Payload = 0, "0 0 1 1 *", other
				return f.s.Set(f.ctx(), e)
			},
		} {
			f.must(f.s.Set(f.ctx(), e))
			f.must(f.s.Resume(f.ctx(), "e"))
			stale := newRunner(f.replica())
			f.sentAhead(stale, payload)
			stale.entries["e"].last, stale.entries["e"].next = f.now(), f.now()+5 // as if it had sent nothing yet
			f.must(change())
			f.sends(stale)
			if n := len(f.waiting()); n != 0 && f.payloadsWaiting()[payload] > 0 {
				f.Errorf("%s: %d wait, %v", what, n, f.payloadsWaiting())
			}
			if what == "changed" {
				f.sentAhead(f.looked(f.replica(), true), other)
			} else {
				f.looked(f.replica(), true)
			}
			if n := f.payloadsWaiting(); n[payload] > 0 || what != "changed" && n[other] > 0 {
				f.Errorf("%s: then %v wait", what, n)
			}
			if err := f.s.Remove(f.ctx(), "e"); err != nil && !errors.Is(err, ErrNoEntry) {
				f.Error(err)
			}
			if n := f.cli.HLen(f.ctx(), f.s.table.store.Keys.Schedules).Val(); n != 3 || len(f.waiting()) > 0 {
				f.Errorf("%s: %d fields are left, and %d messages", what, n, len(f.waiting()))
			}
		}
	})
}

// steps makes a runner look, and sends makes it send what is due. Both are tried again, as Run does: a call may take
// callLimit, and this machine may stand still for longer.
func (f *fixture) steps(r *runner) {
	f.Helper()
	f.until("it looks", func() bool {
		var err error
		if r.reading, err = r.look(f.ctx()); err != nil {
			return false
		}
		r.handOut()
		return side(r.parts, func(p *part) error { return p.look(f.ctx(), <-p.views) }) == nil
	})
}

func (f *fixture) sends(r *runner) {
	f.Helper()
	f.until("it sends", func() bool { return side(r.parts, func(p *part) error { return p.sendDue(f.ctx()) }) == nil })
}

// sentAhead has a runner send until one of these waits: what was sent is due some seconds later, which may be over
// when it is looked at.
func (f *fixture) sentAhead(r *runner, payload string) {
	f.Helper()
	f.until("one is sent ahead: "+payload, func() bool {
		f.steps(r)
		f.sends(r)
		return f.payloadsWaiting()[payload] > 0
	})
}

// payloadsWaiting counts what is pending, and not due yet.
func (f *fixture) payloadsWaiting() map[string]int {
	f.Helper()
	n, now := map[string]int{}, f.now()
	for msg, err := range f.mon.All(f.ctx(), delayqueue.StatePending, ops.Filter{}) {
		if f.must(err); msg.Due.Unix() > now {
			n[msg.Payload]++
		}
	}
	return n
}

// TestSkip: while the last message lives none is sent, and what was skipped is not made up for.
func TestSkip(t *testing.T) {
	f := newFixture(t)
	release := make(chan struct{})
	got := f.consume(held("e", release))
	f.must(f.s.Set(f.ctx(), Entry{Name: "e", Every: time.Second, Overlap: Skip, CatchUp: 1000}))
	f.run(f.s, f.replica(), f.replica())
	f.until("one runs", func() bool { n, _ := got.of("e"); return len(n) == 1 })
	first, _ := got.of("e")
	begun := slices.Sorted(maps.Keys(first))[0]
	f.until("some are skipped", func() bool {
		n, err := f.mon.Sequence(f.ctx(), "schedule/e")
		_, at := split(n)
		return err == nil && at >= begun+3
	})
	if _, err := f.s.RunNow(f.ctx(), "e"); !errors.Is(err, delayqueue.ErrDuplicateKey) {
		t.Errorf("run now: %v", err)
	}
	if n, _ := got.of("e"); len(n) != 1 {
		t.Errorf("beside it ran %v", n)
	}
	f.until("they are counted", func() bool { return f.skipped("e").Overlap >= 3 })
	close(release)
	f.until("others run", func() bool { n, _ := got.of("e"); return len(n) >= 3 })
	if instants, most := got.of("e"); most != 1 || instants[begun+1]+instants[begun+2]+instants[begun+3] > 0 {
		t.Errorf("ran %v, at most %d", instants, most)
	}
}

// skipped is what List says that an entry has skipped.
func (f *fixture) skipped(name string) Skipped {
	f.Helper()
	return f.status(name).Skipped
}

// TestSkippedInPauses: they count while the pause lasts, and after it; not those after it.
func TestSkippedInPauses(t *testing.T) {
	f := newFixture(t)
	e := Entry{Name: "e", Every: time.Second}
	f.must(f.s.Set(f.ctx(), e))
	paused := f.now()
	f.must(f.s.Pause(f.ctx(), "e"))
	f.until("some have passed", func() bool { return f.skipped("e").Paused >= 2 })
	e.Payload = "changed in the pause"
	f.must(f.s.Set(f.ctx(), e))
	f.must(f.s.Resume(f.ctx(), "e"))
	n := f.skipped("e").Paused
	if most := f.now() - paused + 1; n < 2 || n > most {
		t.Errorf("%d have passed, of at most %d", n, most)
	}
	now := f.now()
	f.until("two seconds are over", func() bool { return f.now() > now+2 })
	if after := f.skipped("e"); after != (Skipped{Paused: n}) {
		t.Errorf("%+v, want %d", after, n)
	}
	f.must(f.s.Remove(f.ctx(), "e"))
	f.must(f.s.Set(f.ctx(), e))
	if begun := f.skipped("e"); begun != (Skipped{}) {
		t.Errorf("a new one has %+v", begun)
	}
}

// TestCatchUp: of the instants that were missed, the latest are sent, the oldest first.
func TestCatchUp(t *testing.T) {
	f := newFixture(t)
	want := map[string]int{"none": 0, "default": 1, "three": 3, "all": 24, "too late": 0, "in time": 3}
	ttl := func(d time.Duration) []delayqueue.MsgOption { return []delayqueue.MsgOption{delayqueue.WithMsgTTL(d)} }
	now := f.now()
	for _, e := range []Entry{
		{Name: "none", CatchUp: NoCatchUp}, {Name: "default"}, {Name: "three", CatchUp: 3}, {Name: "all", CatchUp: 1000},
		{Name: "too late", CatchUp: 2, Options: ttl(time.Millisecond)},
		{Name: "in time", CatchUp: 3, Options: ttl(100 * time.Hour)},
	} {
		f.missed(now, e)
	}
	got := f.consume(nil)
	stop := f.run(f.s, f.replica())
	f.until("they are caught up", func() bool { return len(got.payloads()) >= 1+3+24+3 })
	f.until("those are passed that are too late", func() bool {
		n, err := f.mon.Sequence(f.ctx(), "schedule/too late")
		_, at := split(n)
		return err == nil && at == now-60
	})
	wantSkips := map[string]Skipped{"default": {Missed: 23}, "three": {Missed: 21}, "too late": {Missed: 24},
		"in time": {Missed: 21}}
	f.until("what was left out is counted", func() bool {
		// a call of five seconds was cut off, and who has counted is not known
		if strings.Contains(f.log.String(), "entries cannot be sent for now") {
			return true
		}
		list, err := f.s.List(f.ctx())
		f.must(err)
		return !slices.ContainsFunc(list, func(s Status) bool { return s.Skipped != wantSkips[s.Name] })
	})
	stop()
	for name, n := range want {
		instants, most := got.of(name)
		if len(instants) != n || most > 1 {
			t.Errorf("%s: %d ran, at most %d for an instant, want %d", name, len(instants), most, n)
		}
		for i, at := range slices.Backward(slices.Sorted(maps.Keys(instants))) {
			if want := now - 60 - int64(len(instants)-1-i)*3600; at != want {
				t.Errorf("%s: %d ran, want %d", name, at, want)
			}
		}
	}
	for _, msg := range got.messages() {
		if name, at := Of(msg); at.Unix() > now-60 || msg.Due.Unix() < now {
			t.Errorf("%s: the message of %v, sent after %d, is due at %v", name, at, now, msg.Due)
		}
	}
	list, err := f.s.List(f.ctx())
	if err != nil || len(list) != len(want) {
		t.Errorf("%+v, %v", list, err)
	}
}

// age makes an entry as old as if nobody had run since.
func (f *fixture) age(name string, d time.Duration) {
	f.Helper()
	text, r := f.stored(name)
	r.Since -= int64(d.Seconds())
	f.changes(name, text, r.text())
}

// missed sets an entry of each hour that nobody has run for a day. The last instant was a minute before now.
func (f *fixture) missed(now int64, e Entry) Entry {
	f.Helper()
	e.Every, e.Offset = time.Hour, time.Duration((now-60)%3600)*time.Second
	f.must(f.s.Set(f.ctx(), e))
	f.age(e.Name, 24*time.Hour)
	return e
}

// changes replaces the record of an entry, which must be as the first text says.
func (f *fixture) changes(name, from, to string) {
	f.Helper()
	if done, err := f.s.table.change(f.ctx(), name, from, to, noLimit, false); !done || err != nil {
		f.Fatal(done, err)
	}
}

// TestBrokenByOthers: what somebody else wrote is logged once and left alone, and the others go on. It can be
// replaced and removed, whatever its name, and not be paused.
func TestBrokenByOthers(t *testing.T) {
	f := newFixture(t)
	got := f.consume(nil)
	f.must(f.s.Set(f.ctx(), Entry{Name: "good", Every: time.Second}))
	const unnamable = "a\x1b[31m"
	texts := []string{"x", "{}", `{"gen":-1}`, `{"gen":1,"since":1}`, `{"gen":1,"since":1,"cron":"x"}`,
		`{"gen":1,"since":1,"every":-5}`,
		`{"gen":1,"since":1,"every":5,"zone":"No/Where"}`, `{"gen":1,"since":1,"every":5,"catchUp":5000000}`,
		`{"gen":1,"since":1,"every":5,"overlap":"?"}`, `{"gen":1,"since":1,"every":1,"options":{"ttl":-5}}`, `[]`, `null`, ""}
	for i, text := range texts {
		f.must(f.cli.HSet(f.ctx(), f.s.table.store.Keys.Schedules, fmt.Sprint("bad", i), text).Err())
	}
	f.must(f.cli.HSet(f.ctx(), f.s.table.store.Keys.Schedules, "\x00", "x", unnamable, "x").Err())
	f.run(f.s)
	f.until("the good one runs", func() bool { n, _ := got.of("good"); return len(n) >= 3 })
	f.must(f.s.Set(f.ctx(), Entry{Name: "bad0", Every: time.Second}))
	f.until("what is put right runs", func() bool { n, _ := got.of("bad0"); return len(n) >= 1 })
	for i := range texts {
		f.log.Says(t, 1, fmt.Sprintf("entry=bad%d error=", i))
	}
	if one := f.status("bad1"); one.Broken == nil {
		t.Errorf("%+v", one)
	}
	_, errNext := f.s.Next(f.ctx(), "bad1", 5)
	for _, err := range []error{errNext, f.s.Pause(f.ctx(), "bad1"), f.s.Resume(f.ctx(), "bad1"), f.s.Remove(f.ctx(), ""),
		f.s.Remove(f.ctx(), "b\n")} {
		if !errors.Is(err, ErrBadEntry) {
			t.Errorf("%v, want ErrBadEntry", err)
		}
	}
	for i := range len(texts) - 2 {
		f.must(f.s.Remove(f.ctx(), fmt.Sprint("bad", i+1)))
	}
	f.must(f.s.Remove(f.ctx(), unnamable))
	all, err := f.s.List(f.ctx())
	names := ""
	for _, one := range all {
		names += one.Name + " "
	}
	if err != nil || names != "\x00 bad0 bad12 good " || all[1].Broken != nil ||
		all[1].Paused { // bad12 is empty, which none is
		t.Errorf("%+v, %v", all, err)
	}
}
