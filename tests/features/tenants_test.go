package features

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/redis/go-redis/v9"
)

// TestWakeLines: up to eight queues wait as if there were no lines, each on a connection of its own and without a
// command for others. More queues wait on the same eight.
func TestWakeLines(t *testing.T) {
	t.Parallel()
	f, server := face.OwnServer(t)
	const lines = 8 // of a client
	cli, got := server.Client(t), make(chan string, 10*lines)
	waiting, release := face.WaitingFor(cli)
	defer release()
	handle := func(all []*delayqueue.DelayQueue) {
		t.Helper()
		queuetest.Reaches(t, "all listen", len(all), waiting)
		queuetest.Eventually(t, "on eight connections", func() bool { return f.BlockedClients() == lines })
		for _, q := range all {
			f.Send(q, "x", delayqueue.WithDelay(20*time.Millisecond))
			if by := queuetest.Receive(t, "it is handled before the first tick", got); by != q.Name() {
				t.Errorf("handled by %s, want %s", by, q.Name())
			}
		}
	}
	few := tenants(f, cli, lines, func(name string) { got <- name })
	handle(few)
	for _, command := range []string{"id", "unblock"} {
		if n := f.InfoNumber("commandstats", "cmdstat_client|"+command+":calls=%d,"); n != 0 {
			t.Errorf("CLIENT %s was called %d times", command, n)
		}
	}
	more := tenants(&face.Fixture{Base: f.Named(f.Name + "-more")}, cli, 9*lines, func(name string) { got <- name })
	handle(append(few, more...))
}

// tenants starts queues without ticks on one client. Each tells got its name when it handles a message.
func tenants(f *face.Fixture, cli redis.UniversalClient, n int, got func(name string)) (all []*delayqueue.DelayQueue) {
	for i := range n {
		name := fmt.Sprintf("%s-%d", f.Name, i)
		q := face.NoTick(delayqueue.NewQueue(name, cli, func(string) bool { got(name); return true })).WithLogger(f.Logger())
		all = append(all, q)
		q.StartConsume()
	}
	f.T.Cleanup(func() {
		for _, q := range all {
			q.StopConsume()
		}
		for _, q := range all {
			f.Must(q.Shutdown(queuetest.Within(f.T, queuetest.Patience)))
		}
		for _, q := range all {
			check.AssertEmpty(f.T, f.Cli, "dq", q.Name(), 0)
			f.Must(f.Cli.Del(queuetest.CtxB, (check.Queue{Prefix: "dq", Name: q.Name()}).Keys()...).Err())
		}
	})
	return all
}
