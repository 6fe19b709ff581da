package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/redis/go-redis/v9"
)

// mostSteps bounds what is done to judge a history, whatever the machine's speed: some fifty times what one takes.
const mostSteps = 150_000

// possible wants the deeds that are about something to be a possible life of it.
func possible[L any](name string, first L, same func(a, b L) bool, step func(L, limitDeed) (bool, L), all []limitDeed,
	about ...string) (steps int, err error) {
	var ops []porcupine.Operation
	for _, d := range all {
		if slices.Contains(about, d.what) {
			ops = append(ops, porcupine.Operation{Input: d, Call: d.from, Return: d.to})
		}
	}
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	reached := 0 // how far any order of the deeds came
	ok := porcupine.CheckOperations(porcupine.Model{
		Init:  func() any { return first },
		Equal: func(a, b any) bool { return same(a.(L), b.(L)) },
		Step: func(state, input, _ any) (bool, any) {
			if steps++; steps > mostSteps {
				return false, state
			}
			d := input.(limitDeed)
			ok, l := step(state.(L), d)
			if i, found := slices.BinarySearchFunc(ops, d.from,
				func(op porcupine.Operation, at int64) int { return cmp.Compare(op.Call, at) }); ok && found {
				reached = max(reached, i)
			}
			return ok, l
		},
	}, ops)
	if ok {
		return steps, nil
	}
	var text strings.Builder
	for _, op := range ops[max(0, reached-30):min(reached+3, len(ops))] {
		fmt.Fprintf(&text, "\n%d to %d: %+v", op.Call-ops[0].Call, op.Return-ops[0].Call, op.Input)
	}
	if steps > mostSteps {
		return steps, fmt.Errorf("%s: %w%v", name, errNotJudged, &text)
	}
	return steps, fmt.Errorf("%s: %w:%v", name, errCannotBe, &text)
}

var (
	errCannotBe  = errors.New("a consumer that keeps to it cannot have done this")
	errNotJudged = errors.New("not judged: of too many deeds it is not known when they were done")
)

// judgeLimits wants deeds of consumers that ask for some limits to be possible.
func judgeLimits(t testing.TB, asked bounds, all []limitDeed) error {
	n, rate := possible("rate", rateLife{}, func(a, b rateLife) bool { return a == b },
		func(l rateLife, d limitDeed) (bool, rateLife) { return l.next(d, asked) }, all, handedOut, tookLimits, saidThrottle, liftedThrottle)
	k, places := possible("places", placesLife{held: map[string]holding{}},
		func(a, b placesLife) bool { return a.set == b.set && maps.Equal(a.held, b.held) },
		func(l placesLife, d limitDeed) (bool, placesLife) { return l.next(d, asked) }, all,
		handedOut, wasSettled, perhapsSettled, renewedLease, lostLease, partedLease, tookLimits)
	t.Logf("%d deeds judged in %d and %d steps", len(all), n, k)
	return errors.Join(rate, places)
}

