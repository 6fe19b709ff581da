package delayqueue

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

// shared is the server of all tests that do not need one of their own.
var shared *redistest.Server

func TestMain(m *testing.M) {
	if spec := os.Getenv(childEnv); spec != "" {
		childMain(spec)
		return
	}
	if err := startShared(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// What is not in the journal, or was not read, is so for another reason than a slow machine.
	journalTime, readFor = patience/2, patience/2
	// Most tests wait for something most of the time; the default is one for each core.
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(min(8*runtime.GOMAXPROCS(0), 32))); err != nil {
		panic(err)
	}
	code := m.Run()
	shared.Close()
	if code == 0 {
		// A closed go-redis pool that could not dial looks at itself once a second.
		err := goleak.Find()
		for deadline := time.Now().Add(patience); err != nil && time.Now().Before(deadline); {
			err = goleak.Find()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	if code != 0 {
		fmt.Fprintln(os.Stderr, "output of the shared redis-server:\n"+shared.Output())
	}
	os.Exit(code)
}

// startShared starts the shared server, which knows every script: where a test looks for the call of one, it is by its sum.
func startShared() error {
	server, err := redistest.Run()
	if err != nil {
		return err
	}
	shared = server
	cli := redis.NewClient(&redis.Options{Addr: shared.Addr()})
	defer cli.Close()
	for _, s := range everyScript {
		if err := cli.ScriptLoad(context.Background(), s.text).Err(); err != nil {
			shared.Close()
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// patience is how long a test waits for what must happen; it is no measure of speed.
const patience = time.Minute

// fixture is one test's queue: a name of its own on a server, with a log that the test can read.
type fixture struct {
	t    testing.TB
	cli  redis.UniversalClient
	name string
	log  *logBuffer
}

// newFixture makes a queue name on the shared server. When the test and the queues that it
// started have ended, the invariant checker reads the whole state, and the keys are deleted.
func newFixture(t testing.TB) *fixture {
	return fixtureOn(t, patientClient(shared.Addr()))
}

// patientClient makes a client that waits for an answer as long as a test does. The library's own attempts have their second.
func patientClient(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, ReadTimeout: patience})
}

// ownServer makes a queue name on a server of its own, which the test may pause, kill and set up as it likes.
func ownServer(t testing.TB, args ...string) (*fixture, *redistest.Server) {
	server := redistest.Start(t, args...)
	return fixtureOn(t, patientClient(server.Addr())), server
}

func fixtureOn(t testing.TB, cli redis.UniversalClient) *fixture {
	f := &fixture{t: t, cli: cli, name: strings.ReplaceAll(t.Name(), "/", "_"), log: &logBuffer{}}
	t.Cleanup(func() {
		f.check()
		for _, key := range newStore(cli, "dq", f.name).keys.all {
			cli.Del(context.Background(), key.(string))
		}
		if err := cli.Close(); err != nil {
			t.Errorf("closing the client: %v", err)
		}
		if t.Failed() {
			t.Logf("log of the queues:\n%s", f.log)
		}
	})
	return f
}

// queue makes a queue that is stopped at the end of the test.
func (f *fixture) queue(callback CallbackFunc) *DelayQueue {
	return f.queueOn(f.cli, callback)
}

func (f *fixture) queueOn(cli redis.UniversalClient, callback CallbackFunc) *DelayQueue {
	q := NewQueue(f.name, cli, callback).WithLogger(slog.New(slog.NewTextHandler(f.log, nil)))
	f.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := q.Shutdown(ctx); err != nil {
			f.t.Errorf("at the end of the test: %v", err)
		}
	})
	return q
}

// calls is for script calls that a test makes itself, once each: the answer may take as long as a test waits.
func (f *fixture) calls() *store {
	s := newStore(f.cli, "dq", f.name)
	s.attemptTimeout = patience
	return s
}

// client makes one more client of the shared server.
func (f *fixture) client() *redis.Client { return shared.Client(f.t) }

func (f *fixture) check() *check.State {
	f.t.Helper()
	return check.Assert(f.t, f.cli, "dq", f.name)
}

func (f *fixture) checkEmpty() {
	f.t.Helper()
	check.AssertEmpty(f.t, f.cli, "dq", f.name)
}

// send sends one message or ends the test.
func (f *fixture) send(q *DelayQueue, payload string, opts ...MsgOption) *MessageInfo {
	f.t.Helper()
	info, err := q.Send(context.Background(), payload, opts...)
	if err != nil {
		f.t.Fatal(err)
	}
	return info
}

// where says in which structure a message is.
func (f *fixture) where(id string) string {
	f.t.Helper()
	return f.check().Where(id)
}

// eventually waits until ok, or ends the test. It spends less time in ok than between two calls, so that a busy
// machine does not work for those who wait alone.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for begun := time.Now(); ; {
		asked := time.Now()
		if ok() {
			return
		}
		if time.Since(begun) > patience {
			t.Fatalf("did not happen within %v: %s", patience, what)
		}
		time.Sleep(min(max(time.Millisecond, 2*time.Since(asked)), 50*time.Millisecond))
	}
}

