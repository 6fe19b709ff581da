package features

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/redis/go-redis/v9"
)

// TestBatcherConcurrentSends: callers share script calls, of which they need a third of what one after the other
// would, and each gets its own outcome.
func TestBatcherConcurrentSends(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	q := unhurried(f.Queue(nil)) // an attempt that is given up may overlap with the next one
	var calls, inFlight, most atomic.Int64
	t.Cleanup(link.Interpose(f.Cli,
		queuetest.CommandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if !strings.HasPrefix(cmd.Name(), "eval") || slices.Contains(cmd.Args(), any(script.ForgetScript.SHA)) {
				return next(ctx, cmd)
			}
			calls.Add(1)
			if n := inFlight.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer inFlight.Add(-1)
			return next(ctx, cmd)
		})))
	var wg sync.WaitGroup
	var dups queuetest.Tally
	for i := range 64 {
		wg.Go(func() {
			for j := range 20 {
				_, err := q.Send(context.Background(), "x", delayqueue.WithKey(fmt.Sprintf("%d", (i*20+j)/2)),
					delayqueue.WithDelay(time.Hour))
				switch {
				case errors.Is(err, delayqueue.ErrDuplicateKey):
					dups.Add("dup")
				case err != nil:
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := calls.Load(); n == 0 || n > 64*20/3 {
		t.Errorf("%d sends took %d calls, want at most a third", 64*20, n)
	}
	state := f.Check()
	if len(state.Pending) != 640 || dups.Of("dup") != 640 {
		t.Errorf("%d stored and %d refused, want 640 each", len(state.Pending), dups.Of("dup"))
	}
	if n := most.Load(); n > 2 { // one is on the wire while the next is made up
		t.Errorf("%d calls at a time, want at most 2", n)
	}
}

// TestBatcherOneMessageRefused: a message that the server refuses does not fail those that went with it.
func TestBatcherOneMessageRefused(t *testing.T) {
	t.Parallel()
	f, server := face.OwnServer(t, "--proto-max-bulk-len", "1mb")
	cli := queuetest.ClientWith(t, &redis.Options{Addr: server.Addr(), Dialer: hearsRefusals})
	q := f.QueueOn(cli, nil)
	large := strings.Repeat("x", 2<<20)
	results, err := q.SendBatch(queuetest.CtxB,
		[]delayqueue.Outgoing{{Payload: "a", Options: []delayqueue.MsgOption{face.InAnHour}},
			{Payload: large, Options: []delayqueue.MsgOption{face.InAnHour}},
			{Payload: "b", Options: []delayqueue.MsgOption{face.InAnHour}}})
	if results[0].Err != nil || results[2].Err != nil || face.Fate(f, results[1].Err) == delayqueue.StoredYes ||
		err == nil {
		t.Errorf("one too large: %v", err)
	}
	f.Must(f.Cli.Set(queuetest.CtxB, f.Key("key"), "somebody else's", 0).Err())
	results, err = q.SendBatch(queuetest.CtxB,
		[]delayqueue.Outgoing{{Payload: "c", Options: []delayqueue.MsgOption{face.InAnHour}},
			{Payload: "keyed", Options: []delayqueue.MsgOption{face.InAnHour, delayqueue.WithKey("k")}},
			{Payload: "d", Options: []delayqueue.MsgOption{face.InAnHour}}})
	if results[0].Err != nil || results[2].Err != nil || !errors.Is(results[1].Err, delayqueue.ErrWrongType) ||
		face.Fate(f, results[1].Err) != delayqueue.StoredNo {
		t.Errorf("one whose key hash is somebody else's: %v", err)
	}
	f.Cli.Del(queuetest.CtxB, f.Key("key"))
	if n := len(f.Check().Messages); n != 4 {
		t.Errorf("%d messages, want 4", n)
	}
}

// A hearsRefusal is a connection whose server answers and closes it before it has read all: that the rest cannot
// be written does not keep the client from reading the answer, as otherwise it does now and then.
// hearsRefusals dials for a client whose connections are hearsRefusal.
func hearsRefusals(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return hearsRefusal{conn.(*net.TCPConn)}, nil
}

type hearsRefusal struct{ *net.TCPConn } // go-redis asks its socket whether it is alive

func (c hearsRefusal) Write(p []byte) (int, error) {
	n, err := c.TCPConn.Write(p)
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return len(p), nil
	}
	return n, err
}

// TestWhoLeftIsNotSent: a message whose withdrawn caller was told that it is not stored is nowhere later, though others
// of its batch were sent.
func TestWhoLeftIsNotSent(t *testing.T) {
	t.Parallel()
	f, server := face.OwnServer(t)
	f.CheckEmpty()
	server.Kill()
	q := delayqueue.NewPublisher(f.Name, queuetest.RedisClient(t, server.Addr()))
	stays := make(chan error)
	go func() { _, err := q.Send(queuetest.CtxB, "stays", face.InAnHour); stays <- err }()
	var all sync.WaitGroup
	var told [3]atomic.Int64
	ctx := queuetest.Within(t, 300*time.Millisecond)
	for range 200 {
		all.Go(func() {
			_, err := q.Send(ctx, "leaves", face.InAnHour)
			told[face.Fate(f, err)].Add(1)
		})
	}
	all.Wait()
	server.Restart(t)
	if err := queuetest.Receive(t, "the one who stays", stays); err != nil {
		t.Errorf("the one who stays: %v", err)
	}
	state := f.Check()
	if no, n := told[delayqueue.StoredNo].Load(), len(state.Messages); no != 200 || n != 1 {
		t.Errorf("%d of 200 were told that their message is not stored, and %d are there, want all and 1", no, n)
	}
}
