package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// echo answers with the payload, or fails for good.
func echo(ctx context.Context, msg *Message) error {
	if text, dies := strings.CutPrefix(msg.Payload, "die "); dies {
		return fmt.Errorf("%w: %s", ErrSkipRetry, text)
	}
	return SetResult(ctx, "to "+msg.Payload)
}

// withTimeout is a context for all that a test does.
func withTimeout(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 5*patience)
	t.Cleanup(cancel)
	return ctx
}

// TestCall: the result is that of the message, or its last error.
func TestCall(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(nil).WithHandler(echo).WithConcurrent(4)
	q.StartConsume()
	ctx := withTimeout(t)
	before := time.Now()
	r, err := q.Call(ctx, "me")
	if err != nil || r.ID == "" || r.State != StateDone || r.Value != "to me" || r.Err != "" || r.At.Before(before.Add(-time.Minute)) {
		t.Fatalf("%+v, %v", r, err)
	}
	s := f.status(NewMonitor(f.name, f.cli), r.ID)
	if s.State != StateDone || s.Result != "to me" || s.Payload != "me" || !s.EndedAt.Equal(r.At) ||
		s.At.Sub(s.EndedAt) != callRetention || s.Delivery != 2 {
		t.Errorf("%+v", s)
	}
	for name, await := range map[string]func(context.Context, string) (*Result, error){
		"the queue": q.Await, "a publisher": NewPublisher(f.name, f.cli).Await, "a monitor": NewMonitor(f.name, f.cli).Await,
	} {
		if again, err := await(ctx, r.ID); err != nil || *again != *r {
			t.Errorf("%s: %+v, %v; want %+v", name, again, err, r)
		}
	}
	dead, err := NewPublisher(f.name, f.cli).Call(ctx, "die young", WithRetention(time.Hour))
	if err != nil || dead.State != StateGarbage || dead.Err != "skip retry: young" || dead.Value != "" || dead.At.IsZero() {
		t.Errorf("%+v, %v", dead, err)
	}
	if r, err := q.Call(ctx, "x", WithRetention(time.Millisecond)); r != nil || !errors.Is(err, ErrBadOption) {
		t.Errorf("%+v, %v", r, err)
	}
	given, giveUp := context.WithCancel(ctx)
	got := make(chan awaitAnswer)
	go func() {
		r, err := q.Call(given, "late", inAnHour)
		got <- awaitAnswer{r, err}
	}()
	eventually(t, "it is sent and awaited", func() bool {
		q.looker.mu.Lock()
		defer q.looker.mu.Unlock()
		return q.looker.n > 0
	})
	giveUp()
	if a := receive(t, "it gives up", got); !errors.Is(a.err, context.Canceled) || a.result == nil || a.result.ID == "" ||
		a.result.State != StateGone {
		t.Errorf("%+v, %v", a.result, a.err)
	} else if s := f.status(NewMonitor(f.name, f.cli), a.result.ID); s.State != StatePending {
		t.Errorf("%+v", s)
	}
}

// TestSetResult: the last one wins; what is not acked has none; outside a handler, and after it, it is an error.
func TestSetResult(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var later context.Context
	var failed atomic.Bool
	q := f.queue(nil).WithNackRedeliveryDelay(0).WithHandler(func(ctx context.Context, msg *Message) error {
		switch msg.Payload {
		case "twice":
			f.must(SetResult(ctx, "first"))
			f.must(SetResult(ctx, "last"))
		case "none":
		case "empty":
			f.must(SetResult(ctx, "old"))
			f.must(SetResult(ctx, ""))
		case "largest":
			f.must(SetResult(ctx, strings.Repeat("\x00", maxResult)))
			if err := SetResult(ctx, strings.Repeat("x", maxResult+1)); !errors.Is(err, ErrResultTooLarge) {
				t.Errorf("one byte too many: %v", err)
			}
		case "derived":
			inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
			cancel()
			f.must(SetResult(inner, "yes"))
			later = ctx
		case "fails first":
			if !failed.Swap(true) {
				f.must(SetResult(ctx, "of the failure"))
				return errors.New("no")
			}
		case "not kept":
			f.must(SetResult(ctx, "nobody asked"))
		}
		return nil
	})
	q.StartConsume()
	ctx := withTimeout(t)
	for payload, want := range map[string]string{"twice": "last", "none": "", "empty": "", "largest": strings.Repeat("\x00", maxResult),
		"derived": "yes", "fails first": ""} {
		if r, err := q.Call(ctx, payload); err != nil || r.State != StateDone || r.Value != want {
			t.Errorf("%s: %d bytes, %v", payload, len(r.Value), err)
		}
	}
	if err := SetResult(later, "late"); !errors.Is(err, ErrNotHandling) {
		t.Errorf("after the handler has returned: %v", err)
	}
	if err := SetResult(ctxB, "x"); !errors.Is(err, ErrNotHandling) {
		t.Errorf("outside a handler: %v", err)
	}
	info := f.send(q, "not kept")
	if r, err := q.Await(ctx, info.ID); r != nil || !errors.Is(err, ErrNoResult) {
		t.Errorf("not kept: %+v, %v", r, err)
	}
}

