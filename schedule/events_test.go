package schedule

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// heard is what listeners have heard.
type heard struct {
	mu  sync.Mutex
	all []Event
}

func (h *heard) note(e Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, e)
}

func (h *heard) events() []Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.all[:len(h.all):len(h.all)]
}

// count is how often this was heard of an entry.
func (h *heard) count(entry string, code EventCode) (n int) {
	for _, e := range h.events() {
		if e.Entry == entry && e.Code == code {
			n++
		}
	}
	return n
}

// TestEvents: of several replicas one tells what became of an instant.
func TestEvents(t *testing.T) {
	f := newFixture(t)
	release := make(chan struct{})
	defer close(release)
	got := f.consume(held("skips", release))
	now := f.now()
	const zone = "Asia/Tokyo"
	f.missed(now, Entry{Name: "missed", Zone: zone, CatchUp: 3})
	f.missed(now,
		Entry{Name: "too late", Zone: zone, CatchUp: 3,
			Options: []delayqueue.MsgOption{delayqueue.WithMsgTTL(time.Millisecond)}})
	f.must(f.s.Set(f.ctx(), Entry{Name: "ticks", Every: time.Second, Zone: zone}))
	f.must(f.s.Set(f.ctx(), Entry{Name: "skips", Every: time.Second, Zone: zone, Overlap: Skip}))
	var heard heard
	replicas := []*Scheduler{f.s, f.replica(), f.replica()}
	for _, s := range replicas {
		defer s.ListenEvent(heard.note).Stop()
	}
	f.run(replicas...)
	f.until("all is told", func() bool {
		return heard.count("ticks", SentEvent) >= 4 && heard.count("skips", SkippedEvent) >= 3 &&
			heard.count("missed", CaughtUpEvent) >= 3 && heard.count("too late", ExpiredEvent) >= 3
	})
	if n := heard.count("skips", SentEvent) + heard.count("skips", CaughtUpEvent); n != 1 {
		t.Errorf("%d messages were sent beside the one that lives", n-1)
	}
	events, seen := heard.events(), map[string]bool{}
	for _, e := range events {
		what := fmt.Sprint(e.Entry, e.Instant.Unix())
		if seen[what] {
			t.Errorf("%s at %v was told twice: %v", e.Entry, e.Instant, events)
		}
		seen[what] = true
		if e.Instant.Location().String() != zone || e.Time.IsZero() ||
			(e.ID == "") != (e.Code == SkippedEvent || e.Code == ExpiredEvent) {
			t.Errorf("%+v", e)
		}
		if old := e.Entry == "missed" || e.Entry == "too late"; old && e.Lateness < time.Minute || e.Lateness < 0 {
			t.Errorf("%s at %v was late by %v", e.Entry, e.Instant, e.Lateness)
		}
		if e.ID == "" {
			continue
		}
		f.until("its message came", func() bool { return got.message(e.ID) != nil })
		msg := got.message(e.ID)
		if name, at := Of(msg); name != e.Entry || !at.Equal(e.Instant) || msg.Due.Sub(at) != e.Lateness {
			t.Errorf("%+v is of %s at %v, due %v", e, name, at, msg.Due)
		}
	}
}

// message is one that the consumer has got.
func (l *ledger) message(id string) *delayqueue.Message {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, msg := range l.all {
		if msg.ID == id {
			return msg
		}
	}
	return nil
}

// TestListener: a listener that is slow, panics or ends its goroutine holds up nothing.
func TestListener(t *testing.T) {
	f := newFixture(t)
	r, e := &runner{Scheduler: f.s}, &entry{name: "e", zone: time.UTC}
	tell := func(id string) { r.tell(SentEvent, e, id, -1) }

	begun, release := make(chan string), make(chan struct{})
	slow := f.s.ListenEvent(func(e Event) { begun <- e.ID; <-release })
	calls := make(chan string, 3)
	wild := f.s.ListenEvent(func(e Event) {
		calls <- e.ID
		switch e.ID {
		case "1":
			panic("on purpose")
		case "2":
			runtime.Goexit()
		}
	})
	for _, id := range []string{"1", "2", "3"} {
		tell(id)
		if got := <-calls; got != id {
			t.Errorf("heard %s, want %s", got, id)
		}
	}
	f.log.Says(t, 1, "event listener panicked")
	wild.Stop()
	if got := <-begun; got != "1" {
		t.Errorf("heard %s first", got)
	}
	for range eventRoom + 3 { // two wait already
		tell("x")
	}
	if n := slow.Dropped(); n != 5 || wild.Dropped() != 0 {
		t.Errorf("%d were dropped, want 5; %d", n, wild.Dropped())
	}
	slow.Stop()
	slow.Stop()
	close(release)
	tell("y")
	if n := len(f.s.subs); n != 0 || slow.Dropped() != 5 {
		t.Errorf("%d listen after Stop", n)
	}

	outcomes := make(chan string, 1)
	defer f.s.ListenOutcome(func(outcome string, late time.Duration) { outcomes <- fmt.Sprint(outcome, " ", late) }).Stop()
	e.next = 100
	r.tell(CaughtUpEvent, e, "", 101_500_000)
	if got := <-outcomes; got != "caught up 1.5s" {
		t.Errorf("heard %q", got)
	}
	defer func() {
		if p, _ := recover().(string); !strings.Contains(p, "the listener is nil") {
			t.Errorf("panic %q", p)
		}
	}()
	f.s.ListenEvent(nil)
}
