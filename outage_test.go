package delayqueue

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
)

// TestOutageAlmostAsLongAsTheLease: handlers that run through it are not handed out again,
// although not all consumers find back at the same moment.
func TestOutageAlmostAsLongAsTheLease(t *testing.T) {
	t.Parallel()
	f, wire, _ := wired(t)
	const lease = 3 * time.Second
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
	consumer := func(name string, cli redis.UniversalClient) *DelayQueue {
		return f.queueOn(cli, nil).WithLease(2 * time.Second).WithHandler(func(_ context.Context, msg *Message) error {
			got.add(fmt.Sprintf("%s, %s, delivery %d", msg.Payload, name, msg.Delivery))
			return nil
		})
	}
	f.send(f.queue(nil), "x")
	frozen := consumer("frozen", cli)
	frozen.StartConsume()
	receive(t, "it stands still with the fetch's reply", struck)
	consumer("other", f.client()).StartConsume()
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

// TestReadOnlyForAMoment: a send that meets a replica is repeated, for the server may just be
// changing places.
func TestReadOnlyForAMoment(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	f := fixtureOn(t, redis.NewClient(&redis.Options{Addr: server.Addr()}))
	admin := server.Client(t)
	ctx := context.Background()
	if err := admin.Do(ctx, "replicaof", "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	var refusals atomic.Int64
	cli := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = cli.Close() })
	hookOwn(t, cli, commandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		err := next(ctx, cmd)
		if err != nil && redis.HasErrorPrefix(err, "READONLY") {
			refusals.Add(1)
			if err := admin.Do(ctx, "replicaof", "no", "one").Err(); err != nil {
				t.Error(err)
			}
		}
		return err
	}))
	if _, err := f.queueOn(cli, nil).Send(ctx, "x", WithDelay(time.Hour)); err != nil {
		t.Errorf("Send: %v", err)
	}
	if refusals.Load() == 0 || len(f.check().Pending) != 1 {
		t.Errorf("%d refusals, %d messages pending, want some and 1", refusals.Load(), len(f.check().Pending))
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
	}{
		{"fetch", soon, errBoom, 0, 0},
		{"fetch", long, errBoom, 0, 0}, // it counts from the first failure
		{"fetch", soon, nil, 0, 0},
		{"fetch", long, errBoom, 1, 0},
		{"settle", long, io.EOF, 1, 0},
		{"fetch", long, nil, 1, 0},
		{"extend", soon, nil, 1, 0},
		{"settle", long, nil, 1, 1},
		{"settle", long, nil, 1, 1},
		{"settle", long, io.EOF, 2, 1},
	} {
		o.report(step.call, step.begun, step.err)
		if begins, ends := log.count("cannot work with Redis"), log.count("working with Redis again"); begins != step.begins || ends != step.ends {
			t.Errorf("step %d: %d and %d lines, want %d and %d", i, begins, ends, step.begins, step.ends)
		}
		if (o.cause() != nil) != (step.err != nil || i == 5 || i == 6) {
			t.Errorf("step %d: the cause is %v", i, o.cause())
		}
	}
}
