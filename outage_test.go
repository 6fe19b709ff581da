package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// TestOutageAlmostAsLongAsTheLease: handlers that run through it are not handed out again,
// although not all consumers find back at the same moment.
func TestOutageAlmostAsLongAsTheLease(t *testing.T) {
	t.Parallel()
	f, wire, _ := wired(t)
	const lease = 9 * time.Second // much more than a call takes on a slow machine
	var runs tally
	release := make(chan struct{})
	handler := func(_ context.Context, msg *Message) error {
		runs.add(msg.Payload)
		<-release // whatever its context says: to this process the lease may be over
		return nil
	}
	for range 3 {
		// A pool of 10 refuses to dial for up to a second once it has failed 10 times.
		cli := redis.NewClient(&redis.Options{Addr: wire.Addr(), DialerRetries: 1, PoolSize: 10})
		t.Cleanup(func() { _ = cli.Close() })
		f.queueOn(cli, nil).WithLease(lease).WithConcurrent(8).WithHandler(handler).StartConsume()
	}
	q := f.queue(nil)
	for i := range 20 {
		f.send(q, strconv.Itoa(i))
	}
	eventually(t, "all run", func() bool { n, _ := runs.counts(); return n == 20 })
	for range 2 {
		wire.Cut()
		time.Sleep(lease * 6 / 10) // the outage
		wire.Mend()
		mended := f.check().Now
		eventually(t, "every lease has been renewed", func() bool {
			state := f.check()
			for _, e := range state.Unack {
				if e.Score < mended+lease.Microseconds() {
					return false
				}
			}
			return len(state.Unack) == 20
		})
	}
	if n := f.log.count("leases ran out"); n > 0 {
		t.Errorf("leases of living consumers ran out, %d times", n)
	}
	close(release)
	eventually(t, "all are acked", func() bool { return len(f.check().Messages) == 0 })
	if _, total := runs.counts(); total != 20 {
		t.Errorf("handled %d times, want 20", total)
	}
}

// TestStoodStill: a consumer that gets a fetch's reply when the lease is over, as after SIGSTOP or
// the pause of a virtual machine, starts no handler for it.
func TestStoodStill(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	cli := f.client()
	struck, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	hookOwn(t, cli, commandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		err := next(ctx, cmd)
		if args := cmd.Args(); err == nil && len(args) > 1 && args[1] == fetchScript.sha {
			once.Do(func() { close(struck); <-release })
		}
		return err
	}))
	var got tally
	consumer := func(name string, cli redis.UniversalClient, lease time.Duration) *DelayQueue {
		return f.queueOn(cli, nil).WithLease(lease).WithHandler(func(_ context.Context, msg *Message) error {
			got.add(fmt.Sprintf("%s, %s, delivery %d", msg.Payload, name, msg.Delivery))
			return nil
		})
	}
	f.send(f.queue(nil), "x")
	frozen := consumer("frozen", cli, 2*time.Second)
	frozen.StartConsume()
	receive(t, "it stands still with the fetch's reply", struck)
	consumer("other", f.client(), time.Minute).StartConsume()
	eventually(t, "the other has handled it", func() bool { return got.of("x, other, delivery 2") == 1 })
	close(release)
	eventually(t, "the frozen one gives it up", func() bool { return f.log.count("came too late") == 1 })
	if _, total := got.counts(); total != 1 {
		t.Errorf("handled %d times, want once", total)
	}
}

