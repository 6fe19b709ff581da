package redistest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/redis/go-redis/v9"
)

const (
	clusterSlots = 16384
	clusterLimit = 2 * time.Minute // to form a cluster

	// After how long without an answer nodes hold each other for failed, on an idle machine. With replicas that is when
	// a failover begins. Without, it only ends the service of all: the default, so that a busy machine is not taken for
	// a dead one.
	clusterNodeTimeout  = time.Second
	nodeTimeoutNoBackup = 15 * time.Second
)

// Cluster is a Redis Cluster of real servers.
type Cluster struct {
	// Nodes are its servers, the primaries first, in the order of their slots,
	// then the replicas, those of the first primary first. This is how they
	// were made; a failover changes the roles, not the order.
	Nodes []*Server

	primaries int
	replicas  int // of each primary
}

// StartCluster runs a Redis Cluster for one test: so many primaries, which
// share the slots evenly, and so many replicas of each. It returns when every
// node says that the cluster is well, every replica has its primary's data and
// a go-redis ClusterClient sees them all, which takes 2 to 3 seconds. Nodes
// hold each other for failed after 1 second, without replicas after 15, and later on a machine that is slow.
// A failover needs more than half of the primaries alive, so three at least.
//
// Its nodes may be stopped, killed, paused and restarted one by one. At the
// end of the test they are stopped, and if it failed the end of each one's
// output is logged. The test fails at once if the cluster does not form.
func StartCluster(t testing.TB, primaries, replicas int) *Cluster {
	t.Helper()
	c, err := RunCluster(primaries, replicas)
	t.Cleanup(func() {
		c.Close()
		for _, node := range c.Nodes {
			node.logIfFailed(t)
		}
	})
	testkit.Must(t, err)
	return c
}

// RunCluster is StartCluster for a TestMain, which has no testing.TB: the caller must Close the cluster, before
// os.Exit, also if there is an error.
func RunCluster(primaries, replicas int) (*Cluster, error) {
	c := &Cluster{primaries: primaries, replicas: replicas}
	if primaries < 1 || replicas < 0 {
		return c, fmt.Errorf("redistest: no cluster has %d primaries and %d replicas", primaries, replicas)
	}
	timeout := clusterNodeTimeout
	if replicas == 0 {
		timeout = nodeTimeoutNoBackup
	}
	// Replication goes over the wire and starts at once: the default waits 5 seconds for more replicas to come. And
	// primaries ping them each second rather than every 10: a replica is not listed in CLUSTER SLOTS before its primary
	// has sent something.
	for range primaries * (1 + replicas) {
		node, err := run(&Server{args: []string{
			"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf",
			"--cluster-node-timeout", strconv.FormatInt(testkit.Scaled(timeout).Milliseconds(), 10), "--cluster-announce-ip",
			"127.0.0.1",
			"--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0",
			"--repl-ping-replica-period", "1",
		}})
		if err != nil {
			return c, err
		}
		c.Nodes = append(c.Nodes, node)
	}
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Scaled(clusterLimit))
	defer cancel()
	if err := c.form(ctx); err != nil {
		return c, fmt.Errorf("redistest: cluster: %w", err)
	}
	return c, nil
}

// Close ends all nodes as Server.Close does.
func (c *Cluster) Close() {
	for _, node := range c.Nodes {
		node.Close()
	}
}

// Output is what all nodes have logged so far.
func (c *Cluster) Output() string {
	var all strings.Builder
	for _, node := range c.Nodes {
		all.WriteString(node.Output())
	}
	return all.String()
}

// Addrs returns the addresses of all nodes, in the order of Nodes.
func (c *Cluster) Addrs() []string { return addrsOf(c.Nodes) }

// Client returns a new client of the cluster, with go-redis's defaults. It is
// closed at the end of the test. By these defaults it may go on to call a dead
// primary for a minute after the failover; its ReloadState shortens that.
func (c *Cluster) Client(t testing.TB) *redis.ClusterClient {
	cli := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	t.Cleanup(func() { _ = cli.Close() })
	return cli
}

