package link

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/conc"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/redis/go-redis/v9"
)

// crowd makes calls over one client from many servers, each of which makes attempts of its own. A call adds an item
// to a set.
type crowd struct {
	*queuetest.Base
	cli  *redis.Client
	link *Link
	set  string
}

func newCrowd(f *queuetest.Base, addr string) *crowd {
	// The library has bounds of its own.
	cli := redis.NewClient(&redis.Options{Addr: addr, DialTimeout: time.Hour, ReadTimeout: time.Hour})
	f.T.Cleanup(func() { _ = cli.Close() })
	c := &crowd{f, cli, linkOf(cli), "set of " + f.Name}
	f.T.Cleanup(func() { f.Cli.Del(queuetest.CtxB, c.set) })
	return c
}

// add makes one attempt at a call.
func (c *crowd) add(ctx context.Context, s *Server, item any) error {
	return s.Attempt(ctx, Effort{Call: func(ctx context.Context, cli redis.UniversalClient) error {
		return cli.SAdd(ctx, c.set, item).Err()
	}})
}

// addAll makes n calls, by attempts of this timeout, and counts those that failed.
func (c *crowd) addAll(n int, timeout time.Duration) (sent *sync.WaitGroup, failed *atomic.Int64) {
	sent, failed = new(sync.WaitGroup), new(atomic.Int64)
	for range n {
		s := NewServer(c.cli, c.Key("state"))
		s.AttemptTimeout = timeout
		sent.Go(func() {
			item := fmt.Sprintf("%p", s)
			c.mustBe(Repeat(queuetest.CtxB, func() error {
				err := c.add(queuetest.CtxB, s, item)
				if err != nil {
					failed.Add(1)
				}
				return err
			}))
		})
	}
	return sent, failed
}

// mustBe is must for any goroutine.
func (c *crowd) mustBe(err error) {
	if err != nil {
		c.T.Error(err)
	}
}

// has complains if there are not so many items.
func (c *crowd) has(want int64) {
	c.T.Helper()
	n, err := c.Base.Cli.SCard(queuetest.CtxB, c.set).Result()
	if c.Must(err); n != want {
		c.T.Errorf("%d calls had an effect, want %d", n, want)
	}
}

// pool is the pool of the link, and how many connections that has.
func (c *crowd) pool() (p *pool, connections int) {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	if p = c.link.pools[place{}]; p != nil {
		connections = int(p.cli.PoolStats().TotalConns)
	}
	return p, connections
}

// few calls go on at once also where the machine is busy. More would time out together, and have all their connections
// made anew, again and again.
const few = 8

// TestLinkIsFull: who waits for a connection of the library's own makes no attempt meanwhile: nothing fails, the
// connections stay, and there are no more of them. A call whose context ends meanwhile has changed nothing.
func TestLinkIsFull(t *testing.T) {
	t.Parallel()
	wire := redistest.NewWire(t, queuetest.Shared.Addr())
	c := newCrowd(queuetest.NewBase(t), wire.Addr())
	wire.Freeze()
	first, _ := c.addAll(linkPool, time.Hour)
	queuetest.Eventually(t, "all connections are in use", func() bool { _, n := c.pool(); return n == linkPool })
	full, _ := c.pool()
	short := testkit.Scaled(minAttemptTimeout)
	rest, failed := c.addAll(few, short)
	late := NewServer(c.cli, c.Key("state"))
	for name, ctx := range map[string]context.Context{
		"its own": queuetest.Within(t, 4*short), "a shared one": new(conc.SharedTimeout).Context(4 * short),
	} {
		if err := c.add(ctx, late, "late"); !errors.Is(err, ErrAllInUse) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("until its context ends, %s: %v", name, err)
		}
	}
	if now, n := c.pool(); failed.Load() > 0 || now != full || n != linkPool {
		t.Errorf("while they wait, %d attempts had failed; %d connections, the same: %v", failed.Load(), n, now == full)
	}
	wire.Thaw()
	first.Wait()
	rest.Wait()
	c.has(linkPool + few)
}

