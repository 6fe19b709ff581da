package conc

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// TestMailboxReader: it starts with the first item and ends when there are none, and nothing is lost that comes just
// then; no two serve items at a time.
func TestMailboxReader(t *testing.T) {
	var m Mailbox[int]
	var sum, readers, starts atomic.Int64
	var serving atomic.Bool
	m.Read = func() {
		starts.Add(1)
		readers.Add(1)
		defer readers.Add(-1)
		for {
			some := m.All()
			if len(some) == 0 {
				return
			}
			if serving.Swap(true) {
				t.Error("two serve items")
			}
			for _, n := range some {
				sum.Add(int64(n))
			}
			m.GiveBack(some)
			serving.Store(false)
		}
	}
	stop := make(chan struct{})
	var impatient sync.WaitGroup
	impatient.Go(func() { // the reader has been idle for long again and again
		for {
			select {
			case <-stop:
				return
			default:
				m.idle()
			}
		}
	})
	want := 0
	for i := range 5000 {
		m.Put(i)
		if want += i; i%10 == 0 {
			queuetest.Eventually(t, "all is read", func() bool { return sum.Load() == int64(want) })
		}
	}
	queuetest.Eventually(t, "all is read", func() bool { return sum.Load() == int64(want) })
	queuetest.Eventually(t, "the reader ends", func() bool { return readers.Load() == 0 })
	close(stop)
	impatient.Wait()
	if starts.Load() < 2 {
		t.Error("it has not ended in between")
	}
	m.Put(1)
	m.End()
	m.Running.Wait()
	if m.Put(1); sum.Load() != int64(want+1) || readers.Load() != 0 {
		t.Errorf("it has read %d more, %d read", sum.Load()-int64(want), readers.Load())
	}
}
