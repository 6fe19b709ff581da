package ops

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

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/redis/go-redis/v9"
)

// onBoth are what can be seen and steered alike on a single server and on a Cluster.
var onBoth = map[string]func(f *face.Fixture, m *Queue){
	"counts": monitorCounts, "get": monitorGet, "list": monitorList, "done": monitorSeesDone,
	"steer one": monitorSteersOne,
	"requeue":   monitorRequeues, "bulk of garbage": bulkOfGarbage, "bulk of pending": bulkOfPending,
	"bulk in every state": bulkInEveryState,
	"pause":               monitorPauses, "pause ends": monitorPauseEnds, "delete queue": monitorDeletesQueue,
	"consumers": monitorConsumers,
	"history":   monitorHistory, "queues": monitorQueues, "reports": monitorReports,
	"what people do": monitorTellsWhatPeopleDo,
}

func TestMonitor(t *testing.T) {
	t.Parallel()
	for name, test := range onBoth {
		t.Run(name, func(t *testing.T) { test(newQueue(t)) })
	}
}

func TestMonitorOfCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	for name, test := range onBoth {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := face.On(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()}))
			test(f, Of(delayqueue.NewMonitor(f.Name, f.Cli)))
		})
	}
}

// newQueue is a queue of the test's own on the shared server, for a test that runs beside others.
func newQueue(t *testing.T) (*face.Fixture, *Queue) {
	t.Helper()
	t.Parallel()
	f := face.New(t)
	return f, Of(delayqueue.NewMonitor(f.Name, f.Cli))
}

