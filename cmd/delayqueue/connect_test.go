package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/conc"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
)

func TestParseAddress(t *testing.T) {
	for _, tt := range []struct{ url, plain, err string }{
		{url: "redis://h", plain: "redis://h"},
		{url: "rediss://u:p%40q@h:1/2?read_timeout=5s", plain: "rediss://u:p%40q@h:1/2?read_timeout=5s"},
		{url: "redis://[::1]:6379/0", plain: "redis://[::1]:6379/0"},
		{url: "redis+cluster://u:p@a:1,b:2,[::1]:3", plain: "redis://u:p@a:1?addr=b%3A2&addr=%5B%3A%3A1%5D%3A3"},
		{url: "rediss+sentinel://a:1,b:2/3?master=m", plain: "rediss://a:1/3?addr=b%3A2&master_name=m"},
		// a sentinel's password is that of the address, and the primary's is in the query
		{url: "redis+sentinel://su:sp@h:1?master=m&username=u&password=p",
			plain: "redis://su:sp@h:1?master_name=m&password=p&username=u"},
		{url: "unix:///run/redis.sock?db=1", plain: "unix:///run/redis.sock?db=1"},

		{url: "h:6379", err: "that is no URL: write it like redis://127.0.0.1:6379"},
		{url: "rediss:/h", err: "that is no URL"},
		{url: "reddis://h:1", err: "that is no kind of address: it begins with one of redis, rediss, unix, redis+sentinel"},
		{url: "redis://", err: "write it like redis://127.0.0.1:6379"},
		{url: "redis://:secret@a:1,b:2", err: "did you mean redis+cluster:// or redis+sentinel://?"},
		{url: "redis://:sec/ret@a:1", err: "in the password"},
	} {
		a, err := parseAddress(tt.url, "--redis")
		switch {
		case tt.err != "":
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: %v, want %q", tt.url, err, tt.err)
			} else if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "sec/ret") {
				t.Errorf("%s: the password is in %q", tt.url, err)
			}
		case err != nil:
			t.Errorf("%s: %v", tt.url, err)
		case a.plain() != tt.plain:
			t.Errorf("%s: %s, want %s", tt.url, a.plain(), tt.plain)
		}
	}
}

// The spans of a forecast begin at full hours and days of local time.
func TestForecastBeginsByTheLocalClock(t *testing.T) {
	instant := time.Date(2026, 3, 1, 12, 40, 0, 0, time.UTC)
	for _, tt := range []struct{ ahead, step, back time.Duration }{
		{0, time.Hour, 40 * time.Minute},
		{5*time.Hour + 30*time.Minute, time.Hour, 10 * time.Minute},                   // 18:10
		{5*time.Hour + 30*time.Minute, 24 * time.Hour, 18*time.Hour + 10*time.Minute}, // 0:00
		{-8 * time.Hour, 6 * time.Hour, 4*time.Hour + 40*time.Minute},                 // 4:40
		{13 * time.Hour, 24 * time.Hour, time.Hour + 40*time.Minute},                  // of the next day
	} {
		if got := instant.Sub(beginOf(instant, tt.step, tt.ahead)); got != tt.back {
			t.Errorf("%v ahead, %v: it has begun %v ago, want %v", tt.ahead, tt.step, got, tt.back)
		}
	}
}

