package features

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/ops"
)

// death is what a garbage handler was told.
type death struct {
	msg *delayqueue.Message
	err error
}

// TestDeadline goes through the ways of a message to its deadline.
func TestDeadline(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	deaths, handled := make(chan death, 10), make(chan string, 10)
	q := f.Queue(nil).WithConcurrent(4).WithGarbageHandler(func(_ context.Context, msg *delayqueue.Message, err error) {
		deaths <- death{msg, err}
	}).
		WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
			handled <- msg.Payload
			switch {
			case msg.Payload == "blocks":
				<-ctx.Done()
				if cause := context.Cause(ctx); !errors.Is(cause, delayqueue.ErrExpired) {
					t.Errorf("its context ended with %v", cause)
				}
				return errors.New("too late for anybody")
			case msg.Payload == "fails":
				return delayqueue.RetryAfter(time.Hour, queuetest.ErrBoom)
			case msg.Payload == "snoozes":
				return delayqueue.Snooze(time.Hour)
			}
			return nil
		})
	died := func(what string, id string, failures int64, wraps error) {
		t.Helper()
		got := queuetest.Receive(t, what, deaths)
		if got.msg.ID != id || !errors.Is(got.err, delayqueue.ErrExpired) || wraps != nil && !errors.Is(got.err, wraps) {
			t.Errorf("%s: %+v, %v", what, got.msg, got.err)
		}
		if record := f.Check().Fail[id]; f.Where(id) != "garbage" || record.Failures != failures ||
			!strings.HasPrefix(record.Error, "message expired: no delivery after its deadline") {
			t.Errorf("%s: %s, %+v", what, f.Where(id), record)
		}
	}
	soon := time.Now().Add(4 * time.Second) // a deadline that has passed is refused
	late := f.Send(q, "late", delayqueue.WithDeadline(soon))
	inTime := f.Send(q, "in time", delayqueue.WithDeadline(time.Now().Add(time.Hour)), delayqueue.WithKey("k"))
	if m, err := ops.Of(delayqueue.NewMonitor(f.Name, f.Cli)).Get(context.Background(), late.ID); err != nil ||
		!m.Deadline.Equal(soon.Truncate(time.Microsecond)) || m.Timeout != 0 {
		t.Errorf("%+v, %v; want the deadline %v", m, err, soon)
	}
	<-time.After(time.Until(soon.Add(time.Millisecond)))
	q.StartConsume()
	died("it is never handed out", late.ID, 0, nil)
	if p := queuetest.Receive(t, "one is handled", handled); p != "in time" {
		t.Errorf("handled %q", p)
	}
	queuetest.Eventually(t, "it is acked", func() bool { return f.Where(inTime.ID) == "gone" })

	fails := f.Send(q, "fails", delayqueue.WithDeadline(time.Now().Add(10*time.Minute)))
	died("its retry would be too late", fails.ID, 1, queuetest.ErrBoom)
	snoozes := f.Send(q, "snoozes", delayqueue.WithDeadline(time.Now().Add(10*time.Minute)))
	died("it would come again too late", snoozes.ID, 0, nil)
	for len(handled) > 0 {
		<-handled
	}
	err := ops.Of(delayqueue.NewMonitor(f.Name, f.Cli)).Requeue(context.Background(), late.ID)
	if !errors.Is(err, delayqueue.ErrExpired) {
		t.Errorf("it would be once more in vain: %v", err)
	}
	if n := strings.Count(f.Check().Fail[late.ID].Error, "expired"); n != 1 || len(handled) > 0 {
		t.Errorf("%d handled; it says %q", len(handled), f.Check().Fail[late.ID].Error)
	}

	for start := false; !start; { // on a machine that stands still it comes too late for its handler
		cut := f.Send(q, "blocks", delayqueue.WithDeadline(time.Now().Add(3*time.Second)))
		select {
		case <-handled:
			start = true
			died("it is cut off", cut.ID, 1, nil)
		case <-deaths:
		}
	}
	f.Log.Says(t, 1, "ran past its limit", "cause=\"message expired\"")
}

