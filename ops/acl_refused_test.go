package ops

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/produce"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/redis/go-redis/v9"
)

// userActs are what can be done to a queue, by the names of docs/acl.md.
var userActs = map[string]func(ctx context.Context, as, admin redis.UniversalClient) error{
	"send": func(ctx context.Context, as, _ redis.UniversalClient) error {
		return queuetest.Failure(delayqueue.NewPublisher("orders", as).Send(ctx, "x"))
	},
	"consume": func(ctx context.Context, as, _ redis.UniversalClient) error {
		q := delayqueue.NewQueue("orders", as, nil).WithLogger(slog.New(slog.DiscardHandler))
		return queuetest.Failure(q.WithHandler(func(context.Context, *delayqueue.Message) error { return nil }).Drain(ctx))
	},
	"pause":  onQueue(func(ctx context.Context, m *Queue) error { return m.Pause(ctx) }),
	"resume": onQueue(func(ctx context.Context, m *Queue) error { return m.Resume(ctx) }),
	"set limits": onQueue(func(ctx context.Context, m *Queue) error {
		return queuetest.Failure(m.SetLimits(ctx, Limits{Concurrency: 5}))
	}),
	"lift a throttle": onQueue(func(ctx context.Context, m *Queue) error { return queuetest.Failure(m.Unthrottle(ctx)) }),
	"delete":          onMessage(func(ctx context.Context, m *Queue, id string) error { return m.Delete(ctx, id) }),
	"reschedule": onMessage(func(ctx context.Context, m *Queue, id string) error {
		return m.RescheduleBy(ctx, id, time.Hour)
	}),
	"take back": onMessage(func(ctx context.Context, m *Queue, id string) error {
		return queuetest.Failure(m.Cancel(ctx, id))
	}),
	"delete all": onQueue(func(ctx context.Context, m *Queue) error {
		return queuetest.Failure(m.BulkDelete(ctx, Bulk{States: []delayqueue.State{delayqueue.StatePending}}))
	}),
	"delete the queue": onQueue(func(ctx context.Context, m *Queue) error { return m.DeleteQueue(ctx, true) }),
	"drop a sequence":  onQueue(func(ctx context.Context, m *Queue) error { return m.DropSequence(ctx, "s") }),
	"count":            onQueue(func(ctx context.Context, m *Queue) error { return queuetest.Failure(m.Counts(ctx)) }),
	"list": onQueue(func(ctx context.Context, m *Queue) error {
		return queuetest.Failure(m.List(ctx, delayqueue.StatePending, Filter{}, ""))
	}),
	"look at a message": onMessage(func(ctx context.Context, m *Queue, id string) error {
		return queuetest.Failure(m.Get(ctx, id))
	}),
	"await": onQueue(func(ctx context.Context, m *Queue) error {
		return queuetest.Failure(m.Monitor().Await(ctx, "nobody"))
	}),
	"see lanes": func(ctx context.Context, as, admin redis.UniversalClient) error {
		_, err := delayqueue.NewPublisher("orders", admin).Send(ctx, "x", delayqueue.WithDelay(time.Hour),
			delayqueue.WithLane("l"))
		return errors.Join(err, queuetest.Failure(Of(delayqueue.NewMonitor("orders", as)).Lanes(ctx, 0, "")))
	},
	"see consumers": onQueue(func(ctx context.Context, m *Queue) error { return queuetest.Failure(m.Consumers(ctx)) }),
	"read the journal": onQueue(func(ctx context.Context, m *Queue) error {
		return queuetest.Failure(m.Journal(ctx, 5, ""))
	}),
	"write the journal": func(ctx context.Context, as, _ redis.UniversalClient) error {
		return queuetest.Failure(script.NewStore(as, "dq", "orders").Note(ctx,
			&script.JournalNote{Word: script.JournalDone, Token: "0123456789abcdef", Text: "{}"}, 0))
	},
}

func onQueue(
	act func(context.Context, *Queue) error) func(context.Context, redis.UniversalClient, redis.UniversalClient) error {
	return func(ctx context.Context, as, _ redis.UniversalClient) error {
		return act(ctx, Of(delayqueue.NewMonitor("orders", as)))
	}
}

func onMessage(
	act func(context.Context, *Queue, string) error) func(context.Context, redis.UniversalClient,
	redis.UniversalClient) error {
	return func(ctx context.Context, as, admin redis.UniversalClient) error {
		info, err := delayqueue.NewPublisher("orders", admin).Send(ctx, "x", delayqueue.WithDelay(time.Hour))
		if err != nil {
			return err
		}
		return act(ctx, Of(delayqueue.NewMonitor("orders", as)), info.ID)
	}
}

// TestRolesMayWhatTheyAreSaidTo: docs/acl.md names all that a role's line allows, also what it is not meant for, and
// the rest is refused.
func TestRolesMayWhatTheyAreSaidTo(t *testing.T) {
	t.Parallel()
	admin, users := queuetest.RoleClients(t)
	text, err := os.ReadFile(queuetest.File(t, "docs/acl.md"))
	queuetest.Must(t, err)
	for _, role := range slices.Sorted(maps.Keys(users)) {
		var can []string
		for _, what := range slices.Sorted(maps.Keys(userActs)) {
			queuetest.Must(t,
				queuetest.Failure(delayqueue.NewPublisher("orders", admin).Send(queuetest.CtxB, "there is a queue",
					delayqueue.WithDelay(time.Hour))))
			queuetest.Must(t, Of(delayqueue.NewMonitor("orders", admin)).Resume(queuetest.CtxB))
			err := userActs[what](queuetest.Within(t, queuetest.Patience), users[role], admin)
			if !queuetest.RefusedByACL(err) {
				can = append(can, what)
			}
		}
		line := regexp.MustCompile(`(?m)^\| ` + role + ` \| ([^|]*) \|$`).FindStringSubmatch(string(text))
		if want := strings.Join(can, ", "); line == nil || line[1] != want {
			t.Errorf("docs/acl.md says of %s %q; its line allows: %s", role, line, want)
		}
	}
}

// TestACLPatterns: a name that holds the characters of patterns is escaped as Queues does it.
func TestACLPatterns(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client(t)
	name := `a*b?c[d]\e`
	line := queuetest.DocumentedUsers(t)["publisher"][0]
	queuetest.SetUser(t, admin, strings.ReplaceAll(line, "orders", globEscape(name)))
	queuetest.SetUser(t, admin, "ACL SETUSER publisher resetchannels &{dq:"+globEscape(name)+"}:events +publish")
	cli := queuetest.ClientWith(t, &redis.Options{Addr: server.Addr(), Username: "publisher", Password: "secret"})
	for queue, allowed := range map[string]bool{name: true, `axxb?c[d]\e`: false, `a*b?cd\e`: false, `a*bxc[d]\e`: false} {
		_, err := delayqueue.NewPublisher(queue, cli).Send(queuetest.CtxB, "a")
		if (err == nil) != allowed {
			t.Errorf("queue %s: allowed %v, want %v: %v", queue, err == nil, allowed, err)
		}
		err = script.NewStore(cli, "dq", queue).Publish(produce.NoContextTimeout, nil)
		if (err == nil) != allowed {
			t.Errorf("events of queue %s: allowed %v, want %v: %v", queue, err == nil, allowed, err)
		}
	}
}