// TestUsageErrors: what is wrong with a command line is said in words of this program.
func TestUsageErrors(t *testing.T) {
	for line, want := range map[string]string{
		"doctor":                              "doctor: which queue? delayqueue queues lists them\n",
		"schedule rm":                         "schedule rm: which queue? ",
		"get orders":                          "get: (ID | KEY) is missing\nUsage: delayqueue get QUEUE (ID | KEY)",
		"doctor orders mails":                 `doctor: "mails" is one argument too many`,
		"find orders a b":                     `find: "b" is one argument too many`,
		"queues x":                            `queues: "x" is one argument too many`,
		"stats --hung-after":                  "--hung-after needs a value",
		"history orders -l":                   "-l needs a value",
		"history orders -l x":                 `--last: "x" is no value for it, or too large`,
		"requeue orders --all --to 24:00":     `--to: "24:00" is no time: write 'tomorrow 00:00'`,
		"reschedule orders a":                 "say --at or --by",
		"reschedule orders a --at 1h --by 2h": "--at and --by do not go together",
		"limits set orders --rate 10":         "--rate 10: in which time? 10/1s is 10 a second, 10/1h is 10 an hour",
	} {
		a := newApp()
		root := a.root()
		root.SetArgs(strings.Fields(line))
		command, err := root.ExecuteC()
		if a.command = command; err == nil {
			t.Errorf("%q is no error", line)
			continue
		}
		if code, text := a.explain(err); code != exitUsage || !strings.HasPrefix(text, want) {
			t.Errorf("%q: %d %q, want %q", line, code, text, want)
		}
	}
}

// TestHelpOf80Columns: no line of a help is broken by a terminal.
func TestHelpOf80Columns(t *testing.T) {
	a := newApp()
	var look func(c *cobra.Command)
	look = func(c *cobra.Command) {
		for line := range strings.Lines(c.Long + "\n" + c.UsageString()) {
			if line = strings.TrimRight(line, "\n"); len([]rune(line)) > 80 && !strings.Contains(line, "--operator") {
				t.Errorf("%s: %d columns: %s", c.CommandPath(), len([]rune(line)), line)
			}
		}
		for _, sub := range c.Commands() {
			look(sub)
		}
	}
	look(a.root())
}

func TestParseWhen(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.Local)
	for text, want := range map[string]time.Time{
		"now": now, "15m": now.Add(15 * time.Minute), "-2h": now.Add(-2 * time.Hour), "7d": now.AddDate(0, 0, 7),
		"1d12h":                now.Add(36 * time.Hour),
		"2026-03-02T10:00:00Z": time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC),
		"2026-03-02 10:00":     time.Date(2026, 3, 2, 10, 0, 0, 0, time.Local),
		"2026-03-02":           time.Date(2026, 3, 2, 0, 0, 0, 0, time.Local),
		"18:30":                time.Date(2026, 3, 1, 18, 30, 0, 0, time.Local),
	} {
		if got, err := parseWhen(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%q: %v %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "soon", "7", "25:00", "2026-02-30", "9999999d"} {
		if got, err := parseWhen(text, now); err == nil {
			t.Errorf("%q: %v, want an error", text, got)
		}
	}
}

// locked is a world on a server that wants a password, which its address has.
func locked(t *testing.T) (*world, *redistest.Server) {
	w, s := ownServer(t, "--requirepass", "s3cret")
	cli := redis.NewClient(&redis.Options{Addr: s.Addr(), Password: "s3cret"})
	t.Cleanup(func() { _ = cli.Close() })
	w.cli, w.url = cli, "redis://:s3cret@"+s.Addr()
	return w, s
}

func TestAddressesThatDoNotAnswer(t *testing.T) {
	w, s := locked(t)
	w.send("orders", "a")
	w.contains(w.must("queues"), "orders")
	w.refused(exitNoRedis, "wants another user or password", "queues", "--redis", "redis://"+s.Addr())
	w.refused(exitNoRedis, "wants another user or password", "queues", "--redis", "redis://:wrong@"+s.Addr())
	w.refused(exitNoRedis, "nothing answers at redis://127.0.0.1:1", "queues", "--redis", "redis://127.0.0.1:1")
	w.refused(exitNoRedis, "is one server and no Cluster: did you mean redis://xxxxx@"+s.Addr()+"?", "queues", "--redis",
		"redis+cluster://:s3cret@"+s.Addr())
	w.refused(exitNoRedis, "a Cluster has no database 3", "queues", "--redis", "redis+cluster://:s3cret@"+s.Addr()+"/3")
	w.refused(exitNoRedis, "unexpected option: spee", "queues", "--redis", w.url+"?spee=1")
	w.refused(exitUsage, "is no name of a queue", "stats", "{x}")
	w.refused(exitUsage, "is no name of a queue", "stats", "orders/1")
	w.refused(exitUsage, "Did you mean this?\n\tstats", "stat")
	w.refused(exitUsage, "unknown flag: --jsn", "stats", "--jsn")
	w.prefix = "{x}"
	w.refused(exitUsage, "a prefix needs at least one character", "queues")
	w.url, w.prefix = "127.0.0.1:6379", "dq"
	w.refused(exitNoRedis, `REDIS_URL: that is no URL: write it like redis://127.0.0.1:6379`, "queues")
}

