// Package scenario is what the tests of promqueue and otelqueue have happen to a queue.
package scenario

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

// Workers is the concurrency of a scenario's consumer: one for each message, so that none is released because it waits for a worker.
const Workers = 8

// Patience is how long something may take that must happen; no measure of speed.
const Patience = time.Minute

// Main runs the tests of a package, and then finds goroutines that are left when they have had time to end.
func Main(m *testing.M) {
	code := m.Run()
	if code == 0 {
		err := goleak.Find()
		for end := time.Now().Add(Patience); err != nil && time.Now().Before(end); {
			err = goleak.Find()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// Servers are those that everything is tested on.
func Servers(t *testing.T, test func(*testing.T, redis.UniversalClient)) {
	t.Run("single", func(t *testing.T) { test(t, redistest.Start(t).Client(t)) })
	t.Run("cluster", func(t *testing.T) { test(t, redistest.StartCluster(t, 3, 0).Client(t)) })
}

// A Scenario is a queue that has seen something of everything.
type Scenario struct {
	Name      string
	Monitor   *delayqueue.Monitor
	Queue     *delayqueue.DelayQueue
	Publisher *delayqueue.Publisher
	Release   func() // the message that is being held
}

// New makes a queue; the test instruments it before Play.
func New(t testing.TB, name string, cli redis.UniversalClient) *Scenario {
	held := make(chan struct{})
	var snoozed atomic.Bool
	s := &Scenario{
		Name:      name,
		Monitor:   delayqueue.NewMonitor(name, cli),
		Publisher: delayqueue.NewPublisher(name, cli),
		Release:   func() { close(held) },
	}
	s.Queue = delayqueue.NewQueue(name, cli, nil).WithConcurrent(Workers).WithNackRedeliveryDelay(time.Millisecond).
		WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
			switch {
			case msg.Payload == "fail":
				return errors.New("no")
			case msg.Payload == "panic":
				panic("no")
			case msg.Payload == "snooze" && snoozed.CompareAndSwap(false, true):
				return delayqueue.Snooze(time.Millisecond)
			case msg.Payload == "hold":
				select {
				case <-held:
				case <-ctx.Done():
				}
			}
			return nil
		})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		defer cancel()
		if err := s.Queue.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Play starts the consumer and sends 7 messages: of 8 deliveries 3 are acked, 3 fail, which
// makes 2 messages garbage, 1 is snoozed and 1 held; 1 message is due in an hour, and 2 are done.
func (s *Scenario) Play(t testing.TB) {
	t.Helper()
	s.Queue.StartConsume()
	for payload, opt := range map[string]delayqueue.MsgOption{
		"fail": delayqueue.WithRetryCount(1), "panic": delayqueue.WithRetryCount(0),
		"snooze": delayqueue.WithDelay(0), "hold": delayqueue.WithDelay(0),
	} {
		if _, err := s.Queue.Send(t.Context(), payload, opt); err != nil {
			t.Fatal(err)
		}
	}
	for _, delay := range []time.Duration{0, time.Millisecond, time.Hour} {
		if err := s.Publisher.SendDelayMsg("ok", delay, delayqueue.WithRetention(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
}

// Eventually waits until the metrics have these values; those that are not named may have any.
func Eventually(t testing.TB, read func() map[string]float64, want map[string]float64) map[string]float64 {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(Patience); ; {
		got := read()
		var wrong []string
		for name := range want {
			if v, ok := got[name]; !ok || v != want[name] {
				wrong = append(wrong, name)
			}
		}
		if len(wrong) == 0 {
			return got
		}
		if time.Now().After(deadline) {
			for _, name := range wrong {
				v, ok := got[name]
				t.Errorf("%s is %v (there: %v), want %v", name, v, ok, want[name])
			}
			t.Fatalf("all of it: %v", got)
		}
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatal(context.Cause(t.Context()))
		}
	}
}

// A Scheduler is one whose instants a test makes up.
type Scheduler struct {
	Tell    func(outcome string, lateness time.Duration)
	Stopped bool
}

// Name is a queue's.
func (s *Scheduler) Name() string { return "orders" }

// ListenOutcome has Tell tell the listener.
func (s *Scheduler) ListenOutcome(listener func(string, time.Duration)) interface {
	Stop()
	Dropped() int64
} {
	s.Tell = listener
	return s
}

// Stop ends that.
func (s *Scheduler) Stop() { s.Stopped = true }

// Dropped are more than none.
func (s *Scheduler) Dropped() int64 { return 3 }
