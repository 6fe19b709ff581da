package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestBaseContextEnds: handlers' contexts end with it and its cause; nothing more is started, and nothing fails for it.
func TestBaseContextEnds(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	base, end := context.WithCancelCause(context.Background())
	started, causes := make(chan string, 10), make(chan error, 10)
	q := f.queue(nil).WithConcurrent(2).WithBaseContext(base).
		WithHandler(func(ctx context.Context, msg *Message) error {
			started <- msg.Payload
			<-ctx.Done()
			causes <- context.Cause(ctx)
			if msg.Payload == "fails" {
				return ctx.Err()
			}
			return nil
		})
	fails, succeeds := f.send(q, "fails", WithRetryCount(0)), f.send(q, "succeeds")
	q.StartConsume()
	receive(t, "a handler runs", started)
	receive(t, "another handler runs", started)
	reason := errors.New("the user's own reason")
	end(reason)
	for range 2 {
		if cause := receive(t, "the handlers' contexts end", causes); !errors.Is(cause, reason) {
			t.Errorf("cause %v, want the base context's", cause)
		}
	}
	eventually(t, "both are settled", func() bool { return f.where(fails.ID) == "ready" && f.where(succeeds.ID) == "gone" })
	after := f.send(q, "after", WithRetryCount(0))
	seen, ticks := "", 0
	eventually(t, "it goes on looking", func() bool {
		if now := f.check().Fields["seen"]; now != seen {
			seen = now
			ticks++
		}
		return ticks == 4
	})
	if f.where(fails.ID) != "ready" || f.where(after.ID) != "pending" || len(started) > 0 {
		t.Errorf("the one that failed is in %s, the other in %s, and %d were started", f.where(fails.ID), f.where(after.ID), len(started))
	}
	got := make(chan string, 2)
	f.queue(func(payload string) bool { got <- payload; return true }).StartConsume()
	receive(t, "another consumer handles them", got)
	receive(t, "another consumer handles them", got)
}

// TestConcurrent: n handlers run at a time, and never more.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3, 16} {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			var running, most, handled atomic.Int64
			full := make(chan struct{}) // n run at a time
			q := f.queue(func(string) bool {
				now := running.Add(1)
				defer running.Add(-1)
				for seen := most.Load(); now > seen && !most.CompareAndSwap(seen, now); seen = most.Load() {
				}
				if now == int64(n) && handled.Load() == 0 {
					close(full)
				}
				select {
				case <-full:
				case <-time.After(patience):
				}
				time.Sleep(2 * time.Millisecond) // a slow handler
				handled.Add(1)
				return true
			}).WithConcurrent(n)
			messages := 20 * n
			if _, err := q.SendBatch(context.Background(), make([]Outgoing, messages)); err != nil {
				t.Fatal(err)
			}
			q.StartConsume()
			receive(t, "all workers are busy at a time", full)
			eventually(t, "all are settled", func() bool { return len(f.check().Messages) == 0 })
			if handled.Load() != int64(messages) || most.Load() != int64(n) {
				t.Errorf("handled %d, at most %d at a time; want %d and %d", handled.Load(), most.Load(), messages, n)
			}
		})
	}
}

// TestTicksWhileSomethingIsInUnack: however long the fetch interval, a consumer looks every
// third of a lease.
func TestTicksWhileSomethingIsInUnack(t *testing.T) {
	t.Parallel()
	const lease = 9 * time.Second
	t.Run("its own", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		started, release := make(chan struct{}, 10), make(chan struct{})
		q := f.queue(func(string) bool { started <- struct{}{}; <-release; return true }).WithLease(lease).WithFetchInterval(time.Hour)
		f.send(q, "slow")
		q.StartConsume()
		receive(t, "the handler runs", started)
		seen := func() time.Duration {
			us, err := strconv.ParseInt(f.check().Fields["seen"], 10, 64)
			f.must(err)
			return time.Duration(us) * time.Microsecond
		}
		shortest := time.Hour // on a busy machine some take longer
		for last, n := seen(), 0; n < 2 || shortest > lease/2 && n < 20; n++ {
			now := last
			eventually(t, "the consumer ticks", func() bool { now = seen(); return now != last })
			shortest, last = min(shortest, now-last), now
		}
		if shortest > lease/2 {
			t.Errorf("ticks are %v apart, want %v", shortest, lease/3)
		}
		close(release)
		eventually(t, "it is acked", func() bool { return len(f.check().Messages) == 0 })
	})
	t.Run("another's", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		got := make(chan *Message, 1)
		q := f.queue(nil).WithHandler(func(_ context.Context, msg *Message) error { got <- msg; return nil }).
			WithLease(lease).WithFetchInterval(time.Hour)
		f.send(q, "lost")
		dead := newCaller() // a consumer that takes it and is never heard of again
		dead.next()
		taken, err := f.calls().fetch(context.Background(), dead, fetchRequest{want: 1, settings: &fetchSettings{lease: lease, maxLosses: 3}})
		if err != nil || len(taken.tags) != 1 {
			t.Fatalf("%d taken: %v", len(taken.tags), err)
		}
		q.StartConsume()
		if msg := receive(t, "the loss is noticed", got); msg.Delivery != 2 || msg.Failures != 0 {
			t.Errorf("it comes back as %+v", msg)
		}
		eventually(t, "it is acked", func() bool { return len(f.check().Messages) == 0 })
	})
}

