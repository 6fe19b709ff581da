package link

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/redis/go-redis/v9"
)

// patient is a server whose attempts last as long as a test waits.
func patient(cli redis.UniversalClient, slot string) *Server {
	s := NewServer(cli, slot)
	s.AttemptTimeout = queuetest.Patience
	return s
}

// call makes one attempt at a call of a server, about its slot.
func call(s *Server) error {
	return s.Attempt(queuetest.CtxB, Effort{Call: func(ctx context.Context, cli redis.UniversalClient) error {
		return cli.Exists(ctx, s.slot).Err()
	}})
}

// ping calls a server over the link of a client.
func ping(cli redis.UniversalClient) error { return call(patient(cli, "a key")) }

// TestLinkIsIdle: connections of the library's own are closed when nobody has used them for a while, and not before.
func TestLinkIsIdle(t *testing.T) {
	t.Parallel()
	f := queuetest.NewBase(t)
	name := fmt.Sprint(t.Name(), time.Now().UnixNano()) // a run before this one may have left connections
	cli := redis.NewClient(&redis.Options{Addr: queuetest.Shared.Addr(), ClientName: name})
	t.Cleanup(func() { _ = cli.Close() })
	connections := func() int {
		list, err := f.Cli.ClientList(queuetest.CtxB).Result()
		f.Must(err)
		return strings.Count(list, "name="+name+" ")
	}
	f.Must(ping(cli))
	queuetest.Eventually(t, "the connection is closed", func() bool { return connections() == 0 })
	f.Must(ping(cli)) // over a new one
}

// TestHasty: a caller whose own time ends before the answer comes costs its neighbours no connection, unless nobody
// else got an answer meanwhile.
func TestHasty(t *testing.T) {
	t.Parallel()
	s := patient(queuetest.NewBase(t).Client(), "a key")
	hasty := func(meanwhile func()) *pool {
		p := s.Link.poolAt(place{})
		ctx, cancel := context.WithTimeout(queuetest.CtxB, 10*time.Millisecond)
		defer cancel()
		if err := s.Attempt(ctx, Effort{Call: func(ctx context.Context, _ redis.UniversalClient) error {
			meanwhile()
			<-ctx.Done()
			return ctx.Err()
		}}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a hasty call: %v", err)
		}
		queuetest.Eventually(t, "its connection is given back", func() bool { return len(p.inFlight) == 0 })
		return p
	}
	answered := hasty(func() { _ = call(s) })
	silent := hasty(func() {})
	if answered != silent {
		t.Error("the connections are not trusted, though a neighbour got an answer")
	}
	queuetest.Eventually(t, "the connections are not trusted, because nobody got an answer", silent.retired)
}

// TestLinkIsForgotten: the link of a client is shared while somebody has it, and then forgotten with the client.
func TestLinkIsForgotten(t *testing.T) {
	t.Parallel()
	cli := queuetest.NewBase(t).Client()
	one, other := NewServer(cli, "a"), NewServer(cli, "b")
	if one.Link != other.Link {
		t.Error("two queues on one client have two links")
	}
	runtime.KeepAlive(one)
	queuetest.Eventually(t, "it is forgotten", func() bool {
		runtime.GC()
		links.mu.Lock()
		defer links.mu.Unlock()
		_, known := links.byClient[cli]
		return !known
	})
}

// TestLinkOfClosedClient: who has closed the client has closed the queue's connections too, as they are replaced, if
// nothing consumes.
func TestLinkOfClosedClient(t *testing.T) {
	t.Parallel()
	f := queuetest.NewBase(t)
	for name, cli := range map[string]redis.UniversalClient{
		"client": f.Client(), "client in use": f.Client(),
		"Cluster in use": queuetest.OneNodeCluster(t, queuetest.Shared.Addr),
	} {
		l := linkOf(cli)
		if strings.Contains(name, "in use") {
			f.Must(ping(cli))
		}
		if _, ok := cli.(*redis.ClusterClient); ok {
			left := queuetest.Shared.Client(t) // a node that has left the Cluster
			f.Must(left.Close())
			l.node.Store(left)
			renew(l)
			f.Must(ping(cli))
		}
		f.Must(cli.Close())
		renew(l)
		if err := ping(cli); !errors.Is(err, redis.ErrClosed) || Transient(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// renew has later calls take new connections.
func renew(l *Link) {
	l.mu.Lock()
	all := slices.Collect(maps.Values(l.pools))
	l.mu.Unlock()
	for _, p := range all {
		l.retire(p)
	}
}
