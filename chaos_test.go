package delayqueue

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"
)

// settledDown checks the counts of a consumer that has ended and whose callbacks have returned:
// what is left over there stalls those that follow.
func settledDown(t *testing.T, c *consumer) {
	t.Helper()
	<-c.lifecycle.done
	eventually(t, "every count of the consumer is zero", func() bool {
		return c.workers.unhandled.Load() == 0 && c.workers.running.size() == 0 && c.leases.held.totals() == heldSums{} && len(c.leases.held.all()) == 0
	})
	slots := c.workers.slots
	slots.mu.Lock()
	defer slots.mu.Unlock()
	if slots.used != 0 || slots.stuck != 0 {
		t.Errorf("%d slots are in use, and %d callbacks stuck", slots.used, slots.stuck)
	}
}

// TestChaos: limits, short leases, interceptions and impatient shutdowns all at once.
func TestChaos(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const rounds, messages = 12, 60
	for round := range rounds {
		q := NewQueue(f.name, f.cli, nil).WithLogger(slog.New(slog.DiscardHandler)).WithConcurrent(8).
			WithLease(100 * time.Millisecond).WithMaxConsumeDuration(40 * time.Millisecond).WithNackRedeliveryDelay(time.Millisecond).
			WithHandler(func(ctx context.Context, _ *Message) error {
				if rand.IntN(2) == 0 {
					<-ctx.Done()
				} else {
					time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond)
				}
				return nil
			})
		q.StartConsume()
		var infos []*MessageInfo
		for range messages {
			infos = append(infos, f.send(q, fmt.Sprint(round), WithRetryCount(2)))
		}
		for range messages / 2 {
			if _, err := q.Cancel(context.Background(), infos[rand.IntN(messages)].ID); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Millisecond)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(20))*time.Millisecond)
		_ = q.Shutdown(ctx)
		cancel()
		settledDown(t, q.current())
		f.check()
	}
}
