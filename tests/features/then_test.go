package features

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

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
)

// TestThen: what a handler names follows the message if it is acked, with its options; after anything else nothing
// does.
func TestThen(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		result error
		where  string // the message is afterwards
	}{
		"ack":     {nil, "gone"},
		"failure": {queuetest.ErrBoom, "retry"},
		"skipped": {delayqueue.ErrSkipRetry, "garbage"},
		"snooze":  {delayqueue.Snooze(time.Hour), "retry"},
		"again":   {delayqueue.Again(time.Hour), "retry"},
	} {
		t.Run(name, func(t *testing.T) {
			f := face.New(t)
			q := f.Queue(nil).WithNackRedeliveryDelay(time.Hour).WithHandler(
				func(ctx context.Context, msg *delayqueue.Message) error {
					f.Must(delayqueue.Then(ctx, "first", delayqueue.WithDelay(time.Hour), delayqueue.WithKey("k"),
						delayqueue.WithRetryCount(7),
						delayqueue.WithHeader("h", "v")))
					f.Must(delayqueue.Then(ctx, "second", delayqueue.WithSchedule(time.Now().Add(2*time.Hour)),
						delayqueue.WithTimeout(time.Minute)))
					return c.result
				})
			info := f.Send(q, "x", delayqueue.WithKey("k"))
			q.StartConsume()
			queuetest.Eventually(t, "it is settled", func() bool { return f.Where(info.ID) == c.where })
			s := f.Check()
			var payloads []string
			for _, e := range s.Pending {
				m := s.Messages[e.ID]
				payloads = append(payloads, m.Payload)
				if m.Payload == "first" && (s.Keys["k"] != e.ID || m.Retries != 7 || m.Headers["h"] != "v") ||
					m.Payload == "second" && (m.Timeout != time.Minute || m.Retries != 3) {
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
	f := face.New(t)
	const links = 50
	var got queuetest.Tally
	q := f.Queue(nil).WithFetchInterval(time.Minute).WithLease(5 * time.Minute).WithHandler(
		func(ctx context.Context, msg *delayqueue.Message) error {
			got.Add(msg.Payload)
			n, err := strconv.Atoi(msg.Payload)
			if err != nil || n == links {
				return err
			}
			return delayqueue.Then(ctx, strconv.Itoa(n+1), delayqueue.WithKey("chain"))
		})
	sent := make(chan int, links+2)
	events := q.ListenEvent(func(e delayqueue.Event) {
		if e.Code == delayqueue.NewMessageEvent {
			sent <- e.Count
		}
	})
	defer events.Stop()
	f.Send(q, "1", delayqueue.WithKey("chain"))
	q.StartConsume()
	queuetest.Eventually(t, "the last one is handled", func() bool { return got.Of(strconv.Itoa(links)) > 0 })
	f.Drained()
	for range links {
		if n := queuetest.Receive(t, "each is told", sent); n != 1 {
			t.Errorf("%d messages in one event", n)
		}
	}
	if distinct, total := got.Counts(); distinct != links || total != links {
		t.Errorf("%d of %d links were handled, %d times", distinct, links, total)
	}
	f.CheckEmpty()
}

// TestThenKeyTaken: the ack stands, the successor is not stored; the log and an event say so.
func TestThenKeyTaken(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	q := f.Queue(nil).WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
		return errors.Join(delayqueue.Then(ctx, "refused", delayqueue.WithKey("{k}taken")),
			delayqueue.Then(ctx, "stored", delayqueue.WithKey("{k}free"), delayqueue.WithDelay(time.Hour)))
	})
	refusals := make(chan delayqueue.Event, 1)
	events := q.ListenEvent(func(e delayqueue.Event) {
		if e.Code == delayqueue.RefusedEvent {
			refusals <- e
		}
	})
	defer events.Stop()
	holder := f.Send(q, "holder", delayqueue.WithKey("{k}taken"), delayqueue.WithDelay(time.Hour))
	info := f.Send(q, "x", delayqueue.WithKey("{k}x")) // whose followers lie where it does
	q.StartConsume()
	refused := queuetest.Receive(t, "it is told", refusals)
	if refused.Count != 1 || len(refused.IDs) != 1 || refused.Code.String() != "refused" {
		t.Errorf("%+v", refused)
	}
	line := f.Log.Line(t, "what was to follow a message is not stored")
	for _, text := range []string{"level=ERROR", info.ID, refused.IDs[0], "key={k}taken", holder.ID} {
		if !strings.Contains(line, text) {
			t.Errorf("%q is not in %s", text, line)
		}
	}
	if s := f.Check(); s.Where(info.ID) != "gone" || len(s.Messages) != 2 || s.Keys["{k}taken"] != holder.ID ||
		s.Keys["{k}free"] == "" {
		t.Errorf("%+v", s.Messages)
	}
}

// TestThenRefuses: with a bad option, another context, after the handler, and beyond its bounds it says so, and nothing
// of that is sent; what was named before still is.
func TestThenRefuses(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	type called struct {
		what string
		ctx  context.Context
	}
	const maxFollows = 100
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
	q := f.Queue(nil).WithRetryDelays(time.Hour).
		WithErrorHandler(func(ctx context.Context, _ *delayqueue.Message, _ error) { ended <- called{"error handler", ctx} }).
		WithMiddleware(func(next delayqueue.Handler) delayqueue.Handler {
			return func(ctx context.Context, msg *delayqueue.Message) error {
				wrapped = context.WithValue(ctx, called{}, 1)
				defer func() { ended <- called{"middleware", ctx} }()
				return next(wrapped, msg)
			}
		}).
		WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
			ctx, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			check("bad option", delayqueue.Then(ctx, "x", delayqueue.WithTimeout(-1)), delayqueue.ErrBadOption, "WithTimeout")
			check("deadline",
				delayqueue.Then(ctx, "x", delayqueue.WithDelay(time.Hour), delayqueue.WithDeadline(time.Now().Add(time.Minute))),
				delayqueue.ErrBadOption, "WithDeadline", "WithDelay")
			check("sequence", delayqueue.Then(ctx, "x", delayqueue.WithSequence("s", 1)), delayqueue.ErrBadOption, "Then",
				"WithSequence")
			check("countdown", delayqueue.Then(ctx, "x", delayqueue.WithKey("k"), delayqueue.WithCountdown(2)),
				delayqueue.ErrBadOption, "WithCountdown", "WithDelay")
			check("nil option", delayqueue.Then(ctx, "x", nil), delayqueue.ErrBadOption)
			check("another context", delayqueue.Then(context.Background(), "x"), delayqueue.ErrBadOption, "Then")
			check("the base context", delayqueue.Then(context.WithoutCancel(context.Background()), "x"), delayqueue.ErrBadOption)
			if msg.Payload == "fails" {
				return queuetest.ErrBoom
			}
			if msg.Payload == "bytes" {
				f.Must(delayqueue.Then(ctx, strings.Repeat("x", 1<<20-20), delayqueue.WithDelay(time.Hour)))
				check("1 MB", delayqueue.Then(ctx, strings.Repeat("x", 20)), delayqueue.ErrPayloadTooLarge, "Then", "1 MB")
				return nil
			}
			var all sync.WaitGroup
			for i := range maxFollows {
				all.Go(func() { f.Must(delayqueue.Then(ctx, strconv.Itoa(i), delayqueue.WithDelay(time.Hour))) })
			}
			all.Wait()
			check("101", delayqueue.Then(ctx, "one more"), delayqueue.ErrPayloadTooLarge, "Then", "100")
			return nil
		})
	check("outside", delayqueue.Then(context.Background(), "x"), delayqueue.ErrBadOption, "Then")
	many, bytes := f.Send(q, "many"), f.Send(q, "bytes")
	q.StartConsume()
	for _, info := range []*delayqueue.MessageInfo{many, bytes} {
		queuetest.Eventually(t, "it is acked", func() bool { return f.Where(info.ID) == "gone" })
	}
	fails := f.Send(q, "fails")
	queuetest.Eventually(t, "it fails", func() bool { return f.Where(fails.ID) == "retry" })
	for range 4 {
		late := queuetest.Receive(t, "a context of the past", ended)
		check("late, "+late.what, delayqueue.Then(late.ctx, "x"), delayqueue.ErrBadOption, "Then")
	}
	var payloads []int
	for _, m := range f.Check().Messages {
		if n, err := strconv.Atoi(m.Payload); err == nil {
			payloads = append(payloads, n)
		}
	}
	slices.Sort(payloads)
	if len(payloads) != maxFollows || payloads[0] != 0 || payloads[maxFollows-1] != maxFollows-1 ||
		len(f.Check().Messages) != maxFollows+2 {
		t.Errorf("followed by %v", payloads)
	}
}

