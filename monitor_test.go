package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// TestMonitor: what can be seen and steered, on a single server and on a Cluster.
func TestMonitor(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	for kind, dial := range map[string]func() redis.UniversalClient{
		"single": func() redis.UniversalClient { return redis.NewClient(&redis.Options{Addr: shared.Addr()}) },
		"cluster": func() redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
		},
	} {
		t.Run(kind, func(t *testing.T) {
			for name, test := range map[string]func(f *fixture, m *Monitor){
				"counts": monitorCounts, "get": monitorGet, "list": monitorList, "pages": monitorPages,
				"steer one": monitorSteersOne, "requeue": monitorRequeues, "garbage": monitorSteersGarbage, "pending": monitorSteersPending,
				"pause": monitorPauses, "pause ends": monitorPauseEnds, "delete queue": monitorDeletesQueue,
				"consumers": monitorConsumers, "history": monitorHistory, "queues": monitorQueues, "reports": monitorReports,
			} {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					f := fixtureOn(t, dial())
					test(f, NewMonitor(f.name, f.cli))
				})
			}
		})
	}
}

var ctxB = context.Background()

// inAnHour makes a message stay pending.
var inAnHour = WithDelay(time.Hour)

// status gets a message that must be there.
func (f *fixture) status(m *Monitor, id string) *MessageStatus {
	f.t.Helper()
	s, err := m.Get(ctxB, id)
	if err != nil || s == nil {
		f.t.Fatalf("get %s: %v, %v", id, s, err)
	}
	return s
}

// must ends the test where a call failed.
func (f *fixture) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// buried makes garbage of messages, each with its payload as its error.
func (f *fixture) buried(payloads ...string) (ids []string) {
	f.t.Helper()
	q := f.queueOn(f.cli, nil).WithConcurrent(4).WithHandler(func(_ context.Context, msg *Message) error {
		return fmt.Errorf("%w: no %s", ErrSkipRetry, msg.Payload)
	})
	for _, p := range payloads {
		ids = append(ids, f.send(q, p, WithKey("key of "+p)).ID)
	}
	q.StartConsume()
	eventually(f.t, "all are garbage", func() bool { return len(f.check().Garbage) >= len(payloads) })
	f.must(q.Shutdown(ctxB))
	return ids
}

func monitorCounts(f *fixture, m *Monitor) {
	started, release := make(chan struct{}, 1), make(chan struct{})
	q := f.queue(func(string) bool { started <- struct{}{}; <-release; return false }).WithNackRedeliveryDelay(time.Hour)
	counts := func(what string, want Counts) {
		f.t.Helper()
		got, err := m.Counts(ctxB)
		if err != nil || got != want {
			f.t.Errorf("%s: %+v, %v; want %+v", what, got, err, want)
		}
		for name, c := range map[string]struct {
			get  func(context.Context) (int64, error)
			want int64
		}{"pending": {m.GetPendingCount, want.Pending}, "ready": {m.GetReadyCount, want.Ready}, "processing": {m.GetProcessingCount, want.Processing}} {
			if n, err := c.get(ctxB); err != nil || n != c.want {
				f.t.Errorf("%s: %d %s, %v; want %d", what, n, name, err, c.want)
			}
		}
	}
	counts("empty", Counts{})
	far := f.send(q, "far", inAnHour)
	counts("one that waits", Counts{Pending: 1, NextDue: far.Due})
	f.send(q, "now")
	f.send(q, "now")
	got, err := m.Counts(ctxB)
	if err != nil || got.Pending != 1 || got.Ready != 2 || got.Behind <= 0 || got.Behind > patience || !got.NextDue.Equal(far.Due) {
		f.t.Errorf("two that are due: %+v, %v", got, err)
	}
	q.StartConsume()
	receive(f.t, "one is handled", started)
	if got, err := m.Counts(ctxB); err != nil || got.Processing != 1 || got.Ready != 1 {
		f.t.Errorf("while one is handled: %+v, %v", got, err)
	}
	close(release)
	eventually(f.t, "both wait for their retry", func() bool { return len(f.check().Retry) == 2 })
	counts("after two failures", Counts{Pending: 1, Retry: 2, NextDue: far.Due})
	f.must(m.Pause(ctxB))
	counts("paused", Counts{Pending: 1, Retry: 2, NextDue: far.Due, Paused: true})
	until := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	f.must(m.PauseUntil(ctxB, until))
	counts("paused for an hour", Counts{Pending: 1, Retry: 2, NextDue: far.Due, Paused: true, PausedUntil: until})
	f.must(m.Resume(ctxB))
	counts("resumed", Counts{Pending: 1, Retry: 2, NextDue: far.Due})
}

