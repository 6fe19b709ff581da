package delayqueue

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/redis/go-redis/v9"
)

func TestQueues(t *testing.T) { onSharedServer(t, monitorQueues) }

func monitorQueues(f *fixture, _ *Monitor) {
	prefix := `odd*?[\]` + strings.ReplaceAll(f.name, ":", "_")
	var made []string
	for i := range 3 {
		name := fmt.Sprint("q:", i)
		q := NewQueue(name, f.cli, nil, UseCustomPrefix(prefix))
		_, err := q.Send(ctxB, "x", inAnHour)
		f.must(err)
		made = append(made, name)
		f.t.Cleanup(func() { _ = NewMonitor(name, f.cli, UseCustomPrefix(prefix)).DeleteQueue(ctxB, true) })
	}
	other := NewQueue("other", f.cli, nil, UseCustomPrefix(prefix+"x"))
	_, err := other.Send(ctxB, "x", inAnHour)
	f.must(err)
	f.t.Cleanup(func() { _ = NewMonitor("other", f.cli, UseCustomPrefix(prefix+"x")).DeleteQueue(ctxB, true) })
	for _, name := range []string{"part/7", "a}b"} { // what no queue is called
		key := "{" + prefix + ":" + name + "}:state"
		f.must(f.cli.HSet(ctxB, key, "armed", 0).Err())
		f.t.Cleanup(func() { f.cli.Del(ctxB, key) })
	}
	var found []string
	for name, err := range Queues(ctxB, f.cli, UseCustomPrefix(prefix)) {
		f.must(err)
		found = append(found, name)
	}
	slices.Sort(found)
	if !slices.Equal(found, made) {
		f.t.Errorf("found %q, want %q", found, made)
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
		_, err := NewPublisher(fmt.Sprint("q", i), cli).Send(ctxB, "x", inAnHour)
		if err != nil {
			t.Fatal(err)
		}
	}
	one := redis.NewClient(&redis.Options{Addr: cluster.Addrs()[0]})
	defer one.Close()
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
	for name, err := range Queues(ctxB, cli) {
		if err != nil {
			errs = append(errs, err)
		} else {
			names = append(names, name)
		}
	}
	return names, errs
}
