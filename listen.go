package delayqueue

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// reportTime is how long a Monitor tries to publish what it did. A failure is not reported: perhaps nobody listens.
const reportTime = time.Second

func (m *Monitor) publish(e Event) {
	e.By = m.who.by
	_ = m.store.publish(reportTime, []Event{e})
}

const (
	// pingInterval is how often a connection that hears events is asked for a sign of life, and silentPings after how many such
	// questions in a row without a byte of an answer it is taken for broken: three seconds after it broke at the latest.
	pingInterval = time.Second
	silentPings  = 2
)

// ListenEvent calls a listener for what happens to messages on all machines whose queues and
// publishers report it (EnableReport), and for what Monitors do to the queue, until Stop. It hears what happens from
// its return on; ctx bounds the call alone. Redis keeps no event for one who is not connected: when the connection
// was broken, or silent for some three seconds, a GapEvent says so once there is another. See DelayQueue.ListenEvent for what
// happens while the listener is too slow.
func (m *Monitor) ListenEvent(ctx context.Context, listener EventListener) (*Subscription, error) {
	if listener == nil {
		return nil, m.failed(fmt.Errorf("%w: the listener is nil", ErrBadOption), "listen to events")
	}
	if err := ended(ctx); err != nil {
		return nil, m.failed(err, "listen to events")
	}
	l := linkOf(m.store.cli) // forward releases it
	var h *hearing
	err := await(ctx, func() (err error) { // a client of another kind waits for its own timeouts
		h, err = m.subscribe(ctx, l)
		return err
	})
	if err != nil {
		if l != nil {
			l.release()
		}
		return nil, m.failed(cmp.Or(ended(ctx), err), "listen to events")
	}
	sub := m.events.subscription()
	on, stop := context.WithCancel(context.Background())
	sub.ended = stop
	go sub.serve(listener)
	go m.forward(on, l, h, sub)
	return sub, nil
}

// A hearing is one connection on which a Monitor hears what is published. It is the library's own, if the client can have a
// link. go-redis does not make it anew: it would do so without a word of what was missed, on a server that may hold the queue no more.
type hearing struct {
	*redis.PubSub
	cli     *dedicatedClient // of this connection; nil: it is the user's
	dialled atomic.Bool
	heard   atomic.Int64 // reads that brought something: a large event on a slow line is no silence
}

// DialHook lets go-redis make one connection, and counts what it reads.
func (h *hearing) DialHook(dial redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if h.dialled.Swap(true) {
			return nil, net.ErrClosed
		}
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return heardConn{conn, &h.heard}, nil
	}
}

// ProcessHook changes nothing.
func (h *hearing) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook changes nothing.
func (h *hearing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A heardConn counts the reads that brought something.
type heardConn struct {
	net.Conn
	heard *atomic.Int64
}

func (c heardConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.heard.Add(1)
	}
	return n, err
}

// close ends what is under way on the connection, and closes it. Whoever calls it twice does no harm.
func (h *hearing) close() {
	if h.cli != nil {
		h.cli.cut()
		_ = h.cli.Close() // whatever it says, it is over
	}
	_ = h.PubSub.Close()
}

// subscribe makes a connection to the server that holds the queue, until ctx ends.
func (m *Monitor) subscribe(ctx context.Context, l *link) (_ *hearing, err error) {
	defer contain(&err)
	h := new(hearing)
	if l == nil {
		h.PubSub = m.store.cli.Subscribe(ctx) // to nothing yet, for which it needs no connection
	} else {
		addr, err := m.store.findNode(ctx, l)
		if err != nil {
			return nil, err
		}
		h.cli = l.dedicated(addr)
		h.cli.AddHook(h)
		h.PubSub = h.cli.Subscribe(ctx)
	}
	goesOn := context.AfterFunc(ctx, h.close)
	calls := context.WithoutCancel(ctx) // a deadline would be that of a read, which may end before ctx does
	if err = h.Subscribe(calls, m.store.keys.events); err == nil {
		_, err = h.Receive(calls) // the confirmation
	}
	if !goesOn() || err != nil {
		h.close()
		return nil, cmp.Or(ended(ctx), err)
	}
	return h, nil
}

// subscribeAnew is subscribe after a connection that broke; nil if ctx ends, or the user has closed the client.
func (m *Monitor) subscribeAnew(ctx context.Context, l *link) (h *hearing) {
	if ctx.Err() != nil {
		return nil
	}
	m.store.askWhereItIs(ctx, l, errUnanswered)
	failing := minuteCount{logged: time.Now()}
	_ = retry(ctx, nil, func() (err error) {
		bounded, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		if h, err = m.subscribe(bounded, l); err != nil {
			m.store.askWhereItIs(bounded, l, err)
		}
		return err
	}, func(_ int, err error) bool {
		if n := failing.add(1, time.Now()); n > 0 {
			m.events.logger().Warn("delayqueue: no events of other processes are heard, will go on trying",
				slog.String("queue", m.store.queue), slog.Int("attempts", n), slog.Any("error", err))
		}
		return !errors.Is(err, redis.ErrClosed)
	})
	return h
}

// forward gives the subscription what is published, until ctx ends. After a connection that broke it says so on the next one.
func (m *Monitor) forward(ctx context.Context, l *link, h *hearing, sub *Subscription) {
	if l != nil {
		defer l.release()
	}
	var junk minuteCount
	for {
		begun := time.Now()
		m.hear(ctx, l, h, func(payload string) { m.pass(payload, sub, &junk) })
		sleep(ctx, pingInterval-time.Since(begun)) // a server that closes each new connection is not asked all the time
		if h = m.subscribeAnew(ctx, l); h == nil {
			return
		}
		sub.put(Event{Code: GapEvent, Time: time.Now()})
	}
}

// hear receives what is published, until the connection breaks, is silent for too long, or ctx ends. Then it is closed.
func (m *Monitor) hear(ctx context.Context, l *link, h *hearing, pass func(payload string)) {
	defer context.AfterFunc(ctx, h.close)()
	over := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() { h.watch(over, l) })
	defer watch.Wait()
	defer h.close()
	defer close(over)
	for {
		got, err := h.Receive(ctx)
		if err != nil {
			return
		}
		if h.cli == nil {
			h.heard.Add(1)
		}
		if msg, ok := got.(*redis.Message); ok {
			pass(msg.Payload)
		}
	}
}

// watch closes the connection when it is silent for too long, or the user has closed the client, until over is closed.
func (h *hearing) watch(over <-chan struct{}, l *link) {
	tick := time.NewTicker(pingInterval)
	defer tick.Stop()
	for silent, before := 0, int64(-1); silent < silentPings && (l == nil || !l.ownerClosed()); silent++ {
		if heard := h.heard.Load(); heard != before {
			silent, before = 0, heard
		}
		ctx, cancel := context.WithTimeout(context.Background(), pingInterval)
		_ = h.Ping(ctx) // if that fails, nothing comes
		cancel()
		select {
		case <-tick.C:
		case <-over:
			return
		}
	}
	h.close()
}

// pass gives the subscription the events of one message of the channel.
func (m *Monitor) pass(payload string, sub *Subscription, junk *minuteCount) {
	var batch []Event
	if err := json.Unmarshal([]byte(payload), &batch); err != nil {
		if n := junk.add(1, time.Now()); n > 0 {
			m.events.logger().Warn("delayqueue: events that cannot be read: another program or version publishes on this queue's channel",
				slog.String("queue", m.store.queue), slog.Int("events", n), slog.Any("error", err))
		}
		return
	}
	for _, e := range batch {
		sub.put(e)
	}
}
