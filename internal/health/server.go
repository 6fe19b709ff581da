package health

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/redis/go-redis/v9"
)

// What a server says of itself, by one INFO.

// Infos are those of all servers that hold keys. If some do not answer, it returns those of the others beside the
// error.
func Infos(ctx context.Context, cli redis.UniversalClient) (all []Info, err error) {
	ask := func(ctx context.Context, node redis.Cmdable) (Info, error) {
		text, err := node.Info(ctx).Result()
		return InfoOf(text), err
	}
	cluster, ok := cli.(*redis.ClusterClient)
	if !ok {
		one, err := ask(ctx, cli)
		if err != nil {
			return nil, err
		}
		return []Info{one}, nil
	}
	nodes, err := link.Primaries(ctx, cluster)
	answers := make(chan func() (Info, error), len(nodes))
	for _, node := range nodes {
		go func() {
			one, err := ask(ctx, node)
			answers <- func() (Info, error) { return one, err }
		}()
	}
	for range nodes {
		select {
		case answer := <-answers:
			if one, failed := answer(); failed == nil {
				all = append(all, one)
			} else {
				err = cmp.Or(err, failed)
			}
		case <-ctx.Done(): // the user's client may wait for longer
			err = cmp.Or(err, link.Ended(ctx))
		}
	}
	slices.SortFunc(all, func(a, b Info) int { return cmp.Compare(a["run_id"], b["run_id"]) })
	return all, err
}

// An Info is a server's answer to INFO.
type Info map[string]string

// InfoOf reads it.
func InfoOf(text string) Info {
	all := Info{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			all[name] = value
		}
	}
	return all
}

func (i Info) number(name string) int64 {
	n, _ := strconv.ParseInt(i[name], 10, 64)
	return n
}

// A Check is one thing that was looked at.
type Check struct {
	Level  Level
	Name   Text
	Found  Text
	Advice Text // none if there is no need for any
}

// Checks are all, in the order in which they are shown.
func (i Info) Checks() []Check {
	return []Check{i.version(), i.eviction(), i.memory(), i.persistence(), i.replication(), i.load()}
}

func (i Info) version() Check {
	name, version := "Redis", i["redis_version"]
	for _, other := range []string{"valkey", "redict"} {
		if v := i[other+"_version"]; v != "" {
			name, version = strings.ToUpper(other[:1])+other[1:], v
		}
	}
	c := Check{Fine, say("Version"), verbatim(name + " " + version), Text{}}
	major, rest, _ := strings.Cut(i["redis_version"], ".")
	minor, _, _ := strings.Cut(rest, ".")
	a, _ := strconv.Atoi(major)
	b, _ := strconv.Atoi(minor)
	if i["redis_version"] != "" && (a < 6 || a == 6 && b < 2) {
		c.Level, c.Advice = Critical, say("The queues need 6.2 or later.")
	}
	return c
}

func (i Info) eviction() Check {
	policy := i["maxmemory_policy"]
	c := Check{Fine, say("Eviction"), verbatim(policy), Text{}}
	switch {
	case policy == "noeviction" || policy == "":
	case i.number("maxmemory") == 0:
		c.Advice = say("It has no effect without a maxmemory; noeviction would be safe with one, too.")
	case strings.HasPrefix(policy, "volatile-"):
		c.Level, c.Advice = Notice, say("The keys of a queue do not expire, so they stay; noeviction says it plainly.")
	default:
		c.Level, c.Advice = Critical, say("When memory is full, Redis deletes messages. Set maxmemory-policy noeviction.")
	}
	return c
}

func (i Info) memory() Check {
	used, most := i.number("used_memory"), i.number("maxmemory")
	c := Check{Fine, say("Memory"), verbatim(Bytes(used)), Text{}}
	what := say("When it is full, sends are refused; consumers go on.")
	if most == 0 {
		most = i.number("total_system_memory")
		what = say("There is no maxmemory: at the end the machine's memory is full, and the system ends Redis.")
	}
	if most <= 0 {
		return c
	}
	c.Found = say("%s of %s", Bytes(used), Bytes(most))
	if share := float64(used) / float64(most); share > .9 {
		c.Level, c.Advice = Critical, what
	} else if share > .75 {
		c.Level, c.Advice = Warning, what
	}
	return c
}

func (i Info) persistence() Check {
	c := Check{Fine, say("Persistence"), say("append-only file"), Text{}}
	age := time.Since(time.Unix(i.number("rdb_last_save_time"), 0))
	switch {
	case i["loading"] == "1":
		c.Level, c.Found = Critical, say("it is loading its data")
	case i["aof_enabled"] == "1" && i["aof_last_write_status"] == "err":
		c.Level, c.Advice = Critical, say("The last write to the file failed: the disk may be full.")
	case i["aof_enabled"] == "1":
	default:
		c.Found = say("snapshots; %s since the last one", age)
		c.Level, c.Advice = Notice, say("A crash loses what came since then. appendonly yes keeps all but the last second.")
		if i["rdb_last_bgsave_status"] == "err" {
			c.Level, c.Advice = Critical, say("The last snapshot failed, and Redis may refuse to write.")
		}
	}
	return c
}

func (i Info) replication() Check {
	replicas := i.number("connected_slaves")
	c := Check{Fine, say("Replication"), say("replicas: %s", replicas), Text{}}
	switch {
	case i["role"] == "slave":
		c.Level, c.Found, c.Advice = Critical, say("this is a replica"), say("The client has to lead to the primary.")
	case replicas == 0:
		c.Level, c.Advice = Notice, say("If this machine is lost, so are the messages.")
	}
	return c
}

func (i Info) load() Check {
	clients, most := i.number("connected_clients"), i.number("maxclients")
	c := Check{Fine, say("Connections"), verbatim(clients), Text{}}
	if most > 0 {
		c.Found = say("%s of %s", clients, most)
		if clients*10 > most*9 {
			c.Level, c.Advice = Critical, say("At the limit nobody else can connect. Raise maxclients.")
		}
	}
	return c
}