func monitorGet(f *fixture, m *Monitor) {
	started, release := make(chan struct{}), make(chan struct{})
	q := f.queue(nil).WithNackRedeliveryDelay(time.Hour).WithHandler(func(_ context.Context, msg *Message) error {
		if msg.Payload == "slow" {
			close(started)
			<-release
			return nil
		}
		return fmt.Errorf("no %s", msg.Payload)
	})
	if s, err := m.Get(ctxB, idOf("nobody")); s != nil || err != nil {
		f.t.Errorf("one that was never sent: %+v, %v", s, err)
	}
	waits := f.send(q, "waits", inAnHour, WithKey("k"), WithHeader("h", "v"), WithRetryCount(7))
	fails := f.send(q, "fails")
	dies := f.send(q, "dies", WithRetryCount(0), WithKey("of the dead"))
	for _, get := range []func() (*MessageStatus, error){
		func() (*MessageStatus, error) { return m.Get(ctxB, waits.ID) },
		func() (*MessageStatus, error) { return m.GetKey(ctxB, "k") },
	} {
		s, err := get()
		if err != nil || s == nil {
			f.t.Fatalf("pending: %v, %v", s, err)
		}
		if s.State != StatePending || !s.At.Equal(waits.Due) || !s.Due.Equal(waits.Due) || s.Payload != "waits" || s.Headers["h"] != "v" ||
			s.Key != "k" || s.ID != waits.ID || s.Retries != 7 || s.Delivery != 1 || !s.EndedAt.IsZero() || s.LastError != "" || s.Broken != nil {
			f.t.Errorf("pending: %+v", s)
		}
	}
	if s := f.status(m, fails.ID); s.State != StateReady || !s.At.IsZero() {
		f.t.Errorf("due: %+v", s)
	}
	q.StartConsume()
	eventually(f.t, "both have failed", func() bool { return len(f.check().Retry) == 1 && len(f.check().Garbage) == 1 })
	now := time.Now()
	if s := f.status(m, fails.ID); s.State != StateRetry || s.Failures != 1 || s.Delivery != 2 || s.LastError != "no fails" || s.Losses != 0 ||
		now.Sub(s.EndedAt).Abs() > patience || s.At.Sub(s.EndedAt) != time.Hour {
		f.t.Errorf("retry: %+v", s)
	}
	if s := f.status(m, dies.ID); s.State != StateGarbage || s.LastError != "no dies" || now.Sub(s.At).Abs() > patience || s.Failures != 1 {
		f.t.Errorf("garbage: %+v", s)
	}
	if s, err := m.GetKey(ctxB, "of the dead"); s != nil || err != nil {
		f.t.Errorf("the key of a dead message finds %+v, %v", s, err)
	}
	slow := f.send(q, "slow")
	receive(f.t, "it is handled", started)
	var s *MessageStatus
	eventually(f.t, "its consumer is known", func() bool { s = f.status(m, slow.ID); return s.Consumer != "" })
	cs, err := m.Consumers(ctxB)
	if err != nil || len(cs) != 1 || cs[0].ID != s.Consumer {
		f.t.Errorf("its consumer is %q, those alive are %+v, %v", s.Consumer, cs, err)
	}
	if left := time.Until(s.At); s.State != StateUnack || left < -patience || left > 2*10*time.Second {
		f.t.Errorf("being handled: %+v", s)
	}
	close(release)
	eventually(f.t, "it is gone", func() bool { s, err := m.Get(ctxB, slow.ID); return s == nil && err == nil })
}

// payloads lists what is in a state.
func (f *fixture) payloads(m *Monitor, state State, filter Filter) (all []string) {
	f.t.Helper()
	for msg, err := range m.All(ctxB, state, filter) {
		if err != nil {
			f.t.Fatal(err)
		}
		if msg.State != state {
			f.t.Errorf("%s is listed in %s as %s", msg.Payload, state, msg.State)
		}
		all = append(all, msg.Payload)
	}
	return all
}

