package features

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/redis/go-redis/v9"
)

// TestStopWhileAFetchIsAnswered: what the fetch hands out after the stop is released at once, and
// does not wait for its lease to run out.
func TestStopWhileAFetchIsAnswered(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]bool{"the reply arrives": false, "the reply is lost": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, wire, cli := face.Wired(t)
			q := f.QueueOn(cli, func(string) bool { t.Error("a handler started after the stop"); return true }).
				WithConcurrent(3).WithLease(time.Hour)
			var ids []string
			for range 3 {
				ids = append(ids, f.Send(f.Queue(nil), "x").ID)
			}
			struck, release := wire.HoldReply(redistest.Script(script.FetchScript.SHA))
			done := q.StartConsume()
			queuetest.Receive(t, "the reply is held", struck)
			if n := len(f.Check().Unack); n != 3 {
				t.Fatalf("%d are handed out, want 3", n)
			}
			q.StopConsume()
			if cut {
				wire.Cut()
				wire.Mend()
			}
			release()
			queuetest.Receive(t, "done closes", done)
			state := f.Check()
			for _, id := range ids {
				if r := state.Fail[id]; state.Where(id) != "ready" || r.Delivery != 2 || r.Failures != 0 || r.Losses != 0 {
					t.Errorf("message %s is %s, record %+v; want ready, released once", id, state.Where(id), r)
				}
			}
			got := make(chan string, 3)
			face.NoTick(f.Queue(func(payload string) bool { got <- payload; return true })).StartConsume()
			for range 3 {
				queuetest.Receive(t, "another consumer has it before its first tick", got)
			}
			queuetest.Eventually(t, "all are acked", func() bool { return len(f.Check().Messages) == 0 })
		})
	}
}

// TestStopWithRedisAway: done closes after one lease of trying, and the log names what was
// not settled.
func TestStopWithRedisAway(t *testing.T) {
	t.Parallel()
	f, wire, _ := face.Wired(t)
	cli := queuetest.ClientWith(t, &redis.Options{Addr: wire.Addr(), DialerRetries: 1})
	started, release := make(chan struct{}), make(chan struct{})
	q := f.QueueOn(cli, nil).WithLease(2 * time.Second).WithHandler(func(context.Context, *delayqueue.Message) error {
		close(started)
		<-release
		return nil
	})
	info := f.Send(q, "x")
	done := q.StartConsume()
	queuetest.Receive(t, "it starts", started)
	wire.Cut()
	q.StopConsume()
	close(release)
	queuetest.Receive(t, "done closes", done)
	f.Log.Says(t, 1, "gave up settling")
	queuetest.Eventually(t, "the log names what was not settled", func() bool { return f.Log.Count(info.ID) > 0 })
	if where := f.Where(info.ID); where != "unack" {
		t.Errorf("the message is %s, want unack until its lease runs out", where)
	}
}

// TestStopConsumeReleasesWhatNoHandlerStarted is the row of two handlers that run and 50
// messages fetched.
func TestStopConsumeReleasesWhatNoHandlerStarted(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	started, release := make(chan string, 52), make(chan struct{})
	q := f.Queue(nil).WithConcurrent(2).WithCallback(func(payload string) bool {
		if payload == "quick" {
			return true
		}
		started <- payload
		<-release
		return true
	})
	// Handlers that were quick so far make the consumer fetch ahead.
	var quick []delayqueue.Outgoing
	for range 2000 {
		quick = append(quick, delayqueue.Outgoing{Payload: "quick"})
	}
	for range 50 {
		quick = append(quick, delayqueue.Outgoing{Payload: "slow"})
	}
	f.Must(queuetest.Failure(q.SendBatch(context.Background(), quick)))
	done := q.StartConsume()
	queuetest.Receive(t, "a handler runs", started)
	queuetest.Receive(t, "another handler runs", started)
	q.StopConsume()
	queuetest.Eventually(t, "the 48 that were not started are back", func() bool {
		state := f.Check() // on a slow machine some quick ones are left as well
		waiting := len(state.Ready) + len(state.Pending)
		return len(state.Unack) == 2 && waiting >= 48 && waiting == len(state.Messages)-2
	})
	for _, record := range f.Check().Fail {
		if record.Failures != 0 || record.Losses != 0 {
			t.Errorf("a release counted as more than that: %+v", record)
		}
	}
	select {
	case <-done:
		t.Error("done closed before the handlers finished")
	case p := <-started:
		t.Errorf("a further handler started: %s", p)
	default:
	}

	var got queuetest.Tally
	other := f.QueueOn(f.Client(), nil).WithConcurrent(48).WithCallback(func(payload string) bool {
		got.Add(payload)
		return true
	})
	other.StartConsume()
	queuetest.Eventually(t, "another consumer has the 48 at once", func() bool { return got.Of("slow") == 48 })
	close(release)
	queuetest.Receive(t, "done closes", done)
	f.Drained()
}

