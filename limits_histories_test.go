package delayqueue

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// possible wants the deeds that are about something to be a possible life of it.
func possible[L any](t testing.TB, name string, first L, same func(a, b L) bool, step func(L, limitDeed) (bool, L), all []limitDeed, about ...string) {
	t.Helper()
	var ops []porcupine.Operation
	for _, d := range all {
		if slices.Contains(about, d.what) {
			ops = append(ops, porcupine.Operation{Input: d, Call: d.from, Return: d.to})
		}
	}
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	reached := 0 // how far any order of the deeds came
	verdict := porcupine.CheckOperationsTimeout(porcupine.Model{
		Init:  func() any { return first },
		Equal: func(a, b any) bool { return same(a.(L), b.(L)) },
		Step: func(state, input, _ any) (bool, any) {
			d := input.(limitDeed)
			ok, l := step(state.(L), d)
			if i, found := slices.BinarySearchFunc(ops, d.from, func(op porcupine.Operation, at int64) int { return cmp.Compare(op.Call, at) }); ok && found {
				reached = max(reached, i)
			}
			return ok, l
		},
	}, ops, patience)
	if verdict == porcupine.Unknown { // a machine that stands still leaves many orders; one that is possible may be the last
		t.Logf("%s: not judged within %v", name, patience)
	}
	if verdict != porcupine.Illegal {
		return
	}
	t.Errorf("%s: a consumer that keeps to it cannot have done this:", name)
	for _, op := range ops[max(0, reached-30):min(reached+3, len(ops))] {
		t.Logf("%d to %d: %+v", op.Call-ops[0].Call, op.Return-ops[0].Call, op.Input)
	}
}

// limitsLine is a consumer on a line of its own.
type limitsLine struct {
	*redistest.Wire
	q    *DelayQueue
	slow chan string // the tag of what its handler has begun, which goes on until it is let go, if anybody waits for that
}

// A limitsRun is a queue with limits, and all that is done to it.
type limitsRun struct {
	*fixture
	h     *history
	asked Limits
	free  chan struct{} // closed when slow handlers may end
}

// consumer starts one, over a line on which every so many-th reply is lost; 0: none is.
func (f *limitsRun) consumer(every int64, with func(*DelayQueue) *DelayQueue) *limitsLine {
	l := &limitsLine{Wire: redistest.NewWire(f.t, shared.Addr()), slow: make(chan string)}
	cli := redis.NewClient(&redis.Options{Addr: l.Addr()})
	f.t.Cleanup(func() { _ = cli.Close() })
	hookOwn(f.t, cli, f.h)
	if every > 0 {
		loseReplies(f.t, cli, every, new(atomic.Int64))
	}
	l.q = with(f.queueOn(cli, nil).WithConcurrent(4).WithNackRedeliveryDelay(10*time.Millisecond)).
		WithRateLimit(f.asked.Rate, f.asked.Per, f.asked.Burst).WithQueueConcurrency(f.asked.Concurrency)
	l.q.WithHandler(func(ctx context.Context, msg *Message) error {
		f.h.deliveries.Add(1)
		n, _ := strconv.Atoi(msg.Payload)
		select {
		case l.slow <- tagOf(msg.ID, msg.Delivery):
			select {
			case <-ctx.Done():
			case <-f.free:
			}
		case <-time.After(5 * time.Millisecond): // others wait for its place
		}
		switch {
		case n%25 == 7 && msg.Delivery == 1:
			return Throttle(20*time.Millisecond, errBoom)
		case n%10 == 2:
			return errBoom
		case n%10 == 3 && msg.Delivery < 3:
			return Snooze(10 * time.Millisecond)
		}
		return nil
	})
	l.q.StartConsume()
	return l
}

// meanwhile repeats do until what it returns is called.
func meanwhile(every time.Duration, do func(n int)) (stop func()) {
	over, all := make(chan struct{}), sync.WaitGroup{}
	all.Go(func() {
		pace := time.NewTicker(every)
		defer pace.Stop()
		for n := 0; ; n++ {
			select {
			case <-over:
				return
			case <-pace.C:
				do(n)
			}
		}
	})
	return sync.OnceFunc(func() { close(over); all.Wait() })
}

func (f *limitsRun) handled() {
	f.t.Helper()
	reaches(f.t, "all is handled", 0, func() int {
		c, err := f.calls().counts(ctxB)
		f.must(err)
		return -int(c.Pending + c.Ready + c.Unack + c.Retry)
	})
}