func (f *fixture) lists(m *Monitor, state State, filter Filter, want ...string) {
	f.t.Helper()
	if got := f.payloads(m, state, filter); !slices.Equal(got, want) {
		f.t.Errorf("%s %+v: %q, want %q", state, filter, got, want)
	}
}

func monitorList(f *fixture, m *Monitor) {
	q := f.queue(nil)
	base := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	at := func(i int) time.Time { return base.Add(time.Duration(i) * time.Minute) }
	for _, i := range []int{3, 0, 4, 1, 2} {
		f.send(q, fmt.Sprint("p", i), WithSchedule(at(i)), WithHeader("tenant", fmt.Sprint("t", i%2)))
	}
	f.lists(m, StatePending, Filter{}, "p0", "p1", "p2", "p3", "p4")
	f.lists(m, StatePending, Filter{Limit: 2}, "p0", "p1", "p2", "p3", "p4")
	f.lists(m, StatePending, Filter{Limit: 1, Contains: "3"}, "p3")
	f.lists(m, StatePending, Filter{Headers: map[string]string{"tenant": "t1"}}, "p1", "p3")
	f.lists(m, StatePending, Filter{Headers: map[string]string{"other": ""}})
	f.lists(m, StatePending, Filter{From: at(1), To: at(3)}, "p1", "p2", "p3")
	f.lists(m, StateRetry, Filter{})
	f.lists(m, StateReady, Filter{})
	f.send(q, "now 1")
	f.send(q, "now 2")
	f.lists(m, StateReady, Filter{Limit: 1}, "now 1", "now 2")
	f.lists(m, StatePending, Filter{From: time.Now().Add(-time.Hour), Contains: "now"})
	started, release := make(chan string, 2), make(chan struct{})
	w := f.queue(func(p string) bool { started <- p; <-release; return false }).WithConcurrent(2).WithRetryDelays(time.Hour)
	w.StartConsume()
	receive(f.t, "one", started)
	receive(f.t, "the other", started)
	if got := f.payloads(m, StateUnack, Filter{}); len(got) != 2 {
		f.t.Errorf("being handled: %q", got)
	}
	close(release)
	eventually(f.t, "both wait for their retry", func() bool { return len(f.check().Retry) == 2 })
	if got := f.payloads(m, StateRetry, Filter{Error: "returned false"}); len(got) != 2 {
		f.t.Errorf("waiting for a retry: %q", got)
	}
	f.must(w.Shutdown(ctxB))
	for msg, err := range m.All(ctxB, StateRetry, Filter{}) { // due, and so ready
		if err != nil || m.RunNow(ctxB, msg.ID) != nil {
			f.t.Fatal(err)
		}
	}
	if got := f.payloads(m, StateReady, Filter{Limit: 1}); len(got) != 2 {
		f.t.Errorf("due again: %q", got)
	}
	f.lists(m, StateRetry, Filter{})
	for what, call := range map[string]func() error{
		"cursor":        func() error { _, err := m.List(ctxB, StatePending, Filter{}, "no"); return err },
		"place":         func() error { _, err := m.List(ctxB, StatePending, Filter{}, `{"p":1}`); return err },
		"state gone":    func() error { _, err := m.List(ctxB, StateGone, Filter{}, ""); return err },
		"from of ready": func() error { _, err := m.List(ctxB, StateReady, Filter{From: base}, ""); return err },
	} {
		if err := call(); !errors.Is(err, ErrBadCursor) && !errors.Is(err, ErrBadOption) {
			f.t.Errorf("%s: %v", what, err)
		}
	}
}

