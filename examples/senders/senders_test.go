//go:build senders

// Package senders has programs of other languages that send to a queue. make test-senders runs them.
package senders

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/ops"
)

var shared *redistest.Server

func TestMain(m *testing.M) { os.Exit(redistest.Main(m, &shared)) }

var languages = map[string][]string{"python": {"python3", "send.py"}, "node": {"node", "send.js"},
	"php": {"php", "send.php"}}

// run sends as a person would, and returns what the program says.
func run(t *testing.T, addr string, command, args []string) (said string, sent bool) {
	t.Helper()
	cmd := exec.CommandContext(queuetest.Within(t, queuetest.Patience), command[0], append(command[1:], args...)...)
	cmd.Env = append(os.Environ(), "REDIS_ADDR="+addr, "NODE_PATH=/usr/share/nodejs") // Debian's modules
	out, err := cmd.CombinedOutput()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out)), err == nil
}

// TestSenders: a program of another language sends to a new queue, with a delay, retries and a key, and a Go program
// handles it.
func TestSenders(t *testing.T) {
	for language, command := range languages {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			cli, ctx, name := shared.Client(t), queuetest.Within(t, queuetest.Patience), "senders-"+language
			queue := ops.Of(delayqueue.NewMonitor(name, cli))
			send := func(args ...string) string {
				t.Helper()
				id, sent := run(t, shared.Addr(), command, append([]string{name}, args...))
				if !sent {
					t.Fatalf("%v: %s", args, id)
				}
				return id
			}
			now := send("now: 你好")
			later := send("later", "3600", "200", "order-42")
			soon := send("soon", "1.5", "0")

			m, err := queue.Get(ctx, later)
			queuetest.Must(t, err)
			if m.Payload != "later" || m.Key != "order-42" || m.MaxRetries != 200 || m.State != delayqueue.StatePending ||
				time.Until(m.Due) < 50*time.Minute || time.Until(m.Due) > time.Hour+time.Minute {
				t.Errorf("%+v", m)
			}
			said, sent := run(t, shared.Addr(), command, []string{name, "again", "1", "3", "order-42"})
			if sent || said != `not sent: key "order-42" is taken by message `+later &&
				said != "not sent: key 'order-42' is taken by message "+later {
				t.Errorf("a taken key: %q, sent: %v", said, sent)
			}

			got := make(chan *delayqueue.Message, 10)
			consumer := delayqueue.NewQueue(name, cli, nil).WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
				got <- msg
				return nil
			})
			consumer.StartConsume()
			defer consumer.StopConsume()
			for _, want := range []struct {
				id, payload string
				retries     int
			}{{now, "now: 你好", 3}, {soon, "soon", 0}} {
				if msg := <-got; msg.ID != want.id || msg.Payload != want.payload || msg.MaxRetries != want.retries {
					t.Errorf("%+v, want %+v", msg, want)
				}
			}
			queuetest.Must(t, consumer.Shutdown(ctx))
			check.Assert(t, cli, "dq", name)
		})
	}
}

// TestSendersWithoutServer: they give up, and say so.
func TestSendersWithoutServer(t *testing.T) {
	for language, command := range languages {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			if said, sent := run(t, "127.0.0.1:1", command, []string{"q", "x"}); sent || !strings.HasPrefix(said, "not sent: ") {
				t.Errorf("%q, sent: %v", said, sent)
			}
		})
	}
}

// TestSendersSayWhy: the error of a queue that they cannot send to has the server's words.
func TestSendersSayWhy(t *testing.T) {
	for language, command := range languages {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			cli, name := shared.Client(t), "sharded-"+language
			queuetest.Must(t, cli.HSet(queuetest.CtxB, "{dq:"+name+"}:state", "shards", "3").Err())
			if said, sent := run(t, shared.Addr(), command, []string{name, "x"}); sent || !strings.Contains(said, "DQSHARDS 3") {
				t.Errorf("%q, sent: %v", said, sent)
			}
		})
	}
}
