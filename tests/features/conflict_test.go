package features

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/journal"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/go-delayqueue/delayqueue/ops"
)

// TestConflictEvents: a message that is made due at another time is told of as such, and nothing is told of what is
// kept.
func TestConflictEvents(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	q := f.Queue(nil)
	heard := make(chan delayqueue.Event, 100)
	sub := q.ListenEvent(func(e delayqueue.Event) { heard <- e })
	defer sub.Stop()
	var id string
	for _, send := range []struct {
		on   delayqueue.Conflict
		opts []delayqueue.MsgOption
		code delayqueue.EventCode // 0: nothing
	}{
		{delayqueue.Keep, []delayqueue.MsgOption{face.InAnHour}, delayqueue.NewMessageEvent}, {delayqueue.Keep, nil, 0},
		{delayqueue.Replace, nil, 0},
		{delayqueue.Replace, []delayqueue.MsgOption{face.InAnHour}, delayqueue.RescheduledEvent},
		{delayqueue.Reschedule, []delayqueue.MsgOption{face.InAnHour}, delayqueue.RescheduledEvent},
		{delayqueue.Replace, []delayqueue.MsgOption{delayqueue.WithMaxWait(time.Minute)}, delayqueue.RescheduledEvent},
	} {
		info := f.Send(q, "x", append(send.opts, delayqueue.WithKey("k", send.on))...)
		if id = info.ID; send.code == 0 {
			continue
		}
		if e := queuetest.Receive(t, "event", heard); e.Code != send.code || e.Count != 1 || e.IDs[0] != id {
			t.Errorf("%v: %+v", send.on, e)
		}
	}
	if n := len(heard); n > 0 {
		t.Errorf("%d events more", n)
	}
}

// TestDebounce: many senders of one key, from several producers, make one delivery, of what came last.
func TestDebounce(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	handled := make(chan delayqueue.Message, 1000)
	q := f.Queue(nil).WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
		handled <- *msg
		return nil
	}).WithConcurrent(8)
	q.StartConsume()
	producers := []*delayqueue.Publisher{f.Publisher(f.Client()), f.Publisher(f.Client()), f.Publisher(f.Client())}
	var ids sync.Map
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			for n := range 20 {
				info, err := producers[i%len(producers)].Send(queuetest.CtxB, fmt.Sprint(i, n),
					delayqueue.WithKey("k", delayqueue.Replace), face.InAnHour)
				if err != nil {
					t.Error(err)
					return
				}
				ids.Store(info.ID, info.Existed)
			}
		})
	}
	wg.Wait()
	last, err := producers[0].Send(queuetest.CtxB, "last", delayqueue.WithKey("k", delayqueue.Replace),
		delayqueue.WithDelay(0))
	f.Must(err)
	if msg := queuetest.Receive(t, "delivery", handled); msg.Payload != "last" || msg.ID != last.ID {
		t.Errorf("%+v", msg)
	}
	f.Drained()
	if n := len(handled); n > 0 {
		t.Errorf("%d deliveries more", n)
	}
	ids.Range(func(id, _ any) bool {
		if id != last.ID {
			t.Errorf("another message: %v", id)
		}
		return true
	})
}

type badOptions struct {
	options []delayqueue.MsgOption
	texts   []string // of the error
}

// refusesOptions fails the test unless a message with each of these options is refused, with an error that has all
// texts.
func refusesOptions(f *face.Fixture, all map[string]badOptions) {
	f.T.Helper()
	q := f.Queue(nil)
	for name, bad := range all {
		_, err := q.Send(queuetest.CtxB, "x", bad.options...)
		var failed *delayqueue.SendError
		if !errors.Is(err, delayqueue.ErrBadOption) || face.Fate(f, err) != delayqueue.StoredNo || !errors.As(err, &failed) ||
			failed.ID != "" {
			f.T.Errorf("%s: %v", name, err)
			continue
		}
		if err := q.SendDelayMsg("x", 0, bad.options...); !errors.Is(err, delayqueue.ErrBadOption) {
			f.T.Errorf("%s: SendDelayMsg: %v", name, err)
		}
		testkit.Has(f.T, err.Error(), bad.texts...)
	}
}

