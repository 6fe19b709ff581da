package main

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/google/uuid"
)

// What others do, and who may do what.
var company = []scenario{
	{
		name:  "ACL: a user of least privilege",
		holds: "all works with the lines of a publisher and of a consumer in [acl.md](acl.md); no command is refused",
		setUp: func(t *trial) {
			oneServer()(t)
			t.setUser("app")
			t.redis.User, t.redis.Password = "app", "secret"
		},
		hit:   closeAll("USER", "app"),
		every: time.Second,
		check: func(t *trial, v *verdict) {
			wantNoRefusals(t, v)
			if n := t.logged("NOPERM"); n > 0 {
				v.problem("%d commands were refused", n)
			}
		},
	},
	{
		name:  "TLS",
		holds: "all works, though the server closes every connection each second",
		setUp: secured,
		hit:   closeAll("TYPE", "normal"),
		every: time.Second,
		check: wantNoRefusals,
	},
	{
		name:  "foreign blocking calls use up the client's pool",
		holds: "consuming goes on as if they were not there: all is handed out within a second of its due instant",
		setUp: func(t *trial) {
			oneServer()(t)
			t.redis.PoolSize = foreignPool
		},
		load: func(l *load) { l.Foreign = 4 * foreignPool },
		hit: func(t *trial) {
			t.strike(strike{}, func() {
				t.await("the consumers' pools are used up", settleLimit, func() bool {
					blocked, err := t.admin.ClientList(t.ctx).Result()
					return err == nil && strings.Count(blocked, " cmd=blpop ") == foreignPool*consumers
				})
			})
		},
		every: time.Second,
		rules: rules{late: time.Second, resume: time.Second},
		check: wantNoRefusals,
	},
	{
		name:  "messages of a newer version",
		holds: "set aside for who can read them, not lost",
		hit: func(t *trial) {
			t.strike(strike{}, func() {
				id := uuid.Must(uuid.NewV7()).String()
				due := fmt.Sprintf("%016d", time.Now().UnixMicro())
				t.put(id, "\x02"+due+"\x00\x00\xff\x15what only it can read\x01\x00", due)
				t.aside++
				t.tolerated = append(t.tolerated, id)
			})
		},
		every: 200 * time.Millisecond,
		check: func(t *trial, v *verdict) {
			state := t.read()
			for _, id := range t.tolerated {
				if where := state.Where(id); where != "retry" {
					v.problem("message %s of the newer version is in %s, want retry", id, where)
				}
			}
			if t.logged("only a newer version") == 0 {
				v.problem("no log says that something was set aside")
			}
		},
	},
	{
		name:  "a neighbour writes rubbish into the keys",
		holds: "counted, logged, put aside; the rest goes on",
		load:  refusing, // while a key has another type
		hit:   (*trial).litter,
		every: 200 * time.Millisecond,
		check: func(t *trial, v *verdict) {
			for _, text := range []string{"dropped tags without a message", "a broken message goes to garbage",
				"belongs to another program"} {
				if t.logged(text) == 0 {
					v.problem("no log says: %s", text)
				}
			}
		},
	},
}

