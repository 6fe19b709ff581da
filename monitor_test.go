package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// TestMonitorOfCluster: all that can be seen and steered on a single server, on a Cluster.
func TestMonitorOfCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	for name, test := range map[string]func(f *fixture, m *Monitor){
		"counts": monitorCounts, "get": monitorGet, "list": monitorList, "pages": monitorPages, "done": monitorSeesDone,
		"steer one": monitorSteersOne, "requeue": monitorRequeues, "bulk of garbage": bulkOfGarbage, "bulk of pending": bulkOfPending,
		"bulk in every state": bulkInEveryState,
		"pause":               monitorPauses, "pause ends": monitorPauseEnds, "delete queue": monitorDeletesQueue,
		"consumers": monitorConsumers, "history": monitorHistory, "queues": monitorQueues, "reports": monitorReports,
		"what people do": monitorTellsWhatPeopleDo,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := fixtureOn(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()}))
			test(f, NewMonitor(f.name, f.cli))
		})
	}
}

// onSharedServer runs one test of TestMonitorOfCluster on a single server.
func onSharedServer(t *testing.T, test func(f *fixture, m *Monitor)) {
	t.Helper()
	t.Parallel()
	f := newFixture(t)
	test(f, NewMonitor(f.name, f.cli))
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

// first is the first error of a list.
func first(all iter.Seq2[*MessageStatus, error]) error {
	for _, err := range all {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestCounts(t *testing.T) { onSharedServer(t, monitorCounts) }

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
		}{"pending": {m.GetPendingCount, want.Pending}, "ready": {m.GetReadyCount, want.Ready},
			"processing": {m.GetProcessingCount, want.Unack}} {
			if n, err := c.get(ctxB); err != nil || n != c.want {
				f.t.Errorf("%s: %d %s, %v; want %d", what, n, name, err, c.want)
			}
		}
	}
	for what, call := range map[string]func() error{
		"counts":    func() error { _, err := m.Counts(ctxB); return err },
		"pending":   func() error { _, err := m.GetPendingCount(ctxB); return err },
		"get":       func() error { _, err := m.Get(ctxB, idOf("a")); return err },
		"key":       func() error { _, err := m.GetKey(ctxB, "k"); return err },
		"list":      func() error { _, err := m.List(ctxB, StateGarbage, Filter{}, ""); return err },
		"ready":     func() error { return first(m.All(ctxB, StateReady, Filter{})) },
		"consumers": func() error { _, err := m.Consumers(ctxB); return err },
		"history":   func() error { _, err := m.History(ctxB, Hourly, 1); return err },
		"bulk":      func() error { _, err := m.BulkRequeue(ctxB, Bulk{}); return err },
	} {
		if err := call(); !errors.Is(err, ErrNoQueue) || !errors.Is(err, ErrNotFound) {
			f.t.Errorf("%s of a queue that is not there: %v", what, err)
		}
	}
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
	if got, err := m.Counts(ctxB); err != nil || got.Unack != 1 || got.Ready != 1 {
		f.t.Errorf("while one is handled: %+v, %v", got, err)
	}
	close(release)
	eventually(f.t, "both wait for their retry", func() bool { return len(f.check().Retry) == 2 })
	counts("after two failures", Counts{Pending: 1, Retry: 2, NextDue: far.Due})
	since := func() time.Time {
		var us int64
		_, err := fmt.Sscan(f.check().Fields["paused"], &us)
		f.must(err)
		return time.UnixMicro(us)
	}
	f.must(m.Pause(ctxB))
	counts("paused", Counts{Pending: 1, Retry: 2, NextDue: far.Due, Paused: true, PausedSince: since()})
	until := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	f.must(m.PauseUntil(ctxB, until))
	counts("paused for an hour", Counts{Pending: 1, Retry: 2, NextDue: far.Due, Paused: true, PausedUntil: until, PausedSince: since()})
	f.must(m.Resume(ctxB))
	counts("resumed", Counts{Pending: 1, Retry: 2, NextDue: far.Due})
}

func TestGet(t *testing.T) { onSharedServer(t, monitorGet) }

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
	if s, err := m.Get(ctxB, idOf("nobody")); s != nil || !errors.Is(err, ErrNotFound) {
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
			s.Key != "k" || s.ID != waits.ID || s.MaxRetries != 7 || s.Delivery != 1 || !s.EndedAt.IsZero() || s.LastError != "" || s.Broken != nil {
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
	f.lists(m, StateGarbage, Filter{Key: "of the dead"}, "dies")
	f.lists(m, StateGarbage, Filter{Key: "of the"})
	if s, err := m.GetKey(ctxB, "of the dead"); s != nil || !errors.Is(err, ErrNotFound) {
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
	eventually(f.t, "it is gone", func() bool { _, err := m.Get(ctxB, slow.ID); return errors.Is(err, ErrNotFound) })
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

func TestList(t *testing.T) { onSharedServer(t, monitorList) }

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
		"cursor":     func() error { _, err := m.List(ctxB, StatePending, Filter{}, "no"); return err },
		"place":      func() error { _, err := m.List(ctxB, StatePending, Filter{}, "eyJwIjoxfQ"); return err },
		"state gone": func() error { _, err := m.List(ctxB, StateGone, Filter{}, ""); return err },
	} {
		if err := call(); !errors.Is(err, ErrBadCursor) && !errors.Is(err, ErrBadOption) {
			f.t.Errorf("%s: %v", what, err)
		}
	}
}

func TestListPages(t *testing.T) { onSharedServer(t, monitorPages) }

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

func TestMonitorWithoutRedis(t *testing.T) {
	t.Parallel()
	cli := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1, MaxRetries: -1})
	defer cli.Close()
	m := NewMonitor("nobody-there", cli)
	var all sync.WaitGroup
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
		all.Go(func() {
			if err := call(); err == nil || !strings.Contains(err.Error(), `"nobody-there"`) {
				t.Errorf("%s: error %v", what, err)
			}
		})
	}
	all.Wait()
}