func TestOutageDuringWatch(t *testing.T) {
	w, s := ownServer(t)
	w.patience, w.hurried = hasty, true
	w.send("orders", "a", inAnHour)
	term := w.terminal("top", "orders", "-n", "50ms")
	term.sees("no consumers")
	s.Stop()
	term.sees("connection refused")
	term.sees("no answer")
	s.Restart(t)
	term.sees("queue not found") // it came back empty
	w.send("orders", "a", inAnHour)
	term.sees("no consumers")
	term.interrupted(0)
}

// A server that accepts and never answers, as one behind a network that drops packets, is given up on.
func TestServerThatHangs(t *testing.T) {
	w, s := ownServer(t)
	w.patience, w.hurried = hasty, true
	s.Pause()
	defer s.Resume()
	w.refused(exitNoRedis, "nothing answers at redis://"+s.Addr(), "doctor", "orders")
}

// The address of one node of a Cluster leads to all of it.
func tellNodeAsServer(w *world) {
	node, _, _ := strings.Cut(strings.TrimPrefix(w.url, "redis+cluster://"), ",")
	w.url = "redis://" + node
	queues := []string{"a", "b", "c", "d", "e", "f"} // they are not all on the first node
	for _, queue := range queues {
		w.send(queue, "x")
	}
	found := strings.Fields(w.must("queues"))
	slices.Sort(found)
	equal(w, "queues", found, queues)
	w.contains(w.must(append([]string{"stats"}, queues...)...), queues...)
}

func TestSentinel(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t, 1, 3)
	addrs := strings.Join(s.Addrs(), ",")
	w := newWorld(t, "redis+sentinel://"+addrs+"/0?master="+redistest.SentinelMaster, s.Client(t))
	w.send("orders", "a", inAnHour)
	w.contains(w.must("stats", "orders"), "no consumers")
	w.refused(exitNoRedis, "Add ?master=<name>", "stats", "orders", "--redis", "redis+sentinel://"+addrs)
	w.refused(exitNoRedis, `is a sentinel: use redis+sentinel://`+s.Addrs()[0]+`?master=<name>`, "stats",
		"--redis", "redis://"+s.Addrs()[0])
	w.refused(exitNoRedis, "?master=mian names no sentinel that answers and knows this primary", "stats", "orders",
		"--redis",
		"redis+sentinel://"+addrs+"?master=mian")
}

