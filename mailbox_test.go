package delayqueue

import (
	"sync"
	"sync/atomic"
	"testing"
)

// countedLocks counts who wakes up to look: each takes the lock once more.
type countedLocks struct {
	*sync.Mutex
	n atomic.Int64
}

func (l *countedLocks) Lock() { l.n.Add(1); l.Mutex.Lock() }

// TestMailboxWakesNobodyForNothing: of many who wait, as many wake as there are items.
func TestMailboxWakesNobodyForNothing(t *testing.T) {
	var m mailbox[int]
	m.init()
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
				m.await()
				if len(m.items) == 0 {
					m.mu.Unlock()
					return
				}
				item := m.items[0]
				m.drop(1)
				m.mu.Unlock()
				got <- item
			}
		}()
	}
	want := 0
	for n := range 10 {
		want += n
		eventually(t, "all wait", func() bool {
			m.mu.Lock()
			defer m.mu.Unlock()
			return waiting.Load() == int64(waiters+want-n)
		})
		m.put(make([]int, n)...)
		for range n {
			receive(t, "each item is taken", got)
		}
	}
	if woke := locks.n.Load(); woke > int64(want) {
		t.Errorf("%d woke for %d items", woke, want)
	}
	m.close()
}
