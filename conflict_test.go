package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestWithKeyConflict: what a send is told of the message that has its key.
func TestWithKeyConflict(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q, m := f.queue(nil), NewMonitor(f.name, f.cli)
	first := f.send(q, "first", inAnHour, WithKey("k", Keep))
	if first.Existed || first.Key != "k" {
		t.Errorf("the first: %+v", first)
	}
	existed := func(what string, info *MessageInfo, due time.Time, payload string) {
		t.Helper()
		if !info.Existed || info.ID != first.ID || info.Key != "k" || !info.Due.Equal(due) {
			t.Errorf("%s: %+v, want %s, due %v", what, info, first.ID, due)
		}
		got, err := m.GetKey(ctxB, "k")
		if err != nil || got.Payload != payload || !got.At.Equal(info.Due) {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
	existed("kept", f.send(q, "x", WithKey("k", Keep)), first.Due, "first")
	replaced := f.send(q, "second", WithKey("k", Replace), WithHeader("a", "b"), WithRetryCount(7))
	existed("replaced", replaced, first.Due, "second")
	if got, err := m.Get(ctxB, first.ID); err != nil || got.Headers["a"] != "b" || got.MaxRetries != 7 {
		t.Errorf("replaced: %+v, %v", got, err)
	}
	at := time.Now().Add(2 * time.Hour).Truncate(time.Microsecond)
	existed("replaced, at an instant", f.send(q, "third", WithSchedule(at), WithKey("k", Replace)), at, "third")
	existed("rescheduled", f.send(q, "x", WithSchedule(at.Add(time.Minute)), WithKey("k", Reschedule)), at.Add(time.Minute), "third")
	f.must(q.SendScheduleMsg("fourth", at, WithKey("k", Replace)))
	if got, err := m.GetKey(ctxB, "k"); err != nil || got.Payload != "fourth" || !got.At.Equal(at) || got.ID != first.ID {
		t.Errorf("SendScheduleMsg: %+v, %v", got, err)
	}
	if _, err := q.Send(ctxB, "x", WithKey("k")); !errors.Is(err, ErrDuplicateKey) {
		t.Errorf("refused: %v", err)
	}
	if n := len(f.check().Messages); n != 1 {
		t.Errorf("%d messages", n)
	}
}

// TestWithKeyBadConflict: what cannot be meant is refused, and says why.
func TestWithKeyBadConflict(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(nil)
	for text, option := range map[string]MsgOption{
		"Keep and Replace": WithKey("k", Keep, Replace), "Conflict(-1) is none": WithKey("k", -1), "Conflict(99) is none": WithKey("k", 99),
		"0 bytes": WithKey("", Keep),
	} {
		if _, err := q.Send(ctxB, "x", option); !errors.Is(err, ErrBadOption) || !strings.Contains(err.Error(), text) || f.fate(err) != StoredNo {
			t.Errorf("%q: %v", text, err)
		}
	}
	f.checkEmpty()
}

// TestConflictEvents: a message that is made due at another time is told of as such, and nothing is told of what is kept.
func TestConflictEvents(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(nil)
	heard := make(chan Event, 100)
	sub := q.ListenEvent(func(e Event) { heard <- e })
	defer sub.Stop()
	var id string
	for _, send := range []struct {
		on   Conflict
		opts []MsgOption
		code EventCode // 0: nothing
	}{
		{Keep, []MsgOption{inAnHour}, NewMessageEvent}, {Keep, nil, 0}, {Replace, nil, 0}, {Replace, []MsgOption{inAnHour}, RescheduledEvent},
		{Reschedule, []MsgOption{inAnHour}, RescheduledEvent}, {Replace, []MsgOption{WithMaxWait(time.Minute)}, RescheduledEvent},
	} {
		info := f.send(q, "x", append(send.opts, WithKey("k", send.on))...)
		if id = info.ID; send.code == 0 {
			continue
		}
		if e := receive(t, "event", heard); e.Code != send.code || e.Count != 1 || e.IDs[0] != id {
			t.Errorf("%v: %+v", send.on, e)
		}
	}
	if n := len(heard); n > 0 {
		t.Errorf("%d events more", n)
	}
}

// TestReplacedWhileItSaysAgain: of a job that comes again and again, and is replaced while its handler runs, the new one
// alone goes on.
func TestReplacedWhileItSaysAgain(t *testing.T) {
	t.Parallel()
	for _, on := range []Conflict{Replace, Reschedule} {
		t.Run(on.String(), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			begun, end := make(chan struct{}), make(chan struct{})
			got := make(chan Message, 1000)
			var once sync.Once
			q := f.queue(nil).WithConcurrent(4).WithHandler(func(_ context.Context, m *Message) error {
				once.Do(func() { close(begun); <-end })
				got <- *m
				return Again(20 * time.Millisecond)
			})
			ended := make(chan Event, 100)
			sub := q.ListenEvent(func(e Event) {
				if e.Code == SupersededEvent {
					ended <- e
				}
			})
			defer sub.Stop()
			old := f.send(q, "every minute", WithKey("job"))
			q.StartConsume()
			receive(t, "the first run", begun)
			renewed := f.send(q, "every hour", WithKey("job", on))
			if renewed.Existed || renewed.ID == old.ID {
				t.Errorf("%+v", renewed)
			}
			close(end)
			if e := receive(t, "the end of the first", ended); e.IDs[0] != old.ID {
				t.Errorf("superseded %v, want %s", e.IDs, old.ID)
			}
			for runs := map[string]int{}; runs[renewed.ID] < 5; {
				m := receive(t, "run", got)
				if runs[m.ID]++; m.ID == old.ID && runs[m.ID] > 1 || m.ID == renewed.ID && m.Key != "job" {
					t.Fatalf("run %d of %+v", runs[m.ID], m)
				}
			}
			if _, err := q.CancelKey(ctxB, "job"); err != nil {
				t.Error(err)
			}
			q.StopConsume()
			f.log.says(t, 1, "another send took its key", old.ID, "key=job")
		})
	}
}

// TestDebounce: many senders of one key, from several producers, make one delivery, of what came last.
func TestDebounce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	handled := make(chan Message, 1000)
	q := f.queue(nil).WithHandler(func(_ context.Context, msg *Message) error { handled <- *msg; return nil }).WithConcurrent(8)
	q.StartConsume()
	producers := []*Publisher{NewPublisher(f.name, f.client()), NewPublisher(f.name, f.client()), NewPublisher(f.name, f.client())}
	var ids sync.Map
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			for n := range 20 {
				info, err := producers[i%len(producers)].Send(ctxB, fmt.Sprint(i, n), WithKey("k", Replace), inAnHour)
				if err != nil {
					t.Error(err)
					return
				}
				ids.Store(info.ID, info.Existed)
			}
		})
	}
	wg.Wait()
	last, err := producers[0].Send(ctxB, "last", WithKey("k", Replace), WithDelay(0))
	f.must(err)
	if msg := receive(t, "delivery", handled); msg.Payload != "last" || msg.ID != last.ID {
		t.Errorf("%+v", msg)
	}
	f.drained()
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

