package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// TestThen: what a handler names follows the message if it is acked, with its options; after anything else nothing does.
func TestThen(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		result error
		where  string // the message is afterwards
	}{
		"ack":     {nil, "gone"},
		"failure": {errBoom, "retry"},
		"skipped": {ErrSkipRetry, "garbage"},
		"snooze":  {Snooze(time.Hour), "retry"},
		"again":   {Again(time.Hour), "retry"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			q := f.queue(nil).WithNackRedeliveryDelay(time.Hour).WithHandler(func(ctx context.Context, msg *Message) error {
				f.must(Then(ctx, "first", WithDelay(time.Hour), WithKey("k"), WithRetryCount(7), WithHeader("h", "v")))
				f.must(Then(ctx, "second", WithSchedule(time.Now().Add(2*time.Hour)), WithTimeout(time.Minute)))
				return c.result
			})
			info := f.send(q, "x", WithKey("k"))
			q.StartConsume()
			eventually(t, "it is settled", func() bool { return f.where(info.ID) == c.where })
			s := f.check()
			var payloads []string
			for _, e := range s.Pending {
				m := s.Messages[e.ID]
				payloads = append(payloads, m.Payload)
				if m.Payload == "first" && (s.Keys["k"] != e.ID || m.Retries != 7 || m.Headers["h"] != "v") ||
					m.Payload == "second" && (m.Timeout != 60e6 || m.Retries != 3) {
					t.Errorf("%+v", m)
				}
			}
			if want := map[bool]string{true: "[first second]", false: "[]"}[c.result == nil]; fmt.Sprint(payloads) != want {
				t.Errorf("followed by %v, want %s", payloads, want)
			}
		})
	}
}

// TestThenChain: a chain of messages that are due at once runs to its end without waiting for a tick; each link is told
// as sent, and counted.
func TestThenChain(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const links = 50
	var got tally
	q := f.queue(nil).WithFetchInterval(time.Minute).WithLease(5 * time.Minute).WithHandler(func(ctx context.Context, msg *Message) error {
		got.add(msg.Payload)
		n, err := strconv.Atoi(msg.Payload)
		if err != nil || n == links {
			return err
		}
		return Then(ctx, strconv.Itoa(n+1), WithKey("chain"))
	})
	sent := make(chan int, links+2)
	events := q.ListenEvent(func(e Event) {
		if e.Code == NewMessageEvent {
			sent <- e.Count
		}
	})
	defer events.Stop()
	f.send(q, "1", WithKey("chain"))
	q.StartConsume()
	eventually(t, "the last one is handled", func() bool { return got.of(strconv.Itoa(links)) > 0 })
	f.drained()
	for range links {
		if n := receive(t, "each is told", sent); n != 1 {
			t.Errorf("%d messages in one event", n)
		}
	}
	if distinct, total := got.counts(); distinct != links || total != links {
		t.Errorf("%d of %d links were handled, %d times", distinct, links, total)
	}
	f.checkEmpty()
}

// TestThenReplyLost: the settlement is repeated, and what follows is stored once.
func TestThenReplyLost(t *testing.T) {
	t.Parallel()
	f, wire, cli := wired(t)
	q := f.queueOn(cli, nil).WithHandler(func(ctx context.Context, msg *Message) error {
		if msg.Payload == "x" {
			return Then(ctx, "next", WithDelay(time.Hour))
		}
		return nil
	})
	wire.DropReply(redistest.Script(settleScript.sha))
	info := f.send(q, "x")
	q.StartConsume()
	eventually(t, "it is acked", func() bool { return f.where(info.ID) == "gone" })
	last := f.send(q, "last")
	eventually(t, "settling goes on", func() bool { return f.where(last.ID) == "gone" })
	if s := f.check(); len(s.Pending) != 1 || s.Messages[s.Pending[0].ID].Payload != "next" {
		t.Errorf("followed by %v", s.Pending)
	}
}

// TestThenOfALostDelivery: of two deliveries of a message that were both handled to the end, the one that was acked has a successor.
func TestThenOfALostDelivery(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	started, release := make(chan int, 4), make(chan struct{})
	handler := func(ctx context.Context, msg *Message) error {
		f.must(Then(ctx, fmt.Sprint("after ", msg.Delivery), WithDelay(time.Hour)))
		started <- msg.Delivery
		if msg.Delivery == 1 {
			<-release
		}
		return nil
	}
	q := f.queue(nil).WithLease(time.Minute).WithConcurrent(2).WithHandler(handler)
	info := f.send(q, "x")
	q.StartConsume()
	receive(t, "it is handled", started)
	f.must(f.cli.ZAddXX(ctxB, f.calls().keys.unack, redis.Z{Score: 1, Member: info.ID}).Err()) // its lease is over
	if n := receive(t, "it is handled again", started); n != 2 {
		t.Errorf("delivery %d", n)
	}
	eventually(t, "the second one is acked", func() bool { return f.where(info.ID) == "gone" })
	close(release)
	q.StopConsume()
	settledDown(t, q.current())
	if s := f.check(); len(s.Pending) != 1 || s.Messages[s.Pending[0].ID].Payload != "after 2" {
		t.Errorf("followed by %+v", s.Messages)
	}
}

