package produce

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/conc"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/redis/go-redis/v9"
)

// TestBatcherTooManyWaiting: there is a bound, and below it again sends go through.
func TestBatcherTooManyWaiting(t *testing.T) {
	t.Parallel()
	f := queuetest.NewBase(t)
	b := newBatcher(f, f.Cli)
	sends := func(what string, want stored, errs []error, payloads ...string) {
		t.Helper()
		for _, m := range sendTo(queuetest.CtxB, b, payloads...) {
			if m.Stored != want || len(errs) == 0 && m.Err != nil {
				t.Errorf("%s: %d, %v", what, m.Stored, m.Err)
			}
			for _, err := range errs {
				if !errors.Is(m.Err, err) {
					t.Errorf("%s: %v, want %v", what, m.Err, err)
				}
			}
		}
	}
	move := func(calls, bytes int, lastErr error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.withdrawn, b.waitingBytes, b.lastErr = b.withdrawn-calls, b.waitingBytes+bytes, lastErr
	}
	sends("below", StoredYes, nil, "below")
	move(0, maxWaitingBytes, io.EOF)
	sends("above the bound", StoredNo, []error{ErrTooManyWaiting, io.EOF}, "above")
	sends("many above the bound", StoredNo, []error{ErrTooManyWaiting, io.EOF}, "", "", "")
	move(maxWaiting, -maxWaitingBytes, io.EOF)
	sends("too many calls", StoredNo, []error{ErrTooManyWaiting, io.EOF}, "above")
	move(-maxWaiting, 0, nil)
	sends("below it again", StoredYes, nil, "", "", "")
	if n := len(f.Check().Messages); n != 4 {
		t.Errorf("%d messages, want 4", n)
	}
	nothingWaits(t, b)
}

// TestBatcherSlowAttempts: a send without a context does not wait for an attempt that may take longer than it.
func TestBatcherSlowAttempts(t *testing.T) {
	shared := new(conc.SharedTimeout).Context(NoContextTimeout)
	for name, c := range map[string]struct {
		replicas time.Duration
		ctx      context.Context
		want     bool
	}{
		"at first":               {ctx: shared, want: true},
		"replicas have a minute": {replicas: time.Minute, ctx: shared},
		"a context without end":  {ctx: queuetest.CtxB, want: true},
		"a context that may end": {ctx: queuetest.Within(t, time.Hour)},
	} {
		b := &Batcher{Settings: &Settings{ReplicaTimeout: c.replicas}}
		if got := b.outlastsAttempt(c.ctx); got != c.want {
			t.Errorf("%s: outlasts an attempt: %v", name, got)
		}
	}
}

// TestBatcherManyWithdraw: thousands of calls that wait while the server hangs are withdrawn at once, and nothing of
// them is kept.
func TestBatcherManyWithdraw(t *testing.T) {
	t.Parallel()
	f, server := queuetest.OwnBase(t)
	f.CheckEmpty()
	server.Pause()
	b := newBatcher(f, server.Client(t))
	ctx, cancel := context.WithCancel(queuetest.CtxB)
	const n = 5000
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			if m := sendTo(ctx, b, "x")[0]; !errors.Is(m.Err, context.Canceled) {
				t.Errorf("a withdrawn call: %v", m.Err)
			}
		})
	}
	// Two batches are in flight, each with the messages of one caller or of some.
	queuetest.Eventually(t, "all wait", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.waiting) >= n-2*script.MaxBatch
	})
	cancel()
	all.Wait()
	b.mu.Lock()
	if kept := len(b.waiting); b.waitingBytes != 0 || kept != 0 {
		t.Errorf("%d bytes wait, and %d withdrawn calls are kept", b.waitingBytes, kept)
	}
	b.mu.Unlock()
	server.Resume()
	queuetest.Eventually(t, "nothing is in flight", b.idle)
	if kept := len(f.Check().Messages); kept > 2*script.MaxBatch {
		t.Errorf("%d messages of withdrawn calls are stored, at most two batches were in flight", kept)
	}
}

