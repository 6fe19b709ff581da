package link

import (
	"context"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/redis/go-redis/v9"
)

// TestLinkOfAClusterThatIsNotThere: its owner is not taken for closed while no node of the Cluster was found.
func TestLinkOfAClusterThatIsNotThere(t *testing.T) {
	t.Parallel()
	cli := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer cli.Close()
	l := linkOf(cli)
	defer l.release()
	if l.ownerClosed() {
		t.Error("the owner counts as closed")
	}
	s := NewServer(cli, "a key")
	s.nodeAddr.Store(&nodeAddr{addr: "127.0.0.1:2"}) // found over a link before this one
	s.askWhereItIs(queuetest.CtxB, l, io.EOF)
	if known := s.nodeAddr.Load(); known != nil {
		t.Errorf("the node is still known: %+v", known)
	}
}

// TestNewLinkOfAClusterWhoseNodeIsKnown: the link of a Cluster is closed with its last consumer. A server that knows the node of
// its queue makes its next call over a new link.
func TestNewLinkOfAClusterWhoseNodeIsKnown(t *testing.T) {
	t.Parallel()
	f := queuetest.BaseOn(t, queuetest.OneNodeCluster(t, queuetest.Shared.Addr))
	s := patient(f.Cli, f.Key("state"))
	call := func() error {
		return s.Attempt(queuetest.CtxB, Effort{Call: func(ctx context.Context, cli redis.UniversalClient) error { return cli.Exists(ctx, s.slot).Err() }})
	}
	consumer := s.ForConsumer(time.Hour)
	f.Must(call())
	consumer.Release()
	f.Must(call())
}

// TestLinkAsksOtherNodes: while the node that holds a queue is frozen, another node says which one has taken its place, and that
// holds longer than the client's map of the Cluster.
func TestLinkAsksOtherNodes(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 1)
	f := queuetest.BaseOn(t, cluster.Client(t))
	s := patient(f.Cli, f.Key("state"))
	queuetest.Eventually(t, "the owner answers", func() bool {
		return s.Attempt(queuetest.CtxB, Effort{Call: func(ctx context.Context, cli redis.UniversalClient) error { return cli.Exists(ctx, s.slot).Err() }}) == nil
	})
	owner, err := s.Node(queuetest.CtxB)
	f.Must(err)
	frozen := slices.IndexFunc(cluster.Nodes, func(n *redistest.Server) bool { return n.Addr() == owner.Options().Addr })
	cluster.Nodes[frozen].Pause()
	defer cluster.Nodes[frozen].Resume()
	promoted := cluster.Nodes[(frozen+3)%6].Addr() // a slow machine may have promoted that of a node before
	l := linkOf(f.Cli)
	defer l.release()
	var known *nodeAddr
	queuetest.Eventually(t, "another node names the one that was promoted", func() bool {
		s.nodeAddr.Store(&nodeAddr{addr: owner.Options().Addr, at: time.Now()})
		s.askWhereItIs(queuetest.CtxB, l, io.EOF)
		known = s.nodeAddr.Load()
		return known != nil && known.addr == promoted && known.not == owner.Options().Addr
	})
	var said *redis.Client
	queuetest.Eventually(t, "the client knows a node", func() bool { said, err = s.Node(queuetest.CtxB); return err == nil })
	stale := *known
	stale.at, stale.not = time.Time{}, said.Options().Addr
	s.nodeAddr.Store(&stale)
	if addr, err := s.findNode(queuetest.CtxB, l); addr != promoted || err != nil {
		t.Errorf("what another node said holds no longer than the client's map: %s, %v", addr, err)
	}
}

// TestAskedNodeMeetsAPanic: a panic in a part of the user's client does not end the program, also while nodes are asked.
func TestAskedNodeMeetsAPanic(t *testing.T) {
	t.Parallel()
	f := queuetest.NewBase(t)
	node := redis.NewClient(&redis.Options{Addr: queuetest.Shared.Addr(), OnConnect: func(context.Context, *redis.Conn) error { panic("in OnConnect") }})
	t.Cleanup(func() { _ = node.Close() })
	l := linkOf(node)
	defer l.release()
	if addr := NewServer(node, f.Key("state")).askNode(queuetest.CtxB, l, queuetest.Shared.Addr()); addr != "" {
		t.Errorf("%s answered", addr)
	}
}