// TestResultAndThen: what an ack writes, it writes in one step.
func TestResultAndThen(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(nil).WithNackRedeliveryDelay(0).WithHandler(func(ctx context.Context, msg *Message) error {
		if msg.Payload == "next" {
			return nil
		}
		f.must(SetResult(ctx, fmt.Sprint("delivery ", msg.Delivery)))
		f.must(Then(ctx, "next", inAnHour, WithKey("k"), WithRetention(time.Minute)))
		if msg.Delivery == 1 {
			return errBoom
		}
		return nil
	})
	q.StartConsume()
	r, err := q.Call(withTimeout(t), "first", WithKey("k"))
	if err != nil || r.Value != "delivery 2" {
		t.Errorf("%+v, %v", r, err)
	}
	next, err := NewMonitor(f.name, f.cli).GetKey(ctxB, "k")
	if err != nil || next.Payload != "next" || next.State != StatePending || next.Retention != time.Minute {
		t.Errorf("%+v, %v", next, err)
	}
	if s := f.check(); len(s.Done) != 1 || len(s.Pending) != 1 {
		t.Errorf("%s", s.Dump())
	}
}

// TestSetResultOfMiddleware: a middleware sees what the handler is, and has the last word.
func TestSetResultOfMiddleware(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(nil).WithHandler(echo).WithMiddleware(func(next Handler) Handler {
		return func(ctx context.Context, msg *Message) error {
			err := next(ctx, msg)
			return errors.Join(err, SetResult(ctx, "wrapped"))
		}
	})
	q.StartConsume()
	if r, err := q.Call(withTimeout(t), "x"); err != nil || r.Value != "wrapped" {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestResultOfAHandlerPastItsLimit: it is void, and what it says later is refused.
func TestResultOfAHandlerPastItsLimit(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	said := make(chan error, 1)
	q := f.queue(nil).WithMaxConsumeDuration(10 * time.Millisecond).WithHandler(func(ctx context.Context, msg *Message) error {
		f.must(SetResult(ctx, "early"))
		<-ctx.Done()
		eventually(t, "it is over", func() bool { return SetResult(ctx, "late") != nil })
		said <- SetResult(ctx, "late")
		return nil
	})
	q.StartConsume()
	r, err := q.Call(withTimeout(t), "x", WithRetryCount(0))
	if err != nil || r.State != StateGarbage || !strings.Contains(r.Err, ErrConsumeTimeout.Error()) || r.Value != "" {
		t.Errorf("%+v, %v", r, err)
	}
	if err := receive(t, "the handler returns", said); !errors.Is(err, ErrNotHandling) {
		t.Error(err)
	}
}

// TestDoneLimitSparesCalls: where messages that are kept for long have filled the queue, a Call finds its result all the
// same, and so does who awaits one of those that came last.
func TestDoneLimitSparesCalls(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(nil).WithHandler(echo).WithDoneLimit(5)
	q.StartConsume()
	for i := range 6 {
		if _, err := q.Await(ctxB, f.send(q, fmt.Sprint("kept ", i), WithRetention(24*time.Hour)).ID); err != nil {
			t.Errorf("message %d: %v", i, err)
		}
	}
	for i := range 5 {
		payload := fmt.Sprint("call ", i)
		if r, err := q.Call(ctxB, payload); err != nil || r.Value != "to "+payload {
			t.Errorf("%+v, %v", r, err)
		}
	}
	if n := len(f.check().Done); n != 5 {
		t.Errorf("%d are kept", n)
	}
}

// TestDoneLimit: the queue keeps so many, and says in the log what had to go.
func TestDoneLimit(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(nil).WithHandler(echo).WithDoneLimit(2)
	q.StartConsume()
	ctx := withTimeout(t)
	var ids []string
	for i := range 4 {
		r, err := q.Call(ctx, fmt.Sprint(i), WithRetention(time.Hour+time.Duration(i)*time.Minute))
		f.must(err)
		ids = append(ids, r.ID)
	}
	for i, id := range ids {
		if r, err := q.Await(ctx, id); i < 2 && !errors.Is(err, ErrNoResult) || i >= 2 && (err != nil || r.Value != fmt.Sprint("to ", i)) {
			t.Errorf("%d: %+v, %v", i, r, err)
		}
	}
	eventually(t, "the log says of both", func() bool { return f.log.count("for want of room", "done") == 2 })
}

// TestLargeResults: results of 1 MB settle in calls of about 1 MB, and awaits get them in several.
func TestLargeResults(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(nil).WithConcurrent(8).WithHandler(func(ctx context.Context, msg *Message) error {
		return SetResult(ctx, strings.Repeat(msg.Payload, maxResult))
	})
	q.StartConsume()
	ctx := withTimeout(t)
	var all sync.WaitGroup
	for i := range 24 {
		payload := string(rune('a' + i))
		all.Go(func() {
			if r, err := q.Call(ctx, payload); err != nil || r.Value != strings.Repeat(payload, maxResult) {
				t.Errorf("%s: %v", payload, err)
			}
		})
	}
	all.Wait()
}

// TestFittingResults: a settlement is of about 1 MB, but one of any size goes alone.
func TestFittingResults(t *testing.T) {
	of := func(sizes ...int) (batch []outcome) {
		for _, n := range sizes {
			batch = append(batch, outcome{d: new(delivery), result: strings.Repeat("x", n)})
		}
		return batch
	}
	for _, c := range []struct {
		batch []outcome
		want  int
	}{{of(1, 2, 3), 3}, {of(maxResult), 1}, {of(maxResult, 0), 2}, {of(maxResult, 1), 1}, {of(0, maxResult, 1), 2},
		{of(maxResult/2, maxResult/2, 1), 2}} {
		if got := fitting(c.batch); got != c.want {
			t.Errorf("%d of %d, want %d", got, len(c.batch), c.want)
		}
	}
}

// TestFittingSuperseded: a settlement that may read messages, because other sends may have taken their keys, reads about 1 MB.
func TestFittingSuperseded(t *testing.T) {
	for name, c := range map[string]struct {
		kind outcomeKind
		key  string
		want int
	}{"failed": {outcomeRetry, "k", 3}, "garbage": {outcomeGarbage, "k", 3}, "released": {outcomeReady, "k", 3},
		"acked": {outcomeAck, "k", 20}, "without a key": {outcomeRetry, "", 20}} {
		batch := make([]outcome, 20)
		for i := range batch {
			batch[i] = outcome{kind: c.kind, d: new(delivery)}
			batch[i].d.msg.Key, batch[i].d.msg.Payload = c.key, strings.Repeat("x", 300<<10)
		}
		if got := fitting(batch); got != c.want {
			t.Errorf("%s: %d fit, want %d", name, got, c.want)
		}
	}
}

// TestWhatHandlersSayInMemory: it counts as held until it is settled, a result that nobody asked for is dropped at once,
// and a handling keeps nothing afterwards.
func TestWhatHandlersSayInMemory(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const size = 100 << 10
	said, settle := make(chan *handling, 20), make(chan struct{})
	cli := f.client()
	hookOwn(t, cli, commandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if args := cmd.Args(); len(args) > 1 && args[1] == settleScript.sha {
			<-settle
		}
		return next(ctx, cmd)
	}))
	q := f.queueOn(cli, nil).WithMaxInFlightBytes(3 * size).WithLease(time.Minute).WithHandler(func(ctx context.Context, msg *Message) error {
		f.must(SetResult(ctx, strings.Repeat("x", size)))
		if msg.Payload == "follows" {
			f.must(Then(ctx, strings.Repeat("x", size), inAnHour))
		}
		said <- handlingOf(ctx)
		return nil
	})
	q.StartConsume()
	var all []*handling
	handle := func(payload string, held int, opts ...MsgOption) {
		t.Helper()
		f.send(q, payload, opts...)
		all = append(all, receive(t, "it is handled", said))
		eventually(t, fmt.Sprint(held, " results are held"), func() bool { return q.current().leases.held.totals().bytes/size == held })
	}
	handle("not kept", 0)
	handle("kept", 1, WithRetention(time.Hour))
	handle("follows", 3, WithRetention(time.Hour))
	if n := q.current().poller.limit(); n != 0 {
		t.Errorf("room for %d", n)
	}
	close(settle)
	eventually(t, "no byte is held", func() bool { return q.current().leases.held.totals().bytes == 0 })
	for i, h := range all {
		if h.result != "" || h.follows != nil {
			t.Errorf("%d keeps %d bytes and %d messages", i, len(h.result), len(h.follows))
		}
	}
}