// TestBatcherWithdrawWhileDialling: a batch that has no connection yet is not sent when it gets one after all its
// callers have withdrawn. The messages of callers who stay are sent without the others.
func TestBatcherWithdrawWhileDialling(t *testing.T) {
	t.Parallel()
	for name, stayers := range map[string]int{"all withdraw": 0, "one stays": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := queuetest.NewBase(t)
			dialling, dial := make(chan struct{}, 100), make(chan struct{})
			cli := redis.NewClient(&redis.Options{Addr: queuetest.Shared.Addr(),
				Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
					dialling <- struct{}{}
					<-dial
					return (&net.Dialer{}).DialContext(ctx, network, addr)
				}})
			t.Cleanup(func() { _ = cli.Close() })
			b := newBatcher(f, cli)
			ctx, cancel := context.WithCancel(queuetest.CtxB)
			left, stayed := make(chan *BatchItem), make(chan *BatchItem)
			b.mu.Lock() // so that they go together
			for range 2 {
				go func() { left <- sendTo(ctx, b, "leaves")[0] }()
			}
			for range stayers {
				go func() { stayed <- sendTo(queuetest.Within(t, queuetest.Patience), b, "stays")[0] }()
			}
			b.mu.Unlock()
			queuetest.Receive(t, "somebody dials", dialling)
			cancel()
			for range 2 {
				if m := queuetest.Receive(t, "a withdrawn call returns", left); m.Stored != StoredNo || m.Err == nil {
					t.Errorf("withdrawn while a connection is made: %d, %v", m.Stored, m.Err)
				}
			}
			close(dial)
			for range stayers {
				if m := queuetest.Receive(t, "who stays is sent", stayed); m.Err != nil {
					t.Error(m.Err)
				}
			}
			f.Must(sendTo(queuetest.CtxB, b, "after")[0].Err) // whatever was to come has come
			queuetest.Eventually(t, "nothing of the withdrawn calls", func() bool {
				return len(f.Check().Messages) == stayers+1
			})
		})
	}
}

// TestBatcherOrderedCallsLeaveNothing: of calls whose messages keep their order, over several batches, nothing is
// kept when they have their results, also if one of them is withdrawn meanwhile.
func TestBatcherOrderedCallsLeaveNothing(t *testing.T) {
	t.Parallel()
	f := queuetest.NewBase(t)
	cli := f.Client()
	flying, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	t.Cleanup(link.Interpose(cli,
		queuetest.CommandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			err := next(ctx, cmd)
			if strings.HasPrefix(cmd.Name(), "eval") && err == nil {
				once.Do(func() { close(flying); <-release })
			}
			return err
		})))
	b := newBatcher(f, cli)
	send := func(ctx context.Context, sequence string) (items []*BatchItem) {
		ids, due := message.NewIDSource(), message.When{Us: time.Hour.Microseconds()}
		for n := range int64(3*script.MaxPut + 7) {
			e := message.Envelope{}
			m := script.SendMessage{ID: ids.Next(), When: due, Version: e.Version(), Text: e.Encode(due)}
			if n%50 > 0 { // else send stores it
				m.Put = &script.PutOptions{Sequence: sequence, Number: n}
			}
			items = append(items, &BatchItem{SendMessage: m})
		}
		b.Send(ctx, &SendCall{Items: items})
		return items
	}
	ctx, cancel := context.WithCancel(queuetest.CtxB)
	left := make(chan []*BatchItem)
	go func() { left <- send(ctx, "left") }()
	queuetest.Receive(t, "its first batch is carried out", flying)
	cancel()
	for _, m := range queuetest.Receive(t, "the withdrawn call returns", left)[script.MaxPut:] {
		if m.Stored != StoredNo || !errors.Is(m.Err, context.Canceled) {
			t.Errorf("withdrawn: %d, %v", m.Stored, m.Err)
		}
	}
	close(release)
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for _, m := range send(queuetest.Within(t, queuetest.Patience), fmt.Sprint(i)) {
				if m.Stored != StoredYes || m.Err != nil {
					t.Errorf("%d, %v", m.Stored, m.Err)
				}
			}
		})
	}
	all.Wait()
	nothingWaits(t, b)
}

