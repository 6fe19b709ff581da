package link

import (
	"slices"
	"testing"

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
	if l.ownerClosed() {
		t.Error("the owner counts as closed")
	}
}

// TestFrozenNodeIsSlowAlone: while one of three nodes is frozen, calls to the others take no longer and keep their
// connections, and when it goes on its calls do, too.
func TestFrozenNodeIsSlowAlone(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	cli := cluster.Client(t)
	l := linkOf(cli)
	servers := map[string]*Server{} // one for each node
	for i := 0; len(servers) < 3; i++ {
		s := patient(cli, string(rune('a'+i)))
		queuetest.Eventually(t, "it is answered", func() bool { return call(s) == nil })
		node, err := s.Node(queuetest.CtxB)
		queuetest.Must(t, err)
		servers[node.Options().Addr] = s
	}
	for _, node := range cluster.Nodes { // a frozen one fails its own slots alone
		queuetest.Must(t, node.Client(t).ConfigSet(queuetest.CtxB, "cluster-require-full-coverage", "no").Err())
	}
	frozen := cluster.Nodes[0]
	frozen.Pause()
	defer frozen.Resume()
	hangs := make(chan error, 1)
	go func() { hangs <- call(servers[frozen.Addr()]) }()
	for addr, s := range servers {
		if addr == frozen.Addr() {
			users := struct{ redis.UniversalClient }{cli} // without a link
			if err := call(&Server{Cli: users, slot: s.slot, AttemptTimeout: minAttemptTimeout}); !TimedOut(err) {
				t.Errorf("the frozen node: %v", err)
			}
			continue
		}
		before := l.poolAt(place{addr: addr})
		for range 100 {
			queuetest.Must(t, call(s))
		}
		if l.poolAt(place{addr: addr}) != before {
			t.Error("the connections to another node were given up")
		}
	}
	if len(hangs) > 0 {
		t.Error("a patient call to the frozen node did not hang") // so the others were answered meanwhile
	}
	frozen.Resume()
	queuetest.Receive(t, "the call to the frozen node ends", hangs)
	queuetest.Eventually(t, "the frozen node answers", func() bool { return call(servers[frozen.Addr()]) == nil })
}

// TestLinkFollowsAFailover: when the client of a Cluster has learned that a replica took the place of a frozen
// primary, calls go there, and an error has it ask.
func TestLinkFollowsAFailover(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 1)
	f := queuetest.BaseOn(t, cluster.Client(t))
	s := NewServer(f.Cli, f.Key("state"))
	queuetest.Eventually(t, "the owner answers", func() bool { return call(s) == nil })
	owner, err := s.Node(queuetest.CtxB)
	f.Must(err)
	frozen := slices.IndexFunc(cluster.Nodes, func(n *redistest.Server) bool { return n.Addr() == owner.Options().Addr })
	cluster.Nodes[frozen].Pause()
	defer cluster.Nodes[frozen].Resume()
	queuetest.Eventually(t, "another node answers", func() bool { return call(s) == nil })
	if now, err := s.Node(queuetest.CtxB); err != nil || now.Options().Addr == owner.Options().Addr {
		t.Errorf("the client knows nothing of it: %v, %v", now, err)
	}
}
