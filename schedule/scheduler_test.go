package schedule

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
)

// TestBadEntries: what cannot be is refused, with what would be right, and nothing is stored.
func TestBadEntries(t *testing.T) {
	f := newFixture(t)
	for want, e := range map[string]Entry{
		"a name has 1 to 200 bytes":           {Every: time.Second},
		"has 1 to 200":                        {Name: strings.Repeat("x", 201), Every: time.Second},
		"no UTF-8":                            {Name: "\xff", Every: time.Second},
		"control character":                   {Name: "a\n", Every: time.Second},
		"neither Cron nor Every":              {Name: "e"},
		"one of them":                         {Name: "e", Every: time.Second, Cron: "* * * * *"},
		"from 1s":                             {Name: "e", Every: 999 * time.Millisecond},
		"whole seconds, from 1s":              {Name: "e", Every: 1500 * time.Millisecond},
		"Every -1s":                           {Name: "e", Every: -time.Second},
		"less than Every":                     {Name: "e", Every: time.Second, Offset: time.Second},
		"Offset 1h0m0s":                       {Name: "e", Cron: "* * * * *", Offset: time.Hour},
		`position 3: hour "25": want 0 to 23`: {Name: "e", Cron: "0 25 * * *"},
		"never comes":                         {Name: "e", Cron: "0 0 30 2 *"},
		`import _ "time/tzdata"`:              {Name: "e", Every: time.Second, Zone: "Europe/Belrin"},
		"differs from machine to machine":     {Name: "e", Every: time.Second, Zone: "Local"},
		`{"key":"k"}: belongs to one message`: {Name: "e", Every: time.Second,
			Options: []delayqueue.MsgOption{delayqueue.WithKey("k")}},
		`{"sequence":"k","number":1}: belongs to one message`: {Name: "e", Every: time.Second,
			Options: []delayqueue.MsgOption{delayqueue.WithSequence("k", 1)}},
		`"payloadKey":true`: {Name: "e", Every: time.Second, Options: []delayqueue.MsgOption{delayqueue.WithPayloadKey()}},
		`"schedule":"`: {Name: "e", Every: time.Second,
			Options: []delayqueue.MsgOption{delayqueue.WithSchedule(time.Now())}},
		`{"timed":true}: belongs`: {Name: "e", Every: time.Second, Options: []delayqueue.MsgOption{delayqueue.WithDelay(0)}},
		"use WithMsgTTL": {Name: "e", Every: time.Second,
			Options: []delayqueue.MsgOption{delayqueue.WithDeadline(time.Now())}},
		"let its handler send the message that waits, or name it with Then": {Name: "e", Every: time.Second,
			Options: []delayqueue.MsgOption{delayqueue.WithCountdown(5)}},
		`WithCounts("schedule/e"): this is a key of a message of an entry`: {Name: "e", Every: time.Second, Overlap: Skip,
			Options: []delayqueue.MsgOption{delayqueue.WithCounts("schedule/e")}},
		`WithCounts("schedule@1.2/e"): this is a key`: {Name: "e", Every: time.Second,
			Options: []delayqueue.MsgOption{delayqueue.WithCounts("schedule@1.2/e")}},
		`WithLane("\xff") is no UTF-8`: {Name: "e", Every: time.Second,
			Options: []delayqueue.MsgOption{delayqueue.WithLane("\xff")}},
		`WithCounts("\xff") is no UTF-8`: {Name: "e", Every: time.Second,
			Options: []delayqueue.MsgOption{delayqueue.WithCounts("\xff")}},
		"option 1 is nil": {Name: "e", Every: time.Second, Options: []delayqueue.MsgOption{nil}},
		`the header "schedule" is this package's`: {Name: "e", Every: time.Second,
			Options: []delayqueue.MsgOption{delayqueue.WithHeader("schedule", "x")}},
		`header "a": "\xff" is no UTF-8`: {Name: "e", Every: time.Second,
			Options: []delayqueue.MsgOption{delayqueue.WithHeader("a", "\xff")}},
		"CatchUp 1001: at most 1000; NoCatchUp is": {Name: "e", Every: time.Second, CatchUp: 1001},
		"CatchUp -2":                {Name: "e", Every: time.Second, CatchUp: -2},
		"Overlap(2): Allow or Skip": {Name: "e", Every: time.Second, Overlap: 2},
	} {
		err := f.s.Set(f.ctx(), e)
		if !errors.Is(err, ErrBadEntry) || !strings.Contains(err.Error(), want) ||
			strings.Count(err.Error(), "schedule: ") != 1 {
			t.Errorf("%+v: %v, want %s", e, err, want)
		}
	}
	if n := f.cli.Exists(f.ctx(), f.s.table.store.Keys.Schedules).Val(); n != 0 {
		t.Error("something is stored")
	}
	_, errRun := f.s.RunNow(f.ctx(), "none")
	_, errNext := f.s.Next(f.ctx(), "none", 5)
	for _, err := range []error{f.s.Pause(f.ctx(), "none"), f.s.Resume(f.ctx(), "none"), f.s.Remove(f.ctx(), "none"),
		errRun, errNext} {
		if !errors.Is(err, ErrNoEntry) || !strings.Contains(err.Error(), f.name) || !strings.Contains(err.Error(), `"none"`) {
			t.Errorf("%v, want ErrNoEntry", err)
		}
	}
}