// TestBatcherTakeBatch: after each batch of a call for many messages others have their turn; a batch has so many
// messages and bytes; a message that is larger goes alone; and withdrawn calls are passed over.
func TestBatcherTakeBatch(t *testing.T) {
	t.Parallel()
	call := func(name string, n, size int) *SendCall {
		c := &SendCall{ctx: queuetest.CtxB}
		for range n {
			c.Items = append(c.Items, &BatchItem{SendMessage: script.SendMessage{Key: name, Text: strings.Repeat("x", size)}})
		}
		c.left = n
		return c
	}
	for name, c := range map[string]struct {
		waiting []*SendCall
		want    string
	}{
		"nobody":  {nil, ""},
		"singles": {[]*SendCall{call("a", 1, 9), call("b", 1, 9), call("c", 1, 9)}, "a1 b1 c1"},
		"singles behind many": {[]*SendCall{call("m", 1200, 9), call("a", 1, 9), call("b", 1, 9)},
			"m500 | a1 b1 m498 | m202"},
		"many behind many":       {[]*SendCall{call("m", 700, 9), call("n", 700, 9)}, "m500 | n500 | m200 n200"},
		"as many as fit":         {[]*SendCall{call("m", 500, 9), call("a", 1, 9)}, "m500 | a1"},
		"bytes":                  {[]*SendCall{call("m", 5, sendBytes*2/5), call("a", 1, 9)}, "m2 | a1 m2 | m1"},
		"larger than a batch":    {[]*SendCall{call("a", 1, 9), call("l", 1, 3<<20), call("b", 1, 9)}, "a1 | l1 | b1"},
		"some are withdrawn":     {[]*SendCall{call("a", 0, 9), call("b", 1, 9), call("c", 0, 9)}, "b1"},
		"a batch and no message": {[]*SendCall{call("m", 2, sendBytes), call("a", 1, 9)}, "m1 | a1 | m1"},
	} {
		t.Run(name, func(t *testing.T) {
			var b Batcher
			for _, c := range c.waiting {
				b.waiting = append(b.waiting, c)
				c.bytes = 1
				b.waitingBytes += min(len(c.Items), 1)
				if len(c.Items) == 0 {
					b.withdrawn++
				}
			}
			var batches []string
			for len(b.waiting) > b.withdrawn {
				items := b.takeBatch().items
				var batch strings.Builder
				for i := 0; i < len(items); {
					n := i
					for n < len(items) && items[n].Key == items[i].Key {
						n++
					}
					batch.WriteString(" " + items[i].Key + strconv.Itoa(n-i))
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
	f := queuetest.NewBase(t)
	b := newBatcher(f, f.Cli)
	b.ForgetOdds = 1
	old := func() bool {
		left, err := f.Cli.HExists(queuetest.CtxB, b.Store.Keys.State, "call:old").Result()
		f.Must(err)
		return left
	}
	for name, ctx := range map[string]context.Context{
		"alone":          new(conc.SharedTimeout).Context(queuetest.Patience),
		"with a context": queuetest.Within(t, queuetest.Patience),
	} {
		f.Must(f.Cli.HSet(queuetest.CtxB, b.Store.Keys.State, "call:old", "1 5 ").Err())
		queuetest.Eventually(t, name+": the old caller is forgotten", func() bool { // a slow machine may give that up once
			f.Must(sendTo(ctx, b, "x")[0].Err)
			return !old()
		})
	}
}
