package delayqueue

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// idle says whether nothing is in flight.
func (b *batcher) idle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.inFlight == 0
}

// TestSenderLogsOutages: once when an outage has begun, once when it is over.
func TestSenderLogsOutages(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	f := fixtureOn(t, redis.NewClient(&redis.Options{Addr: server.Addr()}))
	f.checkEmpty()
	cli := redis.NewClient(&redis.Options{Addr: server.Addr(), DialerRetries: 1})
	t.Cleanup(func() { _ = cli.Close() })
	p := NewPublisher(f.name, cli).WithLogger(slog.New(slog.NewTextHandler(f.log, nil)))
	const n = 10
	// An attempt without an answer in time is an outage too, of a machine that stands still.
	const away, slow = "cannot work with Redis", "within "
	for outage := range 2 {
		server.Kill()
		sent := make(chan error)
		for range n {
			go func() { _, err := p.Send(ctxB, "x", inAnHour); sent <- err }()
		}
		eventually(t, "it is in the log", func() bool { return f.log.count(away) > outage })
		server.Restart(t)
		for range n {
			if err := receive(t, "it is sent", sent); err != nil {
				t.Error(err)
			}
		}
		eventually(t, "the end is in the log", func() bool { return f.log.count("working with Redis again") == f.log.count(away) })
		if begun := f.log.count(away); begun-f.log.count(away, slow) > outage+1 || !strings.Contains(f.log.String(), "queue="+f.name) {
			t.Errorf("the beginning of outage %d was logged %d times:\n%s", outage+1, begun, f.log)
		}
	}
}

// TestTooManyWaiting: there is a bound, and below it again sends go through.
func TestTooManyWaiting(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(nil)
	f.send(q, "below", inAnHour)
	q.batcher.mu.Lock()
	q.batcher.lastErr = io.EOF
	q.batcher.waitingBytes += maxWaitingBytes
	q.batcher.mu.Unlock()
	_, err := q.Send(ctxB, "above", inAnHour)
	if f.fate(err) != StoredNo || !errors.Is(err, ErrTooManyWaiting) || !errors.Is(err, io.EOF) {
		t.Errorf("above the bound: %v", err)
	}
	if _, err := q.SendBatch(ctxB, make([]Outgoing, 3)); !errors.Is(err, ErrTooManyWaiting) {
		t.Errorf("many above the bound: %v", err)
	}
	q.batcher.mu.Lock()
	q.batcher.waitingBytes -= maxWaitingBytes
	q.batcher.mu.Unlock()
	if _, err := q.SendBatch(ctxB, make([]Outgoing, 3)); err != nil {
		t.Errorf("below it again: %v", err)
	}
	if n := len(f.check().Messages); n != 4 {
		t.Errorf("%d messages, want 4", n)
	}
	eventually(t, "no bytes, calls and batches are left", func() bool {
		q.batcher.mu.Lock()
		defer q.batcher.mu.Unlock()
		return q.batcher.waitingBytes == 0 && len(q.batcher.waiting) == 0 && q.batcher.inFlight == 0
	})
}

// TestManyLeave: thousands that wait while the server hangs leave with one deadline, and leave nothing behind.
func TestManyLeave(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	f := fixtureOn(t, redis.NewClient(&redis.Options{Addr: server.Addr()}))
	f.checkEmpty()
	server.Pause()
	q := NewPublisher(f.name, redisClient(t, server.Addr()))
	ctx, cancel := context.WithCancel(ctxB)
	const n = 5000
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			if _, err := q.Send(ctx, "x"); !errors.Is(err, context.Canceled) {
				t.Errorf("who leaves: %v", err)
			}
		})
	}
	// Two batches are in flight, each with the messages of one caller or of some.
	eventually(t, "all wait", func() bool {
		q.batcher.mu.Lock()
		defer q.batcher.mu.Unlock()
		return len(q.batcher.waiting) >= n-2*maxBatch
	})
	cancel()
	all.Wait()
	q.batcher.mu.Lock()
	if live := len(q.batcher.waiting) - q.batcher.withdrawn; q.batcher.waitingBytes != 0 || live != 0 || len(q.batcher.waiting) > 2*1000 {
		t.Errorf("%d bytes of %d calls wait, and %d that have left are kept", q.batcher.waitingBytes, live, q.batcher.withdrawn)
	}
	q.batcher.mu.Unlock()
	server.Resume()
	eventually(t, "nothing is in flight", q.batcher.idle)
	if kept := len(f.check().Messages); kept > 2*maxBatch {
		t.Errorf("%d messages of those who left are stored, at most two calls were under way", kept)
	}
}