// TestThenKeyTaken: the ack stands, the successor is not stored; the log and an event say so.
func TestThenKeyTaken(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(nil).WithHandler(func(ctx context.Context, msg *Message) error {
		return errors.Join(Then(ctx, "refused", WithKey("taken")), Then(ctx, "stored", WithKey("free"), WithDelay(time.Hour)))
	})
	refusals := make(chan Event, 1)
	events := q.ListenEvent(func(e Event) {
		if e.Code == RefusedEvent {
			refusals <- e
		}
	})
	defer events.Stop()
	holder := f.send(q, "holder", WithKey("taken"), WithDelay(time.Hour))
	info := f.send(q, "x")
	q.StartConsume()
	refused := receive(t, "it is told", refusals)
	if refused.Count != 1 || len(refused.IDs) != 1 || refused.Code.String() != "refused" {
		t.Errorf("%+v", refused)
	}
	line := f.log.line(t, "what was to follow a message is not stored")
	for _, text := range []string{"level=ERROR", info.ID, refused.IDs[0], "key=taken", holder.ID} {
		if !strings.Contains(line, text) {
			t.Errorf("%q is not in %s", text, line)
		}
	}
	if s := f.check(); s.Where(info.ID) != "gone" || len(s.Messages) != 2 || s.Keys["taken"] != holder.ID || s.Keys["free"] == "" {
		t.Errorf("%+v", s.Messages)
	}
}

