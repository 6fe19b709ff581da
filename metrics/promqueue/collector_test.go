package promqueue

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/leaks"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/go-delayqueue/delayqueue/metrics/internal/scenario"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// values are what a scrape finds, by name and labels; of a histogram it is the count.
func values(t testing.TB, c prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := strings.TrimPrefix(family.GetName(), "delayqueue_")
			for _, label := range m.GetLabel() {
				name += " " + label.GetValue()
			}
			out[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return out
}

func TestCollector(t *testing.T) {
	t.Parallel()
	scenario.Servers(t, func(t *testing.T, cli redis.UniversalClient) {
		s := scenario.New(t, "orders", cli)
		c := NewCollector(Config{})
		t.Cleanup(c.Close)
		c.Watch(s.Monitor.Monitor(), delayqueue.NewMonitor("idle", cli))
		c.Instrument(s.Queue)
		c.InstrumentPublisher(s.Publisher)
		read := func() map[string]float64 { return values(t, c) }

		scenario.Eventually(t, read, map[string]float64{
			"up orders": 1, "consumers orders": 0, "messages_sent_total orders": 0, "messages_lost_total orders": 0,
			"messages idle ready":     0,
			"lateness_seconds orders": 0, "handling_seconds snooze orders": 0,
		})
		before := time.Now()
		s.Play(t)
		scenario.Eventually(t, read, map[string]float64{
			"messages orders pending": 1, "messages orders ready": 0, "messages orders unack": 1, "messages orders retry": 0,
			"messages orders garbage": 2, "messages orders done": 2, "messages orders waiting": 0,
			"messages_sent_total orders": 7, "messages_delivered_total orders": 8, "messages_acked_total orders": 3,
			"messages_failed_total orders": 3, "messages_lost_total orders": 0, "messages_dead_total orders": 2,
			"events_dropped_total orders": 0,
			"handling_seconds ack orders": 3, "handling_seconds nack orders": 3, "handling_seconds snooze orders": 1,
			"lateness_seconds orders": 5, "kind_handling_seconds snooze orders": 2,
			"kind_handled_total fail nack orders": 2, "kind_handled_total fail ack orders": 0,
			"kind_handled_total panic nack orders": 1, "kind_handled_total snooze snooze orders": 1,
			"kind_handled_total snooze ack orders": 1, "kind_handled_total none ack orders": 2,
			"up orders": 1, "paused orders": 0, "limited orders": 0, "oldest_ready_age_seconds orders": 0,
			"consumers orders": 1, "workers orders": scenario.Workers,
		})
		s.Gauges(t, read, before, "next_due_timestamp_seconds", "longest_handling_seconds")
		s.Hold(t, read, "oldest_ready_age_seconds orders", map[string]float64{
			"paused orders": 1, "paused idle": 0,
			"messages orders ready": 1, "messages orders unack": 0, "messages_acked_total orders": 4,
			"lateness_seconds orders":     6,
			"handling_seconds ack orders": 4,
		})
		s.Lane(t, read, "messages orders waiting", "oldest_waiting_timestamp_seconds orders")
		if n, err := cli.HDel(t.Context(), "{dq:orders}:msg",
			cli.ZRange(t.Context(), "{dq:orders}:pending", 0, 0).Val()...).Result(); n != 1 {
			t.Fatal(n, err)
		}
		scenario.Eventually(t, read, map[string]float64{"unaccounted_messages orders": 1, "unaccounted_messages idle": 0})
		if problems, err := testutil.CollectAndLint(c); err != nil || len(problems) > 0 {
			t.Errorf("lint: %v, %v", problems, err)
		}
		c.Close()
		if err := s.Publisher.SendDelayMsg("ok", time.Hour); err != nil {
			t.Fatal(err)
		}
		scenario.Eventually(t, read, map[string]float64{"messages orders pending": 2, "messages_sent_total orders": 10})
	})
}

// A consumer that is cut off loses its message; the one that finds it counts that.
func TestLost(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	wire, cli := redistest.NewWire(t, server.Addr()), server.Client(t)
	far := redis.NewClient(&redis.Options{Addr: wire.Addr()})
	t.Cleanup(func() { _ = far.Close() })
	started := make(chan struct{})
	cutOff := delayqueue.NewQueue("orders", far, func(string) bool { close(started); return true }).WithLease(time.Minute).
		WithLogger(slog.New(slog.DiscardHandler))
	cutOff.WithMiddleware(func(next delayqueue.Handler) delayqueue.Handler {
		return func(ctx context.Context, msg *delayqueue.Message) error {
			wire.Freeze()
			return next(ctx, msg)
		}
	})
	if err := cutOff.SendDelayMsg("x", 0); err != nil {
		t.Fatal(err)
	}
	c := NewCollector(Config{})
	t.Cleanup(c.Close)
	finder := delayqueue.NewQueue("orders", cli, func(string) bool { return true }).WithLease(time.Minute)
	c.Instrument(finder)
	gone := cutOff.StartConsume()
	testkit.Receive(t, "a delivery", started)
	leases, err := cli.ZRange(t.Context(), "{dq:orders}:unack", 0, -1).Result()
	if err != nil || len(leases) != 1 {
		t.Fatal(leases, err)
	}
	if err := cli.ZAdd(t.Context(), "{dq:orders}:unack",
		redis.Z{Score: 1, Member: leases[0]}).Err(); err != nil { // it is over
		t.Fatal(err)
	}
	done := finder.StartConsume()
	scenario.Eventually(t, func() map[string]float64 { return values(t, c) },
		map[string]float64{"messages_lost_total orders": 1, "messages_delivered_total orders": 1,
			"messages_acked_total orders": 1,
			"lateness_seconds orders":     0, "handling_seconds ack orders": 1})
	finder.StopConsume()
	<-done
	wire.Thaw()
	cutOff.StopConsume()
	<-gone
}

// counter counts log lines.
type counter struct {
	slog.Handler
	lines *atomic.Int32
}

func (c counter) Handle(context.Context, slog.Record) error { c.lines.Add(1); return nil }

func TestRedisDoesNotAnswer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	lines := counter{slog.NewTextHandler(nil, nil), new(atomic.Int32)}
	c := NewCollector(Config{Timeout: 50 * time.Millisecond, Logger: slog.New(lines)})
	s := scenario.New(t, "orders", server.Client(t))
	c.Watch(s.Monitor.Monitor())
	c.Instrument(s.Queue)
	t.Cleanup(c.Close)
	up, changes := 1.0, int32(0) // a reading of a busy machine may be an outage, too
	read := func() map[string]float64 {
		got := values(t, c)
		if now := got["up orders"]; now != up {
			up = now
			changes++
		}
		return got
	}
	scenario.Outage(t, server, read, "up orders", "messages orders pending")
	scenario.Eventually(t, read,
		map[string]float64{"up orders": 1, "messages orders pending": 0, "messages_sent_total orders": 0})
	if n := lines.lines.Load(); n != changes || changes < 2 {
		t.Errorf("%d lines in the log for %d beginnings and ends of outages", n, changes)
	}
}

