package main

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const defaultURL = "redis://127.0.0.1:6379"

// patience is how long a server may take to answer the first call.
const patience = 5 * time.Second

const addressHelp = `Addresses (--redis, else REDIS_URL, else ` + defaultURL + `):
  redis://[user:password@]host[:port][/db]                      one server
  rediss://…                                                    the same over TLS
  unix://[user:password@]/path/to/redis.sock[?db=n]             a socket
  redis+sentinel://host:port,host:port[/db]?master=name         the primary that the sentinels name
  redis+cluster://host:port,host:port                           a Cluster, by some of its nodes
  rediss+sentinel://…  rediss+cluster://…                       both over TLS
The query takes the options of go-redis: ?dial_timeout=2s&read_timeout=5s, sentinel_password, skip_verify, …
Escape what is special in a password (%40 is @).`

var schemes = []string{"redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster"}

// An address is a URL that says how to reach Redis.
type address struct {
	*url.URL
	hosts []string
	from  string // which flag or variable named it
}

// shown is the address without its password.
func (r *address) shown() string {
	all := *r.URL
	all.Host = strings.Join(r.hosts, ",")
	return all.Redacted()
}

// as is the same address for another kind of server: "", "sentinel" or "cluster".
func (r *address) as(kind string) string {
	other := *r.URL
	if other.Host = r.hosts[0]; kind != "" {
		other.Host = strings.Join(r.hosts, ",")
	}
	other.Scheme, _, _ = strings.Cut(r.Scheme, "+")
	if kind != "" {
		other.Scheme += "+" + kind
	}
	other.Path, other.RawQuery = "", ""
	return other.Redacted()
}

func parseAddress(text, from string) (*address, error) {
	// url.Parse takes one host and port, so it gets the first one.
	head, rest, separated := strings.Cut(text, "://")
	if !separated {
		return nil, fail(exitNoRedis, "%s: %q is no URL: did you mean %s?", from, text, defaultScheme(text))
	}
	if !slices.Contains(schemes, head) {
		return nil, fail(exitNoRedis, "%s: %q is no kind of address%s", from, head+"://", didYouMean(nearest(head, schemes), "://"+rest))
	}
	var more []string
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	authority := rest[:end]
	user := authority[:strings.LastIndex(authority, "@")+1]
	hosts := strings.Split(strings.TrimPrefix(authority, user), ",")
	more = hosts[1:]
	u, err := url.Parse(head + "://" + user + hosts[0] + rest[end:])
	if err != nil {
		return nil, fail(exitNoRedis, "%s: %q cannot be read: is something in the password not escaped?", from, head+"://…")
	}
	if head != "unix" && u.Hostname() == "" {
		return nil, fail(exitNoRedis, "%s: %q names no host: did you mean %s?", from, text, head+"://127.0.0.1:6379"+u.Path)
	}
	if len(more) > 0 && !strings.Contains(head, "+") {
		return nil, fail(exitNoRedis, "%s: %q names several servers: did you mean %s+cluster:// or %s+sentinel://?", from, u.Redacted(), head, head)
	}
	return &address{URL: u, hosts: append([]string{u.Host}, more...), from: from}, nil
}

func defaultScheme(text string) string { return "redis://" + strings.TrimLeft(text, ":/") }

