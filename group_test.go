package delayqueue

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
)

var ofGroup = WithKey("k", Append)

// TestGroup: the handler gets all parts, in the order of the sends, with the options of the first.
func TestGroup(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	handled := make(chan *Message, 10)
	q := f.queue(nil).WithHandler(func(_ context.Context, msg *Message) error { handled <- msg; return nil })
	batch := []Outgoing{{Payload: "0", Options: []MsgOption{ofGroup, inAnHour, WithHeader("h", "first")}}}
	for i := range 249 { // more than one call takes
		batch = append(batch, Outgoing{Payload: fmt.Sprint(i + 1), Options: []MsgOption{ofGroup, WithHeader("h", "other"), WithRetryCount(9)}})
	}
	results, err := q.SendBatch(ctxB, batch)
	f.must(err)
	var want []string
	for i, r := range results {
		want = append(want, fmt.Sprint(i))
		if r.Info.ID != results[0].Info.ID || r.Info.Existed != (i > 0) {
			t.Fatalf("part %d: %+v", i, r.Info)
		}
	}
	if e, err := q.Send(ctxB, "last", ofGroup, WithMaxParts(251), inAnHour); err != nil || e.ID != results[0].Info.ID ||
		e.Due.After(time.Now().Add(time.Minute)) {
		t.Errorf("%+v, %v, want it to be full and due", e, err)
	}
	q.StartConsume()
	msg := receive(t, "delivery", handled)
	if !reflect.DeepEqual(msg.Parts, append(want, "last")) || msg.Payload != "0" || msg.Key != "k" ||
		msg.Headers["h"] != "first" || msg.MaxRetries != 3 {
		t.Errorf("%+v", msg)
	}
	f.drained()
	f.send(q, "alone", ofGroup)
	if msg := receive(t, "delivery", handled); !reflect.DeepEqual(msg.Parts, []string{"alone"}) {
		t.Errorf("%+v", msg)
	}
	f.send(q, "no group")
	if msg := receive(t, "delivery", handled); msg.Parts != nil {
		t.Errorf("%+v", msg)
	}
	f.drained()
	f.checkEmpty()
}

// TestGroupCallback: a bare callback gets each part, and all again if it does not consume one, also with what makes a
// handler of it.
func TestGroupCallback(t *testing.T) {
	t.Parallel()
	pass := func(next Handler) Handler { return next }
	for name, with := range map[string]func(*DelayQueue){
		"alone":             func(*DelayQueue) {},
		"with a limit":      func(q *DelayQueue) { q.WithMaxConsumeDuration(time.Hour) },
		"with a middleware": func(q *DelayQueue) { q.WithMiddleware(pass) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			calls := make(chan string, 100)
			var refused atomic.Bool
			q := f.queue(func(payload string) bool {
				calls <- payload
				return payload != "b" || refused.Swap(true)
			}).WithRetryDelays(time.Millisecond)
			with(q)
			for _, payload := range []string{"a", "b", "c"} {
				f.send(q, payload, ofGroup, inAnHour)
			}
			f.send(q, "d", ofGroup, WithDelay(0))
			q.StartConsume()
			f.drained()
			close(calls)
			var got []string
			for payload := range calls {
				got = append(got, payload)
			}
			if want := strings.Fields("a b c d a b c d"); !slices.Equal(got, want) {
				t.Errorf("calls %q, want %q", got, want)
			}
			f.checkEmpty()
		})
	}
}

// TestGroupCallbackPastItsLimit: a bare callback that ran past its limit with one part gets no more of them in that delivery.
func TestGroupCallbackPastItsLimit(t *testing.T) {
	t.Parallel()
	const limit = 50 * time.Millisecond
	t.Run("queue's", func(t *testing.T) {
		t.Parallel()
		callbackPastItsLimit(t, func(q *DelayQueue) { q.WithMaxConsumeDuration(limit) }, WithRetryCount(3))
	})
	t.Run("message's", func(t *testing.T) {
		t.Parallel()
		callbackPastItsLimit(t, func(*DelayQueue) {}, WithTimeout(limit))
	})
}

