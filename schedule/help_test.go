package schedule

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/redis/go-redis/v9"
)

// shared is the server of all tests that do not need one of their own.
var shared *redistest.Server

func TestMain(m *testing.M) {
	if spec := os.Getenv(childEnv); spec != "" {
		childMain(spec)
		return
	}
	os.Exit(redistest.Main(m, &shared))
}

// A fixture is one test's queue.
type fixture struct {
	*testing.T
	name string
	cli  redis.UniversalClient
	pub  *delayqueue.Publisher
	mon  *ops.Queue
	s    *Scheduler
	log  *queuetest.LogBuffer
}

func newFixture(t *testing.T) *fixture {
	t.Parallel()
	return fixtureOn(t, shared.Client(t))
}

func fixtureOn(t *testing.T, cli redis.UniversalClient) *fixture {
	name := fmt.Sprintf("%s-%08x", strings.ReplaceAll(t.Name(), "/", "-"), rand.Uint32()) // -count runs a test again
	f := &fixture{T: t, name: name, cli: cli, log: &queuetest.LogBuffer{}}
	f.pub, f.mon = delayqueue.NewPublisher(f.name, cli), ops.Of(delayqueue.NewMonitor(f.name, cli))
	f.s = f.replica()
	t.Cleanup(func() {
		if check.Assert(t, cli, "dq", f.name); t.Failed() {
			t.Logf("log:\n%s", f.log)
		}
	})
	return f
}

// ownFixture is a queue on a server of its own.
func ownFixture(t *testing.T) (*fixture, *redistest.Server) {
	t.Parallel()
	server := redistest.Start(t)
	return fixtureOn(t, server.Client(t)), server
}

// wired is a Scheduler of the queue that reaches the server over a wire. Its client has this ReadTimeout; 0:
// go-redis's default.
func (f *fixture) wired(server *redistest.Server, readTimeout time.Duration) (*redistest.Wire, *Scheduler) {
	wire := redistest.NewWire(f, server.Addr())
	cli := queuetest.ClientWith(f, &redis.Options{Addr: wire.Addr(), ReadTimeout: readTimeout})
	return wire, New(delayqueue.NewPublisher(f.name, cli)).WithLogger(f.s.log)
}

// replica is another Scheduler of the queue.
func (f *fixture) replica() *Scheduler {
	return New(f.pub).WithLogger(slog.New(slog.NewTextHandler(f.log, nil)))
}

// ctx has an end, until which a Monitor's read is tried: without one it is given up on after two seconds.
func (f *fixture) ctx() context.Context { return queuetest.Within(f, queuetest.Patience) }

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// stored is an entry as it is stored.
func (f *fixture) stored(name string) (text string, r *record) {
	f.Helper()
	text, err := f.s.table.read(f.ctx(), name)
	f.must(err)
	r, err = readRecord(text)
	f.must(err)
	return text, r
}

// rec is the record of an entry.
func (f *fixture) rec(name string) *record {
	f.Helper()
	_, r := f.stored(name)
	return r
}

// store writes entries as replicas of a program would have, without their calls.
func (f *fixture) store(n int, entry func(i int) record) {
	f.Helper()
	fields := map[string]any{"": "1"}
	for i := range n {
		r := entry(i)
		fields[fmt.Sprint("e", i)] = r.text()
	}
	f.must(f.cli.HSet(f.ctx(), f.s.table.store.Keys.Schedules, fields).Err())
}

// pass moves the sequence of an entry on.
func (f *fixture) pass(name string, gen, instant int64) {
	f.Helper()
	if _, err := f.mon.PassSequence(f.ctx(), sequenceOf(name), number(gen, instant)); !errors.Is(err,
		delayqueue.ErrNotFound) {
		f.must(err)
	}
}

// forget makes the server one that has lost the messages that wait, and the sequence of the entry e, in a failover.
func (f *fixture) forget() {
	f.Helper()
	for msg, err := range f.mon.All(f.ctx(), delayqueue.StatePending, ops.Filter{}) {
		f.must(err)
		f.must(f.mon.Delete(f.ctx(), msg.ID))
	}
	f.must(f.mon.DropSequence(f.ctx(), "schedule/e"))
	f.failover()
}

