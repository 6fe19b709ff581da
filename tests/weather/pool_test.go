package weather

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
)

// TestPoolTrouble: a queue that cannot be consumed, of a hundred times the weight or first in the order, does not
// hold up the other one, and goes on once it can be.
func TestPoolTrouble(t *testing.T) {
	t.Parallel()
	broken := atomic.Bool{} // of "broken handler"
	for name, c := range map[string]struct {
		begin, end func(f *face.Fixture, server *redistest.Server)
	}{
		"wrong type": {
			func(f *face.Fixture, _ *redistest.Server) { f.Cli.Set(context.Background(), f.Key("unack"), "x", 0) },
			func(f *face.Fixture, _ *redistest.Server) { f.Cli.Del(context.Background(), f.Key("unack")) },
		},
		"refused": {
			func(f *face.Fixture, _ *redistest.Server) {
				f.Cli.Do(context.Background(), "acl", "setuser", "default", "-evalsha", "-eval")
			},
			func(f *face.Fixture, _ *redistest.Server) {
				f.Cli.Do(context.Background(), "acl", "setuser", "default", "+evalsha", "+eval")
			},
		},
		"paused": {
			func(f *face.Fixture, _ *redistest.Server) {
				f.Pause(message.Forever)
			},
			func(f *face.Fixture, _ *redistest.Server) {
				f.Pause(0)
			},
		},
		"broken handler": {
			func(*face.Fixture, *redistest.Server) { broken.Store(true) },
			func(*face.Fixture, *redistest.Server) { broken.Store(false) },
		},
		"hanging server": {
			func(_ *face.Fixture, server *redistest.Server) { server.Pause() },
			func(_ *face.Fixture, server *redistest.Server) { server.Resume() },
		},
	} {
		for _, strict := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " ", strict), func(t *testing.T) {
				f, server := face.OwnServer(t)
				got, other := make(chan string, 100), face.New(t)
				first := f.Queue(func(payload string) bool {
					if broken.Load() && name == "broken handler" {
						panic("broken")
					}
					got <- "first"
					return true
				}).WithNackRedeliveryDelay(time.Millisecond).WithDefaultRetryCount(1 << 30).WithLogger(
					slog.New(slog.DiscardHandler))
				second := other.Queue(func(string) bool { got <- "second"; return true })
				p := face.PoolOf(t, 2, delayqueue.Share{Queue: first, Weight: 100}, delayqueue.Share{Queue: second})
				if strict {
					p.Strict()
				}
				p.StartConsume()
				f.Send(first, "x")
				queuetest.Receive(t, "the first works", got)
				delay := 300 * time.Millisecond
				for early := true; early; delay *= 2 {
					queuetest.Eventually(t, "nothing is in hand that the trouble could strike", func() bool {
						return len(f.Check().Messages) == 0
					})
					sent := time.Now()
					f.Send(first, "x", delayqueue.WithDelay(delay))
					c.begin(f, server)
					if early = time.Since(sent) > delay/2; early { // this machine is slow: it may have been handled
						c.end(f, server)
						queuetest.Receive(t, "the first works again", got)
					}
				}
				for range 15 {
					other.Send(second, "x")
					if name := queuetest.Receive(t, "the second goes on", got); name != "second" {
						t.Errorf("it is handled by the %s", name)
					}
					time.Sleep(delay / 10) // so that the first is due meanwhile
				}
				c.end(f, server)
				if name := queuetest.Receive(t, "the first goes on", got); name != "first" {
					t.Errorf("it is handled by the %s", name)
				}
			})
		}
	}
}