// reaches waits until a number is at least want; while it grows, that may take its time.
func reaches(t testing.TB, what string, want int, number func() int) {
	t.Helper()
	for now := number(); now < want; {
		before := now
		eventually(t, fmt.Sprintf("%s: more than %d of %d", what, before, want), func() bool {
			now = number()
			return now > before
		})
	}
}

// drained waits until all messages are gone, as long as there are fewer and fewer.
func (f *fixture) drained() {
	f.t.Helper()
	reaches(f.t, "messages are gone", 0, func() int { return -len(f.check().Messages) })
}

// receive waits for a value, or ends the test.
func receive[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("did not happen within %v: %s", patience, what)
		panic("unreachable")
	}
}

// logBuffer is a log that many goroutines write and a test reads.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// count says how many lines of the log hold all these texts.
func (l *logBuffer) count(texts ...string) (n int) {
	for line := range strings.Lines(l.String()) {
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
			n++
		}
	}
	return n
}

// says waits until n lines of the log hold all these texts, and complains of more. A line may be written a moment after what it
// tells of has been seen.
func (l *logBuffer) says(t testing.TB, n int, texts ...string) {
	t.Helper()
	reaches(t, fmt.Sprintf("the log says %q", texts), n, func() int { return l.count(texts...) })
	if got := l.count(texts...); got > n {
		t.Errorf("the log says %q %d times, want %d:\n%s", texts, got, n, l)
	}
}

// tally counts how often each payload was handled.
type tally struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *tally) add(payload string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = make(map[string]int)
	}
	c.n[payload]++
	return c.n[payload]
}

func (c *tally) of(payload string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[payload]
}

// distinct is how many payloads were handled, and total how often.
func (c *tally) counts() (distinct, total int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.n {
		total += n
	}
	return len(c.n), total
}

// A commandHook stands between a client and its server.
type commandHook func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error

func (commandHook) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h commandHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return eachOf(h.ProcessHook, next)
}

func (h commandHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return h(ctx, cmd, next) }
}

// eachOf is a hook of pipelines that gives another one each of their commands. What calls next for the last of them makes the call.
func eachOf(hook func(redis.ProcessHook) redis.ProcessHook, next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		process := func(ctx context.Context, _ redis.Cmder) error { return next(ctx, cmds) }
		for _, cmd := range slices.Backward(cmds) {
			rest := process
			inner := hook(func(ctx context.Context, cmd redis.Cmder) error { return cmp.Or(rest(ctx, cmd), cmd.Err()) })
			process = func(ctx context.Context, _ redis.Cmder) error { return inner(ctx, cmd) }
		}
		return process(ctx, nil)
	}
}

// A tripHook is called for each round trip, with one command or several.
type tripHook func(cmds []redis.Cmder, next func() error) error

func (tripHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h tripHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return h([]redis.Cmder{cmd}, func() error { return next(ctx, cmd) })
	}
}

func (h tripHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return h(cmds, func() error { return next(ctx, cmds) })
	}
}

// loseReplies loses the reply of every so many-th script call over the library's own connections beside a client.
func loseReplies(t testing.TB, cli redis.UniversalClient, every int64, lost *atomic.Int64) {
	var calls atomic.Int64
	hookOwn(t, cli, commandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		err := next(ctx, cmd)
		if strings.HasPrefix(cmd.Name(), "eval") && calls.Add(1)%every == 0 {
			lost.Add(1)
			err = io.EOF
			cmd.SetErr(err)
		}
		return err
	}))
}

// hookOwn puts a hook between the library's own connections beside a client and their server.
func hookOwn(t testing.TB, cli redis.UniversalClient, hook redis.Hook) {
	l := linkOf(cli)
	t.Cleanup(l.release)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hooks = append(l.hooks, hook)
	for _, p := range l.pools {
		p.cli.AddHook(hook)
	}
}
