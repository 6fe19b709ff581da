package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestReports(t *testing.T) { onSharedServer(t, monitorReports) }

func monitorReports(f *fixture, m *Monitor) {
	heard := make(chan Event, 100)
	sub, err := m.ListenEvent(ctxB, func(e Event) { heard <- e })
	f.must(err)
	defer sub.Stop()
	other := NewPublisher(f.name, f.cli)
	defer other.EnableReport().Stop()
	q := f.queue(func(string) bool { return true })
	defer q.EnableReport().Stop()
	info, err := other.Send(ctxB, "x")
	f.must(err)
	for _, want := range []EventCode{NewMessageEvent, ReadyEvent, DeliveredEvent, AckEvent} {
		if want == ReadyEvent {
			q.StartConsume()
		}
		if e := receive(f.t, want.String(), heard); e.Code != want || e.Count != 1 || !slices.Equal(e.IDs, []string{info.ID}) ||
			time.Since(e.Time) > patience {
			f.t.Errorf("%+v, want %s", e, want)
		}
	}
}

// TestListenEvent: every code, in this process.
func TestListenEvent(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	heard := make(chan Event, 100)
	q := f.queue(nil).WithNackRedeliveryDelay(0).WithHandler(func(context.Context, *Message) error { return errBoom })
	sub := q.ListenEvent(func(e Event) { heard <- e })
	next := func(want EventCode, ids ...string) {
		t.Helper()
		if e := receive(t, want.String(), heard); e.Code != want || e.Count != 1 || !slices.Equal(e.IDs, ids) {
			t.Errorf("%s %+v, want %s %q", e.Code, e, want, ids)
		}
	}
	info := f.send(q, "x", WithRetryCount(1))
	next(NewMessageEvent, info.ID)
	q.StartConsume()
	// What a settlement tells may be heard after what the next fetch does.
	of := map[bool][]EventCode{}
	for range 8 {
		e := receive(t, "what follows", heard)
		if e.Count != 1 || !slices.Equal(e.IDs, []string{info.ID}) {
			t.Errorf("%s %+v, want one of %s", e.Code, e, info.ID)
		}
		fetch := e.Code == ReadyEvent || e.Code == DeliveredEvent
		of[fetch] = append(of[fetch], e.Code)
	}
	if want := []EventCode{ReadyEvent, DeliveredEvent, ReadyEvent, DeliveredEvent}; !slices.Equal(of[true], want) {
		t.Errorf("of fetches: %v, want %v", of[true], want)
	}
	if want := []EventCode{NackEvent, RetryEvent, NackEvent, FinalFailedEvent}; !slices.Equal(of[false], want) {
		t.Errorf("of settlements: %v, want %v", of[false], want)
	}
	y := f.send(q, "y", inAnHour, WithKey("y"))
	next(NewMessageEvent, y.ID)
	if _, err := q.InterceptKey(ctxB, "y"); err != nil {
		t.Fatal(err)
	}
	next(InterceptedEvent, y.ID)
	sub.Stop()
	sub.Stop()
	f.send(q, "z", inAnHour)
	if len(heard) > 0 {
		t.Errorf("heard %+v after the stop", <-heard)
	}
}

// TestLostEvent: a consumer that died.
func TestLostEvent(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := unhurried(f.queue(func(string) bool { return true })).WithMaxLosses(1)
	heard := make(chan Event, 100)
	defer q.ListenEvent(func(e Event) { heard <- e }).Stop()
	info := f.send(q, "x")
	if _, err := f.calls().fetch(ctxB, &caller{id: "dies", n: 1},
		fetchRequest{want: 1, settings: &fetchSettings{lease: time.Second, maxLosses: 1}}); err != nil {
		t.Fatal(err)
	}
	q.StartConsume()
	for _, want := range []Event{{Code: NewMessageEvent, IDs: []string{info.ID}}, {Code: LostEvent},
		{Code: FinalFailedEvent, IDs: []string{info.ID}}} {
		if e := receive(t, want.Code.String(), heard); e.Code != want.Code || e.Count != 1 || !slices.Equal(e.IDs, want.IDs) {
			t.Errorf("%+v, want %+v", e, want)
		}
	}
}

// TestListenerThatIsSlowOrPanics: the workers go on, and what was dropped is counted.
func TestListenerThatIsSlowOrPanics(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var handled atomic.Int64
	q := f.queue(func(string) bool { handled.Add(1); return true }).WithConcurrent(4)
	release := make(chan struct{})
	var got, dropped atomic.Int64
	first := true
	slow := q.ListenEvent(func(e Event) {
		if first {
			first = false
			<-release
		}
		got.Add(1)
		dropped.Add(e.Dropped)
	})
	defer slow.Stop()
	defer q.ListenEvent(func(Event) { panic("listener") }).Stop()
	q.StartConsume()
	const n = 2000 // an event of each send at least
	for i := range n {
		f.send(q, fmt.Sprint(i))
	}
	reaches(t, "all are handled while the listener hangs", n, func() int { return int(handled.Load()) })
	close(release)
	if slow.Dropped() == 0 {
		t.Error("nothing was dropped")
	}
	eventually(t, "what was dropped is said, though nothing else happens", func() bool { return dropped.Load() == slow.Dropped() })
	eventually(t, "the panics are in the log", func() bool { return f.log.count("event listener panicked") > n })
	eventually(t, "the queue is empty", func() bool { return len(f.check().Messages) == 0 })
}

// TestReportWithoutRedis: what cannot be published is dropped and counted.
func TestReportWithoutRedis(t *testing.T) {
	t.Parallel()
	cli := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1, MaxRetries: -1})
	defer cli.Close()
	p := NewPublisher("nobody-there", cli)
	sub := p.EnableReport()
	defer sub.Stop()
	p.events.tell(AckEvent, 1, "x")
	eventually(t, "it is counted", func() bool { return sub.Dropped() == 1 })
}

// TestSnoozed: a middleware can tell a snooze from a failure.
func TestSnoozed(t *testing.T) {
	t.Parallel()
	if err := fmt.Errorf("busy: %w", Snooze(time.Second)); !errors.Is(err, ErrSnoozed) || errors.Is(errBoom, ErrSnoozed) {
		t.Errorf("%v is no snooze, or %v is one", err, errBoom)
	}
}

// TestReportOverAClientOfItsOwnType: a client of the user's own type publishes by its own command.
func TestReportOverAClientOfItsOwnType(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	heard := make(chan Event, 10)
	listener, err := NewMonitor(f.name, f.cli).ListenEvent(ctxB, func(e Event) { heard <- e })
	f.must(err)
	defer listener.Stop()
	p := NewPublisher(f.name, wrapped{f.cli})
	sub := p.EnableReport()
	defer sub.Stop()
	f.must(p.SendDelayMsg("x", time.Hour))
	if e := receive(t, "it is heard", heard); e.Code != NewMessageEvent || sub.Dropped() != 0 {
		t.Errorf("%+v, %d dropped", e, sub.Dropped())
	}
}
