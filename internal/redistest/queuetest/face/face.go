// Package face is what tests of the root package and of ops share: a queuetest.Base whose queues are those of users,
// and readers of their errors. It imports the root, so tests inside of the root and of the packages below it cannot
// use it.
package face

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/redis/go-redis/v9"
)

// Fixture is a base of which a test makes queues.
type Fixture struct{ *queuetest.Base }

func New(t testing.TB) *Fixture { return &Fixture{queuetest.NewBase(t)} }

// OnShared is New on the shared server also if queues have shards on a Cluster, for a test that makes clients of its
// own.
func OnShared(t testing.TB) *Fixture { return &Fixture{queuetest.SharedBase(t)} }

// Options are those of all queues: go test -args -shards.
func Options() (all []delayqueue.QueueOption) {
	if n := queuetest.Shards(); n > 0 {
		all = append(all, delayqueue.WithShards(n))
	}
	return all
}

func On(t testing.TB, cli redis.UniversalClient) *Fixture {
	return &Fixture{queuetest.BaseOn(t, cli)}
}

// OwnServer is a fixture on a server of its own, which the test may pause, kill and set up as it likes, over a client
// that waits.
func OwnServer(t testing.TB, args ...string) (*Fixture, *redistest.Server) {
	f, server := queuetest.OwnBase(t, args...)
	return &Fixture{f}, server
}

// OnDefaults is a fixture on a server of its own, over a client with the default settings.
func OnDefaults(t testing.TB, args ...string) (*Fixture, *redistest.Server) {
	server := redistest.Start(t, args...)
	return On(t, redis.NewClient(&redis.Options{Addr: server.Addr()})), server
}

// Wired is a fixture on the shared server, and a client that reaches it over a faulty wire.
func Wired(t testing.TB) (*Fixture, *redistest.Wire, *redis.Client) {
	f, wire, cli := queuetest.WiredBase(t)
	return &Fixture{f}, wire, cli
}

// OnServers runs a test on a real server and on the embedded one.
func OnServers(t *testing.T, test func(t *testing.T, f *Fixture)) {
	t.Helper()
	queuetest.OnServers(t, func(t *testing.T, b *queuetest.Base) { test(t, &Fixture{b}) })
}

// Queue makes a queue that is stopped at the end of the test.
func (f *Fixture) Queue(callback delayqueue.CallbackFunc) *delayqueue.DelayQueue {
	return f.QueueOn(f.Cli, callback)
}

func (f *Fixture) QueueOn(cli redis.UniversalClient, callback delayqueue.CallbackFunc) *delayqueue.DelayQueue {
	q := delayqueue.NewQueue(f.Name, cli, callback, Options()...).WithLogger(f.Logger())
	f.Stops(q)
	return q
}

// Publisher makes a publisher that may be the first to use the queue.
func (f *Fixture) Publisher(cli redis.UniversalClient) *delayqueue.Publisher {
	return delayqueue.NewPublisher(f.Name, cli, Options()...)
}

// LossyPublisher sends over a client of its own that loses replies now and then, as LoseReplies has it, and counts
// them.
func (f *Fixture) LossyPublisher(every int64, lost *atomic.Int64) *delayqueue.Publisher {
	cli := f.Client()
	f.T.Cleanup(link.Interpose(cli, queuetest.LoseReplies(every, lost)))
	return f.Publisher(cli)
}

// Calls is for script calls that a test makes itself, once each, in the first shard. The answer may take as long as a
// test waits.
func (f *Fixture) Calls() *script.Store {
	s := script.NewStore(f.Cli, "dq", f.Name)
	if n := queuetest.Shards(); n > 1 {
		s = script.NewShard(f.Cli, "dq", f.Name, 0, n)
		s.FindShards = func(ctx context.Context) error { return queuetest.Failure(s.Shards(ctx, n)) }
	}
	s.AttemptTimeout = queuetest.Patience
	return s
}