func TestWatchTwice(t *testing.T) {
	cli := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer cli.Close()
	c := NewCollector(Config{})
	c.Watch(delayqueue.NewMonitor("orders", cli))
	defer func() {
		if p, _ := recover().(string); !strings.Contains(p, `"orders" is watched already`) {
			t.Errorf("panic %q", p)
		}
	}()
	c.Watch(delayqueue.NewMonitor("orders", cli, delayqueue.UseCustomPrefix("other")))
}

// A handler whose message is canceled has not failed.
func TestCanceledIsNoFailure(t *testing.T) {
	t.Parallel()
	cli := redistest.Start(t).Client(t)
	c := NewCollector(Config{})
	t.Cleanup(c.Close)
	begun := make(chan string, 1)
	q := delayqueue.NewQueue("orders", cli, nil).WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
		begun <- msg.ID
		<-ctx.Done()
		return ctx.Err()
	})
	c.Instrument(q)
	if err := q.SendDelayMsg("x", 0); err != nil {
		t.Fatal(err)
	}
	done := q.StartConsume()
	t.Cleanup(func() {
		q.StopConsume()
		<-done
	})
	if r, err := q.Cancel(t.Context(), <-begun); err != nil || !r.Intercepted {
		t.Fatal(r, err)
	}
	scenario.Eventually(t, func() map[string]float64 { return values(t, c) }, map[string]float64{
		"handling_seconds void orders": 1, "handling_seconds nack orders": 0, "messages_failed_total orders": 0,
	})
}

func TestSchedules(t *testing.T) {
	t.Parallel()
	c := NewCollector(Config{})
	s := new(scenario.Scheduler)
	c.InstrumentSchedules(s)
	read := func() map[string]float64 { return values(t, c) }
	scenario.Eventually(t, read, map[string]float64{
		"schedule_instants_total sent orders": 0, "schedule_instants_total expired orders": 0,
		"schedule_lateness_seconds orders": 0,
	})
	for _, outcome := range []string{"sent", "sent", "caught up", "skipped", "expired"} {
		s.Tell(outcome, time.Second)
	}
	scenario.Eventually(t, read, map[string]float64{
		"schedule_instants_total sent orders": 2, "schedule_instants_total caught up orders": 1,
		"schedule_instants_total skipped orders": 1,
		"schedule_instants_total expired orders": 1, "schedule_lateness_seconds orders": 3, "events_dropped_total orders": 3,
	})
	if problems, err := testutil.CollectAndLint(c); err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
	if c.Close(); !s.Stopped {
		t.Error("it listens after Close")
	}
}