// TestSetAgain: the same entry again changes nothing, from many processes at once; another text makes another
// generation.
func TestSetAgain(t *testing.T) {
	f := newFixture(t)
	e := Entry{Name: "e", Cron: "0 9 * * 1-5", Zone: "Europe/Berlin", Payload: "x",
		Options: []delayqueue.MsgOption{delayqueue.WithHeader("a", "b"), delayqueue.WithHeader("c", "d")}}
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			if err := f.replica().Set(f.ctx(), e); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	text := func() string { text, _ := f.s.table.read(f.ctx(), "e"); return text }
	first := text()
	r, err := readRecord(first)
	if err != nil || r.Gen != 2 || r.Open != 0 {
		t.Fatalf("%s, %v", first, err)
	}
	f.must(f.s.Set(f.ctx(), e))
	f.must(f.s.Resume(f.ctx(), "e"))
	list, err := f.s.List(f.ctx())
	if err != nil || len(list) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	f.must(f.s.Set(f.ctx(), list[0].Entry)) // as it is listed
	if text() != first {
		t.Errorf("%s, want %s", text(), first)
	}
	f.must(f.s.Pause(f.ctx(), "e"))
	f.must(f.s.Pause(f.ctx(), "e"))
	f.must(f.s.Set(f.ctx(), e))
	e.Payload = "y"
	f.must(f.s.Set(f.ctx(), e))
	if r, err := readRecord(text()); err != nil || !r.Paused || r.Gen != 6 || string(r.Payload) != "y" {
		t.Errorf("%s, %v", text(), err)
	}
	f.must(f.s.Resume(f.ctx(), "e"))
	f.must(f.s.Remove(f.ctx(), "e"))
	f.must(f.s.Set(f.ctx(), e))
	if r, err := readRecord(text()); err != nil || r.Paused || r.Gen != 11 { // it goes on where it was
		t.Errorf("%s, %v", text(), err)
	}
}

// TestCounts: the ack of each message of an entry counts for the message that waits, each has its lane, and the entry
// says so, also after it was read and set again. An entry without them stays as it is.
func TestCounts(t *testing.T) {
	f := newFixture(t)
	e := Entry{Name: "e", Every: time.Second, Options: []delayqueue.MsgOption{delayqueue.WithRetryCount(3),
		delayqueue.WithCounts("<import-42>"), delayqueue.WithLane("l", 3)}}
	f.must(f.s.Set(f.ctx(), e))
	text, _ := f.stored("e")
	if !strings.Contains(text, `"options":{"counts":"\u003cimport-42\u003e","lane":"l","laneWidth":3,"retries":3}`) {
		t.Errorf("it is stored as %s", text)
	}
	const without = `{"v":1,"gen":1,"since":1,"cron":"0 0 1 1 *","options":{"retries":3}}`
	f.must(f.cli.HSet(f.ctx(), f.s.table.store.Keys.Schedules, "without", without).Err())
	all, err := f.s.List(f.ctx())
	if err != nil || len(all) != 2 || delayqueue.Describe(all[0].Options...).Counts != "<import-42>" ||
		all[1].Broken != nil ||
		delayqueue.Describe(all[1].Options...).Counts != "" {
		t.Fatalf("%+v, %v", all, err)
	}
	f.must(f.s.Set(f.ctx(), all[0].Entry)) // as it is listed
	if now, _ := f.stored("e"); now != text {
		t.Errorf("%s, want %s", now, text)
	}
	if without := f.rec("without").text(); strings.Contains(without, "counts") {
		t.Errorf("%s", without)
	}

	_, err = f.pub.Send(f.ctx(), "waits", delayqueue.WithKey("<import-42>"), delayqueue.WithDelay(time.Hour),
		delayqueue.WithCountdown(2))
	f.must(err)
	for range 2 {
		_, err = f.s.RunNow(f.ctx(), "e")
		f.must(err)
	}
	if lane, err := f.mon.Lane(f.ctx(), "l"); err != nil || lane.Turns != 2 || lane.Width != 3 {
		t.Errorf("%+v, %v", lane, err)
	}
	got := f.consume(nil)
	f.until("the message that waits comes", func() bool { return slices.Equal(got.payloads(), []string{"", "", "waits"}) })
}

