package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// noTick makes a queue that looks at Redis of its own accord only every 20 s, so that what
// arrives sooner was announced.
func noTick(q *DelayQueue) *DelayQueue {
	return q.WithLease(time.Minute).WithFetchInterval(time.Minute)
}

func TestDueTimeComes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const n = 100
	early := make(chan time.Duration, n)
	q := noTick(f.queue(nil)).WithConcurrent(4).WithHandler(func(_ context.Context, msg *Message) error {
		early <- time.Until(msg.Due) // the server's clock is this machine's
		return nil
	})
	for i := range n {
		if i%2 == 0 {
			f.send(q, "later", WithDelay(time.Duration(i)*3*time.Millisecond))
		} else {
			f.send(q, "later", WithSchedule(time.Now().Add(time.Duration(i)*3*time.Millisecond)))
		}
	}
	q.StartConsume()
	for range n {
		if left := receive(t, "each message arrives before the first tick", early); left > 0 {
			t.Errorf("handed out %v early", left)
		}
	}
	eventually(t, "all are settled", func() bool { return len(f.check().Messages) == 0 })
}

func TestSentSoonerThanAllOthersWhileConsumersSleep(t *testing.T) {
	t.Parallel()
	for _, from := range []string{"this process", "another client"} {
		t.Run(from, func(t *testing.T) {
			f := newFixture(t)
			got := make(chan string, 1)
			consumers := []*DelayQueue{f.queue(nil), f.queueOn(f.client(), nil), f.queueOn(f.client(), nil)}
			f.send(consumers[0], "far", WithDelay(time.Hour))
			for _, q := range consumers {
				noTick(q).WithCallback(func(payload string) bool { got <- payload; return true }).StartConsume()
			}
			// Two messages, one after the other: the one who serves the first must not be needed for the second.
			for _, payload := range []string{"soon", "sooner"} {
				if from == "this process" {
					f.send(consumers[0], payload, WithDelay(50*time.Millisecond))
				} else if err := NewPublisher(f.name, f.client()).SendDelayMsg(payload, 50*time.Millisecond); err != nil {
					t.Fatal(err)
				}
				if p := receive(t, "it arrives long before the first tick", got); p != payload {
					t.Errorf("got %q, want %q", p, payload)
				}
			}
		})
	}
}

func TestZeroNegativeAndPast(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(nil)
	for name, send := range map[string]func() error{
		"zero delay":      func() error { return q.SendDelayMsg("a", 0) },
		"negative delay":  func() error { return q.SendDelayMsg("b", -time.Hour) },
		"past schedule":   func() error { return q.SendScheduleMsg("c", time.Now().Add(-time.Hour)) },
		"before 1970":     func() error { return q.SendScheduleMsg("d", time.Unix(-1, 0)) },
		"a day of old":    func() error { return q.SendScheduleMsg("e", time.Date(1970, 1, 2, 0, 0, 0, 0, time.UTC)) },
		"smallest delay":  func() error { return q.SendDelayMsg("f", -1<<63) },
		"Send, no option": func() error { _, err := q.Send(context.Background(), "g"); return err },
	} {
		before := f.check().Now
		if err := send(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		state := f.check()
		newest := state.Pending[len(state.Pending)-1]
		if newest.Score < before || newest.Score > state.Now {
			t.Errorf("%s: due at %d, want now: between %d and %d", name, newest.Score, before, state.Now)
		}
	}
	if err := q.SendScheduleMsg("h", time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC)); !errors.Is(err, ErrBadOption) {
		t.Errorf("the year 1: %v, want ErrBadOption", err)
	}
	if n := len(f.check().Messages); n != 7 {
		t.Errorf("%d messages, want 7", n)
	}
	var got tally
	q.WithCallback(func(payload string) bool { got.add(payload); return true }).StartConsume()
	eventually(t, "all arrive", func() bool { n, _ := got.counts(); return n == 7 })
}

