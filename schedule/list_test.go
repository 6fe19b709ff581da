package schedule

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/ops"
)

// TestListMany: a Monitor lists a thousand entries with the last instant of each in few calls, though other
// sequences stand between theirs.
func TestListMany(t *testing.T) {
	f, server := ownFixture(t)
	const many = 1000
	f.must(f.s.Set(f.ctx(), Entry{Name: "unsent", Every: time.Hour}))
	at := f.now() / 3600 * 3600
	f.store(many, func(int) record {
		return record{Gen: 1, Since: at - 3600, plan: plan{times: times{Every: 3600, Zone: "Asia/Tokyo"}, CatchUp: 1}}
	})
	for i := range many {
		if i%10 == 0 {
			_, err := f.mon.PassSequence(f.ctx(), fmt.Sprint("other", i), 5)
			f.must(ignoreNew(err))
		}
		f.pass(fmt.Sprint("e", i), 1, at)
	}
	wire, far := f.wired(server, 0)
	all, err := List(f.ctx(), far.monitor.Monitor())
	f.must(err)
	if len(all) != many+1 {
		t.Fatalf("%d entries", len(all))
	}
	for _, one := range all {
		if unsent := one.Name == "unsent"; one.Last.IsZero() != unsent || !unsent && one.Last.Unix() != at ||
			one.Next.Unix() <= at {
			t.Errorf("%+v", one)
		}
	}
	if n := wire.Commands(); n > many/10 {
		t.Errorf("%d commands", n)
	}
}

// ignoreNew is nil for a sequence that was not there.
func ignoreNew(err error) error {
	if errors.Is(err, delayqueue.ErrNotFound) {
		return nil
	}
	return err
}

// TestListNone: a queue that has no key is told from one that has no entries.
func TestListNone(t *testing.T) {
	f := newFixture(t)
	if all, err := List(f.ctx(), f.mon.Monitor()); !errors.Is(err, delayqueue.ErrNoQueue) || len(all) != 0 {
		t.Errorf("of no queue: %v, %v", all, err)
	}
	_, err := f.pub.Send(f.ctx(), "x")
	f.must(err)
	for range 2 {
		if all, err := List(f.ctx(), f.mon.Monitor()); err != nil || len(all) != 0 {
			t.Errorf("of none: %v, %v", all, err)
		}
		f.must(f.s.Set(f.ctx(), Entry{Name: "e", Every: time.Hour}))
		f.must(f.s.Remove(f.ctx(), "e"))
	}
}

// TestPrefix: entries of a queue with a prefix of its own are that queue's, and nobody else's.
func TestPrefix(t *testing.T) {
	f := newFixture(t)
	const prefix = "app 1"
	own := delayqueue.UseCustomPrefix(prefix)
	t.Cleanup(func() { check.Assert(t, f.cli, prefix, f.name) })
	mon := ops.Of(delayqueue.NewMonitor(f.name, f.cli, own))
	for i, queue := range []Queue{delayqueue.NewPublisher(f.name, f.cli, own),
		delayqueue.NewQueue(f.name, f.cli, nil, own)} {
		s := New(queue)
		f.must(s.Set(f.ctx(), Entry{Name: "e", Every: time.Second, Payload: fmt.Sprint(i)}))
		f.run(s)
		f.until("it is sent", func() bool {
			c, err := mon.Counts(f.ctx())
			return err == nil && c.Pending+c.Ready > 0
		})
		all, err := List(f.ctx(), mon.Monitor())
		if err != nil || len(all) != 1 || all[0].Payload != fmt.Sprint(i) {
			t.Errorf("%+v, %v", all, err)
		}
		if next, err := Next(f.ctx(), mon.Monitor(), "e", 2); err != nil || len(next) != 2 {
			t.Errorf("%v, %v", next, err)
		}
	}
	if _, err := List(f.ctx(), f.mon.Monitor()); !errors.Is(err, delayqueue.ErrNoQueue) {
		t.Errorf("the queue without the prefix: %v", err)
	}
	f.must(mon.DeleteQueue(f.ctx(), true))
	if n := f.cli.Exists(f.ctx(), "{"+prefix+":"+f.name+"}:schedules").Val(); n != 0 {
		t.Error("the entries are left")
	}
}

// TestOnlyWhatHasChangedIsRead: a change of one entry makes no replica read all of them; one that does not know what
// has changed does.
func TestOnlyWhatHasChangedIsRead(t *testing.T) {
	f := newFixture(t)
	r := newRunner(f.replica())
	hidden := func(want bool) {
		t.Helper()
		f.steps(r)
		if _, read := r.entries["hidden"]; read == want {
			t.Errorf("what was not said to be changed is read: %v; %d entries", read, len(r.entries))
		}
		if e := r.entries["e"]; e == nil || string(e.Payload) != string(f.rec("e").Payload) || e.Open != 0 {
			t.Errorf("%+v, and %+v is there", e, f.rec("e"))
		}
	}
	set := func(name, payload string) {
		t.Helper()
		f.must(f.s.Set(f.ctx(), Entry{Name: name, Every: time.Hour, Payload: payload}))
	}
	set("e", "1")
	set("gone", "1")
	f.steps(r)
	f.must(f.cli.HSet(f.ctx(), f.s.table.store.Keys.Schedules, "hidden", `{"gen":1,"since":1,"every":3600}`).Err())
	set("e", "2")
	f.must(f.s.Remove(f.ctx(), "gone"))
	set("new", "1")
	hidden(true)
	if r.entries["gone"] != nil || r.entries["new"] == nil {
		t.Errorf("%v", r.entries)
	}
	for i := range 25 { // more than are noted
		set("e", fmt.Sprint("many ", i))
	}
	hidden(false)
	delete(r.entries, "hidden")
	set("e", "3")
	hidden(true)
	f.must(f.cli.HDel(f.ctx(), f.s.table.store.Keys.Schedules, "").Err()) // another hash counts from the beginning
	for i := range 30 {
		set("e", fmt.Sprint("again ", i))
	}
	hidden(false)
	for _, c := range []struct {
		from, to, changes string
		known             bool
	}{
		{"1.2 1 1.0", "1.3 3 1.0", "2 a\n3 b\n", true}, {"1.2 1 1.0", "1.3 3 1.0", "1 x\n2 a\n3 b\n4 c\n", true},
		{"1.2 1 1.0", "1.3 3 1.0", "3 b\n", false}, {"1.2 1 1.0", "1.3 3 1.0", "", false},
		{"1.2 1 1.0", "1.3 3 1.1", "2 a\n3 b\n", false},
		{"1.2 3 1.0", "1.3 2 1.0", "2 a\n3 b\n", false}, {"1", "2", "1 a\n2 b\n", false}, {"", "1.3 1 1.0", "1 a\n", false},
		{"1.2 x 1.0", "1.3 2 1.0", "1 a\n2 b\n", false}, {"1.2 1 1.0", "1.3 9999999999999 1.0", "2 a\n", false},
	} {
		if names, known := changedSince(c.from, c.to, c.changes); known != c.known || known &&
			!slices.Equal(names, []string{"a", "b"}) {
			t.Errorf("%+v: %q, %v", c, names, known)
		}
	}
}
