package delayqueue

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// TestWakeUpsRefusedByTheHost: the queue says so once, and lives on the tick and on what its own
// process sends.
func TestWakeUpsRefusedByTheHost(t *testing.T) {
	t.Parallel()
	mini := miniredis.RunT(t)
	mini.Server().SetPreHook(func(c *server.Peer, cmd string, _ ...string) bool {
		if cmd != "BZPOPMIN" {
			return false
		}
		c.WriteError("ERR unknown command 'bzpopmin'")
		return true
	})
	f := fixtureOn(t, redis.NewClient(&redis.Options{Addr: mini.Addr()}))
	got := make(chan string, 1)
	q := f.queue(func(payload string) bool { got <- payload; return true }).WithLease(time.Minute).WithFetchInterval(time.Hour)
	q.StartConsume()
	eventually(t, "it says so", func() bool { return f.log.count("cannot wait for wake-ups") == 1 })
	f.send(q, "far", WithDelay(time.Hour))
	for i := range 3 {
		payload := fmt.Sprint(i)
		f.send(q, payload, WithDelay(30*time.Millisecond))
		if p := receive(t, "what this process sends is served before the first tick", got); p != payload {
			t.Errorf("got %q, want %q", p, payload)
		}
	}
	if n := f.log.count("cannot wait for wake-ups"); n != 1 {
		t.Errorf("it says so %d times", n)
	}
}

// TestWakeUpsRefusedFromNowOn: a marker that was taken before does not say that they work.
func TestWakeUpsRefusedFromNowOn(t *testing.T) {
	t.Parallel()
	f, server := ownServer(t)
	got := make(chan string, 2)
	q := noTick(f.queueOn(server.Client(t), func(payload string) bool { got <- payload; return true }))
	q.StartConsume()
	eventually(t, "it listens", func() bool { return blockedClients(t, f) > 0 })
	f.must(f.cli.Do(ctxB, "ACL", "SETUSER", "default", "-bzpopmin").Err())
	f.send(f.queue(nil), "x", WithDelay(time.Second)) // so its marker is taken, and then the next is asked for
	eventually(t, "it says so", func() bool { return f.log.count("cannot wait for wake-ups") == 1 })
	receive(t, "what was woken for is served", got)
	f.send(q, "y", WithDelay(30*time.Millisecond))
	receive(t, "what this process sends is served before the first tick", got)
	if f.log.count("wake-ups work again") != 0 {
		t.Error("it says that they work again")
	}
}

// unknownClient is a client of a kind that the library has never heard of.
type unknownClient struct{ redis.UniversalClient }

func TestWakeUpsOfAnUnknownClient(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	got := make(chan string, 1)
	q := f.queueOn(unknownClient{f.cli}, func(payload string) bool { got <- payload; return true })
	q.StartConsume()
	f.send(q, "x", WithDelay(10*time.Millisecond))
	receive(t, "it arrives", got)
	eventually(t, "it says that wake-ups are off", func() bool { return f.log.count("cannot wait for wake-ups") == 1 })
}