// TestConflictBadOptions: what needs another option, or contradicts one, is refused with an error that names both.
func TestConflictBadOptions(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	refusesOptions(f, map[string]badOptions{
		"no key": {[]delayqueue.MsgOption{delayqueue.WithMaxWait(time.Minute)}, []string{"WithMaxWait(1m0s)", "WithKey"}},
		"nothing is put off": {[]delayqueue.MsgOption{delayqueue.WithKey("k"), delayqueue.WithMaxWait(time.Minute)},
			[]string{"WithMaxWait", "Replace, Reschedule or Append"}},
		"kept": {[]delayqueue.MsgOption{delayqueue.WithKey("k", delayqueue.Keep), delayqueue.WithMaxWait(time.Minute)},
			[]string{"WithMaxWait", "Replace, Reschedule or Append"}},
		"less than the delay": {[]delayqueue.MsgOption{delayqueue.WithKey("k", delayqueue.Replace),
			delayqueue.WithDelay(2 * time.Minute),
			delayqueue.WithMaxWait(time.Minute)},
			[]string{"WithMaxWait(1m0s)", "delay of 2m0s"}},
		"too short": {[]delayqueue.MsgOption{delayqueue.WithKey("k", delayqueue.Replace),
			delayqueue.WithMaxWait(999 * time.Microsecond)},
			[]string{"WithMaxWait", "1ms"}},
		"too long": {[]delayqueue.MsgOption{delayqueue.WithKey("k", delayqueue.Replace),
			delayqueue.WithMaxWait(message.MaxDelay + 1)},
			[]string{"WithMaxWait", message.MaxDelay.String()}},
		"two policies, no key": {[]delayqueue.MsgOption{delayqueue.WithPayloadKey(delayqueue.Keep, delayqueue.Replace)},
			[]string{"WithPayloadKey", "Keep and Replace"}},
		"a policy that is none": {[]delayqueue.MsgOption{delayqueue.WithPayloadKey(17)},
			[]string{"WithPayloadKey", "Conflict(17)"}},
		"a policy below all": {[]delayqueue.MsgOption{delayqueue.WithKey("k", -1)}, []string{"Conflict(-1) is none"}},
		"a hold without a key": {[]delayqueue.MsgOption{delayqueue.WithKeyHold(time.Hour)},
			[]string{"WithKeyHold(1h0m0s)", "WithKey or WithPayloadKey"}},
		"a short hold": {[]delayqueue.MsgOption{delayqueue.WithKey("k"),
			delayqueue.WithKeyHold(999 * time.Microsecond)}, []string{"WithKeyHold", "1ms"}},
		"a long hold": {[]delayqueue.MsgOption{delayqueue.WithKey("k"), delayqueue.WithKeyHold(365*24*time.Hour + 1)},
			[]string{"WithKeyHold", "8760h0m0s"}},
		"a negative wait": {[]delayqueue.MsgOption{delayqueue.WithKey("k"), delayqueue.WithMaxWait(-time.Second)},
			[]string{"WithMaxWait(-1s)"}},
	})
	f.CheckEmpty()
}

// TestWithPayloadKey: messages with one payload have one key.
func TestWithPayloadKey(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	q := f.Queue(nil)
	first := f.Send(q, "hello", face.InAnHour, delayqueue.WithPayloadKey())
	if first.Key != "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824" {
		t.Errorf("key %q", first.Key)
	}
	if _, err := q.Send(queuetest.CtxB, "hello", delayqueue.WithPayloadKey(),
		delayqueue.WithHeader("a", "b")); !errors.Is(err, delayqueue.ErrDuplicateKey) {
		t.Errorf("the same payload: %v", err)
	}
	if info := f.Send(q, "hello", delayqueue.WithPayloadKey(delayqueue.Keep)); !info.Existed || info.ID != first.ID {
		t.Errorf("the same payload: %+v", info)
	}
	f.Send(q, "hello!", face.InAnHour, delayqueue.WithPayloadKey())
	if info := f.Send(q, "hello", face.InAnHour, delayqueue.WithPayloadKey(), delayqueue.WithKey("k")); info.Key != "k" {
		t.Errorf("the last one wins: %+v", info)
	}
	if info := f.Send(q, "hello", face.InAnHour, delayqueue.WithKey("l"),
		delayqueue.WithPayloadKey(delayqueue.Keep)); !info.Existed || info.ID != first.ID {
		t.Errorf("the last one wins: %+v", info)
	}
}