func TestDoneSeenByMonitor(t *testing.T) { onSharedServer(t, monitorSeesDone) }

func monitorSeesDone(f *fixture, m *Monitor) {
	q := f.queue(nil).WithHandler(echo).WithConcurrent(4)
	q.StartConsume()
	ctx := withTimeout(f.t)
	var ids []string
	for i := range 5 {
		r, err := q.Call(ctx, fmt.Sprint("m", i), WithKey(fmt.Sprint("k", i)), WithRetention(time.Duration(i+1)*time.Hour))
		f.must(err)
		ids = append(ids, r.ID)
	}
	n, err := m.Counts(ctxB)
	if err != nil || n != (Counts{Done: 5}) {
		f.t.Errorf("%+v, %v", n, err)
	}
	var listed []string
	for msg, err := range m.All(ctxB, StateDone, Filter{Limit: 2}) {
		f.must(err)
		if listed = append(listed, msg.ID); msg.State != StateDone || msg.Result != "" ||
			msg.At.Sub(msg.EndedAt) != time.Duration(len(listed))*time.Hour {
			f.t.Errorf("%+v", msg)
		}
	}
	if fmt.Sprint(listed) != fmt.Sprint(ids) {
		f.t.Errorf("listed %v, want %v", listed, ids)
	}
	if page, err := m.List(ctxB, StateDone, Filter{Key: "k3", To: time.Now().Add(5 * time.Hour)}, ""); err != nil ||
		len(page.Messages) != 1 || page.Messages[0].ID != ids[3] {
		f.t.Errorf("%+v, %v", page, err)
	}
	if _, err := m.GetKey(ctxB, "k0"); !errors.Is(err, ErrNotFound) {
		f.t.Errorf("by its key: %v", err)
	}
	for what, err := range map[string]error{"run now": m.RunNow(ctxB, ids[0]), "reschedule": m.Reschedule(ctxB, ids[0], time.Now()),
		"requeue": m.Requeue(ctxB, ids[0])} {
		var state *StateError
		if !errors.As(err, &state) || state.State != StateDone {
			f.t.Errorf("%s: %v", what, err)
		}
	}
	if r, err := m.Cancel(ctxB, ids[0]); err != nil || *r != (InterceptResult{State: StateDone, ID: ids[0]}) {
		f.t.Errorf("cancel: %+v, %v", r, err)
	}
	f.must(m.Delete(ctxB, ids[0]))
	if _, err := m.Get(ctxB, ids[0]); !errors.Is(err, ErrNotFound) {
		f.t.Errorf("deleted: %v", err)
	}
	got, err := m.BulkDelete(ctxB, Bulk{States: []State{StateDone}, Filter: Filter{Contains: "m2"}})
	f.bulked("delete", got, err, 4, 1, nil)
	if _, err := m.BulkRequeue(ctxB, Bulk{States: []State{StateDone}}); !errors.Is(err, ErrBadOption) {
		f.t.Errorf("requeue: %v", err)
	}
	got, err = m.BulkDelete(ctxB, Bulk{States: []State{StateDone}})
	f.bulked("delete all", got, err, 3, 3, nil)
	f.checkEmpty()
}
