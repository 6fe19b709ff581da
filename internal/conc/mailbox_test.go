package conc

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// countedLocks counts who wakes up to look: each takes the lock once more.
type countedLocks struct {
	*sync.Mutex
	n atomic.Int64
}

func (l *countedLocks) Lock() { l.n.Add(1); l.Mutex.Lock() }

// TestMailboxWakesNobodyForNothing: of many who wait, as many wake as there are items.
func TestMailboxWakesNobodyForNothing(t *testing.T) {
	var m Mailbox[int]
	locks := &countedLocks{Mutex: &m.mu}
	m.filled.L = locks
	const waiters = 200
	var waiting atomic.Int64
	got := make(chan int, waiters)
	for range waiters {
		go func() {
			for {
				m.mu.Lock()
				waiting.Add(1) // with the lock held until it waits
				m.waitForItems()
				if len(m.items) == 0 {
					m.mu.Unlock()
					return
				}
				item := m.first()
				m.mu.Unlock()
				got <- item
			}
		}()
	}
	want := 0
	for n := range 10 {
		want += n
		queuetest.Eventually(t, "all wait", func() bool {
			m.mu.Lock()
			defer m.mu.Unlock()
			return waiting.Load() == int64(waiters+want-n)
		})
		m.Put(make([]int, n)...)
		for range n {
			queuetest.Receive(t, "each item is taken", got)
		}
	}
	if woke := locks.n.Load(); woke > int64(want) {
		t.Errorf("%d woke for %d items", woke, want)
	}
	m.End()
}

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
	if dropped := m.PutAtMost(2, 7, 8, 9); dropped != 1 {
		t.Errorf("%d were dropped", dropped)
	}
	if dropped := m.PutAtMost(1, 10); dropped != 1 {
		t.Errorf("%d were dropped of a full one", dropped)
	}
	m.End()
	if all := m.All(); !slices.Equal(all, []int{7, 8}) {
		t.Errorf("all are %v", all)
	}
	if _, ok := m.One(); ok || len(m.All()) > 0 {
		t.Error("something was taken from an empty one")
	}
}

// TestMailboxGivenBack: a slice that the reader gives back is filled again, and nothing that was in it comes back with it.
func TestMailboxGivenBack(t *testing.T) {
	var m Mailbox[*int]
	one := new(int)
	used := 0.0
	for range 5 { // the first rounds make the two slices
		used = testing.AllocsPerRun(1, func() {
			m.Put(one, one)
			all := m.All()
			m.Put(one)
			if len(all) != 2 || all[1] != one {
				t.Errorf("all are %v", all)
			}
			m.GiveBack(all)
			if all[0] != nil {
				t.Error("a slice that was given back keeps its items")
			}
			if all = m.All(); len(all) != 1 || all[0] != one {
				t.Errorf("the rest is %v", all)
			}
			m.GiveBack(all)
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
