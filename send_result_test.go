package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
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
		"refused until the context ends": {func(f *fixture) error {
			server := redistest.Start(f.t, "--min-replicas-to-write", "1")
			var err error
			for range 20 {
				q := f.queueOn(server.Client(f.t), nil)
				if _, err = q.Send(q.batcher.untilFailure(), "x", inAnHour); f.fate(err) != StoredUnknown {
					break
				} // else the next attempt was under way
			}
			return err
		}, StoredNo, 0, context.DeadlineExceeded},
		"the reply is lost, and no other comes": {func(f *fixture) error {
			hang := []func(func() error) error{func(func() error) error { return io.EOF }}
			q := scripted(f, append([]func(func() error) error{lost}, slices.Repeat(hang, 1000)...)...)
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
	q.batcher.forgetOdds = 0 // forgetting would have that connection when the next send wants it
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

// TestSendBatchError: the error of a large batch that failed is short, and each failure is in it.
func TestSendBatchError(t *testing.T) {
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
	if len(text) > 1000 || !strings.Contains(text, "1000 of 1000 messages failed") || !strings.HasSuffix(text, "; and 997 more") ||
		strings.Count(text, "delayqueue") != 1 {
		t.Errorf("%d bytes: %.2000s", len(text), text)
	}
	var dup *DuplicateKeyError
	if !errors.Is(err, ErrBadOption) || !errors.As(err, &dup) {
		t.Errorf("not all failures are in %s", text)
	}
}
