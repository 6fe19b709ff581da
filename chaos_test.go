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
		return c.member.unhandled() == 0 && c.leases.held.totals() == heldSums{} && len(c.leases.held.all()) == 0
	})
	ws := c.member.workers
	eventually(t, "every count of the workers is zero", func() bool {
		ws.mu.Lock()
		defer ws.mu.Unlock()
		return ws.used == 0 && len(ws.stuck) == 0 && ws.taken == 0 && len(ws.running) == 0 && len(ws.filled) == 0 && len(ws.hungry) == 0
	})
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
