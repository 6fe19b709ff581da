package weather

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/redis/go-redis/v9"
)

// slowLine passes on what a server and its clients say, at so many bytes a second, each direction of a connection by
// itself.
func slowLine(t *testing.T, server string, perSecond int) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	queuetest.Must(t, err)
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); _ = ln.Close(); all.Wait() })
	pass := func(client net.Conn) {
		upstream, err := net.Dial("tcp", server)
		if err != nil {
			_ = client.Close()
			return
		}
		end := func() { _ = client.Close(); _ = upstream.Close() }
		stop := context.AfterFunc(ctx, end)
		defer stop()
		defer end()
		all.Go(func() { defer end(); slowCopy(upstream, client, perSecond) })
		slowCopy(client, upstream, perSecond)
	}
	all.Go(func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			_ = client.(*net.TCPConn).SetReadBuffer(1 << 12)
			all.Go(func() { pass(client) })
		}
	})
	return ln.Addr().String()
}

// slowCopy copies so many bytes a second.
func slowCopy(to, from net.Conn, perSecond int) {
	const step = 5 * time.Millisecond
	part := make([]byte, max(perSecond/int(time.Second/step), 1))
	tick := time.NewTicker(step)
	defer tick.Stop()
	for {
		n, err := from.Read(part)
		if err == nil {
			_, err = to.Write(part[:n])
		}
		if err != nil {
			return
		}
		if n == len(part) {
			<-tick.C
		}
	}
}

// TestFetchOfALargeMessageOnASlowLine: one that takes many times as long as an attempt has, though less than a
// lease, is no loss.
func TestFetchOfALargeMessageOnASlowLine(t *testing.T) {
	t.Parallel()
	const size, takes = 3 << 20, 1200 * time.Millisecond
	f := face.OnShared(t)
	got := make(chan *delayqueue.Message, 3)
	sender := f.Queue(nil)
	f.Send(sender, strings.Repeat("x", size))
	f.Send(sender, "small")
	line := slowLine(t, queuetest.Shared.Addr(), int(size*time.Second/takes))
	q := f.QueueOn(queuetest.ClientWith(t, &redis.Options{Addr: line, ReadTimeout: takes / 8}),
		nil).WithLease(time.Minute).
		WithHandler(func(_ context.Context, msg *delayqueue.Message) error { got <- msg; return nil })
	q.StartConsume()
	for range 2 {
		if msg := queuetest.Receive(t, "it is handled", got); len(msg.Payload) == size && msg.Delivery != 1 {
			t.Errorf("delivery %d", msg.Delivery)
		}
	}
	f.Drained()
	if f.Log.Count("does not come through") != 0 {
		t.Error("it was lost")
	}
}

// TestFetchOfAMessageThatDoesNotComeThrough: it counts losses and is poison in the end, and its neighbours go on.
func TestFetchOfAMessageThatDoesNotComeThrough(t *testing.T) {
	t.Parallel()
	f, server := face.OwnServer(t, "--client-output-buffer-limit", "normal 2mb 0 0")
	deaths, got := make(chan error, 1), queuetest.Tally{}
	q := f.QueueOn(queuetest.RedisClient(t, server.Addr()),
		nil).WithConcurrent(60).WithMaxLosses(1).WithLease(5 * time.Second).
		WithHandler(func(_ context.Context, msg *delayqueue.Message) error { got.Add(msg.Payload); return nil }).
		WithGarbageHandler(func(_ context.Context, _ *delayqueue.Message, err error) { deaths <- err })
	sender := f.Queue(nil)
	for i := range 25 {
		f.Send(sender, fmt.Sprint("before", i))
	}
	big := f.Send(sender, strings.Repeat("x", 3<<20), delayqueue.WithKey("big"))
	for i := range 25 {
		f.Send(sender, fmt.Sprint("after", i))
	}
	q.StartConsume()
	queuetest.Eventually(t, "its neighbours are handled", func() bool {
		distinct, _ := got.Counts()
		return distinct == 50
	})
	if err := queuetest.Receive(t, "it is given up", deaths); !errors.Is(err, delayqueue.ErrPoison) {
		t.Errorf("given up for %v", err)
	}
	f.Must(f.Cli.ConfigSet(queuetest.CtxB, "client-output-buffer-limit", "normal 0 0 0").Err()) // for this test's own look
	if where := f.Where(big.ID); where != "garbage" {
		t.Errorf("it is in %s", where)
	}
	f.Send(sender, "next", delayqueue.WithKey("big"))
	queuetest.Eventually(t, "its key is free, and all goes on", func() bool { return got.Of("next") == 1 })
	queuetest.Eventually(t, "all are settled", func() bool { return len(f.Check().Messages) == 1 })
	if _, total := got.Counts(); total != 51 {
		t.Errorf("handled %d times, want 51", total)
	}
}

// TestFetchOutageIsNoLoss: replies that do not come for a while cost a message nothing: with a loss it would be
// poison. How often it is given back depends on the speed of the machine.
func TestFetchOutageIsNoLoss(t *testing.T) {
	t.Parallel()
	f, wire, _ := face.Wired(t)
	cli := queuetest.ClientWith(t, &redis.Options{Addr: wire.Addr(), ReadTimeout: 100 * time.Millisecond})
	got := make(chan *delayqueue.Message, 3)
	// In a minute a slow machine gets a reply, too.
	q := f.QueueOn(cli, nil).WithMaxLosses(1).WithConcurrent(3).WithLease(time.Minute).
		WithHandler(func(_ context.Context, msg *delayqueue.Message) error { got <- msg; return nil })
	for range 3 {
		f.Send(f.Queue(nil), "x")
	}
	var held []<-chan struct{}
	var releases []func()
	for range 6 {
		struck, release := wire.HoldReply(redistest.Script(script.FetchScript.SHA))
		held, releases = append(held, struck), append(releases, release)
	}
	q.StartConsume()
	for _, struck := range held {
		queuetest.Receive(t, "the next reply is held", struck)
	}
	for range 3 {
		if msg := queuetest.Receive(t, "it comes", got); msg.Failures > 0 {
			t.Errorf("%+v", msg)
		}
	}
	for _, release := range releases {
		release()
	}
	queuetest.Eventually(t, "all are acked", func() bool { return len(f.Check().Messages) == 0 })
}
