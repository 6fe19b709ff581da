package promqueue

import (
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/metrics/internal/scenario"
)

// TestShards: the gauges are sums. If a shard cannot be read there are none, because a smaller sum would look as if
// messages had gone.
func TestShards(t *testing.T) {
	t.Parallel()
	cli := redistest.Start(t).Client(t)
	p := delayqueue.NewPublisher("orders", cli, delayqueue.WithShards(3))
	for range 6 {
		if _, err := p.Send(t.Context(), "x", delayqueue.WithDelay(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	c := NewCollector(Config{})
	t.Cleanup(c.Close)
	c.Watch(delayqueue.NewMonitor("orders", cli))
	read := func() map[string]float64 { return values(t, c) }
	scenario.Eventually(t, read, map[string]float64{"up orders": 1, "messages orders pending": 6})
	key := strings.TrimSuffix(script.NewShard(cli, "dq", "orders", 2, 3).Keys.State, "state") + "waiting"
	if err := cli.Set(t.Context(), key, "another program's", 0).Err(); err != nil {
		t.Fatal(err)
	}
	scenario.Eventually(t, read, map[string]float64{"up orders": 0})
	if n, there := read()["messages orders pending"]; there {
		t.Errorf("%v messages of some shards", n)
	}
}
