package delayqueue

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// triedCommands are commands as somebody tries them on a key, each with what follows the key. Together they read, write and end
// each kind of structure; and all that any role has are among them.
var triedCommands = map[string][]any{
	"del": nil, "unlink": nil, "type": nil, "pttl": nil, "dump": nil, "expire": {"60"}, "rename": {"{dq:orders}:elsewhere"}, "set": {"x"},
	"get": nil, "hget": {"f"}, "hset": {"f", "v"}, "hdel": {"f"}, "hexists": {"f"}, "hgetall": nil, "hlen": nil, "hmget": {"f"},
	"hrandfield": nil, "hscan": {"0"}, "hstrlen": {"f"}, "hincrby": {"f", "1"}, "zadd": {"1", "m"}, "zrem": {"m"}, "zcard": nil,
	"zcount": {"0", "1"}, "zmscore": {"m"}, "zscore": {"m"}, "zrange": {"0", "1"}, "zrangebyscore": {"0", "1"}, "zrevrange": {"0", "1"},
	"zrevrangebyscore": {"1", "0"}, "zremrangebyrank": {"0", "1"}, "zremrangebyscore": {"0", "1"}, "zscan": {"0"}, "zpopmin": nil,
	"zincrby": {"1", "m"}, "rpush": {"v"}, "lpush": {"v"}, "lpop": nil, "llen": nil, "lpos": {"v"}, "lindex": {"0"},
	"persist": nil, "lrange": {"0", "1"}, "lrem": {"0", "v"}, "ltrim": {"0", "-1"},
}

// keylessCommands are about the server, or channels.
var keylessCommands = [][]any{
	{"flushall"}, {"flushdb"}, {"keys", "*"}, {"scan", "0"}, {"config", "get", "*"}, {"script", "flush"}, {"acl", "list"}, {"client", "list"},
	{"info"}, {"dbsize"}, {"randomkey"}, {"publish", "{dq:orders}:events", "x"}, {"publish", "{dq:other}:events", "x"}, {"slowlog", "get"},
	{"swapdb", "0", "1"}, {"replicaof", "no", "one"}, {"save"}, {"wait", "0", "1"}, {"bzpopmin", "{dq:orders}:wake", "0.001"},
}

// outside are commands beside those on keys that a role has, as they stand in triedCommands or keylessCommands.
var outside = []string{"eval", "evalsha", "bzpopmin", "time", "ping", "scan", "info", "subscribe", "unsubscribe", "publish"}

// refusedByACL says whether an error is the refusal of an ACL.
func refusedByACL(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "NOPERM") || strings.Contains(err.Error(), "ACL failure") ||
		strings.Contains(err.Error(), "can't run this command") || strings.Contains(err.Error(), "can't access"))
}

// roleClients are a client for each role of docs/acl.md, and one for whoever may do everything.
func roleClients(t *testing.T) (admin *redis.Client, all map[string]*redis.Client) {
	server := redistest.Start(t)
	admin, all = server.Client(t), map[string]*redis.Client{}
	for name, lines := range documentedUsers(t) {
		setUser(t, admin, lines[0])
		cli := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: name, Password: "secret", DisableIdentity: true})
		t.Cleanup(func() { _ = cli.Close() })
		all[name] = cli
	}
	return admin, all
}

// TestRolesTouchNothingElse: each command that a role has not, and each key that it does not need, is refused to it, by itself and
// within a script; so is all that is about the server.
func TestRolesTouchNothingElse(t *testing.T) {
	t.Parallel()
	admin, users := roleClients(t)
	for _, r := range roles {
		commands, cli, tried := r.needs(t), users[r.name], 0
		for _, command := range commands {
			if _, known := triedCommands[command]; !known && !slices.Contains(outside, command) {
				t.Errorf("%s has +%s, which nobody tries here", r.name, command)
			}
		}
		keys := map[string]bool{"{dq:other}:state": false, "{dq:other}:journal": false, "{dq2:orders}:state": false, "other": false}
		for _, structure := range structures {
			keys["{dq:orders}:"+structure] = slices.Contains(r.touches(), structure)
		}
		pipe, what := cli.Pipeline(), []string(nil)
		try := func(args ...any) {
			pipe.Do(ctxB, args...)
			what = append(what, fmt.Sprintf("%.100v", args))
		}
		for key, touched := range keys {
			for command, more := range triedCommands {
				if touched && slices.Contains(commands, command) {
					continue
				}
				try(append([]any{command, key}, more...)...)
				var args []string
				for _, arg := range more {
					args = append(args, fmt.Sprintf(", '%v'", arg))
				}
				try("eval", "return redis.call('"+command+"', KEYS[1]"+strings.Join(args, "")+")", "1", key)
				tried++
			}
		}
		for _, args := range keylessCommands {
			if !slices.Contains(commands, args[0].(string)) || strings.HasPrefix(fmt.Sprint(args[1:]), "[{dq:other}") {
				try(args...)
			}
		}
		got, _ := pipe.Exec(ctxB) // each has its own error
		for i, cmd := range got {
			if !refusedByACL(cmd.Err()) {
				t.Errorf("%s may %s: %v", r.name, what[i], cmd.Err())
			}
		}
		if tried < 100 {
			t.Errorf("%s: only %d were tried", r.name, tried)
		}
	}
	if left, err := admin.Keys(ctxB, "*").Result(); err != nil || len(left) != 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}

