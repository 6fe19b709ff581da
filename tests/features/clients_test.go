package features

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/redis/go-redis/v9"
)

// works sends, consumes, retries and takes back through a client, with wake-ups alone.
func works(t *testing.T, f *face.Fixture, cli redis.UniversalClient) {
	t.Helper()
	ctx := queuetest.WithTimeout(t)
	handled, ended := make(chan string, 4), make(chan error, 1)
	q := unhurried(face.NoTick(f.QueueOn(cli, nil))).WithConcurrent(2).WithNackRedeliveryDelay(20 * time.Millisecond).
		WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
			handled <- fmt.Sprint(msg.Payload, " ", msg.Failures)
			switch {
			case msg.Payload == "fails once" && msg.Failures == 0:
				return queuetest.ErrBoom
			case msg.Payload == "hangs":
				<-ctx.Done()
				ended <- context.Cause(ctx)
			}
			return nil
		})
	done := q.StartConsume()
	send := func(payload string, opts ...delayqueue.MsgOption) *delayqueue.MessageInfo {
		t.Helper()
		info, err := q.Send(ctx, payload, opts...)
		f.Must(err)
		return info
	}
	wants := func(what string) {
		t.Helper()
		if p := queuetest.Receive(t, what+" arrives before the first tick", handled); p != what {
			t.Errorf("handled %q, want %q", p, what)
		}
	}
	later := send("later", delayqueue.WithDelay(time.Hour), delayqueue.WithKey("k"))
	send("soon", delayqueue.WithDelay(30*time.Millisecond), delayqueue.WithHeader("h", "v"))
	wants("soon 0")
	send("fails once")
	wants("fails once 0")
	wants("fails once 1")
	if r, err := q.InterceptKey(ctx, "k"); err != nil || r.State != delayqueue.StatePending {
		t.Errorf("intercept by key: %+v, %v", r, err)
	}
	if r, err := q.Intercept(ctx, later.ID); err != nil || r.Intercepted {
		t.Errorf("a second time: %+v, %v", r, err)
	}
	results, err := q.SendBatch(ctx, []delayqueue.Outgoing{{Payload: "hangs"},
		{Payload: "later", Options: []delayqueue.MsgOption{delayqueue.WithDelay(time.Hour)}}})
	f.Must(err)
	wants("hangs 0")
	stop, give := context.WithCancel(ctx)
	give()
	if err := q.Shutdown(stop); err == nil {
		t.Error("Shutdown with a handler at work returns nil")
	}
	if cause := queuetest.Receive(t, "its context ends", ended); !errors.Is(cause, delayqueue.ErrShutdown) {
		t.Errorf("cause %v, want ErrShutdown", cause)
	}
	queuetest.Receive(t, "it stops", done)
	for i, want := range []delayqueue.State{delayqueue.StateReady, delayqueue.StatePending} {
		if r, err := q.TryIntercept(results[i].Info); err != nil || r.State != want {
			t.Errorf("intercept: %+v, %v; want %v", r, err, want)
		}
	}
	if n := f.Log.Count("level=ERROR") + f.Log.Count("cannot wait for wake-ups"); n != 0 {
		t.Errorf("%d complaints in the log", n)
	}
	f.CheckEmpty()
}

func TestClientOptions(t *testing.T) {
	t.Parallel()
	for name, opt := range map[string]redis.Options{
		"RESP2":                               {Protocol: 2},
		"RESP3":                               {Protocol: 3},
		"RESP2, contexts bound calls":         {Protocol: 2, ContextTimeoutEnabled: true},
		"RESP3, contexts bound calls":         {Protocol: 3, ContextTimeoutEnabled: true},
		"one connection":                      {PoolSize: 1, MaxActiveConns: 1},
		"no timeouts, no retries of its own":  {ReadTimeout: -1, WriteTimeout: -1, MaxRetries: -1},
		"another database, connections known": {DB: 1, ClientName: "delayqueue"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opt.Addr = queuetest.Shared.Addr()
			f := face.On(t, redis.NewClient(&opt))
			works(t, f, f.Cli)
		})
	}
}

