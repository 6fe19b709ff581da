package conc

import (
	"slices"
	"testing"
)

// TestMailboxOrder: first in, first out, whichever way it is taken, and what is inside when it closes is still taken.
func TestMailboxOrder(t *testing.T) {
	var m Mailbox[int]
	m.Put(1, 2, 3, 4, 5, 6)
	if item, ok := m.One(); item != 1 || !ok {
		t.Errorf("one is %d, %v", item, ok)
	}
	if all := m.All(); !slices.Equal(all, []int{2, 3, 4, 5, 6}) {
		t.Errorf("all are %v", all)
	}
	m.Put(4, 5, 6)
	if dropped := m.PutAtMost(4, 7, 8, 9); dropped != 2 {
		t.Errorf("%d were dropped", dropped)
	}
	if dropped := m.PutAtMost(3, 10); dropped != 1 {
		t.Errorf("%d were dropped of a full one", dropped)
	}
	m.End()
	if item, ok := m.One(); item != 4 || !ok {
		t.Errorf("one is %d, %v", item, ok)
	}
	if all := m.All(); !slices.Equal(all, []int{5, 6, 7}) {
		t.Errorf("all are %v", all)
	}
	if _, ok := m.One(); ok || len(m.All()) > 0 {
		t.Error("something was taken from an empty one")
	}
}

// TestMailboxGivenBack: a slice that the reader gives back is filled again, and nothing that was in it comes back
// with it.
func TestMailboxGivenBack(t *testing.T) {
	var m Mailbox[*int]
	one := new(int)
	used := 0.0
	for range 5 { // the first rounds make the two slices
		used = testing.AllocsPerRun(1, func() {
			m.Put(one, one)
			some := m.All()
			m.Put(one)
			if len(some) != 2 || some[1] != one {
				t.Errorf("all are %v", some)
			}
			m.GiveBack(some)
			if some[0] != nil {
				t.Error("a slice that was given back keeps its items")
			}
			if some = m.All(); len(some) != 1 || some[0] != one {
				t.Errorf("the rest is %v", some)
			}
			m.GiveBack(some)
		})
	}
	if used > 0 {
		t.Errorf("a round allocates %v times", used)
	}
	m.GiveBack(make([]*int, maxSpare+1))
	if cap(m.spare) > maxSpare {
		t.Errorf("%d are kept", cap(m.spare))
	}
	m.End()
	if m.All() != nil || m.items != nil || m.spare != nil {
		t.Error("an empty mailbox keeps memory")
	}
}