// TestLimitsJudge: histories that can be, that cannot, and that nobody can judge in time.
func TestLimitsJudge(t *testing.T) {
	t.Parallel()
	asked := bounds{n: 10, us: 1_000_000, burst: 3, places: 4}
	out := func(from, to int64, tags ...string) limitDeed {
		return limitDeed{what: handedOut, from: from, to: to, tags: tags, ends: to + 10_000_000}
	}
	ended := func(at int64, tags ...string) limitDeed {
		return limitDeed{what: wasSettled, from: at, to: at, tags: tags}
	}
	set := limitDeed{what: tookLimits, from: 2, to: 2, now: bounds{n: 1_000_000, us: 1_000_000, burst: 100_000, places: 100_000}}
	throttle := limitDeed{what: saidThrottle, from: 1, to: 1, pause: 1_000_000}
	lifts := func(at int64, was bool) limitDeed { return limitDeed{what: liftedThrottle, from: at, to: at, was: was} }
	extended := func(what string, at int64) limitDeed {
		return limitDeed{what: what, from: at, to: at, ends: at + 10_000_000, count: 3}
	}
	unknown := []limitDeed{set}
	for i := range int64(40) {
		unknown = append(unknown, out(3, 1000+i, fmt.Sprint("u", i)))
	}
	for name, c := range map[string]struct {
		deeds []limitDeed
		want  error
	}{
		"a burst":                    {[]limitDeed{out(1, 1, "a", "b", "c"), out(100_001, 100_001, "d")}, nil},
		"more than a burst":          {[]limitDeed{out(1, 1, "a", "b", "c"), out(2, 2, "d")}, errCannotBe},
		"too soon":                   {[]limitDeed{out(1, 1, "a", "b", "c"), out(100_000, 100_000, "d")}, errCannotBe},
		"at some time":               {[]limitDeed{out(1, 1, "a", "b", "c"), out(2, 100_001, "d")}, nil},
		"more than there are places": {[]limitDeed{out(1, 1, "a", "b", "c"), out(300_001, 300_001, "d", "e")}, errCannotBe},
		"in a place that is free":    {[]limitDeed{out(1, 1, "a", "b", "c"), ended(300_000, "a"), out(300_001, 300_001, "d", "e")}, nil},
		"in one that was free later": {[]limitDeed{out(1, 1, "a", "b", "c"), ended(300_002, "a"), out(300_001, 300_001, "d", "e")}, errCannotBe},
		"after a lease":              {[]limitDeed{out(1, 1, "a", "b", "c"), out(10_000_001, 10_000_001, "d", "e")}, nil},
		"after a renewed lease":      {[]limitDeed{out(1, 1, "a", "b", "c"), extended(renewedLease, 9), out(10_000_001, 10_000_001, "d", "e")}, errCannotBe},
		"renewed after its acks":     {[]limitDeed{out(1, 1, "a"), ended(2, "a"), extended(renewedLease, 3)}, errCannotBe},
		"renewed, with too few":      {[]limitDeed{out(1, 1, "a", "b", "c", "d"), extended(renewedLease, 2)}, errCannotBe},
		"left, and renewed":          {[]limitDeed{out(1, 1, "a", "b", "c"), {what: partedLease, from: 5, to: 5, tags: []string{"a"}}, extended(renewedLease, 9), out(10_000_001, 10_000_001, "d", "e")}, nil},
		"found over too soon":        {[]limitDeed{out(1, 1, "a"), extended(lostLease, 10_000_000)}, errCannotBe},
		"found over":                 {[]limitDeed{out(1, 1, "a"), extended(lostLease, 10_000_001)}, nil},
		"other limits":               {[]limitDeed{out(1, 1, "a", "b", "c"), set, out(200_000, 200_000, "d", "e", "f")}, nil},
		"during a throttle": {[]limitDeed{{what: saidThrottle, from: 1, to: 1, pause: 1_000_000}, out(1_000_000, 1_000_000, "a")},
			errCannotBe},
		"lifted":                {[]limitDeed{throttle, lifts(2, true), out(3, 3, "a")}, nil},
		"lifted later":          {[]limitDeed{throttle, out(2, 2, "a"), lifts(3, true)}, errCannotBe},
		"none, and it held":     {[]limitDeed{throttle, lifts(2, false)}, errCannotBe},
		"none, and it was over": {[]limitDeed{throttle, lifts(1_000_002, false)}, nil},
		"who knows when":        {append(unknown, ended(2000, "never handed out")), errNotJudged},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := judgeLimits(t, asked, c.deeds); !errors.Is(err, c.want) || c.want == nil && err != nil {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}

// limitsLine is a consumer on a line of its own.
type limitsLine struct {
	*redistest.Wire
	q    *delayqueue.DelayQueue
	slow chan string // the tag of what its handler has begun, which goes on until it is let go, if anybody waits for that
}

// A limitsRun is a queue with limits, and all that is done to it.
type limitsRun struct {
	*face.Fixture
	h     *history
	asked script.RateLimits
	free  chan struct{} // closed when slow handlers may end
}

// consumer starts one, over a line on which every so many-th reply is lost; 0: none is.
func (f *limitsRun) consumer(every int64, with func(*delayqueue.DelayQueue) *delayqueue.DelayQueue) *limitsLine {
	l := &limitsLine{Wire: redistest.NewWire(f.T, queuetest.Shared.Addr()), slow: make(chan string)}
	cli := redis.NewClient(&redis.Options{Addr: l.Addr()})
	f.T.Cleanup(func() { _ = cli.Close() })
	f.T.Cleanup(link.Interpose(cli, f.h))
	if every > 0 {
		f.T.Cleanup(link.Interpose(cli, queuetest.LoseReplies(every, new(atomic.Int64))))
	}
	l.q = with(f.QueueOn(cli, nil).WithConcurrent(4).WithNackRedeliveryDelay(10*time.Millisecond)).
		WithRateLimit(f.asked.Rate, f.asked.Per, f.asked.Burst).WithQueueConcurrency(f.asked.Concurrency)
	l.q.WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
		f.h.deliveries.Add(1)
		n, _ := strconv.Atoi(msg.Payload)
		select {
		case l.slow <- queuetest.TagOf(msg.ID, msg.Delivery):
			select {
			case <-ctx.Done():
			case <-f.free:
			}
		case <-time.After(5 * time.Millisecond): // others wait for its place
		}
		switch {
		case n%25 == 7 && msg.Delivery == 1:
			return delayqueue.Throttle(50*time.Millisecond, queuetest.ErrBoom)
		case n%10 == 2:
			return queuetest.ErrBoom
		case n%10 == 3 && msg.Delivery < 3:
			return delayqueue.Snooze(10 * time.Millisecond)
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
	f.T.Helper()
	queuetest.Reaches(f.T, "all is handled", 0, func() int {
		c, err := f.Calls().Counts(queuetest.CtxB)
		f.Must(err)
		return -int(c.Pending + c.Ready + c.Unack + c.Retry)
	})
}

// TestLimitsHistories runs consumers of one queue with limits, which a Monitor changes meanwhile, and handlers throttle, which it lifts, on
// lines that lose replies and break, and wants what they did to be possible for one that keeps to the limits by itself: by
// the server's clock never more handed out than the rate allows, and never more at a time than there are places.
func TestLimitsHistories(t *testing.T) {
	t.Parallel()
	f := &limitsRun{Fixture: face.New(t), free: make(chan struct{}), asked: script.RateLimits{Rate: 300, Per: time.Second, Burst: 20, Concurrency: 6},
		h: &history{began: time.Now(), calls: map[string]*recorded{}}}
	f.h.carriedOut = func(caller string) string { return f.Cli.HGet(queuetest.CtxB, f.Key("state"), "call:"+caller).Val() }
	release := sync.OnceFunc(func() { close(f.free) })
	defer release()
	cli := f.Client()
	t.Cleanup(link.Interpose(cli, f.h))
	t.Cleanup(link.Interpose(cli, queuetest.LoseReplies(3, new(atomic.Int64))))
	m := Of(delayqueue.NewMonitor(f.Name, cli))
	short := func(q *delayqueue.DelayQueue) *delayqueue.DelayQueue {
		return q.WithLease(time.Second).WithDefaultRetryCount(2)
	}
	lines := []*limitsLine{f.consumer(0, short), f.consumer(0, short), f.consumer(10, short)}

	sender := f.Queue(nil)
	sent := 0
	stopSending := meanwhile(2*time.Millisecond, func(int) {
		if int64(sent) < f.h.deliveries.Load()+200 { // a slow machine handles fewer than it sends
			if _, err := sender.Send(queuetest.CtxB, strconv.Itoa(sent), delayqueue.WithRetryCount(2)); err != nil {
				t.Error(err)
			}
			sent++
		}
	})
	defer stopSending()
	others := []script.RateLimits{{Rate: 5000, Per: time.Second, Burst: 50, Concurrency: 3}, {}, {Concurrency: 2}, {Rate: 50, Per: time.Second, Burst: 1},
		{Rate: 2000, Per: time.Second, Burst: 4, Concurrency: 12}, {Concurrency: 1}}
	set := func(l script.RateLimits) {
		if _, err := m.SetLimits(queuetest.CtxB, Limits(l)); err != nil {
			t.Error(err)
		}
	}
	stopSetting := meanwhile(100*time.Millisecond, func(n int) { set(others[n%len(others)]) })
	defer stopSetting()
	lifted := make(chan struct{}, 1)
	stopLifting := meanwhile(40*time.Millisecond, func(int) {
		was, err := m.Unthrottle(queuetest.CtxB)
		if err != nil && !errors.Is(err, delayqueue.ErrNoQueue) { // before the first send
			t.Error(err)
		}
		if was {
			select {
			case lifted <- struct{}{}:
			default:
			}
		}
	})
	defer stopLifting()

	for _, l := range lines {
		for _, sha := range []string{script.FetchScript.SHA, script.SettleScript.SHA} {
			queuetest.Receive(t, "a reply is lost", l.DropReply(redistest.Script(sha)))
		}
	}
	queuetest.Receive(t, "it handles something slow", lines[2].slow) // for long, under a lease that it renews
	for range 2 {                                                    // cut off past a lease, and back
		tag := queuetest.Receive(t, "it handles something slow", lines[0].slow)
		lines[0].Cut()
		queuetest.Eventually(t, "others take over", func() bool { return !slices.Contains(f.Held(), tag) })
		lines[0].Mend()
	}
	queuetest.Receive(t, "it handles something slow", lines[1].slow)
	struck, _ := lines[1].HoldReply(redistest.Script(script.FetchScript.SHA))
	queuetest.Receive(t, "a fetch", struck) // whose reply nobody sees
	lines[1].Cut()                          // for good, as if it were killed
	lines = append(lines, f.consumer(10, short))
	queuetest.Receive(t, "it handles something slow", lines[3].slow)
	queuetest.Receive(t, "a throttle is lifted", lifted)
	release()
	stopSending()
	stopSetting()
	stopLifting()
	set(script.RateLimits{})
	f.handled()
	for _, l := range lines {
		f.Must(l.q.Shutdown(queuetest.CtxB))
	}
	set(script.RateLimits{Concurrency: 1}) // each waits for a place, and whoever frees it wakes one: nobody looks of its own accord
	face.Several(f.Fixture, 50)
	for range 2 {
		lines = append(lines, f.consumer(0, face.NoTick))
	}
	f.handled()
	for _, l := range lines[4:] {
		f.Must(l.q.Shutdown(queuetest.CtxB))
	}
	f.judge()
}

// judge wants what was done to be possible, and everything to have been done.
func (f *limitsRun) judge() {
	t := f.T
	t.Helper()
	f.Check()
	all := f.h.limitDeeds(t, f.h.end())
	if err := judgeLimits(t, bounds{int64(f.asked.Rate), f.asked.Per.Microseconds(), int64(f.asked.Burst), int64(f.asked.Concurrency)}, all); err != nil {
		t.Error(err)
	}
	count := map[string]int{}
	for _, d := range all {
		if count[d.what]++; d.was {
			count["of a throttle that held"]++
		}
		if d.what == handedOut && d.from < d.to {
			count["handed out by a repeat"]++
		}
	}
	t.Log(count)
	for _, what := range []string{handedOut, wasSettled, renewedLease, tookLimits, saidThrottle, "of a throttle that held"} {
		if count[what] == 0 {
			t.Errorf("nothing was %s", what)
		}
	}
}