// plain is the address as go-redis's own parsers take it.
func (r *address) plain(drop ...string) string {
	u := *r.URL
	u.Scheme, _, _ = strings.Cut(r.Scheme, "+")
	q := u.Query()
	for _, name := range drop {
		q.Del(name)
	}
	for _, host := range r.hosts[1:] {
		q.Add("addr", host)
	}
	if master := r.Query().Get("master"); master != "" {
		q.Set("master_name", master)
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// client makes a client; bulky commands, whose replies are large, wait longer and are made once.
func (r *address) client(bulky bool) (redis.UniversalClient, error) {
	bad := func(err error) error {
		return fail(exitNoRedis, "%s: %s: %v", r.from, r.shown(), err)
	}
	const bulkyTimeout = 5 * time.Minute
	switch _, kind, _ := strings.Cut(r.Scheme, "+"); kind {
	case "sentinel":
		opt, err := redis.ParseFailoverURL(r.plain("master"))
		if err != nil {
			return nil, bad(err)
		}
		if opt.MasterName == "" {
			return nil, fail(exitNoRedis, "%s: which primary? Add ?master=<name>%s", r.from, r.masters(opt, ""))
		}
		opt.ContextTimeoutEnabled = true
		if bulky {
			opt.ReadTimeout, opt.MaxRetries = bulkyTimeout, -1
		}
		return redis.NewFailoverClient(opt), nil
	case "cluster":
		if strings.Trim(r.Path, "/") != "" {
			return nil, fail(exitNoRedis, "%s: a Cluster has no database %s: did you mean %s?", r.from, strings.Trim(r.Path, "/"), r.as("cluster"))
		}
		opt, err := redis.ParseClusterURL(r.plain())
		if err != nil {
			return nil, bad(err)
		}
		opt.ContextTimeoutEnabled = true
		if bulky {
			opt.ReadTimeout, opt.MaxRetries = bulkyTimeout, -1
		}
		return redis.NewClusterClient(opt), nil
	}
	opt, err := redis.ParseURL(r.plain())
	if err != nil {
		return nil, bad(err)
	}
	opt.ContextTimeoutEnabled = true
	if bulky {
		opt.ReadTimeout, opt.MaxRetries = bulkyTimeout, -1
	}
	return redis.NewClient(opt), nil
}

// masters says which primaries the sentinels know, if they answer.
func (r *address) masters(opt *redis.FailoverOptions, wrong string) string {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, addr := range opt.SentinelAddrs {
		cli := redis.NewSentinelClient(&redis.Options{
			Addr: addr, Username: opt.SentinelUsername, Password: opt.SentinelPassword, TLSConfig: opt.TLSConfig,
		})
		known, err := cli.Masters(ctx).Result()
		_ = cli.Close() // it was only asked
		if err != nil {
			continue
		}
		var names []string
		for _, one := range known {
			switch fields := one.(type) {
			case map[any]any: // RESP3
				names = append(names, fmt.Sprint(fields["name"]))
			case []any:
				if i := slices.Index(fields, any("name")); i >= 0 && i+1 < len(fields) {
					names = append(names, fmt.Sprint(fields[i+1]))
				}
			}
		}
		if len(names) > 0 {
			return didYouMean(cmp.Or(nearest(wrong, names), names[0]), "")
		}
	}
	return ""
}

// reach makes a client and asks whether anybody answers.
func (r *address) reach(ctx context.Context, bulky bool) (redis.UniversalClient, error) {
	cli, err := r.client(bulky)
	if err != nil {
		return nil, err
	}
	soon, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = cli.Ping(soon).Err()
	if err == nil {
		return cli, nil
	}
	_ = cli.Close() // it was of no use
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return nil, fail(exitNoRedis, "%s", r.unreachable(err))
}

// unreachable is what to say, and what to try.
func (r *address) unreachable(err error) string {
	text := err.Error()
	said := func(what string) string { return r.from + ": " + what }
	switch {
	case strings.Contains(text, "cluster support disabled"):
		return said(r.shown() + " is one server and no Cluster: did you mean " + r.as("") + "?")
	case strings.Contains(text, "NOAUTH"), strings.Contains(text, "WRONGPASS"):
		return said(r.shown() + " wants another user or password: write " + strings.Replace(r.as(""), "://", "://user:password@", 1) + " (" + text + ")")
	case strings.HasSuffix(r.Scheme, "+sentinel"):
		if opt, perr := redis.ParseFailoverURL(r.plain("master")); perr == nil {
			if hint := r.masters(opt, opt.MasterName); hint != "" && !strings.Contains(hint, `"`+opt.MasterName+`"`) {
				return said("the sentinels know no primary " + opt.MasterName + hint)
			}
		}
	}
	hint := ""
	if r.shown() != defaultURL && r.from == fromFlag {
		other := defaultURL
		if env, err := parseAddress(envAddress(), fromEnv); err == nil {
			other = env.shown()
		}
		hint = ": did you mean " + other + "?"
	}
	return said("nothing answers at " + r.shown() + " (" + text + ")" + hint)
}
