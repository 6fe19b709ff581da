package ops

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/redis/go-redis/v9"
)

// ErrOneNode: this client knows only one node of a Cluster, and so only the queues of that node.
var ErrOneNode = errors.New(
	"this is one node of a Cluster and these are its own queues: make a client with NewClusterClient")

// Queues finds the queues under a prefix (UseCustomPrefix; default dq), in no order. It goes through the whole
// keyspace of the server, page by page. In a Cluster it goes through all primaries at a time. An error of one primary
// does not end it, but an error of ctx does. ErrOneNode comes last.
func Queues(ctx context.Context, cli redis.UniversalClient, opts ...delayqueue.QueueOption) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		prefix := ""
		if _, ring := cli.(*redis.Ring); !ring {
			_, prefix = delayqueue.NewMonitor("any", cli, opts...).Redis()
		}
		fail := func(err error) bool {
			return yield("", fmt.Errorf("delayqueue: queues of prefix %q: %w", prefix, err))
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		nodes, err := link.Primaries(ctx, cli)
		if err != nil {
			fail(err)
			return
		}
		found := make(chan foundQueue)
		for _, node := range nodes {
			go scanQueues(ctx, cli, node, prefix, found)
		}
		seen := map[string]bool{} // SCAN may name a key twice
		for left := len(nodes); left > 0; {
			select {
			case <-ctx.Done(): // without waiting for a server that does not answer
				fail(link.Ended(ctx))
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

// foundQueue is the name of a queue, or the end of one server's keyspace.
type foundQueue struct {
	name string
	err  error
	end  bool
}

func scanQueues(ctx context.Context, cli redis.UniversalClient, node *redis.Client, prefix string,
	found chan<- foundQueue) {
	head, tail := "{"+prefix+":", "}:state"
	say := func(q foundQueue) bool {
		select {
		case found <- q:
			return true
		case <-ctx.Done():
			return false
		}
	}
	for cursor, more := uint64(0), true; more; {
		keys, next, err := scanPage(ctx, node, cursor, globEscape(head)+"*"+globEscape(tail))
		if err != nil {
			if link.TimedOut(err) {
				link.NoteSilent(cli, node.Options().Addr)
			}
			say(foundQueue{err: fmt.Errorf("%s: %w", node.Options().Addr, err), end: true})
			return
		}
		for _, key := range keys {
			name := strings.TrimSuffix(strings.TrimPrefix(key, head), tail)
			if script.ValidName(name) && !say(foundQueue{name: name}) {
				return
			}
		}
		cursor, more = next, next != 0
	}
	say(foundQueue{end: true})
}

// scanPage reads a page. It waits no longer than link.ReadFor, also if the user's client does.
func scanPage(ctx context.Context, node *redis.Client, cursor uint64, pattern string) ([]string, uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, link.ReadFor)
	defer cancel()
	page := make(chan *redis.ScanCmd, 1)
	go func() { page <- node.Scan(ctx, cursor, pattern, 1000) }()
	select {
	case cmd := <-page:
		return cmd.Result()
	case <-ctx.Done():
		return nil, 0, link.Ended(ctx)
	}
}

// inCluster asks with HELLO, which every user may call.
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

// globEscape makes a pattern that matches this text only.
func globEscape(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}