// TestKeysVanish: a flush under a running consumer is said once, and what is sent afterwards works.
func TestKeysVanish(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	f := fixtureOn(t, redis.NewClient(&redis.Options{Addr: server.Addr()}))
	var got tally
	q := f.queue(func(payload string) bool { got.add(payload); return true })
	var events atomic.Int64
	defer q.ListenEvent(func(e Event) {
		if e.Code == VanishedEvent {
			events.Add(int64(e.Count))
		}
	}).Stop()
	q.StartConsume()
	f.send(q, "before")
	eventually(t, "it is handled", func() bool { return got.of("before") == 1 && len(f.check().Messages) == 0 })
	const vanished = "keys of this queue have vanished"
	if n := f.log.count(vanished); n != 0 {
		t.Errorf("%q is in the log %d times before anything has", vanished, n)
	}
	if err := f.cli.FlushAll(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is in the log", func() bool { return f.log.count(vanished) == 1 })
	eventually(t, "an event says so", func() bool { return events.Load() == 1 })
	f.send(q, "after")
	eventually(t, "what is sent afterwards is handled", func() bool { return got.of("after") == 1 })
	if n := f.log.count(vanished); n != 1 {
		t.Errorf("%q is in the log %d times", vanished, n)
	}
}

// TestOutageLog: an outage is in the log once, however many calls fail, and it is over when all of them work again.
func TestOutageLog(t *testing.T) {
	log := &logBuffer{}
	o := &outage{log: slog.New(slog.NewTextHandler(log, nil))}
	long, soon := time.Now().Add(-time.Hour), time.Now().Add(time.Hour) // what began in the future has not lasted for long
	for i, step := range []struct {
		call         string
		begun        time.Time
		err          error
		begins, ends int // lines of the log from here on
		failing      bool
	}{
		{"fetch", soon, errBoom, 0, 0, true},
		{"fetch", long, errBoom, 0, 0, true}, // it counts from the first failure
		{"fetch", soon, nil, 0, 0, false},
		{"fetch", long, errBoom, 0, 0, false}, // another attempt has got through since it began
		{"extend", long, errBoom, 1, 0, true},
		{"settle", long, io.EOF, 1, 0, true},
		{"extend", long, nil, 1, 0, true},
		{"fetch", soon, nil, 1, 0, true},
		{"settle", long, nil, 1, 1, false},
		{"settle", long, nil, 1, 1, false},
		{"settle", long, io.EOF, 1, 1, false},
		{"send", long, io.EOF, 2, 1, true},
	} {
		o.report(step.call, step.begun, step.err)
		if begins, ends := log.count("cannot work with Redis"),
			log.count("working with Redis again"); begins != step.begins || ends != step.ends {
			t.Errorf("step %d: %d and %d lines, want %d and %d", i, begins, ends, step.begins, step.ends)
		}
		if (o.cause() != nil) != step.failing {
			t.Errorf("step %d: the cause is %v", i, o.cause())
		}
	}
}

// TestOutageAfterAGap: a send that failed once and was given up does not make an outage of one that fails hours later.
func TestOutageAfterAGap(t *testing.T) {
	log := new(logBuffer)
	o := &outage{log: slog.New(slog.NewTextHandler(log, nil))}
	fails := func(what string, since, last, begun time.Duration, outages int) {
		t.Helper()
		o.mu.Lock()
		o.failing = map[string]failing{"send": {time.Now().Add(since), time.Now().Add(last)}}
		o.mu.Unlock()
		o.report("send", time.Now().Add(begun), errBoom)
		if n := log.count("cannot work with Redis", "call=send"); n != outages {
			t.Errorf("%s: %d outages", what, n)
		}
	}
	o.report("send", time.Now(), nil)
	fails("hours after it", -3*time.Hour, -3*time.Hour, time.Hour, 0) // it began in the future: no machine is slow enough
	fails("at once", -time.Hour, 0, time.Second, 1)
}

// TestOutageUnderLoad covers a restart of Redis, dropped connections and SCRIPT FLUSH under load:
// logged once, and consuming goes on by itself.
func TestOutageUnderLoad(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault   func(server *redistest.Server, wire *redistest.Wire, admin *redis.Client, noticed func())
		outages int
	}{
		"Redis restarts": {func(server *redistest.Server, _ *redistest.Wire, _ *redis.Client, noticed func()) {
			server.Kill()
			noticed()
			server.Restart(t)
		}, 1},
		"connections drop": {func(_ *redistest.Server, wire *redistest.Wire, _ *redis.Client, noticed func()) {
			wire.Cut()
			noticed()
			wire.Mend()
		}, 1},
		"SCRIPT FLUSH": {func(_ *redistest.Server, _ *redistest.Wire, admin *redis.Client, _ func()) {
			for range 5 {
				if err := admin.ScriptFlush(ctxB).Err(); err != nil {
					t.Error(err)
				}
				time.Sleep(20 * time.Millisecond)
			}
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
			wire := redistest.NewWire(t, server.Addr())
			f := fixtureOn(t, redis.NewClient(&redis.Options{Addr: server.Addr()}))
			cli := redis.NewClient(&redis.Options{Addr: wire.Addr(), DialerRetries: 1})
			t.Cleanup(func() { _ = cli.Close() })
			var got tally
			q := f.queueOn(cli, nil).WithConcurrent(4).WithHandler(func(_ context.Context, msg *Message) error {
				got.add(msg.Payload)
				if msg.Failures > 0 {
					t.Errorf("message %s used a retry", msg.Payload)
				}
				return nil
			})
			q.StartConsume()
			const n, away = 400, "cannot work with Redis"
			var accepted atomic.Int64
			sent := make(chan struct{})
			ctx := within(t, 5*patience)
			go func() {
				defer close(sent)
				for i := range n {
					if _, err := q.Send(ctx, strconv.Itoa(i), WithDelay(time.Duration(i%50)*time.Millisecond)); err != nil {
						t.Errorf("send %d: %v", i, err)
					}
					accepted.Add(1)
				}
			}()
			reaches(t, "half is sent", n/2+1, func() int { return int(accepted.Load()) })
			c.fault(server, wire, server.Client(t), func() {
				eventually(t, "what sends and what consumes have noticed", func() bool {
					return f.log.count(away, "call=send") >= c.outages && f.log.count(away) >= 2*c.outages
				})
			})
			reaches(t, "all sends return", n, func() int { return int(accepted.Load()) })
			receive(t, "the sender ends", sent)
			f.drained()
			if distinct, _ := got.counts(); distinct != n {
				t.Errorf("%d of %d are handled", distinct, n)
			}
			// What sends and what consumes each say it.
			eventually(t, "the ends are in the log", func() bool {
				return f.log.count("working with Redis again") == max(2*c.outages, f.log.count(away))
			})
			// An attempt without an answer in time is an outage too, of a machine that stands still.
			const slow = "within "
			all, ofSends := f.log.count(away), f.log.count(away, "call=send")
			if all < 2*c.outages || ofSends < c.outages || all-f.log.count(away, slow) > 2*c.outages ||
				ofSends-f.log.count(away, "call=send", slow) > c.outages {
				t.Errorf("%d outages in the log, %d of them of sends, want %d of sends and as many of the consumer", all, ofSends, c.outages)
			}
			if _, total := got.counts(); total != n {
				t.Errorf("handled %d times, want %d: the data was kept", total, n)
			}
		})
	}
}