// TestStopDoesNotWaitForAbandonedCallbacks: their failure at the limit, while the queue stops, is settled before done
// closes.
func TestStopDoesNotWaitForAbandonedCallbacks(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	started, release := make(chan struct{}, 1), make(chan struct{})
	defer close(release)
	q := f.Queue(nil).WithMaxConsumeDuration(30 * time.Millisecond).WithNackRedeliveryDelay(time.Hour).
		WithErrorHandler(func(context.Context, *delayqueue.Message, error) { time.Sleep(200 * time.Millisecond) }).
		WithCallback(func(string) bool { started <- struct{}{}; <-release; return true })
	info := f.Send(q, "stuck")
	done := q.StartConsume()
	queuetest.Receive(t, "it is stuck", started)
	q.StopConsume()
	queuetest.Receive(t, "done closes", done)
	if where := f.Where(info.ID); where != "retry" {
		t.Errorf("the message is %s, want retry", where)
	}
}

// TestStartAndStopFromEverywhere: from many goroutines and from handlers; after that the queue
// consumes as ever, and stops.
func TestStartAndStopFromEverywhere(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	var q *delayqueue.DelayQueue
	act := func(ctx context.Context) {
		switch rand.N(6) {
		case 0, 1:
			q.StartConsume()
		case 2:
			q.StopConsume()
		case 3:
			short, cancel := context.WithTimeout(ctx, rand.N(3*time.Millisecond))
			defer cancel()
			_ = q.Shutdown(short)
		case 4:
			short, cancel := context.WithTimeout(ctx, rand.N(3*time.Millisecond))
			defer cancel()
			_ = q.Run(short)
		}
	}
	var now, most atomic.Int64
	q = f.Queue(nil).WithConcurrent(3).WithHandler(func(ctx context.Context, _ *delayqueue.Message) error {
		most.Store(max(most.Load(), now.Add(1)))
		defer now.Add(-1)
		act(ctx)
		return nil
	})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 40 {
				act(context.Background())
			}
		})
	}
	const n = 300
	for i := range n {
		f.Send(q, strconv.Itoa(i), delayqueue.WithRetryCount(1000))
	}
	wg.Wait()
	queuetest.Reaches(t, "all are handled", 0, func() int {
		q.StartConsume() // a handler may have stopped it
		return -len(f.Check().Messages)
	})
	if n := most.Load(); n > 6 {
		t.Errorf("%d handlers at a time", n)
	}
	f.Must(q.Shutdown(queuetest.Within(t, queuetest.Patience)))
}

// TestStartBesideAHandlerOfBefore: a handler of an earlier start has the only worker. When it returns, the later start
// gets that worker, and then waits for messages as an idle queue does.
func TestStartBesideAHandlerOfBefore(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	begun, hang := make(chan string, 2), make(chan struct{})
	q := f.Queue(func(payload string) bool {
		begun <- payload
		if payload == "old" {
			<-hang
		}
		return true
	}).WithFetchInterval(time.Hour).WithLease(3 * time.Hour)
	q.StartConsume()
	f.Send(q, "old")
	queuetest.Receive(t, "the old message", begun)
	q.StopConsume()
	q.StartConsume()
	time.Sleep(300 * time.Millisecond) // the later start has looked, and has no worker
	close(hang)
	f.Send(q, "new")
	queuetest.Receive(t, "the new message", begun)
}

// TestConcurrencyIsTheQueues: runs that follow each other share the workers.
func TestConcurrencyIsTheQueues(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	started, release := make(chan string, 10), make(chan struct{})
	q := f.Queue(func(payload string) bool { started <- payload; <-release; return true }).WithConcurrent(2)
	for i := range 6 {
		f.Send(q, strconv.Itoa(i))
	}
	runs := []<-chan struct{}{q.StartConsume()}
	queuetest.Receive(t, "one handler runs", started)
	queuetest.Receive(t, "and another", started)
	for range 5 {
		q.StopConsume()
		runs = append(runs, q.StartConsume())
		seen := f.Check().Fields["seen"]
		queuetest.Eventually(t, "the new consumer polls", func() bool { return f.Check().Fields["seen"] != seen })
	}
	if state := f.Check(); len(started) > 0 || len(state.Unack) != 2 {
		t.Errorf("%d more handlers started, %d messages are handed out, want 2", len(started), len(state.Unack))
	}
	close(release)
	for range 4 {
		queuetest.Receive(t, "the last consumer has the workers that the first one leaves", started)
	}
	for _, done := range runs[:5] {
		queuetest.Receive(t, "each consumer but the last ends", done)
	}
}