// TestThenRefuses: with a bad option, another context, after the handler, and beyond its bounds it says so, and nothing
// of that is sent; what was named before still is.
func TestThenRefuses(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	type called struct {
		what string
		ctx  context.Context
	}
	ended := make(chan called, 10)
	check := func(what string, err, want error, texts ...string) {
		t.Helper()
		if !errors.Is(err, want) || strings.Count(err.Error(), "delayqueue:") != 1 {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
		for _, text := range texts {
			if !strings.Contains(fmt.Sprint(err), text) {
				t.Errorf("%s: %v; want %q in it", what, err, text)
			}
		}
	}
	var wrapped context.Context
	q := f.queue(nil).WithRetryDelays(time.Hour).
		WithErrorHandler(func(ctx context.Context, _ *Message, _ error) { ended <- called{"error handler", ctx} }).
		WithMiddleware(func(next Handler) Handler {
			return func(ctx context.Context, msg *Message) error {
				wrapped = context.WithValue(ctx, called{}, 1)
				defer func() { ended <- called{"middleware", ctx} }()
				return next(wrapped, msg)
			}
		}).
		WithHandler(func(ctx context.Context, msg *Message) error {
			ctx, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			check("bad option", Then(ctx, "x", WithTimeout(-1)), ErrBadOption, "WithTimeout")
			check("deadline", Then(ctx, "x", WithDelay(time.Hour), WithDeadline(time.Now().Add(time.Minute))),
				ErrBadOption, "WithDeadline", "WithDelay")
			check("sequence", Then(ctx, "x", WithSequence("s", 1)), ErrBadOption, "Then", "WithSequence")
			check("policy", Then(ctx, "x", WithKey("k", Keep)), ErrBadOption, "Then", "WithKey", Keep.String())
			check("nil option", Then(ctx, "x", nil), ErrBadOption)
			check("another context", Then(context.Background(), "x"), ErrNotHandling, "Then")
			check("the base context", Then(context.WithoutCancel(context.Background()), "x"), ErrNotHandling)
			if msg.Payload == "fails" {
				return errBoom
			}
			if msg.Payload == "bytes" {
				f.must(Then(ctx, strings.Repeat("x", maxFollowBytes-20), WithDelay(time.Hour)))
				check("1 MB", Then(ctx, strings.Repeat("x", 20)), ErrTooMuchFollows, "Then", "1 MB")
				return nil
			}
			var all sync.WaitGroup
			for i := range maxFollows {
				all.Go(func() { f.must(Then(ctx, strconv.Itoa(i), WithDelay(time.Hour))) })
			}
			all.Wait()
			check("101", Then(ctx, "one more"), ErrTooMuchFollows, "Then", "100")
			return nil
		})
	check("outside", Then(context.Background(), "x"), ErrNotHandling, "Then")
	many, bytes := f.send(q, "many"), f.send(q, "bytes")
	q.StartConsume()
	for _, info := range []*MessageInfo{many, bytes} {
		eventually(t, "it is acked", func() bool { return f.where(info.ID) == "gone" })
	}
	fails := f.send(q, "fails")
	eventually(t, "it fails", func() bool { return f.where(fails.ID) == "retry" })
	for range 4 {
		late := receive(t, "a context of the past", ended)
		check("late, "+late.what, Then(late.ctx, "x"), ErrNotHandling, "Then")
	}
	var payloads []int
	for _, m := range f.check().Messages {
		if n, err := strconv.Atoi(m.Payload); err == nil {
			payloads = append(payloads, n)
		}
	}
	slices.Sort(payloads)
	if len(payloads) != maxFollows || payloads[0] != 0 || payloads[maxFollows-1] != maxFollows-1 || len(f.check().Messages) != maxFollows+2 {
		t.Errorf("followed by %v", payloads)
	}
}

// TestThenInBulk: what follows many messages at once is divided among calls, none of which moves more than any other.
func TestThenInBulk(t *testing.T) {
	for name, c := range map[string]struct{ follows, bytes, fit int }{
		"none": {0, 0, 10}, "a few": {3, 10, 10}, "many": {100, 10, 4}, "long": {1, 300 << 10, 3}, "too long": {2, 1 << 20, 1},
	} {
		batch := make([]outcome, 10)
		for i := range batch {
			batch[i].d = new(delivery)
			for range c.follows {
				batch[i].follows = append(batch[i].follows, &sendMessage{text: strings.Repeat("x", c.bytes)})
			}
		}
		if n := fitting(batch); n != c.fit {
			t.Errorf("%s: %d fit, want %d", name, n, c.fit)
		}
	}
	t.Parallel()
	f := newFixture(t)
	const n = 40
	q := f.queue(nil).WithConcurrent(n).WithHandler(func(ctx context.Context, msg *Message) error {
		for i := range 90 {
			f.must(Then(ctx, fmt.Sprint(msg.Payload, ".", i), WithDelay(time.Hour)))
		}
		return nil
	})
	var batch []Outgoing
	for i := range n {
		batch = append(batch, Outgoing{Payload: strconv.Itoa(i)})
	}
	_, err := q.SendBatch(ctxB, batch)
	f.must(err)
	q.StartConsume()
	reaches(t, "messages have followed", 90*n, func() int { return len(f.check().Pending) })
	s := f.check()
	payloads := map[string]bool{}
	for _, m := range s.Messages {
		payloads[m.Payload] = true
	}
	if len(payloads) != 90*n || len(s.Messages) != 90*n {
		t.Errorf("%d payloads of %d messages", len(payloads), len(s.Messages))
	}
}

// TestThenCutOff: a handler that is cut off by its limit has no successor, whatever it returns afterwards.
func TestThenCutOff(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	late := make(chan error, 1)
	q := f.queue(nil).WithNackRedeliveryDelay(time.Hour).WithHandler(func(ctx context.Context, msg *Message) error {
		f.must(Then(ctx, "in time"))
		<-ctx.Done()
		late <- Then(ctx, "late")
		return nil
	})
	info := f.send(q, "x", WithTimeout(50*time.Millisecond))
	q.StartConsume()
	if err := receive(t, "it goes on", late); !errors.Is(err, ErrNotHandling) {
		t.Errorf("named too late: %v", err)
	}
	eventually(t, "it failed", func() bool { return f.where(info.ID) == "retry" })
	if n := len(f.check().Messages); n != 1 {
		t.Errorf("%d messages", n)
	}
}

// TestThenAfterShutdown: what a handler says that Shutdown has given up on is refused, and nothing of it is done.
func TestThenAfterShutdown(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	started, late := make(chan struct{}), make(chan error, 2)
	q := f.queue(nil).WithHandler(func(ctx context.Context, msg *Message) error {
		f.must(Then(ctx, "in time"))
		close(started)
		<-ctx.Done()
		late <- Then(ctx, "late")
		late <- SetResult(ctx, "late")
		return nil
	})
	info := f.send(q, "x", WithRetention(time.Hour))
	q.StartConsume()
	receive(t, "it handles", started)
	over, end := context.WithCancel(ctxB)
	end()
	if err := q.Shutdown(over); err == nil {
		t.Error("Shutdown with a handler at work returns nil")
	}
	for range 2 {
		if err := receive(t, "it goes on", late); !errors.Is(err, ErrNotHandling) {
			t.Errorf("said too late: %v", err)
		}
	}
	eventually(t, "it is given back", func() bool { return f.where(info.ID) == "ready" })
	if n := len(f.check().Messages); n != 1 {
		t.Errorf("%d messages", n)
	}
}

// TestThenWithKeyHold: a chain of messages of one key goes on although each keeps that taken after its ack.
func TestThenWithKeyHold(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	handled := make(chan string, 10)
	q := f.queue(nil).WithHandler(func(ctx context.Context, m *Message) error {
		handled <- m.Payload
		if m.Payload == "3" {
			return nil
		}
		return Then(ctx, string(m.Payload[0]+1), WithKey(m.Key), WithKeyHold(time.Hour))
	})
	q.StartConsume()
	f.send(q, "1", WithKey("k"), WithKeyHold(time.Hour))
	for _, want := range []string{"1", "2", "3"} {
		if got := receive(t, "delivery", handled); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	eventually(t, "the last one is acked", func() bool { return len(f.check().Messages) == 0 })
	if _, err := q.Send(ctxB, "4", WithKey("k")); !errors.Is(err, ErrDuplicateKey) {
		t.Errorf("the key of the last one: %v", err)
	}
}