func TestConsumersDownForAWeek(t *testing.T) {
	server := miniredis.RunT(t)
	start := time.Now()
	server.SetTime(start)
	f := fixtureOn(t, redis.NewClient(&redis.Options{Addr: server.Addr()}))
	var got tally
	q := f.queue(func(payload string) bool { got.add(payload); return true })
	for i := range 50 {
		f.send(q, strconv.Itoa(i), WithDelay(time.Duration(i)*time.Hour))
	}
	server.SetTime(start.Add(7 * 24 * time.Hour))
	if n := len(f.check().Messages); n != 50 {
		t.Fatalf("%d messages after a week, want 50", n)
	}
	q.StartConsume()
	eventually(t, "all arrive", func() bool { n, _ := got.counts(); return n == 50 })
	eventually(t, "all are settled", func() bool { return len(f.check().Messages) == 0 })
	if _, total := got.counts(); total != 50 {
		t.Errorf("handled %d times, want 50", total)
	}
}

func TestStartStopStart(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	got := make(chan string, 10)
	q := f.queue(func(payload string) bool { got <- payload; return true })
	q.StopConsume() // before the first start
	if err := q.Shutdown(context.Background()); err != nil {
		t.Errorf("Shutdown before start: %v", err)
	}
	for round := range 3 {
		done := q.StartConsume()
		if again := q.StartConsume(); again != done {
			t.Error("StartConsume while running returned another channel")
		}
		payload := strconv.Itoa(round)
		f.send(q, payload)
		if p := receive(t, "it consumes", got); p != payload {
			t.Errorf("got %q, want %q", p, payload)
		}
		q.StopConsume()
		q.StopConsume()
		receive(t, "it ends", done)
		q.StopConsume()
	}
	f.checkEmpty()
}

func TestStartAgainWhileTheLastRunEnds(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	started, release := make(chan string, 2), make(chan struct{})
	q := f.queue(func(payload string) bool { started <- payload; <-release; return true }).WithConcurrent(2)
	first := q.StartConsume()
	f.send(q, "slow")
	receive(t, "it starts", started)
	q.StopConsume()
	second := q.StartConsume()
	if first == second {
		t.Fatal("a new start while the last run ends returned the old channel")
	}
	f.send(q, "next")
	receive(t, "the new run consumes while the old one ends", started)
	close(release)
	receive(t, "the old run ends", first)
}

func TestRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	got := make(chan string, 1)
	q := f.queue(func(payload string) bool { got <- payload; return true })
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error)
	go func() { result <- q.Run(ctx) }()
	f.send(q, "a")
	receive(t, "it consumes", got)
	cancel()
	if err := receive(t, "Run returns", result); err != nil {
		t.Error(err)
	}
	f.checkEmpty()
}

func TestQueuesShareNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	type queueID struct{ prefix, name string }
	ids := []queueID{{"dq", f.name}, {"other", f.name}, {"dq", f.name + "-and-more"}, {"dq", f.name + ":pending"},
		{"dq", "x:" + f.name}, {"dq_x", f.name}}
	var got tally
	for i, id := range ids {
		q := NewQueue(id.name, f.cli, func(payload string) bool {
			got.add(fmt.Sprintf("%d by %d", payload[0]-'0', i))
			return true
		}, UseCustomPrefix(id.prefix))
		done := q.StartConsume()
		t.Cleanup(func() {
			q.StopConsume()
			<-done
			for _, key := range q.store.keys.all {
				f.cli.Del(context.Background(), key.(string))
			}
		})
		if err := q.SendDelayMsg(strconv.Itoa(i), 0, WithKey("same")); err != nil {
			t.Errorf("queue %v: %v", id, err)
		}
	}
	eventually(t, "all are handled", func() bool { n, _ := got.counts(); return n == len(ids) })
	for i := range ids {
		if n := got.of(fmt.Sprintf("%d by %d", i, i)); n != 1 {
			t.Errorf("queue %v got its message %d times", ids[i], n)
		}
	}
}
