package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
)

func (a *app) queuesCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "queues",
		Short: "List the queues of the prefix",
		Long:  "queues lists the queues of the prefix as they are found. It scans all keys of the server, page by page.",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := a.connect(c.Context()); err != nil {
				return err
			}
			_, err := a.discover(c.Context(), 0, func(name string) { a.say(map[string]string{"queue": name}, "%s", name) })
			return err
		},
	}
}

// A search goes through the keyspace of each server, a page at a time.
type search struct {
	pattern string
	found   func(key string) // called for one key at a time; SCAN may name a key twice
	pages   int              // at most for each server; 0: all
}

const (
	scanPage  = 1000
	hintPages = 100 // pages for a hint: 100,000 keys
)

// run searches all servers. whole says whether all keys were looked at, and the error says which servers could not be searched. A
// server that hangs does not keep the others from being searched.
func (s *search) run(ctx context.Context, cli redis.UniversalClient) (whole bool, err error) {
	var mu sync.Mutex
	var errs []error
	whole = true
	scan := func(ctx context.Context, node *redis.Client) error {
		complete, err := s.scan(ctx, node, &mu)
		mu.Lock()
		defer mu.Unlock()
		whole = whole && complete
		if err != nil {
			errs = append(errs, &nodeError{node.Options().Addr, err})
		}
		return nil
	}
	switch cli := cli.(type) {
	case *redis.Client:
		complete, err := s.scan(ctx, cli, &mu)
		return complete, err
	case *redis.ClusterClient:
		err = cli.ForEachMaster(ctx, scan)
	default:
		err = fmt.Errorf("no way to search a %T", cli)
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return whole && err == nil, errors.Join(append(errs, err)...)
}

func (s *search) scan(ctx context.Context, node *redis.Client, mu *sync.Mutex) (whole bool, err error) {
	var cursor uint64
	for page := 0; s.pages == 0 || page < s.pages; page++ {
		soon, cancel := context.WithTimeout(ctx, patience)
		keys, next, err := node.Scan(soon, cursor, s.pattern, scanPage).Result()
		cancel()
		if err != nil {
			return false, err
		}
		mu.Lock()
		for _, key := range keys {
			s.found(key)
		}
		mu.Unlock()
		if cursor = next; cursor == 0 {
			return true, nil
		}
	}
	return false, nil
}

// A nodeError is the error of one node of a Cluster.
type nodeError struct {
	addr string
	err  error
}

func (e *nodeError) Error() string { return fmt.Sprintf("node %s: %v", e.addr, e.err) }
func (e *nodeError) Unwrap() error { return e.err }

// discover calls found once for each queue of the prefix. The error says which servers could not be searched; the queues of the
// others are found all the same.
func (a *app) discover(ctx context.Context, pages int, found func(name string)) (whole bool, err error) {
	head, tail := "{"+a.prefix+":", "}:state"
	seen := map[string]bool{}
	s := search{pattern: globEscape(head) + "*" + globEscape(tail), pages: pages, found: func(key string) {
		name := strings.TrimSuffix(strings.TrimPrefix(key, head), tail)
		if !seen[name] && validName(name) == nil {
			seen[name] = true
			found(name)
		}
	}}
	return s.run(ctx, a.cli)
}

// noQueue is the error for a queue that is not there. It suggests a similar name, or another prefix that has the name, from the first
// keys of the server.
func (a *app) noQueue(ctx context.Context, name, seen string) error {
	ctx, cancel := context.WithTimeout(ctx, hintTime)
	defer cancel()
	var names, prefixes []string
	s := search{pattern: "{*:*}:state", pages: hintPages, found: func(key string) {
		inner := strings.TrimSuffix(strings.TrimPrefix(key, "{"), "}:state")
		if own, ok := strings.CutPrefix(inner, a.prefix+":"); ok && own != name { // a queue that this user may not see has this very name
			names = append(names, own)
		} else if other, ok := strings.CutSuffix(inner, ":"+name); ok {
			prefixes = append(prefixes, other)
		}
	}}
	whole, err := s.run(ctx, a.cli)
	slices.Sort(prefixes)
	hint := didYouMean(nearest(name, names), "")
	switch {
	case hint != "":
	case len(prefixes) > 0:
		hint = fmt.Sprintf(": the prefix %q has one: did you mean --prefix %s?", prefixes[0], shellQuote(prefixes[0]))
	case whole && len(names) == 0 && seen == "":
		hint = ": it has none at all"
	case err == nil && !whole:
		hint = fmt.Sprintf(", nor one like it among the first %d keys", hintPages*scanPage)
	}
	return fail(exitNotFound, "there is no queue %q under the prefix %q%s%s", name, a.prefix, seen,
		cmp.Or(hint, ": delayqueue queues lists them"))
}

// globEscape escapes a text for a pattern of Redis.
func globEscape(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}