// TestBatcherTakeBatch: after each batch of a call for many messages others have their turn; a batch has so many messages and bytes; a
// message that is larger goes alone; and withdrawn calls are passed over.
func TestBatcherTakeBatch(t *testing.T) {
	t.Parallel()
	call := func(name string, n, size int) *sendCall {
		c := &sendCall{ctx: ctxB}
		for range n {
			c.items = append(c.items, &batchItem{sendMessage: sendMessage{key: name, text: strings.Repeat("x", size)}})
		}
		c.left = n
		return c
	}
	for name, c := range map[string]struct {
		waiting []*sendCall
		want    string
	}{
		"nobody":                 {nil, ""},
		"singles":                {[]*sendCall{call("a", 1, 9), call("b", 1, 9), call("c", 1, 9)}, "a1 b1 c1"},
		"singles behind many":    {[]*sendCall{call("m", 1200, 9), call("a", 1, 9), call("b", 1, 9)}, "m500 | a1 b1 m498 | m202"},
		"many behind many":       {[]*sendCall{call("m", 700, 9), call("n", 700, 9)}, "m500 | n500 | m200 n200"},
		"as many as fit":         {[]*sendCall{call("m", 500, 9), call("a", 1, 9)}, "m500 | a1"},
		"bytes":                  {[]*sendCall{call("m", 5, sendBytes*2/5), call("a", 1, 9)}, "m2 | a1 m2 | m1"},
		"larger than a batch":    {[]*sendCall{call("a", 1, 9), call("l", 1, 3<<20), call("b", 1, 9)}, "a1 | l1 | b1"},
		"some are withdrawn":     {[]*sendCall{call("a", 0, 9), call("b", 1, 9), call("c", 0, 9)}, "b1"},
		"a batch and no message": {[]*sendCall{call("m", 2, sendBytes), call("a", 1, 9)}, "m1 | a1 | m1"},
	} {
		t.Run(name, func(t *testing.T) {
			var b batcher
			for _, c := range c.waiting {
				b.waiting = append(b.waiting, c)
				c.bytes = 1
				b.waitingBytes += min(len(c.items), 1)
				if len(c.items) == 0 {
					b.withdrawn++
				}
			}
			var batches []string
			for len(b.waiting) > b.withdrawn {
				items := b.takeBatch().items
				var batch strings.Builder
				for i := 0; i < len(items); {
					n := i
					for n < len(items) && items[n].key == items[i].key {
						n++
					}
					batch.WriteString(" " + items[i].key + strconv.Itoa(n-i))
					i = n
				}
				batches = append(batches, strings.TrimSpace(batch.String()))
			}
			if got := strings.Join(batches, " | "); got != c.want || b.waitingBytes != 0 {
				t.Errorf("%s, %d bytes left; want %s", got, b.waitingBytes, c.want)
			}
		})
	}
}

// TestCallersOfAProcess: publishers that are made for one send each use the callers of others.
func TestCallersOfAProcess(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const n = 1000
	for range n {
		if err := NewPublisher(f.name, f.cli).SendDelayMsg("x", time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	callers := 0
	for field := range f.check().Fields {
		if strings.HasPrefix(field, "call:") {
			callers++
		}
	}
	if callers > n/2 { // other tests take some from time to time
		t.Errorf("%d publishers had %d callers", n, callers)
	}
}

// TestSendersForget: old callers go though nobody consumes.
func TestSendersForget(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := NewPublisher(f.name, f.cli)
	p.batcher.forgetOdds = 1
	old := func() bool {
		left, err := f.cli.HExists(ctxB, p.store.keys.state, "call:old").Result()
		f.must(err)
		return left
	}
	for name, send := range map[string]func() error{
		"alone":          func() error { return p.SendDelayMsg("x", time.Hour) },
		"with a context": func() error { _, err := p.Send(within(t, patience), "x", inAnHour); return err },
	} {
		f.must(f.cli.HSet(ctxB, p.store.keys.state, "call:old", "1 5 ").Err())
		f.must(send())
		eventually(t, name+": the old caller is forgotten", func() bool { return !old() })
	}
}
