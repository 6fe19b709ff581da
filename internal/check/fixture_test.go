package check

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-delayqueue/delayqueue/internal/leaks"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/redis/go-redis/v9"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// The messages of the good state, by where they are.
const (
	idPending  = "0190f3a0-0000-7000-8000-000000000001" // key "order-1"
	idPending2 = "0190f3a0-0000-7000-8000-000000000002" // headers and TTL
	idReady    = "0190f3a0-0000-7000-9000-000000000003" // delivery 2
	idUnack    = "0190f3a0-0000-7000-a000-000000000004" // delivery 1, key "order-4"
	idRetry    = "0190f3a0-0000-7000-b000-000000000005" // delivery 3
	idGarbage  = "0190f3a0-0000-7000-8000-000000000006" // delivery 4, key "order-6"
	idGarbage1 = "0190f3a0-0000-7000-8000-000000000007" // delivery 1
	idNobody   = "0190f3a0-0000-7000-8000-0000000000ff" // in no structure
)

// leaseName is the lease that holds idUnack.
const leaseName = "4f0c1d2e3a4b5c6d7e8f90a1b2c3d4e5:7"

const second = int64(1_000_000) // us

// encode writes an envelope by the layout, each part given as it shall stand.
func encode(due int64, key string, flags byte, rest ...any) string {
	b := fmt.Appendf(nil, "\x01%016d", due)
	b = binary.BigEndian.AppendUint16(b, uint16(len(key)))
	b = append(b, key...)
	b = append(b, flags)
	for _, part := range rest {
		switch part := part.(type) {
		case int:
			b = binary.AppendUvarint(b, uint64(part))
		case uint64:
			b = binary.AppendUvarint(b, part)
		case string:
			b = append(b, part...)
		default:
			panic(fmt.Sprintf("encode: %T", part))
		}
	}
	return string(b)
}

// bed is one queue on one server, in the good state.
type bed struct {
	t   testing.TB
	cli redis.UniversalClient
	q   Queue
	now int64 // the server's clock when the state was built, unix us
}

// messages is how many there are.
func (b *bed) messages() int {
	b.t.Helper()
	n, err := b.cli.HLen(context.Background(), b.q.Key("msg")).Result()
	if err != nil {
		b.t.Fatal(err)
	}
	return int(n)
}

// do sends one command; key is the short name of a structure.
func (b *bed) do(command, structure string, args ...any) {
	b.t.Helper()
	all := append([]any{command, b.q.Key(structure)}, args...)
	if err := b.cli.Do(context.Background(), all...).Err(); err != nil {
		b.t.Fatalf("%s %s: %v", command, structure, err)
	}
}

func (b *bed) read() *State {
	b.t.Helper()
	s, err := Read(context.Background(), b.cli, b.q.Prefix, b.q.Name)
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

// build stores the good state under a queue of the test's own. The longest
// envelope is that of idPending2.
func build(t testing.TB, cli redis.UniversalClient, prefix string) *bed {
	t.Helper()
	b := &bed{t: t, cli: cli, q: Queue{prefix, t.Name()}}
	t.Cleanup(func() {
		for _, st := range structures {
			cli.Del(context.Background(), b.q.Key(st.name))
		}
		cli.Del(context.Background(), b.q.Key("other"))
	})
	b.now = b.read().Now
	now := b.now
	due := now + 60*second
	b.do("ZADD", "pending", due, idPending, due+second, idPending2)
	b.do("RPUSH", "ready", "2:"+idReady)
	b.lease(leaseName, now+10*second, 1, idUnack)
	b.do("ZADD", "retry", now+30*second, "3:"+idRetry)
	b.do("ZADD", "garbage", now-5*second, idGarbage, now-4*second, idGarbage1)
	b.do("HSET", "msg",
		idPending, encode(due, "order-1", 0, 3, "pay 1"),
		idPending2, encode(due+second, "", 3, 300, 5_000_000, 2, 1, "a", 1, "b", 0, 3, "xyz",
			"a payload of some more than forty bytes, to be cut"),
		idReady, encode(now-9*second, "", 0, 3, "pay 3"),
		idUnack, encode(now-8*second, "order-4", 0, 0, ""),
		idRetry, encode(now-7*second, "", 0, 3, "\x00\xff"),
		idGarbage, encode(now-6*second, "order-6", 0, 3, "pay 6"),
		idGarbage1, encode(now-6*second, "", 1, 3, 1000, "pay 7"))
	b.do("HSET", "fail",
		idReady, fmt.Sprintf("2 0 0 %d ", now-second),
		idRetry, fmt.Sprintf("3 1 1 %d handler said no", now-second),
		idGarbage, fmt.Sprintf("4 4 0 %[1]d \x1e%[1]d 3 boom\x1e0 0 boom, too\x1e%[1]d 1 boom", now-5*second),
		idGarbage1, fmt.Sprintf("1 0 0 %d too late", now-4*second))
	b.do("HSET", "key", "order-1", idPending, "order-4", idUnack)
	b.do("ZADD", "wake", now, "w")
	b.do("HSET", "state", "armed", now, "seen", now-second, "grace", 0, "big", 1000,
		"swept", now, "dropped", 2, "canceled", 3, "call:sender-1", fmt.Sprintf("17 %d ok 1 2", now))
	return b
}

// lease hands out tags.
func (b *bed) lease(name string, end int64, left int, tags ...string) {
	b.t.Helper()
	b.do("ZADD", "unack", end, name)
	b.do("HSET", "lease", name, strings.Join(tags, " "), name+"#", left)
}

// endLease takes idUnack out of unack.
func (b *bed) endLease() {
	b.t.Helper()
	b.do("ZREM", "unack", leaseName)
	b.do("HDEL", "lease", leaseName, leaseName+"#")
}

// onServers runs test on the embedded server and on a real one.
func onServers(t *testing.T, test func(t *testing.T, cli redis.UniversalClient)) {
	t.Run("miniredis", func(t *testing.T) {
		server := miniredis.RunT(t)
		test(t, client(t, &redis.Options{Addr: server.Addr()}))
	})
	t.Run("redis-server", func(t *testing.T) {
		test(t, redistest.Start(t).Client(t))
	})
}

func client(t *testing.T, opt *redis.Options) *redis.Client {
	cli := redis.NewClient(opt)
	t.Cleanup(func() { cli.Close() })
	return cli
}