// CallsOf is Calls in the shard that an id says.
func (f *Fixture) CallsOf(id string) *script.Store {
	f.T.Helper()
	all, err := check.Shards(queuetest.CtxB, f.Cli, "dq", f.Name)
	f.Must(err)
	s := script.NewShard(f.Cli, "dq", f.Name, check.ShardOf(id, len(all)), len(all))
	s.AttemptTimeout = queuetest.Patience
	return s
}

// Lost makes a consumer that takes the one message of a queue that is due, and is never heard of again.
func (f *Fixture) Lost(id string, lease time.Duration) {
	f.T.Helper()
	dead := script.NewCaller()
	dead.Next()
	settings := &script.FetchSettings{Lease: lease, MaxLosses: 3}
	got, err := f.CallsOf(id).Fetch(queuetest.CtxB, dead, script.FetchRequest{Want: 1, Settings: settings})
	if err != nil || len(got.Tags) != 1 {
		f.T.Fatalf("%d taken: %v", len(got.Tags), err)
	}
}

// Pause pauses the queue as an operator does, until an instant in unix us; 0 ends the pause.
func (f *Fixture) Pause(until int64) {
	f.T.Helper()
	all, err := check.Shards(queuetest.CtxB, f.Cli, "dq", f.Name)
	f.Must(err)
	for i := range all {
		s := script.NewShard(f.Cli, "dq", f.Name, i, len(all))
		s.AttemptTimeout = queuetest.Patience
		f.Must(s.Pause(queuetest.CtxB, script.NewCaller(), until, "", ""))
	}
}

// Send sends one message or ends the test.
func (f *Fixture) Send(q *delayqueue.DelayQueue, payload string, opts ...delayqueue.MsgOption) *delayqueue.MessageInfo {
	f.T.Helper()
	info, err := q.Send(context.Background(), payload, opts...)
	if err != nil {
		f.T.Fatal(err)
	}
	return info
}

// Several sends so many messages that are due.
func Several(f *Fixture, n int) {
	f.T.Helper()
	batch := make([]delayqueue.Outgoing, n)
	for i := range batch {
		batch[i].Payload = strconv.Itoa(i)
	}
	if _, err := f.Queue(nil).SendBatch(queuetest.CtxB, batch); err != nil {
		f.T.Fatal(err)
	}
}

// InAnHour makes a message stay pending.
var InAnHour = delayqueue.WithDelay(time.Hour)

// NoTick makes a queue that looks at Redis of its own accord only every 20 s, so that what
// arrives sooner was announced.
func NoTick(q *delayqueue.DelayQueue) *delayqueue.DelayQueue {
	return q.WithLease(time.Minute).WithFetchInterval(time.Minute)
}

// Echo answers with the payload, or fails for good.
func Echo(ctx context.Context, msg *delayqueue.Message) error {
	if text, dies := strings.CutPrefix(msg.Payload, "die "); dies {
		return fmt.Errorf("%w: %s", delayqueue.ErrSkipRetry, text)
	}
	return delayqueue.SetResult(ctx, "to "+msg.Payload)
}

// Fate is what an error of a send says of its message.
func Fate(f *Fixture, err error) delayqueue.Stored {
	f.T.Helper()
	var failed *delayqueue.SendError
	if !errors.As(err, &failed) {
		f.T.Fatalf("%v is no SendError", err)
	}
	if failed.Queue != f.Name || !strings.Contains(err.Error(), failed.ID+": "+failed.Stored.String()+": ") {
		f.T.Errorf("%+v says %q", failed, err)
	}
	return failed.Stored
}

// Passed wants that a send was refused for its number, and returns the last one.
func Passed(f *Fixture, err error, name string, n int64) int64 {
	f.T.Helper()
	var s *delayqueue.SequenceError
	if !errors.Is(err, delayqueue.ErrSequence) || !errors.As(err, &s) ||
		!strings.Contains(err.Error(), fmt.Sprintf("sequence %q is at %d, and this is %d", name, s.Last, n)) ||
		Fate(f, err) != delayqueue.StoredNo {
		f.T.Fatalf("%v, want ErrSequence of %s, %d", err, name, n)
	}
	return s.Last
}