func TestFlushAllUnderRunningConsumers(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	f := fixtureOn(t, redis.NewClient(&redis.Options{Addr: server.Addr()}))
	started, release, finished := make(chan string, 3), make(chan struct{}), make(chan string, 3)
	q := f.queue(func(payload string) bool {
		started <- payload
		if payload == "running" {
			<-release
		}
		finished <- payload
		return true
	}).WithConcurrent(2).WithLease(time.Minute) // no renewal notices
	q.StartConsume()
	f.send(q, "running")
	receive(t, "it runs", started)
	f.send(q, "waiting", WithDelay(time.Hour))
	if err := f.cli.FlushAll(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	close(release)
	receive(t, "what was running finishes", finished)
	eventually(t, "its settlement is void", func() bool { return f.log.count("came too late") == 1 })
	f.send(q, "new", WithDelay(20*time.Millisecond))
	if p := receive(t, "new messages work", started); p != "new" {
		t.Errorf("got %q", p)
	}
	eventually(t, "it is settled", func() bool { return len(f.check().Messages) == 0 })
}

// TestOutageLongerThanTheLease: handlers that run right through it are not handed out again. Their contexts end with
// the leases, as far as those are known; what they return counts all the same.
func TestOutageLongerThanTheLease(t *testing.T) {
	t.Parallel()
	f, wire, _ := wired(t)
	cli := redis.NewClient(&redis.Options{Addr: wire.Addr(), DialerRetries: 1})
	t.Cleanup(func() { _ = cli.Close() })
	const lease = 6 * time.Second // much more than a call takes on a slow machine
	var runs tally
	release, causes := make(chan struct{}), make(chan error, 4)
	handler := func(ctx context.Context, msg *Message) error {
		runs.add(msg.Payload)
		<-ctx.Done()
		causes <- context.Cause(ctx)
		<-release
		if msg.Payload == "0" && runs.of("0") == 1 {
			return ctx.Err() // no failure of its own
		}
		return nil
	}
	for range 2 {
		f.queueOn(cli, nil).WithLease(lease).WithConcurrent(3).WithHandler(handler).StartConsume()
	}
	q := f.queue(nil)
	for i := range 4 {
		f.send(q, strconv.Itoa(i), WithRetryCount(0))
	}
	eventually(t, "all run", func() bool { n, _ := runs.counts(); return n == 4 })
	wire.Cut()
	for range 4 {
		if cause := receive(t, "its context ends", causes); !errors.Is(cause, ErrDeliveryLost) {
			t.Errorf("its context ends for %v", cause)
		}
	}
	wire.Mend()
	eventually(t, "the leases are renewed", func() bool {
		state := f.check()
		ok := len(state.Unack) == 4
		for _, e := range state.Unack {
			ok = ok && e.Score > state.Now
		}
		return ok
	})
	close(release)
	eventually(t, "the one that failed for its context is handed out again", func() bool { return runs.of("0") == 2 })
	wire.Cut() // its context waits for that
	receive(t, "its context ends", causes)
	wire.Mend()
	eventually(t, "all are acked", func() bool { return len(f.check().Messages) == 0 })
	if _, total := runs.counts(); total != 5 {
		t.Errorf("handled %d times, want 5", total)
	}
}

// TestOutageIsNoRoundTrip: after it, no more is fetched ahead than before.
func TestOutageIsNoRoundTrip(t *testing.T) {
	t.Parallel()
	f, wire, _ := wired(t)
	cli := redis.NewClient(&redis.Options{Addr: wire.Addr(), DialerRetries: 1})
	t.Cleanup(func() { _ = cli.Close() })
	var handled, most, longest atomic.Int64
	hookOwn(t, cli, commandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		begun := time.Now()
		err := next(ctx, cmd)
		if err == nil {
			longest.Store(max(longest.Load(), int64(time.Since(begun))))
		}
		return err
	}))
	q := f.queueOn(cli, nil)
	q.WithHandler(func(context.Context, *Message) error {
		most.Store(max(most.Load(), int64(q.current().member.unhandled())))
		time.Sleep(5 * time.Millisecond)
		handled.Add(1)
		return nil
	})
	sender := f.queue(nil)
	send := func(n int) {
		t.Helper()
		if _, err := sender.SendBatch(context.Background(), make([]Outgoing, n)); err != nil {
			t.Fatal(err)
		}
	}
	send(20)
	q.StartConsume()
	eventually(t, "20 are handled", func() bool { return handled.Load() == 20 })
	wire.Cut()
	time.Sleep(2 * time.Second) // the outage
	send(200)
	wire.Mend()
	reaches(t, "the rest is handled", 220, func() int { return int(handled.Load()) })
	if n, trip := most.Load(), time.Duration(longest.Load()); n > 60+4*int64(trip/(5*time.Millisecond)) {
		t.Errorf("one worker of 5 ms held %d messages, with round trips of %v at most", n, trip)
	}
}