// TestRunNow: a message of the entry beside its instants, paused or not.
func TestRunNow(t *testing.T) {
	f := newFixture(t)
	f.must(f.s.Set(f.ctx(), Entry{Name: "e", Cron: "0 0 1 1 *", Payload: "x"}))
	f.must(f.s.Pause(f.ctx(), "e"))
	got := f.consume(nil)
	for range 2 {
		if _, err := f.s.RunNow(f.ctx(), "e"); err != nil {
			t.Fatal(err)
		}
	}
	f.until("they run", func() bool { return len(got.payloads()) == 2 })
	first := got.messages()[0]
	if name, at := Of(first); name != "e" || !at.IsZero() || first.Payload != "x" {
		t.Errorf("%+v", first)
	}
}

// TestCost: with many entries and nothing due, a look of a replica is one round trip, and it looks once a second. The
// queue is in use: else each look asks how many shards it has.
func TestCost(t *testing.T) {
	f, server := ownFixture(t)
	f.must(f.pub.SendDelayMsg("x", time.Hour))
	wire, far := f.wired(server, 0)
	f.store(1000, func(int) record {
		return record{Gen: 1, Since: f.now(), plan: plan{times: times{Cron: "0 0 1 1 *"}, CatchUp: 1}}
	})
	r := f.looked(far, true)
	f.until("a look is one command", func() bool { // a call that this machine was too slow for is made again
		before := wire.Commands()
		f.steps(r)
		f.sends(r)
		return wire.Commands() == before+1
	})
	f.run(far)
	f.fewCommands(wire)
}

// fewCommands wants a Scheduler to make no more commands than some a second, and connections now and then.
func (f *fixture) fewCommands(wire *redistest.Wire) {
	f.Helper()
	before, begun := wire.Commands(), time.Now()
	time.Sleep(3 * time.Second)
	if n, most := wire.Commands()-before, 5*time.Since(begun).Seconds()+20; float64(n) > most {
		f.Errorf("%d commands in %v", n, time.Since(begun))
	}
}

// TestManyDueAtOnce: they are sent in pages, each once, by several replicas.
func TestManyDueAtOnce(t *testing.T) {
	f := newFixture(t)
	const many = 3000
	at := f.now()
	f.store(many, func(int) record {
		return record{Gen: 1, Since: at, plan: plan{times: times{Every: 3600, Offset: (at + 3) % 3600}, CatchUp: 1}}
	})
	f.run(f.s, f.replica())
	f.until("all are there", func() bool { return f.messages() >= many })
	if n := f.messages(); n != many {
		t.Errorf("%d messages", n)
	}
}

// TestOutage: it is in the log once, with its end, and nothing is missed.
func TestOutage(t *testing.T) {
	f, server := ownFixture(t)
	got := f.consume(nil)
	e := Entry{Name: "e", Every: time.Second, CatchUp: 1000}
	f.must(f.s.Set(f.ctx(), e))
	from := f.now()
	f.run(f.s)
	f.until("it runs", func() bool { n, _ := got.of("e"); return len(n) > 0 })
	server.Pause()
	f.until("it is logged", func() bool { return strings.Contains(f.log.String(), "cannot be sent for now") })
	server.Resume()
	f.judge(got, []Entry{e}, from)
	f.until("the end of each is logged, once",
		func() bool { // judge has a replica of its own, and this machine may stand still, too
			log := f.log.String()
			return strings.Count(log, "are sent again") == strings.Count(log, "cannot be sent for now")
		})
}