// TestLinkIsFullOfDeadConnections: once a call notices that its connection is dead, those that wait go over new ones,
// whether or not the others have noticed it.
func TestLinkIsFullOfDeadConnections(t *testing.T) {
	t.Parallel()
	wire := redistest.NewWire(t, queuetest.Shared.Addr())
	c := newCrowd(queuetest.NewBase(t), wire.Addr())
	wire.Freeze()
	begun := time.Now()
	first, ended := c.addAll(linkPool-1, time.Hour)
	queuetest.Eventually(t, "all connections but one are in use", func() bool { _, n := c.pool(); return n >= linkPool-1 })
	dead, _ := c.pool()
	noticing, noticed := c.addAll(1, AttemptTimeout)
	queuetest.Eventually(t, "all connections are dead", func() bool {
		return wire.HalfOpen() >= linkPool || noticed.Load() > 0
	})
	wire.Thaw()
	rest, _ := c.addAll(3*linkPool, time.Hour) // the first of them before the call has noticed it
	noticing.Wait()
	rest.Wait()
	if n := ended.Load(); n > 0 && time.Since(begun) < linkLimit { // they end by themselves then
		t.Errorf("the calls waited until %d of the first attempts had ended", n)
	}
	if !dead.retired() {
		t.Error("calls still go over the dead connections")
	}
	wire.Cut() // the others hear of it
	wire.Mend()
	first.Wait()
	c.has(4 * linkPool)
}

// TestLinkFullOfSends: consumers go on while sends wait for connections.
func TestLinkFullOfSends(t *testing.T) {
	t.Parallel()
	c := newCrowd(queuetest.NewBase(t), queuetest.Shared.Addr())
	for range linkPool {
		if _, err := c.link.take(queuetest.CtxB, place{}); err != nil {
			t.Fatal(err)
		}
	}
	full, _ := c.pool()
	sent, _ := c.addAll(1, time.Hour)
	s := patient(c.cli, c.Key("state")).ForConsumer(time.Hour)
	defer s.Release()
	c.Must(c.add(queuetest.Within(t, queuetest.Patience), s, "a consumer's"))
	c.has(1)
	for range linkPool {
		c.link.put(full, nil)
	}
	sent.Wait()
	c.has(2)
}

// TestLinkFullOfNewScripts: consumers go on while all sends have two connections, because the server did not know
// their script.
func TestLinkFullOfNewScripts(t *testing.T) {
	t.Parallel()
	f, server := queuetest.OwnBase(t) // which has no replica
	c := newCrowd(f, server.Addr())
	ctx, cancel := context.WithCancel(queuetest.CtxB)
	var sent sync.WaitGroup
	t.Cleanup(sent.Wait)
	t.Cleanup(cancel)
	for range linkPool {
		s := patient(c.cli, c.Key("state"))
		sent.Go(func() {
			call := Effort{Extra: time.Hour, Call: func(ctx context.Context, cli redis.UniversalClient) error {
				for _, script := range [][]any{{"evalsha", strings.Repeat("0", 40), 0}, {"eval", "return {}", 0}} {
					err := NewReplicatedCall(ctx, script, 1, time.Hour).Exec(ctx, cli.Pipeline())
					if !Says(err, "NOSCRIPT") {
						return err
					}
				}
				return nil
			}}
			_ = Repeat(ctx, func() error { return s.Attempt(ctx, call) }) // until ctx ends
		})
	}
	queuetest.Eventually(t, "all wait twice", func() bool { return f.BlockedClients() == 2*linkPool })
	s := patient(c.cli, c.Key("state")).ForConsumer(time.Hour)
	defer s.Release()
	c.Must(c.add(queuetest.Within(t, queuetest.Patience), s, "a consumer's"))
	c.has(1)
}
