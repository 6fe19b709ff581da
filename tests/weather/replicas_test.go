package weather

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/redis/go-redis/v9"
)

// loadsSlowly are arguments of a replica that takes a second for the data of primaryWithData.
var loadsSlowly = []string{"--key-load-delay", "1000"}

func primaryWithData(t *testing.T) *redistest.Server {
	primary := redistest.Start(t, "--repl-diskless-sync-delay", "0")
	pipe := queuetest.RedisClient(t, primary.Addr()).Pipeline()
	for i := range 1000 {
		pipe.Set(queuetest.CtxB, fmt.Sprint("data ", i), strings.Repeat("x", 1000), 0)
	}
	queuetest.Must(t, queuetest.Failure(pipe.Exec(queuetest.CtxB)))
	return primary
}

func startReplica(t *testing.T, primary *redistest.Server, args ...string) *redistest.Server {
	host, port, _ := strings.Cut(primary.Addr(), ":")
	return redistest.Start(t, append([]string{"--replicaof", host, port}, args...)...)
}

// acknowledged is the offset that the primary's one replica has acknowledged, "0" for a replica that has not
// loaded its copy yet.
func acknowledged(t *testing.T, primary *redis.Client) string {
	t.Helper()
	role, err := primary.Do(queuetest.CtxB, "role").Slice()
	if err != nil || len(role) != 3 {
		t.Fatalf("ROLE: %v, %v", role, err)
	}
	replicas, _ := role[2].([]any)
	if len(replicas) == 0 {
		return "no replica"
	}
	return fmt.Sprint(replicas[0].([]any)[2])
}

// TestReplicaThatLoads: what is sent while a primary's first replica comes is confirmed when that replica has
// loaded it, not when it begins to.
func TestReplicaThatLoads(t *testing.T) {
	t.Parallel()
	primary := primaryWithData(t)
	f := face.On(t, redis.NewClient(&redis.Options{Addr: primary.Addr()}))
	q := f.Queue(nil).WithReplicaAck(1, queuetest.Patience)
	type result struct {
		info *delayqueue.MessageInfo
		err  error
		seen string
	}
	sent := make(chan result, 1)
	go func() {
		info, err := q.Send(queuetest.CtxB, "a", delayqueue.WithDelay(time.Hour))
		sent <- result{info, err, acknowledged(t, queuetest.RedisClient(t, primary.Addr()))}
	}()
	queuetest.Eventually(t, "it is stored, and waits for a replica", func() bool { return len(f.Check().Pending) == 1 })
	replica := startReplica(t, primary, loadsSlowly...)
	got := queuetest.Receive(t, "the send returns", sent)
	if got.err != nil {
		t.Fatal(got.err)
	}
	if got.seen == "0" || got.seen == "no replica" {
		t.Errorf("confirmed when the replica had acknowledged %s", got.seen)
	}
	ok, err := queuetest.RedisClient(t, replica.Addr()).HExists(queuetest.CtxB, f.KeyOf(got.info.ID, "msg"),
		got.info.ID).Result()
	if err != nil || !ok {
		t.Errorf("the replica does not have the message: %v", err)
	}
	if n := len(f.Check().Pending); n != 1 {
		t.Errorf("%d messages, want 1: it was stored again under its id", n)
	}
}

