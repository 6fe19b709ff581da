package ops

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
)

func TestConsumers(t *testing.T) { onSharedServer(t, monitorConsumers) }

func monitorConsumers(f *face.Fixture, m *Queue) {
	started, release := make(chan struct{}, 4), make(chan struct{})
	q := f.Queue(func(string) bool { started <- struct{}{}; <-release; return true }).WithConcurrent(3)
	// One that died an hour ago, and something that nobody of ours wrote.
	key := f.Key("consumers")
	f.Must(f.Cli.HSet(queuetest.CtxB, key,
		"dead", fmt.Sprintf("%d 10000000 {}", time.Now().Add(-time.Hour).UnixMicro()), "rubbish", "x").Err())
	begun := time.Now()
	a, b := f.Send(q, "a"), f.Send(q, "b")
	q.StartConsume()
	queuetest.Receive(f.T, "one is handled", started)
	queuetest.Receive(f.T, "the other is handled", started)
	var c Consumer
	queuetest.Eventually(f.T, "it says what it handles", func() bool {
		cs, err := m.Consumers(queuetest.CtxB)
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
		f.T.Errorf("%+v", c)
	}
	queuetest.Eventually(f.T, "the dead have vanished", func() bool { return f.Cli.HLen(queuetest.CtxB, key).Val() == 1 })
	close(release)
	f.Must(q.Shutdown(queuetest.CtxB))
	if left := f.Check().Consumers; len(left) != 0 {
		f.T.Errorf("after the stop: %v", left)
	}
}

// TestConsumerOfRubbish: an entry from the future, as after a step of the clock, or with numbers that nobody writes is not alive,
// and can be written as JSON if it is alive after all.
func TestConsumerOfRubbish(t *testing.T) {
	now := time.Now().UnixMicro()
	for name, entry := range map[string]string{
		"future": fmt.Sprintf("%d 10000000 {}", now+time.Hour.Microseconds()), "end of time": "9223372036854775807 1 {}",
		"before time": "-9223372036854775808 10000000 {}", "no lease": fmt.Sprintf("%d -1 {}", now-4e6), "infinite": "inf inf {}",
		"rubbish": "x", "empty": "", "no JSON": fmt.Sprintf("%d 1 {", now-4e6),
	} {
		if c, alive := consumerOf(name, entry, now); alive {
			t.Errorf("%s is alive: %+v", name, c)
		}
	}
	c, alive := consumerOf("odd times",
		fmt.Sprintf(`%d 10000000 {"up":-9223372036854775808,"handling":[{"id":"a","us":9223372036854775807},{"id":"b","us":-5}]}`, now), now)
	if text, err := json.Marshal(c); !alive || err != nil {
		t.Errorf("alive: %v; %v: %s", alive, err, text)
	}
}
