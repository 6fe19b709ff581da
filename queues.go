package delayqueue

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Queues finds the queues under a prefix (UseCustomPrefix; dq without it), in no order, a page of the
// keyspace at a time: it takes as long as the server has keys. It ends after the first error.
func Queues(ctx context.Context, cli redis.UniversalClient, opts ...QueueOption) iter.Seq2[string, error] {
	id := identity{prefix: "dq"}
	for _, opt := range opts {
		opt(&id)
	}
	return func(yield func(string, error) bool) {
		queues(ctx, cli, id.prefix, func(name string, err error) bool {
			if err != nil {
				err = fmt.Errorf("delayqueue: queues of prefix %q: %w", id.prefix, err)
			}
			return yield(name, err)
		})
	}
}

// queues finds the queues under a prefix on each server, a page of the keyspace at a time.
func queues(ctx context.Context, cli redis.UniversalClient, prefix string, yield func(string, error) bool) {
	head, tail := "{"+prefix+":", "}:state"
	pattern := globEscape(head) + "*" + globEscape(tail)
	var mu sync.Mutex
	var nodes []*redis.Client
	add := func(_ context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		nodes = append(nodes, node)
		return nil
	}
	var err error
	switch cli := cli.(type) {
	case *redis.Client:
		nodes = append(nodes, cli)
	case *redis.ClusterClient:
		err = cli.ForEachMaster(ctx, add)
	case *redis.Ring:
		err = cli.ForEachShard(ctx, add)
	default:
		err = fmt.Errorf("%w: %T", errNoNode, cli)
	}
	if err != nil {
		yield("", err)
		return
	}
	seen := map[string]bool{} // SCAN may name a key twice
	for _, node := range nodes {
		pages := node.Scan(ctx, 0, pattern, 1000).Iterator()
		for pages.Next(ctx) {
			name := strings.TrimSuffix(strings.TrimPrefix(pages.Val(), head), tail)
			if seen[name] {
				continue
			}
			seen[name] = true
			if !yield(name, nil) {
				return
			}
		}
		if err := pages.Err(); err != nil {
			yield("", err)
			return
		}
	}
}

// globEscape makes Redis take a text as it is in a pattern.
func globEscape(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}