// TestNewPrimary: a primary that knows no script, and has no replica, stores a message at once.
func TestNewPrimary(t *testing.T) {
	t.Parallel()
	f := face.On(t, redis.NewClient(&redis.Options{Addr: redistest.Start(t).Addr()}))
	ctx, cancel := context.WithCancel(queuetest.CtxB)
	defer cancel()
	sent := make(chan error, 1)
	go func() {
		_, err := f.Queue(nil).WithReplicaAck(1, time.Hour).Send(ctx, "a", face.InAnHour)
		sent <- err
	}()
	queuetest.Eventually(t, "it is stored", func() bool { return len(f.Check().Pending) == 1 })
	cancel()
	if err := queuetest.Receive(t, "the send returns", sent); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestConfirmationsThatAreSure: with a replica at hand a send is one round, and a batch is there when it returns.
func TestConfirmationsThatAreSure(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t, "--repl-diskless-sync-delay", "0")
	replica := startReplica(t, primary).Client(t)
	f := face.On(t, redis.NewClient(&redis.Options{Addr: primary.Addr()}))
	q := f.Queue(nil).WithReplicaAck(1, queuetest.Patience)
	f.Send(q, "first", delayqueue.WithDelay(time.Hour)) // waits for the replica
	waits := func() int { return f.InfoNumber("commandstats", "cmdstat_wait:calls=%d,") }
	before := waits()
	cli := redis.NewClient(&redis.Options{Addr: primary.Addr()})
	defer cli.Close()
	q = f.QueueOn(cli, nil).WithReplicaAck(1, queuetest.Patience)
	for range 20 {
		f.Send(q, "a", delayqueue.WithDelay(time.Hour))
	}
	// Servers before 7.2 leave it open where the connection has just served another command, which costs a second round.
	if n := waits() - before; n < 2*20 || n > 2*2*20 || n%2 != 0 {
		t.Errorf("%d calls of WAIT for 20 sends, want 2 each, and at most 4", n)
	}
	results, err := q.SendBatch(queuetest.CtxB, make([]delayqueue.Outgoing, 2))
	f.Must(err)
	for _, r := range results {
		if ok, err := replica.HExists(queuetest.CtxB, f.KeyOf(r.Info.ID, "msg"), r.Info.ID).Result(); err != nil || !ok {
			t.Errorf("the replica does not have %s: %v", r.Info.ID, err)
		}
	}
	q.WithReplicaAck(2, 3*time.Second) // a busy replica that is there answers within that
	if _, err := q.Send(queuetest.CtxB, "a", delayqueue.WithDelay(time.Hour)); !errors.Is(err,
		delayqueue.ErrNotReplicated) ||
		!strings.Contains(err.Error(), "1 of 2") {
		t.Errorf("with too few replicas: %v", err)
	}
}

// TestRepeatWaitsAgain: a send whose confirmation may be that of a replica that loads is repeated with the whole time
// for the replicas, however long the first attempt took.
func TestRepeatWaitsAgain(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t, "--repl-diskless-sync-delay", "0")
	startReplica(t, primary)
	f := face.On(t, redis.NewClient(&redis.Options{Addr: primary.Addr()}))
	f.Send(f.Queue(nil).WithReplicaAck(1, queuetest.Patience), "first", face.InAnHour) // waits for the replica
	const timeout = 200 * time.Millisecond
	var waits []any
	t.Cleanup(link.Interpose(f.Cli, queuetest.TripHook(func(cmds []redis.Cmder, next func() error) error {
		err := next()
		if cmds[len(cmds)-1].Name() != "wait" { // a new connection says what it is
			return err
		}
		if waits = append(waits, cmds[len(cmds)-1].Args()[2]); len(waits) == 1 {
			cmds[0].(interface{ SetVal(any) }).SetVal(int64(0)) // no replica was there before
			cmds[2].(*redis.Cmd).SetVal(int64(1))
			time.Sleep(timeout + 50*time.Millisecond)
		}
		return err
	})))
	q := f.Queue(nil).WithReplicaAck(1, timeout)
	if _, err := q.Send(queuetest.CtxB, "x", face.InAnHour); err != nil && !strings.Contains(err.Error(), "within 200ms") {
		t.Error(err)
	}
	if len(waits) < 2 || waits[1] != timeout.Milliseconds() {
		t.Errorf("WAIT was called with %v", waits)
	}
	if n := len(f.Check().Messages); n != 2 {
		t.Errorf("%d messages", n)
	}
}
