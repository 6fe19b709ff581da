package delayqueue

import (
	"math"
	"sync"
)

// A mailbox is a queue between goroutines, first in first out. Putting something in never blocks. The zero
// value is empty.
type mailbox[T any] struct {
	mu     sync.Mutex
	filled sync.Cond
	items  []T
	closed bool
}

func (m *mailbox[T]) put(items ...T) { m.putAtMost(math.MaxInt, items...) }

// putAtMost puts items in until most are inside, and returns how many it left out.
func (m *mailbox[T]) putAtMost(most int, items ...T) (dropped int) {
	m.mu.Lock()
	n := min(max(most-len(m.items), 0), len(items))
	m.items = append(m.items, items[:n]...)
	m.mu.Unlock()
	for range n {
		m.filled.Signal() // one goroutine for each item
	}
	return len(items) - n
}

// one waits for an item; false means that the mailbox is closed and empty.
func (m *mailbox[T]) one() (item T, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.await()
	if len(m.items) == 0 {
		return item, false
	}
	item = m.items[0]
	m.drop(1)
	return item, true
}

// some waits for items and takes at most n; none means that the mailbox is closed and empty.
func (m *mailbox[T]) some(n int) []T {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.await()
	return m.cut(min(n, len(m.items)))
}

// all takes what is there.
func (m *mailbox[T]) all() []T {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cut(len(m.items))
}

// first returns the next item and leaves it inside.
func (m *mailbox[T]) first() (item T, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.items) == 0 {
		return item, false
	}
	return m.items[0], true
}

// close ends the waiting for items: once the mailbox is empty, one and some return at once.
func (m *mailbox[T]) close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.filled.Broadcast()
}

func (m *mailbox[T]) await() {
	if m.filled.L == nil {
		m.filled.L = &m.mu
	}
	for len(m.items) == 0 && !m.closed {
		m.filled.Wait()
	}
}

func (m *mailbox[T]) cut(n int) []T {
	cut := append([]T(nil), m.items[:n]...)
	m.drop(n)
	return cut
}

func (m *mailbox[T]) drop(n int) {
	clear(m.items[:n])
	m.items = m.items[n:]
	if len(m.items) == 0 {
		m.items = nil
	}
}
