package queuetest

import (
	"context"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/leaks"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// Shared is the server of all tests that do not need one of their own.
var Shared *redistest.Server

// Spread is the Cluster of three primaries on which queues have shards, under go test -args -shards; nil otherwise.
// Tests that name Shared use that one server also then.
var Spread *redistest.Cluster

var shards = flag.Int("shards", 0,
	"how many shards the queues of tests have, on a Redis Cluster; 0: one server, and no option")

// Shards is how many shards the queues of tests have; 0: they have no option that says so.
func Shards() int { return *shards }

// RunTests runs the tests of a package beside the shared server, and returns the exit code. The server knows the
// scripts from the start, so each call of a script names it by its sum.
func RunTests(m *testing.M, scripts ...string) int {
	flag.Parse()
	return redistest.Quietly(func() int { return runTests(m, scripts) })
}

func runTests(m *testing.M, scripts []string) int {
	defer closeShared()
	if err := startShared(scripts); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	alone := redistest.BesideClock(Shared)
	defer alone()
	// Most tests wait for something most of the time; the default is one for each core.
	if err := flag.Set("test.parallel", strconv.Itoa(min(8*runtime.GOMAXPROCS(0), 32))); err != nil {
		panic(err)
	}
	code := leaks.Run(func() int {
		defer closeShared()
		defer alone()
		defer func() {
			for _, f := range atEnd {
				f()
			}
		}()
		return m.Run()
	})
	if code != 0 {
		log.Print("output of the shared redis-server:\n" + Shared.Output())
		if Spread != nil {
			log.Print("output of the Cluster:\n" + Spread.Output())
		}
	}
	return code
}

// atEnd are called when all tests have ended.
var atEnd []func()

// AtEnd has f called when all tests of the package have ended, before goroutines are looked for that they left. Call
// it before RunTests.
func AtEnd(f func()) { atEnd = append(atEnd, f) }

func closeShared() {
	if Shared != nil {
		Shared.Close()
	}
	if Spread != nil {
		Spread.Close()
	}
}

func startShared(scripts []string) (err error) {
	if Shared, err = redistest.Run(); err != nil {
		return err
	}
	cli := redis.NewClient(&redis.Options{Addr: Shared.Addr()})
	defer cli.Close()
	if err := load(CtxB, cli, scripts); err != nil || *shards == 0 {
		return err
	}
	if Spread, err = redistest.RunCluster(3, 0); err != nil {
		return err
	}
	all := redis.NewClusterClient(&redis.ClusterOptions{Addrs: Spread.Addrs()})
	defer all.Close()
	return all.ForEachMaster(CtxB, func(ctx context.Context, node *redis.Client) error { return load(ctx, node, scripts) })
}

func load(ctx context.Context, cli *redis.Client, scripts []string) error {
	for _, text := range scripts {
		if err := cli.ScriptLoad(ctx, text).Err(); err != nil {
			return err
		}
	}
	return nil
}

// Base is one test's queue: a name of its own on a server, with a log that the test can read. It knows nothing of the
// library.
type Base struct {
	T    testing.TB
	Cli  redis.UniversalClient
	Name string
	Log  *LogBuffer

	Vanished int64 // messages that the test has deleted by itself; less than 0: that it has made
}

// NewBase makes a queue name on the shared server, or the Cluster in its place. When the test and the queues that it
// started have ended, the invariant checker reads the whole state, and the keys are deleted.
func NewBase(t testing.TB) *Base {
	if Spread != nil {
		return BaseOn(t, patientCluster())
	}
	return SharedBase(t)
}

// SharedBase is NewBase on the shared server also if there is a Cluster, for a test that makes clients of its own or
// needs INFO.
func SharedBase(t testing.TB) *Base { return BaseOn(t, PatientClient(Shared.Addr())) }

// PatientClient makes a client that waits for an answer as long as a test does. The library's own attempts have their
// second.
func PatientClient(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, ReadTimeout: Patience})
}

// patientCluster is PatientClient of the Cluster.
func patientCluster() *redis.ClusterClient {
	return redis.NewClusterClient(&redis.ClusterOptions{Addrs: Spread.Addrs(), ReadTimeout: Patience})
}

// OwnBase makes a queue name on a server of its own, which the test may pause, kill and set up as it likes.
func OwnBase(t testing.TB, args ...string) (*Base, *redistest.Server) {
	server := redistest.Start(t, args...)
	return BaseOn(t, PatientClient(server.Addr())), server
}

