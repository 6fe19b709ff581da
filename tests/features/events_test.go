package features

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/redis/go-redis/v9"
)

// TestListenEvent: every code, in this process.
func TestListenEvent(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	heard := make(chan delayqueue.Event, 100)
	q := f.Queue(nil).WithNackRedeliveryDelay(0).WithHandler(func(context.Context, *delayqueue.Message) error {
		return queuetest.ErrBoom
	})
	sub := q.ListenEvent(func(e delayqueue.Event) { heard <- e })
	next := func(want delayqueue.EventCode, ids ...string) {
		t.Helper()
		if e := queuetest.Receive(t, want.String(), heard); e.Code != want || e.Count != 1 || !slices.Equal(e.IDs, ids) {
			t.Errorf("%s %+v, want %s %q", e.Code, e, want, ids)
		}
	}
	info := f.Send(q, "x", delayqueue.WithRetryCount(1))
	next(delayqueue.NewMessageEvent, info.ID)
	q.StartConsume()
	// What a settlement tells may be heard after what the next fetch does.
	of := map[bool][]delayqueue.EventCode{}
	for range 8 {
		e := queuetest.Receive(t, "what follows", heard)
		if e.Count != 1 || !slices.Equal(e.IDs, []string{info.ID}) {
			t.Errorf("%s %+v, want one of %s", e.Code, e, info.ID)
		}
		fetch := e.Code == delayqueue.ReadyEvent || e.Code == delayqueue.DeliveredEvent
		of[fetch] = append(of[fetch], e.Code)
	}
	if want := []delayqueue.EventCode{delayqueue.ReadyEvent, delayqueue.DeliveredEvent, delayqueue.ReadyEvent,
		delayqueue.DeliveredEvent}; !slices.Equal(of[true], want) {
		t.Errorf("of fetches: %v, want %v", of[true], want)
	}
	if want := []delayqueue.EventCode{delayqueue.NackEvent, delayqueue.RetryEvent, delayqueue.NackEvent,
		delayqueue.FinalFailedEvent}; !slices.Equal(of[false], want) {
		t.Errorf("of settlements: %v, want %v", of[false], want)
	}
	y := f.Send(q, "y", face.InAnHour, delayqueue.WithKey("y"))
	next(delayqueue.NewMessageEvent, y.ID)
	f.Must(queuetest.Failure(q.InterceptKey(queuetest.CtxB, "y")))
	next(delayqueue.InterceptedEvent, y.ID)
	sub.Stop()
	sub.Stop()
	f.Send(q, "z", face.InAnHour)
	if len(heard) > 0 {
		t.Errorf("heard %+v after the stop", <-heard)
	}
}

// TestLostEvent: a consumer that died.
func TestLostEvent(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	q := unhurried(f.Queue(func(string) bool { return true })).WithMaxLosses(1)
	heard := make(chan delayqueue.Event, 100)
	defer q.ListenEvent(func(e delayqueue.Event) { heard <- e }).Stop()
	info := f.Send(q, "x")
	f.Lost(info.ID, time.Second)
	q.StartConsume()
	for _, want := range []delayqueue.Event{{Code: delayqueue.NewMessageEvent, IDs: []string{info.ID}},
		{Code: delayqueue.LostEvent},
		{Code: delayqueue.FinalFailedEvent, IDs: []string{info.ID}}} {
		if e := queuetest.Receive(t, want.Code.String(), heard); e.Code != want.Code || e.Count != 1 ||
			!slices.Equal(e.IDs, want.IDs) {
			t.Errorf("%+v, want %+v", e, want)
		}
	}
}

// TestListenerThatIsSlowOrPanics: the workers go on, and what was dropped is counted.
func TestListenerThatIsSlowOrPanics(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	var handled atomic.Int64
	q := f.Queue(func(string) bool { handled.Add(1); return true }).WithConcurrent(4)
	release := make(chan struct{})
	var got, dropped atomic.Int64
	first := true
	slow := q.ListenEvent(func(e delayqueue.Event) {
		if first {
			first = false
			<-release
		}
		got.Add(1)
		dropped.Add(e.Dropped)
	})
	defer slow.Stop()
	var panics atomic.Int64
	defer q.ListenEvent(func(delayqueue.Event) { panics.Add(1); panic("listener") }).Stop()
	q.StartConsume()
	const n = 2000 // an event of each send at least
	for i := range n {
		f.Send(q, fmt.Sprint(i))
	}
	queuetest.Reaches(t, "all are handled while the listener hangs", n, func() int { return int(handled.Load()) })
	close(release)
	if slow.Dropped() == 0 {
		t.Error("nothing was dropped")
	}
	queuetest.Eventually(t, "what was dropped is said, though nothing else happens", func() bool {
		return dropped.Load() == slow.Dropped()
	})
	queuetest.Eventually(t, "the listener panics and goes on", func() bool { return panics.Load() > n })
	if logged := f.Log.Count("event listener panicked"); logged < 1 || logged > n/10 {
		t.Errorf("%d panics in %d lines, want one a minute", panics.Load(), logged)
	}
	queuetest.Eventually(t, "the queue is empty", func() bool { return len(f.Check().Messages) == 0 })
}

// TestReportOverAClientOfItsOwnType: a client of the user's own type publishes by its own command.
func TestReportOverAClientOfItsOwnType(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	heard := make(chan delayqueue.Event, 10)
	listener, err := delayqueue.NewMonitor(f.Name, f.Cli).ListenEvent(queuetest.CtxB, func(e delayqueue.Event) {
		heard <- e
	})
	f.Must(err)
	defer listener.Stop()
	p := delayqueue.NewPublisher(f.Name, wrapped{f.Cli})
	sub := p.EnableReport()
	defer sub.Stop()
	f.Must(p.SendDelayMsg("x", time.Hour))
	if e := queuetest.Receive(t, "it is heard", heard); e.Code != delayqueue.NewMessageEvent || sub.Dropped() != 0 {
		t.Errorf("%+v, %d dropped", e, sub.Dropped())
	}
}

// TestEventsStayInTheirDatabase: a Monitor hears nothing of the queue of the same name in another database of the
// server.
func TestEventsStayInTheirDatabase(t *testing.T) {
	t.Parallel()
	f, server := face.OwnServer(t)
	var monitors [2]*delayqueue.Monitor
	var heard [2]chan delayqueue.Event
	for db := range monitors {
		cli := queuetest.ClientWith(t, &redis.Options{Addr: server.Addr(), DB: db})
		monitors[db], heard[db] = delayqueue.NewMonitor(f.Name, cli), make(chan delayqueue.Event, 100)
		sub, err := monitors[db].ListenEvent(queuetest.CtxB, func(e delayqueue.Event) { heard[db] <- e })
		f.Must(err)
		defer sub.Stop()
	}
	for _, db := range []int{1, 0} { // what a database hears of the other one comes before its own
		p := delayqueue.NewPublisher(f.Name, queuetest.ClientWith(t, &redis.Options{Addr: server.Addr(), DB: db}))
		defer p.EnableReport().Stop()
		info, err := p.Send(queuetest.CtxB, "x", face.InAnHour)
		f.Must(err)
		if e := queuetest.Receive(t, "a send", heard[db]); !slices.Equal(e.IDs, []string{info.ID}) {
			t.Errorf("database %d heard %+v, want %s", db, e, info.ID)
		}
	}
}