// failover gives the server another history.
func (f *fixture) failover() {
	f.Helper()
	f.must(f.cli.Do(f.ctx(), "replicaof", "127.0.0.1", "1").Err())
	f.must(f.cli.Do(f.ctx(), "replicaof", "no", "one").Err())
}

// looked is a replica that has looked once, and has sent what was due if sends.
func (f *fixture) looked(s *Scheduler, sends bool) *runner {
	f.Helper()
	r := newRunner(s)
	if f.steps(r); sends {
		f.sends(r)
	}
	return r
}

// run runs replicas until the test ends, or stop is called.
func (f *fixture) run(replicas ...*Scheduler) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, s := range replicas {
		wg.Go(func() { _ = s.Run(ctx) })
	}
	stop = func() { cancel(); wg.Wait() }
	f.Cleanup(stop)
	return stop
}

// until waits until cond holds.
func (f *fixture) until(what string, cond func() bool) {
	f.Helper()
	testkit.Until(f, what, cond)
}

// now is the server's time, in unix seconds.
func (f *fixture) now() int64 {
	f.Helper()
	at, err := f.cli.Time(context.Background()).Result()
	f.must(err)
	return at.Unix()
}

// A ledger is what a consumer has got of the messages of a queue.
type ledger struct {
	mu  sync.Mutex
	ids map[string]map[int64]map[string]bool // entry, instant, ids
	all []*delayqueue.Message
}

func (l *ledger) note(msg *delayqueue.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	name, instant := Of(msg)
	l.all = append(l.all, msg)
	if instant.IsZero() {
		return
	}
	if l.ids[name] == nil {
		l.ids[name] = map[int64]map[string]bool{}
	}
	at := l.ids[name]
	if at[instant.Unix()] == nil {
		at[instant.Unix()] = map[string]bool{}
	}
	at[instant.Unix()][msg.ID] = true
}

// of are the instants of an entry that were run, and how many messages ran for one of them at most.
func (l *ledger) of(name string) (instants map[int64]int, most int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	instants = map[int64]int{}
	for at, ids := range l.ids[name] {
		instants[at] = len(ids)
		most = max(most, len(ids))
	}
	return instants, most
}

func (l *ledger) messages() []*delayqueue.Message {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

func (l *ledger) payloads() (all []string) {
	for _, msg := range l.messages() {
		all = append(all, msg.Payload)
	}
	return all
}

// held is a handler that returns when release is closed, for messages of the entry with this name.
func held(name string, release <-chan struct{}) delayqueue.Handler {
	return func(ctx context.Context, msg *delayqueue.Message) error {
		if entry, _ := Of(msg); entry == name {
			select {
			case <-release:
			case <-ctx.Done():
			}
		}
		return nil
	}
}

// consume starts a consumer, which handles messages by handle if that is not nil.
func (f *fixture) consume(handle delayqueue.Handler) *ledger {
	l := &ledger{ids: map[string]map[int64]map[string]bool{}}
	q := delayqueue.NewQueue(f.name, f.cli, nil).WithConcurrent(16).WithLogger(slog.New(slog.NewTextHandler(f.log, nil))).
		WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
			l.note(msg)
			if handle != nil {
				return handle(ctx, msg)
			}
			return nil
		})
	q.StartConsume()
	f.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testkit.Scaled(queuetest.Patience))
		defer cancel()
		f.must(q.Shutdown(ctx))
	})
	return l
}

// messages counts those that no handler has; -1: that is not known.
func (f *fixture) messages() int64 {
	c, err := f.mon.Counts(f.ctx())
	if err != nil {
		return -1
	}
	return c.Pending + c.Ready
}

// waiting are the due instants of what is pending, and not due yet.
func (f *fixture) waiting() (due []int64) {
	f.Helper()
	now := f.now()
	for msg, err := range f.mon.All(f.ctx(), delayqueue.StatePending, ops.Filter{}) {
		if errors.Is(err, delayqueue.ErrNoQueue) {
			return nil
		}
		f.must(err)
		if at := msg.Due.Unix(); at > now {
			due = append(due, at)
		}
	}
	return due
}