// What docs/acl.md gives a reader and an operator is enough for the command.
func TestLeastPrivilege(t *testing.T) {
	w, s := ownServer(t)
	text, err := os.ReadFile("../../docs/acl.md")
	ok(t, err)
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); strings.HasPrefix(line, "ACL SETUSER") {
			ok(t, w.cli.Do(t.Context(), conc.Mapped(words, func(word *string) any { return *word })...).Err())
		}
	}
	w.url, w.prefix = "redis://operator:secret@"+s.Addr(), "dq"
	id := w.send("orders", "a", delayqueue.WithKey("k"), inAnHour)
	dead := w.kill("orders", "no", "b", "c")
	w.do("ZREM", "pending", id)
	w.contains(w.must("doctor", "orders", "--repair", "--yes"), "the queue is sound now")
	w.must("schedule", "set", "orders", "daily", "x", "--cron", "0 9 * * *")
	looks := [][]string{
		{"stats"}, {"queues"}, {"ls", "orders", "retry"}, {"ls", "orders", "ready"}, {"get", "orders", id},
		{"get", "orders", "k", "--key"},
		{"consumers", "orders"}, {"history", "orders"}, {"schedules", "orders"}, {"schedule", "next", "orders", "daily"},
	}
	for _, args := range append(looks, [][]string{
		{"send", "orders", "x", "-d", "1h"}, {"reschedule", "orders", id, "--by", "1h"},
		{"reschedule", "orders", "--all", "--by", "1h"},
		{"requeue", "orders", dead[0]}, {"delete", "orders", "--all", "--yes"}, {"run", "orders", id}, {"pause", "orders"},
		{"resume", "orders"},
		{"cancel", "orders", id, "--yes"}, {"cancel", "orders", "--all", "--yes"},
		{"schedule", "pause", "orders", "daily"}, {"schedule", "resume", "orders", "daily"},
		{"schedule", "run", "orders", "daily"},
	}...) {
		w.must(args...)
	}
	equal(w, "beside the output", w.exits(exitUnsound, "doctor", "orders").shows("nobody runs 1 schedule").err, "")
	w.refused(exitNotFound, `that this user may see: did you mean "orders"?`, "stats", "oders")
	w.refused(exitNotFound, "has no message", "get", "orders", id)
	w.refused(exitNotFound, "no message of queue", "get", "orders", "kk", "--key")
	term := w.terminal("events", "orders")
	term.sees("Ctrl-C ends")
	term.interrupted(0)

	id = w.send("orders", "a", delayqueue.WithKey("k"), inAnHour)
	w.url = "redis://reader:secret@" + s.Addr()
	for _, args := range looks {
		if args[0] != "get" {
			w.must(args...)
		}
	}
	w.contains(w.must("get", "orders", "k", "--key"), id)
	if r := w.run("pause", "orders"); r.code == 0 || !strings.Contains(strings.ToLower(r.err), "can't run this command") &&
		!strings.Contains(r.err, "NOPERM") {
		t.Errorf("a reader pauses: %+v", r)
	}
	w.url = "redis://operator:secret@" + s.Addr()
	w.must("delete", "orders", "--whole-queue", "--yes")
}

