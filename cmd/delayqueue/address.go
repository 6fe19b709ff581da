package main

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
)

const defaultURL = "redis://127.0.0.1:6379"

const addressHelp = `Addresses (--redis, else REDIS_URL, else ` + defaultURL + `):
  redis://[user:password@]host[:port][/db]
      one server, or a node of a Cluster
  rediss://…
      one server over TLS
  unix://[user:password@]/path/to/redis.sock[?db=n]
      a socket
  redis+sentinel://host:port,host:port[/db]?master=name
      the primary that the sentinels name
  redis+cluster://[user:password@]host:port,host:port
      a Cluster, by some of its nodes
  rediss+sentinel://…  rediss+cluster://…
      both over TLS
The query takes the options of go-redis: ?dial_timeout=2s&read_timeout=5s,
skip_verify, … With sentinels, the user:password@ of the address is for the
sentinels, and the primary's is ?username=…&password=… in the query. Escape
special characters of a password (%40 is @), or give it by --password-file or
REDIS_PASSWORD.`

var schemes = []string{"redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel", "redis+cluster",
	"rediss+cluster"}

// An address is a URL that says how to reach Redis.
type address struct {
	*url.URL
	hosts []string
	from  string // which flag or variable named it
}

// hidden stands for a user and a password.
const hidden = "xxxxx"

// shown is the address without secrets.
func (r *address) shown() string { return r.with(r.Scheme, r.hosts) }

// with writes the address under a scheme and with these hosts. User and password are hidden. Of the query it keeps
// the primary's name and the database of a socket.
func (r *address) with(scheme string, hosts []string) string {
	out := url.URL{Scheme: scheme, User: r.User, Host: strings.Join(hosts, ","), Path: r.Path}
	if r.User != nil { // the name is hidden too, because it may be a password by mistake
		out.User = url.User(hidden)
	}
	var keep []string
	for _, name := range []string{"master", "db"} {
		if value := r.Query().Get(name); value != "" && (name != "master" || strings.HasSuffix(scheme, "+sentinel")) {
			keep = append(keep, name+"="+url.QueryEscape(value))
		}
	}
	out.RawQuery = strings.Join(keep, "&")
	return out.String()
}

// as is the same address for another kind of server: "", "sentinel" or "cluster".
func (r *address) as(kind string) string {
	scheme, _, _ := strings.Cut(r.Scheme, "+")
	other := *r
	other.URL = &url.URL{User: r.User}
	if kind == "" {
		return other.with(scheme, r.hosts[:1])
	}
	return other.with(scheme+"+"+kind, r.hosts)
}

// tls says whether the address asks for TLS.
func (r *address) tls() bool { return strings.HasPrefix(r.Scheme, "rediss") }

// parseAddress reads an address. Its errors show no text that could be a part of a password.
func parseAddress(text, from string) (*address, error) {
	wrong := func(format string, args ...any) error { return fail(exitNoRedis, from+": "+format, args...) }
	head, rest, separated := strings.Cut(text, "://")
	switch {
	case !separated:
		return nil, wrong("that is no URL: write it like %s", defaultURL)
	case !slices.Contains(schemes, head):
		return nil, wrong("that is no kind of address: it begins with one of %s, and ://", strings.Join(schemes, ", "))
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	authority, tail := rest[:end], rest[end:]
	if strings.Contains(tail, "#") || strings.Contains(tail, "@") && (head != "unix" || authority != "") {
		return nil, wrong(
			"%s cannot be read: something in the password is not escaped (%%2F is /, %%3F is ?, %%23 is #, %%40 is @)",
			head+"://…")
	}
	user := authority[:strings.LastIndex(authority, "@")+1]
	hosts := strings.Split(strings.TrimPrefix(authority, user), ",")
	// url.Parse takes one host and port, so it gets the first.
	u, err := url.Parse(head + "://" + user + hosts[0] + tail)
	if err != nil {
		return nil, wrong("%s cannot be read: is something in the password not escaped?", head+"://…")
	}
	r := &address{URL: u, hosts: append([]string{u.Host}, hosts[1:]...), from: from}
	return r, r.check()
}

func (r *address) check() error {
	wrong := func(format string, args ...any) error { return fail(exitNoRedis, r.from+": "+format, args...) }
	if r.Scheme == "unix" {
		return nil
	}
	for _, host := range r.hosts {
		if host == "" || r.Hostname() == "" {
			return wrong("%s names no host: write it like %s", r.Scheme+"://…", r.Scheme+"://127.0.0.1:6379")
		}
	}
	if db := strings.Trim(r.Path, "/"); strings.Trim(db, "0123456789") != "" {
		return wrong("%s: the database, behind the host, is a number", r.Scheme+"://…")
	}
	plain, kind, _ := strings.Cut(r.Scheme, "+")
	if len(r.hosts) > 1 && kind == "" {
		return wrong("%s names several servers: did you mean %s+cluster:// or %s+sentinel://?", r.shown(), plain, plain)
	}
	if db := strings.Trim(r.Path, "/"); kind == "cluster" && cmp.Or(db, "0") != "0" {
		return wrong("%s: a Cluster has no database %s: did you mean %s?", r.shown(), db, r.as("cluster"))
	}
	return nil
}

// plain is the address in the form of go-redis's parsers.
func (r *address) plain() string {
	u := *r.URL
	u.Scheme, _, _ = strings.Cut(r.Scheme, "+")
	q := u.Query()
	for _, host := range r.hosts[1:] {
		q.Add("addr", host)
	}
	if strings.HasSuffix(r.Scheme, "+sentinel") {
		if master := q.Get("master"); master != "" {
			q.Set("master_name", master)
		}
		q.Del("master")
	}
	u.RawQuery = q.Encode()
	return u.String()
}
