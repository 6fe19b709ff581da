package schedule

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// onServers tests on Redis and on miniredis.
func onServers(t *testing.T, test func(f *fixture)) {
	t.Parallel()
	t.Run("redis", func(t *testing.T) { test(newFixture(t)) })
	t.Run("miniredis", func(t *testing.T) {
		cli := queuetest.RedisClient(t, miniredis.RunT(t).Addr())
		test(fixtureOn(t, cli))
	})
}

// TestScriptsSentTwice: a script whose reply was lost, and that is sent again, has the effect of once.
func TestScriptsSentTwice(t *testing.T) {
	onServers(t, func(f *fixture) {
		table := &f.s.table
		change := func(name, is, to string, want bool) {
			f.Helper()
			for range 2 {
				if done, err := table.change(f.ctx(), name, is, to, noLimit, false); done != want || err != nil {
					f.Errorf("change %q from %q to %q: %v, %v; want %v", name, is, to, done, err, want)
				}
			}
		}
		version := func() string {
			f.Helper()
			now, err := table.look(f.ctx(), true)
			f.must(err)
			again, err := table.look(f.ctx(), false)
			if err != nil || again.version != now.version || again.us < now.us || again.history != "" {
				f.Errorf("look: %+v, then %+v, %v", now, again, err)
			}
			return now.version
		}
		if v := version(); v != "" {
			f.Errorf("of nothing: version %q", v)
		}
		change("e", "x", "y", false) // there is none
		change("e", "", "a\x00\xff", true)
		first := version()
		change("e", "", "b", false) // it is there
		change("e", "b", "c", false)
		if v := version(); v != first {
			f.Errorf("nothing was changed, and the version is %q, %q before", v, first)
		}
		change("e", "a\x00\xff", "b", true)
		change("f", "", "b", true)
		if v := version(); v == first {
			f.Errorf("the version is %q still", v)
		}
		for range 2 {
			if text, err := table.read(f.ctx(), "e"); text != "b" || err != nil {
				f.Errorf("read: %q, %v", text, err)
			}
			all, err := table.all(f.ctx(), time.Minute)
			delete(all, changesField)
			if delete(all, lookedField); fmt.Sprint(all) != "map[e:b f:b]" || err != nil {
				f.Errorf("all: %q, %v", all, err)
			}
		}
		change("e", "b", "", true)
		if text, err := table.read(f.ctx(), "e"); text != "" || err != nil {
			f.Errorf("read what is removed: %q, %v", text, err)
		}
	})
}

// TestSkipsSentTwice: what a look takes along counts once, for an entry that is there, and goes with it.
func TestSkipsSentTwice(t *testing.T) {
	onServers(t, func(f *fixture) {
		table := &f.s.table
		f.must(f.s.Set(f.ctx(), Entry{Name: "e", Every: time.Hour}))
		told := func(want Skipped, skips ...skip) {
			f.Helper()
			for range 2 {
				f.must(queuetest.Failure(table.look(f.ctx(), true, skips...)))
				if got := f.skipped("e"); got != want {
					f.Errorf("%+v: %+v, want %+v", skips, got, want)
				}
			}
		}
		told(Skipped{})
		told(Skipped{Overlap: 1}, skip{"e", number(3, 10), 1, 0}, skip{"gone", number(3, 10), 1, 0})
		told(Skipped{Overlap: 2, Missed: 7}, skip{"e", number(3, 11), 1, 7})
		for _, rubbish := range []string{"", "x", "1 2", "-1 2 3", "1 2 3 4", "9e999 1 1", "1.5 2 3", "\x00\xff"} {
			f.must(f.cli.HSet(f.ctx(), table.store.Keys.Schedules, skipsOf("e"), rubbish).Err())
			if _, err := f.s.List(f.ctx()); err != nil {
				f.Errorf("%q: %v", rubbish, err)
			}
			told(Skipped{Missed: 5}, skip{"e", number(maxGen, 12), 0, 5})
		}
		f.must(f.cli.HSet(f.ctx(), table.store.Keys.Schedules, skipsOf("e"), strings.Repeat("9", 400)+" 1 1").Err())
		f.must(queuetest.Failure(table.look(f.ctx(), true, skip{"e", 5, 1, 1})))
		f.must(f.s.Remove(f.ctx(), "e"))
		for _, field := range f.cli.HKeys(f.ctx(), table.store.Keys.Schedules).Val() {
			if field != "" && field != lookedField && field != changesField {
				f.Errorf("%q is left", field)
			}
		}
	})
}

