package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// works sends, consumes, retries and takes back through a client, with wake-ups alone.
func works(t *testing.T, f *fixture, cli redis.UniversalClient) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*patience)
	defer cancel()
	handled, ended := make(chan string, 4), make(chan error, 1)
	q := unhurried(noTick(f.queueOn(cli, nil))).WithConcurrent(2).WithNackRedeliveryDelay(20 * time.Millisecond).
		WithHandler(func(ctx context.Context, msg *Message) error {
			handled <- fmt.Sprint(msg.Payload, " ", msg.Failures)
			switch {
			case msg.Payload == "fails once" && msg.Failures == 0:
				return errBoom
			case msg.Payload == "hangs":
				<-ctx.Done()
				ended <- context.Cause(ctx)
			}
			return nil
		})
	done := q.StartConsume()
	send := func(payload string, opts ...MsgOption) *MessageInfo {
		t.Helper()
		info, err := q.Send(ctx, payload, opts...)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	wants := func(what string) {
		t.Helper()
		if p := receive(t, what+" arrives before the first tick", handled); p != what {
			t.Errorf("handled %q, want %q", p, what)
		}
	}
	later := send("later", WithDelay(time.Hour), WithKey("k"))
	send("soon", WithDelay(30*time.Millisecond), WithHeader("h", "v"))
	wants("soon 0")
	send("fails once")
	wants("fails once 0")
	wants("fails once 1")
	if r, err := q.InterceptKey(ctx, "k"); err != nil || r.State != StatePending {
		t.Errorf("intercept by key: %+v, %v", r, err)
	}
	if r, err := q.Intercept(ctx, later.ID); err != nil || r.Intercepted {
		t.Errorf("a second time: %+v, %v", r, err)
	}
	results, err := q.SendBatch(ctx, []Outgoing{{Payload: "hangs"}, {Payload: "later", Options: []MsgOption{WithDelay(time.Hour)}}})
	if err != nil {
		t.Fatal(err)
	}
	wants("hangs 0")
	stop, give := context.WithCancel(ctx)
	give()
	if err := q.Shutdown(stop); err == nil {
		t.Error("Shutdown with a handler at work returns nil")
	}
	if cause := receive(t, "its context ends", ended); !errors.Is(cause, ErrShutdown) {
		t.Errorf("cause %v, want ErrShutdown", cause)
	}
	receive(t, "it stops", done)
	for i, want := range []State{StateReady, StatePending} {
		if r, err := q.TryIntercept(results[i].Info); err != nil || r.State != want {
			t.Errorf("intercept: %+v, %v; want %v", r, err, want)
		}
	}
	if n := f.log.count("level=ERROR") + f.log.count("cannot wait for wake-ups"); n != 0 {
		t.Errorf("%d complaints in the log", n)
	}
	f.checkEmpty()
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
			opt.Addr = shared.Addr()
			f := fixtureOn(t, redis.NewClient(&opt))
			works(t, f, f.cli)
		})
	}
}

// TestRing: a ring would strand accepted messages on the wrong server.
func TestRing(t *testing.T) {
	t.Parallel()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": shared.Addr()}})
	defer ring.Close()
	for name, make := range map[string]func(){
		"NewQueue":     func() { NewQueue("q", ring, nil) },
		"NewPublisher": func() { NewPublisher("q", ring) },
		"NewMonitor":   func() { NewMonitor("q", ring) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if text := fmt.Sprint(recover()); !strings.Contains(text, name) || !strings.Contains(text, "use one server, Sentinel or a Cluster") {
					t.Errorf("panics with %q", text)
				}
			}()
			make()
		})
	}
	for _, err := range Queues(context.Background(), ring) {
		if !errors.Is(err, errRing) {
			t.Errorf("Queues: %v", err)
		}
	}
}
