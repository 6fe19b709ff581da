package features

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/ops"
)

var ofGroup = delayqueue.WithKey("k", delayqueue.Append)

// TestGroup: the handler gets all parts, in the order of the sends, with the options of the first.
func TestGroup(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	handled := make(chan *delayqueue.Message, 10)
	q := f.Queue(nil).WithHandler(func(_ context.Context, msg *delayqueue.Message) error { handled <- msg; return nil })
	batch := []delayqueue.Outgoing{{Payload: "0",
		Options: []delayqueue.MsgOption{ofGroup, face.InAnHour, delayqueue.WithHeader("h", "first")}}}
	for i := range 249 { // more than one call takes
		batch = append(batch, delayqueue.Outgoing{Payload: fmt.Sprint(i + 1),
			Options: []delayqueue.MsgOption{ofGroup, delayqueue.WithHeader("h", "other"), delayqueue.WithRetryCount(9)}})
	}
	results, err := q.SendBatch(queuetest.CtxB, batch)
	f.Must(err)
	var want []string
	for i, r := range results {
		want = append(want, fmt.Sprint(i))
		if r.Info.ID != results[0].Info.ID || r.Info.Existed != (i > 0) {
			t.Fatalf("part %d: %+v", i, r.Info)
		}
	}
	if e, err := q.Send(queuetest.CtxB, "last", ofGroup, delayqueue.WithMaxParts(251), face.InAnHour); err != nil ||
		e.ID != results[0].Info.ID ||
		e.Due.After(time.Now().Add(time.Minute)) {
		t.Errorf("%+v, %v, want it to be full and due", e, err)
	}
	q.StartConsume()
	msg := queuetest.Receive(t, "delivery", handled)
	if !reflect.DeepEqual(msg.Parts, append(want, "last")) || msg.Payload != "0" || msg.Key != "k" ||
		msg.Headers["h"] != "first" || msg.MaxRetries != 3 {
		t.Errorf("%+v", msg)
	}
	f.Drained()
	f.Send(q, "alone", ofGroup, delayqueue.WithMaxParts(1), face.InAnHour) // full, and so due now
	if msg := queuetest.Receive(t, "delivery", handled); !reflect.DeepEqual(msg.Parts, []string{"alone"}) {
		t.Errorf("%+v", msg)
	}
	f.Send(q, "no group")
	if msg := queuetest.Receive(t, "delivery", handled); msg.Parts != nil {
		t.Errorf("%+v", msg)
	}
	f.Drained()
	f.CheckEmpty()
}

// TestGroupCallback: a bare callback gets each part, and all again if it does not consume one, also with what makes a
// handler of it.
func TestGroupCallback(t *testing.T) {
	t.Parallel()
	pass := func(next delayqueue.Handler) delayqueue.Handler { return next }
	for name, with := range map[string]func(*delayqueue.DelayQueue){
		"alone":             func(*delayqueue.DelayQueue) {},
		"with a limit":      func(q *delayqueue.DelayQueue) { q.WithMaxConsumeDuration(time.Hour) },
		"with a middleware": func(q *delayqueue.DelayQueue) { q.WithMiddleware(pass) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := face.New(t)
			calls := make(chan string, 100)
			var refused atomic.Bool
			q := f.Queue(func(payload string) bool {
				calls <- payload
				return payload != "b" || refused.Swap(true)
			}).WithRetryDelays(time.Millisecond)
			with(q)
			for _, payload := range []string{"a", "b", "c"} {
				f.Send(q, payload, ofGroup, face.InAnHour)
			}
			f.Send(q, "d", ofGroup, delayqueue.WithDelay(0))
			q.StartConsume()
			f.Drained()
			close(calls)
			var got []string
			for payload := range calls {
				got = append(got, payload)
			}
			if want := strings.Fields("a b c d a b c d"); !slices.Equal(got, want) {
				t.Errorf("calls %q, want %q", got, want)
			}
			f.CheckEmpty()
		})
	}
}