func callbackPastItsLimit(t *testing.T, limited func(*DelayQueue), own MsgOption) {
	f := newFixture(t)
	calls, release := make(chan string, 100), make(chan struct{})
	q := f.queue(func(payload string) bool {
		calls <- payload
		<-release
		return true
	}).WithNackRedeliveryDelay(time.Hour)
	limited(q)
	f.send(q, "a", ofGroup, inAnHour, own)
	info := f.send(q, "b", ofGroup, WithDelay(0))
	q.StartConsume()
	receive(t, "the first part", calls)
	eventually(t, "the delivery has failed", func() bool { return f.where(info.ID) == "retry" })
	stuck := func() int {
		q.workers.mu.Lock()
		defer q.workers.mu.Unlock()
		return q.workers.stuck[0]
	}
	eventually(t, "the callback runs on", func() bool { return stuck() == 1 })
	close(release)
	eventually(t, "its worker ends", func() bool { return stuck() == 0 })
	if len(calls) > 0 {
		t.Errorf("it was called again, with %q", <-calls)
	}
}

// TestGroupBadOptions: what cannot be meant is refused, and says why.
func TestGroupBadOptions(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(nil)
	for name, c := range map[string]struct {
		options []MsgOption
		texts   []string
	}{
		"no key":         {[]MsgOption{WithMaxParts(3)}, []string{"WithMaxParts(3)", "WithKey", "Append"}},
		"no part":        {[]MsgOption{WithKey("k", Replace), WithMaxParts(3)}, []string{"WithMaxParts(3)", "Append"}},
		"one part":       {[]MsgOption{ofGroup, WithMaxParts(1)}, []string{"WithMaxParts(1)", "from 2 to 1000"}},
		"too many parts": {[]MsgOption{ofGroup, WithMaxParts(1001)}, []string{"WithMaxParts(1001)", "from 2 to 1000"}},
		"less than none": {[]MsgOption{ofGroup, WithMaxParts(-1)}, []string{"WithMaxParts(-1)"}},
		"two policies":   {[]MsgOption{WithKey("k", Append, Replace)}, []string{"Append and Replace"}},
		"an empty key":   {[]MsgOption{WithKey("", Append)}, []string{"0 bytes"}},
		"a short wait": {[]MsgOption{ofGroup, WithDelay(time.Hour), WithMaxWait(time.Minute)},
			[]string{"WithMaxWait(1m0s)", "delay of 1h0m0s"}},
	} {
		_, err := q.Send(ctxB, "x", c.options...)
		if !errors.Is(err, ErrBadOption) || f.fate(err) != StoredNo {
			t.Errorf("%s: %v", name, err)
		}
		for _, text := range c.texts {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v, want it to say %q", name, err, text)
			}
		}
	}
	large := strings.Repeat("x", maxGroupBytes)
	if _, err := q.Send(ctxB, large+"x", ofGroup); !errors.Is(err, ErrPayloadTooLarge) || f.fate(err) != StoredNo {
		t.Errorf("a part of more than 1 MB: %v", err)
	}
	if err := Then(&handling{Context: ctxB, producer: &q.producer}, "x", ofGroup); !errors.Is(err, ErrBadOption) ||
		!strings.Contains(err.Error(), "Append") {
		t.Errorf("Then: %v", err)
	}
	f.checkEmpty()
	f.send(q, large, ofGroup, inAnHour)
	f.send(q, "x", ofGroup, inAnHour) // which has no room
	f.send(q, "no group", WithKey("l"), inAnHour)
	if _, err := q.Send(ctxB, "x", WithKey("l", Append)); !errors.Is(err, ErrDuplicateKey) || f.fate(err) != StoredNo {
		t.Errorf("a part of what is no group: %v", err)
	}
	if s := f.check(); len(s.Messages) != 3 || len(s.Parts) != 0 {
		t.Errorf("%s", s.Dump())
	}
}