// status gets a message that must be there.
func statusInQueue(f *face.Fixture, m *Queue, id string) *MessageStatus {
	f.T.Helper()
	s, err := m.Get(queuetest.CtxB, id)
	if err != nil || s == nil {
		f.T.Fatalf("get %s: %v, %v", id, s, err)
	}
	return s
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

func monitorCounts(f *face.Fixture, m *Queue) {
	started, release := make(chan struct{}, 1), make(chan struct{})
	q := f.Queue(func(string) bool { started <- struct{}{}; <-release; return false }).WithNackRedeliveryDelay(time.Hour)
	counts := func(what string, want Counts) {
		f.T.Helper()
		got, err := m.Counts(queuetest.CtxB)
		if b, balanceErr := m.Balance(queuetest.CtxB); balanceErr == nil {
			want.BooksSince = b.Since
		}
		if err != nil || got != want {
			f.T.Errorf("%s: %+v, %v; want %+v", what, got, err, want)
		}
		for name, c := range map[string]struct {
			get  func(context.Context) (int64, error)
			want int64
		}{"pending": {m.Monitor().GetPendingCount, want.Pending}, "ready": {m.Monitor().GetReadyCount, want.Ready},
			"processing": {m.Monitor().GetProcessingCount, want.Unack}} {
			if n, err := c.get(queuetest.CtxB); err != nil || n != c.want {
				f.T.Errorf("%s: %d %s, %v; want %d", what, n, name, err, c.want)
			}
		}
	}
	far := f.Send(q, "far", face.InAnHour)
	counts("one that waits", Counts{Counts: delayqueue.Counts{Pending: 1, NextDue: far.Due}})
	f.Send(q, "now")
	f.Send(q, "now")
	got, err := m.Counts(queuetest.CtxB)
	if err != nil || got.Pending != 1 || got.Ready != 2 || got.Behind <= 0 || got.Behind > queuetest.Patience ||
		!got.NextDue.Equal(far.Due) {
		f.T.Errorf("two that are due: %+v, %v", got, err)
	}
	q.StartConsume()
	queuetest.Receive(f.T, "one is handled", started)
	if got, err := m.Counts(queuetest.CtxB); err != nil || got.Unack != 1 || got.Ready != 1 {
		f.T.Errorf("while one is handled: %+v, %v", got, err)
	}
	close(release)
	queuetest.Eventually(f.T, "both wait for their retry", func() bool { return len(f.Check().Retry) == 2 })
	counts("after two failures", Counts{Counts: delayqueue.Counts{Pending: 1, Retry: 2, NextDue: far.Due}})
	since := func() time.Time {
		var us int64
		f.Must(queuetest.Failure(fmt.Sscan(f.Check().Fields["paused"], &us)))
		return time.UnixMicro(us)
	}
	f.Must(m.Pause(queuetest.CtxB))
	counts("paused", Counts{Counts: delayqueue.Counts{Pending: 1, Retry: 2, NextDue: far.Due}, Paused: true,
		PausedSince: since()})
	until := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	f.Must(m.WithOperator("ann\n").WithReason("deploy").PauseUntil(queuetest.CtxB, until))
	counts("paused for an hour", Counts{Counts: delayqueue.Counts{Pending: 1, Retry: 2, NextDue: far.Due}, Paused: true,
		PausedUntil: until, PausedSince: since(), PausedBy: "ann", PauseReason: "deploy"})
	f.Must(m.Resume(queuetest.CtxB))
	counts("resumed", Counts{Counts: delayqueue.Counts{Pending: 1, Retry: 2, NextDue: far.Due}})
}

func monitorGet(f *face.Fixture, m *Queue) {
	started, release := make(chan struct{}), make(chan struct{})
	q := f.Queue(nil).WithNackRedeliveryDelay(time.Hour).WithHandler(
		func(_ context.Context, msg *delayqueue.Message) error {
			if msg.Payload == "slow" {
				close(started)
				<-release
				return nil
			}
			return fmt.Errorf("no %s", msg.Payload)
		})
	if s, err := m.Get(queuetest.CtxB, queuetest.IDOf("nobody")); s != nil || !errors.Is(err, delayqueue.ErrNotFound) {
		f.T.Errorf("one that was never sent: %+v, %v", s, err)
	}
	waits := f.Send(q, "waits", face.InAnHour, delayqueue.WithKey("k"), delayqueue.WithHeader("h", "v"),
		delayqueue.WithRetryCount(7))
	fails := f.Send(q, "fails")
	dies := f.Send(q, "dies", delayqueue.WithRetryCount(0), delayqueue.WithKey("of the dead"))
	for _, get := range []func() (*MessageStatus, error){
		func() (*MessageStatus, error) { return m.Get(queuetest.CtxB, waits.ID) },
		func() (*MessageStatus, error) { return m.GetKey(queuetest.CtxB, "k") },
	} {
		s, err := get()
		if err != nil || s == nil {
			f.T.Fatalf("pending: %v, %v", s, err)
		}
		if s.State != delayqueue.StatePending || !s.At.Equal(waits.Due) || !s.Due.Equal(waits.Due) || s.Payload != "waits" ||
			s.Headers["h"] != "v" ||
			s.Key != "k" || s.ID != waits.ID || s.MaxRetries != 7 || s.Delivery != 1 || !s.EndedAt.IsZero() ||
			s.LastError != "" || s.Broken != nil {
			f.T.Errorf("pending: %+v", s)
		}
	}
	if s := statusInQueue(f, m, fails.ID); s.State != delayqueue.StateReady || !s.At.IsZero() {
		f.T.Errorf("due: %+v", s)
	}
	q.StartConsume()
	queuetest.Eventually(f.T, "both have failed", func() bool {
		return len(f.Check().Retry) == 1 && len(f.Check().Garbage) == 1
	})
	now := time.Now()
	if s := statusInQueue(f, m, fails.ID); s.State != delayqueue.StateRetry || s.Failures != 1 || s.Delivery != 2 ||
		s.LastError != "no fails" || s.Losses != 0 ||
		now.Sub(s.EndedAt).Abs() > queuetest.Patience || s.At.Sub(s.EndedAt) != time.Hour {
		f.T.Errorf("retry: %+v", s)
	}
	if s := statusInQueue(f, m, dies.ID); s.State != delayqueue.StateGarbage || s.LastError != "no dies" ||
		now.Sub(s.At).Abs() > queuetest.Patience || s.Failures != 1 {
		f.T.Errorf("garbage: %+v", s)
	}
	lists(f, m, delayqueue.StateGarbage, Filter{Key: "of the dead"}, "dies")
	lists(f, m, delayqueue.StateGarbage, Filter{Key: "of the"})
	if s, err := m.GetKey(queuetest.CtxB, "of the dead"); s != nil || !errors.Is(err, delayqueue.ErrNotFound) {
		f.T.Errorf("the key of a dead message finds %+v, %v", s, err)
	}
	slow := f.Send(q, "slow")
	queuetest.Receive(f.T, "it is handled", started)
	var s *MessageStatus
	queuetest.Eventually(f.T, "its consumer is known", func() bool {
		s = statusInQueue(f, m, slow.ID)
		return s.Consumer != ""
	})
	cs, err := m.Consumers(queuetest.CtxB)
	if err != nil || len(cs) != 1 || cs[0].ID != s.Consumer {
		f.T.Errorf("its consumer is %q, those alive are %+v, %v", s.Consumer, cs, err)
	}
	if left := time.Until(s.At); s.State != delayqueue.StateUnack || left < -queuetest.Patience ||
		left > 2*10*time.Second {
		f.T.Errorf("being handled: %+v", s)
	}
	close(release)
	queuetest.Eventually(f.T, "it is gone", func() bool {
		_, err := m.Get(queuetest.CtxB, slow.ID)
		return errors.Is(err, delayqueue.ErrNotFound)
	})
}

// payloads lists what is in a state.
func payloadsIn(f *face.Fixture, m *Queue, state delayqueue.State, filter Filter) (all []string) {
	f.T.Helper()
	for msg, err := range m.All(queuetest.CtxB, state, filter) {
		f.Must(err)
		if msg.State != state {
			f.T.Errorf("%s is listed in %s as %s", msg.Payload, state, msg.State)
		}
		all = append(all, msg.Payload)
	}
	return all
}

func lists(f *face.Fixture, m *Queue, state delayqueue.State, filter Filter, want ...string) {
	f.T.Helper()
	if got := payloadsIn(f, m, state, filter); !slices.Equal(got, want) {
		f.T.Errorf("%s %+v: %q, want %q", state, filter, got, want)
	}
}

func monitorList(f *face.Fixture, m *Queue) {
	q := f.Queue(nil)
	base := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	at := func(i int) time.Time { return base.Add(time.Duration(i) * time.Minute) }
	for _, i := range []int{3, 0, 4, 1, 2} {
		f.Send(q, fmt.Sprint("p", i), delayqueue.WithSchedule(at(i)), delayqueue.WithHeader("tenant", fmt.Sprint("t", i%2)))
	}
	lists(f, m, delayqueue.StatePending, Filter{}, "p0", "p1", "p2", "p3", "p4")
	lists(f, m, delayqueue.StatePending, Filter{Limit: 2}, "p0", "p1", "p2", "p3", "p4")
	lists(f, m, delayqueue.StatePending, Filter{Limit: 1, Contains: "3"}, "p3")
	lists(f, m, delayqueue.StatePending, Filter{Headers: map[string]string{"tenant": "t1"}}, "p1", "p3")
	lists(f, m, delayqueue.StatePending, Filter{Headers: map[string]string{"other": ""}})
	lists(f, m, delayqueue.StatePending, Filter{Headers: map[string]string{"tenant": "1"}})
	lists(f, m, delayqueue.StatePending, Filter{HeadersContain: map[string]string{"tenant": "1"}}, "p1", "p3")
	lists(f, m, delayqueue.StatePending, Filter{HeadersContain: map[string]string{"other": ""}})
	lists(f, m, delayqueue.StatePending, Filter{From: at(1), To: at(3)}, "p1", "p2", "p3")
	lists(f, m, delayqueue.StateRetry, Filter{})
	lists(f, m, delayqueue.StateReady, Filter{})
	f.Send(q, "now 1")
	f.Send(q, "now 2")
	lists(f, m, delayqueue.StateReady, Filter{Limit: 1}, "now 1", "now 2")
	lists(f, m, delayqueue.StatePending, Filter{From: time.Now().Add(-time.Hour), Contains: "now"})
	started, release := make(chan string, 2), make(chan struct{})
	w := f.Queue(func(p string) bool {
		started <- p
		<-release
		return false
	}).WithConcurrent(2).WithRetryDelays(time.Hour)
	w.StartConsume()
	queuetest.Receive(f.T, "one", started)
	queuetest.Receive(f.T, "the other", started)
	if got := payloadsIn(f, m, delayqueue.StateUnack, Filter{}); len(got) != 2 {
		f.T.Errorf("being handled: %q", got)
	}
	close(release)
	queuetest.Eventually(f.T, "both wait for their retry", func() bool { return len(f.Check().Retry) == 2 })
	lists(f, m, delayqueue.StateRetry, Filter{Error: "returned false"})
	if got := payloadsIn(f, m, delayqueue.StateRetry, Filter{ErrorContains: "returned false"}); len(got) != 2 {
		f.T.Errorf("waiting for a retry: %q", got)
	}
	f.Must(w.Shutdown(queuetest.CtxB))
	for msg, err := range m.All(queuetest.CtxB, delayqueue.StateRetry, Filter{}) { // due, and so ready
		if err != nil || m.RunNow(queuetest.CtxB, msg.ID) != nil {
			f.T.Fatal(err)
		}
	}
	if got := payloadsIn(f, m, delayqueue.StateReady, Filter{Limit: 1}); len(got) != 2 {
		f.T.Errorf("due again: %q", got)
	}
	lists(f, m, delayqueue.StateRetry, Filter{})
	refused(f.T, map[string]error{
		"cursor":     queuetest.Failure(m.List(queuetest.CtxB, delayqueue.StatePending, Filter{}, "no")),
		"place":      queuetest.Failure(m.List(queuetest.CtxB, delayqueue.StatePending, Filter{}, "eyJwIjoxfQ")),
		"score":      queuetest.Failure(m.List(queuetest.CtxB, delayqueue.StatePending, Filter{}, "eyJzIjoibmFuIn0")),
		"state gone": queuetest.Failure(m.List(queuetest.CtxB, delayqueue.StateGone, Filter{}, "")),
	})
}

func TestMonitorWithoutRedis(t *testing.T) {
	t.Parallel()
	cli := queuetest.ClientWith(t, &redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1, MaxRetries: -1})
	m := Of(delayqueue.NewMonitor("nobody-there", cli))
	var all sync.WaitGroup
	for what, call := range map[string]func() error{
		"count":  func() error { _, err := m.Monitor().GetReadyCount(queuetest.CtxB); return err },
		"get":    func() error { _, err := m.Get(queuetest.CtxB, queuetest.IDOf("a")); return err },
		"listen": func() error { _, err := m.Monitor().ListenEvent(queuetest.CtxB, func(delayqueue.Event) {}); return err },
		"drop":   func() error { return m.DeleteQueue(queuetest.CtxB, false) },
		"steer": func() error {
			ctx, cancel := context.WithTimeout(queuetest.CtxB, 50*time.Millisecond)
			defer cancel()
			return m.RunNow(ctx, queuetest.IDOf("a"))
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

// TestNoQueue: a call that is to change something of a queue that does not exist says so, and makes no key, whoever
// calls.
func TestNoQueue(t *testing.T) {
	f, m := newQueue(t)
	p, id := delayqueue.NewPublisher(f.Name, f.Cli), queuetest.IDOf("nobody")
	calls := map[string]func() error{
		"Intercept":          func() error { return queuetest.Failure(p.Intercept(queuetest.CtxB, id)) },
		"TryIntercept":       func() error { return queuetest.Failure(p.TryIntercept(&delayqueue.MessageInfo{ID: id})) },
		"InterceptKey":       func() error { return queuetest.Failure(p.InterceptKey(queuetest.CtxB, "order-42")) },
		"Cancel":             func() error { return queuetest.Failure(m.Cancel(queuetest.CtxB, id)) },
		"CancelKey":          func() error { return queuetest.Failure(p.CancelKey(queuetest.CtxB, "order-42")) },
		"Reschedule":         func() error { return p.Reschedule(queuetest.CtxB, id, time.Now()) },
		"RescheduleKey":      func() error { return p.RescheduleKey(queuetest.CtxB, "order-42", time.Now()) },
		"RescheduleBy":       func() error { return m.RescheduleBy(queuetest.CtxB, id, time.Hour) },
		"RunNow":             func() error { return m.RunNow(queuetest.CtxB, id) },
		"Requeue":            func() error { return m.Requeue(queuetest.CtxB, id) },
		"Delete":             func() error { return m.Delete(queuetest.CtxB, id) },
		"Pause":              func() error { return m.Pause(queuetest.CtxB) },
		"PauseFor":           func() error { return m.PauseFor(queuetest.CtxB, time.Hour) },
		"PauseUntil":         func() error { return m.PauseUntil(queuetest.CtxB, time.Now().Add(time.Hour)) },
		"Resume":             func() error { return m.Resume(queuetest.CtxB) },
		"SetLimits":          func() error { return queuetest.Failure(m.SetLimits(queuetest.CtxB, Limits{Concurrency: 1})) },
		"Unthrottle":         func() error { return queuetest.Failure(m.Unthrottle(queuetest.CtxB)) },
		"DropSequence":       func() error { return m.DropSequence(queuetest.CtxB, "rows") },
		"DeleteQueue":        func() error { return m.DeleteQueue(queuetest.CtxB, false) },
		"DeleteQueue, force": func() error { return m.DeleteQueue(queuetest.CtxB, true) },
		"BulkDelete": func() error {
			return queuetest.Failure(m.BulkDelete(queuetest.CtxB, Bulk{States: []delayqueue.State{delayqueue.StatePending}}))
		},
		"BulkRequeue": func() error { return queuetest.Failure(m.BulkRequeue(queuetest.CtxB, Bulk{})) },
		"Counts":      func() error { return queuetest.Failure(m.Counts(queuetest.CtxB)) },
		"Get":         func() error { return queuetest.Failure(m.Get(queuetest.CtxB, id)) },
		"GetKey":      func() error { return queuetest.Failure(m.GetKey(queuetest.CtxB, "order-42")) },
		"GetPending":  func() error { return queuetest.Failure(m.Monitor().GetPendingCount(queuetest.CtxB)) },
		"List": func() error {
			return queuetest.Failure(m.List(queuetest.CtxB, delayqueue.StateGarbage, Filter{}, ""))
		},
		"All":  func() error { return first(m.All(queuetest.CtxB, delayqueue.StateReady, Filter{})) },
		"Find": func() error { return queuetest.Failure(m.Find(queuetest.CtxB, "x", Find{}, "")) },
		"ErrorGroups": func() error {
			return queuetest.Failure(m.ErrorGroups(queuetest.CtxB, delayqueue.StateGarbage, Filter{}, 0, ""))
		},
		"Forecast":  func() error { return queuetest.Failure(m.Forecast(queuetest.CtxB, time.Time{}, time.Minute, 1)) },
		"Journal":   func() error { return queuetest.Failure(m.Journal(queuetest.CtxB, 0, "")) },
		"Lanes":     func() error { return queuetest.Failure(m.Lanes(queuetest.CtxB, 0, "")) },
		"Lane":      func() error { return queuetest.Failure(m.Lane(queuetest.CtxB, "l")) },
		"Consumers": func() error { return queuetest.Failure(m.Consumers(queuetest.CtxB)) },
		"History":   func() error { return queuetest.Failure(m.History(queuetest.CtxB, Hourly, 1)) },
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, delayqueue.ErrNoQueue) || !errors.Is(err, delayqueue.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
		if n := f.Cli.Exists(queuetest.CtxB, check.Queue{Prefix: "dq", Name: f.Name}.Keys()...).Val(); n != 0 {
			t.Fatalf("%s made %d keys", name, n)
		}
	}
	f.Send(f.Queue(nil), "x", face.InAnHour)
	if r, err := p.TryIntercept(&delayqueue.MessageInfo{ID: id}); err != nil || r.State != delayqueue.StateGone {
		t.Errorf("an unknown id of a queue that exists: %+v, %v", r, err)
	}
	if r, err := p.InterceptKey(queuetest.CtxB, "order-42"); err != nil || r.State != delayqueue.StateGone {
		t.Errorf("an unknown key of a queue that exists: %+v, %v", r, err)
	}
}

// TestQueueWithoutState: a queue that has messages is there, although somebody deleted its state.
func TestQueueWithoutState(t *testing.T) {
	f, m := newQueue(t)
	for name, call := range map[string]func(id string) error{
		"Pause":     func(string) error { return m.Pause(queuetest.CtxB) },
		"SetLimits": func(string) error { return queuetest.Failure(m.SetLimits(queuetest.CtxB, Limits{Concurrency: 1})) },
		"Intercept": func(id string) error { return queuetest.Failure(m.Intercept(queuetest.CtxB, id)) },
		"RunNow":    func(id string) error { return m.RunNow(queuetest.CtxB, id) },
	} {
		id := f.Send(f.Queue(nil), "x", face.InAnHour).ID
		f.Must(f.Cli.Del(queuetest.CtxB, f.Key("state")).Err())
		if err := call(id); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		f.Must(m.DeleteQueue(queuetest.CtxB, true))
	}
}

// TestKeyForAnID: each call by id says so if what it is given is none, and cannot be found.
func TestKeyForAnID(t *testing.T) {
	f, m := newQueue(t)
	q := f.Queue(nil)
	f.Send(q, "42", delayqueue.WithKey("order-42"), face.InAnHour)
	for name, err := range map[string]error{
		"Intercept":    queuetest.Failure(q.Intercept(queuetest.CtxB, "order-42")),
		"Cancel":       queuetest.Failure(q.Cancel(queuetest.CtxB, "order-42")),
		"TryIntercept": queuetest.Failure(q.TryIntercept(&delayqueue.MessageInfo{ID: "order-42"})),
		"Reschedule":   q.Reschedule(queuetest.CtxB, "order-42", time.Now()),
		"Get":          queuetest.Failure(m.Get(queuetest.CtxB, "order-42")),
		"RunNow":       m.RunNow(queuetest.CtxB, "order-42"),
		"RescheduleBy": m.RescheduleBy(queuetest.CtxB, "order-42", time.Hour),
		"Requeue":      m.Requeue(queuetest.CtxB, "order-42"), "Delete": m.Delete(queuetest.CtxB, "order-42"),
		"Await": queuetest.Failure(q.Await(queuetest.CtxB, "order-42")),
	} {
		if !errors.Is(err, delayqueue.ErrNotFound) ||
			!strings.Contains(err.Error(), "use the method whose name ends in Key") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := len(f.Check().Pending); n != 1 {
		t.Errorf("%d wait", n)
	}
}
