package delayqueue_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/redis/go-redis/v9"
)

func TestMain(m *testing.M) {
	link.ReadFor = queuetest.Patience / 2 // what was not read is so for another reason than a slow machine
	os.Exit(queuetest.RunTests(m, script.ScriptTexts...))
}

func TestDueTimeComes(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	const n = 100
	early := make(chan time.Duration, n)
	q := face.NoTick(f.Queue(nil)).WithConcurrent(4).WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
		early <- time.Until(msg.Due) // the server's clock is this machine's
		return nil
	})
	for i := range n {
		if i%2 == 0 {
			f.Send(q, "later", delayqueue.WithDelay(time.Duration(i)*3*time.Millisecond))
		} else {
			f.Send(q, "later", delayqueue.WithSchedule(time.Now().Add(time.Duration(i)*3*time.Millisecond)))
		}
	}
	q.StartConsume()
	for range n {
		if left := queuetest.Receive(t, "each message arrives before the first tick", early); left > 0 {
			t.Errorf("handed out %v early", left)
		}
	}
	queuetest.Eventually(t, "all are settled", func() bool { return len(f.Check().Messages) == 0 })
}

func TestSentSoonerThanAllOthersWhileConsumersSleep(t *testing.T) {
	t.Parallel()
	for _, from := range []string{"this process", "another client"} {
		t.Run(from, func(t *testing.T) {
			f := face.New(t)
			got := make(chan string, 1)
			consumers := []*delayqueue.DelayQueue{f.Queue(nil), f.QueueOn(f.Client(), nil), f.QueueOn(f.Client(), nil)}
			f.Send(consumers[0], "far", delayqueue.WithDelay(time.Hour))
			for _, q := range consumers {
				face.NoTick(q).WithCallback(func(payload string) bool { got <- payload; return true }).StartConsume()
			}
			// Two messages, one after the other: the one who serves the first must not be needed for the second.
			for _, payload := range []string{"soon", "sooner"} {
				if from == "this process" {
					f.Send(consumers[0], payload, delayqueue.WithDelay(50*time.Millisecond))
				} else if err := delayqueue.NewPublisher(f.Name, f.Client()).SendDelayMsg(payload,
					50*time.Millisecond); err != nil {
					t.Fatal(err)
				}
				if p := queuetest.Receive(t, "it arrives long before the first tick", got); p != payload {
					t.Errorf("got %q, want %q", p, payload)
				}
			}
		})
	}
}

// TestZeroNegativeAndPast: what is to come now or before comes now. TestDelayed and TestScheduled, of package message,
// have the bounds.
func TestZeroNegativeAndPast(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	q := f.Queue(nil)
	for name, send := range map[string]func() error{
		"zero delay":      func() error { return q.SendDelayMsg("a", 0) },
		"negative delay":  func() error { return q.SendDelayMsg("b", -time.Hour) },
		"past schedule":   func() error { return q.SendScheduleMsg("c", time.Now().Add(-time.Hour)) },
		"before 1970":     func() error { return q.SendScheduleMsg("d", time.Unix(-1, 0)) },
		"Send, no option": func() error { return queuetest.Failure(q.Send(context.Background(), "e")) },
	} {
		before := f.Check().Now
		if err := send(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		state := f.Check()
		newest := state.Pending[len(state.Pending)-1]
		if newest.Score < before || newest.Score > state.Now {
			t.Errorf("%s: due at %d, want now: between %d and %d", name, newest.Score, before, state.Now)
		}
	}
	if n := len(f.Check().Messages); n != 5 {
		t.Errorf("%d messages, want 5", n)
	}
}

func TestConsumersDownForAWeek(t *testing.T) {
	server := miniredis.RunT(t)
	start := time.Now()
	server.SetTime(start)
	f := face.On(t, redis.NewClient(&redis.Options{Addr: server.Addr()}))
	var got queuetest.Tally
	q := f.Queue(func(payload string) bool { got.Add(payload); return true })
	for i := range 50 {
		f.Send(q, strconv.Itoa(i), delayqueue.WithDelay(time.Duration(i)*time.Hour))
	}
	server.SetTime(start.Add(7 * 24 * time.Hour))
	if n := len(f.Check().Messages); n != 50 {
		t.Fatalf("%d messages after a week, want 50", n)
	}
	q.StartConsume()
	queuetest.Eventually(t, "all arrive", func() bool { n, _ := got.Counts(); return n == 50 })
	queuetest.Eventually(t, "all are settled", func() bool { return len(f.Check().Messages) == 0 })
	if _, total := got.Counts(); total != 50 {
		t.Errorf("handled %d times, want 50", total)
	}
}

func TestStartStopStart(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	got := make(chan string, 10)
	q := f.Queue(func(payload string) bool { got <- payload; return true })
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
		f.Send(q, payload)
		if p := queuetest.Receive(t, "it consumes", got); p != payload {
			t.Errorf("got %q, want %q", p, payload)
		}
		q.StopConsume()
		q.StopConsume()
		queuetest.Receive(t, "it ends", done)
		q.StopConsume()
		for range 20 {
			if err := q.Shutdown(queuetest.Over()); err != nil {
				t.Fatalf("Shutdown of a queue that has stopped: %v", err)
			}
		}
	}
	f.CheckEmpty()
}