// TestDeadlineRace: handlers that return at about the deadline are counted once, as acked or as garbage.
func TestDeadlineRace(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	const n = 200
	q := f.Queue(nil).WithConcurrent(20)
	q.WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
		at, err := time.Parse(time.RFC3339Nano, msg.Payload)
		if err != nil {
			return err
		}
		<-time.After(time.Until(at))
		return nil
	})
	acked := face.CountEvents(t, q, delayqueue.AckEvent)
	q.StartConsume()
	for i := range n {
		err := delayqueue.ErrBadOption
		for errors.Is(err, delayqueue.ErrBadOption) { // again, if this process was held up until after the deadline
			at := time.Now().Add(time.Duration(5+i%3) * time.Millisecond)
			_, err = q.Send(queuetest.CtxB, at.Format(time.RFC3339Nano),
				delayqueue.WithDeadline(at.Add(time.Duration(i%7-3)*50*time.Microsecond)))
		}
		f.Must(err)
	}
	queuetest.Eventually(t, "each has its end", func() bool {
		s := f.Check()
		return len(s.Messages) == len(s.Garbage)
	})
	queuetest.Eventually(t, "each has one end", func() bool { return int(acked.Load())+len(f.Check().Garbage) == n })
	for id, record := range f.Check().Fail {
		if record.Failures > 1 || !strings.HasPrefix(record.Error, "message expired") {
			t.Errorf("%s: %+v", id, record)
		}
	}
	days, err := ops.Of(delayqueue.NewMonitor(f.Name, f.Cli)).History(context.Background(), ops.Daily, 2)
	f.Must(err)
	if ended := days[0].Acked + days[0].Garbage + days[1].Acked + days[1].Garbage; ended != n {
		t.Errorf("counted %+v", days)
	}
}

// TestTimeout: a message's own limit holds in place of the queue's.
func TestTimeout(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	started, release := make(chan string, 10), make(chan struct{})
	q := f.Queue(nil).WithConcurrent(3).WithMaxConsumeDuration(100 * time.Millisecond).WithNackRedeliveryDelay(time.Hour).
		WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
			started <- msg.Payload
			if msg.Payload == "no limit" {
				select {
				case <-release:
				case <-ctx.Done():
					t.Errorf("it is cut off: %v", context.Cause(ctx))
				}
				return nil
			}
			<-ctx.Done()
			return nil
		})
	q.StartConsume()
	free := f.Send(q, "no limit", delayqueue.WithTimeout(0))
	queuetest.Receive(t, "it starts", started)
	long := f.Send(q, "long", delayqueue.WithTimeout(time.Hour))
	queuetest.Receive(t, "it starts", started)
	for range 3 { // these come and go while the first go on
		failed := f.Send(q, "cut off")
		queuetest.Receive(t, "it starts", started)
		queuetest.Eventually(t, "it is cut off", func() bool {
			return strings.Contains(f.Check().Fail[failed.ID].Error, "past its limit of 100ms")
		})
	}
	short := f.Send(q, "short", delayqueue.WithTimeout(20*time.Millisecond))
	queuetest.Eventually(t, "it is cut off", func() bool {
		return strings.Contains(f.Check().Fail[short.ID].Error, "past its limit of 20ms")
	})
	for _, id := range []string{free.ID, long.ID} {
		if where := f.Where(id); where != "unack" {
			t.Errorf("it is %s", where)
		}
	}
	m := ops.Of(delayqueue.NewMonitor(f.Name, f.Cli))
	for id, want := range map[string]string{free.ID: "true", long.ID: "1h0m0s", short.ID: "20ms"} {
		got, err := m.Get(context.Background(), id)
		f.Must(err)
		if text := fmt.Sprint(got.Timeout); text != want && fmt.Sprint(got.Timeout < 0) != want {
			t.Errorf("its timeout is %v, want %v", got.Timeout, want)
		}
	}
	close(release)
	if r, err := q.Cancel(context.Background(), long.ID); err != nil || !r.Intercepted {
		t.Errorf("%+v, %v", r, err)
	}
	queuetest.Eventually(t, "the first is acked", func() bool { return f.Where(free.ID) == "gone" })
}
