package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/health"
	"github.com/go-delayqueue/delayqueue/schedule"
)

// What breaks no invariant, and still keeps messages from being handled, or endangers them.
const (
	noConsumer check.Kind = "due, and no consumer"
	deadLease  check.Kind = "lease long over"
	unwell     check.Kind = "server in trouble"
	throttled  check.Kind = "throttled for long"

	schedulesNotRun check.Kind = "nobody runs the schedules"
	scheduleStuck   check.Kind = "schedule is not sent"
)

// longOver is how long after its end a lease shows that nobody fetches: consumers that live take it back within
// seconds.
const longOver = time.Minute

// standstill looks for that. What it may not read it leaves out.
func (a *app) standstill(ctx context.Context, q check.Queue, s *check.State, l *health.Look) (found []check.Finding) {
	add := func(kind check.Kind, structure, item, format string, args ...any) {
		found = append(found, check.Finding{Kind: kind, Structure: structure, Item: item,
			Text: structure + ": " + fmt.Sprintf(format, args...) + "."})
	}
	if len(s.WrongType) == 0 {
		switch v := l.Judge(); {
		case v.Code == health.NoConsumers && v.Level == health.Critical:
			add(noConsumer, "queue", q.Name, "%s", a.words(v.Text))
		case v.Code == health.Throttled && v.Level == health.Warning:
			add(throttled, "queue", q.Name, "%s", a.words(v.Text))
		}
		for _, e := range s.Unack {
			if over := time.Duration(s.Now-e.Score) * time.Microsecond; e.Score > 0 && over > longOver && a.stillHeld(ctx, q, e) {
				add(deadLease, "unack", e.Tag, "the lease of message %s ended %s ago", e.ID, brief(over))
			}
		}
	}
	found = append(found, a.schedulesStandStill(ctx, q)...)
	for _, c := range a.server(ctx, q) {
		if c.Level == health.Critical {
			add(unwell, "server", a.words(c.Name), "%s: %s. %s", a.words(c.Name), a.words(c.Found), strings.TrimSuffix(a.words(c.Advice), "."))
		}
	}
	return found
}

// schedulesStandStill looks for schedules that are not sent: all of them, or some.
func (a *app) schedulesStandStill(ctx context.Context, q check.Queue) (found []check.Finding) {
	all, err := schedule.List(ctx, a.newMonitor(q.Name))
	if err != nil {
		return nil
	}
	notRun := 0
	for _, s := range all {
		text := ""
		switch {
		case errors.Is(s.Trouble, schedule.ErrNotRun):
			notRun++
		case s.Trouble != nil:
			text = s.Trouble.Error()
		case !s.Overdue.IsZero():
			text = "its instant " + at(s.Overdue) + " is overdue"
		}
		if text != "" {
			found = append(found, check.Finding{Kind: scheduleStuck, Structure: "schedules", Item: s.Name,
				Text: fmt.Sprintf("schedules: %s: %s.", s.Name, text)})
		}
	}
	if notRun > 0 {
		since := "no replica ever looked"
		if looked := all[0].Looked; !looked.IsZero() {
			since = "the last replica looked " + at(looked)
		}
		found = append(found, check.Finding{Kind: schedulesNotRun, Structure: "schedules", Item: q.Name,
			Text: fmt.Sprintf("schedules: nobody runs %s: %s.", plural(notRun, "schedule"), since)})
	}
	return found
}

// stillHeld: it was read some time ago.
func (a *app) stillHeld(ctx context.Context, q check.Queue, e check.Entry) bool {
	score, err := a.cli.ZScore(ctx, q.Key("unack"), e.Tag).Result()
	return err == nil && int64(score) == e.Score
}

// server is what the server of the queue says of itself; nothing if it does not tell.
func (a *app) server(ctx context.Context, q check.Queue) []health.Check {
	var node redis.Cmdable = a.cli
	if cluster, ok := a.cli.(*redis.ClusterClient); ok {
		master, err := cluster.MasterForKey(ctx, q.Key("msg"))
		if err != nil {
			return nil
		}
		node = master
	}
	text, err := node.Info(ctx).Result()
	if err != nil {
		return nil
	}
	return health.InfoOf(text).Checks()
}
