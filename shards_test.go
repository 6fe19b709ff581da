package delayqueue_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/redis/go-redis/v9"
)

func TestShards(t *testing.T) {
	cluster := redistest.StartCluster(t, 3, 0)
	cli := cluster.Client(t)
	var mu sync.Mutex
	got := map[string]int{}
	q := delayqueue.NewQueue("orders", cli, func(payload string) bool {
		mu.Lock()
		defer mu.Unlock()
		got[payload]++
		return true
	}, delayqueue.WithShards(6)).WithConcurrent(8)
	done := q.StartConsume()
	for i := range 100 {
		if err := q.SendDelayMsg(fmt.Sprint(i), 100*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		if err := q.SendDelayMsg(fmt.Sprint("k", i), 100*time.Millisecond, delayqueue.WithKey(fmt.Sprint("key-", i))); err != nil {
			t.Fatal(err)
		}
	}
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		mu.Lock()
		n := len(got)
		mu.Unlock()
		if n == 200 {
			break
		}
	}
	t.Log(len(got))
	for _, k := range cli.Keys(context.Background(), "*").Val() {
		t.Log(k)
	}
	cli.ForEachMaster(context.Background(), func(ctx context.Context, c *redis.Client) error {
		t.Log(c.Options().Addr, c.Keys(ctx, "*").Val())
		return nil
	})
	q.StopConsume()
	<-done
}
