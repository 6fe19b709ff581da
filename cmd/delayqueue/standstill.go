package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-delayqueue/delayqueue/internal/check"
)

// What breaks no invariant, and still keeps messages from being handled, or endangers them.
const (
	noConsumer check.Kind = "due, and no consumer"
	deadLease  check.Kind = "lease long over"
	evicts     check.Kind = "server evicts"
	throttled  check.Kind = "throttled for long"
)

// longThrottled is how long what is due has waited when a Throttle, which lasts for an hour at most, was said again and again.
const longThrottled = time.Hour

// longOver is how long after its end a lease shows that nobody fetches: consumers that live take it back within
// seconds.
const longOver = time.Minute

// standstill looks for that. What it may not read it leaves out.
func (a *app) standstill(ctx context.Context, q check.Queue, s *check.State) (found []check.Finding) {
	add := func(kind check.Kind, structure, item, format string, args ...any) {
		found = append(found, check.Finding{Kind: kind, Structure: structure, Item: item, Text: structure + ": " + fmt.Sprintf(format, args...) + "."})
	}
	m := a.newMonitor(q.Name)
	if len(s.WrongType) == 0 {
		counts, err := m.Counts(ctx)
		alive, cerr := m.Consumers(ctx)
		if err == nil && cerr == nil && len(alive) == 0 && counts.Ready > 0 && !counts.Paused {
			add(noConsumer, "ready", q.Name, "%s due, the oldest for %s, and no consumer is alive", plural(int(counts.Ready), "message")+are(counts.Ready), brief(counts.Behind))
		}
		if err == nil && !counts.Paused && !counts.ThrottledUntil.IsZero() && counts.Behind > longThrottled {
			add(throttled, "state", q.Name, "handlers have throttled the queue until %s, and the oldest message that is due has waited for %s", at(counts.ThrottledUntil), brief(counts.Behind))
		}
		for _, e := range s.Unack {
			if over := time.Duration(s.Now-e.Score) * time.Microsecond; e.Score > 0 && over > longOver && a.stillHeld(ctx, q, e) {
				add(deadLease, "unack", e.Tag, "the lease of message %s ended %s ago", e.ID, brief(over))
			}
		}
	}
	if policy := a.eviction(ctx, q); policy != "" {
		add(evicts, "server", policy, "maxmemory is set, and maxmemory-policy is %s", policy)
	}
	return found
}

// stillHeld: it was read some time ago.
func (a *app) stillHeld(ctx context.Context, q check.Queue, e check.Entry) bool {
	score, err := a.cli.ZScore(ctx, q.Key("unack"), e.Tag).Result()
	return err == nil && int64(score) == e.Score
}

func are(n int64) string {
	if n == 1 {
		return " is"
	}
	return " are"
}

// eviction is the policy of the queue's server if that may delete messages; "" also if it does not tell.
func (a *app) eviction(ctx context.Context, q check.Queue) string {
	var node redis.Cmdable = a.cli
	if cluster, ok := a.cli.(*redis.ClusterClient); ok {
		master, err := cluster.MasterForKey(ctx, q.Key("msg"))
		if err != nil {
			return ""
		}
		node = master
	}
	text, err := node.Info(ctx, "memory").Result()
	if err != nil {
		return ""
	}
	info := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		info[name] = value
	}
	policy := info["maxmemory_policy"]
	if info["maxmemory"] == "0" || policy == "noeviction" || strings.HasPrefix(policy, "volatile-") { // the keys of a queue do not expire
		return ""
	}
	return policy
}
