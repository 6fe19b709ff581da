package delayqueue

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/redis/go-redis/v9"
)

// tenants starts queues without ticks on one client. Each tells got its name when it handles a message.
func tenants(f *fixture, cli redis.UniversalClient, n int, got func(name string)) (all []*DelayQueue) {
	for i := range n {
		name := fmt.Sprintf("%s-%d", f.name, i)
		q := noTick(NewQueue(name, cli, func(string) bool { got(name); return true })).WithLogger(slog.New(slog.NewTextHandler(f.log, nil)))
		all = append(all, q)
		q.store.attemptTimeout = time.Hour // a slow machine is no reason for a second connection
		q.StartConsume()
	}
	f.t.Cleanup(func() {
		for _, q := range all {
			q.StopConsume()
		}
		ctx, cancel := context.WithTimeout(ctxB, patience)
		defer cancel()
		for _, q := range all {
			f.must(q.Shutdown(ctx))
			check.AssertEmpty(f.t, f.cli, "dq", q.store.queue)
			for _, key := range q.store.keys.all {
				f.cli.Del(ctxB, key.(string))
			}
		}
	})
	return all
}

// TestWakeUpIsPassedOnByStoppedTenant: a queue that shares a line stops while its marker is on the way, or is lost. Another
// consumer serves the message, and so do the queues that stay theirs.
func TestWakeUpIsPassedOnByStoppedTenant(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]bool{"on the way": false, "lost": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, wire, cli := wired(t)
			got := make(chan string, 10)
			queues := tenants(f, cli, 2*maxWakeLines, func(name string) { got <- name })
			ofOne := queues[0].current().wakeUps
			eventually(t, "all listen, two on each line", func() bool {
				lines := &ofOne.store.link.lines
				lines.mu.Lock()
				defer lines.mu.Unlock()
				n := 0
				for _, w := range lines.all {
					if w.call != nil && w.call.wait == wakeBlock {
						n += len(w.call.listeners)
					}
				}
				return n == len(queues)
			})
			stopped, beside := queues[0], besides(t, queues, ofOne)
			// The next reply to a call with its key is held, or lost.
			holds := func(cmd []string) bool { return cmd[0] == "bzpopmin" && slices.Contains(cmd, ofOne.store.keys.wake) }
			struck, release := wire.HoldReply(holds)
			f.send(beside, "first") // so that there is a next call
			receive(t, "it is handled", got)
			other := noTick(NewQueue(stopped.store.queue, f.cli, func(string) bool { got <- "other"; return true })).
				WithLogger(slog.New(slog.NewTextHandler(f.log, nil)))
			f.send(other, "x", WithDelay(time.Second))
			receive(t, "the reply is held", struck)
			done := stopped.StartConsume()
			stopped.StopConsume()
			if other.StartConsume(); !lost {
				release()
			}
			receive(t, "it stops", done)
			if by := receive(t, "it arrives before the first tick", got); by != "other" {
				t.Errorf("handled by %s", by)
			}
			release()
			f.send(beside, "x", WithDelay(50*time.Millisecond))
			if by := receive(t, "the one beside it goes on", got); by != beside.store.queue {
				t.Errorf("handled by %s", by)
			}
			f.must(other.Shutdown(within(t, patience)))
		})
	}
}

// besides is the queue that shares a line with this listener.
func besides(t *testing.T, queues []*DelayQueue, l *wakeListener) *DelayQueue {
	t.Helper()
	lines := &l.store.link.lines
	lines.mu.Lock()
	defer lines.mu.Unlock()
	i := slices.IndexFunc(queues, func(q *DelayQueue) bool {
		other := q.current().wakeUps
		return other != l && other.line == l.line
	})
	return queues[i]
}