// TestWakeConnectionDrops: the marker that was on the wire is lost, and the next message is
// on time all the same.
func TestWakeConnectionDrops(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	wire := redistest.NewWire(t, shared.Addr())
	cli := redis.NewClient(&redis.Options{Addr: wire.Addr()})
	t.Cleanup(func() { _ = cli.Close() })
	got := make(chan string, 1)
	struck := wire.DropReply(func(cmd []string) bool { return cmd[0] == "bzpopmin" })
	noTick(f.queueOn(cli, func(payload string) bool { got <- payload; return true })).StartConsume()
	p := NewPublisher(f.name, f.client())
	if err := p.SendDelayMsg("a", 20*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	receive(t, "the marker is lost", struck)
	receive(t, "the message arrives before the first tick", got)
}

// TestWakeUpIsLeftBySaturatedConsumer: who has no free worker puts a marker back.
func TestWakeUpIsLeftBySaturatedConsumer(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	started, release := make(chan string, 4), make(chan struct{})
	defer close(release)
	work := func(payload string) bool {
		started <- payload
		if payload == "slow" {
			<-release
		}
		return true
	}
	busy := noTick(f.queueOn(f.client(), work))
	busy.StartConsume()
	eventually(t, "it listens", func() bool { return blockedClients(t, f) > 0 })
	f.send(f.queue(nil), "slow")
	receive(t, "the only worker is busy", started)
	// Whatever the busy one may have heard, an idle one serves the next message.
	noTick(f.queueOn(f.client(), work)).StartConsume()
	for i := range 3 {
		payload := fmt.Sprint(i)
		f.send(f.queue(nil), payload, WithDelay(30*time.Millisecond))
		if p := receive(t, "the idle consumer serves it before the first tick", started); p != payload {
			t.Errorf("got %q", p)
		}
	}
}

// TestWakeUpIsPassedOnByStoppedConsumer: who stops puts back the alarm that it holds.
func TestWakeUpIsPassedOnByStoppedConsumer(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	got := make(chan string, 4)
	first := noTick(f.queueOn(f.client(), func(payload string) bool { got <- "first"; return true }))
	done := first.StartConsume()
	f.send(f.queue(nil), "x", WithDelay(10*time.Second)) // not before the first one has stopped
	eventually(t, "the first consumer holds the alarm", func() bool { s := f.check(); return s.Wake == 0 && s.Fields["armed"] != "0" })
	noTick(f.queueOn(f.client(), func(payload string) bool { got <- "second"; return true })).StartConsume()
	first.StopConsume()
	receive(t, "the first one stops", done)
	if by := receive(t, "it arrives before the first tick", got); by != "second" {
		t.Errorf("handled by the %s consumer", by)
	}
}

// TestWakeUpIsOfOneConsumer: an instant wakes one consumer, not all.
func TestWakeUpIsOfOneConsumer(t *testing.T) {
	t.Parallel()
	f, server := ownServer(t)
	const consumers, messages = 16, 50
	got := make(chan string, messages)
	for range consumers {
		q := noTick(f.queueOn(server.Client(t), func(payload string) bool { got <- payload; return true }))
		q.store.attemptTimeout = time.Hour // no call is repeated
		q.StartConsume()
	}
	q := unhurried(f.queue(nil))
	eventually(t, "all listen", func() bool { return blockedClients(t, f) == consumers })
	before := scriptCalls(t, f)
	for i := range messages {
		f.send(q, "x", WithDelay(time.Duration(200+20*i)*time.Millisecond))
	}
	for range messages {
		receive(t, "it arrives", got)
	}
	// One send and one settlement a message, and at most two fetches, or some more on a slow machine. All would make 16.
	if calls := scriptCalls(t, f) - before; calls > 8*messages+2*consumers {
		t.Errorf("%d script calls for %d messages and %d consumers", calls, messages, consumers)
	}
}

func blockedClients(t *testing.T, f *fixture) int {
	return infoNumber(t, f, "clients", "blocked_clients:%d")
}

func scriptCalls(t *testing.T, f *fixture) int {
	return infoNumber(t, f, "commandstats", "cmdstat_evalsha:calls=%d,")
}

// infoNumber reads one number of INFO; 0 if it is not there.
func infoNumber(t *testing.T, f *fixture, section, format string) (n int) {
	t.Helper()
	text, err := f.cli.Info(context.Background(), section).Result()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		if _, err := fmt.Sscanf(line, format, &n); err == nil {
			return n
		}
	}
	return 0
}

// TestWakeUpOtherThanTheOneHeld: the message that the consumer held the alarm for is taken
// back; the marker for the next one comes to the same consumer, and is not thrown away.
func TestWakeUpOtherThanTheOneHeld(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	got := make(chan string, 2)
	q := noTick(f.queue(func(payload string) bool { got <- payload; return true }))
	first := f.send(q, "first", WithDelay(10*time.Second)) // not before it is taken back
	f.send(q, "second", WithDelay(10300*time.Millisecond))
	q.StartConsume()
	eventually(t, "the consumer holds the alarm", func() bool { return f.check().Wake == 0 })
	if _, err := q.TryIntercept(first); err != nil {
		t.Fatal(err)
	}
	c := newCaller() // another consumer's tick, which has no free worker
	c.next()
	if _, err := f.calls().fetch(context.Background(), c,
		fetchRequest{want: 0, settings: &fetchSettings{lease: time.Minute, maxLosses: 3}}); err != nil {
		t.Fatal(err)
	}
	if p := receive(t, "the second one arrives before the first tick", got); p != "second" {
		t.Errorf("got %q", p)
	}
}

// noBlocking is a connection through a proxy that hangs up on a blocking command.
type noBlocking struct{ net.Conn }

func (c noBlocking) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("bzpopmin")) {
		_ = c.Close()
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}

// TestWakeUpsThroughProxyThatDropsBlockingCalls: it is said once, and what this process sends is on time.
func TestWakeUpsThroughProxyThatDropsBlockingCalls(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	cli := redis.NewClient(&redis.Options{Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", shared.Addr())
		return noBlocking{conn}, err
	}})
	t.Cleanup(func() { _ = cli.Close() })
	got := make(chan string, 1)
	q := noTick(f.queueOn(cli, func(payload string) bool { got <- payload; return true }))
	q.StartConsume()
	eventually(t, "it is said", func() bool { return f.log.count("cannot wait for wake-ups") == 1 })
	for range 3 {
		f.send(q, "x", WithDelay(30*time.Millisecond))
		receive(t, "what this process sends is served before the first tick", got)
	}
	if n := f.log.count("cannot wait for wake-ups"); n != 1 {
		t.Errorf("it was said %d times", n)
	}
	// What was seen in time is on time too, whoever sent it, although the listener goes on failing.
	f.send(f.queue(nil), "x", WithDelay(3*time.Second))
	eventually(t, "a look has seen it", func() bool {
		return q.current().wakeUps.answered.Load() == 0 && f.check().Fields["armed"] != "0" || len(got) > 0
	})
	receive(t, "it is served before the next tick", got)
}

