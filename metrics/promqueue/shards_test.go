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

// TestShards: the gauges are sums. If a shard cannot be read, they are of the others, and one says so.
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
	scenario.Eventually(t, read, map[string]float64{"up orders": 1, "shards_missing orders": 0,
		"messages orders pending": 6})
	third := strings.TrimSuffix(script.NewShard(cli, "dq", "orders", 2, 3).Keys.State, "state")
	left := 6 - float64(cli.ZCard(t.Context(), third+"pending").Val())
	if err := cli.Set(t.Context(), third+"waiting", "another program's", 0).Err(); err != nil {
		t.Fatal(err)
	}
	scenario.Eventually(t, read, map[string]float64{"up orders": 1, "shards_missing orders": 1,
		"messages orders pending": left})
}
