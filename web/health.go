package web

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// The page of the servers' health: what doctor asks that is cheap. All of it is one INFO of each server, at most every ten seconds.

const keepHealth = 10 * time.Second

// A healthPage is what it shows.
type healthPage struct {
	Level   level // the worst
	Words   string
	Servers []serverHealth
}

// serverHealth is what one server says of itself.
type serverHealth struct {
	Number int // servers have no address here
	Checks []serverCheck
}

// A serverCheck is one thing that was looked at.
type serverCheck struct {
	Level  level
	Name   string
	Found  string
	Advice string // "" if there is none
}

// Text is what a verdict says.
func (c serverCheck) Text() string { return c.Found }

func (h *Handler) healthRoutes() []route {
	return []route{{name: "health", title: "Health", file: "health", load: h.health, live: []string{"servers"}}}
}

// infos are the sections that are asked for, of each server that holds keys.
func (h *Handler) infos(ctx context.Context) (all []info, err error) {
	ask := func(ctx context.Context, node redis.Cmdable) (info, error) {
		text, err := node.Info(ctx).Result()
		return infoOf(text), err
	}
	cluster, ok := h.cli.(*redis.ClusterClient)
	if !ok {
		one, err := ask(ctx, h.cli)
		return []info{one}, err
	}
	var mu sync.Mutex
	err = cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		one, err := ask(ctx, node)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, one)
		return err
	})
	slices.SortFunc(all, func(a, b info) int { return cmp.Compare(a["run_id"], b["run_id"]) })
	return all, err
}

func (h *Handler) health(ctx context.Context, r *request) (any, error) {
	all, err := shared(ctx, h, "health", keepHealth, h.infos)
	p := &healthPage{Level: fine}
	if err != nil && redis.HasErrorPrefix(err, "NOPERM") {
		p.Level, p.Words = notice, r.lang.say("The Redis user of this page may not ask how the server is. +info lets it.")
		return p, nil
	}
	if err != nil {
		return nil, err
	}
	for i, one := range all {
		s := serverHealth{Number: i + 1, Checks: r.lang.checks(one)}
		for _, c := range s.Checks {
			p.Level = max(p.Level, c.Level)
		}
		p.Servers = append(p.Servers, s)
	}
	switch p.Level {
	case critical:
		p.Words = r.lang.say("Redis is in trouble")
	case warning:
		p.Words = r.lang.say("Something about Redis wants a look")
	default:
		p.Words = r.lang.say("Redis is well")
	}
	return p, nil
}

// info is the answer to INFO.
type info map[string]string

func infoOf(text string) info {
	all := info{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			all[name] = value
		}
	}
	return all
}

func (i info) number(name string) int64 {
	n, _ := strconv.ParseInt(i[name], 10, 64)
	return n
}

// checks are all, in the order of the page.
func (l *language) checks(i info) []serverCheck {
	return []serverCheck{l.version(i), l.eviction(i), l.memory(i), l.persistence(i), l.replication(i), l.load(i)}
}

func (l *language) version(i info) serverCheck {
	name, version := "Redis", i["redis_version"]
	for _, other := range []string{"valkey", "redict"} {
		if v := i[other+"_version"]; v != "" {
			name, version = strings.ToUpper(other[:1])+other[1:], v
		}
	}
	c := serverCheck{fine, l.say("Version"), shown(name + " " + version), ""}
	major, rest, _ := strings.Cut(i["redis_version"], ".")
	minor, _, _ := strings.Cut(rest, ".")
	a, _ := strconv.Atoi(major)
	b, _ := strconv.Atoi(minor)
	if a < 6 || a == 6 && b < 2 {
		c.Level, c.Advice = critical, l.say("The queues need 6.2 or later.")
	}
	return c
}

func (l *language) eviction(i info) serverCheck {
	policy := i["maxmemory_policy"]
	c := serverCheck{fine, l.say("Eviction"), shown(policy), ""}
	switch {
	case policy == "noeviction" || policy == "":
	case i.number("maxmemory") == 0:
		c.Advice = l.say("It has no effect without a maxmemory; noeviction would be safe with one, too.")
	case strings.HasPrefix(policy, "volatile-"):
		c.Level, c.Advice = notice, l.say("The keys of a queue do not expire, so they stay; noeviction says it plainly.")
	default:
		c.Level, c.Advice = critical, l.say("When memory is full, Redis deletes messages. Set maxmemory-policy noeviction.")
	}
	return c
}

func (l *language) memory(i info) serverCheck {
	used, most := i.number("used_memory"), i.number("maxmemory")
	c := serverCheck{fine, l.say("Memory"), bytesOf(used), ""}
	what := l.say("When it is full, sends are refused; consumers go on.")
	if most == 0 {
		most = i.number("total_system_memory")
		what = l.say("There is no maxmemory: at the end the machine's memory is full, and the system ends Redis.")
	}
	if most <= 0 {
		return c
	}
	c.Found = l.say("%s of %s", bytesOf(used), bytesOf(most))
	if share := float64(used) / float64(most); share > .9 {
		c.Level, c.Advice = critical, what
	} else if share > .75 {
		c.Level, c.Advice = warning, what
	}
	return c
}

func (l *language) persistence(i info) serverCheck {
	c := serverCheck{fine, l.say("Persistence"), l.say("append-only file"), ""}
	age := time.Since(time.Unix(i.number("rdb_last_save_time"), 0))
	switch {
	case i["loading"] == "1":
		c.Level, c.Found = critical, l.say("it is loading its data")
	case i["aof_enabled"] == "1" && i["aof_last_write_status"] == "err":
		c.Level, c.Advice = critical, l.say("The last write to the file failed: the disk may be full.")
	case i["aof_enabled"] == "1":
	default:
		c.Found = l.say("snapshots; %s since the last one", l.duration(age))
		c.Level, c.Advice = notice, l.say("A crash loses what came since then. appendonly yes keeps all but the last second.")
		if i["rdb_last_bgsave_status"] == "err" {
			c.Level, c.Advice = critical, l.say("The last snapshot failed, and Redis may refuse to write.")
		}
	}
	return c
}

func (l *language) replication(i info) serverCheck {
	replicas := i.number("connected_slaves")
	c := serverCheck{fine, l.say("Replication"), l.say("replicas: %s", l.number(replicas)), ""}
	switch {
	case i["role"] == "slave":
		c.Level, c.Found, c.Advice = critical, l.say("this is a replica"), l.say("The client has to lead to the primary.")
	case replicas == 0:
		c.Level, c.Advice = notice, l.say("If this machine is lost, so are the messages.")
	}
	return c
}

func (l *language) load(i info) serverCheck {
	clients, most := i.number("connected_clients"), i.number("maxclients")
	c := serverCheck{fine, l.say("Connections"), l.number(clients), ""}
	if most > 0 {
		c.Found = l.say("%s of %s", l.number(clients), l.number(most))
		if clients*10 > most*9 {
			c.Level, c.Advice = critical, l.say("At the limit nobody else can connect. Raise maxclients.")
		}
	}
	return c
}

// bytesOf writes a number of bytes.
func bytesOf(n int64) string {
	units := []string{"B", "KB", "MB", "GB", "TB"}
	f := float64(n)
	for f >= 1024 && len(units) > 1 {
		f, units = f/1024, units[1:]
	}
	digits := 0
	if f < 10 && units[0] != "B" {
		digits = 1
	}
	return strconv.FormatFloat(f, 'f', digits, 64) + " " + units[0]
}