// TestGroupCallbackPastItsLimit: a bare callback that ran past its limit with one part gets no more of them in that
// delivery.
func TestGroupCallbackPastItsLimit(t *testing.T) {
	t.Parallel()
	const limit = 50 * time.Millisecond
	t.Run("queue's", func(t *testing.T) {
		t.Parallel()
		callbackPastItsLimit(t, func(q *delayqueue.DelayQueue) {
			q.WithMaxConsumeDuration(limit)
		}, delayqueue.WithRetryCount(3))
	})
	t.Run("message's", func(t *testing.T) {
		t.Parallel()
		callbackPastItsLimit(t, func(*delayqueue.DelayQueue) {}, delayqueue.WithTimeout(limit))
	})
}

func callbackPastItsLimit(t *testing.T, limited func(*delayqueue.DelayQueue), own delayqueue.MsgOption) {
	f := face.New(t)
	calls, release := make(chan string, 100), make(chan struct{})
	q := f.Queue(func(payload string) bool {
		calls <- payload
		<-release
		return true
	}).WithNackRedeliveryDelay(time.Hour)
	limited(q)
	f.Send(q, "a", ofGroup, face.InAnHour, own)
	info := f.Send(q, "b", ofGroup, delayqueue.WithDelay(0))
	count := face.Goroutines(t, func() { q.StartConsume() })
	queuetest.Receive(t, "the first part", calls)
	queuetest.Eventually(t, "the delivery has failed", func() bool { return f.Where(info.ID) == "retry" })
	queuetest.Eventually(t, "the callback runs on", func() bool {
		return count() == 3
	}) // beside the poller and the wake listener
	close(release)
	queuetest.Eventually(t, "its worker ends", func() bool { return count() == 2 })
	if len(calls) > 0 {
		t.Errorf("it was called again, with %q", <-calls)
	}
}

// TestGroupBadOptions: what cannot be meant is refused, and says why.
func TestGroupBadOptions(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	q := f.Queue(nil)
	refusesOptions(f, map[string]badOptions{
		"no key": {[]delayqueue.MsgOption{delayqueue.WithMaxParts(3)},
			[]string{"WithMaxParts(3)", "WithKey", "Append"}},
		"no part": {[]delayqueue.MsgOption{delayqueue.WithKey("k", delayqueue.Replace), delayqueue.WithMaxParts(3)},
			[]string{"WithMaxParts(3)", "Append"}},
		"too many parts": {[]delayqueue.MsgOption{ofGroup, delayqueue.WithMaxParts(1001)},
			[]string{"WithMaxParts(1001)", "from 1 to 1000"}},
		"none": {[]delayqueue.MsgOption{ofGroup, delayqueue.WithMaxParts(0)},
			[]string{"WithMaxParts(0)", "from 1 to 1000"}},
		"two policies": {[]delayqueue.MsgOption{delayqueue.WithKey("k", delayqueue.Append, delayqueue.Replace)},
			[]string{"Append and Replace"}},
		"an empty key": {[]delayqueue.MsgOption{delayqueue.WithKey("", delayqueue.Append)}, []string{"0 bytes"}},
		"a short wait": {[]delayqueue.MsgOption{ofGroup, delayqueue.WithDelay(time.Hour),
			delayqueue.WithMaxWait(time.Minute)},
			[]string{"WithMaxWait(1m0s)", "delay of 1h0m0s"}},
	})
	large := strings.Repeat("x", message.MaxGroupBytes)
	if _, err := q.Send(queuetest.CtxB, large+"x", ofGroup); !errors.Is(err, delayqueue.ErrPayloadTooLarge) ||
		face.Fate(f, err) != delayqueue.StoredNo {
		t.Errorf("a part of more than 1 MB: %v", err)
	}
	f.CheckEmpty()
	f.Send(q, large, ofGroup, face.InAnHour)
	f.Send(q, "x", ofGroup, face.InAnHour) // which has no room
	f.Send(q, "no group", delayqueue.WithKey("l"), face.InAnHour)
	if _, err := q.Send(queuetest.CtxB, "x", delayqueue.WithKey("l", delayqueue.Append)); !errors.Is(err,
		delayqueue.ErrDuplicateKey) ||
		face.Fate(f, err) != delayqueue.StoredNo {
		t.Errorf("a part of what is no group: %v", err)
	}
	if s := f.Check(); len(s.Messages) != 3 || len(s.Parts) != 0 {
		t.Errorf("%s", s.Dump())
	}
}

