package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrOneNode: this client knows one node of a Cluster, and so the queues of that node alone.
var ErrOneNode = errors.New("this is one node of a Cluster and these are its own queues: make a client with NewClusterClient")

// Queues finds the queues under a prefix (UseCustomPrefix; dq without it), in no order, a page of the
// keyspace at a time: it takes as long as the server has keys. Of a Cluster all primaries are asked side by side. An
// error is of one of them and the rest is gone on with; it is the end if it is ctx's. ErrOneNode comes last.
func Queues(ctx context.Context, cli redis.UniversalClient, opts ...QueueOption) iter.Seq2[string, error] {
	id := identity{prefix: "dq"}
	for _, opt := range opts {
		opt(&id)
	}
	return func(yield func(string, error) bool) {
		fail := func(err error) bool {
			return yield("", fmt.Errorf("delayqueue: queues of prefix %q: %w", id.prefix, err))
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		nodes, err := primaries(ctx, cli)
		if err != nil {
			fail(err)
			return
		}
		found := make(chan foundQueue)
		for _, node := range nodes {
			go scanQueues(ctx, node, id.prefix, found)
		}
		seen := map[string]bool{} // SCAN may name a key twice
		for left := len(nodes); left > 0; {
			select {
			case <-ctx.Done(): // a server that does not answer is not waited for
				fail(ended(ctx))
				return
			case q := <-found:
				switch {
				case q.end && q.err == nil:
					left--
				case q.end:
					left--
					if !fail(q.err) {
						return
					}
				case !seen[q.name]:
					seen[q.name] = true
					if !yield(q.name, nil) {
						return
					}
				}
			}
		}
		if one, ok := cli.(*redis.Client); ok && inCluster(ctx, one) {
			fail(ErrOneNode)
		}
	}
}

// hedge is when one more node is asked who the primaries are: the first may hang.
const hedge = 300 * time.Millisecond

// primaries are the servers that hold the keys.
func primaries(ctx context.Context, cli redis.UniversalClient) ([]*redis.Client, error) {
	var cluster *redis.ClusterClient
	switch cli := cli.(type) {
	case *redis.Client:
		return []*redis.Client{cli}, nil
	case *redis.ClusterClient:
		cluster = cli
	case *redis.Ring:
		return nil, errRing
	default:
		return nil, fmt.Errorf("%w: %T", errNoNode, cli)
	}
	type answer struct {
		nodes []*redis.Client
		err   error
	}
	const most = 5
	answers := make(chan answer, most)
	ask := func() {
		var mu sync.Mutex
		var a answer
		a.err = cluster.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			a.nodes = append(a.nodes, node)
			return nil
		})
		answers <- a
	}
	go ask()
	again := time.NewTicker(hedge)
	defer again.Stop()
	for asked := 1; ; {
		select {
		case a := <-answers:
			return a.nodes, a.err
		case <-again.C:
			if asked < most {
				asked++
				go ask()
			}
		case <-ctx.Done():
			return nil, ended(ctx)
		}
	}
}

// foundQueue is a name, or the end of what one server has.
type foundQueue struct {
	name string
	err  error
	end  bool
}

func scanQueues(ctx context.Context, node *redis.Client, prefix string, found chan<- foundQueue) {
	head, tail := "{"+prefix+":", "}:state"
	say := func(q foundQueue) bool {
		select {
		case found <- q:
			return true
		case <-ctx.Done():
			return false
		}
	}
	pages := node.Scan(ctx, 0, globEscape(head)+"*"+globEscape(tail), 1000).Iterator()
	for pages.Next(ctx) {
		name := strings.TrimSuffix(strings.TrimPrefix(pages.Val(), head), tail)
		if validName(name) && !say(foundQueue{name: name}) {
			return
		}
	}
	err := pages.Err()
	if err != nil {
		err = fmt.Errorf("%s: %w", node.Options().Addr, err)
	}
	say(foundQueue{err: err, end: true})
}

// inCluster asks by HELLO, which every user may.
func inCluster(ctx context.Context, node *redis.Client) bool {
	said, err := node.Do(ctx, "hello").Result()
	if err != nil {
		return false
	}
	switch said := said.(type) {
	case map[any]any:
		return said["mode"] == "cluster"
	case []any:
		for i := 0; i+1 < len(said); i += 2 {
			if said[i] == "mode" {
				return said[i+1] == "cluster"
			}
		}
	}
	return false
}

// globEscape makes Redis take a text as it is in a pattern.
func globEscape(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}