// TestSaidTooLate: what a handler says past its limit, or when Shutdown has given up on it, is refused, and nothing of
// what it said before is done.
func TestSaidTooLate(t *testing.T) {
	t.Parallel()
	for where, limited := range map[string]bool{"garbage": true, "ready": false} { // the message is afterwards
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			f := face.New(t)
			started, late := make(chan struct{}), make(chan error, 2)
			q := f.Queue(nil).WithHandler(func(ctx context.Context, _ *delayqueue.Message) error {
				f.Must(errors.Join(delayqueue.SetResult(ctx, "in time"), delayqueue.Then(ctx, "in time")))
				close(started)
				<-ctx.Done()
				late <- delayqueue.SetResult(ctx, "late")
				late <- delayqueue.Then(ctx, "late")
				return nil
			})
			if limited {
				q.WithMaxConsumeDuration(100 * time.Millisecond)
			}
			info := f.Send(q, "x", delayqueue.WithRetention(time.Hour), delayqueue.WithRetryCount(0))
			q.StartConsume()
			queuetest.Receive(t, "it handles", started)
			if !limited && q.Shutdown(queuetest.Over()) == nil {
				t.Error("Shutdown with a handler at work returns nil")
			}
			for range 2 {
				if err := queuetest.Receive(t, "it goes on", late); !errors.Is(err, delayqueue.ErrBadOption) {
					t.Errorf("said too late: %v", err)
				}
			}
			queuetest.Eventually(t, "it has ended", func() bool { return f.Where(info.ID) == where })
			if s := f.Check(); len(s.Messages) != 1 || len(s.Results) != 0 {
				t.Errorf("%s", s.Dump())
			}
		})
	}
}
