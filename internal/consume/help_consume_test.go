package consume

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/internal/shard"
	"github.com/redis/go-redis/v9"
)

// A serving is a queue that a test consumes by settings and a store. Its consumers share workers.
type serving struct {
	*queuetest.Base
	calls    *script.Store // for script calls that the test makes itself
	queue    *shard.Queue
	settings Settings
	workers  Workers
	ids      message.IdSource
	over     redis.UniversalClient // of its consumers
}

// newServing is consumed one message at a time, unless the test changes its settings before it starts.
func newServing(t testing.TB) *serving {
	f := queuetest.NewBase(t)
	store := script.NewStore(f.Cli, "dq", f.Name)
	return &serving{Base: f, calls: store, queue: shard.New(store, 1), over: f.Cli, ids: message.NewIDSource(),
		settings: Settings{
			Base: context.Background(), Workers: 1, MaxBytes: 64 << 20,
			FetchSettings: script.FetchSettings{Lease: time.Minute, MaxLosses: 3, GarbageAge: time.Hour},
			Log:           slog.New(slog.NewTextHandler(f.Log, nil)),
		}}
}

// wiredServing has its consumers behind a wire.
func wiredServing(t testing.TB) (*serving, *redistest.Wire) {
	s, wire := newServing(t), redistest.NewWire(t, queuetest.Shared.Addr())
	cli := redis.NewClient(&redis.Options{Addr: wire.Addr(), DialerRetries: 1})
	t.Cleanup(func() { _ = cli.Close() })
	s.over = cli
	return s, wire
}

// start starts a consumer, which is stopped at the end of the test.
func (s *serving) start() *Consumer {
	if !s.workers.shared {
		s.workers.Resize(s.settings.Workers)
	}
	return s.startIn(&s.workers)
}

// startIn is start, with workers that may be another's.
func (s *serving) startIn(ws *Workers) *Consumer {
	c := StartConsumer(s.queue, script.NewStore(s.over, "dq", s.Name), queuetest.Deaf{}, s.settings, ws,
		Portion{Weight: 1})
	s.T.Cleanup(func() {
		c.Stop()
		s.Must(Shutdown(queuetest.Within(s.T, queuetest.Patience), []*Consumer{c}))
		settledDown(s.T, c)
	})
	return c
}

// renewsNow lets the timer of renewals fire.
func (l *leases) renewsNow() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer.Reset(0)
}

// unknownLease is a lease that Redis does not know.
func unknownLease() *lease { return &lease{Lease: &script.Lease{Name: "nobody:1"}} }

// send sends a message that is due now, and has no retries unless rest says otherwise.
func (s *serving) send(payload string, rest ...func(*message.Envelope)) (id string) {
	s.T.Helper()
	e := message.Envelope{Payload: payload}
	for _, f := range rest {
		f(&e)
	}
	m := s.message(e)
	s.store(m)
	return m.ID
}

// backlog sends n messages without retries.
func (s *serving) backlog(n int) {
	s.T.Helper()
	for ; n > 0; n -= script.MaxBatch {
		var batch []*script.SendMessage
		for range min(n, script.MaxBatch) {
			batch = append(batch, s.message(message.Envelope{}))
		}
		s.store(batch...)
	}
}

func (s *serving) message(e message.Envelope) *script.SendMessage {
	return &script.SendMessage{ID: s.ids.Next(), Key: e.Key, Version: e.Version(), Text: e.Encode(message.When{})}
}

func (s *serving) store(batch ...*script.SendMessage) {
	s.T.Helper()
	c := script.NewCaller()
	c.Next()
	_, err := s.calls.Send(queuetest.CtxB, c, script.SendRequest{Messages: batch})
	s.Must(err)
}

// cancel takes a message back, whether a handler has it or not.
func (s *serving) cancel(id string) {
	s.T.Helper()
	c := script.NewCaller()
	c.Next()
	_, err := s.calls.Intercept(queuetest.CtxB, c, "id", id, true)
	s.Must(err)
}

// settledDown checks the counts of a consumer that has ended and whose callbacks have returned:
// what is left over there stalls those that follow.
func settledDown(t testing.TB, c *Consumer) {
	t.Helper()
	queuetest.Receive(t, "consuming ends", c.Done())
	queuetest.Eventually(t, "every count of the consumer is zero", func() bool {
		return c.member.unhandled() == 0 && c.leases.held.totals() == heldSums{} && len(c.leases.held.all()) == 0
	})
	ws := c.member.workers
	queuetest.Eventually(t, "every count of the workers is zero", func() bool {
		ws.mu.Lock()
		defer ws.mu.Unlock()
		return ws.used == 0 && len(ws.stuck) == 0 && len(ws.running) == 0 && len(ws.filled) == 0 && len(ws.hungry) == 0
	})
}
