package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// crowd sends over one client from many publishers, each of which makes attempts of its own.
type crowd struct {
	f    *fixture
	cli  *redis.Client
	link *link
}

func newCrowd(f *fixture, addr string) *crowd {
	cli := redis.NewClient(&redis.Options{Addr: addr})
	f.t.Cleanup(func() { _ = cli.Close() })
	c := &crowd{f, cli, linkOf(cli)}
	f.t.Cleanup(c.link.release)
	return c
}

// send has n publishers send one message each, by attempts of this timeout.
func (c *crowd) send(n int, timeout time.Duration) (publishers []*Publisher, sent *sync.WaitGroup) {
	sent = new(sync.WaitGroup)
	for i := range n {
		p := NewPublisher(c.f.name, c.cli).WithLogger(slog.New(slog.NewTextHandler(c.f.log, nil)))
		p.store.attemptTimeout = timeout
		publishers = append(publishers, p)
		sent.Go(func() {
			if _, err := p.Send(ctxB, fmt.Sprint(i), inAnHour); err != nil {
				c.f.t.Error(err)
			}
		})
	}
	return publishers, sent
}

// pool is the pool of the link, and how many connections that has.
func (c *crowd) pool() (p *pool, connections int) {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	if p = c.link.pools[""]; p != nil {
		connections = int(p.cli.PoolStats().TotalConns)
	}
	return p, connections
}

// fewKept lets consumers have all connections of the pool.
func (c *crowd) fewKept() {
	p, _ := c.link.tryTake("", consuming)
	c.link.put(p, consuming, time.Time{}, nil)
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	for p.kept[consuming] > 0 {
		p.free(consuming)
	}
}

// TestLinkIsFull: who waits for a connection of the library's own makes no attempt meanwhile: nothing fails, the
// connections stay, and there are no more of them. A call whose context ends meanwhile has changed nothing.
func TestLinkIsFull(t *testing.T) {
	t.Parallel()
	f, wire, _ := wired(t)
	c := newCrowd(f, wire.Addr())
	wire.Freeze()
	_, first := c.send(linkPool, time.Hour)
	eventually(t, "all connections are in use", func() bool { _, n := c.pool(); return n == linkPool })
	full, _ := c.pool()
	waiting, rest := c.send(3*linkPool, minAttemptTimeout)
	var late *SendError
	_, err := NewPublisher(f.name, c.cli).Send(within(t, 4*minAttemptTimeout), "x")
	if !errors.As(err, &late) || !errors.Is(err, context.DeadlineExceeded) || late.Stored != StoredNo {
		t.Errorf("Send until its context ends: %v", err)
	}
	_, err = NewPublisher(f.name, c.cli).Intercept(within(t, 4*minAttemptTimeout), "x")
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Intercept until its context ends: %v", err)
	}
	p, l := NewPublisher(f.name, c.cli), newLoneSend()
	f.must(p.makeMessage(&l.item, "x", &l.draft, nil))
	p.batcher.send(new(sharedTimeout).context(4*minAttemptTimeout), &l.call) // as SendDelayMsg does
	if err := p.sendError(&l.item); !errors.As(err, &late) || !errors.Is(err, errAllInUse) || late.Stored != StoredNo {
		t.Errorf("SendDelayMsg until it gives up: %v", err)
	}
	failed := 0
	for _, p := range waiting {
		p.batcher.mu.Lock()
		if p.batcher.lastErr != nil {
			failed++
		}
		p.batcher.mu.Unlock()
	}
	if now, n := c.pool(); failed > 0 || now != full || n != linkPool {
		t.Errorf("while they wait, %d of %d sends had failed attempts; %d connections, the same: %v", failed, len(waiting), n, now == full)
	}
	wire.Thaw()
	first.Wait()
	rest.Wait()
	if n := len(f.check().Messages); n != 4*linkPool {
		t.Errorf("%d messages are stored, want %d", n, 4*linkPool)
	}
}

// TestLinkIsFullOfDeadConnections: once a call notices that its connection is dead, those that wait go over new ones,
// whether or not the others have noticed it.
func TestLinkIsFullOfDeadConnections(t *testing.T) {
	t.Parallel()
	f, wire, _ := wired(t)
	c := newCrowd(f, wire.Addr())
	wire.Freeze()
	begun := time.Now()
	_, first := c.send(linkPool-1, time.Hour)
	_, noticing := c.send(1, attemptTimeout)
	eventually(t, "all connections are in use", func() bool { _, n := c.pool(); return n == linkPool })
	_, rest := c.send(3*linkPool, attemptTimeout)
	wire.HalfOpen()
	wire.Thaw()
	noticing.Wait()
	rest.Wait()
	if took := time.Since(begun); took >= maxAttemptTimeout { // then the first attempts end
		t.Errorf("the sends took %v", took)
	}
	wire.Cut() // the others hear of it
	wire.Mend()
	first.Wait()
	if n := len(f.check().Messages); n != 4*linkPool {
		t.Errorf("%d messages are stored, want %d", n, 4*linkPool)
	}
}

// TestFetchWaitsForConnection: a lease, and what is left until a deadline, begin when the fetch has a connection.
func TestFetchWaitsForConnection(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c := newCrowd(f, shared.Addr())
	c.fewKept()
	for range linkPool {
		if _, err := c.link.take(ctxB, "", consuming); err != nil {
			t.Fatal(err)
		}
	}
	full, _ := c.pool()
	handled := make(chan *delivery, 1)
	q := f.queueOn(c.cli, nil)
	q.WithHandler(func(context.Context, *Message) error { handled <- q.current().leases.held.all()[0]; return nil })
	f.send(f.queue(nil), "x", WithDeadline(time.Now().Add(time.Hour)))
	q.StartConsume()
	eventually(t, "its fetch waits", func() bool {
		stacks := make([]byte, 16<<20)
		for _, stack := range strings.Split(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
			if strings.Contains(stack, "(*poller).fetch") && strings.Contains(stack, "(*link).take") {
				return true
			}
		}
		return false
	})
	free := time.Now()
	for range linkPool {
		c.link.put(full, consuming, time.Time{}, nil)
	}
	if d := receive(t, "delivery", handled); d.leased.age(free) > 0 {
		t.Errorf("its lease began %v too early", d.leased.age(free))
	}
}

// TestLinkFullOfSends: consumers go on while sends wait for connections.
func TestLinkFullOfSends(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c := newCrowd(f, shared.Addr())
	for range linkPool {
		if _, err := c.link.take(ctxB, "", producing); err != nil {
			t.Fatal(err)
		}
	}
	full, _ := c.pool()
	waiting, sent := c.send(1, time.Hour)
	eventually(t, "a send waits", func() bool {
		b := &waiting[0].batcher
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.inFlight == 1
	})
	handled := make(chan string, 1)
	q := f.queueOn(c.cli, nil).WithHandler(func(_ context.Context, msg *Message) error { handled <- msg.Payload; return nil })
	f.send(f.queue(nil), "x")
	q.StartConsume()
	if got := receive(t, "a message is handled", handled); got != "x" {
		t.Errorf("handled %q", got)
	}
	for range linkPool {
		c.link.put(full, producing, time.Time{}, nil)
	}
	sent.Wait()
}