// Whatever was typed in place of an address, no part of a password is shown.
func TestPasswordsAreNeverShown(t *testing.T) {
	t.Setenv(fromEnv, "")
	for _, password := range []string{"s3cret", "s3/cr3t", "s3?cr3t", "s3#cr3t", "s3@cr3t", "s3:cr3t", "s3%cr3t",
		"s3,cr3t", "s3=cr3t&", "6379/s3cret"} {
		for _, form := range []string{
			"default:P@host", ":P@host", "P@host", "redis:P@host", "redis:/:P@host", "redis//:P@host", "://:P@host",
			"redis:default:P@host:6379",
			"reds://default:P@host", "reds://:P@host:1", "redis+clutser://u:P@a,b", "https://u:P@host", "nothing://u:P@host",
			"redis://:P@", "redis://u:P@:6379", "redis://u:P@host:port", "redis://u:P@host:1:2", "redis://:P@a:1,b:2",
			"redis://:P@[::1", "redis://:P@host/x",
			"redis://P@host", "redis://P:@host", "redis://:P@127.0.0.1:1", "rediss://u:P@127.0.0.1:1/0",
			"redis+cluster://u:P@127.0.0.1:1,127.0.0.1:1",
			"redis+cluster://u:P@127.0.0.1:1/3", "redis+sentinel://u:P@127.0.0.1:1?master=m", "redis+sentinel://u:P@127.0.0.1:1",
			"redis+sentinel://127.0.0.1:1?master=m&password=P", "redis+sentinel://127.0.0.1:1?master=m&sentinel_password=P",
			"redis+sentinel://127.0.0.1:1?password=P", "redis://127.0.0.1:1?password=P",
			"redis://127.0.0.1:1?sentinel_password=P",
			"reds://127.0.0.1:1?password=P", "127.0.0.1:1?password=P", "redis://127.0.0.1:1/0?password=P&spee=1",
			"unix://u:P@/nothing.sock", "unix://u:P@",
			"redis://u:P", "redis://127.0.0.1:1#P", "redis://u:1/P@host", "redis://u:1?P@host", "redis://u:1#P@host",
			"redis://a:1,u:P@b:2",
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
	ok(t, d.prepare())
	got := d.unreachable(errors.New("NOAUTH Authentication required."))
	testkit.Has(t, got, "redis+sentinel://xxxxx@127.0.0.1:1,127.0.0.1:2/3?master=main", "&username=…&password=…",
		"for the sentinels")
}

func TestPasswordFromFileOrEnvironment(t *testing.T) {
	w, s := locked(t)
	w.url = "redis://" + s.Addr()
	w.send("orders", "a", inAnHour)
	w.refused(exitNoRedis, "wants another user or password", "queues")
	file := filepath.Join(t.TempDir(), "password")
	ok(t, os.WriteFile(file, []byte("s3cret\nsecond line\n"), fs.FileMode(0o600)))
	w.contains(w.must("queues", "--password-file", file), "orders")
	w.refused(exitUsage, "--password-file: open", "queues", "--password-file", file+"x")
	w.env = []string{passwordFrom + "=s3cret"}
	w.contains(w.must("queues"), "orders")
}

func TestVersion(t *testing.T) {
	w := newWorld(t, "redis://127.0.0.1:1", nil)
	w.contains(w.must("--version"), "delayqueue version (devel)", runtime.Version())
	released := &debug.BuildInfo{GoVersion: "go1.25.0", Main: debug.Module{Version: "v0.2.0"}}
	equal(w, "released", version(released, true), "v0.2.0, go1.25.0")
	released.Settings = []debug.BuildSetting{{Key: "vcs.revision", Value: "06686a6"}, {Key: "vcs.modified", Value: "true"}}
	equal(w, "of a checkout", version(released, true), "v0.2.0, revision 06686a6 with changes, go1.25.0")
}

// certificate writes one for 127.0.0.1 and redis.internal that has signed itself, for servers and clients, and its key.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		ok(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ok(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		DNSNames:    []string{"redis.internal"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &own.PublicKey, own)
	ok(t, err)
	keyDER, err := x509.MarshalECPrivateKey(own)
	ok(t, err)
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "EC PRIVATE KEY", keyDER)
}

// A server that wants a client's certificate, signed by an authority that only --cacert names.
func TestTLS(t *testing.T) {
	cert, key := certificate(t)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	port := strconv.Itoa(free.Addr().(*net.TCPAddr).Port)
	free.Close()
	w, _ := ownServer(t, "--tls-port", port, "--tls-ca-cert-file", cert, "--tls-cert-file", cert, "--tls-key-file", key,
		"--tls-auth-clients", "yes")
	plain := w.url
	w.url = "rediss://127.0.0.1:" + port
	w.send("orders", "a", inAnHour)
	w.refused(exitNoRedis, "certificate", "queues")
	w.exits(exitNoRedis, "queues", "--cacert", cert) // by a word of the server, or a reset
	w.contains(w.must("queues", "--cacert", cert, "--cert", cert, "--cert-key", key), "orders")
	w.refused(exitUsage, "--cert and --cert-key go together", "queues", "--cacert", cert, "--cert", cert)
	w.refused(exitUsage, "there is no certificate in it", "queues", "--cacert", key)
	w.refused(exitUsage, "--cacert: open", "queues", "--cacert", cert+"x")
	w.url = "rediss://localhost:" + port
	trusted := []string{"queues", "--cacert", cert, "--cert", cert, "--cert-key", key}
	w.refused(exitNoRedis, "not localhost", trusted...)
	w.contains(w.must(append(trusted, "--tls-server-name", "redis.internal")...), "orders")
	w.url = plain
	w.refused(exitUsage, "are for TLS", "queues", "--tls-server-name", "redis.internal")
	w.refused(exitUsage, "did you mean rediss"+strings.TrimPrefix(plain, "redis")+"?", "queues", "--cacert", cert)
}
