package ops

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
)

var longLane = flag.Int("lane", 0,
	"how many messages the lane of TestLongLane has, of which it handles half; 0: fewer, of which it handles 500")

// A laneWatch wants each message of some lanes once, in the order of its lane, one at a time.
type laneWatch struct {
	testing.TB
	next, busy []atomic.Int32
	handled    atomic.Int64
	wait       func(lane, n int) // in the handler; nil: none waits
}

func watchLanes(t testing.TB, lanes int) *laneWatch {
	return &laneWatch{TB: t, next: make([]atomic.Int32, lanes), busy: make([]atomic.Int32, lanes)}
}

func (w *laneWatch) handle(_ context.Context, msg *delayqueue.Message) error {
	var lane, n int
	if _, err := fmt.Sscanf(msg.Lane+" "+msg.Payload, "lane-%d %d", &lane, &n); err != nil {
		w.Errorf("lane %q, payload %q: %v", msg.Lane, msg.Payload, err)
		return nil
	}
	if at := w.busy[lane].Add(1); at != 1 {
		w.Errorf("lane %d: %d at a time", lane, at)
	}
	if want := int(w.next[lane].Load()); n != want {
		w.Errorf("lane %d: message %d, want %d", lane, n, want)
	}
	runtime.Gosched()
	if w.wait != nil {
		w.wait(lane, n)
	}
	w.next[lane].Store(int32(n + 1))
	w.busy[lane].Add(-1)
	w.handled.Add(1)
	return nil
}

// consumes begins to consume with so many consumers.
func (w *laneWatch) consumes(f *face.Fixture, consumers int) (stop func()) {
	var queues []*delayqueue.DelayQueue
	for range consumers {
		q := f.Queue(nil).WithHandler(w.handle).WithConcurrent(32)
		q.StartConsume()
		queues = append(queues, q)
	}
	return func() {
		for _, q := range queues {
			f.Must(q.Shutdown(queuetest.CtxB))
		}
	}
}

// until waits until so many messages were handled.
func (w *laneWatch) until(n int) {
	w.Helper()
	queuetest.Reaches(w.TB, "messages are handled", n, func() int { return int(w.handled.Load()) })
}

// fillLanes sends so many messages into each of so many lanes, all due. The payload of each is its number in its lane.
func fillLanes(f *face.Fixture, lanes, each int) {
	f.T.Helper()
	q := f.Queue(nil)
	batch := make([]delayqueue.Outgoing, 0, 5_000)
	for n := range each {
		for i := range lanes {
			lane := delayqueue.WithLane(fmt.Sprint("lane-", i))
			batch = append(batch, delayqueue.Outgoing{Payload: strconv.Itoa(n), Options: []delayqueue.MsgOption{lane}})
			if len(batch) == cap(batch) || n == each-1 && i == lanes-1 {
				f.Must(queuetest.Failure(q.SendBatch(queuetest.CtxB, batch)))
				batch = batch[:0]
			}
		}
	}
}

// scriptCost is how many commands script calls have inside, divided by n. Calls that are made now and then, as to
// forget old callers, make it a little more.
func scriptCost(t *testing.T, server *redistest.Server, n int, call func()) int {
	t.Helper()
	spent := queuetest.Commands(t, queuetest.RedisClient(t, server.Addr()), call)
	calls, all := spent["evalsha"]+spent["eval"], 0
	for _, n := range spent {
		all += n
	}
	return (all - calls) / n
}

// costsAsMuch wants no call to cost more than it does in a queue of few lanes, or in a short lane.
func costsAsMuch(t *testing.T, costs, few map[string]int) {
	t.Helper()
	for what, n := range costs {
		t.Logf("%s: %d commands, and %d in a small queue", what, n, few[what])
		if n > few[what]+few[what]/2+5 {
			t.Errorf("%s: %d commands, and %d in a small queue", what, n, few[what])
		}
	}
}

// TestManyLanes: messages of very many lanes are each handled once, in order, one at a time, also while one lane
// stands still. A call has no more commands than in a queue of few lanes.
func TestManyLanes(t *testing.T) {
	t.Parallel()
	f, server := face.OwnServer(t)
	few := liveInLanes(t, &face.Fixture{Base: f.Named("few")}, server, 300, 3)
	costsAsMuch(t, liveInLanes(t, f, server, testkit.Size(100_000, 3_000), 3), few)
}

// liveInLanes fills lanes, walks them, and has all handled, while the first message of one is handled until all other
// lanes are empty.
func liveInLanes(t *testing.T, f *face.Fixture, server *redistest.Server, lanes, each int) map[string]int {
	t.Helper()
	m, costs, found := Of(delayqueue.NewMonitor(f.Name, f.Cli)), map[string]int{}, &LanePage{}
	costs["a message that is sent"] = scriptCost(t, server, lanes*each, func() { fillLanes(f, lanes, each) })
	costs["a lane in a page"] = scriptCost(t, server, lanes, func() {
		for more := true; more; more = found.Next != "" {
			page, err := m.Lanes(queuetest.CtxB, 30_000, found.Next)
			f.Must(err)
			found.Merge(page)
		}
	})
	if n := int64(len(found.Lanes)) + found.Others; n != int64(lanes) {
		t.Errorf("%d lanes were found, want %d", n, lanes)
	}
	w, others := watchLanes(t, lanes), make(chan struct{})
	w.wait = func(lane, n int) {
		if lane == 0 && n == 0 {
			<-others
		}
	}
	costs["a message, fetched and settled"] = scriptCost(t, server, lanes*each, func() {
		stop := w.consumes(f, 3)
		func() {
			defer close(others)
			w.until((lanes - 1) * each)
		}()
		w.until(lanes * each)
		stop()
	})
	for i := range w.next {
		if n := w.next[i].Load(); int(n) != each {
			t.Errorf("lane %d: %d messages handled, want %d", i, n, each)
		}
	}
	f.CheckEmpty()
	return costs
}

