package check

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
)

// recorder stands in for a test that Assert is to fail.
type recorder struct {
	testing.TB
	errors, fatals, logs []string
}

func (r *recorder) Helper()                   {}
func (r *recorder) Errorf(f string, a ...any) { r.errors = append(r.errors, fmt.Sprintf(f, a...)) }
func (r *recorder) Fatalf(f string, a ...any) { r.fatals = append(r.fatals, fmt.Sprintf(f, a...)) }
func (r *recorder) Logf(f string, a ...any)   { r.logs = append(r.logs, fmt.Sprintf(f, a...)) }

func TestRead(t *testing.T) {
	onServers(t, func(t *testing.T, cli redis.UniversalClient) {
		b := build(t, cli, "dq")
		s := b.read()
		if s.Now < b.now || s.Now > b.now+60*second {
			t.Errorf("now is %d, was %d before", s.Now, b.now)
		}
		for id, want := range map[string]string{
			idPending: "pending", idPending2: "pending", idReady: "ready", idUnack: "unack",
			idRetry: "retry", idGarbage: "garbage", idNobody: "gone",
		} {
			if got := s.Where(id); got != want {
				t.Errorf("%s is in %s, want %s", id, got, want)
			}
		}
		if want := []Entry{{Tag: "3:" + idRetry, ID: idRetry, Delivery: 3, Score: b.now + 30*second}}; !slices.Equal(s.Retry,
			want) {
			t.Errorf("retry is %+v, want %+v", s.Retry, want)
		}
		if want := []Entry{{Tag: "2:" + idReady, ID: idReady, Delivery: 2}}; !slices.Equal(s.Ready, want) {
			t.Errorf("ready is %+v, want %+v", s.Ready, want)
		}
		if want := []Entry{{Tag: idUnack, ID: idUnack, Delivery: 1, Score: b.now + 10*second,
			Lease: leaseName}}; !slices.Equal(s.Unack, want) {
			t.Errorf("unack is %+v, want %+v", s.Unack, want)
		}
		if want := (Lease{End: b.now + 10*second, Tags: []Entry{{Tag: idUnack, ID: idUnack, Delivery: 1}}, Left: 1, Held: 1,
			InUnack: true, Listed: true, Counted: true}); !reflect.DeepEqual(s.Leases[leaseName], want) {
			t.Errorf("lease is %+v, want %+v", s.Leases[leaseName], want)
		}
		if want := (Fail{Delivery: 3, Failures: 1, Losses: 1, When: b.now - second, Error: "handler said no",
			Errors: []string{"handler said no"}}); !reflect.DeepEqual(s.Fail[idRetry], want) {
			t.Errorf("fail is %+v, want %+v", s.Fail[idRetry], want)
		}
		if got := s.Messages[idRetry].Payload; got != "\x00\xff" {
			t.Errorf("payload is %q", got)
		}
		if s.Keys["order-1"] != idPending || s.Wake != b.now || s.Fields["dropped"] != "2" {
			t.Errorf("key %v, wake %d, state %v", s.Keys, s.Wake, s.Fields)
		}
	})
}

// A queue's keys are found, and only its own, whatever its name has in it.
func TestStrayWithPatternInName(t *testing.T) {
	onServers(t, func(t *testing.T, cli redis.UniversalClient) {
		ctx := context.Background()
		for _, name := range []string{"a*b", "a?b", "a[x]b", `a\b`, "a b"} {
			q := Queue{"d*q", name}
			neighbour := Queue{"d*q", "axb"}
			for _, key := range []string{q.Key("zz"), q.Key("aa"), neighbour.Key("zz")} {
				if err := cli.Set(ctx, key, "x", 0).Err(); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { cli.Del(ctx, key) })
			}
			s, err := Read(ctx, cli, q.Prefix, q.Name)
			if err != nil {
				t.Fatal(err)
			}
			if want := []string{q.Key("aa"), q.Key("zz")}; !slices.Equal(s.Strays, want) {
				t.Errorf("strays of %q are %q, want %q", name, s.Strays, want)
			}
		}
	})
}

func TestReadInCluster(t *testing.T) {
	server := miniredis.RunT(t)
	cli := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{server.Addr()}})
	defer cli.Close()
	b := build(t, cli, "dq")
	Assert(t, cli, b.q.Prefix, b.q.Name)
	b.do("SET", "other", "x")
	if got := b.read().Strays; !slices.Equal(got, []string{b.q.Key("other")}) {
		t.Errorf("strays are %q", got)
	}
}

// TestAssertWhileAClusterMoves: a client that is sent on too often asks again, and what does not pass by is said.
func TestAssertWhileAClusterMoves(t *testing.T) {
	node := miniredis.RunT(t)
	cli := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{node.Addr()}})
	defer cli.Close()
	b := build(t, cli, "dq")
	var asked atomic.Int32
	node.Server().SetPreHook(func(c *server.Peer, cmd string, _ ...string) bool {
		moved := cmd == "EVAL" && asked.Add(1) <= 10
		if moved {
			c.WriteError("MOVED 11693 " + node.Addr())
		}
		return moved
	})
	r := &recorder{TB: t}
	if s := Assert(r, cli, b.q.Prefix, b.q.Name); s == nil || r.errors != nil || r.fatals != nil || asked.Load() < 11 {
		t.Errorf("asked %d times: %v, %+v", asked.Load(), s, r)
	}
}

