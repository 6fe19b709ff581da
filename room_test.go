package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestThousandQueues: a thousand queues of one process share at most 20 connections, whatever they do at once, and each
// message is handled at its time.
func TestThousandQueues(t *testing.T) {
	t.Parallel()
	f, server := ownServer(t)
	const n = 1000
	cli := redis.NewClient(&redis.Options{Addr: server.Addr(), ClientName: "tenants"})
	t.Cleanup(func() { _ = cli.Close() })
	highest := 0
	open := func() int {
		list, err := f.cli.ClientList(ctxB).Result()
		f.must(err)
		return strings.Count(list, "name=tenants ")
	}
	slow := false
	count := func() {
		highest = max(highest, open()-widenings(cli))
		slow = slow || uneasy(cli)
	}
	var handled atomic.Int64
	queues := tenants(f, cli, n, func(string) { handled.Add(1) })
	count()
	reaches(t, "all listen", n, func() int {
		count()
		return waiting(queues[0].store.cli)
	})
	publishers := f.client2(server.Addr())
	due := time.Now().Add(3 * time.Second) // half of them at one instant, the others one by one
	for i, q := range queues {
		at := due
		if i%2 == 0 {
			at = due.Add(time.Duration(i) * time.Millisecond)
		}
		if err := NewPublisher(q.store.queue, publishers).SendScheduleMsg("x", at); err != nil {
			t.Fatal(err)
		}
	}
	if early := handled.Load(); early > 0 && time.Now().Before(due) {
		t.Errorf("%d were handled early", early)
	}
	reaches(t, "messages are handled before the first tick", n, func() int {
		count()
		return int(handled.Load())
	})
	for _, q := range queues {
		q.StopConsume()
	}
	for _, q := range queues {
		count()
		f.must(q.Shutdown(within(t, patience)))
	}
	most := 20
	if slow || strings.Contains(f.log.String(), "cannot w") { // work with Redis, or wait for wake-ups: a slow machine replaced some
		most *= 2
	}
	if highest > most {
		t.Errorf("there were %d connections, want at most %d", highest, most)
	}
	eventually(t, "all connections are closed", func() bool { return open() == 0 }) // count would keep the link in use
}

// widenings is how many connections more the consumers of a client have than where the server is near, for a slow machine
// ends no call for a while.
func widenings(cli redis.UniversalClient) (n int) {
	l := linkOf(cli)
	defer l.release()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.pools {
		n += linkPool - p.kept[consuming] - linkFew
	}
	return n
}

// uneasy reports whether an attempt of a client was not answered in time, so that its connection is replaced, and listened to.
func uneasy(cli redis.UniversalClient) (is bool) {
	l := linkOf(cli)
	defer l.release()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.promptness {
		is = is || p.uneasy.Load()
	}
	return is
}

// waiting is how many queues wait for a marker, in calls that are under way, on all lines of a client.
func waiting(cli redis.UniversalClient) (n int) {
	l := linkOf(cli)
	defer l.release()
	l.lines.mu.Lock()
	defer l.lines.mu.Unlock()
	for _, w := range l.lines.all {
		if w.call != nil {
			n += len(w.call.listeners)
		}
	}
	return n
}

func (f *fixture) client2(addr string) *redis.Client {
	cli := redis.NewClient(&redis.Options{Addr: addr})
	f.t.Cleanup(func() { _ = cli.Close() })
	return cli
}

// TestServerIsFull: at maxclients queues go on over the connections that they have, dial now and then, and leave
// the next place to whoever wants it.
func TestServerIsFull(t *testing.T) {
	t.Parallel()
	const queues, places = 60, 8
	f, server := ownServer(t, "--maxclients", fmt.Sprint(places))
	f.must(f.cli.Ping(ctxB).Err()) // it has one of them
	got := make(chan string, 4*queues)
	begun := time.Now()
	all := tenants(f, f.client2(server.Addr()), queues, func(name string) { got <- name })
	reaches(t, "all wait", queues, func() int { return waiting(all[0].store.cli) })
	for _, q := range all {
		f.send(q, "x", WithDelay(10*time.Millisecond))
	}
	for range all {
		receive(t, "it is handled before the first tick", got)
	}
	dials := infoNumber(t, f, "stats", "rejected_connections:%d")
	// Where the machine is slow, attempts end in vain, and each consumer may have its line dial anew. Queues that did not share
	// their backoff would dial some 400 times in the first second.
	if most := 4*queues + 10*int(1+time.Since(begun)/time.Second); dials == 0 || dials > most {
		t.Errorf("the server has refused %d connections, want some, and at most %d", dials, most)
	}
	f.must(f.cli.ConfigSet(ctxB, "maxclients", fmt.Sprint(places+places)).Err())
	for range 3 {
		stranger := f.client2(server.Addr())
		eventually(t, "a stranger gets in", func() bool { return stranger.Ping(ctxB).Err() == nil })
	}
}