// userActs are what can be done to a queue, by the names of docs/acl.md.
var userActs = map[string]func(ctx context.Context, as, admin redis.UniversalClient) error{
	"send": func(ctx context.Context, as, _ redis.UniversalClient) error {
		return failure(NewPublisher("orders", as).Send(ctx, "x"))
	},
	"consume": func(ctx context.Context, as, _ redis.UniversalClient) error {
		q := NewQueue("orders", as, nil).WithLogger(slog.New(slog.DiscardHandler))
		return failure(q.WithHandler(func(context.Context, *Message) error { return nil }).Drain(ctx))
	},
	"pause":  onQueue(func(ctx context.Context, m *Monitor) error { return m.Pause(ctx) }),
	"resume": onQueue(func(ctx context.Context, m *Monitor) error { return m.Resume(ctx) }),
	"set limits": onQueue(func(ctx context.Context, m *Monitor) error {
		return failure(m.SetLimits(ctx, Limits{Concurrency: 5}))
	}),
	"lift a throttle": onQueue(func(ctx context.Context, m *Monitor) error { return failure(m.Unthrottle(ctx)) }),
	"delete":          onMessage(func(ctx context.Context, m *Monitor, id string) error { return m.Delete(ctx, id) }),
	"reschedule": onMessage(func(ctx context.Context, m *Monitor, id string) error {
		return m.RescheduleBy(ctx, id, time.Hour)
	}),
	"take back": onMessage(func(ctx context.Context, m *Monitor, id string) error { return failure(m.Cancel(ctx, id)) }),
	"delete all": onQueue(func(ctx context.Context, m *Monitor) error {
		return failure(m.BulkDelete(ctx, Bulk{States: []State{StatePending}}))
	}),
	"delete the queue": onQueue(func(ctx context.Context, m *Monitor) error { return m.DeleteQueue(ctx, true) }),
	"drop a sequence":  onQueue(func(ctx context.Context, m *Monitor) error { return m.DropSequence(ctx, "s") }),
	"count":            onQueue(func(ctx context.Context, m *Monitor) error { return failure(m.Counts(ctx)) }),
	"list": onQueue(func(ctx context.Context, m *Monitor) error {
		return failure(m.List(ctx, StatePending, Filter{}, ""))
	}),
	"look at a message": onMessage(func(ctx context.Context, m *Monitor, id string) error { return failure(m.Get(ctx, id)) }),
	"await": onMessage(func(ctx context.Context, m *Monitor, id string) error {
		return failure(m.store.await(ctx, []string{id}))
	}),
	"see consumers":    onQueue(func(ctx context.Context, m *Monitor) error { return failure(m.Consumers(ctx)) }),
	"read the journal": onQueue(func(ctx context.Context, m *Monitor) error { return failure(m.Journal(ctx, 5, "")) }),
	"write the journal": func(ctx context.Context, as, _ redis.UniversalClient) error {
		return failure(newStore(as, "dq", "orders").note(ctx, &journalNote{word: journalDone, token: "0123456789abcdef", text: "{}"}, 0))
	},
}

func onQueue(act func(context.Context, *Monitor) error) func(context.Context, redis.UniversalClient, redis.UniversalClient) error {
	return func(ctx context.Context, as, _ redis.UniversalClient) error {
		return act(ctx, NewMonitor("orders", as))
	}
}

func onMessage(act func(context.Context, *Monitor, string) error) func(context.Context, redis.UniversalClient, redis.UniversalClient) error {
	return func(ctx context.Context, as, admin redis.UniversalClient) error {
		info, err := NewPublisher("orders", admin).Send(ctx, "x", WithDelay(time.Hour))
		if err != nil {
			return err
		}
		return act(ctx, NewMonitor("orders", as), info.ID)
	}
}

// TestRolesMayWhatTheyAreSaidTo: docs/acl.md names all that a role's line allows, also what it is not meant for, and the rest is refused.
func TestRolesMayWhatTheyAreSaidTo(t *testing.T) {
	t.Parallel()
	admin, users := roleClients(t)
	text, err := os.ReadFile("docs/acl.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range roles {
		var can []string
		for _, what := range slices.Sorted(maps.Keys(userActs)) {
			if _, err := NewPublisher("orders", admin).Send(ctxB, "there is a queue", WithDelay(time.Hour)); err != nil {
				t.Fatal(err)
			}
			if err := NewMonitor("orders", admin).Resume(ctxB); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(ctxB, time.Minute)
			err := userActs[what](ctx, users[r.name], admin)
			cancel()
			if !refusedByACL(err) {
				can = append(can, what)
			}
		}
		line := regexp.MustCompile(`(?m)^\| ` + r.name + ` \| ([^|]*) \|$`).FindStringSubmatch(string(text))
		if want := strings.Join(can, ", "); line == nil || line[1] != want {
			t.Errorf("docs/acl.md says of %s %q; its line allows: %s", r.name, line, want)
		}
	}
}
