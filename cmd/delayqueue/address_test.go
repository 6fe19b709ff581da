package main

import (
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
)

// Whatever was typed in place of an address, no part of a password is shown.
func TestPasswordsAreNeverShown(t *testing.T) {
	t.Setenv(fromEnv, "")
	for _, password := range []string{"s3cret", "s3/cr3t", "s3?cr3t", "s3#cr3t", "s3@cr3t", "s3:cr3t", "s3%cr3t",
		"s3,cr3t", "s3=cr3t&", "6379/s3cret"} {
		for _, form := range []string{
			"default:P@host", ":P@host", "P@host", "redis:P@host", "redis:/:P@host", "redis//:P@host", "://:P@host", "redis:default:P@host:6379",
			"reds://default:P@host", "reds://:P@host:1", "redis+clutser://u:P@a,b", "https://u:P@host", "nothing://u:P@host",
			"redis://:P@", "redis://u:P@:6379", "redis://u:P@host:port", "redis://u:P@host:1:2", "redis://:P@a:1,b:2",
			"redis://:P@[::1", "redis://:P@host/x",
			"redis://P@host", "redis://P:@host", "redis://:P@127.0.0.1:1", "rediss://u:P@127.0.0.1:1/0",
			"redis+cluster://u:P@127.0.0.1:1,127.0.0.1:1",
			"redis+cluster://u:P@127.0.0.1:1/3", "redis+sentinel://u:P@127.0.0.1:1?master=m", "redis+sentinel://u:P@127.0.0.1:1",
			"redis+sentinel://127.0.0.1:1?master=m&password=P", "redis+sentinel://127.0.0.1:1?master=m&sentinel_password=P",
			"redis+sentinel://127.0.0.1:1?password=P", "redis://127.0.0.1:1?password=P", "redis://127.0.0.1:1?sentinel_password=P",
			"reds://127.0.0.1:1?password=P", "127.0.0.1:1?password=P", "redis://127.0.0.1:1/0?password=P&spee=1",
			"unix://u:P@/nothing.sock", "unix://u:P@",
			"redis://u:P", "redis://127.0.0.1:1#P", "redis://u:1/P@host", "redis://u:1?P@host", "redis://u:1#P@host", "redis://a:1,u:P@b:2",
		} {
			if password == "s3@cr3t" && !strings.Contains(form, "@") && strings.Contains(form, ":P") {
				continue // that is a user's password and a host
			}
			text := strings.ReplaceAll(form, "P", password)
			d := dialing{redis: text}
			err := d.prepare()
			said := []string{}
			if err == nil {
				_, err = d.client(false)
				said = append(said, d.unreachable(errors.New("NOAUTH wanted")), d.unreachable(errors.New("refused")),
					d.address.shown(), d.address.as("cluster"),
					d.address.as(""), d.address.secretless())
			}
			if err != nil {
				said = append(said, err.Error())
			}
			for _, s := range said {
				for _, part := range []string{"s3", "cr3t"} {
					if strings.Contains(s, part) {
						t.Errorf("%s: %q", text, s)
					}
				}
			}
		}
	}
}

// The hint after a refusal names the primary again, and says whose password stands where.
func TestHintKeepsThePrimary(t *testing.T) {
	d := dialing{redis: "redis+sentinel://u:pw@127.0.0.1:1,127.0.0.1:2/3?master=main"}
	if err := d.prepare(); err != nil {
		t.Fatal(err)
	}
	got := d.unreachable(errors.New("NOAUTH Authentication required."))
	for _, want := range []string{"redis+sentinel://127.0.0.1:1,127.0.0.1:2/3?master=main&username=…&password=…", "for the sentinels"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
}

// A sentinel's password is that of the address and the primary's is in the query, as the help says.
func TestSentinelPasswords(t *testing.T) {
	r, err := parseAddress("redis+sentinel://su:sp@h:1?master=m&username=u&password=p", "--redis")
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(r.plain())
	if err != nil {
		t.Fatal(err)
	}
	if sp, _ := u.User.Password(); sp != "sp" || u.Query().Get("password") != "p" || u.Query().Get("master_name") != "m" {
		t.Errorf("%v", u)
	}
}

func TestPasswordFromFileOrEnvironment(t *testing.T) {
	s := redistest.Start(t, "--requirepass", "s3cret")
	cli := redis.NewClient(&redis.Options{Addr: s.Addr(), Password: "s3cret"})
	defer cli.Close()
	w := newWorld(t, "redis://"+s.Addr(), cli)
	w.send("orders", "a", delayqueue.WithDelay(time.Hour))
	w.refused(exitNoRedis, "wants another user or password", "queues")
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("s3cret\nsecond line\n"), fs.FileMode(0o600)); err != nil {
		t.Fatal(err)
	}
	w.contains(w.must("queues", "--password-file", file), "orders")
	w.refused(exitUsage, "--password-file: open", "queues", "--password-file", file+"x")
	w.env = []string{passwordFrom + "=s3cret"}
	w.contains(w.must("queues"), "orders")
}
