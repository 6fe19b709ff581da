package main

import (
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

// errSentinel: the address of one server is that of a sentinel.
var errSentinel = errors.New("a sentinel answers")

// unreachable is what to say, and what to try.
func (d *dialing) unreachable(err error) string {
	r, text := d.address, err.Error()
	said := func(what string) string { return r.from + ": " + what }
	sentinel := strings.HasSuffix(r.Scheme, "+sentinel")
	switch {
	case errors.Is(err, errSentinel):
		hint := r.as("sentinel") + "?master=<name>"
		if opt, perr := redis.ParseFailoverURL(r.plain()); perr == nil {
			hint += d.masters(opt, "")
		}
		return said(r.shown() + " is a sentinel: use " + hint)
	case strings.Contains(text, "cluster support disabled"):
		return said(r.shown() + " is one server and no Cluster: did you mean " + r.as("") + "?")
	case strings.Contains(text, "NOAUTH"), strings.Contains(text, "WRONGPASS"), strings.Contains(text, "AUTH <password> called without"):
		return said(r.shown() + " wants " + d.credentials(sentinel) + " (" + text + ")")
	case strings.Contains(text, "NOPERM"):
		return said(r.shown() + " refuses this user: it needs what docs/acl.md lists, in a Cluster +cluster|slots and +command too (" +
			text + ")")
	case sentinel:
		if opt, perr := redis.ParseFailoverURL(r.plain()); perr == nil {
			d.secure(opt.TLSConfig)
			if hint := d.masters(opt, opt.MasterName); hint != "" && !strings.Contains(hint, `"`+opt.MasterName+`"`) {
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

// credentials says where another user and password go.
func (d *dialing) credentials(sentinel bool) string {
	const files = ", or give the password by --password-file or " + passwordFrom
	plain := *d.address
	u := *plain.URL
	u.User = nil
	plain.URL = &u
	if sentinel {
		return "another user or password of the primary: write " + plain.shown() + "&username=…&password=…" + files +
			"; what stands before the @ is for the sentinels"
	}
	return "another user or password: write " + strings.Replace(plain.shown(), "://", "://user:password@", 1) + files
}