// TestClientThatPretends: a client with a hook that is its server is refused, with a word for the package that is for
// tests, and nothing reaches the address in its options. A hook that looks on, or keeps commands for another reason,
// is none.
func TestClientThatPretends(t *testing.T) {
	t.Parallel()
	answers := func(err func(redis.Cmder) error) queuetest.CommandHook { // in place of a server
		return func(_ context.Context, cmd redis.Cmder, _ redis.ProcessHook) error { return err(cmd) }
	}
	unexpected := func(cmd redis.Cmder) error { return fmt.Errorf("call to cmd '%v' was not expected", cmd.Args()) }
	broken := func(redis.Cmder) error { return errors.New("circuit breaker is open") }
	var hooks atomic.Int64
	watching := queuetest.CommandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		hooks.Add(1)
		return next(ctx, cmd)
	})
	for name, c := range map[string]struct {
		hook    redis.Hook
		refused bool
	}{
		"a mock": {answers(unexpected), true}, "a stub": {answers(func(redis.Cmder) error { return nil }), true},
		"a stub without data": {answers(func(redis.Cmder) error { return redis.Nil }), true},
		"a circuit breaker":   {answers(broken), false}, "one that looks on": {watching, false},
		"one that panics": {answers(func(redis.Cmder) error { panic("no") }), false},
	} {
		var dialled atomic.Int64
		dial := func(context.Context, string, string) (net.Conn, error) { dialled.Add(1); return nil, queuetest.ErrBoom }
		one := redis.NewClient(&redis.Options{Addr: "nowhere:1", Dialer: dial})
		many := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"nowhere:1"}, Dialer: dial})
		one.AddHook(c.hook)
		many.AddHook(c.hook)
		for _, cli := range []redis.UniversalClient{one, many} {
			said := queuetest.PanicText(func() { delayqueue.NewPublisher("q", cli) })
			if refused := strings.Contains(said, "NewPublisher") &&
				strings.Contains(said, "delayqueuetest"); refused != c.refused {
				t.Errorf("%s, %T: %s", name, cli, said)
			}
			queuetest.Must(t, cli.Close())
		}
		if n := dialled.Load(); n != 0 {
			t.Errorf("%s: %d connections", name, n)
		}
	}
	if hooks.Load() == 0 {
		t.Error("the hooks have not been asked")
	}
}

// TestHooksOfAClient: hooks of a client, as for traces, do not see the calls of its queues, which go over connections
// of their own. Those of a client of the user's own type do, because it is used as it is.
func TestHooksOfAClient(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		as   func(cli *redis.Client) redis.UniversalClient
		seen bool
	}{
		"as it is":             {func(cli *redis.Client) redis.UniversalClient { return cli }, false},
		"in a type of its own": {func(cli *redis.Client) redis.UniversalClient { return wrapped{cli} }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := face.OnShared(t)
			cli := queuetest.PatientClient(queuetest.Shared.Addr())
			t.Cleanup(func() { _ = cli.Close() })
			var calls atomic.Int64
			cli.AddHook(queuetest.CommandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
				if strings.HasPrefix(cmd.Name(), "eval") {
					calls.Add(1)
				}
				return next(ctx, cmd)
			}))
			got := make(chan string, 1)
			q := f.QueueOn(c.as(cli), func(payload string) bool { got <- payload; return true })
			q.StartConsume()
			f.Send(q, "x")
			queuetest.Receive(t, "it is handled", got)
			if n := calls.Load(); (n > 0) != c.seen {
				t.Errorf("the hook has seen %d calls", n)
			}
		})
	}
}

// wrapped is a client of the user's own type.
type wrapped struct{ redis.UniversalClient }

// TestRing: a ring would strand accepted messages on the wrong server.
func TestRing(t *testing.T) {
	t.Parallel()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": queuetest.Shared.Addr()}})
	defer ring.Close()
	for name, make := range map[string]func(){
		"NewQueue":               func() { delayqueue.NewQueue("q", ring, nil) },
		"NewPublisher":           func() { delayqueue.NewPublisher("q", ring) },
		"NewMonitor":             func() { delayqueue.NewMonitor("q", ring) },
		"in a wrapper, NewQueue": func() { delayqueue.NewQueue("q", struct{ *redis.Ring }{ring}, nil) },
		"deeper, NewPublisher":   func() { delayqueue.NewPublisher("q", &struct{ wrapped }{wrapped{ring}}) },
	} {
		_, call, wrapped := strings.Cut(name, ", ")
		if !wrapped {
			call = name
		}
		if text := queuetest.PanicText(make); !strings.Contains(text, call) ||
			!strings.Contains(text, "use one server, Sentinel or a Cluster") {
			t.Errorf("%s panics with %q", name, text)
		}
	}
	for _, err := range ops.Queues(context.Background(), ring) {
		if !errors.Is(err, link.ErrRing) {
			t.Errorf("Queues: %v", err)
		}
	}
}