// BaseOn makes a queue name on the server of a client, which it closes at the end.
func BaseOn(t testing.TB, cli redis.UniversalClient) *Base {
	f := &Base{T: t, Cli: cli, Log: &LogBuffer{}}
	t.Cleanup(func() {
		if err := cli.Close(); err != nil {
			t.Errorf("closing the client: %v", err)
		}
		if t.Failed() {
			t.Logf("log of the queues:\n%s", f.Log)
		}
	})
	return f.Named(strings.ReplaceAll(t.Name(), "/", "_"))
}

// OnServers runs a test on a real server and on the embedded one.
func OnServers(t *testing.T, test func(t *testing.T, f *Base)) {
	t.Helper()
	t.Run("redis-server", func(t *testing.T) { t.Parallel(); test(t, NewBase(t)) })
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		test(t, BaseOn(t, redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})))
	})
}

// WiredBase makes a queue name on the shared server, and a client that reaches it over a wire.
func WiredBase(t testing.TB) (*Base, *redistest.Wire, *redis.Client) {
	f, wire := SharedBase(t), redistest.NewWire(t, Shared.Addr())
	return f, wire, RedisClient(t, wire.Addr())
}

// Logger writes the log of the test.
func (f *Base) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(f.Log, nil)) }

// Stops stops a queue at the end of the test.
func (f *Base) Stops(q interface{ Shutdown(context.Context) error }) {
	f.T.Cleanup(func() {
		if err := q.Shutdown(Within(f.T, Patience)); err != nil {
			f.T.Errorf("at the end of the test: %v", err)
		}
	})
}

// Named is another queue on the same server.
func (f *Base) Named(name string) *Base {
	g := &Base{T: f.T, Cli: f.Cli, Name: name, Log: f.Log}
	f.T.Cleanup(func() {
		g.Check()
		all, err := check.Shards(CtxB, g.Cli, "dq", name)
		if err != nil {
			all = []check.Queue{{Prefix: "dq", Name: name}}
		}
		for _, q := range all {
			for _, key := range q.Keys() {
				g.Cli.Del(CtxB, key)
			}
		}
	})
	return g
}

// Key is the Redis key of one of the queue's structures, in the first shard.
func (f *Base) Key(structure string) string {
	return check.Queue{Prefix: "dq", Name: f.Name}.Key(structure)
}

// ShardCount is how many shards a queue has, and how many consumers in one process.
func (f *Base) ShardCount() int { return max(Shards(), 1) }

// KeyOf is Key in the shard that an id says.
func (f *Base) KeyOf(id, structure string) string {
	f.T.Helper()
	all, err := check.Shards(CtxB, f.Cli, "dq", f.Name)
	Must(f.T, err)
	return all[check.ShardOf(id, len(all))].Key(structure)
}

// Client makes one more client of the shared server, or of the Cluster. It waits for an answer as long as a test does.
func (f *Base) Client() (cli redis.UniversalClient) {
	if _, spread := f.Cli.(*redis.ClusterClient); spread && Spread != nil {
		cli = patientCluster()
	} else {
		cli = PatientClient(Shared.Addr())
	}
	f.T.Cleanup(func() { _ = cli.Close() })
	return cli
}

// Check looks at all shards of the queue, and returns what is in any of them.
func (f *Base) Check() *check.State {
	f.T.Helper()
	return check.AssertShards(f.T, f.Cli, "dq", f.Name, f.Vanished)
}

func (f *Base) CheckEmpty() {
	f.T.Helper()
	check.AssertShardsEmpty(f.T, f.Cli, "dq", f.Name, f.Vanished)
}

func (f *Base) BlockedClients() int { return f.InfoNumber("clients", "blocked_clients:%d") }

func (f *Base) ScriptCalls() int { return f.InfoNumber("commandstats", "cmdstat_evalsha:calls=%d,") }

// InfoNumber reads one number of INFO; 0 if it is not there.
func (f *Base) InfoNumber(section, format string) (n int) {
	f.T.Helper()
	text, err := f.Cli.Info(CtxB, section).Result()
	f.Must(err)
	for line := range strings.Lines(text) {
		if _, err := fmt.Sscanf(line, format, &n); err == nil {
			return n
		}
	}
	return 0
}

// Where says in which structure a message is.
func (f *Base) Where(id string) string {
	f.T.Helper()
	return f.Check().Where(id)
}

// Drained waits until all messages are gone, as long as there are fewer and fewer.
func (f *Base) Drained() {
	f.T.Helper()
	Reaches(f.T, "messages are gone", 0, func() int { return -len(f.Check().Messages) })
}

// Must ends the test if a call failed.
func (f *Base) Must(err error) { f.T.Helper(); Must(f.T, err) }
