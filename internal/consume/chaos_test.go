package consume

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/redis/go-redis/v9"
)

// TestChaos: limits, short leases, interceptions and impatient shutdowns all at once.
func TestChaos(t *testing.T) {
	t.Parallel()
	s := newServing(t)
	const rounds, messages = 12, 60
	s.settings.Log, s.settings.Workers = slog.New(slog.DiscardHandler), 8
	s.settings.Lease, s.settings.Limit, s.settings.DelayAfter = 100*time.Millisecond, 40*time.Millisecond,
		always(time.Millisecond)
	s.settings.Handle = func(ctx context.Context, _ *message.Delivered) Verdict {
		if rand.IntN(2) == 0 {
			<-ctx.Done()
		} else {
			time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond)
		}
		return Verdict{}
	}
	for round := range rounds {
		c := s.start()
		var ids []string
		for range messages {
			ids = append(ids, s.send(fmt.Sprint(round), func(e *message.Envelope) { e.Retries = 2 }))
		}
		for range messages / 2 {
			s.cancel(ids[rand.IntN(messages)])
			time.Sleep(2 * time.Millisecond)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(20))*time.Millisecond)
		c.Stop()
		_ = Shutdown(ctx, []*Consumer{c})
		cancel()
		settledDown(t, c)
		s.Check()
	}
}

// connectionsOf returns a client, and fails the test if connections of it, or of a link for it, are left at the end.
func connectionsOf(t *testing.T) redis.UniversalClient {
	look, name := queuetest.Shared.Client(t), fmt.Sprintf("left-%p", t)
	cli := redis.NewClient(&redis.Options{Addr: queuetest.Shared.Addr(), ClientName: name})
	t.Cleanup(func() {
		_ = cli.Close()
		queuetest.Eventually(t, "its connections are closed", func() bool {
			list, err := look.ClientList(context.Background()).Result()
			return err == nil && !strings.Contains(list, name)
		})
	})
	return cli
}

// TestNothingIsLeft: however deliveries end, nothing counts as held afterwards, and no connection is left.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	type handler func(ctx context.Context, returns <-chan struct{}) Verdict
	runsOn := func(_ context.Context, returns <-chan struct{}) Verdict { <-returns; return Verdict{} }
	obeys := func(ctx context.Context, returns <-chan struct{}) Verdict {
		select {
		case <-ctx.Done():
		case <-returns:
		}
		return Verdict{}
	}
	fails := func(context.Context, <-chan struct{}) Verdict { return Verdict{Err: queuetest.ErrBoom} }
	limited := func(s *Settings) { s.Limit = 20 * time.Millisecond }
	rarely := func(s *Settings) { s.Lease = time.Hour } // until renewsNow
	says := func(s *serving, text string) {
		queuetest.Reaches(s.T, "the log says so", 2, func() int { return s.Log.Count(text) })
	}
	const replaced, lost = "another worker takes its place", "a delivery is not ours any more"
	givesUp := func(s *serving, c *Consumer) {
		c.Stop()
		if Shutdown(queuetest.Over(), []*Consumer{c}) == nil {
			s.T.Error("it waits for handlers")
		}
	}
	for name, c := range map[string]struct {
		handle handler
		set    func(s *Settings)
		end    func(s *serving, c *Consumer, cancel func()) // while two handlers run; cancel takes their messages back
	}{
		"acks":   {handle: func(context.Context, <-chan struct{}) Verdict { return Verdict{} }},
		"fails":  {handle: fails},
		"panics": {handle: func(context.Context, <-chan struct{}) Verdict { panic("broken") }},
		"ends its goroutine": {handle: func(context.Context, <-chan struct{}) Verdict {
			runtime.Goexit()
			return Verdict{}
		}},
		"fails, and hooks end their goroutines": {fails, func(s *Settings) {
			s.OnError = func(context.Context, *message.Delivered, error) { runtime.Goexit() }
			s.OnGarbage = func(context.Context, *message.Delivered, error) { runtime.Goexit() }
			s.DelayAfter = func(int, error, *message.Delivered) time.Duration { runtime.Goexit(); return 0 }
		}, nil},
		"runs past its limit": {runsOn, limited, func(s *serving, _ *Consumer, _ func()) { says(s, replaced) }},
		"ends its goroutine at its limit": {func(ctx context.Context, _ <-chan struct{}) Verdict {
			<-ctx.Done()
			runtime.Goexit()
			return Verdict{}
		}, limited, nil},
		"is canceled": {obeys, rarely, func(s *serving, c *Consumer, cancel func()) {
			cancel()
			c.leases.renewsNow()
			says(s, lost)
		}},
		"is canceled, and runs past its limit": {runsOn, func(s *Settings) { s.Limit, s.Lease = time.Second, time.Hour },
			func(s *serving, _ *Consumer, cancel func()) { cancel(); says(s, replaced) }},
		"is canceled, and given up": {runsOn, rarely, func(s *serving, c *Consumer, cancel func()) {
			cancel()
			c.leases.renewsNow()
			says(s, lost)
			givesUp(s, c)
		}},
		"is given up":                {runsOn, nil, func(s *serving, c *Consumer, _ func()) { givesUp(s, c) }},
		"runs beside a new consumer": {runsOn, nil, func(s *serving, c *Consumer, _ func()) { c.Stop(); s.start() }},
	} {
		for _, shared := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " ", shared), func(t *testing.T) {
				t.Parallel()
				over := connectionsOf(t)
				s, started, returns := newServing(t), make(chan struct{}, 100), make(chan struct{})
				s.over = over
				const workers = 2
				s.settings.Workers = workers
				s.workers.Resize(workers)
				if shared {
					s.workers.Share()
				}
				if c.set != nil {
					c.set(&s.settings)
				}
				s.settings.Handle = func(ctx context.Context, _ *message.Delivered) Verdict {
					started <- struct{}{}
					return c.handle(ctx, returns)
				}
				first := s.start()
				ids := []string{s.send("x"), s.send("x")}
				queuetest.Receive(t, "one handler runs", started)
				queuetest.Receive(t, "two handlers run", started)
				s.send("x")
				if c.end != nil {
					c.end(s, first, func() { s.cancel(ids[0]); s.cancel(ids[1]) })
				}
				first.Stop()
				close(returns)
				settledDown(t, first)
			})
		}
	}
}
