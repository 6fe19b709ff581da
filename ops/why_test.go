package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
)

// codes are those of an answer.
func (w *Why) codes() string {
	var all []string
	for _, c := range w.Causes {
		all = append(all, c.Code)
	}
	return strings.Join(all, " ")
}

// because waits until the answer has these codes.
func because(f *face.Fixture, m *Queue, id, codes string) (w *Why) {
	f.T.Helper()
	last := ""
	defer func() {
		if f.T.Failed() {
			f.T.Logf("the last answer was %s", last)
		}
	}()
	queuetest.Eventually(f.T, "the answer is "+codes, func() bool {
		var err error
		if w, err = m.Why(queuetest.CtxB, id); errors.Is(err, delayqueue.ErrNotFound) {
			last = "gone"
			return codes == last
		}
		f.Must(err)
		last = w.codes()
		return last == codes
	})
	return w
}

// A blocker is a handler that says which messages it has, and ends one when it is told.
type blocker struct {
	started chan string
	release chan error
}

func newBlocker() *blocker { return &blocker{make(chan string, 100), make(chan error)} }

func (b *blocker) handle(ctx context.Context, msg *delayqueue.Message) error {
	b.started <- msg.ID
	select {
	case err := <-b.release:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// next wants that this message is handled next, and lets it end.
func (b *blocker) next(f *face.Fixture, id string) {
	f.T.Helper()
	if got := testkit.Receive(f.T, "the message is handled", b.started); got != id {
		f.T.Errorf("%s is handled, want %s", got, id)
	}
	b.release <- nil
}

// consume starts a consumer that hands to the blocker, and says so.
func (b *blocker) consume(f *face.Fixture, m *Queue, set func(*delayqueue.DelayQueue)) {
	f.T.Helper()
	q := f.Queue(nil).WithRetryDelays(time.Hour).WithHandler(b.handle)
	if set != nil {
		set(q)
	}
	q.StartConsume()
	f.T.Cleanup(func() { close(b.release) }) // before the queue stops
	queuetest.Eventually(f.T, "the consumer is heard of", func() bool {
		alive, err := m.Consumers(queuetest.CtxB)
		return err == nil && len(alive) > 0
	})
}

// TestWhyOneAfterTheOther: each cause ends by what the answer says, and then the next is named, until the message is
// handled.
func TestWhyOneAfterTheOther(t *testing.T) {
	f, m := newQueue(t)
	m.WithOperator("ada").WithReason("a deploy")
	b := newBlocker()
	id := f.Send(f.Queue(nil), "x", face.InAnHour, delayqueue.WithKey("k"), delayqueue.WithRetention(time.Hour),
		delayqueue.WithTimeout(time.Hour)).ID
	f.Must(m.PauseFor(queuetest.CtxB, time.Minute))
	w := because(f, m, id, "instant consumer") // the pause ends before
	if c := w.Causes[0]; !c.Until.Equal(w.Message.At) || w.Now.IsZero() {
		t.Errorf("%+v", w)
	}
	f.Must(m.Pause(queuetest.CtxB))
	because(f, m, id, "instant resume consumer")
	f.Must(m.RunNow(queuetest.CtxB, id))
	w = because(f, m, id, "resume consumer")
	if c := w.Causes[0]; c.Since.IsZero() || !c.Until.IsZero() ||
		!strings.HasPrefix(w.String(), "The queue is paused since "+c.Since.UTC().Format("2006-01-02T")) ||
		!strings.Contains(w.String(), " ago) (ada: a deploy). delayqueue resume (Resume) ends the pause.\nNo consumer") {
		t.Errorf("%+v: %s", c, w)
	}
	b.consume(f, m, nil)
	because(f, m, id, "resume")
	f.Must(m.Resume(queuetest.CtxB))
	w = because(f, m, id, "handled")
	if c := w.Causes[0]; c.Consumer == "" || c.Since.IsZero() || c.Until.Sub(c.Since) != time.Hour {
		t.Errorf("%+v", c)
	}
	b.next(f, id)
	w = because(f, m, id, "done")
	if c := w.Causes[0]; !c.Until.Equal(w.Message.At) || w.Now.Sub(c.Since) < 0 || w.Now.Sub(c.Since) > 30*time.Minute {
		t.Errorf("%+v", c)
	}
	f.Must(m.Delete(queuetest.CtxB, id))
	because(f, m, id, "gone")
}

// TestWhyHung: a handler that hangs is named as one that has the message, after its lease was renewed, too. Until its
// consumer has reported that, the answer does not say that no consumer is known to have the message.
func TestWhyHung(t *testing.T) {
	f, m := newQueue(t)
	hung := make(chan struct{})
	q := f.Queue(nil).WithLease(time.Second).WithHandler(func(context.Context, *delayqueue.Message) error {
		<-hung
		return nil
	})
	id := f.Send(f.Queue(nil), "x").ID
	q.StartConsume()
	t.Cleanup(func() { close(hung) })
	queuetest.Eventually(t, "the lease was renewed twice", func() bool {
		w, err := m.Why(queuetest.CtxB, id)
		f.Must(err)
		c := w.Causes[0]
		if said := w.String(); c.Code == "lease" && !strings.Contains(said, "A consumer has fetched it") &&
			!strings.Contains(said, "Its lease ended") { // on a busy machine
			t.Error(said)
		}
		return c.Code == "handled" && w.Now.Sub(c.Since) > 2*time.Second
	})
}

// TestWhyFailed: a message that failed waits for its retry, and then for a person; a key that is held says so.
func TestWhyFailed(t *testing.T) {
	f, m := newQueue(t)
	b := newBlocker()
	b.consume(f, m, nil)
	id := f.Send(f.Queue(nil), "x", delayqueue.WithRetryCount(1), delayqueue.WithKey("k"),
		delayqueue.WithKeyHold(time.Hour)).ID
	testkit.Receive(t, "the first delivery", b.started)
	b.release <- queuetest.ErrBoom
	w := because(f, m, id, "retry")
	if c := w.Causes[0]; !c.Until.Equal(w.Message.At) || c.Since.IsZero() ||
		!strings.Contains(w.String(), "It waits for delivery 2 until ") ||
		!strings.Contains(w.String(), queuetest.ErrBoom.Error()) {
		t.Errorf("%+v: %s", c, w)
	}
	f.Must(m.RunNow(queuetest.CtxB, id))
	testkit.Receive(t, "the second delivery", b.started)
	b.release <- queuetest.ErrBoom
	w = because(f, m, id, "garbage")
	if c := w.Causes[0]; !c.Since.Equal(w.Message.At) || !strings.Contains(w.String(), queuetest.ErrBoom.Error()) {
		t.Errorf("%+v", c)
	}
	f.Must(m.Requeue(queuetest.CtxB, id))
	b.next(f, id)
	because(f, m, id, "gone")
	held := new(KeyHeldError)
	if _, err := m.WhyKey(queuetest.CtxB, "k"); !errors.As(err, &held) || held.ID != id {
		t.Errorf("a key that is held: %v", err)
	}
}

// TestWhyCountdown: a message waits for acks of others, and comes when they have counted.
func TestWhyCountdown(t *testing.T) {
	f, m := newQueue(t)
	b := newBlocker()
	b.consume(f, m, nil)
	id := f.Send(f.Queue(nil), "x", face.InAnHour, delayqueue.WithKey("k"), delayqueue.WithCountdown(1)).ID
	w, err := m.WhyKey(queuetest.CtxB, "k")
	f.Must(err)
	if w.codes() != "acks" || !w.Causes[0].Until.Equal(w.Message.At) ||
		!strings.Contains(w.String(), "(1 of 1 are missing)") {
		t.Errorf("%+v: %s", w, w)
	}
	b.next(f, f.Send(f.Queue(nil), "x", delayqueue.WithCounts("k")).ID)
	b.next(f, id)
}

// TestWhyCountdownOfTheDead: an answer names the messages whose acks cannot come, and no others.
func TestWhyCountdownOfTheDead(t *testing.T) {
	f, m := newQueue(t)
	b := newBlocker()
	b.consume(f, m, nil)
	var ids []string
	die := func(counts string, opts ...delayqueue.MsgOption) {
		t.Helper()
		id := f.Send(f.Queue(nil), "x", append(opts, delayqueue.WithCounts(counts), delayqueue.WithRetryCount(0))...).ID
		testkit.Receive(t, "the delivery", b.started)
		b.release <- queuetest.ErrBoom
		because(f, m, id, "garbage")
		ids = append(ids, id)
	}
	die("k") // for an earlier message with the key
	id := f.Send(f.Queue(nil), "x", face.InAnHour, delayqueue.WithKey("k"), delayqueue.WithCountdown(5)).ID
	die("other")
	die("k")
	die("k", delayqueue.WithKey("row-2"))
	die("k")
	die("k", delayqueue.WithKey("row-4"))
	w := because(f, m, id, "acks")
	c := w.Causes[0]
	if want := []string{ids[5], ids[4], ids[3]}; !slices.Equal(c.Dead, want) || c.Message != want[0] ||
		!strings.Contains(w.String(), "count for it: 4; the last of them: row-4, "+ids[4]+", row-2. delayqueue requeue") {
		t.Errorf("%+v, want %v: %s", c, want, w)
	}
}

// TestWhyThrottled: a message waits for the end of a Throttle, and the one that was refused for its next delivery.
func TestWhyThrottled(t *testing.T) {
	f, m := newQueue(t)
	b := newBlocker()
	b.consume(f, m, func(q *delayqueue.DelayQueue) { q.WithConcurrent(100) })
	first := f.Send(f.Queue(nil), "x").ID
	testkit.Receive(t, "the first delivery", b.started)
	b.release <- delayqueue.Throttle(time.Hour, queuetest.ErrBoom)
	queuetest.Eventually(t, "it is throttled", func() bool {
		c, err := m.Counts(queuetest.CtxB)
		return err == nil && !c.ThrottledUntil.IsZero()
	})
	because(f, m, first, "retry")
	shardOf := func(id string) *script.Store {
		s, err := m.store.By(queuetest.CtxB, "id", id)
		f.Must(err)
		return s
	}
	other := f.Send(f.Queue(nil), "x").ID
	for shardOf(other) != shardOf(first) { // the others go on
		other = f.Send(f.Queue(nil), "x").ID
	}
	w := because(f, m, other, "throttle")
	if c := w.Causes[0]; c.Until.Sub(w.Now) < 50*time.Minute {
		t.Errorf("%+v", c)
	}
	if _, err := m.Unthrottle(queuetest.CtxB); err != nil {
		t.Error(err)
	}
	because(f, m, other, "handled")
}

// crowd sends one message more than the queue has shards, so that a limit of 1 in each holds one up, and returns it.
func crowd(f *face.Fixture, m *Queue, code string) *Why {
	f.T.Helper()
	var ids []string
	for range max(queuetest.Shards(), 1) + 1 {
		ids = append(ids, f.Send(f.Queue(nil), "x").ID)
	}
	var held *Why
	queuetest.Eventually(f.T, "one waits for its "+code, func() bool {
		for _, id := range ids {
			if w, err := m.Why(queuetest.CtxB, id); err == nil && w.Causes[0].Code == code &&
				(w.Causes[0].Message != "" || code == "rate") {
				held = w
			}
		}
		return held != nil
	})
	return held
}

// TestWhyLimits: a message waits for a place, for the rate or for a worker, and comes when there is one.
func TestWhyLimits(t *testing.T) {
	t.Run("concurrency", func(t *testing.T) {
		f, m := newQueue(t)
		b := newBlocker()
		b.consume(f, m, func(q *delayqueue.DelayQueue) { q.WithQueueConcurrency(1).WithConcurrent(20) })
		w := crowd(f, m, "concurrency")
		if c := w.Causes[0]; c.Consumer == "" || c.Since.IsZero() || !c.Until.IsZero() {
			t.Errorf("%+v", c)
		}
		f.Must(failure(m.SetLimits(queuetest.CtxB, Limits{Concurrency: 30})))
		because(f, m, w.Message.ID, "handled")
	})
	t.Run("rate", func(t *testing.T) {
		f, m := newQueue(t)
		b := newBlocker()
		b.consume(f, m, func(q *delayqueue.DelayQueue) { q.WithRateLimit(1, time.Hour, 1).WithConcurrent(20) })
		w := crowd(f, m, "rate")
		if c := w.Causes[0]; c.Until.Sub(w.Now) < time.Minute || !strings.Contains(w.String(), "1 in 1h0m0s, burst ") {
			t.Errorf("%+v: %s", c, w)
		}
		f.Must(failure(m.SetLimits(queuetest.CtxB, Limits{Rate: 1000, Per: time.Second, Burst: 1000})))
		because(f, m, w.Message.ID, "handled")
	})
	t.Run("worker", func(t *testing.T) {
		f, m := newQueue(t)
		b := newBlocker()
		b.consume(f, m, nil)
		first := f.Send(f.Queue(nil), "x").ID
		because(f, m, first, "handled")
		second := f.Send(f.Queue(nil), "x").ID
		if c := because(f, m, second, "worker").Causes[0]; c.Message != first || c.Consumer == "" || c.Since.IsZero() {
			t.Errorf("%+v", c)
		}
		b.next(f, first)
		b.next(f, second)
	})
}

func failure[T any](_ T, err error) error { return err }

// TestWhyLane: a message waits for the one in front, whatever that waits for, and comes when that is skipped or ends.
func TestWhyLane(t *testing.T) {
	f, m := newQueue(t)
	b := newBlocker()
	var ids [4]string
	for i := range ids {
		ids[i] = f.Send(f.Queue(nil), "x", delayqueue.WithLane("l"), delayqueue.WithHeader("customer", "42"),
			delayqueue.WithRetryCount(3), delayqueue.WithKey(fmt.Sprint("key-", i))).ID
	}
	later := f.Send(f.Queue(nil), "x", delayqueue.WithLane("l"), face.InAnHour).ID
	front := func(id, codes, front string) Cause {
		t.Helper()
		w := because(f, m, id, codes)
		for _, c := range w.Causes {
			since := w.Message.At
			if since.After(w.Now) {
				since = time.Time{} // not yet
			}
			if c.Code == "lane" && c.Message == front && c.Since.Equal(since) {
				return c
			}
		}
		t.Fatalf("%s: %s", w.codes(), w)
		return Cause{}
	}
	f.Must(m.Pause(queuetest.CtxB))
	front(ids[1], "resume consumer lane", ids[0])
	front(later, "instant resume consumer lane lane", ids[0])
	b.consume(f, m, nil)
	f.Must(m.Resume(queuetest.CtxB))
	queuetest.Eventually(t, "the first is handled", func() bool {
		w, err := m.Why(queuetest.CtxB, ids[1])
		f.Must(err)
		c := w.Causes[0]
		return c.Code == "lane" && c.Consumer != "" && c.Message == ids[0]
	})
	testkit.Receive(t, "the first", b.started)
	b.release <- fmt.Errorf("%w: %s", queuetest.ErrBoom, strings.Repeat("é", 300))
	because(f, m, ids[0], "retry")
	c := front(ids[1], "lane", ids[0])
	if text := because(f, m, ids[3], "lane lane").String(); !strings.Contains(text, "before it in lane l: 2.") {
		t.Errorf("of the fourth of the lane: %s", text)
	}
	behind := fmt.Sprintf("In lane l message key-0 (%s) is in front. It has failed 1 of at most 4 times, the last time "+
		"with: %v: é", ids[0], queuetest.ErrBoom)
	next := "é…. Its next try is delivery 2 at " + instantText(c.Until)
	if at := statusInQueue(f, m, ids[0]).At; !c.Until.Equal(at) {
		t.Errorf("until %v, want %v", c.Until, at)
	}
	w, err := m.WhyLane(queuetest.CtxB, "l")
	f.Must(err)
	if got := w.Causes[0]; w.codes() != "lane" || got.Message != ids[0] || !got.Until.Equal(c.Until) || w.Message != nil ||
		!strings.HasPrefix(w.String(), behind) || !strings.Contains(w.String(), next) {
		t.Errorf("of the lane: %s, want %s … %s", w, behind, next)
	}
	groups, left, err := m.WhyAll(queuetest.CtxB, Filter{Headers: map[string]string{"customer": "42"}}, 0)
	f.Must(err)
	got := ""
	for _, g := range groups {
		got += fmt.Sprintf("%s %d %s; ", g.Code, g.Count, g.Example.Causes[0].Message)
	}
	if want := fmt.Sprintf("lane 3 %s; retry 1 ; ", ids[0]); got != want || left != 0 {
		t.Errorf("of the customer: %s, %d left, want %s", got, left, want)
	}
	if _, left, err := m.WhyAll(queuetest.CtxB, Filter{}, 1); err != nil || left != 4 {
		t.Errorf("a look at one: %d left, %v", left, err)
	}
	f.Must(m.SkipToGarbage(queuetest.CtxB, ids[0]))
	for _, id := range ids[1:] {
		b.next(f, id)
	}
	because(f, m, later, "instant")
}

// TestWhyLease: a message whose consumer is gone waits for the end of its lease, and for a consumer.
func TestWhyLease(t *testing.T) {
	f, m := newQueue(t)
	id := f.Send(f.Queue(nil), "x").ID
	f.Lost(id, time.Second)
	w := because(f, m, id, "lease consumer")
	if c := w.Causes[0]; !c.Until.Equal(w.Message.At) || c.Until.IsZero() {
		t.Errorf("%+v", c)
	}
	b := newBlocker()
	b.consume(f, m, nil)
	b.next(f, id)
}
