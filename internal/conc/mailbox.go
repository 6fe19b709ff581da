package conc

import (
	"math"
	"sync"
	"time"
)

// A Mailbox is a queue between goroutines, first in, first out. One of them takes items. Put never blocks. The zero
// value is empty. It is safe for concurrent use.
//
// It may have a reader: a goroutine that starts when something is put in, and ends when nothing has been put in for
// readerIdle. So an idle mailbox has no goroutine.
type Mailbox[T any] struct {
	mu     sync.Mutex
	filled sync.Cond
	items  []T
	spare  []T // empty, given back by the reader; nil: none
	closed bool

	Read    func()         // the reader: it takes items until One or All finds none; nil: there is no reader
	reading bool           // the reader runs; guarded by mu
	used    bool           // something was taken since idle was last called; guarded by mu
	leave   bool           // the reader is to end when it finds none; guarded by mu
	timer   *time.Timer    // calls idle while the reader runs; nil: it has not run yet; guarded by mu
	Running sync.WaitGroup // the reader; End has been called before anybody waits for it
}

// readerIdle is how long a reader waits for something, up to twice as long. Starting the reader for each message
// would cost some microseconds a message, if a consumer handles one at a time.
const readerIdle = time.Second

// Put puts items in.
func (m *Mailbox[T]) Put(items ...T) { m.PutAtMost(math.MaxInt, items...) }

// PutAtMost puts items in until most are inside, and returns how many it drops.
func (m *Mailbox[T]) PutAtMost(most int, items ...T) (dropped int) {
	m.mu.Lock()
	n := min(max(most-len(m.items), 0), len(items))
	m.items = append(m.items, items[:n]...)
	if n > 0 && !m.reading && m.Read != nil && !m.closed {
		m.startReader()
	}
	m.mu.Unlock()
	m.filled.Signal()
	return len(items) - n
}

// One waits for an item. false means that the mailbox is empty, and closed or its reader is to end.
func (m *Mailbox[T]) One() (item T, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waitForItems()
	if len(m.items) == 0 {
		return item, false
	}
	item = m.items[0]
	clear(m.items[:1])
	m.items, m.used = m.items[1:], true
	return item, true
}

// maxSpare is how many items may have room in memory that is kept to be filled again.
const maxSpare = 4096

// All waits for items and takes them. None means that the mailbox is empty, and closed or its reader is to end. A
// reader that does not use them any more may give the slice back.
func (m *Mailbox[T]) All() []T {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waitForItems()
	all := m.items
	m.items, m.spare, m.used = m.spare, nil, true
	return all
}

// GiveBack takes back a slice that All has returned, and that nobody uses any more, to be filled again.
func (m *Mailbox[T]) GiveBack(all []T) {
	if cap(all) > maxSpare {
		return
	}
	clear(all)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.spare = all[:0]
}

// End closes the mailbox. Once it is empty, One and All return at once.
func (m *Mailbox[T]) End() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.filled.Broadcast()
}

// waitForItems waits for items, with mu held. If it returns and there are none, the mailbox is closed or its reader
// is to end.
func (m *Mailbox[T]) waitForItems() {
	if m.filled.L == nil {
		m.filled.L = &m.mu
	}
	for len(m.items) == 0 && !m.closed && !m.leave {
		m.filled.Wait()
	}
	if len(m.items) == 0 {
		m.reading, m.items, m.spare = false, nil, nil
	}
}

// startReader starts the reader, with mu held.
func (m *Mailbox[T]) startReader() {
	m.reading, m.used, m.leave = true, true, false
	if m.timer == nil {
		m.timer = time.AfterFunc(readerIdle, m.idle)
	} else {
		m.timer.Reset(readerIdle)
	}
	m.Running.Go(m.Read)
}

// idle ends the reader if it has taken nothing since idle was last called.
func (m *Mailbox[T]) idle() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.reading || m.closed {
		return
	}
	if m.leave = !m.used; m.leave {
		m.filled.Signal()
	}
	m.used = false
	m.timer.Reset(readerIdle) // a reader that finds an item before it ends goes on
}
