package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
)

func (a *app) queuesCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "queues",
		Short: "List the queues of the prefix",
		Long: "queues lists the queues of the prefix as they are found. It scans all keys of\n" +
			"the server, page by page.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := a.connect(c.Context()); err != nil {
				return err
			}
			err := a.discover(c.Context(), func(name string) { a.say(map[string]string{"queue": name}, "%s", name) })
			return missingFromList(err)
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

// run searches all servers. The error says which servers could not be searched. A server that hangs does not keep the
// others from being searched.
func (s *search) run(ctx context.Context, cli redis.UniversalClient) error {
	var mu sync.Mutex
	cluster, ok := cli.(*redis.ClusterClient)
	if !ok {
		return s.scan(ctx, cli, &mu)
	}
	nodes, err := link.Primaries(ctx, cluster)
	errs := []error{err}
	var searching sync.WaitGroup
	for _, node := range nodes {
		searching.Go(func() {
			if err := s.scan(ctx, node, &mu); err != nil {
				if link.TimedOut(err) {
					link.NoteSilent(cli, node.Options().Addr)
				}
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, fmt.Errorf("node %s: %w", node.Options().Addr, err))
			}
		})
	}
	searching.Wait()
	slices.SortFunc(errs[1:], func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

func (s *search) scan(ctx context.Context, node redis.Cmdable, mu *sync.Mutex) error {
	var cursor uint64
	for page := 0; s.pages == 0 || page < s.pages; page++ {
		soon, cancel := context.WithTimeout(ctx, link.ReadFor)
		keys, next, err := node.Scan(soon, cursor, s.pattern, scanPage).Result()
		cancel()
		if err != nil {
			return err
		}
		mu.Lock()
		for _, key := range keys {
			s.found(key)
		}
		mu.Unlock()
		if cursor = next; cursor == 0 {
			return nil
		}
	}
	return nil
}

// discover calls found once for each queue of the prefix. The error says which servers could not be searched; the
// queues of the others are found all the same.
func (a *app) discover(ctx context.Context, found func(name string)) error {
	head, tail := "{"+a.prefix+":", "}:state"
	seen := map[string]bool{}
	s := search{pattern: globEscape(head) + "*" + globEscape(tail), found: func(key string) {
		name := strings.TrimSuffix(strings.TrimPrefix(key, head), tail)
		if !seen[name] && validName(name) == nil {
			seen[name] = true
			found(name)
		}
	}}
	return s.run(ctx, a.cli)
}

// missingFromList says of an error of discover what it means for the list.
func missingFromList(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("queues may be missing from the list: %w", err)
}

// noQueue is the error for a queue that is not there. It suggests a similar name, or another prefix that has the
// name, from the first keys of the server.
func (a *app) noQueue(ctx context.Context, name, seen string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var names, prefixes []string
	s := search{pattern: "{*:*}:state", pages: hintPages, found: func(key string) {
		inner := strings.TrimSuffix(strings.TrimPrefix(key, "{"), "}:state")
		if own, ok := strings.CutPrefix(inner, a.prefix+":"); ok &&
			own != name { // a queue that this user may not see has this very name
			names = append(names, own)
		} else if other, ok := strings.CutSuffix(inner, ":"+name); ok {
			prefixes = append(prefixes, other)
		}
	}}
	_ = s.run(ctx, a.cli) // a hint comes of what was found before an error
	slices.Sort(prefixes)
	hint := didYouMean(name, names)
	if hint == "" && len(prefixes) > 0 {
		hint = fmt.Sprintf(": the prefix %q has one: did you mean --prefix %s?", prefixes[0], shellQuote(prefixes[0]))
	}
	return fail(exitNotFound, "there is no queue %q under the prefix %q%s%s", name, a.prefix, seen,
		cmp.Or(hint, ": delayqueue queues lists them"))
}

// globEscape escapes a text for a pattern of Redis.
func globEscape(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}
