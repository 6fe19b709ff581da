// Package scenario is what the tests of promqueue and otelqueue have happen to a queue.
package scenario

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/redis/go-redis/v9"
)

// Workers is the concurrency of a scenario's consumer: one for each message, so that none is released because it
// waits for a worker.
const Workers = 8

// Servers are those that everything is tested on.
func Servers(t *testing.T, test func(*testing.T, redis.UniversalClient)) {
	t.Run("single", func(t *testing.T) { test(t, redistest.Start(t).Client(t)) })
	t.Run("cluster", func(t *testing.T) { test(t, redistest.StartCluster(t, 3, 0).Client(t)) })
}

// A Scenario is a queue that has seen something of everything.
type Scenario struct {
	Name      string
	Monitor   *ops.Queue
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
		Monitor:   ops.Of(delayqueue.NewMonitor(name, cli)),
		Publisher: delayqueue.NewPublisher(name, cli),
		Release:   func() { close(held) },
	}
	s.Queue = delayqueue.NewQueue(name, cli, nil).WithConcurrent(Workers).WithNackRedeliveryDelay(time.Millisecond).
		WithKindHeader("kind").
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
		ctx, cancel := context.WithTimeout(context.Background(), testkit.Scaled(testkit.Patience))
		defer cancel()
		if err := s.Queue.Shutdown(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Play starts the consumer and sends 7 messages: of 8 deliveries 3 are acked, 3 fail, which
// makes 2 messages garbage, 1 is snoozed and 1 held; 1 message is due in an hour, and 2 are done. Those 4 that are not
// only acked are of a kind, which is their payload.
func (s *Scenario) Play(t testing.TB) {
	t.Helper()
	s.Queue.StartConsume()
	for payload, opt := range map[string]delayqueue.MsgOption{
		"fail": delayqueue.WithRetryCount(1), "panic": delayqueue.WithRetryCount(0),
		"snooze": delayqueue.WithDelay(0), "hold": delayqueue.WithDelay(0),
	} {
		if _, err := s.Queue.Send(t.Context(), payload, opt, delayqueue.WithHeader("kind", payload)); err != nil {
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
	for begun := testkit.Worked(); ; <-tick.C {
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
		if testkit.Worked()-begun > testkit.Patience {
			for _, name := range wrong {
				v, ok := got[name]
				t.Errorf("%s is %v (there: %v), want %v", name, v, ok, want[name])
			}
			t.Fatalf("all of it: %v", got)
		}
	}
}

// Gauges wants gauges of a queue that has been played, with these names, which hold no exact value.
func (s *Scenario) Gauges(t testing.TB, read func() map[string]float64, begun time.Time, nextDue,
	longestHandling string) {
	t.Helper()
	due := time.UnixMicro(int64(read()[nextDue+" orders"] * 1e6))
	if in := due.Sub(begun); in < time.Hour || due.After(time.Now().Add(time.Hour)) {
		t.Errorf("the next is due in %v", in)
	}
	if _, ok := read()[nextDue+" idle"]; ok {
		t.Error("a queue without messages has a next due instant")
	}
	Eventually(t, func() map[string]float64 { // the consumer says so once a second
		return map[string]float64{"handler runs": min(read()[longestHandling+" orders"], 1)}
	}, map[string]float64{"handler runs": 1})
}

// Hold pauses the queue, ends the handler that is being held, sends a message that must wait, and waits for the
// metrics that these changes lead to.
func (s *Scenario) Hold(t testing.TB, read func() map[string]float64, oldestReady string, want map[string]float64) {
	t.Helper()
	begun := time.Now()
	if err := s.Monitor.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Release()
	if err := s.Publisher.SendDelayMsg("ok", 0); err != nil {
		t.Fatal(err)
	}
	if age := Eventually(t, read, want)[oldestReady]; age <= 0 || age > time.Since(begun).Seconds() {
		t.Errorf("the oldest ready message waits for %v s", age)
	}
}

// Outage reads while the server does not answer. Each reading ends soon, with the value 0 for up, and with none for
// the gauge.
func Outage(t testing.TB, server *redistest.Server, read func() map[string]float64, up, gauge string) {
	t.Helper()
	Eventually(t, read, map[string]float64{up: 1})
	server.Pause()
	defer server.Resume()
	fastest := testkit.Patience // of four, so that a busy machine is no slow reading
	for range 4 {
		start := testkit.Worked()
		got := read()
		fastest = min(fastest, testkit.Worked()-start)
		if _, ok := got[gauge]; ok || got[up] != 0 {
			t.Errorf("no answer, but %v", got)
		}
	}
	if fastest > 2*time.Second { // a client alone would wait for its read timeout, 3 s, thrice
		t.Errorf("a reading took %v", fastest)
	}
}

// A Scheduler is one whose instants a test makes up.
type Scheduler struct {
	Tell    func(outcome string, lateness time.Duration)
	Stopped bool
}

// Stuck has one reason.
func (s *Scheduler) Stuck(context.Context) (map[string]int, error) {
	return map[string]int{"overdue": 2}, nil
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

// Lane sends two messages of a lane to a queue that is paused, and wants the second one to be counted as waiting from
// its due instant on.
func (s *Scenario) Lane(t testing.TB, read func() map[string]float64, waiting, oldest string) {
	t.Helper()
	if _, there := read()[oldest]; there {
		t.Errorf("%s is there, and no message waits for its lane", oldest)
	}
	var last *delayqueue.MessageInfo
	for range 2 {
		var err error
		if last, err = s.Publisher.Send(t.Context(), "ok", delayqueue.WithLane("l")); err != nil {
			t.Fatal(err)
		}
	}
	got := Eventually(t, read, map[string]float64{waiting: 1})[oldest]
	if want := float64(last.Due.UnixMicro()) / 1e6; got != want {
		t.Errorf("the oldest has waited since %v, want %v", got, want)
	}
}