// TestGroupStatus: a Monitor shows how large a group is, and Get its parts.
func TestGroupStatus(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	q, m := f.Queue(nil), ops.Of(delayqueue.NewMonitor(f.Name, f.Cli))
	var id string
	for _, payload := range []string{"a", "", "ccc"} {
		id = f.Send(q, payload, ofGroup, face.InAnHour).ID
	}
	f.Send(q, "none", face.InAnHour)
	got, err := m.Get(queuetest.CtxB, id)
	f.Must(err)
	if !reflect.DeepEqual(got.Parts, []string{"a", "", "ccc"}) || got.PartCount != 3 || got.PartBytes != 4 ||
		got.Payload != "a" || got.Broken != nil {
		t.Errorf("%+v", got)
	}
	page, err := m.List(queuetest.CtxB, delayqueue.StatePending, ops.Filter{}, "")
	f.Must(err)
	for _, got := range page.Messages {
		if group := got.ID == id; got.Parts != nil || group != (got.PartCount == 3) || group != (got.PartBytes == 4) {
			t.Errorf("%+v", got)
		}
	}
	f.Must(m.Delete(queuetest.CtxB, id))
	if s := f.Check(); len(s.Parts) != 0 {
		t.Errorf("%s", s.Dump())
	}
}

// TestGroupsByKey: calls by key reach the group that takes parts, and then the one that it took the key over from.
func TestGroupsByKey(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	q, m := f.Queue(nil), ops.Of(delayqueue.NewMonitor(f.Name, f.Cli))
	begun, end := make(chan struct{}, 1), make(chan error)
	q.WithRetryDelays(time.Hour).WithHandler(func(context.Context, *delayqueue.Message) error {
		begun <- struct{}{}
		return <-end
	})
	first := f.Send(q, "a", ofGroup)
	q.StartConsume()
	queuetest.Receive(t, "the first group", begun)
	second := f.Send(q, "b", ofGroup, face.InAnHour)
	end <- queuetest.ErrBoom
	queuetest.Eventually(t, "it waits for a retry", func() bool {
		got, err := m.Get(queuetest.CtxB, first.ID)
		return err == nil && got.State == delayqueue.StateRetry
	})
	if got, err := m.GetKey(queuetest.CtxB, "k"); err != nil || got.ID != second.ID ||
		!slices.Equal(got.Earlier, []string{first.ID}) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, want := range []delayqueue.InterceptResult{{Intercepted: true, State: delayqueue.StatePending, ID: second.ID},
		{Intercepted: true, State: delayqueue.StateRetry, ID: first.ID}, {}} {
		if got, err := q.InterceptKey(queuetest.CtxB, "k"); err != nil || *got != want {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	}
	f.CheckEmpty()
}

// TestGroupRepliesLost: each part is in one group, once, and the parts of one sender are in order, although replies
// are lost.
func TestGroupRepliesLost(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	const senders, each = 6, 150
	var wg sync.WaitGroup
	var lost atomic.Int64
	for i := range senders {
		p := f.LossyPublisher(3+int64(i), &lost)
		wg.Go(func() {
			for n := range each {
				if _, err := p.Send(queuetest.CtxB, fmt.Sprint(i, " ", n), ofGroup, face.InAnHour,
					delayqueue.WithMaxParts(40)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	m := ops.Of(delayqueue.NewMonitor(f.Name, f.Cli))
	var groups [][]string
	for id := range f.Check().Messages {
		got, err := m.Get(queuetest.CtxB, id)
		f.Must(err)
		groups = append(groups, got.Parts)
	}
	if lost.Load() == 0 {
		t.Error("no reply was lost")
	}
	queuetest.PartsOnce(t, groups, senders, each)
}
