package ops

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
)

// TestUnthrottle: who waits for the end of a throttle goes on at once when it is lifted, without a tick, also where
// the reply is lost.
func TestUnthrottle(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	handled := make(chan string, 10)
	q := face.NoTick(f.Queue(nil)).WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
		if msg.Payload == "429" && msg.Delivery == 1 {
			return delayqueue.Throttle(time.Hour, queuetest.ErrBoom)
		}
		handled <- msg.Payload
		return nil
	})
	cli := f.Client()
	t.Cleanup(link.Interpose(cli, queuetest.LoseReplies(2, new(atomic.Int64))))
	m := Of(delayqueue.NewMonitor(f.Name, cli))
	unthrottle := func(want bool) {
		t.Helper()
		if lifted, err := m.Unthrottle(queuetest.CtxB); err != nil || lifted != want {
			t.Errorf("lifted: %v, %v", lifted, err)
		}
	}
	f.Send(q, "later", face.InAnHour) // so that there is such a queue
	for range 3 {
		unthrottle(false)
	}
	counts := func() Counts {
		c, err := m.Counts(queuetest.CtxB)
		f.Must(err)
		return c
	}
	q.StartConsume()
	info := f.Send(q, "429")
	queuetest.Eventually(t, "it waits", func() bool { return f.Where(info.ID) == "retry" })
	until := counts().ThrottledUntil
	if left := time.Until(until); left < 50*time.Minute || left > time.Hour+time.Minute {
		t.Errorf("throttled until %v", until)
	}
	f.Send(f.Queue(nil), "other")
	queuetest.Eventually(t, "it is put off", func() bool { return counts().Limited })
	unthrottle(true)
	if payload := queuetest.Receive(t, "what was put off", handled); payload != "other" {
		t.Errorf("handled %s", payload)
	}
	if c := counts(); !c.ThrottledUntil.IsZero() || c.Retry != 1 {
		t.Errorf("%+v", c)
	}
	f.Must(m.RunNow(queuetest.CtxB, info.ID))
	queuetest.Receive(t, "the one that was refused", handled)
	f.Must(q.Shutdown(queuetest.CtxB))
}

// TestPlaceOfAnotherWithoutWakeUps: where wake-ups do not work, a place that another consumer frees is seen at the
// next tick.
func TestPlaceOfAnotherWithoutWakeUps(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	got, free := make(chan string, 1), make(chan struct{})
	one := f.QueueOn(queuetest.UnknownClient{UniversalClient: f.Cli}, func(string) bool {
		got <- "one"
		<-free
		return true
	}).WithQueueConcurrency(1)
	face.Several(f, 1)
	one.StartConsume()
	queuetest.Receive(t, "it has the place", got)
	face.Several(f, 1)
	other := f.QueueOn(queuetest.UnknownClient{UniversalClient: f.Cli}, func(string) bool {
		got <- "other"
		return true
	}).WithQueueConcurrency(1)
	other.StartConsume()
	m := Of(delayqueue.NewMonitor(f.Name, f.Cli))
	queuetest.Eventually(t, "it waits for the place", func() bool {
		c, err := m.Counts(queuetest.CtxB)
		return err == nil && c.Limited && c.Ready == 1
	})
	one.StopConsume() // it will not take the next one itself
	close(free)
	if by := queuetest.Receive(t, "the place is taken", got); by != "other" {
		t.Errorf("taken by %s", by)
	}
	for _, q := range []*delayqueue.DelayQueue{one, other} {
		f.Must(q.Shutdown(queuetest.CtxB))
	}
}

