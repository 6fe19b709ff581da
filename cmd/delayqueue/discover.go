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
)

// A search goes through the keyspace of each server, a page at a time.
type search struct {
	pattern string
	found   func(key string) // for one at a time; SCAN may name a key twice
	pages   int              // most for each server; 0: all
}

const (
	scanPage  = 1000
	hintPages = 100 // for a hint alone: 100,000 keys
)

// run says which servers could not be searched, and whether all keys of the others were looked at. One server
// that hangs keeps no other from being searched.
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

// A nodeError is a node of a Cluster that does not serve.
type nodeError struct {
	addr string
	err  error
}

func (e *nodeError) Error() string { return fmt.Sprintf("node %s: %v", e.addr, e.err) }
func (e *nodeError) Unwrap() error { return e.err }

// discover calls found once for each queue of the prefix. Its error is about the servers that could not be
// searched; what the others have was found all the same.
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

// noQueue says that there is no such queue, and which may have been meant: of this prefix, or the same name under
// another one. It looks at so many keys as take no time.
func (a *app) noQueue(ctx context.Context, name, seen string) error {
	ctx, cancel := context.WithTimeout(ctx, hintTime)
	defer cancel()
	var names, prefixes []string
	s := search{pattern: "{*:*}:state", pages: hintPages, found: func(key string) {
		inner := strings.TrimSuffix(strings.TrimPrefix(key, "{"), "}:state")
		if own, ok := strings.CutPrefix(inner, a.prefix+":"); ok && own != name { // one that may not be seen has this very name
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

// globEscape makes Redis take a text as it is in a pattern.
func globEscape(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}
