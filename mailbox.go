package delayqueue

import (
	"math"
	"sync"
	"time"
)

// A mailbox is a queue between goroutines, first in first out. Putting something in never blocks. The zero
// value is empty.
//
// It may have a reader of its own: a goroutine that starts when something is put in, and ends when nothing has been for
// readerIdle, so that what is idle has none.
type mailbox[T any] struct {
	mu     sync.Mutex
	filled sync.Cond
	items  []T
	closed bool

	read    func()         // the reader: it takes items until one or some finds none; nil: others take them
	reading bool           // the reader runs; guarded by mu
	used    bool           // something was taken since idle was last called; guarded by mu
	leave   bool           // the reader is to end when it finds none; guarded by mu
	timer   *time.Timer    // calls idle while the reader runs; nil: it has not run yet; guarded by mu
	running sync.WaitGroup // the reader; close has been called before anybody waits for it
}

// readerIdle is how long a reader waits for something, up to twice that. To start it for each message would cost a consumer
// that handles one at a time some microseconds for each.
const readerIdle = time.Second

func (m *mailbox[T]) put(items ...T) { m.putAtMost(math.MaxInt, items...) }

// putAtMost puts items in until most are inside, and returns how many it left out.
func (m *mailbox[T]) putAtMost(most int, items ...T) (dropped int) {
	m.mu.Lock()
	n := min(max(most-len(m.items), 0), len(items))
	m.items = append(m.items, items[:n]...)
	if n > 0 && !m.reading && m.read != nil && !m.closed {
		m.startReader()
	}
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

// close ends the waiting for items: once the mailbox is empty, one and some return at once.
func (m *mailbox[T]) close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.filled.Broadcast()
}

// await waits for items, with mu held. Who finds none is told to end: the mailbox is closed, or its reader idle.
func (m *mailbox[T]) await() {
	if m.filled.L == nil {
		m.filled.L = &m.mu
	}
	for len(m.items) == 0 && !m.closed && !m.leave {
		m.filled.Wait()
	}
	if len(m.items) == 0 {
		m.reading = false
	}
}

// startReader starts the reader, with mu held.
func (m *mailbox[T]) startReader() {
	m.reading, m.used, m.leave = true, true, false
	if m.timer == nil {
		m.timer = time.AfterFunc(readerIdle, m.idle)
	} else {
		m.timer.Reset(readerIdle)
	}
	m.running.Go(m.read)
}

// idle ends the reader if it has taken nothing since idle was last called.
func (m *mailbox[T]) idle() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.reading || m.closed {
		return
	}
	if m.leave = !m.used; m.leave {
		m.filled.Signal()
	}
	m.used = false
	m.timer.Reset(readerIdle) // what is put in before the reader ends keeps it
}

func (m *mailbox[T]) cut(n int) []T {
	cut := append([]T(nil), m.items[:n]...)
	m.drop(n)
	return cut
}

func (m *mailbox[T]) drop(n int) {
	m.used = true
	clear(m.items[:n])
	m.items = m.items[n:]
	if len(m.items) == 0 {
		m.items = nil
	}
}
