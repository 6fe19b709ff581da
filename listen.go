package delayqueue

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
)

// reportTime is how long a Monitor tries to publish what it did. A failure is not reported: perhaps nobody listens.
const reportTime = time.Second

func (m *Monitor) publish(e Event) {
	e.By = m.who.by
	_ = m.store.publish(reportTime, []Event{e})
}

// healthCheckInterval is how often a silent connection is tested. A broken one is noticed within two intervals.
const healthCheckInterval = time.Second

// ListenEvent calls a listener for what happens to messages on all machines whose queues and
// publishers report it (EnableReport), and for what Monitors do to the queue, until Stop. It hears what happens from
// its return on; ctx bounds the call alone. Redis keeps no event for one who is not connected: when the connection
// was broken, a GapEvent says so once it is back. See DelayQueue.ListenEvent for what happens while the listener is
// too slow.
func (m *Monitor) ListenEvent(ctx context.Context, listener EventListener) (*Subscription, error) {
	if listener == nil {
		return nil, m.failed(fmt.Errorf("%w: the listener is nil", ErrBadOption), "listen to events")
	}
	conn, err := m.subscribe(ctx)
	if err != nil {
		return nil, m.failed(err, "listen to events")
	}
	sub := m.events.subscription()
	sub.ended = func() { _ = conn.Close() } // whatever it says, it is over
	go sub.serve(listener)
	go m.forward(conn, sub)
	return sub, nil
}

// subscribe returns when ctx ends, which the client itself does not: it waits for its own timeouts.
func (m *Monitor) subscribe(ctx context.Context) (*redis.PubSub, error) {
	if err := ended(ctx); err != nil {
		return nil, err
	}
	conn := m.store.cli.Subscribe(ctx) // to nothing yet, for which it needs no connection
	err := await(ctx, func() error {
		_ = conn.Subscribe(context.WithoutCancel(ctx), m.store.keys.events) // if that fails Receive tries it again
		_, err := conn.Receive(ctx)                                         // the confirmation
		return err
	})
	if err == nil {
		return conn, nil
	}
	go func() { _ = conn.Close() }() // it waits for Subscribe
	return nil, cmp.Or(ended(ctx), err)
}

// forward gives the subscription what is published, until conn is closed for good. A confirmation says that conn was
// broken until now.
func (m *Monitor) forward(conn *redis.PubSub, sub *Subscription) {
	var junk minuteCount
	for got := range conn.ChannelWithSubscriptions(redis.WithChannelHealthCheckInterval(healthCheckInterval)) {
		msg, isMessage := got.(*redis.Message)
		if !isMessage {
			sub.put(Event{Code: GapEvent, Time: time.Now()})
			continue
		}
		var batch []Event
		if err := json.Unmarshal([]byte(msg.Payload), &batch); err != nil {
			if n := junk.add(1, time.Now()); n > 0 {
				m.events.logger().Warn("delayqueue: events that cannot be read: another program or version publishes on this queue's channel",
					slog.String("queue", m.store.queue), slog.Int("events", n), slog.Any("error", err))
			}
			continue
		}
		for _, e := range batch {
			sub.put(e)
		}
	}
}