func TestAssert(t *testing.T) {
	onServers(t, func(t *testing.T, cli redis.UniversalClient) {
		b := build(t, cli, "mine")

		r := &recorder{TB: t}
		if s := Assert(r, cli, b.q.Prefix, b.q.Name); s == nil || r.errors != nil || r.fatals != nil || r.logs != nil {
			t.Errorf("of a good state: %v, %+v", s, r)
		}

		b.endLease()
		b.do("SET", "other", "x")
		r = &recorder{TB: t}
		if s := Assert(r, cli, b.q.Prefix, b.q.Name); !slices.Equal(r.errors, s.Breaches()) || len(r.errors) != 2 {
			t.Errorf("errors %q", r.errors)
		}
		if len(r.logs) != 1 || !strings.Contains(r.logs[0], idUnack) {
			t.Errorf("dump %q", r.logs)
		}
	})
}

// TestUnbalanced: a message that the books do not explain is a breach, unless whoever checks knows of it. A reading
// page by page judges no books, because it is of no one instant.
func TestUnbalanced(t *testing.T) {
	server := miniredis.RunT(t)
	cli := client(t, &redis.Options{Addr: server.Addr()})
	b := build(t, cli, "dq")
	n := b.messages()
	b.do("HSET", "state", "in:stored", n+1, "in:found", "2", "out:acked", "1", "told", "1 0", "books", b.now)
	r := &recorder{TB: t}
	Assert(r, cli, b.q.Prefix, b.q.Name)
	want := fmt.Sprintf("queue dq:%s: state: %d messages should be here by the books, and %d are.", t.Name(), n+2, n)
	if len(r.errors) != 1 || r.errors[0] != want {
		t.Errorf("%q, want %q", r.errors, want)
	}
	AssertMissing(t, cli, b.q.Prefix, b.q.Name, 2)
	if _, found, err := Inspect(context.Background(), cli, b.q.Prefix, b.q.Name, nil); err != nil || len(found) > 0 {
		t.Errorf("page by page: %v, %v", found, err)
	}
}

func TestAssertEmpty(t *testing.T) {
	server := miniredis.RunT(t)
	cli := client(t, &redis.Options{Addr: server.Addr()})
	b := build(t, cli, "dq")
	r := &recorder{TB: t}
	AssertEmpty(r, cli, b.q.Prefix, b.q.Name, 0)
	want := map[string]int{"pending": 2, "ready": 1, "unack": 1, "retry": 1, "garbage": 2, "msg": 7, "fail": 4, "key": 2}
	for structure, n := range want {
		got := 0
		for _, e := range r.errors {
			if strings.HasPrefix(e, "queue dq:"+t.Name()+": "+structure+": ") &&
				strings.HasSuffix(e, " is left over, want an empty queue.") {
				got++
			}
		}
		if got != n {
			t.Errorf("%d leftovers in %s, want %d, in:\n%s", got, structure, n, strings.Join(r.errors, "\n"))
		}
	}
	if len(r.errors) != 20 {
		t.Errorf("%d errors, want 20", len(r.errors))
	}

	// What may be there when no message is: the counters, an old marker, and a lease that holds nothing.
	for structure := range want {
		if structure != "unack" {
			b.do("DEL", structure)
		}
	}
	AssertEmpty(t, cli, b.q.Prefix, b.q.Name, 0)
}

// A queue that cannot be read is no good queue.
func TestAssertUnreadable(t *testing.T) {
	server := miniredis.RunT(t)
	cli := client(t, &redis.Options{Addr: server.Addr(), MaxRetries: -1})
	server.SetError("LOADING not yet")
	for _, assert := range []func(testing.TB, redis.UniversalClient, string, string, int64) *State{
		AssertMissing, AssertEmpty} {
		r := &recorder{TB: t}
		if s := assert(r, cli, "dq", "q", 0); s != nil || len(r.fatals) != 1 ||
			!strings.Contains(r.fatals[0], "check: reading queue dq:q: LOADING") {
			t.Errorf("state %v, %q", s, r.fatals)
		}
	}
}

func TestDump(t *testing.T) {
	server := miniredis.RunT(t)
	cli := client(t, &redis.Options{Addr: server.Addr()})
	b := build(t, cli, "dq")
	b.do("RPUSH", "ready", "x:\n")
	b.do("PEXPIRE", "msg", 5000)
	b.do("SET", "other", "x")
	dump := b.read().Dump()
	for _, want := range []string{
		"pending: 2", "[+60.", "3:" + idRetry, `"x:\n"`, "!! ", "a payload of some more", "handler said no", `"order-4"`,
		leaseName, "1 tags, 1 left, 1 held", "call:sender-1", "msg expires in ", "stray key ",
	} {
		if !strings.Contains(dump, want) {
			t.Errorf("no %q in\n%s", want, dump)
		}
	}
}