// TestWithKeyConflict: what a send is told of the message that has its key.
func TestWithKeyConflict(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	q, m := f.Queue(nil), ops.Of(delayqueue.NewMonitor(f.Name, f.Cli))
	first := f.Send(q, "first", face.InAnHour, delayqueue.WithKey("k", delayqueue.Keep))
	if first.Existed || first.Key != "k" {
		t.Errorf("the first: %+v", first)
	}
	existed := func(what string, info *delayqueue.MessageInfo, due time.Time, payload string) {
		t.Helper()
		if !info.Existed || info.ID != first.ID || info.Key != "k" || !info.Due.Equal(due) {
			t.Errorf("%s: %+v, want %s, due %v", what, info, first.ID, due)
		}
		got, err := m.GetKey(queuetest.CtxB, "k")
		if err != nil || got.Payload != payload || !got.At.Equal(info.Due) {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
	existed("kept", f.Send(q, "x", delayqueue.WithKey("k", delayqueue.Keep)), first.Due, "first")
	replaced := f.Send(q, "second", delayqueue.WithKey("k", delayqueue.Replace), delayqueue.WithHeader("a", "b"),
		delayqueue.WithRetryCount(7))
	existed("replaced", replaced, first.Due, "second")
	if got, err := m.Get(queuetest.CtxB, first.ID); err != nil || got.Headers["a"] != "b" || got.MaxRetries != 7 {
		t.Errorf("replaced: %+v, %v", got, err)
	}
	at := time.Now().Add(2 * time.Hour).Truncate(time.Microsecond)
	existed("replaced, at an instant",
		f.Send(q, "third", delayqueue.WithSchedule(at), delayqueue.WithKey("k", delayqueue.Replace)), at, "third")
	existed("rescheduled",
		f.Send(q, "x", delayqueue.WithSchedule(at.Add(time.Minute)), delayqueue.WithKey("k", delayqueue.Reschedule)),
		at.Add(time.Minute), "third")
	f.Must(q.SendScheduleMsg("fourth", at, delayqueue.WithKey("k", delayqueue.Replace)))
	if got, err := m.GetKey(queuetest.CtxB, "k"); err != nil || got.Payload != "fourth" || !got.At.Equal(at) ||
		got.ID != first.ID {
		t.Errorf("SendScheduleMsg: %+v, %v", got, err)
	}
	if _, err := q.Send(queuetest.CtxB, "x", delayqueue.WithKey("k")); !errors.Is(err, delayqueue.ErrDuplicateKey) {
		t.Errorf("refused: %v", err)
	}
	if n := len(f.Check().Messages); n != 1 {
		t.Errorf("%d messages", n)
	}
}

// TestWithKeyHold: who sends again after the ack, within the time, is told of the message that was acked.
func TestWithKeyHold(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	var got queuetest.Tally
	q, m := f.Queue(func(payload string) bool { got.Add(payload); return true }),
		ops.Of(delayqueue.NewMonitor(f.Name, f.Cli))
	q.StartConsume()
	hook := func(payload string, on delayqueue.Conflict) (*delayqueue.MessageInfo, error) {
		return q.Send(queuetest.CtxB, payload, delayqueue.WithKey("event-1", on), delayqueue.WithKeyHold(time.Hour))
	}
	first, err := hook("first", delayqueue.Keep)
	f.Must(err)
	f.Drained()
	for range 3 {
		if info, err := hook("again", delayqueue.Keep); err != nil || !info.Existed || info.ID != first.ID ||
			!info.Due.IsZero() {
			t.Errorf("%+v, %v", info, err)
		}
	}
	for _, on := range []delayqueue.Conflict{delayqueue.Refuse, delayqueue.Replace, delayqueue.Reschedule} {
		var dup *delayqueue.DuplicateKeyError
		if _, err := hook("again", on); !errors.As(err, &dup) || dup.ID != first.ID ||
			face.Fate(f, err) != delayqueue.StoredNo ||
			!strings.Contains(err.Error(), "WithKeyHold") {
			t.Errorf("%v: %v", on, err)
		}
	}
	if _, err := m.GetKey(queuetest.CtxB, "event-1"); !errors.Is(err, delayqueue.ErrNotFound) {
		t.Errorf("get: %v", err)
	}
	if r, err := q.CancelKey(queuetest.CtxB, "event-1"); err != nil || r.State != delayqueue.StateGone {
		t.Errorf("cancel: %+v, %v", r, err)
	}
	if distinct, total := got.Counts(); distinct != 1 || total != 1 {
		t.Errorf("handled %v", got.N)
	}
}

// TestKeyHoldIsRespected: what was handled once is not handled again because somebody requeues an earlier try, or all
// of them; GetKey says why, and ReleaseKey lets it pass.
func TestKeyHoldIsRespected(t *testing.T) {
	f := face.New(t)
	opts := []delayqueue.MsgOption{delayqueue.WithKey("event-1", delayqueue.Keep), delayqueue.WithKeyHold(24 * time.Hour)}
	paid, refuses := 0, true
	q := f.Queue(nil).WithHandler(func(context.Context, *delayqueue.Message) error {
		if refuses {
			return delayqueue.ErrSkipRetry
		}
		paid++
		return nil
	})
	drain := func() {
		t.Helper()
		f.Must(queuetest.Failure(q.Drain(queuetest.CtxB)))
	}
	first, err := q.Send(queuetest.CtxB, "1", opts...)
	f.Must(err)
	drain()
	refuses = false
	second, err := q.Send(queuetest.CtxB, "1", opts...)
	if err != nil || second.Existed {
		t.Fatalf("%+v, %v", second, err)
	}
	drain()
	m := ops.Of(delayqueue.NewMonitor(f.Name, f.Cli))
	held := new(ops.KeyHeldError)
	if got, err := m.GetKey(queuetest.CtxB, "event-1"); got != nil || !errors.As(err, &held) || held.ID != second.ID ||
		time.Until(held.Until) < 23*time.Hour {
		t.Errorf("%+v, %v", got, err)
	}
	dup := new(delayqueue.DuplicateKeyError)
	if err := m.Requeue(queuetest.CtxB, first.ID); !errors.As(err, &dup) || dup.ID != second.ID || !dup.Held ||
		dup.Key != "event-1" {
		t.Errorf("requeue: %v", err)
	}
	if r, err := m.BulkRequeue(queuetest.CtxB, ops.Bulk{}); err != nil || r.Done != 0 || r.Passed[ops.PassedKey] != 1 {
		t.Errorf("requeue of all: %+v, %v", r, err)
	}
	if _, err := q.Send(queuetest.CtxB, "1", delayqueue.WithKey("event-1")); !errors.As(err, &dup) || !dup.Held {
		t.Errorf("send: %v", err)
	}
	if found, err := m.Find(queuetest.CtxB, "event-1", ops.Find{}, ""); err != nil || len(found.Matches) != 1 ||
		found.Matches[0].ID != first.ID {
		t.Errorf("find: %+v, %v", found, err)
	}
	drain()
	f.Must(m.ReleaseKey(queuetest.CtxB, "event-1"))
	if err := m.ReleaseKey(queuetest.CtxB, "event-1"); !errors.Is(err, delayqueue.ErrNotFound) {
		t.Errorf("released twice: %v", err)
	}
	if page, err := m.Journal(queuetest.CtxB, 0, ""); err != nil || page.Entries[0].Act != journal.ReleaseKey ||
		page.Entries[0].Target != "event-1" {
		t.Errorf("%+v, %v", page, err)
	}
	f.Must(m.Requeue(queuetest.CtxB, first.ID))
	if drain(); paid != 2 {
		t.Errorf("handled %d times", paid)
	}
}