// TestThrottleLeavesWhatWasFetched: without a limit, what a consumer has when a handler throttles the queue is
// handled, what it had fetched ahead, too; but what no worker gets to in a while goes back, as ever, and waits.
func TestThrottleLeavesWhatWasFetched(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	var got queuetest.Tally
	fetched := make(chan []string, 1)
	q := face.NoTick(f.Queue(nil))
	handled, throttled := 0, false // of the only worker
	q.WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
		if handled++; handled%50 == 0 && !throttled { // a look takes long, and for slow handlers nothing is fetched ahead
			if tags := f.Held(); len(tags) > 10 {
				throttled = true
				fetched <- tags
				return delayqueue.Throttle(time.Hour, queuetest.ErrBoom)
			}
		}
		got.Add(msg.ID)
		return nil
	})
	q.StartConsume()
	var tags []string
	queuetest.Eventually(t, "a handler throttles the queue when more is fetched", func() bool {
		face.Several(f, 500)
		select {
		case tags = <-fetched:
		default:
		}
		return tags != nil
	})
	queuetest.Eventually(t, "nothing is with the consumer", func() bool { return len(f.Held()) == 0 })
	if c, err := Of(delayqueue.NewMonitor(f.Name, f.Cli)).Counts(queuetest.CtxB); err != nil ||
		c.ThrottledUntil.IsZero() || c.Retry != 1 {
		t.Errorf("%+v, %v", c, err)
	}
	s, where := f.Check(), map[string]int{}
	for _, tag := range tags {
		id, _ := message.SplitTag(tag)
		if got.Of(id) == 1 {
			where["handled"]++
		} else {
			where[s.Where(id)]++
		}
	}
	if t.Logf("of %d that were fetched: %v", len(tags), where); where["retry"] != 1 ||
		where["handled"]+where["ready"] != len(tags)-1 {
		t.Error("want one in retry, and the others handled, or back")
	}
}

// TestLimitsInForce: what was set goes before what consumers ask for, a rate and a concurrency each by itself.
func TestLimitsInForce(t *testing.T) {
	t.Parallel()
	asked, rate := Limits{Rate: 5, Per: time.Second, Burst: 1, Concurrency: 5},
		Limits{Rate: 100, Per: time.Minute, Burst: 4}
	for _, c := range []struct{ set, want Limits }{
		{Limits{}, asked},
		{Limits{Concurrency: 9}, Limits{Rate: 5, Per: time.Second, Burst: 1, Concurrency: 9}},
		{rate, Limits{Rate: 100, Per: time.Minute, Burst: 4, Concurrency: 5}},
	} {
		if got := (QueueLimits{Asked: asked, Set: c.set}).InForce(); got != c.want {
			t.Errorf("with %v set: %v, want %v", c.set, got, c.want)
		}
	}
}

// TestBadLimits: each says in a sentence what is wrong.
func TestBadLimits(t *testing.T) {
	t.Parallel()
	const maxRate, maxPer = 1_000_000, 365 * 24 * time.Hour // a second, and of a rate
	f := face.New(t)
	q, m := f.Queue(nil), Of(delayqueue.NewMonitor(f.Name, f.Cli))
	panics := func(with string, do func()) {
		t.Helper()
		if text := queuetest.PanicText(do); !strings.Contains(text, with) {
			t.Errorf("%q, want %q", text, with)
		}
	}
	const rate, concurrency = "at least 1 and at most a million a second", "at least 1 at a time"
	for _, l := range []Limits{{0, time.Second, 1, 0}, {-1, time.Second, 1, 0}, {1, 0, 1, 0}, {1, -1, 1, 0},
		{1, 100, 1, 0}, {1, time.Second, 0, 0},
		{1, time.Second, -1, 0}, {1, time.Second, maxRate + 1, 0}, {2, time.Microsecond, 1, 0},
		{maxRate + 1, time.Second, 1, 0}, {1, maxPer + 1, 1, 0}} {
		panics(rate, func() { q.WithRateLimit(l.Rate, l.Per, l.Burst) })
		if _, err := m.SetLimits(queuetest.CtxB, l); !errors.Is(err, delayqueue.ErrBadOption) ||
			!strings.Contains(fmt.Sprint(err), rate) {
			t.Errorf("%+v: %v", l, err)
		}
	}
	panics("did you mean 10*time.Second?", func() { q.WithRateLimit(1, 10, 1) })
	for _, n := range []int{0, -1, math.MaxInt} {
		panics(concurrency, func() { q.WithQueueConcurrency(n) })
		if _, err := m.SetLimits(queuetest.CtxB, Limits{Concurrency: n}); n != 0 &&
			(!errors.Is(err, delayqueue.ErrBadOption) || !strings.Contains(fmt.Sprint(err), concurrency)) {
			t.Errorf("%d: %v", n, err)
		}
	}
	q.WithRateLimit(maxRate, time.Second, maxRate).WithRateLimit(1, time.Millisecond, 1).WithQueueConcurrency(1)
}
