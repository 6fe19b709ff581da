package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// fate is what an error of a send says of its message.
func (f *fixture) fate(err error) Stored {
	f.t.Helper()
	var failed *SendError
	if !errors.As(err, &failed) {
		f.t.Fatalf("%v is no SendError", err)
	}
	if failed.Queue != f.name || !strings.Contains(err.Error(), failed.ID+": "+failed.Stored.String()+": ") {
		f.t.Errorf("%+v says %q", failed, err)
	}
	return failed.Stored
}

// within is a context for one send.
func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// untilFailure is a context whose deadline comes when an attempt has failed.
func (b *batcher) untilFailure() context.Context {
	deadline := make(chan struct{})
	go func() {
		defer close(deadline)
		for begun := time.Now(); time.Since(begun) < patience; time.Sleep(time.Millisecond) {
			b.mu.Lock()
			failed := b.lastErr != nil
			b.mu.Unlock()
			if failed {
				return
			}
		}
	}()
	return endsAt{ctxB, deadline}
}

// TestStored: what the error of a send says of its message is true.
func TestStored(t *testing.T) {
	t.Parallel()
	// scripted calls a function in place of each script call of a send, with the call itself to make.
	scripted := func(f *fixture, attempts ...func(next func() error) error) *DelayQueue {
		cli := f.client()
		var n atomic.Int64
		hookOwn(t, cli, commandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if !strings.HasPrefix(cmd.Name(), "eval") {
				return next(ctx, cmd)
			}
			if i := int(n.Add(1)) - 1; i < len(attempts) {
				err := attempts[i](func() error { return next(ctx, cmd) })
				cmd.SetErr(err)
				return err
			}
			return next(ctx, cmd)
		}))
		return f.queueOn(cli, nil)
	}
	answer := func(text string) func(func() error) error {
		return func(func() error) error { return answer(text) }
	}
	lost := func(next func() error) error { _ = next(); return io.EOF }
	for name, c := range map[string]struct {
		send func(f *fixture) error
		want Stored
		kept int
		is   error
	}{
		"bad option": {func(f *fixture) error { return f.queue(nil).SendDelayMsg("x", 0, nil) }, StoredNo, 0, ErrBadOption},
		"duplicate key": {func(f *fixture) error {
			q := f.queue(nil)
			f.send(q, "holder", WithKey("k"), inAnHour)
			_, err := q.Send(ctxB, "x", WithKey("k"))
			return err
		}, StoredNo, 1, ErrDuplicateKey},
		"a context that has ended": {func(f *fixture) error {
			_, err := f.queue(nil).Send(within(f.t.(*testing.T), 0), "x")
			return err
		}, StoredNo, 0, context.DeadlineExceeded},
		"refused": {func(f *fixture) error {
			_, err := scripted(f, answer("OOM command not allowed")).Send(ctxB, "x", inAnHour)
			return err
		}, StoredNo, 0, nil},
		"the reply is lost, and no other comes": {func(f *fixture) error {
			hang := func(func() error) error { return io.EOF }
			q := scripted(f, lost, hang, hang, hang, hang, hang, hang, hang, hang)
			_, err := q.Send(q.batcher.untilFailure(), "x", inAnHour)
			return err
		}, StoredUnknown, 1, context.DeadlineExceeded},
		"the reply is lost, and the repeat refused": {func(f *fixture) error {
			_, err := scripted(f, lost, answer("OOM command not allowed")).Send(ctxB, "x", inAnHour)
			return err
		}, StoredUnknown, 1, nil},
		"the client is closed": {func(f *fixture) error {
			cli := f.client()
			q := f.queueOn(cli, nil)
			_ = cli.Close()
			return q.SendDelayMsg("x", time.Hour)
		}, StoredNo, 0, redis.ErrClosed},
		"a hook panics": {func(f *fixture) error {
			return scripted(f, func(next func() error) error { _ = next(); panic("hook") }).SendDelayMsg("x", time.Hour)
		}, StoredUnknown, 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.must(f.cli.(*redis.Client).ScriptLoad(ctxB, singleScript.text).Err())
			err := c.send(f)
			if got := f.fate(err); got != c.want {
				t.Errorf("%v says %q, want %q", err, got, c.want)
			}
			if c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("%v is not %v", err, c.is)
			}
			if n := len(f.check().Messages); n != c.kept {
				t.Errorf("%d messages are stored, want %d", n, c.kept)
			}
		})
	}
}