func TestStartAgainWhileTheLastRunEnds(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	started, release := make(chan string, 2), make(chan struct{})
	q := f.Queue(func(payload string) bool { started <- payload; <-release; return true }).WithConcurrent(2)
	first := q.StartConsume()
	f.Send(q, "slow")
	queuetest.Receive(t, "it starts", started)
	q.StopConsume()
	second := q.StartConsume()
	if first == second {
		t.Fatal("a new start while the last run ends returned the old channel")
	}
	f.Send(q, "next")
	queuetest.Receive(t, "the new run consumes while the old one ends", started)
	close(release)
	queuetest.Receive(t, "the old run ends", first)
}

func TestRun(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	got := make(chan string, 1)
	q := f.Queue(func(payload string) bool { got <- payload; return true })
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error)
	go func() { result <- q.Run(ctx) }()
	f.Send(q, "a")
	queuetest.Receive(t, "it consumes", got)
	cancel()
	f.Must(queuetest.Receive(t, "Run returns", result))
	f.CheckEmpty()
}

func TestQueuesShareNothing(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	type queueID struct{ prefix, name string }
	ids := []queueID{{"dq", f.Name}, {"other", f.Name}, {"dq", f.Name + "-and-more"}, {"dq", f.Name + ":pending"},
		{"dq", "x:" + f.Name}, {"dq_x", f.Name}}
	var got queuetest.Tally
	for i, id := range ids {
		q := delayqueue.NewQueue(id.name, f.Cli, func(payload string) bool {
			got.Add(fmt.Sprintf("%d by %d", payload[0]-'0', i))
			return true
		}, delayqueue.UseCustomPrefix(id.prefix))
		done := q.StartConsume()
		t.Cleanup(func() {
			q.StopConsume()
			<-done
			f.Cli.Del(queuetest.CtxB, check.Queue{Prefix: id.prefix, Name: id.name}.Keys()...)
		})
		if err := q.SendDelayMsg(strconv.Itoa(i), 0, delayqueue.WithKey("same")); err != nil {
			t.Errorf("queue %v: %v", id, err)
		}
	}
	queuetest.Eventually(t, "all are handled", func() bool { n, _ := got.Counts(); return n == len(ids) })
	for i := range ids {
		if n := got.Of(fmt.Sprintf("%d by %d", i, i)); n != 1 {
			t.Errorf("queue %v got its message %d times", ids[i], n)
		}
	}
}

// TestDrainIsStopped: by its context and by StopConsume, gracefully.
func TestDrainIsStopped(t *testing.T) {
	t.Parallel()
	for how, c := range map[string]struct {
		stop func(q *delayqueue.DelayQueue, cancel func())
		want error
	}{
		"by its context":  {func(_ *delayqueue.DelayQueue, cancel func()) { cancel() }, context.Canceled},
		"by StopConsume":  {func(q *delayqueue.DelayQueue, _ func()) { q.StopConsume() }, delayqueue.ErrShutdown},
		"before it began": {nil, context.Canceled},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			f := face.New(t)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			var q *delayqueue.DelayQueue
			q = f.Queue(nil).WithHandler(func(ctx context.Context, _ *delayqueue.Message) error {
				c.stop(q, cancel)
				queuetest.Eventually(t, "the stop has begun", q.Current().Stopping)
				return ctx.Err()
			})
			for range 3 {
				f.Send(q, "x")
			}
			want := 1
			if c.stop == nil {
				cancel()
				want = 0
			}
			n, err := q.Drain(ctx)
			if n != want || !errors.Is(err, c.want) {
				t.Errorf("%d handled, %v", n, err)
			}
			if s := f.Check(); len(s.Messages) != 3-want || len(s.Unack) != 0 {
				t.Errorf("%s", s.Dump())
			}
		})
	}
}