// monitorPages: pages go on where they were, although what was listed has gone meanwhile, and messages
// of one instant are all found.
func monitorPages(f *fixture, m *Monitor) {
	q := f.queue(nil)
	const n = 25
	due := time.Now().Add(time.Hour)
	batch := make([]Outgoing, n)
	for i := range batch {
		batch[i] = Outgoing{Payload: fmt.Sprint(i), Options: []MsgOption{WithSchedule(due.Add(time.Duration(i/10) * time.Second))}}
	}
	_, err := q.SendBatch(ctxB, batch)
	f.must(err)
	seen := map[string]bool{}
	for cursor := ""; ; {
		page, err := m.List(ctxB, StatePending, Filter{Limit: 4}, cursor)
		f.must(err)
		for _, msg := range page.Messages {
			seen[msg.ID] = true
			if len(seen)%3 == 0 {
				f.must(m.Delete(ctxB, msg.ID))
			}
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	if len(seen) != n {
		f.t.Errorf("%d of %d were listed", len(seen), n)
	}
}

func monitorSteersOne(f *fixture, m *Monitor) {
	handled := make(chan *Message, 1)
	started, release := make(chan struct{}), make(chan struct{})
	q := noTick(f.queue(nil)).WithConcurrent(2).WithRetryDelays(time.Hour).WithHandler(func(_ context.Context, msg *Message) error {
		switch {
		case msg.Payload == "slow":
			close(started)
			<-release
		case msg.Payload == "fails" && msg.Failures == 0:
			handled <- msg
			return errBoom
		default:
			handled <- msg
		}
		return nil
	})
	q.StartConsume()
	a := f.send(q, "a", inAnHour, WithKey("a"))
	f.must(m.RescheduleBy(ctxB, a.ID, time.Minute))
	if s := f.status(m, a.ID); !s.Due.Equal(a.Due.Add(time.Minute)) || !s.At.Equal(s.Due) || s.Key != "a" {
		f.t.Errorf("a minute later than %v: %+v", a.Due, s)
	}
	f.must(m.RescheduleBy(ctxB, a.ID, -2*time.Minute))
	if s := f.status(m, a.ID); !s.Due.Equal(a.Due.Add(-time.Minute)) {
		f.t.Errorf("two minutes earlier: %+v", s)
	}
	at := time.Now().Add(50 * time.Millisecond).Truncate(time.Microsecond)
	f.must(m.Reschedule(ctxB, a.ID, at))
	if msg := receive(f.t, "it comes at its new time, woken by the alarm", handled); msg.ID != a.ID || !msg.Due.Equal(at) || time.Now().Before(at) {
		f.t.Errorf("handled %+v at %v, want it at %v", msg, time.Now(), at)
	}
	b := f.send(q, "fails", inAnHour)
	f.must(m.RunNow(ctxB, b.ID))
	receive(f.t, "it runs now", handled)
	eventually(f.t, "it waits for its retry", func() bool { return f.where(b.ID) == "retry" })
	f.must(m.RunNow(ctxB, b.ID))
	if msg := receive(f.t, "its retry runs now", handled); msg.ID != b.ID || msg.Failures != 1 || !msg.Due.Before(time.Now()) {
		f.t.Errorf("handled %+v", msg)
	}
	c := f.send(q, "c", inAnHour, WithKey("c"))
	f.must(m.Delete(ctxB, c.ID))
	if s, err := m.GetKey(ctxB, "c"); s != nil || err != nil {
		f.t.Errorf("deleted: %+v, %v", s, err)
	}
	slow := f.send(q, "slow")
	receive(f.t, "a slow one is handled", started)
	for what, call := range map[string]func(id string) error{
		"reschedule": func(id string) error { return m.Reschedule(ctxB, id, at) },
		"by":         func(id string) error { return m.RescheduleBy(ctxB, id, time.Hour) },
		"run now":    func(id string) error { return m.RunNow(ctxB, id) },
		"requeue":    func(id string) error { return m.Requeue(ctxB, id) },
		"delete":     func(id string) error { return m.Delete(ctxB, id) },
	} {
		for id, want := range map[string]State{slow.ID: StateUnack, c.ID: StateGone} {
			var wrong *StateError
			if err := call(id); !errors.As(err, &wrong) || !errors.Is(err, ErrWrongState) || wrong.State != want || wrong.ID != id {
				f.t.Errorf("%s of a message that is %s: %v", what, want, err)
			}
		}
	}
	if r, err := m.Intercept(ctxB, slow.ID); err != nil || r.State != StateUnack {
		f.t.Errorf("intercept of one that is being handled: %+v, %v", r, err)
	}
	close(release)
	for _, err := range []error{
		m.RescheduleBy(ctxB, a.ID, 151*365*24*time.Hour), m.Reschedule(ctxB, a.ID, maxDue), m.PauseUntil(ctxB, maxDue),
	} {
		if !errors.Is(err, ErrBadOption) {
			f.t.Errorf("a time too far: %v", err)
		}
	}
}

func monitorRequeues(f *fixture, m *Monitor) {
	ids := f.buried("a", "b")
	if err := m.Reschedule(ctxB, ids[0], time.Now()); !errors.Is(err, ErrWrongState) {
		f.t.Errorf("reschedule of garbage: %v", err)
	}
	other := f.send(f.queue(nil), "other", inAnHour, WithKey("key of b"))
	var dup *DuplicateKeyError
	if err := m.Requeue(ctxB, ids[1]); !errors.As(err, &dup) || dup.ID != other.ID || dup.Key != "key of b" {
		f.t.Errorf("requeue of one whose key another holds: %v", err)
	}
	f.must(m.Requeue(ctxB, ids[0]))
	if s := f.status(m, ids[0]); s.State != StateReady || s.Failures != 0 || s.Losses != 0 || s.LastError != "delayqueue: skip retry: no a" || s.Delivery != 2 {
		f.t.Errorf("brought back: %+v", s)
	}
	if s, err := m.GetKey(ctxB, "key of a"); err != nil || s == nil || s.ID != ids[0] {
		f.t.Errorf("its key finds %+v, %v", s, err)
	}
	failures := make(chan int, 10)
	q := f.queue(nil).WithNackRedeliveryDelay(0).WithHandler(func(_ context.Context, msg *Message) error { failures <- msg.Failures; return errBoom })
	q.StartConsume()
	for want := range 4 {
		if n := receive(f.t, "all its retries", failures); n != want {
			f.t.Errorf("failures %d, want %d", n, want)
		}
	}
	eventually(f.t, "it is garbage again", func() bool { return f.where(ids[0]) == "garbage" })
}

func monitorSteersGarbage(f *fixture, m *Monitor) {
	f.buried("timeout 1", "timeout 2", "refused 1", "refused 2", "refused 3")
	looked, steps := 0, 0
	n, err := m.RequeueGarbage(ctxB, Bulk{Filter: Filter{Error: "no timeout", Limit: 2}, Progress: func(l, _ int) bool { looked = l; steps++; return true }})
	if err != nil || n != 2 || looked != 5 || steps < 3 {
		f.t.Errorf("brought back %d, looked at %d in %d steps, %v", n, looked, steps, err)
	}
	if got := f.payloads(m, StateReady, Filter{}); len(got) != 2 || !strings.HasPrefix(got[0], "timeout") {
		f.t.Errorf("ready: %q", got)
	}
	if n, err := m.PurgeGarbage(ctxB, Bulk{Filter: Filter{To: time.Now().Add(-time.Hour)}}); err != nil || n != 0 {
		f.t.Errorf("older than an hour: %d, %v", n, err)
	}
	if n, err := m.PurgeGarbage(ctxB, Bulk{Filter: Filter{Limit: 1}, Progress: func(_, done int) bool { return done < 2 }}); err != nil || n != 2 {
		f.t.Errorf("stopped after two: %d, %v", n, err)
	}
	over, cancel := context.WithCancel(ctxB)
	cancel()
	if n, err := m.PurgeGarbage(over, Bulk{}); !errors.Is(err, context.Canceled) || n != 0 {
		f.t.Errorf("with a context that has ended: %d, %v", n, err)
	}
	if n, err := m.PurgeGarbage(ctxB, Bulk{}); err != nil || n != 1 {
		f.t.Errorf("the rest: %d, %v", n, err)
	}
	f.lists(m, StateGarbage, Filter{})
}

func monitorSteersPending(f *fixture, m *Monitor) {
	q := f.queue(nil)
	base := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	at := func(i int) time.Time { return base.Add(time.Duration(i) * time.Minute) }
	const n = 12
	batch := make([]Outgoing, n)
	for i := range batch {
		batch[i] = Outgoing{Payload: fmt.Sprint(i), Options: []MsgOption{WithSchedule(at(i))}}
	}
	_, err := q.SendBatch(ctxB, batch)
	f.must(err)
	dues := func() (minutes []int) {
		for msg, err := range m.All(ctxB, StatePending, Filter{}) {
			f.must(err)
			minutes = append(minutes, int(msg.Due.Sub(base)/time.Minute))
		}
		return minutes
	}
	moved := func(what string, count int, err error, wantCount int, want ...int) {
		f.t.Helper()
		if got := dues(); err != nil || count != wantCount || !slices.Equal(got, want) {
			f.t.Errorf("%s: %d done, %v, due at %v; want %d, %v", what, count, err, got, wantCount, want)
		}
	}
	few := Filter{Limit: 3}
	count, err := m.ReschedulePendingBy(ctxB, Bulk{Filter: few}, 5*time.Minute)
	moved("5 minutes later, although they pass each other", count, err, n, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16)
	count, err = m.ReschedulePendingBy(ctxB, Bulk{Filter: few}, -5*time.Minute)
	moved("5 minutes earlier", count, err, n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
	count, err = m.DeletePending(ctxB, Bulk{Filter: Filter{From: at(1), To: at(8), Limit: 3}})
	moved("deleted a range", count, err, 8, 0, 9, 10, 11)
	count, err = m.ReschedulePending(ctxB, Bulk{Filter: Filter{Limit: 1}}, at(10))
	moved("all at one time", count, err, 3, 10, 10, 10, 10)
	count, err = m.ReschedulePendingBy(ctxB, Bulk{Filter: Filter{Limit: 1}}, -3*time.Hour)
	moved("to the past, so now", count, err, 4)
	if got, err := m.Counts(ctxB); err != nil || got.Ready != 4 {
		f.t.Errorf("%+v, %v; want 4 ready", got, err)
	}
}

func monitorPauses(f *fixture, m *Monitor) {
	handled := make(chan string, 10)
	started, release := make(chan struct{}), make(chan struct{})
	q := f.queue(func(p string) bool {
		if p == "slow" {
			close(started)
			<-release
		}
		handled <- p
		return true
	}).WithConcurrent(2)
	q.StartConsume()
	f.send(q, "slow")
	receive(f.t, "it is handled", started)
	f.must(m.Pause(ctxB))
	// From the first fetch after this on nothing is handed out: that is due within a second.
	since := time.Now()
	for f.check().Fields["seen"] == "" || !seenAfter(f, since) {
		time.Sleep(time.Millisecond)
	}
	waits := f.send(q, "waits")
	close(release)
	if p := receive(f.t, "a handler that was running finishes", handled); p != "slow" {
		f.t.Errorf("handled %q", p)
	}
	eventually(f.t, "two ticks have passed", func() bool {
		return seenAfter(f, time.Now().Add(-time.Since(since)/2)) && time.Since(since) > 2*time.Second
	})
	if where := f.where(waits.ID); where != "pending" || len(handled) > 0 {
		f.t.Errorf("handed out while paused: it is in %s", where)
	}
	f.must(m.Resume(ctxB))
	receive(f.t, "it comes after the pause", handled)
}

// seenAfter says whether a consumer has fetched since.
func seenAfter(f *fixture, t time.Time) bool {
	var us int64
	_, err := fmt.Sscan(f.check().Fields["seen"], &us)
	return err == nil && us > t.UnixMicro()
}

// monitorPauseEnds: a pause ends at its instant, and consumers wake for it without a tick.
func monitorPauseEnds(f *fixture, m *Monitor) {
	handled := make(chan time.Time, 10)
	until := time.Now().Add(300 * time.Millisecond)
	f.must(m.PauseUntil(ctxB, until))
	q := noTick(f.queue(func(string) bool { handled <- time.Now(); return true }))
	f.send(q, "before")
	q.StartConsume()
	if at := receive(f.t, "it comes after the pause", handled); at.Before(until) {
		f.t.Errorf("handled %v before the end of the pause", until.Sub(at))
	}
	f.must(m.Pause(ctxB))
	f.send(q, "while")
	eventually(f.t, "nobody is woken while it is paused", func() bool { return f.check().Wake >= forever || f.check().Fields["armed"] != "0" })
	f.must(m.Resume(ctxB))
	receive(f.t, "it comes once resumed", handled)
}

func monitorDeletesQueue(f *fixture, m *Monitor) {
	q := f.queue(func(string) bool { return true })
	f.send(q, "x", inAnHour)
	q.StartConsume()
	eventually(f.t, "it is seen", func() bool { cs, err := m.Consumers(ctxB); return err == nil && len(cs) == 1 })
	if err := m.DeleteQueue(ctxB, false); !errors.Is(err, ErrConsumersAlive) {
		f.t.Errorf("with a consumer: %v", err)
	}
	if n := len(f.check().Messages); n != 1 {
		f.t.Errorf("%d messages are left of 1", n)
	}
	f.must(m.DeleteQueue(ctxB, true))
	if n := len(f.check().Messages); n != 0 {
		f.t.Errorf("%d messages are left after it was forced", n)
	}
	f.must(q.Shutdown(ctxB))
	f.send(q, "y", inAnHour)
	f.must(m.DeleteQueue(ctxB, false))
	f.checkEmpty()
}

func monitorConsumers(f *fixture, m *Monitor) {
	started, release := make(chan struct{}, 4), make(chan struct{})
	q := f.queue(func(string) bool { started <- struct{}{}; <-release; return true }).WithConcurrent(3)
	// One that died an hour ago, and something that nobody of ours wrote.
	key := newStore(f.cli, "dq", f.name).keys.consumers
	f.must(f.cli.HSet(ctxB, key,
		"dead", fmt.Sprintf("%d 10000000 {}", time.Now().Add(-time.Hour).UnixMicro()), "rubbish", "x").Err())
	begun := time.Now()
	a, b := f.send(q, "a"), f.send(q, "b")
	q.StartConsume()
	receive(f.t, "one is handled", started)
	receive(f.t, "the other is handled", started)
	var c Consumer
	eventually(f.t, "it says what it handles", func() bool {
		cs, err := m.Consumers(ctxB)
		if err != nil || len(cs) != 1 {
			return false
		}
		c = cs[0]
		return len(c.Handling) == 2
	})
	host, _ := os.Hostname()
	ids := []string{c.Handling[0].ID, c.Handling[1].ID}
	slices.Sort(ids)
	if c.Host != host || c.PID != os.Getpid() || c.Concurrency != 3 || !slices.Equal(ids, []string{a.ID, b.ID}) || c.Since.Before(begun.Add(-time.Second)) ||
		c.Since.After(c.Seen) || c.Handling[0].For < c.Handling[1].For || c.Handling[1].For < 0 || c.Handling[0].For > time.Since(begun) {
		f.t.Errorf("%+v", c)
	}
	eventually(f.t, "the dead have vanished", func() bool { return f.cli.HLen(ctxB, key).Val() == 1 })
	close(release)
	f.must(q.Shutdown(ctxB))
	if left := f.check().Consumers; len(left) != 0 {
		f.t.Errorf("after the stop: %v", left)
	}
}

func monitorHistory(f *fixture, m *Monitor) {
	f.buried("a", "b")
	q := f.queue(nil).WithNackRedeliveryDelay(0).WithHandler(func(_ context.Context, msg *Message) error {
		if msg.Failures == 0 {
			return errBoom
		}
		return nil
	})
	q.StartConsume()
	f.send(q, "c")
	eventually(f.t, "all is settled", func() bool { return len(f.check().Messages) == 2 })
	want := Tally{Sent: 3, Delivered: 4, Acked: 1, Failed: 3, Dead: 2}
	for _, by := range []Span{Hourly, Daily} {
		tallies, err := m.History(ctxB, by, 2) // 2: the hour may have changed meanwhile
		f.must(err)
		var sum Tally
		for _, tally := range tallies {
			sum.add(&tally)
		}
		if last := tallies[1].Start; sum != want || len(tallies) != 2 || last.Sub(tallies[0].Start) != time.Duration(by)*time.Hour || time.Since(last) > time.Duration(by)*time.Hour {
			f.t.Errorf("by %d hours: %+v, want %+v", by, tallies, want)
		}
	}
	if tallies, err := m.History(ctxB, Hourly, 10_000); err != nil || len(tallies) != 30*24 {
		f.t.Errorf("%d hours, %v", len(tallies), err)
	}
	if _, err := m.History(ctxB, 7, 1); !errors.Is(err, ErrBadOption) {
		f.t.Errorf("by 7 hours: %v", err)
	}
}

func monitorQueues(f *fixture, _ *Monitor) {
	prefix := `odd*?[\]` + strings.ReplaceAll(f.name, ":", "_")
	var made []string
	for i := range 3 {
		name := fmt.Sprint("q:", i)
		q := NewQueue(name, f.cli, nil, UseCustomPrefix(prefix))
		_, err := q.Send(ctxB, "x", inAnHour)
		f.must(err)
		made = append(made, name)
		f.t.Cleanup(func() { _ = NewMonitor(name, f.cli, UseCustomPrefix(prefix)).DeleteQueue(ctxB, true) })
	}
	other := NewQueue("other", f.cli, nil, UseCustomPrefix(prefix+"x"))
	_, err := other.Send(ctxB, "x", inAnHour)
	f.must(err)
	f.t.Cleanup(func() { _ = NewMonitor("other", f.cli, UseCustomPrefix(prefix+"x")).DeleteQueue(ctxB, true) })
	var found []string
	for name, err := range Queues(ctxB, f.cli, UseCustomPrefix(prefix)) {
		f.must(err)
		found = append(found, name)
	}
	slices.Sort(found)
	if !slices.Equal(found, made) {
		f.t.Errorf("found %q, want %q", found, made)
	}
}

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
		if e := receive(f.t, want.String(), heard); e.Code != want || e.Count != 1 || !slices.Equal(e.IDs, []string{info.ID}) || time.Since(e.Time) > patience {
			f.t.Errorf("%+v, want %s", e, want)
		}
	}
}

func TestMonitorWithoutRedis(t *testing.T) {
	cli := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1, MaxRetries: -1})
	defer cli.Close()
	m := NewMonitor("nobody-there", cli)
	for what, call := range map[string]func() error{
		"count":  func() error { _, err := m.GetReadyCount(ctxB); return err },
		"get":    func() error { _, err := m.Get(ctxB, idOf("a")); return err },
		"listen": func() error { _, err := m.ListenEvent(ctxB, func(Event) {}); return err },
		"drop":   func() error { return m.DeleteQueue(ctxB, false) },
		"steer": func() error {
			ctx, cancel := context.WithTimeout(ctxB, 50*time.Millisecond)
			defer cancel()
			return m.RunNow(ctx, idOf("a"))
		},
	} {
		if err := call(); err == nil || !strings.Contains(err.Error(), `"nobody-there"`) {
			t.Errorf("%s: error %v", what, err)
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
	for _, want := range []EventCode{ReadyEvent, DeliveredEvent, NackEvent, RetryEvent, ReadyEvent, DeliveredEvent, NackEvent, FinalFailedEvent} {
		next(want, info.ID)
	}
	y := f.send(q, "y", inAnHour, WithKey("y"))
	next(NewMessageEvent, y.ID)
	if _, err := q.InterceptKey(ctxB, "y"); err != nil {
		t.Fatal(err)
	}
	next(InterceptedEvent)
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
	q := f.queue(func(string) bool { return true }).WithLease(time.Second).WithMaxLosses(1)
	heard := make(chan Event, 100)
	defer q.ListenEvent(func(e Event) { heard <- e }).Stop()
	info := f.send(q, "x")
	s := newStore(f.cli, "dq", f.name)
	if _, err := s.fetch(ctxB, &caller{id: "dies", n: 1}, ask{want: 1}, &fetchSettings{lease: time.Second, maxLosses: 1}); err != nil {
		t.Fatal(err)
	}
	q.StartConsume()
	for _, want := range []Event{{Code: NewMessageEvent, IDs: []string{info.ID}}, {Code: LostEvent}, {Code: FinalFailedEvent, IDs: []string{info.ID}}} {
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
	eventually(t, "all are handled while the listener hangs", func() bool { return handled.Load() == n })
	close(release)
	if slow.Dropped() == 0 {
		t.Error("nothing was dropped")
	}
	f.send(q, "one more")
	eventually(t, "what was dropped is said", func() bool { return dropped.Load() == slow.Dropped() })
	eventually(t, "the panics are in the log", func() bool { return f.log.count("event listener panicked") > n })
	eventually(t, "the queue is empty", func() bool { return len(f.check().Messages) == 0 })
}