// TestFullServerIsNotDialledMore: neither calls that take long, nor one that gets no answer, make a link try for more connections
// than the server has room for.
func TestFullServerIsNotDialledMore(t *testing.T) {
	t.Parallel()
	l := linkOf(newFixture(t).client())
	defer l.release()
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.room.end()
	p := l.newPool("")
	widens := func() int {
		p.putAt = time.Now().Add(-time.Hour)
		before := p.kept[consuming]
		l.mu.Unlock()
		defer l.mu.Lock()
		l.widen(p)
		return before - p.kept[consuming] // nobody else has it
	}
	if n := widens(); n != 1 {
		t.Errorf("widened by %d", n)
	}
	for of, n := range map[side]int{producing: linkPool, consuming: 3} {
		for range n {
			p.keep(of)
			p.refused[of]++
		}
	}
	if n := widens(); n != 0 {
		t.Errorf("widened by %d at a full server", n)
	}
	for range 2 {
		l.retire(p)
		p = l.newPool("")
		if p.refused != [sides]int{linkPool - 1, 3} || p.kept != [sides]int{linkPool - 1, linkPool - linkFew + 3} ||
			len(p.inFlight[consuming]) != p.kept[consuming] {
			t.Errorf("the next pool has %d places that are empty, of %d that are kept", p.refused, p.kept)
		}
		if l.room.probe == nil {
			t.Error("nobody will fill them")
		}
	}
	l.room.end()
	for range linkPool + 2 {
		l.fillPlace()
	}
	if p.refused != [sides]int{} || p.kept != [sides]int{0, linkPool - linkFew} {
		t.Errorf("%d are empty at last, of %d", p.refused, p.kept)
	}
	l.retire(p)
	if p = l.newPool(""); p.refused != [sides]int{} {
		t.Errorf("%d are empty afterwards", p.refused)
	}
	l.retire(p)
}

// TestServerIsFullFromTheStart: whoever gets no connection says why, and goes on when there is room.
func TestServerIsFullFromTheStart(t *testing.T) {
	t.Parallel()
	f, server := ownServer(t, "--maxclients", "1")
	f.must(f.cli.Ping(ctxB).Err())
	got := make(chan string, 1)
	q := f.queueOn(f.client2(server.Addr()), func(payload string) bool { got <- payload; return true })
	q.StartConsume()
	_, err := q.Send(q.batcher.untilFailure(), "x")
	var failed *SendError
	if !errors.As(err, &failed) || failed.Stored != StoredNo || !strings.Contains(err.Error(), "maxclients") {
		t.Errorf("Send: %v", err)
	}
	eventually(t, "the log says why", func() bool { return f.log.count("cannot work with Redis", "maxclients") > 0 })
	f.must(f.cli.ConfigSet(ctxB, "maxclients", "100").Err())
	f.send(q, "y")
	if p := receive(t, "it is handled", got); p != "y" {
		t.Errorf("handled %q", p)
	}
}

// TestPace: consumers have few connections to a near server, and more the farther it is.
func TestPace(t *testing.T) {
	t.Parallel()
	for fastest, want := range map[time.Duration]int{
		50 * time.Microsecond: linkFew, 999 * time.Microsecond: linkFew,
		time.Millisecond: 16, 3 * time.Millisecond: 48, time.Second: linkPool,
	} {
		var p pace
		for range paceLeast - 1 {
			p.note(time.Second)
		}
		if n := p.connections(); n != linkFew {
			t.Errorf("%d connections after %d calls", n, paceLeast-1)
		}
		p.note(fastest)
		if n := p.connections(); n != want {
			t.Errorf("%v: %d connections, want %d", fastest, n, want)
		}
		for range 2 * paceCalls {
			p.note(time.Second)
		}
		if n := p.connections(); n != linkPool {
			t.Errorf("%d connections when the server is far at last", n)
		}
	}
}

// TestLinkWidens: consumers whose calls all take long get more connections, one after the other.
func TestLinkWidens(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	cli := f.client()
	l := linkOf(cli)
	defer l.release()
	var p *pool
	for range linkFew + 2 {
		var err error
		p, err = l.take(within(t, patience), "", consuming)
		f.must(err)
	}
	for range linkFew + 2 {
		l.put(p, consuming, time.Time{}, nil)
	}
}

// TestStopWithoutNetwork: queues whose calls get no connection, for nothing answers a dial, stop without waiting.
func TestStopWithoutNetwork(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	network := &deadEnd{ended: make(chan struct{})}
	network.on.Store(true)
	cli := redis.NewClient(&redis.Options{Addr: shared.Addr(), Dialer: network.dial})
	t.Cleanup(func() { _ = cli.Close() })
	t.Cleanup(func() { close(network.ended) })
	var all []<-chan struct{}
	for range 100 {
		q := noTick(f.queueOn(cli, func(string) bool { return true }))
		all = append(all, q.StartConsume())
		defer func() { _ = q.Shutdown(context.Background()) }()
		if len(all)%2 == 0 {
			q.StopConsume()
		}
	}
	eventually(t, "the log says so", func() bool { return f.log.count("cannot work with Redis") > 0 })
	for i, done := range all {
		if i%2 == 1 {
			receive(t, "it has stopped within less than a lease", done)
		}
	}
}