// form makes one cluster of the nodes.
func (c *Cluster) form(ctx context.Context) error {
	clis := make([]*redis.Client, len(c.Nodes))
	for i, node := range c.Nodes {
		clis[i] = redis.NewClient(&redis.Options{Addr: node.Addr()})
		defer clis[i].Close()
	}
	for i, cli := range clis {
		// Epochs that differ spare the nodes from settling it themselves.
		if err := cli.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
			return fmt.Errorf("SET-CONFIG-EPOCH: %w", err)
		}
		if i < c.primaries {
			from, to := i*clusterSlots/c.primaries, (i+1)*clusterSlots/c.primaries-1
			if err := cli.ClusterAddSlotsRange(ctx, from, to).Err(); err != nil {
				return fmt.Errorf("ADDSLOTS: %w", err)
			}
		}
		if i > 0 {
			if err := clis[0].ClusterMeet(ctx, "127.0.0.1", strconv.Itoa(c.Nodes[i].port)).Err(); err != nil {
				return fmt.Errorf("MEET: %w", err)
			}
		}
	}
	if err := await(ctx, func() error { return c.allMet(ctx, clis) }); err != nil {
		return err
	}
	for i, cli := range clis[c.primaries:] {
		id, err := clis[i/c.replicas].Do(ctx, "CLUSTER", "MYID").Text()
		if err != nil {
			return fmt.Errorf("MYID: %w", err)
		}
		if err := cli.ClusterReplicate(ctx, id).Err(); err != nil {
			return fmt.Errorf("REPLICATE: %w", err)
		}
	}
	if err := await(ctx, func() error { return c.allWell(ctx, clis) }); err != nil {
		return err
	}
	return await(ctx, func() error { return c.clientSeesAll(ctx) })
}

// allMet returns an error unless every node knows every other by name.
func (c *Cluster) allMet(ctx context.Context, clis []*redis.Client) error {
	for i, cli := range clis {
		nodes, err := cli.ClusterNodes(ctx).Result()
		if err != nil {
			return err
		}
		if lines := strings.Count(nodes, "\n"); lines != len(clis) || strings.Contains(nodes, "handshake") {
			return fmt.Errorf("node %d has not met all:\n%s", i, nodes)
		}
	}
	return nil
}

// allWell returns an error unless every node says that the cluster is well,
// knows all nodes in their roles, and every replica follows its primary.
func (c *Cluster) allWell(ctx context.Context, clis []*redis.Client) error {
	for i, cli := range clis {
		info, err := cli.ClusterInfo(ctx).Result()
		if err != nil {
			return err
		}
		if !strings.Contains(info, "cluster_state:ok") {
			return fmt.Errorf("node %d is not well:\n%s", i, info)
		}
		//lint:ignore SA1019 servers before 7.0 do not know its successor, CLUSTER SHARDS
		slots, err := cli.ClusterSlots(ctx).Result()
		if err != nil {
			return err
		}
		for _, slot := range slots {
			if len(slots) != c.primaries || len(slot.Nodes) != 1+c.replicas {
				return fmt.Errorf("node %d does not see all yet: %v", i, slots)
			}
		}
		if i < c.primaries {
			continue
		}
		repl, err := cli.Info(ctx, "replication").Result()
		if err != nil {
			return err
		}
		if !strings.Contains(repl, "master_link_status:up") {
			return fmt.Errorf("node %d does not follow its primary yet:\n%s", i, repl)
		}
	}
	return nil
}

// clientSeesAll returns an error unless a fresh ClusterClient reaches every
// node.
func (c *Cluster) clientSeesAll(ctx context.Context) error {
	cli := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	defer cli.Close()
	var mu sync.Mutex
	seen := map[string]bool{}
	if err := cli.ForEachShard(ctx, func(ctx context.Context, node *redis.Client) error {
		mu.Lock()
		seen[node.Options().Addr] = true
		mu.Unlock()
		return node.Ping(ctx).Err()
	}); err != nil {
		return err
	}
	if len(seen) != len(c.Nodes) {
		return fmt.Errorf("the client sees %d nodes of %d", len(seen), len(c.Nodes))
	}
	return nil
}

// await calls f until it returns nil, or until ctx ends; then it returns the
// last error of f that is not merely that end.
func await(ctx context.Context, f func() error) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		err := f()
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), last)
		}
	}
}