// TestWakeConnectionIsSilent: one that brings nothing although messages come due is replaced long before it is noticed to be dead.
func TestWakeConnectionIsSilent(t *testing.T) {
	t.Parallel()
	f, server := ownServer(t)
	wire := redistest.NewWire(t, server.Addr())
	cli := redis.NewClient(&redis.Options{Addr: wire.Addr()})
	t.Cleanup(func() { _ = cli.Close() })
	got := make(chan string, 100)
	f.queueOn(cli, func(payload string) bool { got <- payload; return true }).WithFetchInterval(time.Second).StartConsume()
	for tries := 1; ; tries++ {
		eventually(t, "it listens", func() bool { return blockedClients(t, f) == 1 })
		wire.HalfOpen()
		eventually(t, "the server has noticed", func() bool { return blockedClients(t, f) == 0 })
		begun := time.Now()
		for blockedClients(t, f) == 0 && time.Since(begun) < patience {
			f.send(f.queue(nil), "x")
			receive(t, "it is handled", got)
		}
		took := time.Since(begun)
		if took <= wakeBlock {
			return
		}
		if tries == 5 { // a slow machine is not slow five times
			t.Fatalf("it listens again after %v", took)
		}
	}
}

// TestWakeConnectionFindsNoRoom: it does not hammer a server that has no room for its connection, and says why it has none.
func TestWakeConnectionFindsNoRoom(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	cli := redis.NewClient(&redis.Options{Addr: shared.Addr()})
	t.Cleanup(func() { _ = cli.Close() })
	var dials atomic.Int64
	q := f.queueOn(cli, func(string) bool { return true })
	l := linkOf(cli)
	defer l.release()
	const full = "ERR max number of clients reached"
	l.onDedicated = func(own *redis.Client) {
		own.AddHook(commandHook(func(_ context.Context, cmd redis.Cmder, _ redis.ProcessHook) error {
			dials.Add(1)
			cmd.SetErr(answer(full))
			return answer(full)
		}))
	}
	q.StartConsume()
	eventually(t, "it says why", func() bool { return f.log.count("cannot wait for wake-ups") == 1 && f.log.count(full) == 1 })
	if n := dials.Load(); n > 4*wakeUpsOffAfter {
		t.Errorf("%d dials", n)
	}
	if d := wakeBackoff(wakeUpsOffAfter + 20); d < time.Minute || d > 2*time.Minute {
		t.Errorf("it waits %v in the end", d)
	}
}

// TestWakeConnectionIsCutBeforeItIsClosed: a client is not closed while a call comes back from it, of which go-redis would
// complain on stderr.
func TestWakeConnectionIsCutBeforeItIsClosed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	cli := redis.NewClient(&redis.Options{Addr: shared.Addr()})
	t.Cleanup(func() { _ = cli.Close() })
	l := linkOf(cli)
	defer l.release()
	var clients []*redis.Client
	var cut, closedInCall atomic.Int64
	var waits atomic.Int64
	l.onDedicated = func(own *redis.Client) {
		clients = append(clients, own)
		own.AddHook(commandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if cmd.Name() == "bzpopmin" {
				waits.Add(1)
			}
			err := next(ctx, cmd)
			if cmd.Name() == "bzpopmin" && err != nil && answerOf(err) == "" {
				cut.Add(1)
				if isClosed(own) {
					closedInCall.Add(1)
				}
			}
			return err
		}))
	}
	q := f.queueOn(cli, func(string) bool { return true })
	done := q.StartConsume()
	eventually(t, "it waits", func() bool { return waits.Load() > 0 && blockedClients(t, f) > 0 })
	q.StopConsume()
	receive(t, "it stops", done)
	if cut.Load() == 0 || closedInCall.Load() > 0 {
		t.Errorf("%d calls were cut, in %d of them the client was closed", cut.Load(), closedInCall.Load())
	}
	for _, own := range clients {
		eventually(t, "it is closed afterwards", func() bool { return isClosed(own) })
	}
}

// TestHints: of those that nobody has received yet, the earliest is kept.
func TestHints(t *testing.T) {
	h, now := newHints(), time.Now()
	for _, in := range []time.Duration{2, 1, 3} {
		h.put(now.Add(in))
	}
	if at := <-h; !at.Equal(now.Add(1)) {
		t.Errorf("the earliest is %v after now", at.Sub(now))
	}
	h.put(now)
	receive(t, "one after that", h)
}
