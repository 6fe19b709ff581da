package redistest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/redis/go-redis/v9"
)

// SentinelMaster is the name under which sentinels know the primary.
const SentinelMaster = "main"

// sentinelLimit is how long sentinels have to find each other, which they do by a message
// every 2 seconds.
const sentinelLimit = 2 * time.Minute

// downAfter is after how long without an answer a primary counts as failed, on an idle machine.
const downAfter = 2 * time.Second

// Sentinel is a primary with replicas, and the sentinels that promote one of them when it fails.
type Sentinel struct {
	// Nodes are the servers with data. The first was made the primary; a failover changes the
	// roles, not the order.
	Nodes []*Server
	// Sentinels watch the nodes.
	Sentinels []*Server
}

// StartSentinel runs a primary, so many replicas of it, and so many sentinels for one test. It returns when every
// replica has the primary's data and every sentinel knows all others and all replicas. A primary that does not answer
// for 2 seconds, or longer on a machine that is slow, counts as failed once more than half of the sentinels say so,
// and one of the replicas is promoted a second or two later.
//
// All of them may be stopped, killed, paused and restarted one by one. A node that is
// restarted comes back as it was made, the first as a primary, and the sentinels turn it into
// a replica, which takes them some 10 seconds. At the end of the test all are stopped, and if
// it failed the end of each one's output is logged.
func StartSentinel(t testing.TB, replicas, sentinels int) *Sentinel {
	t.Helper()
	s := &Sentinel{}
	sync := []string{"--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0"}
	primary := start(t, &Server{args: sync})
	s.Nodes = append(s.Nodes, primary)
	port := strconv.Itoa(primary.port)
	for range replicas {
		s.Nodes = append(s.Nodes,
			start(t, &Server{args: append(sync[:len(sync):len(sync)], "--replicaof", "127.0.0.1", port)}))
	}
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Scaled(sentinelLimit))
	defer cancel()
	// Sentinels see at once who is there already, and others in 10 seconds only.
	if err := await(ctx, func() error { return s.replicated(ctx) }); err != nil {
		t.Fatalf("redistest: sentinel: %v", err)
	}
	for range sentinels {
		s.Sentinels = append(s.Sentinels, start(t, &Server{conf: fmt.Sprintf(
			"sentinel monitor %[1]s 127.0.0.1 %[2]s %[3]d\n"+
				"sentinel down-after-milliseconds %[1]s %[5]d\nsentinel failover-timeout %[1]s 3000\nsentinel parallel-syncs "+
				"%[1]s %[4]d\n",
			SentinelMaster, port, sentinels/2+1, max(replicas, 1), testkit.Scaled(downAfter).Milliseconds())}))
	}
	if err := await(ctx, func() error { return s.watched(ctx) }); err != nil {
		t.Fatalf("redistest: sentinel: %v", err)
	}
	return s
}

// Addrs returns the addresses of the sentinels, which is what a client wants.
func (s *Sentinel) Addrs() []string { return addrsOf(s.Sentinels) }

// Client returns a new client that follows the primary. It is closed at the end of the test.
func (s *Sentinel) Client(t testing.TB) *redis.Client {
	cli := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: SentinelMaster, SentinelAddrs: s.Addrs()})
	t.Cleanup(func() { _ = cli.Close() })
	return cli
}

// Primary returns the node that every sentinel takes for the primary, nil while they disagree.
func (s *Sentinel) Primary(ctx context.Context) *Server {
	agreed := ""
	for _, sentinel := range s.Sentinels {
		known, err := s.ask(ctx, sentinel)
		if err != nil || agreed != "" && known["port"] != agreed {
			return nil
		}
		agreed = known["port"]
	}
	for _, node := range s.Nodes {
		if strconv.Itoa(node.port) == agreed {
			return node
		}
	}
	return nil
}

// ask returns what a sentinel knows of the primary.
func (s *Sentinel) ask(ctx context.Context, sentinel *Server) (map[string]string, error) {
	cli := redis.NewSentinelClient(&redis.Options{Addr: sentinel.Addr()})
	defer cli.Close()
	return cli.Master(ctx, SentinelMaster).Result()
}

// replicated returns an error unless every other node has the first one's data.
func (s *Sentinel) replicated(ctx context.Context) error {
	cli := redis.NewClient(&redis.Options{Addr: s.Nodes[0].Addr()})
	defer cli.Close()
	info, err := cli.Info(ctx, "replication").Result()
	if err == nil && strings.Count(info, "state=online") != len(s.Nodes)-1 {
		err = fmt.Errorf("not every replica is online:\n%s", info)
	}
	return err
}

// watched returns an error unless every sentinel knows all others and all replicas.
func (s *Sentinel) watched(ctx context.Context) error {
	for i, sentinel := range s.Sentinels {
		known, err := s.ask(ctx, sentinel)
		if err != nil {
			return err
		}
		for field, want := range map[string]string{
			"flags": "master", "num-slaves": strconv.Itoa(len(s.Nodes) - 1),
			"num-other-sentinels": strconv.Itoa(len(s.Sentinels) - 1),
		} {
			if known[field] != want {
				return fmt.Errorf("sentinel %d: %s is %q, want %s", i, field, known[field], want)
			}
		}
	}
	return nil
}