// TestNoQueue: a call that is to change something of a queue that does not exist says so, and makes no key, whoever calls.
func TestNoQueue(t *testing.T) {
	f := newFixture(t)
	m, p, id := NewMonitor(f.name, f.cli), NewPublisher(f.name, f.cli), NewPublisher(f.name, f.cli).ids.next()
	calls := map[string]func() error{
		"Intercept":          func() error { return failure(p.Intercept(ctxB, id)) },
		"TryIntercept":       func() error { return failure(p.TryIntercept(&MessageInfo{ID: id})) },
		"InterceptKey":       func() error { return failure(p.InterceptKey(ctxB, "order-42")) },
		"Cancel":             func() error { return failure(m.Cancel(ctxB, id)) },
		"CancelKey":          func() error { return failure(p.CancelKey(ctxB, "order-42")) },
		"Reschedule":         func() error { return p.Reschedule(ctxB, id, time.Now()) },
		"RescheduleKey":      func() error { return p.RescheduleKey(ctxB, "order-42", time.Now()) },
		"RescheduleBy":       func() error { return m.RescheduleBy(ctxB, id, time.Hour) },
		"RunNow":             func() error { return m.RunNow(ctxB, id) },
		"Requeue":            func() error { return m.Requeue(ctxB, id) },
		"Delete":             func() error { return m.Delete(ctxB, id) },
		"Pause":              func() error { return m.Pause(ctxB) },
		"PauseFor":           func() error { return m.PauseFor(ctxB, time.Hour) },
		"PauseUntil":         func() error { return m.PauseUntil(ctxB, time.Now().Add(time.Hour)) },
		"Resume":             func() error { return m.Resume(ctxB) },
		"SetLimits":          func() error { return failure(m.SetLimits(ctxB, Limits{Concurrency: 1})) },
		"Unthrottle":         func() error { return failure(m.Unthrottle(ctxB)) },
		"DropSequence":       func() error { return m.DropSequence(ctxB, "rows") },
		"DeleteQueue":        func() error { return m.DeleteQueue(ctxB, false) },
		"DeleteQueue, force": func() error { return m.DeleteQueue(ctxB, true) },
		"BulkDelete":         func() error { return failure(m.BulkDelete(ctxB, Bulk{States: []State{StatePending}})) },
		"BulkRequeue":        func() error { return failure(m.BulkRequeue(ctxB, Bulk{})) },
		"Counts":             func() error { return failure(m.Counts(ctxB)) },
		"Get":                func() error { return failure(m.Get(ctxB, id)) },
		"GetKey":             func() error { return failure(m.GetKey(ctxB, "order-42")) },
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, ErrNoQueue) || !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
		if n := f.cli.Exists(ctxB, keyNames(m.store.keys)...).Val(); n != 0 {
			t.Fatalf("%s made %d keys", name, n)
		}
	}
	f.send(f.queue(nil), "x", inAnHour)
	if r, err := p.TryIntercept(&MessageInfo{ID: id}); err != nil || r.State != StateGone {
		t.Errorf("an unknown id of a queue that exists: %+v, %v", r, err)
	}
	if r, err := p.InterceptKey(ctxB, "order-42"); err != nil || r.State != StateGone {
		t.Errorf("an unknown key of a queue that exists: %+v, %v", r, err)
	}
}

// TestQueueWithoutState: a queue that has messages is there, although somebody deleted its state.
func TestQueueWithoutState(t *testing.T) {
	f := newFixture(t)
	m := NewMonitor(f.name, f.cli)
	for name, call := range map[string]func(id string) error{
		"Pause":     func(string) error { return m.Pause(ctxB) },
		"SetLimits": func(string) error { return failure(m.SetLimits(ctxB, Limits{Concurrency: 1})) },
		"Intercept": func(id string) error { return failure(m.Intercept(ctxB, id)) },
		"RunNow":    func(id string) error { return m.RunNow(ctxB, id) },
	} {
		id := f.send(f.queue(nil), "x", inAnHour).ID
		f.must(f.cli.Del(ctxB, m.store.keys.state).Err())
		if err := call(id); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		f.must(m.DeleteQueue(ctxB, true))
	}
}

func keyNames(k *keys) (names []string) {
	for _, key := range k.all {
		names = append(names, key.(string))
	}
	return names
}

// TestKeyForAnID: each call by id says so if what it is given is none, and cannot be found.
func TestKeyForAnID(t *testing.T) {
	f := newFixture(t)
	m, q := NewMonitor(f.name, f.cli), f.queue(nil)
	f.send(q, "42", WithKey("order-42"), inAnHour)
	for name, err := range map[string]error{
		"Intercept": failure(q.Intercept(ctxB, "order-42")), "Cancel": failure(q.Cancel(ctxB, "order-42")),
		"TryIntercept": failure(q.TryIntercept(&MessageInfo{ID: "order-42"})),
		"Reschedule":   q.Reschedule(ctxB, "order-42", time.Now()), "Get": failure(m.Get(ctxB, "order-42")),
		"RunNow": m.RunNow(ctxB, "order-42"), "RescheduleBy": m.RescheduleBy(ctxB, "order-42", time.Hour),
		"Requeue": m.Requeue(ctxB, "order-42"), "Delete": m.Delete(ctxB, "order-42"),
		"Await": failure(q.Await(ctxB, "order-42")),
	} {
		if !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "use the method whose name ends in Key") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := len(f.check().Pending); n != 1 {
		t.Errorf("%d wait", n)
	}
}