// TestReplaceWhileItIsHandled: the handler goes on undisturbed, and the change is handled too.
func TestReplaceWhileItIsHandled(t *testing.T) {
	t.Parallel()
	for _, fails := range []bool{false, true} {
		t.Run(fmt.Sprint("fails ", fails), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			begun, end := make(chan struct{}), make(chan struct{})
			handled := make(chan Message, 10)
			q := f.queue(nil).WithHandler(func(ctx context.Context, msg *Message) error {
				if msg.Payload == "first" && msg.Delivery == 1 {
					close(begun)
					<-end
					if ctx.Err() != nil {
						t.Errorf("its context ended: %v", context.Cause(ctx))
					}
					if fails {
						return errors.New("no")
					}
				}
				handled <- *msg
				return nil
			}).WithConcurrent(2).WithRetryDelays(time.Millisecond)
			ended := make(chan Event, 100)
			sub := q.ListenEvent(func(e Event) {
				if e.Code == SupersededEvent {
					ended <- e
				}
			})
			defer sub.Stop()
			q.StartConsume()
			first := f.send(q, "first", WithKey("k"))
			receive(t, "first is handled", begun)
			second := f.send(q, "second", WithKey("k", Replace), inAnHour)
			third := f.send(q, "third", WithKey("k", Replace), WithDelay(0))
			if second.Existed || second.ID == first.ID || !third.Existed || third.ID != second.ID {
				t.Errorf("%+v, %+v", second, third)
			}
			if msg := receive(t, "the change is handled", handled); msg.Payload != "third" || msg.Key != "k" {
				t.Errorf("%+v", msg)
			}
			close(end)
			if e := receive(t, "the end of first", ended); e.Count != 1 || e.IDs[0] != first.ID {
				t.Errorf("%+v, want %s", e, first.ID)
			}
			f.drained()
			f.checkEmpty()
			if want := map[bool]int{true: 0, false: 1}[fails]; len(handled) != want {
				t.Errorf("%d more were handled, want %d", len(handled), want)
			}
		})
	}
}

