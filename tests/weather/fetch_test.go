package weather

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
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

// slowLine passes on what a server and its clients say, at so many bytes a second, each direction of a connection by itself.
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

// slowClient reads replies that take 150 ms in its time, over a line of so many bytes a second.
func slowClient(t *testing.T, server string, perSecond int) *redis.Client {
	cli := queuetest.ClientWith(t, &redis.Options{Addr: slowLine(t, server, perSecond), ReadTimeout: 150 * time.Millisecond})
	return cli
}

// TestFetchOnASlowLine are asked for again with less in them.
func TestFetchOnASlowLine(t *testing.T) {
	t.Parallel()
	f := face.OnShared(t)
	const n = 300
	var got queuetest.Tally
	sender := f.Queue(nil)
	batch := make([]delayqueue.Outgoing, n)
	for i := range batch {
		batch[i].Payload = strconv.Itoa(i) + strings.Repeat(" ", 8<<10)
	}
	f.Must(queuetest.Failure(sender.SendBatch(context.Background(), batch)))
	q := f.QueueOn(slowClient(t, queuetest.Shared.Addr(), 2<<20), nil).WithConcurrent(200).WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
		got.Add(strings.TrimSpace(msg.Payload))
		return nil
	})
	q.StartConsume()
	queuetest.Reaches(t, "messages are handled", n, func() int { distinct, _ := got.Counts(); return distinct })
	f.Drained()
	if _, total := got.Counts(); total != n {
		t.Errorf("handled %d times, want %d", total, n)
	}
	if f.Log.Count("does not come through") != 0 || f.Log.Count("leases ran out") != 0 {
		t.Error("some were lost")
	}
}

// TestFetchOfALargeMessageOnASlowLine: one that takes many times as long as an attempt has, though less than a
// lease, is no loss.
func TestFetchOfALargeMessageOnASlowLine(t *testing.T) {
	t.Parallel()
	const size = 3 << 20
	for name, perSecond := range map[string]int{"0.5 s": 2 * size, "1.2 s": size * 10 / 12} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := face.OnShared(t)
			got := make(chan *delayqueue.Message, 3)
			sender := f.Queue(nil)
			f.Send(sender, strings.Repeat("x", size))
			f.Send(sender, "small")
			q := f.QueueOn(slowClient(t, queuetest.Shared.Addr(), perSecond), nil).WithLease(time.Minute).
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
		})
	}
}

// TestFetchOfAMessageThatDoesNotComeThrough: it counts losses and is poison in the end, and its neighbours go on.
func TestFetchOfAMessageThatDoesNotComeThrough(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		size   int
		client func(t *testing.T) (direct, consumer *redis.Client)
	}{
		"slow line": {3 << 20, func(t *testing.T) (*redis.Client, *redis.Client) { // 10 s; no attempt has more than 5
			return redis.NewClient(&redis.Options{Addr: queuetest.Shared.Addr()}), slowClient(t, queuetest.Shared.Addr(), 300<<10)
		}},
		"output buffer limit": {3 << 20, func(t *testing.T) (*redis.Client, *redis.Client) {
			server := redistest.Start(t, "--client-output-buffer-limit", "normal 2mb 0 0")
			cli := queuetest.RedisClient(t, server.Addr())
			return redis.NewClient(&redis.Options{Addr: server.Addr()}), cli
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			direct, consumer := c.client(t)
			f := face.On(t, direct)
			deaths, got := make(chan error, 1), queuetest.Tally{}
			q := f.QueueOn(consumer, nil).WithConcurrent(60).WithMaxLosses(1).WithLease(5 * time.Second).
				WithHandler(func(_ context.Context, msg *delayqueue.Message) error { got.Add(msg.Payload); return nil }).
				WithGarbageHandler(func(_ context.Context, _ *delayqueue.Message, err error) { deaths <- err })
			sender := f.Queue(nil)
			for i := range 25 {
				f.Send(sender, fmt.Sprint("before", i))
			}
			big := f.Send(sender, strings.Repeat("x", c.size), delayqueue.WithKey("big"))
			for i := range 25 {
				f.Send(sender, fmt.Sprint("after", i))
			}
			q.StartConsume()
			queuetest.Eventually(t, "its neighbours are handled", func() bool { distinct, _ := got.Counts(); return distinct == 50 })
			if err := queuetest.Receive(t, "it is given up", deaths); !errors.Is(err, delayqueue.ErrPoison) || !strings.Contains(err.Error(), "come through") {
				t.Errorf("given up for %v", err)
			}
			// for this test's own look
			f.Must(direct.ConfigSet(context.Background(), "client-output-buffer-limit", "normal 0 0 0").Err())
			if where := f.Where(big.ID); where != "garbage" {
				t.Errorf("it is in %s", where)
			}
			f.Send(sender, "next", delayqueue.WithKey("big"))
			queuetest.Eventually(t, "its key is free, and all goes on", func() bool { return got.Of("next") == 1 })
			queuetest.Eventually(t, "all are settled", func() bool { return len(f.Check().Messages) == 1 })
			if _, total := got.Counts(); total != 51 {
				t.Errorf("handled %d times, want 51", total)
			}
		})
	}
}

// TestFetchOutageIsNoLoss: replies that do not come for a while cost a message nothing: with a loss it would be poison. How often it is given
// back depends on the speed of the machine.
func TestFetchOutageIsNoLoss(t *testing.T) {
	t.Parallel()
	f, wire, _ := face.Wired(t)
	cli := queuetest.ClientWith(t, &redis.Options{Addr: wire.Addr(), ReadTimeout: 100 * time.Millisecond})
	got := make(chan *delayqueue.Message, 3)
	q := f.QueueOn(cli, nil).WithMaxLosses(1).WithConcurrent(3).WithLease(time.Minute). // in which a slow machine gets a reply
		WithHandler(func(_ context.Context, msg *delayqueue.Message) error { got <- msg; return nil })
	for range 3 {
		f.Send(f.Queue(nil), "x")
	}
	var held []<-chan struct{}
	var releases []func()
	for range 6 { // each attempt has twice the time of the one before it
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