// TestSkipsOfAnEntryAreOne: entries are passed side by side, and what an entry has skipped between two looks is told
// as one, so a look that is sent twice counts it once.
func TestSkipsOfAnEntryAreOne(t *testing.T) {
	f := newFixture(t)
	r := &runner{Scheduler: f.s}
	var all []*entry
	for i := range 40 {
		name := fmt.Sprint("e", i)
		f.must(f.s.Set(f.ctx(), Entry{Name: name, Every: time.Hour}))
		all = append(all, &entry{name: name, record: record{Gen: 1}, when: everyTiming{every: 10}, last: 100, next: 110})
	}
	for instant := range 3 {
		f.must(side(all, func(e *entry) error {
			e.next = 110 + 10*int64(instant)
			r.skipped(e, 1, 0)
			r.skipped(e, 1, 0) // it rests, and is settled again
			return nil
		}))
	}
	if len(r.skips) != len(all) {
		t.Errorf("%d skips of %d entries", len(r.skips), len(all))
	}
	for range 2 { // the reply is lost
		f.must(queuetest.Failure(f.s.table.look(f.ctx(), true, r.skips...)))
	}
	list, err := f.s.List(f.ctx())
	f.must(err)
	for _, s := range list {
		if s.Skipped != (Skipped{Overlap: 3}) {
			t.Errorf("%s: %+v", s.Name, s.Skipped)
		}
	}
}

// TestSkipsOnAFullServer: one that has no memory left counts none, and looks go on.
func TestSkipsOnAFullServer(t *testing.T) {
	t.Parallel()
	f := fixtureOn(t, redistest.Start(t).Client(t))
	f.must(f.s.Set(f.ctx(), Entry{Name: "e", Every: time.Hour}))
	f.must(f.cli.ConfigSet(f.ctx(), "maxmemory", "1").Err())
	f.must(queuetest.Failure(f.s.table.look(f.ctx(), true, skip{"e", 5, 1, 1})))
	if got := f.skipped("e"); got != (Skipped{}) {
		t.Errorf("it has memory: %+v", got)
	}
	f.must(f.cli.ConfigSet(f.ctx(), "maxmemory", "0").Err())
}

// TestRubbishInTheKey: a key of another type is an error, which is logged once, and changes nothing; when it is
// gone, all is well again. So is anything in the field of the version.
func TestRubbishInTheKey(t *testing.T) {
	onServers(t, func(f *fixture) {
		e := Entry{Name: "e", Every: time.Second}
		f.must(f.cli.Set(f.ctx(), f.s.table.store.Keys.Schedules, "rubbish", 0).Err())
		_, errList := f.s.List(f.ctx())
		_, errNext := f.s.Next(f.ctx(), "e", 1)
		for what, err := range map[string]error{"set": f.s.Set(f.ctx(), e), "remove": f.s.Remove(f.ctx(), "e"),
			"list": errList, "next": errNext} {
			if err == nil || !strings.Contains(err.Error(), "WRONGTYPE") || !strings.Contains(err.Error(), f.name) {
				f.Errorf("%s: %v", what, err)
			}
		}
		f.run(f.s)
		f.until("it is logged", func() bool { return strings.Contains(f.log.String(), "WRONGTYPE") })
		if text := f.cli.Get(f.ctx(), f.s.table.store.Keys.Schedules).Val(); text != "rubbish" {
			f.Errorf("the key is %q", text)
		}
		f.must(f.cli.Del(f.ctx(), f.s.table.store.Keys.Schedules).Err())
		f.must(f.cli.HSet(f.ctx(), f.s.table.store.Keys.Schedules, "", "\x00\xff rubbish", "other", "\xff").Err())
		f.must(f.s.Set(f.ctx(), e))
		f.must(f.cli.HSet(f.ctx(), f.s.table.store.Keys.Schedules, "", "\x00\xff rubbish").Err())
		got := f.consume(nil)
		f.until("it runs", func() bool { n, _ := got.of("e"); return len(n) >= 3 })
		f.log.Says(f, 1, "cannot be sent for now", "WRONGTYPE") // a slow machine has other reasons
	})
}

// TestReplyLost: whichever reply is lost while an entry is set, changed, paused, resumed and removed, each call has
// its effect, once, and nothing is left.
func TestReplyLost(t *testing.T) {
	f := newFixture(t)
	wire, s := f.wired(shared, 0)
	e := Entry{Name: "e", Every: time.Second}
	for nth, lost := 0, true; lost; nth++ {
		seen := 0
		struck := wire.CutReply(func(cmd []string) bool {
			seen++
			return seen > nth
		})
		e.Payload = "before"
		f.must(s.Set(f.ctx(), e))
		f.looked(f.s, true)
		e.Payload = "after"
		f.must(s.Set(f.ctx(), e))
		if n := f.payloadsWaiting(); n["before"] > 0 {
			t.Errorf("reply %d: %v wait", nth, n)
		}
		f.must(s.Pause(f.ctx(), "e"))
		if r := f.rec("e"); !r.Paused || r.Open != 0 || string(r.Payload) != "after" {
			t.Errorf("reply %d: %+v", nth, r)
		}
		f.must(s.Resume(f.ctx(), "e"))
		f.must(s.Remove(f.ctx(), "e"))
		if n := f.cli.HLen(f.ctx(),
			f.s.table.store.Keys.Schedules).Val(); n != 3 { // the version, the last changes, and when a replica looked
			t.Errorf("reply %d: %d fields are left", nth, n)
		}
		select {
		case <-struck:
		default:
			lost = false
		}
		wire.Mend()
		if nth == 1000 {
			t.Fatal("there is no end of replies")
		}
	}
}
