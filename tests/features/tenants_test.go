package features

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/redis/go-redis/v9"
)

// wakeLinesOfAClient is how many connections the queues of one client have to wait on.
const wakeLinesOfAClient = 8

// TestWakeUpIsPassedOnByStoppedTenant: a queue that shares a line stops while its marker is on the way, or is lost. Another
// consumer serves the message, and so do the queues that stay theirs.
func TestWakeUpIsPassedOnByStoppedTenant(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]bool{"on the way": false, "lost": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, wire, cli := face.Wired(t)
			got := make(chan string, 10)
			calls, forget := markersOn(wire)
			defer forget()
			queues := tenants(f, cli, 16, func(name string) { got <- name })
			wakeKey := func(q *delayqueue.DelayQueue) string { return check.Queue{Prefix: "dq", Name: q.Name()}.Key("wake") }
			queuetest.Eventually(t, "all listen, two on each line", func() bool {
				return !slices.ContainsFunc(queues, func(q *delayqueue.DelayQueue) bool {
					call := calls(wakeKey(q))
					return len(call) != 4 || call[3] != "10"
				})
			})
			stopped, key := queues[0], wakeKey(queues[0])
			beside := queues[slices.IndexFunc(queues[1:], func(q *delayqueue.DelayQueue) bool { return slices.Contains(calls(key), wakeKey(q)) })+1]
			// The next reply to a call with its key is held, or lost.
			holds := func(cmd []string) bool { return cmd[0] == "bzpopmin" && slices.Contains(cmd, key) }
			struck, release := wire.HoldReply(holds)
			f.Send(beside, "first") // so that there is a next call
			queuetest.Receive(t, "it is handled", got)
			other := face.NoTick(delayqueue.NewQueue(stopped.Name(), f.Cli, func(string) bool { got <- "other"; return true })).
				WithLogger(f.Logger())
			f.Send(other, "x", delayqueue.WithDelay(time.Second))
			queuetest.Receive(t, "the reply is held", struck)
			done := stopped.StartConsume()
			stopped.StopConsume()
			if other.StartConsume(); !lost {
				release()
			}
			queuetest.Receive(t, "it stops", done)
			if by := queuetest.Receive(t, "it arrives before the first tick", got); by != "other" {
				t.Errorf("handled by %s", by)
			}
			release()
			f.Send(beside, "x", delayqueue.WithDelay(50*time.Millisecond))
			if by := queuetest.Receive(t, "the one beside it goes on", got); by != beside.Name() {
				t.Errorf("handled by %s", by)
			}
			f.Must(other.Shutdown(queuetest.Within(t, queuetest.Patience)))
		})
	}
}

// markersOn has a wire note the calls that wait for markers. call returns the last one that waits for a marker with this key.
func markersOn(wire *redistest.Wire) (call func(key string) []string, forget func()) {
	var mu sync.Mutex
	last := map[string][]string{}
	_, forget = wire.HoldReply(func(cmd []string) bool {
		if cmd[0] == "bzpopmin" {
			mu.Lock()
			defer mu.Unlock()
			for _, key := range cmd[1 : len(cmd)-1] {
				last[key] = slices.Clone(cmd)
			}
		}
		return false
	})
	call = func(key string) []string {
		mu.Lock()
		defer mu.Unlock()
		return last[key]
	}
	return call, forget
}

// TestWakeLineAlone: up to eight queues wait as if there were no lines, each on a connection of its own and
// without a command for others.
func TestWakeLineAlone(t *testing.T) {
	t.Parallel()
	f, server := face.OwnServer(t)
	cli, got := server.Client(t), make(chan string, wakeLinesOfAClient)
	queues := tenants(f, cli, wakeLinesOfAClient, func(name string) { got <- name })
	queuetest.Eventually(t, "all listen", func() bool { return f.BlockedClients() == wakeLinesOfAClient })
	for _, q := range queues {
		f.Send(q, "x", delayqueue.WithDelay(20*time.Millisecond))
		queuetest.Receive(t, "it is handled before the first tick", got)
	}
	for _, command := range []string{"id", "unblock"} {
		if n := f.InfoNumber("commandstats", "cmdstat_client|"+command+":calls=%d,"); n != 0 {
			t.Errorf("CLIENT %s was called %d times", command, n)
		}
	}
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
			ctx, cancel := context.WithTimeout(queuetest.CtxB, queuetest.Patience)
			f.Must(q.Shutdown(ctx))
			cancel()
		}
		for _, q := range all {
			check.AssertEmpty(f.T, f.Cli, "dq", q.Name(), 0)
			f.Must(f.Cli.Del(queuetest.CtxB, (check.Queue{Prefix: "dq", Name: q.Name()}).Keys()...).Err())
		}
	})
	return all
}
