package schedule

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// TestOnlyWhatHasChangedIsRead: a change of one entry makes no replica read all of them; one that does not know what has changed does.
func TestOnlyWhatHasChangedIsRead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r := &runner{Scheduler: f.replica(), entries: map[string]*entry{}, broken: map[string]string{}}
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
	f.must(f.cli.HSet(f.ctx(), f.s.table.key, "hidden", `{"gen":1,"since":1,"every":3600}`).Err())
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
	f.must(f.cli.HDel(f.ctx(), f.s.table.key, "").Err()) // another hash counts from the beginning
	for i := range 30 {
		set("e", fmt.Sprint("again ", i))
	}
	hidden(false)
	for _, c := range []struct {
		from, to, changes string
		known             bool
	}{
		{"1.2 1 1.0", "1.3 3 1.0", "2 a\n3 b\n", true}, {"1.2 1 1.0", "1.3 3 1.0", "1 x\n2 a\n3 b\n4 c\n", true},
		{"1.2 1 1.0", "1.3 3 1.0", "3 b\n", false}, {"1.2 1 1.0", "1.3 3 1.0", "", false}, {"1.2 1 1.0", "1.3 3 1.1", "2 a\n3 b\n", false},
		{"1.2 3 1.0", "1.3 2 1.0", "2 a\n3 b\n", false}, {"1", "2", "1 a\n2 b\n", false}, {"", "1.3 1 1.0", "1 a\n", false},
		{"1.2 x 1.0", "1.3 2 1.0", "1 a\n2 b\n", false}, {"1.2 1 1.0", "1.3 9999999999999 1.0", "2 a\n", false},
	} {
		if names, known := changedSince(c.from, c.to, c.changes); known != c.known || known && !slices.Equal(names, []string{"a", "b"}) {
			t.Errorf("%+v: %q, %v", c, names, known)
		}
	}
}