// TestGroupStatus: a Monitor shows how large a group is, and Get its parts.
func TestGroupStatus(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q, m := f.queue(nil), NewMonitor(f.name, f.cli)
	var id string
	for _, payload := range []string{"a", "", "ccc"} {
		id = f.send(q, payload, ofGroup, inAnHour).ID
	}
	f.send(q, "none", inAnHour)
	got, err := m.Get(ctxB, id)
	f.must(err)
	if !reflect.DeepEqual(got.Parts, []string{"a", "", "ccc"}) || got.PartCount != 3 || got.PartBytes != 4 ||
		got.Payload != "a" || got.Broken != nil {
		t.Errorf("%+v", got)
	}
	page, err := m.List(ctxB, StatePending, Filter{}, "")
	f.must(err)
	for _, got := range page.Messages {
		if group := got.ID == id; got.Parts != nil || group != (got.PartCount == 3) || group != (got.PartBytes == 4) {
			t.Errorf("%+v", got)
		}
	}
	f.must(m.Delete(ctxB, id))
	if s := f.check(); len(s.Parts) != 0 {
		t.Errorf("%s", s.Dump())
	}
}

// TestGroupsByKey: calls by key reach the group that takes parts, and then the one that it took the key over from.
func TestGroupsByKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q, m := f.queue(nil), NewMonitor(f.name, f.cli)
	begun, end := make(chan struct{}, 1), make(chan error)
	q.WithRetryDelays(time.Hour).WithHandler(func(context.Context, *Message) error {
		begun <- struct{}{}
		return <-end
	})
	first := f.send(q, "a", ofGroup)
	q.StartConsume()
	receive(t, "the first group", begun)
	second := f.send(q, "b", ofGroup, inAnHour)
	end <- errBoom
	eventually(t, "it waits for a retry", func() bool {
		got, err := m.Get(ctxB, first.ID)
		return err == nil && got.State == StateRetry
	})
	if got, err := m.GetKey(ctxB, "k"); err != nil || got.ID != second.ID || !slices.Equal(got.Earlier, []string{first.ID}) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, want := range []InterceptResult{{true, StatePending, second.ID}, {true, StateRetry, first.ID}, {}} {
		if got, err := q.InterceptKey(ctxB, "k"); err != nil || *got != want {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	}
	f.checkEmpty()
}

// TestGroupRepliesLost: each part is in one group, once, and the parts of one sender are in order, although replies are lost.
func TestGroupRepliesLost(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const senders, each = 6, 150
	var wg sync.WaitGroup
	var lost atomic.Int64
	for i := range senders {
		cli := f.client()
		loseReplies(t, cli, 3+int64(i), &lost)
		p := NewPublisher(f.name, cli)
		wg.Go(func() {
			for n := range each {
				if _, err := p.Send(ctxB, fmt.Sprint(i, " ", n), ofGroup, inAnHour, WithMaxParts(40)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	m := NewMonitor(f.name, f.cli)
	var groups [][]string
	for id := range f.check().Messages {
		got, err := m.Get(ctxB, id)
		f.must(err)
		groups = append(groups, got.Parts)
	}
	if lost.Load() == 0 {
		t.Error("no reply was lost")
	}
	partsOnce(t, groups, senders, each)
}

// partsOnce wants the parts `<sender> <n>` of so many senders to be in groups, each once, and those of one sender that are in one
// group in a row.
func partsOnce(t *testing.T, groups [][]string, senders, each int) {
	t.Helper()
	seen := map[string]int{}
	for _, parts := range groups {
		last := map[int]int{}
		for _, part := range parts {
			var sender, n int
			if _, err := fmt.Sscan(part, &sender, &n); err != nil {
				t.Fatalf("part %q: %v", part, err)
			}
			if before, some := last[sender]; some && n != before+1 {
				t.Errorf("sender %d: part %d follows part %d in a group", sender, n, before)
			}
			last[sender] = n
			seen[part]++
		}
	}
	for sender := range senders {
		for n := range each {
			if times := seen[fmt.Sprint(sender, " ", n)]; times != 1 {
				t.Errorf("part %d of sender %d is there %d times", n, sender, times)
			}
		}
	}
	if len(seen) != senders*each {
		t.Errorf("%d parts, want %d", len(seen), senders*each)
	}
}