// TestLimitsHistories runs consumers of one queue with limits, which a Monitor changes meanwhile and handlers throttle, on
// lines that lose replies and break, and wants what they did to be possible for one that keeps to the limits by itself: by
// the server's clock never more handed out than the rate allows, and never more at a time than there are places.
func TestLimitsHistories(t *testing.T) {
	t.Parallel()
	f := &limitsRun{fixture: newFixture(t), free: make(chan struct{}), asked: Limits{Rate: 300, Per: time.Second, Burst: 20, Concurrency: 6},
		h: &history{began: time.Now(), calls: map[string]*recorded{}}}
	release := sync.OnceFunc(func() { close(f.free) })
	defer release()
	cli := f.client()
	hookOwn(t, cli, f.h)
	loseReplies(t, cli, 3, new(atomic.Int64))
	m := NewMonitor(f.name, cli)
	short := func(q *DelayQueue) *DelayQueue { return q.WithLease(time.Second).WithDefaultRetryCount(2) }
	lines := []*limitsLine{f.consumer(0, short), f.consumer(0, short), f.consumer(10, short)}

	sender := f.queue(nil)
	sent := 0
	stopSending := meanwhile(2*time.Millisecond, func(int) {
		if int64(sent) < f.h.deliveries.Load()+200 { // a slow machine handles fewer than it sends
			if _, err := sender.Send(ctxB, strconv.Itoa(sent), WithRetryCount(2)); err != nil {
				t.Error(err)
			}
			sent++
		}
	})
	defer stopSending()
	others := []Limits{{Rate: 5000, Per: time.Second, Burst: 50, Concurrency: 3}, {}, {Concurrency: 2}, {Rate: 50, Per: time.Second, Burst: 1},
		{Rate: 2000, Per: time.Second, Burst: 4, Concurrency: 12}, {Concurrency: 1}}
	set := func(l Limits) {
		if _, err := m.SetLimits(ctxB, l); err != nil {
			t.Error(err)
		}
	}
	stopSetting := meanwhile(100*time.Millisecond, func(n int) { set(others[n%len(others)]) })
	defer stopSetting()

	for _, l := range lines {
		for _, s := range []*script{fetchScript, settleScript} {
			receive(t, "a reply is lost", l.DropReply(redistest.Script(s.sha)))
		}
	}
	receive(t, "it handles something slow", lines[2].slow) // for long, under a lease that it renews
	for range 2 {                                          // cut off past a lease, and back
		tag := receive(t, "it handles something slow", lines[0].slow)
		lines[0].Cut()
		eventually(t, "others take over", func() bool { return f.cli.ZScore(ctxB, f.calls().keys.unack, tag).Err() == redis.Nil })
		lines[0].Mend()
	}
	receive(t, "it handles something slow", lines[1].slow)
	struck, _ := lines[1].HoldReply(redistest.Script(fetchScript.sha))
	receive(t, "a fetch", struck) // whose reply nobody sees
	lines[1].Cut()                // for good, as if it were killed
	lines = append(lines, f.consumer(10, short))
	receive(t, "it handles something slow", lines[3].slow)
	release()
	stopSending()
	stopSetting()
	set(Limits{})
	f.handled()
	for _, l := range lines {
		f.must(l.q.Shutdown(ctxB))
	}
	set(Limits{Concurrency: 1}) // each waits for a place, and whoever frees it wakes one: nobody looks of its own accord
	f.several(50)
	for range 2 {
		lines = append(lines, f.consumer(0, noTick))
	}
	f.handled()
	for _, l := range lines[4:] {
		f.must(l.q.Shutdown(ctxB))
	}
	f.judge()
}

// judge wants what was done to be possible, and everything to have been done.
func (f *limitsRun) judge() {
	t := f.t
	t.Helper()
	f.check()
	all := f.h.limitDeeds(t, f.h.now())
	asked := boundsOf(f.asked.text())
	possible(t, "rate", rateLife{}, func(a, b rateLife) bool { return a == b },
		func(l rateLife, d limitDeed) (bool, rateLife) { return l.next(d, asked) }, all, handedOut, tookLimits, saidThrottle)
	possible(t, "places", placesLife{held: map[string]int64{}}, func(a, b placesLife) bool { return a.set == b.set && maps.Equal(a.held, b.held) },
		func(l placesLife, d limitDeed) (bool, placesLife) { return l.next(d, asked) }, all,
		handedOut, wasSettled, perhapsSettled, renewedLease, tookLimits)
	count := map[string]int{}
	for _, d := range all {
		count[d.what]++
		if d.what == handedOut && d.from < d.to {
			count["handed out by a repeat"]++
		}
	}
	t.Log(count)
	for _, what := range []string{handedOut, wasSettled, renewedLease, tookLimits, saidThrottle} {
		if count[what] == 0 {
			t.Errorf("nothing was %s", what)
		}
	}
}