// CountCalls counts the calls of a script that queues of a client make.
func CountCalls(t testing.TB, cli redis.UniversalClient, sha string) *atomic.Int64 {
	n := new(atomic.Int64)
	count := func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if args := cmd.Args(); len(args) > 1 && args[1] == sha {
			n.Add(1)
		}
		return next(ctx, cmd)
	}
	t.Cleanup(link.Interpose(cli, queuetest.CommandHook(count)))
	return n
}

// CountEvents counts what events of one code tell of a queue of this process.
func CountEvents(t testing.TB, q *delayqueue.DelayQueue, code delayqueue.EventCode) *atomic.Int64 {
	n := new(atomic.Int64)
	t.Cleanup(q.ListenEvent(func(e delayqueue.Event) {
		if e.Code == code {
			n.Add(int64(e.Count))
		}
	}).Stop)
	return n
}

// UnderWay counts the calls that queues of a client are making.
func UnderWay(t *testing.T, cli redis.UniversalClient) *atomic.Int64 {
	n := new(atomic.Int64)
	t.Cleanup(link.Interpose(cli, queuetest.TripHook(func(_ []redis.Cmder, next func() error) error {
		n.Add(1)
		defer n.Add(-1)
		return next()
	})))
	return n
}

// NoLease makes it show whether anything waits for the end of a lease.
func NoLease(q *delayqueue.DelayQueue) *delayqueue.DelayQueue {
	return q.WithLease(time.Hour).WithFetchInterval(time.Hour)
}

// Goroutines counts those that start began, and those that they began, while it looks.
func Goroutines(t *testing.T, start func()) (count func() int) {
	t.Helper()
	pprof.Do(context.Background(), pprof.Labels("test", t.Name()), func(context.Context) { start() })
	return func() (n int) {
		var profile bytes.Buffer
		queuetest.Must(t, pprof.Lookup("goroutine").WriteTo(&profile, 1))
		same := 0 // how many have the stack that is described
		for lines := bufio.NewScanner(&profile); lines.Scan(); {
			if before, _, ok := strings.Cut(lines.Text(), " @ "); ok {
				same, _ = strconv.Atoi(before)
			} else if strings.Contains(lines.Text(), strconv.Quote(t.Name())) {
				n += same
			}
		}
		return n
	}
}

// Siblings are more queues on the same server, with names of their own.
func Siblings(f *Fixture, n int) (all []*Fixture) {
	for i := range n {
		all = append(all, &Fixture{Base: f.Named(fmt.Sprint(f.Name, ".", i))})
	}
	return all
}

// PoolOf makes a pool that is stopped at the end of the test.
func PoolOf(t *testing.T, workers int, shares ...delayqueue.Share) *delayqueue.Pool {
	p := delayqueue.NewPool(workers, shares...)
	t.Cleanup(func() {
		if err := p.Shutdown(queuetest.Within(t, queuetest.Patience)); err != nil {
			t.Errorf("at the end of the test: %v", err)
		}
	})
	return p
}

// NeverForgets keeps the queues of a client from forgetting old callers, which they do now and then.
func NeverForgets(t *testing.T, cli redis.UniversalClient) {
	t.Cleanup(link.Interpose(cli,
		queuetest.CommandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if args := cmd.Args(); len(args) < 2 || args[1] != script.ForgetScript.SHA && args[1] != script.ForgetScript.Text {
				return next(ctx, cmd)
			}
			cmd.SetErr(queuetest.ErrBoom)
			return queuetest.ErrBoom
		})))
}

// WaitingFor counts how many queues wait for a marker, in calls of a client that are under way, until it is released.
func WaitingFor(cli redis.UniversalClient) (count func() int, release func()) {
	var mu sync.Mutex
	n := 0
	add := func(keys int) {
		mu.Lock()
		defer mu.Unlock()
		n += keys
	}
	release = link.InterposeWaits(cli,
		queuetest.CommandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if cmd.Name() != "bzpopmin" {
				return next(ctx, cmd)
			}
			keys := len(cmd.Args()) - 2 // without the command and its timeout
			add(keys)
			defer add(-keys)
			return next(ctx, cmd)
		}))
	return func() int { mu.Lock(); defer mu.Unlock(); return n }, release
}