// setUser makes a user with the rights that docs/acl.md gives a publisher and a consumer on one server.
func (t *trial) setUser(name string) {
	text, err := os.ReadFile("../docs/acl.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile(`(?m)^ACL SETUSER (?:publisher|consumer) (on .*)$`).FindAllStringSubmatch(string(text), -1)
	if len(lines) != 2 {
		t.Fatalf("docs/acl.md has %d lines of publishers and consumers", len(lines))
	}
	for _, line := range lines {
		args := []any{"ACL", "SETUSER", name}
		for word := range strings.FieldsSeq(strings.ReplaceAll(line[1], "{dq:orders}", "{dq:"+queue+"}")) {
			args = append(args, word)
		}
		t.do(args...)
	}
}

// foreignPool is how many connections a client has that others use up.
const foreignPool = 10

// closeAll has the server close every connection of a kind but that of the suite.
func closeAll(kind, name string) func(t *trial) {
	return func(t *trial) {
		t.strike(strike{}, func() {
			if n, err := t.admin.Do(t.ctx, "CLIENT", "KILL", kind, name, "SKIPME", "yes").Int(); n == 0 || err != nil {
				t.Fatalf("%d connections were closed: %v", n, err)
			}
		})
	}
}

// put stores a message behind the library's back.
func (t *trial) put(id, envelope, due string) {
	pipe := t.admin.TxPipeline()
	pipe.HSet(t.ctx, key("msg"), id, envelope)
	pipe.Do(t.ctx, "ZADD", key("pending"), due, id)
	if _, err := pipe.Exec(t.ctx); err != nil {
		t.Fatal(err)
	}
	t.made++
}

// erase deletes a hundred messages that are pending.
func (t *trial) erase() {
	ids, err := t.admin.ZRange(t.ctx, key("pending"), 0, 99).Result()
	if err != nil {
		t.Fatal(err)
	}
	if len(ids) == 0 {
		return
	}
	n, err := t.admin.HDel(t.ctx, key("msg"), ids...).Result()
	if err != nil {
		t.Fatal(err)
	}
	t.made -= n
}

// lend plants a lease, whose list has these tags.
func (t *trial) lend(name string, ends int64, tags ...string) {
	pipe := t.admin.TxPipeline()
	pipe.Do(t.ctx, "ZADD", key("unack"), ends, name)
	pipe.HSet(t.ctx, key("lease"), name, strings.Join(tags, " "), name+"#", len(tags))
	if _, err := pipe.Exec(t.ctx); err != nil {
		t.Fatal(err)
	}
}

func key(structure string) string { return "{dq:" + queue + "}:" + structure }

// litter writes one piece of rubbish after the other.
func (t *trial) litter() {
	now := time.Now().UnixMicro()
	due := fmt.Sprintf("%016d", now)
	id := uuid.Must(uuid.NewV7()).String()
	t.tolerated = append(t.tolerated, id, "rubbish")
	kinds := []func(){
		func() { t.do("ZADD", key("pending"), now, "rubbish") }, // no envelope
		func() { t.do("ZADD", key("retry"), now, "7:"+id) },     // the same, later
		func() {
			t.do("ZADD", key("unack"), now-1,
				id)
		}, // a lease of nobody's, of nothing
		func() { t.lend("nobody:1", now-1, id, "rubbish", "99999999999999999999:rubbish") },       // of what is nowhere
		func() { t.do("RPUSH", key("ready"), "99999999999999999999:rubbish") },                    // no number of a delivery
		func() { t.put(id, "rubbish", due) },                                                      // no envelope at all
		func() { t.put(id, "\x01"+due+"\x00\x00\x02\x03\xff\xff\xff", due) },                      // broken headers
		func() { t.put(id, "\x01"+due+"\xff\xff", due) },                                          // a key longer than all
		func() { t.do("HSET", key("state"), "call:rubbish", "rubbish") },                          // a caller of nobody's
		func() { t.do("HSET", key("fail"), id, "rubbish"); t.put(id, "\x01"+due+"rubbish", due) }, // two at once
		func() { // another type
			pipe := t.admin.TxPipeline() // at once: no script may see the key gone
			pipe.Rename(t.ctx, key("key"), "elsewhere")
			pipe.Set(t.ctx, key("key"), "rubbish", 0)
			if _, err := pipe.Exec(t.ctx); err != nil {
				t.Fatal(err)
			}
			t.wait(300 * time.Millisecond)
			t.do("RENAME", "elsewhere", key("key"))
		},
	}
	t.strike(strike{}, kinds[len(t.strikes)%len(kinds)])
}

// secured is a server that programs reach by TLS alone, with a certificate of net/http/httptest.
func secured(t *trial) {
	lender := httptest.NewTLSServer(nil) // of a certificate for 127.0.0.1
	defer lender.Close()
	cert := lender.TLS.Certificates[0]
	bare, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]})
	certFile, keyFile := filepath.Join(t.dir, "cert.pem"), filepath.Join(t.dir, "key.pem")
	for file, content := range map[string][]byte{
		certFile: certPEM, keyFile: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: bare}),
	} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0") // a port that is free now
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	_ = ln.Close()
	_, port, _ := net.SplitHostPort(addr)
	oneServer("--tls-port", port, "--tls-cert-file", certFile, "--tls-key-file", keyFile, "--tls-auth-clients", "no")(t)
	t.redis.Addrs, t.redis.CA = []string{addr}, string(certPEM)
}