// TestWithMaxWait: what is put off again and again comes all the same, when the time is over that the first send gave it.
func TestWithMaxWait(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	handled := make(chan Message, 100)
	q := f.queue(nil).WithHandler(func(_ context.Context, msg *Message) error { handled <- *msg; return nil })
	q.StartConsume()
	ended := make(chan struct{})
	const most = 500 * time.Millisecond
	first := f.send(q, "0", WithKey("k", Replace), WithDelay(most), WithMaxWait(most))
	go func() { // a stream that never stops, and that would put it off by an hour each time
		defer close(ended)
		for n := 1; ; n++ {
			info, err := q.Send(ctxB, fmt.Sprint(n), WithKey("k", Replace), WithSchedule(time.Now().Add(time.Hour)), WithMaxWait(most))
			if err != nil {
				t.Error(err)
				return
			}
			if info.ID != first.ID { // the first was handed out
				return
			}
			if !info.Due.Equal(first.Due) {
				t.Errorf("due %v, want %v", info.Due, first.Due)
			}
		}
	}()
	if msg := receive(t, "it is handled", handled); msg.ID != first.ID || !msg.Due.Equal(first.Due) {
		t.Errorf("%+v", msg)
	}
	receive(t, "the others are a message of their own", ended)
	if msg := receive(t, "that is handled too", handled); msg.ID == first.ID {
		t.Errorf("%+v", msg)
	}
	f.drained()
}

// TestConflictBadOptions: what needs another option, or contradicts one, is refused with an error that names both.
func TestConflictBadOptions(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(nil)
	for name, c := range map[string]struct {
		options []MsgOption
		texts   []string
	}{
		"no key":             {[]MsgOption{WithMaxWait(time.Minute)}, []string{"WithMaxWait(1m0s)", "WithKey"}},
		"nothing is put off": {[]MsgOption{WithKey("k"), WithMaxWait(time.Minute)}, []string{"WithMaxWait", "Replace, Reschedule or Append"}},
		"kept": {[]MsgOption{WithKey("k", Keep), WithMaxWait(time.Minute)},
			[]string{"WithMaxWait", "Replace, Reschedule or Append"}},
		"less than the delay": {[]MsgOption{WithKey("k", Replace), WithDelay(2 * time.Minute), WithMaxWait(time.Minute)},
			[]string{"WithMaxWait(1m0s)", "delay of 2m0s"}},
		"too short":             {[]MsgOption{WithKey("k", Replace), WithMaxWait(999 * time.Microsecond)}, []string{"WithMaxWait", "1ms"}},
		"without a unit":        {[]MsgOption{WithKey("k", Replace), WithMaxWait(30)}, []string{"did you mean 30*time.Second"}},
		"too long":              {[]MsgOption{WithKey("k", Replace), WithMaxWait(maxDelay + 1)}, []string{"WithMaxWait", maxDelay.String()}},
		"two policies, no key":  {[]MsgOption{WithPayloadKey(Keep, Replace)}, []string{"WithPayloadKey", "Keep and Replace"}},
		"a policy that is none": {[]MsgOption{WithPayloadKey(17)}, []string{"WithPayloadKey", "Conflict(17)"}},
		"a hold without a key":  {[]MsgOption{WithKeyHold(time.Hour)}, []string{"WithKeyHold(1h0m0s)", "WithKey or WithPayloadKey"}},
		"a short hold":          {[]MsgOption{WithKey("k"), WithKeyHold(999 * time.Microsecond)}, []string{"WithKeyHold", "1ms"}},
		"a long hold":           {[]MsgOption{WithKey("k"), WithKeyHold(maxKeyHold + 1)}, []string{"WithKeyHold", "8760h0m0s"}},
		"a hold without a unit": {[]MsgOption{WithKey("k"), WithKeyHold(3600)}, []string{"did you mean"}},
		"a negative wait":       {[]MsgOption{WithKey("k"), WithMaxWait(-time.Second)}, []string{"WithMaxWait(-1s)"}},
	} {
		_, err := q.Send(ctxB, "x", c.options...)
		if !errors.Is(err, ErrBadOption) || f.fate(err) != StoredNo {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, text := range c.texts {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v, want it to say %q", name, err, text)
			}
		}
	}
	f.checkEmpty()
}

