package delayqueue

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// oneNodeCluster makes the client of a Cluster of one node, as far as it knows.
func oneNodeCluster(t *testing.T, addr func() string) *redis.ClusterClient {
	cli := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
		return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: addr()}}}}, nil
	}})
	t.Cleanup(func() { _ = cli.Close() })
	return cli
}

// TestLinkFollowsClusterClient: what a Cluster's client learns of a failover holds for the queue, though the old primary
// goes on answering.
func TestLinkFollowsClusterClient(t *testing.T) {
	t.Parallel()
	var holds atomic.Pointer[string]
	moveTo := func(s *redistest.Server) { addr := s.Addr(); holds.Store(&addr) }
	before, after := redistest.Start(t), redistest.Start(t)
	moveTo(before)
	cli := oneNodeCluster(t, func() string { return *holds.Load() })
	f := fixtureOn(t, after.Client(t))
	p := NewPublisher(f.name, cli)
	f.must(p.SendDelayMsg("before", time.Hour))
	moveTo(after)
	cli.ReloadState(ctxB)
	eventually(t, "sends go to the new primary", func() bool {
		f.must(p.SendDelayMsg("after", time.Hour))
		return len(f.check().Messages) > 0
	})
}

// TestLinkTellsLimiterNothingOfItsOwn: the user's limiter hears of no failure when a connection is made.
func TestLinkTellsLimiterNothingOfItsOwn(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	limiter := new(countingLimiter)
	cli := redis.NewClient(&redis.Options{Addr: shared.Addr(), Limiter: limiter})
	t.Cleanup(func() { _ = cli.Close() })
	f.send(f.queueOn(cli, nil), "x", inAnHour)
	if n := limiter.ended.Load(); n != 0 {
		t.Errorf("the limiter was told of %d calls whose context had ended", n)
	}
}

type countingLimiter struct{ ended atomic.Int64 }

func (*countingLimiter) Allow() error { return nil }

func (l *countingLimiter) ReportResult(err error) {
	if errors.Is(err, context.Canceled) {
		l.ended.Add(1)
	}
}

// TestLinkAsksNodeOfMovingSlot: sends go on while the slot of a queue is on its way to another node, where its keys are
// already, also those that replicas confirm.
func TestLinkAsksNodeOfMovingSlot(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	cli := c.Client(t)
	f := newFixture(t) // a queue that is moved cannot be checked
	p := NewPublisher("moving", cli)
	f.must(failure(p.Send(ctxB, "before", WithKey("k"), inAnHour))) // all keys that a send takes are there, else it is told TRYAGAIN
	f.must(cli.ZAdd(ctxB, p.store.keys.held, redis.Z{Score: 1, Member: "k"}).Err())
	from, err := cli.MasterForKey(ctxB, p.store.keys.wake)
	f.must(err)
	moveKeys(f, from, otherPrimary(f, cli, from), p.store.keys)
	p.batcher.replicaTimeout = 10 * time.Millisecond
	for replicas, want := range []error{nil, ErrNotReplicated} { // there is no replica
		p.batcher.replicas = replicas
		if _, err := p.Send(within(t, patience), "while", inAnHour); !errors.Is(err, want) {
			t.Errorf("%d replicas: %v", replicas, err)
		}
	}
}

// otherPrimary is a client of another primary than this one.
func otherPrimary(f *fixture, cli *redis.ClusterClient, than *redis.Client) (other *redis.Client) {
	f.t.Helper()
	var mu sync.Mutex
	f.must(cli.ForEachMaster(ctxB, func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		if node.Options().Addr != than.Options().Addr {
			other = node
		}
		return nil
	}))
	return other
}

// moveKeys begins to move a queue's slot to another node, and moves its keys.
func moveKeys(f *fixture, from, to *redis.Client, k *keys) {
	f.t.Helper()
	slot, err := from.ClusterKeySlot(ctxB, k.wake).Result()
	f.must(err)
	name := func(node *redis.Client) string {
		id, err := node.Do(ctxB, "cluster", "myid").Text()
		f.must(err)
		return id
	}
	f.must(to.Do(ctxB, "cluster", "setslot", slot, "importing", name(from)).Err())
	f.must(from.Do(ctxB, "cluster", "setslot", slot, "migrating", name(to)).Err())
	host, port, err := net.SplitHostPort(to.Options().Addr)
	f.must(err)
	args := []any{"migrate", host, port, "", 0, 5000, "keys"}
	f.must(from.Do(ctxB, append(args, k.all...)...).Err())
}