// TestLongLane: messages of a very long lane are each handled once, in order, one at a time. No call has more
// commands than in a short lane, whatever it does.
func TestLongLane(t *testing.T) {
	t.Parallel()
	f, server := face.OwnServer(t)
	short := workInLane(t, &face.Fixture{Base: f.Named("short")}, server, 2_000, 500)
	n, handled := testkit.Size(100_000, 8_000), 500
	if *longLane > 0 {
		n, handled = *longLane, *longLane/2
	}
	costsAsMuch(t, workInLane(t, f, server, n, handled), short)
}

// workInLane fills a lane, handles so many messages, does everything to single ones, and deletes the others. It
// returns what a call of each costs.
func workInLane(t *testing.T, f *face.Fixture, server *redistest.Server, n, handled int) map[string]int {
	t.Helper()
	const name = "lane-0"
	q, m, costs := f.Queue(nil), Of(delayqueue.NewMonitor(f.Name, f.Cli)), map[string]int{}
	costs["send"] = scriptCost(t, server, 1, func() { fillLanes(f, 1, 100) })
	f.Must(queuetest.Failure(m.BulkDelete(queuetest.CtxB, Bulk{States: everyWaiting})))
	f.CheckEmpty()
	fillLanes(f, 1, n)

	w, upTo := watchLanes(t, 1), 0
	handle := func() {
		stop := w.consumes(f, 1)
		w.until(upTo)
		stop()
	}
	upTo = handled
	costs["handle"] = scriptCost(t, server, handled, handle)
	maps.Copy(costs, steerInLane(f, q, m, server, name))
	costs["bulk delete"] = scriptCost(t, server, 1, func() {
		f.Must(queuetest.Failure(m.BulkDelete(queuetest.CtxB, Bulk{States: everyWaiting, Most: 100})))
	})
	f.Must(queuetest.Failure(m.BulkDelete(queuetest.CtxB,
		Bulk{States: append(everyWaiting, delayqueue.StateGarbage), Filter: Filter{Limit: 500}})))
	f.CheckEmpty()
	return costs
}

var everyWaiting = []delayqueue.State{delayqueue.StateWaiting, delayqueue.StatePending, delayqueue.StateReady,
	delayqueue.StateRetry}

// steerInLane does everything to single messages of a lane. Now and then a call makes a connection, too: the least of
// three counts.
func steerInLane(f *face.Fixture, q *delayqueue.DelayQueue, m *Queue, server *redistest.Server,
	name string) map[string]int {
	f.T.Helper()
	var id string
	send := func(opts ...delayqueue.MsgOption) func() {
		return func() { id = f.Send(q, "x", append(opts, delayqueue.WithLane(name))...).ID }
	}
	turn := func() {
		lane, err := m.Lane(queuetest.CtxB, name)
		f.Must(err)
		id = lane.Holders[0].ID
	}
	costs := map[string]int{}
	of := func(what string, prepare func(), call func(id string) error) {
		costs[what] = math.MaxInt
		for range 3 {
			prepare()
			costs[what] = min(costs[what], scriptCost(f.T.(*testing.T), server, 1, func() { f.Must(call(id)) }))
		}
	}
	intercept := func(id string) error { return queuetest.Failure(m.Intercept(queuetest.CtxB, id)) }
	at := func(d time.Duration) func(id string) error {
		return func(id string) error { return m.Reschedule(queuetest.CtxB, id, time.Now().Add(d)) }
	}
	early, late := delayqueue.WithSchedule(time.Unix(5, 0)), delayqueue.WithDelay(time.Hour)
	nothing := func() {}
	of("send before all", nothing, func(string) error { send(early)(); return nil })
	of("send behind all", nothing, func(string) error { send(late)(); return nil })
	of("intercept the first", turn, intercept)
	of("intercept a later one", send(), intercept)
	of("intercept the last", send(late), intercept)
	of("delete the first", turn, func(id string) error { return m.Delete(queuetest.CtxB, id) })
	of("put off the first", turn, at(time.Hour))
	of("put forward the last", send(late), at(0))
	of("skip to end", turn, func(id string) error { return m.SkipToEnd(queuetest.CtxB, id) })
	of("skip to garbage", turn, func(id string) error { return m.SkipToGarbage(queuetest.CtxB, id) })
	of("requeue", func() {
		turn()
		f.Must(m.SkipToGarbage(queuetest.CtxB, id))
	}, func(id string) error { return m.Requeue(queuetest.CtxB, id) })
	of("get", send(), func(id string) error { return queuetest.Failure(m.Get(queuetest.CtxB, id)) })
	of("lane", nothing, func(string) error { return queuetest.Failure(m.Lane(queuetest.CtxB, name)) })
	of("lanes", nothing, func(string) error { return queuetest.Failure(m.Lanes(queuetest.CtxB, 0, "")) })
	of("counts", nothing, func(string) error { return queuetest.Failure(m.Counts(queuetest.CtxB)) })
	of("list", nothing, func(string) error {
		return queuetest.Failure(m.List(queuetest.CtxB, delayqueue.StateWaiting, Filter{Limit: 100}, ""))
	})
	return costs
}
