package weather

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/redis/go-redis/v9"
)

// TestLinkFollowsClusterClient: what a Cluster's client learns of a failover holds for the queue, though the old
// primary goes on answering.
func TestLinkFollowsClusterClient(t *testing.T) {
	t.Parallel()
	var holds atomic.Pointer[string]
	moveTo := func(s *redistest.Server) { addr := s.Addr(); holds.Store(&addr) }
	before, after := redistest.Start(t), redistest.Start(t)
	moveTo(before)
	cli := queuetest.OneNodeCluster(t, func() string { return *holds.Load() })
	f := face.On(t, after.Client(t))
	p := delayqueue.NewPublisher(f.Name, cli)
	f.Must(p.SendDelayMsg("before", time.Hour))
	moveTo(after)
	cli.ReloadState(queuetest.CtxB)
	queuetest.Eventually(t, "sends go to the new primary", func() bool {
		f.Must(p.SendDelayMsg("after", time.Hour))
		return len(f.Check().Messages) > 0
	})
}

// TestLinkTellsLimiterNothingOfItsOwn: the user's limiter hears of no failure when a connection is made.
func TestLinkTellsLimiterNothingOfItsOwn(t *testing.T) {
	t.Parallel()
	f := face.OnShared(t)
	limiter := new(countingLimiter)
	cli := queuetest.ClientWith(t, &redis.Options{Addr: queuetest.Shared.Addr(), Limiter: limiter})
	f.Send(f.QueueOn(cli, nil), "x", face.InAnHour)
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
	f := face.New(t) // a queue that is moved cannot be checked
	q, at := delayqueue.NewQueue("moving", cli, nil), check.Queue{Prefix: "dq", Name: "moving"}
	// all keys that a send takes are there, else it is told TRYAGAIN
	f.Must(queuetest.Failure(q.Send(queuetest.CtxB, "before", delayqueue.WithKey("k"), face.InAnHour)))
	f.Must(cli.ZAdd(queuetest.CtxB, at.Key("holds"), redis.Z{Score: 1, Member: "k"}).Err())
	from, err := cli.MasterForKey(queuetest.CtxB, at.Key("wake"))
	f.Must(err)
	moveKeys(f, from, otherPrimary(f, cli, from), at.Keys())
	for replicas, want := range []error{nil, delayqueue.ErrNotReplicated} { // there is no replica
		if replicas > 0 {
			q.WithReplicaAck(replicas, 10*time.Millisecond)
		}
		if _, err := q.Send(queuetest.Within(t, queuetest.Patience), "while", face.InAnHour); !errors.Is(err, want) {
			t.Errorf("%d replicas: %v", replicas, err)
		}
	}
}

// otherPrimary is a client of another primary than this one.
func otherPrimary(f *face.Fixture, cli *redis.ClusterClient, than *redis.Client) (other *redis.Client) {
	f.T.Helper()
	var mu sync.Mutex
	f.Must(cli.ForEachMaster(queuetest.CtxB, func(_ context.Context, node *redis.Client) error {
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
func moveKeys(f *face.Fixture, from, to *redis.Client, keys []string) {
	f.T.Helper()
	slot, err := from.ClusterKeySlot(queuetest.CtxB, keys[0]).Result()
	f.Must(err)
	name := func(node *redis.Client) string {
		id, err := node.Do(queuetest.CtxB, "cluster", "myid").Text()
		f.Must(err)
		return id
	}
	f.Must(to.Do(queuetest.CtxB, "cluster", "setslot", slot, "importing", name(from)).Err())
	f.Must(from.Do(queuetest.CtxB, "cluster", "setslot", slot, "migrating", name(to)).Err())
	host, port, err := net.SplitHostPort(to.Options().Addr)
	f.Must(err)
	args := []any{"migrate", host, port, "", 0, 5000, "keys"}
	for _, key := range keys {
		args = append(args, key)
	}
	f.Must(from.Do(queuetest.CtxB, args...).Err())
}
