package delayqueue

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"
)

func TestConsumers(t *testing.T) { onSharedServer(t, monitorConsumers) }

func monitorConsumers(f *fixture, m *Monitor) {
	started, release := make(chan struct{}, 4), make(chan struct{})
	q := f.queue(func(string) bool { started <- struct{}{}; <-release; return true }).WithConcurrent(3)
	// One that died an hour ago, and something that nobody of ours wrote.
	key := newStore(f.cli, "dq", f.name).keys.consumers
	f.must(f.cli.HSet(ctxB, key,
		"dead", fmt.Sprintf("%d 10000000 {}", time.Now().Add(-time.Hour).UnixMicro()), "rubbish", "x").Err())
	begun := time.Now()
	a, b := f.send(q, "a"), f.send(q, "b")
	q.StartConsume()
	receive(f.t, "one is handled", started)
	receive(f.t, "the other is handled", started)
	var c Consumer
	eventually(f.t, "it says what it handles", func() bool {
		cs, err := m.Consumers(ctxB)
		if err != nil || len(cs) != 1 {
			return false
		}
		c = cs[0]
		return len(c.Handling) == 2
	})
	host, _ := os.Hostname()
	ids := []string{c.Handling[0].ID, c.Handling[1].ID}
	slices.Sort(ids)
	if c.Host != host || c.PID != os.Getpid() || c.Concurrency != 3 || !slices.Equal(ids, []string{a.ID, b.ID}) ||
		c.Since.Before(begun.Add(-time.Second)) ||
		c.Since.After(c.Seen) || c.Handling[0].For < c.Handling[1].For || c.Handling[1].For < 0 || c.Handling[0].For > time.Since(begun) {
		f.t.Errorf("%+v", c)
	}
	eventually(f.t, "the dead have vanished", func() bool { return f.cli.HLen(ctxB, key).Val() == 1 })
	close(release)
	f.must(q.Shutdown(ctxB))
	if left := f.check().Consumers; len(left) != 0 {
		f.t.Errorf("after the stop: %v", left)
	}
}
