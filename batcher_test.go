package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// idle says whether nothing is in flight.
func (b *batcher) idle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.inFlight == 0
}

// nothingWaits waits until nothing is in flight, and then nothing may wait.
func (f *fixture) nothingWaits(b *batcher) {
	f.t.Helper()
	eventually(f.t, "nothing is in flight", b.idle)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waitingBytes != 0 || len(b.waiting) != 0 || b.withdrawn != 0 {
		f.t.Errorf("%d bytes, %d calls, %d withdrawn are left", b.waitingBytes, len(b.waiting), b.withdrawn)
	}
}

// TestBatcherLogsOutages: once when an outage has begun, once when it is over.
func TestBatcherLogsOutages(t *testing.T) {
	t.Parallel()
	f, server := ownServer(t)
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

// TestBatcherConcurrentSends: callers share script calls, and each gets its own outcome.
func TestBatcherConcurrentSends(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := unhurried(f.queue(nil)) // an attempt that is given up may overlap with the next one
	inFlight, most := atomic.Int64{}, atomic.Int64{}
	hookOwn(t, f.cli, commandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if !strings.HasPrefix(cmd.Name(), "eval") {
			return next(ctx, cmd)
		}
		if n := inFlight.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer inFlight.Add(-1)
		return next(ctx, cmd)
	}))
	var wg sync.WaitGroup
	var dups tally
	for i := range 64 {
		wg.Go(func() {
			for j := range 20 {
				_, err := q.Send(context.Background(), "x", WithKey(fmt.Sprintf("%d", (i*20+j)/2)), WithDelay(time.Hour))
				switch {
				case errors.Is(err, ErrDuplicateKey):
					dups.add("dup")
				case err != nil:
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	state := f.check()
	if len(state.Pending) != 640 || dups.of("dup") != 640 {
		t.Errorf("%d stored and %d refused, want 640 each", len(state.Pending), dups.of("dup"))
	}
	if n := most.Load(); n > maxInFlight {
		t.Errorf("%d calls at a time, want at most %d", n, maxInFlight)
	}
}

// TestBatcherOneMessageRefused: a message that the server refuses does not fail those that went with it.
func TestBatcherOneMessageRefused(t *testing.T) {
	t.Parallel()
	f, server := ownServer(t, "--proto-max-bulk-len", "1mb")
	cli := redis.NewClient(&redis.Options{Addr: server.Addr(), Dialer: hearsRefusals})
	t.Cleanup(func() { _ = cli.Close() })
	q := f.queueOn(cli, nil)
	large := strings.Repeat("x", 2<<20)
	results, err := q.SendBatch(ctxB, []Outgoing{{"a", []MsgOption{inAnHour}}, {large, []MsgOption{inAnHour}}, {"b", []MsgOption{inAnHour}}})
	if results[0].Err != nil || results[2].Err != nil || f.fate(results[1].Err) == StoredYes || err == nil {
		t.Errorf("one too large: %v", err)
	}
	if err := f.cli.Set(ctxB, q.store.keys.key, "somebody else's", 0).Err(); err != nil {
		t.Fatal(err)
	}
	results, err = q.SendBatch(ctxB, []Outgoing{{"c", []MsgOption{inAnHour}}, {"keyed", []MsgOption{inAnHour, WithKey("k")}},
		{"d", []MsgOption{inAnHour}}})
	if results[0].Err != nil || results[2].Err != nil || !errors.Is(results[1].Err, ErrWrongType) || f.fate(results[1].Err) != StoredNo {
		t.Errorf("one whose key hash is somebody else's: %v", err)
	}
	f.cli.Del(ctxB, q.store.keys.key)
	if n := len(f.check().Messages); n != 4 {
		t.Errorf("%d messages, want 4", n)
	}
}

// A hearsRefusal is a connection whose server answers and closes it before it has read all: that the rest cannot
// be written does not keep the client from reading the answer, as otherwise it does now and then.
// hearsRefusals dials for a client whose connections are hearsRefusal.
func hearsRefusals(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	return hearsRefusal{conn}, err
}

type hearsRefusal struct{ net.Conn }

func (c hearsRefusal) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return len(p), nil
	}
	return n, err
}

// TestBatcherTooManyWaiting: there is a bound, and below it again sends go through.
func TestBatcherTooManyWaiting(t *testing.T) {
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
	f.nothingWaits(&q.batcher)
}

// TestBatcherSlowAttempts: a send without a context does not wait for an attempt that may take longer than it.
func TestBatcherSlowAttempts(t *testing.T) {
	for name, c := range map[string]struct {
		replicas time.Duration
		ctx      func(p *Publisher) context.Context
		want     bool
	}{
		"at first":               {ctx: func(p *Publisher) context.Context { return p.timeout.context(noContextTimeout) }, want: true},
		"replicas have a minute": {replicas: time.Minute, ctx: func(p *Publisher) context.Context { return p.timeout.context(noContextTimeout) }},
		"a context without end":  {ctx: func(*Publisher) context.Context { return ctxB }, want: true},
		"a context that may end": {ctx: func(*Publisher) context.Context { return within(t, time.Hour) }},
	} {
		t.Run(name, func(t *testing.T) {
			p := NewPublisher("q", redisClient(t, "127.0.0.1:1"))
			p.batcher.replicaTimeout = c.replicas
			if got := p.batcher.outlastsAttempt(c.ctx(p)); got != c.want {
				t.Errorf("outlasts an attempt: %v", got)
			}
		})
	}
}

// TestBatcherManyWithdraw: thousands of calls that wait while the server hangs are withdrawn at once, and nothing of
// them is kept.
func TestBatcherManyWithdraw(t *testing.T) {
	t.Parallel()
	f, server := ownServer(t)
	f.checkEmpty()
	server.Pause()
	q := NewPublisher(f.name, redisClient(t, server.Addr()))
	ctx, cancel := context.WithCancel(ctxB)
	const n = 5000
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			if _, err := q.Send(ctx, "x"); !errors.Is(err, context.Canceled) {
				t.Errorf("a withdrawn call: %v", err)
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
	if kept := len(q.batcher.waiting); q.batcher.waitingBytes != 0 || kept != 0 {
		t.Errorf("%d bytes wait, and %d withdrawn calls are kept", q.batcher.waitingBytes, kept)
	}
	q.batcher.mu.Unlock()
	server.Resume()
	eventually(t, "nothing is in flight", q.batcher.idle)
	if kept := len(f.check().Messages); kept > 2*maxBatch {
		t.Errorf("%d messages of withdrawn calls are stored, at most two batches were in flight", kept)
	}
}

// TestWhoLeftIsNotSent: a message whose withdrawn caller was told that it is not stored is nowhere later, though others
// of its batch were sent.
func TestWhoLeftIsNotSent(t *testing.T) {
	t.Parallel()
	f, server := ownServer(t)
	f.checkEmpty()
	server.Kill()
	q := NewPublisher(f.name, redisClient(t, server.Addr()))
	stays := make(chan error)
	go func() { _, err := q.Send(ctxB, "stays", inAnHour); stays <- err }()
	var all sync.WaitGroup
	var told [3]atomic.Int64
	ctx := within(t, 300*time.Millisecond)
	for range 200 {
		all.Go(func() {
			_, err := q.Send(ctx, "leaves", inAnHour)
			told[f.fate(err)].Add(1)
		})
	}
	all.Wait()
	server.Restart(t)
	if err := receive(t, "the one who stays", stays); err != nil {
		t.Errorf("the one who stays: %v", err)
	}
	state := f.check()
	if no, n := told[StoredNo].Load(), len(state.Messages); no != 200 || n != 1 {
		t.Errorf("%d of 200 were told that their message is not stored, and %d are there, want all and 1", no, n)
	}
}

// TestBatcherWithdrawWhileDialling: a batch that has no connection yet is not sent when it gets one after all its
// callers have withdrawn. The messages of callers who stay are sent without the others.
func TestBatcherWithdrawWhileDialling(t *testing.T) {
	t.Parallel()
	for name, stayers := range map[string]int{"all withdraw": 0, "one stays": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			dialling, dial := make(chan struct{}, 100), make(chan struct{})
			cli := redis.NewClient(&redis.Options{Addr: shared.Addr(), Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
				dialling <- struct{}{}
				<-dial
				return (&net.Dialer{}).DialContext(ctx, network, addr)
			}})
			t.Cleanup(func() { _ = cli.Close() })
			q := f.queueOn(cli, nil)
			ctx, cancel := context.WithCancel(ctxB)
			left, stayed := make(chan error), make(chan error)
			q.batcher.mu.Lock() // so that they go together
			for range 2 {
				go func() { _, err := q.Send(ctx, "leaves", inAnHour); left <- err }()
			}
			for range stayers {
				go func() { _, err := q.Send(within(t, patience), "stays", inAnHour); stayed <- err }()
			}
			q.batcher.mu.Unlock()
			receive(t, "somebody dials", dialling)
			cancel()
			for range 2 {
				if err := receive(t, "a withdrawn call returns", left); f.fate(err) != StoredNo {
					t.Errorf("withdrawn while a connection is made: %v", err)
				}
			}
			close(dial)
			for range stayers {
				if err := receive(t, "who stays is sent", stayed); err != nil {
					t.Error(err)
				}
			}
			f.send(q, "after", inAnHour) // whatever was to come has come
			eventually(t, "nothing of the withdrawn calls", func() bool { return len(f.check().Messages) == stayers+1 })
		})
	}
}

// TestBatcherTakeBatch: after each batch of a call for many messages others have their turn; a batch has so many
// messages and bytes; a message that is larger goes alone; and withdrawn calls are passed over.
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

// TestBatcherForgetsCallers: old callers go though nobody consumes.
func TestBatcherForgetsCallers(t *testing.T) {
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
