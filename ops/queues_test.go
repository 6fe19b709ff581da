package ops

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/redis/go-redis/v9"
)

func monitorQueues(f *face.Fixture, _ *Queue) {
	prefix := `odd*?[\]` + strings.ReplaceAll(f.Name, ":", "_")
	var made []string
	for i := range 3 {
		name := fmt.Sprint("q:", i)
		q := delayqueue.NewQueue(name, f.Cli, nil, delayqueue.UseCustomPrefix(prefix))
		f.Must(queuetest.Failure(q.Send(queuetest.CtxB, "x", face.InAnHour)))
		made = append(made, name)
		f.T.Cleanup(func() {
			_ = Of(delayqueue.NewMonitor(name, f.Cli, delayqueue.UseCustomPrefix(prefix))).DeleteQueue(queuetest.CtxB, true)
		})
	}
	other := delayqueue.NewQueue("other", f.Cli, nil, delayqueue.UseCustomPrefix(prefix+"x"))
	f.Must(queuetest.Failure(other.Send(queuetest.CtxB, "x", face.InAnHour)))
	f.T.Cleanup(func() {
		_ = Of(delayqueue.NewMonitor("other", f.Cli, delayqueue.UseCustomPrefix(prefix+"x"))).DeleteQueue(queuetest.CtxB,
			true)
	})
	for _, name := range []string{"part/7", "a}b"} { // what no queue is called
		key := "{" + prefix + ":" + name + "}:state"
		f.Must(f.Cli.HSet(queuetest.CtxB, key, "armed", 0).Err())
		f.T.Cleanup(func() { f.Cli.Del(queuetest.CtxB, key) })
	}
	var found []string
	for name, err := range Queues(queuetest.CtxB, f.Cli, delayqueue.UseCustomPrefix(prefix)) {
		f.Must(err)
		found = append(found, name)
	}
	slices.Sort(found)
	if !slices.Equal(found, made) {
		f.T.Errorf("found %q, want %q", found, made)
	}
}

// TestQueuesOfOneNode: a plain client of a Cluster says so; and a range that is down hides no other.
func TestQueuesOfOneNode(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3, 0)
	cli := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), MaxRedirects: 1, DialerRetries: 1})
	defer cli.Close()
	const n = 12
	for i := range n {
		_, err := delayqueue.NewPublisher(fmt.Sprint("q", i), cli).Send(queuetest.CtxB, "x", face.InAnHour)
		queuetest.Must(t, err)
	}
	one := queuetest.RedisClient(t, cluster.Addrs()[0])
	names, errs := queuesOf(one)
	if len(names) == 0 || len(names) >= n || len(errs) != 1 || !errors.Is(errs[0], ErrOneNode) {
		t.Errorf("one node: %q, %v", names, errs)
	}
	lost := len(names)
	if names, errs := queuesOf(cli); len(names) != n || len(errs) > 0 {
		t.Errorf("all: %q, %v", names, errs)
	}
	cluster.Nodes[0].Stop()
	if names, errs := queuesOf(cli); len(names) != n-lost || len(errs) != 1 {
		t.Errorf("one is down: %q, %v; want the other %d", names, errs, n-lost)
	}
}

func queuesOf(cli redis.UniversalClient) (names []string, errs []error) {
	for name, err := range Queues(queuetest.CtxB, cli) {
		if err != nil {
			errs = append(errs, err)
		} else {
			names = append(names, name)
		}
	}
	return names, errs
}
