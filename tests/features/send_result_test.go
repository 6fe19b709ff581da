package features

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

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/redis/go-redis/v9"
)

// TestStored: what the error of a send says of its message is true.
func TestStored(t *testing.T) {
	t.Parallel()
	// scripted calls a function in place of each script call of a send, with the call itself to make.
	scripted := func(f *face.Fixture, attempts ...func(next func() error) error) *delayqueue.DelayQueue {
		cli := f.Client()
		var n atomic.Int64
		t.Cleanup(link.Interpose(cli,
			queuetest.CommandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
				if !strings.HasPrefix(cmd.Name(), "eval") {
					return next(ctx, cmd)
				}
				if i := int(n.Add(1)) - 1; i < len(attempts) {
					err := attempts[i](func() error { return next(ctx, cmd) })
					cmd.SetErr(err)
					return err
				}
				return next(ctx, cmd)
			})))
		return f.QueueOn(cli, nil)
	}
	answer := func(text string) func(func() error) error {
		return func(func() error) error { return queuetest.Answer(text) }
	}
	lost := func(next func() error) error { _ = next(); return io.EOF }
	for name, c := range map[string]struct {
		send func(f *face.Fixture) error
		want delayqueue.Stored
		kept int
		is   error
	}{
		"bad option": {func(f *face.Fixture) error { return f.Queue(nil).SendDelayMsg("x", 0, nil) }, delayqueue.StoredNo, 0,
			delayqueue.ErrBadOption},
		"duplicate key": {func(f *face.Fixture) error {
			q := f.Queue(nil)
			f.Send(q, "holder", delayqueue.WithKey("k"), face.InAnHour)
			_, err := q.Send(queuetest.CtxB, "x", delayqueue.WithKey("k"))
			return err
		}, delayqueue.StoredNo, 1, delayqueue.ErrDuplicateKey},
		"a context that has ended": {func(f *face.Fixture) error {
			_, err := f.Queue(nil).Send(queuetest.Within(f.T.(*testing.T), 0), "x")
			return err
		}, delayqueue.StoredNo, 0, context.DeadlineExceeded},
		"refused": {func(f *face.Fixture) error {
			_, err := scripted(f, answer("OOM command not allowed")).Send(queuetest.CtxB, "x", face.InAnHour)
			return err
		}, delayqueue.StoredNo, 0, nil},
		"refused until the context ends": {func(f *face.Fixture) error {
			server := redistest.Start(f.T, "--min-replicas-to-write", "1")
			var err error
			for range 20 {
				q := f.QueueOn(server.Client(f.T), nil)
				if _, err = q.Send(f.UntilSendsFail(), "x", face.InAnHour); face.Fate(f, err) != delayqueue.StoredUnknown {
					break
				} // else the next attempt was under way
			}
			return err
		}, delayqueue.StoredNo, 0, context.DeadlineExceeded},
		"the reply is lost, and no other comes": {func(f *face.Fixture) error {
			hang := []func(func() error) error{func(func() error) error { return io.EOF }}
			q := scripted(f, append([]func(func() error) error{lost}, slices.Repeat(hang, 1000)...)...)
			_, err := q.Send(f.UntilSendsFail(), "x", face.InAnHour)
			return err
		}, delayqueue.StoredUnknown, 1, context.DeadlineExceeded},
		"the reply is lost, and the repeat refused": {func(f *face.Fixture) error {
			_, err := scripted(f, lost, answer("OOM command not allowed")).Send(queuetest.CtxB, "x", face.InAnHour)
			return err
		}, delayqueue.StoredUnknown, 1, nil},
		"the client is closed": {func(f *face.Fixture) error {
			cli := f.Client()
			q := f.QueueOn(cli, nil)
			_ = cli.Close()
			return q.SendDelayMsg("x", time.Hour)
		}, delayqueue.StoredNo, 0, redis.ErrClosed},
		"a hook panics": {func(f *face.Fixture) error {
			return scripted(f, func(next func() error) error { _ = next(); panic("hook") }).SendDelayMsg("x", time.Hour)
		}, delayqueue.StoredUnknown, 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := face.New(t)
			f.Must(f.Cli.(*redis.Client).ScriptLoad(queuetest.CtxB, script.SingleScript.Text).Err())
			f.Must(f.Cli.HSet(queuetest.CtxB, f.Key("state"), "in:stored",
				"0").Err()) // in a new queue single leaves the message to send
			err := c.send(f)
			if got := face.Fate(f, err); got != c.want {
				t.Errorf("%v says %q, want %q", err, got, c.want)
			}
			if c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("%v is not %v", err, c.is)
			}
			if n := len(f.Check().Messages); n != c.kept {
				t.Errorf("%d messages are stored, want %d", n, c.kept)
			}
		})
	}
}

// TestSendBatchError: the error of a large batch that failed is short, and each failure is in it.
func TestSendBatchError(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	batch := make([]delayqueue.Outgoing, 1000)
	for i := range batch {
		batch[i].Options = []delayqueue.MsgOption{nil}
	}
	batch[999].Options = []delayqueue.MsgOption{delayqueue.WithKey("k"), face.InAnHour}
	q := f.Queue(nil)
	f.Send(q, "holder", delayqueue.WithKey("k"), face.InAnHour)
	_, err := q.SendBatch(queuetest.CtxB, batch)
	text := fmt.Sprint(err)
	if len(text) > 1000 || !strings.Contains(text, "1000 of 1000 messages failed") ||
		!strings.HasSuffix(text, "; and 997 more") ||
		strings.Count(text, "delayqueue") != 1 {
		t.Errorf("%d bytes: %.2000s", len(text), text)
	}
	var dup *delayqueue.DuplicateKeyError
	if !errors.Is(err, delayqueue.ErrBadOption) || !errors.As(err, &dup) {
		t.Errorf("not all failures are in %s", text)
	}
}

// TestCallersOfTheProcess: publishers that are made for one send each use the callers of others.
func TestCallersOfTheProcess(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	n := testkit.Size(1000, 200)
	for range n {
		f.Must(delayqueue.NewPublisher(f.Name, f.Cli).SendDelayMsg("x", time.Hour))
	}
	callers := 0
	for field := range f.Check().Fields {
		if strings.HasPrefix(field, "call:") {
			callers++
		}
	}
	if callers > n/2 { // other tests take some from time to time
		t.Errorf("%d publishers had %d callers", n, callers)
	}
}