// TestWithPayloadKey: messages with one payload have one key.
func TestWithPayloadKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(nil)
	first := f.send(q, "hello", inAnHour, WithPayloadKey())
	if first.Key != "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824" {
		t.Errorf("key %q", first.Key)
	}
	if _, err := q.Send(ctxB, "hello", WithPayloadKey(), WithHeader("a", "b")); !errors.Is(err, ErrDuplicateKey) {
		t.Errorf("the same payload: %v", err)
	}
	if info := f.send(q, "hello", WithPayloadKey(Keep)); !info.Existed || info.ID != first.ID {
		t.Errorf("the same payload: %+v", info)
	}
	f.send(q, "hello!", inAnHour, WithPayloadKey())
	if info := f.send(q, "hello", inAnHour, WithPayloadKey(), WithKey("k")); info.Key != "k" {
		t.Errorf("the last one wins: %+v", info)
	}
	if info := f.send(q, "hello", inAnHour, WithKey("l"), WithPayloadKey(Keep)); !info.Existed || info.ID != first.ID {
		t.Errorf("the last one wins: %+v", info)
	}
}

// TestWithKeyHold: who sends again after the ack, within the time, is told of the message that was acked.
func TestWithKeyHold(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var got tally
	q, m := f.queue(func(payload string) bool { got.add(payload); return true }), NewMonitor(f.name, f.cli)
	q.StartConsume()
	hook := func(payload string, on Conflict) (*MessageInfo, error) {
		return q.Send(ctxB, payload, WithKey("event-1", on), WithKeyHold(time.Hour))
	}
	first, err := hook("first", Keep)
	f.must(err)
	f.drained()
	for range 3 {
		if info, err := hook("again", Keep); err != nil || !info.Existed || info.ID != first.ID || !info.Due.IsZero() {
			t.Errorf("%+v, %v", info, err)
		}
	}
	for _, on := range []Conflict{Refuse, Replace, Reschedule} {
		var dup *DuplicateKeyError
		if _, err := hook("again", on); !errors.As(err, &dup) || dup.ID != first.ID || f.fate(err) != StoredNo ||
			!strings.Contains(err.Error(), "WithKeyHold") {
			t.Errorf("%v: %v", on, err)
		}
	}
	if _, err := m.GetKey(ctxB, "event-1"); !errors.Is(err, ErrNotFound) {
		t.Errorf("get: %v", err)
	}
	if r, err := q.CancelKey(ctxB, "event-1"); err != nil || r.State != StateGone {
		t.Errorf("cancel: %+v, %v", r, err)
	}
	if distinct, total := got.counts(); distinct != 1 || total != 1 {
		t.Errorf("handled %v", got.n)
	}
}

// TestKeyHoldEnds: the key of a message that failed for good is free at once, and that of an acked one when its time is over.
func TestKeyHoldEnds(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(func(payload string) bool { return payload != "fails" })
	q.StartConsume()
	f.send(q, "fails", WithKey("a"), WithKeyHold(time.Hour), WithRetryCount(0))
	eventually(t, "it is garbage", func() bool { return len(f.check().Garbage) == 1 })
	f.send(q, "free", inAnHour, WithKey("a"))
	f.send(q, "short", WithKey("b"), WithKeyHold(20*time.Millisecond))
	eventually(t, "the key is free", func() bool {
		_, err := q.Send(ctxB, "free", inAnHour, WithKey("b"))
		return err == nil
	})
	f.send(q, "short", WithKey("c"), WithKeyHold(time.Millisecond))
	eventually(t, "nothing is left of the holds", func() bool { s := f.check(); return len(s.Held) == 0 && len(s.Keys) == 2 })
}
