package delayqueue

import (
	"bufio"
	"bytes"
	"context"
	"log/slog"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestMailboxReader: it starts with the first item and ends when there are none, and nothing is lost that comes just then;
// no two serve items at a time.
func TestMailboxReader(t *testing.T) {
	var m mailbox[int]
	var sum, readers, starts atomic.Int64
	var serving atomic.Bool
	m.read = func() {
		starts.Add(1)
		readers.Add(1)
		defer readers.Add(-1)
		for {
			some := m.some(2)
			if len(some) == 0 {
				return
			}
			if serving.Swap(true) {
				t.Error("two serve items")
			}
			for _, n := range some {
				sum.Add(int64(n))
			}
			serving.Store(false)
		}
	}
	stop := make(chan struct{})
	var impatient sync.WaitGroup
	impatient.Go(func() { // the reader has been idle for long again and again
		for !closed(stop) {
			m.idle()
		}
	})
	want := 0
	for i := range 5000 {
		m.put(i)
		if want += i; i%10 == 0 {
			eventually(t, "all is read", func() bool { return sum.Load() == int64(want) })
		}
	}
	eventually(t, "all is read", func() bool { return sum.Load() == int64(want) })
	eventually(t, "the reader ends", func() bool { return readers.Load() == 0 })
	close(stop)
	impatient.Wait()
	if starts.Load() < 2 {
		t.Error("it has not ended in between")
	}
	m.put(1)
	m.close()
	m.running.Wait()
	if m.put(1); sum.Load() != int64(want+1) || readers.Load() != 0 {
		t.Errorf("it has read %d more, %d read", sum.Load()-int64(want), readers.Load())
	}
}

// goroutines counts those that start began, and those that they began, while it looks.
func goroutines(t *testing.T, start func()) (count func() int) {
	t.Helper()
	pprof.Do(context.Background(), pprof.Labels("test", t.Name()), func(context.Context) { start() })
	return func() (n int) {
		var profile bytes.Buffer
		if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
			t.Fatal(err)
		}
		same := 0 // how many have the stack that is described
		for lines := bufio.NewScanner(&profile); lines.Scan(); {
			if before, _, ok := strings.Cut(lines.Text(), " @ "); ok {
				same, _ = strconv.Atoi(before)
			} else if strings.Contains(lines.Text(), strconv.Quote(t.Name())) {
				n += same
			}
		}
		return n
	}
}

// TestIdleGoroutines: an idle consumer has two, before its first message and after its last one.
func TestIdleGoroutines(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	garbage := make(chan string, 1)
	q := f.queue(func(payload string) bool { return payload == "good" }).WithConcurrent(1).WithNackRedeliveryDelay(0).
		WithGarbageHandler(func(_ context.Context, msg *Message, _ error) { garbage <- msg.Payload })
	count := goroutines(t, func() { q.StartConsume() })
	const idle = 2 // poller, wake listener
	eventually(t, "it is idle", func() bool { return count() <= idle })
	for range 2 {
		f.send(q, "good")
		f.send(q, "bad", WithRetryCount(0))
		receive(t, "the garbage handler is told", garbage)
		eventually(t, "it is idle again", func() bool { return count() <= idle })
	}
}

// TestManyIdleGoroutines: of 1,000 idle queues in one process each has two at most.
func TestManyIdleGoroutines(t *testing.T) {
	t.Parallel()
	const n = 1000
	f := newFixture(t)
	cli := f.client()
	l := looksOf(t, cli)
	var stopped []<-chan struct{}
	var all []*DelayQueue
	queues := f.siblings(n)
	count := goroutines(t, func() {
		for _, g := range queues {
			q := NewQueue(g.name, cli, func(string) bool { return true }).WithLogger(slog.New(slog.NewTextHandler(f.log, nil)))
			stopped = append(stopped, q.StartConsume())
			all = append(all, q)
		}
	})
	defer func() {
		for i, q := range all {
			q.StopConsume()
			receive(t, "it stops", stopped[i])
		}
	}()
	reaches(t, "all have looked", n, func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.all)
	})
	eventually(t, "there are two goroutines for each", func() bool { return count() <= 2*n })
}

// TestLeasesTickWhileHeld: renewals begin with what is held and end when nothing is, and what is added just then is renewed.
func TestLeasesTickWhileHeld(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(func(string) bool { return true }).WithLease(100 * time.Millisecond)
	q.StartConsume()
	c := q.current()
	for i := range 40 {
		d := &delivery{settler: &c.settler, tag: strconv.Itoa(i), msg: Message{ID: "x", Delivery: 1}}
		c.leases.add(d)
		eventually(t, "its renewal says that Redis does not know it", func() bool { return d.fate.Load() == fateLost })
		if i%4 == 0 {
			eventually(t, "renewals end", func() bool {
				c.leases.mu.Lock()
				defer c.leases.mu.Unlock()
				return !c.leases.ticking
			})
		}
	}
}