// TestStoredWithoutServer: a dial that fails sends nothing; what was written to a server that hangs may arrive.
func TestStoredWithoutServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	f := fixtureOn(t, redis.NewClient(&redis.Options{Addr: server.Addr(), // the connection of the first send serves the next, too
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}}))
	q := f.queue(nil)
	f.send(q, "first", inAnHour)
	server.Pause()
	_, err := q.Send(within(t, 3*time.Second), "hangs", inAnHour)
	if got := f.fate(err); got != StoredUnknown {
		t.Errorf("a server that hangs: %v: %v", got, err)
	}
	server.Kill()
	cli := redis.NewClient(&redis.Options{Addr: server.Addr(), DialerRetries: 1})
	t.Cleanup(func() { _ = cli.Close() })
	nobody := NewPublisher(f.name, cli)
	_, err = nobody.Send(nobody.batcher.untilFailure(), "nobody listens", inAnHour)
	if got := f.fate(err); got != StoredNo || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("nobody listens: %v: %v", got, err)
	}
	results, err := nobody.SendBatch(within(t, 300*time.Millisecond), make([]Outgoing, 1200))
	for _, r := range results {
		if got := f.fate(r.Err); got != StoredNo || r.Info == nil {
			t.Fatalf("nobody listens: %v: %v", got, err)
		}
	}
	server.Restart(t)
}

// TestWhoLeftIsNotSent: who was told that his message is not stored finds it nowhere later, though others went with it.
func TestWhoLeftIsNotSent(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	f := fixtureOn(t, redis.NewClient(&redis.Options{Addr: server.Addr()}))
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

// TestLeaveWhileDialling: a call that has no connection yet is not sent when it gets one after its callers have
// left, and whoever stays is sent without them.
func TestLeaveWhileDialling(t *testing.T) {
	t.Parallel()
	for name, stayers := range map[string]int{"all leave": 0, "one stays": 1} {
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
				if err := receive(t, "who leaves returns", left); f.fate(err) != StoredNo {
					t.Errorf("who leaves while a connection is made: %v", err)
				}
			}
			close(dial)
			for range stayers {
				if err := receive(t, "who stays is sent", stayed); err != nil {
					t.Error(err)
				}
			}
			f.send(q, "after", inAnHour) // whatever was to come has come
			eventually(t, "nothing of those who left", func() bool { return len(f.check().Messages) == stayers+1 })
		})
	}
}

// TestOnesTrouble: a message that the server refuses does not fail those that went with it.
func TestOnesTrouble(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--proto-max-bulk-len", "1mb")
	f := fixtureOn(t, redis.NewClient(&redis.Options{Addr: server.Addr()}))
	cli := redis.NewClient(&redis.Options{Addr: server.Addr(), Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return hearsRefusal{conn}, err
	}})
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
	results, err = q.SendBatch(ctxB, []Outgoing{{"c", []MsgOption{inAnHour}}, {"keyed", []MsgOption{inAnHour, WithKey("k")}}, {"d", []MsgOption{inAnHour}}})
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
type hearsRefusal struct{ net.Conn }

func (c hearsRefusal) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return len(p), nil
	}
	return n, err
}

// TestBatchError: the error of a large batch that failed is short, and each failure is in it.
func TestBatchError(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	batch := make([]Outgoing, 1000)
	for i := range batch {
		batch[i].Options = []MsgOption{nil}
	}
	batch[999].Options = []MsgOption{WithKey("k"), inAnHour}
	q := f.queue(nil)
	f.send(q, "holder", WithKey("k"), inAnHour)
	_, err := q.SendBatch(ctxB, batch)
	text := fmt.Sprint(err)
	if len(text) > 1000 || !strings.Contains(text, "1000 of 1000 messages failed") || !strings.HasSuffix(text, "; and 997 more") || strings.Count(text, "delayqueue") != 1 {
		t.Errorf("%d bytes: %.2000s", len(text), text)
	}
	var dup *DuplicateKeyError
	if !errors.Is(err, ErrBadOption) || !errors.As(err, &dup) {
		t.Errorf("not all failures are in %s", text)
	}
}