// TestPoisonIsTold: the third loss in a row is the garbage handler's to know, and no handler
// sees the message again.
func TestPoisonIsTold(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	type death struct {
		msg *Message
		err error
	}
	deaths, handled := make(chan death, 1), make(chan string, 1)
	const lease = 300 * time.Millisecond // of the one that dies
	q := f.queue(func(payload string) bool { handled <- payload; return true }).WithLease(3 * time.Second).
		WithGarbageHandler(func(_ context.Context, msg *Message, err error) { deaths <- death{msg, err} })
	info := f.send(q, "work", WithKey("k"), WithRetryCount(0))
	dying := newCaller() // a consumer that dies each time with the message in hand
	fetch := func(want int) fetchReply {
		t.Helper()
		dying.next()
		out, err := f.calls().fetch(context.Background(), dying, fetchRequest{want: want, settings: &fetchSettings{lease: lease, maxLosses: 3}})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for loss := 1; ; loss++ {
		eventually(t, "it is handed out", func() bool { return len(fetch(1).tags) == 1 })
		if loss == 3 {
			break // noticed by the consumer under test
		}
		eventually(t, "it is lost", func() bool { fetch(0); return f.where(info.ID) == "retry" })
	}
	q.StartConsume()
	d := receive(t, "its death is told", deaths)
	if !errors.Is(d.err, ErrPoison) {
		t.Errorf("died of %v, want ErrPoison", d.err)
	}
	if d.msg.ID != info.ID || d.msg.Key != "k" || d.msg.Payload != "work" || d.msg.Delivery != 3 || d.msg.Failures != 0 {
		t.Errorf("died as %+v", d.msg)
	}
	if record := f.check().Fail[info.ID]; f.where(info.ID) != "garbage" || record.Losses != 3 || record.Failures != 0 {
		t.Errorf("%s with record %+v", f.where(info.ID), record)
	}
	f.send(q, "next", WithKey("k"))
	if p := receive(t, "the next message is handled", handled); p != "next" {
		t.Errorf("handled %q", p)
	}
}

// TestSettingsOfOtherConsumers: the most that one asks for holds for all, and the others say so.
func TestSettingsOfOtherConsumers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	started, release := make(chan struct{}), make(chan struct{})
	f.queue(func(string) bool { return true }).WithLease(20 * time.Second).WithMaxLosses(5).StartConsume()
	eventually(t, "the one that asks for most has looked", func() bool { return f.check().Fields["settings"] != "" })
	f.queue(func(string) bool { close(started); <-release; return true }).WithLease(300 * time.Millisecond).WithConcurrent(2).StartConsume()
	eventually(t, "the other says so", func() bool { return f.log.count("other consumers of this queue have other settings") == 1 })
	if text := f.log.String(); !strings.Contains(text, "this.lease=300ms") || !strings.Contains(text, "all.lease=20s") ||
		!strings.Contains(text, "all.max_losses=5") {
		t.Errorf("it says %s", text)
	}
	close(release)
}

// TestMaxInFlightBytes: a consumer holds no more than that, but for one message that is larger.
func TestMaxInFlightBytes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const n, size, most = 12, 10 << 10, 35 << 10
	release := make(chan struct{})
	var running, peak atomic.Int64
	q := f.queue(func(string) bool {
		now := running.Add(1)
		defer running.Add(-1)
		for seen := peak.Load(); now > seen && !peak.CompareAndSwap(seen, now); seen = peak.Load() {
		}
		<-release
		return true
	}).WithConcurrent(n).WithMaxInFlightBytes(most)
	batch := make([]Outgoing, n)
	for i := range batch {
		batch[i].Payload = strings.Repeat("x", size)
	}
	batch[0].Payload = strings.Repeat("x", 2*most)
	if _, err := f.queue(nil).SendBatch(context.Background(), batch); err != nil {
		t.Fatal(err)
	}
	q.StartConsume()
	seen, ticks := "", 0
	eventually(t, "it has looked some times", func() bool {
		state := f.check()
		if now := state.Fields["seen"]; now != seen {
			seen = now
			ticks++
		}
		if len(state.Unack) > most/size+1 {
			t.Fatalf("%d are held", len(state.Unack))
		}
		return ticks == 4 && running.Load() > 0
	})
	close(release)
	eventually(t, "all are settled", func() bool { return len(f.check().Messages) == 0 })
	eventually(t, "no byte is held", func() bool { return q.consumer.leases.held.totals().bytes == 0 }) // once the answer has come
}

// TestCallNumberThatIsNotOurs: somebody else has written a later call of this consumer into state.
func TestCallNumberThatIsNotOurs(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	got := make(chan string, 1)
	q := f.queue(func(payload string) bool { got <- payload; return true }).WithFetchInterval(50 * time.Millisecond)
	q.StartConsume()
	eventually(t, "it has called", func() bool { return f.check().Fields["seen"] != "" })
	for field := range f.check().Fields {
		if strings.HasPrefix(field, "call:") {
			f.cli.HSet(context.Background(), q.store.keys.state, field, "999999999 1700000000000000 ")
		}
	}
	eventually(t, "it says so", func() bool { return f.log.count("changed what this queue remembers") == 1 })
	for _, forged := range []string{"999999999 1700000000000000 ", "%d 1700000000000000 rubbish "} { // of the settler's next call
		if n := q.consumer.settler.caller.n + 1; strings.Contains(forged, "%d") {
			forged = fmt.Sprintf(forged, n)
		}
		f.cli.HSet(context.Background(), q.store.keys.state, "call:"+q.consumer.settler.caller.id, forged)
		f.send(f.queue(nil), "x")
		receive(t, "it goes on", got)
		eventually(t, "it is acked", func() bool { return len(f.check().Messages) == 0 && q.consumer.leases.held.totals().deliveries == 0 })
	}
}
