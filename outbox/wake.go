package outbox

import (
	"context"
	"fmt"
	"reflect"
	"time"
)

// Committed says that a transaction with rows of this Box was committed. Then they are in Redis within some
// milliseconds, and otherwise within a second or so. It does not wait, and may be called in any process that has a
// Box, often and without need.
func (b *Box) Committed() {
	for _, r := range b.relays {
		r.wake()
		if r.holds.Load() {
			continue
		}
		if r.unpublished.Add(1) == 1 {
			go r.publish()
		}
	}
}

// wake has this Box look for rows now, if it relays.
func (r *relay) wake() {
	select {
	case r.wakes <- struct{}{}:
	default: // it is about to look
	}
}

// publish tells the Box that relays, once for all calls of Committed that came before. If that fails, it finds the rows
// when it looks next.
func (r *relay) publish() {
	for {
		seen := r.unpublished.Load()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		cli, _ := r.queue.Redis()
		_ = cli.Publish(ctx, r.channel, "").Err()
		cancel()
		if r.unpublished.CompareAndSwap(seen, 0) {
			return
		}
	}
}

// byClient are the relays by the client of their queues.
func (b *Box) byClient() map[any][]*relay {
	all := map[any][]*relay{}
	for _, r := range b.relays {
		var key any = r // a client of the user's own type, which cannot be compared
		if cli, _ := r.queue.Redis(); reflect.ValueOf(cli).Comparable() {
			key = cli
		}
		all[key] = append(all[key], r)
	}
	return all
}

// subscribe hears other Boxes tell of rows, until ctx ends. The relays share a client, and so a connection.
func subscribe(ctx context.Context, relays []*relay) {
	cli, _ := relays[0].queue.Redis()
	channels := make([]string, len(relays))
	for i, r := range relays {
		channels[i] = r.channel
	}
	told := cli.Subscribe(ctx, channels...)
	defer told.Close()
	messages := told.Channel()
	for {
		select {
		case <-ctx.Done():
			return
		case message, open := <-messages:
			if !open {
				return
			}
			for _, r := range relays {
				if r.channel == message.Channel {
					r.wake()
				}
			}
		}
	}
}

// A Notifier waits for a notification of PostgreSQL, as *pgx.Conn does.
type Notifier[N any] interface {
	WaitForNotification(ctx context.Context) (N, error)
}

// Listen calls Committed at each notification that conn gets, until ctx ends, and returns nil then. It is for rows that
// are written where nobody calls Committed. One process that listens is enough. The tables must have the trigger of
// Dialect.WithNotify, and conn must have said LISTEN delayqueue_outbox (the prefix and "outbox"). An error of conn ends
// Listen: make the connection anew.
func Listen[N any](ctx context.Context, b *Box, conn Notifier[N]) error {
	for {
		_, err := conn.WaitForNotification(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("outbox: listen: %w", err)
		}
		b.Committed()
	}
}
