package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/hinshun/vt10x"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// binary is the program, built as the tests are, but with more patience; usual is the one with its own, for tests of servers that are away.
var binary, usual string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	logging.Disable() // what a test calls without success on purpose would fill its output
	dir, err := os.MkdirTemp("", "delayqueue-cli")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary, usual = filepath.Join(dir, "delayqueue"), filepath.Join(dir, "usual")
	args := []string{"build"}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "-race" && s.Value == "true" {
				args = append(args, "-race")
			}
		}
	}
	for path, set := range map[string]string{binary: "-X main.patienceText=30s", usual: ""} {
		if out, err := exec.Command("go", append(args, "-ldflags", set, "-o", path, ".")...).CombinedOutput(); err != nil {
			fmt.Printf("go build: %v\n%s", err, out)
			return 1
		}
	}
	return m.Run()
}

const deadline = 2 * time.Minute // of what must happen; no measure of speed

// world is a server and a prefix of the test's own.
type world struct {
	*testing.T
	url     string
	cli     redis.UniversalClient
	prefix  string
	env     []string
	columns int  // of terminals; 0: 150
	usual   bool // the program has no more patience than it has by itself
}

// Context has an end, until which a Monitor's read is tried: without one it is given up on after two seconds.
func (w *world) Context() context.Context {
	ctx, cancel := context.WithTimeout(w.T.Context(), deadline)
	w.Cleanup(cancel)
	return ctx
}

// scenarios are told on one server and on a Cluster.
var scenarios = map[string]func(w *world){
	"bulk in every state":        tellBulkStates,
	"bulk asks":                  tellBulkAsks,
	"bulk with empty flags":      tellBulkEmpty,
	"bulk goes on":               tellBulkGoesOn,
	"bulk does what was counted": tellBulkCounted,
	"doctor":                     tellDoctor,
	"doctor of shards":           tellDoctorShards,
	"shards":                     tellShards,
	"import into shards":         tellImportShards,
	"doctor of a paused queue":   tellDoctorPaused,
	"doctor of a queue with a key that is held": tellDoctorHeld,
	"doctor cannot mend":                        tellDoctorCannot,
	"doctor of a newer layout":                  tellDoctorNewer,
	"doctor among consumers":                    tellDoctorBusy,
	"doctor of leases":                          tellDoctorLeases,
	"doctor of books":                           tellDoctorBooks,
	"doctor of lanes":                           tellDoctorLanes,
	"doctor of lanes that need many turns":      tellRepairInSteps,
	"doctor of lanes among consumers":           tellDoctorBusyLanes,
	"large queue":                               tellLarge,
	"doctor of a standstill":                    tellDoctorStandstill,
	"find":                                      tellFind,
	"errors":                                    tellErrors,
	"errors of many kinds":                      tellManyErrors,
	"journal":                                   tellJournal,
	"top":                                       tellTop,
	"import from asynq":                         tellImportAsynq,
	"import beside asynq's servers":             tellImportBesideServers,
	"import of rubbish":                         tellImportRubbish,
	"import from hdt3213":                       tellImportHdt,
	"import from hdt3213 with a prefix":         tellImportHdtPrefix,
	"import cut off":                            tellImportCutOff,
	"stats":                                     tellStats,
	"watch":                                     tellWatch,
	"list":                                      tellList,
	"get":                                       tellGet,
	"hostile text":                              tellHostile,
	"history":                                   tellHistory,
	"schedules":                                 tellSchedules,
	"countdown":                                 tellCountdown,
	"countdown that is steered":                 tellCountdownSteered,
	"doctor of countdowns":                      tellDoctorCountdown,
	"sequences":                                 tellSequences,
	"lanes":                                     tellLanes,
	"doctor of a lane":                          tellDoctorLane,
	"pages of sequences":                        tellSequencePages,
	"send under conditions":                     tellConditions,
	"send":                                      tellSend,
	"cancel":                                    tellCancel,
	"reschedule":                                tellReschedule,
	"requeue":                                   tellRequeue,
	"purge":                                     tellPurge,
	"pause":                                     tellPause,
	"limits":                                    tellLimits,
	"consumers":                                 tellConsumers,
	"events":                                    tellEvents,
	"one bad queue":                             tellBadQueue,
	"another prefix":                            tellOtherPrefix,
	"many queues":                               tellManyQueues,
	"quoting":                                   tellQuoting,
}

func TestOnOneServer(t *testing.T) {
	s := redistest.Start(t)
	tellAll(t, "redis://"+s.Addr(), s.Client(t))
}

func TestOnCluster(t *testing.T) {
	c := redistest.StartCluster(t, 3, 0)
	tellAll(t, "redis+cluster://"+strings.Join(c.Addrs(), ","), c.Client(t))
}

func tellAll(t *testing.T, url string, cli redis.UniversalClient) {
	for name, tell := range scenarios { // in any order
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tell(newWorld(t, url, cli))
		})
	}
}

func newWorld(t *testing.T, url string, cli redis.UniversalClient) *world {
	return &world{T: t, url: url, cli: cli, prefix: strings.ReplaceAll(t.Name(), "/", "-")}
}

func (w *world) monitor(queue string) *ops.Queue {
	return ops.Of(delayqueue.NewMonitor(queue, w.cli, delayqueue.UseCustomPrefix(w.prefix)))
}

func (w *world) publisher(queue string) *delayqueue.Publisher {
	return delayqueue.NewPublisher(queue, w.cli, delayqueue.UseCustomPrefix(w.prefix))
}

func (w *world) send(queue, payload string, opts ...delayqueue.MsgOption) string {
	w.Helper()
	info, err := w.publisher(queue).Send(w.Context(), payload, opts...)
	ok(w, err)
	return info.ID
}

// sendMany sends messages whose payloads are p0 and p1 in turn.
func (w *world) sendMany(queue string, n int, delay time.Duration) {
	w.Helper()
	batch := make([]delayqueue.Outgoing, n)
	for i := range batch {
		batch[i] = delayqueue.Outgoing{Payload: fmt.Sprint("p", i%2), Options: []delayqueue.MsgOption{delayqueue.WithDelay(delay)}}
	}
	ok(w, errOf(w.publisher(queue).SendBatch(w.Context(), batch)))
}

// consume starts a consumer that ends with the test.
func (w *world) consume(queue string, handler delayqueue.Handler, set ...func(*delayqueue.DelayQueue)) *delayqueue.DelayQueue {
	q := delayqueue.NewQueue(queue, w.cli, nil, delayqueue.UseCustomPrefix(w.prefix)).
		WithHandler(handler).WithRetryDelays(time.Hour).WithLogger(slog.New(slog.DiscardHandler))
	for _, f := range set {
		f(q)
	}
	done := q.StartConsume()
	w.Cleanup(func() {
		q.StopConsume()
		<-done
	})
	return q
}

// consumeNothing starts a consumer of a queue in which nothing is due, and waits until it is heard of.
func (w *world) consumeNothing(queue string) {
	w.Helper()
	w.consume(queue, func(context.Context, *delayqueue.Message) error { return nil }, func(q *delayqueue.DelayQueue) {
		q.WithLease(time.Minute) // for which it is heard of, however slow the machine is
	})
	w.heardOf(queue)
}

// heardOf waits until one consumer is heard of.
func (w *world) heardOf(queue string) {
	w.Helper()
	w.until("the consumer is heard of", func() bool {
		alive, err := w.monitor(queue).Consumers(w.Context())
		return err == nil && len(alive) == 1
	})
}

// kill makes garbage of new messages, and returns their ids.
func (w *world) kill(queue, text string, payloads ...string) []string {
	w.Helper()
	var ids []string
	for _, payload := range payloads {
		ids = append(ids, w.send(queue, payload, delayqueue.WithRetryCount(0)))
	}
	q := delayqueue.NewQueue(queue, w.cli, nil, delayqueue.UseCustomPrefix(w.prefix)).
		WithHandler(func(context.Context, *delayqueue.Message) error { return errors.New(text) }).WithLogger(slog.New(slog.DiscardHandler))
	done := q.StartConsume()
	for _, id := range ids {
		w.until("message is garbage", func() bool { return w.state(queue, id) == delayqueue.StateGarbage })
	}
	q.StopConsume()
	<-done
	return ids
}

func (w *world) state(queue, id string) delayqueue.State {
	w.Helper()
	m, err := w.monitor(queue).Get(w.Context(), id)
	if errors.Is(err, delayqueue.ErrNotFound) {
		return delayqueue.StateGone
	}
	ok(w, err)
	return m.State
}

func (w *world) counts(queue string) delayqueue.Counts {
	w.Helper()
	n, err := w.monitor(queue).Counts(w.Context())
	ok(w, err)
	return n
}

func (w *world) sound(queue string) *check.State {
	w.Helper()
	return check.Assert(w, w.cli, w.prefix, queue)
}

func (w *world) until(what string, is func() bool) {
	w.Helper()
	for end := time.Now().Add(deadline); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			w.Fatalf("%s: not within %v", what, deadline)
		}
	}
}

// once waits until so many messages are handled, and wants none of them twice.
func (w *world) once(handled <-chan string, n int) {
	w.Helper()
	seen := map[string]bool{}
	for len(seen) < n {
		one := testkit.Receive(w, "a message", handled)
		if seen[one] {
			w.Errorf("%s was handled twice", one)
		}
		seen[one] = true
	}
	if more := len(handled); more > 0 {
		w.Errorf("%d were handled more than once", more)
	}
}

func (w *world) command(args ...string) *exec.Cmd {
	path := binary
	if w.usual {
		path = usual
	}
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), "REDIS_URL="+w.url, "NO_COLOR=", "TERM=xterm", "TZ=UTC", "GORACE=atexit_sleep_ms=0")
	cmd.Env = append(cmd.Env, w.env...)
	cmd.Args = append(cmd.Args, "--prefix", w.prefix)
	return cmd
}

// result is what a run without a terminal left behind.
type result struct {
	out, err string
	code     int
}

func (w *world) run(args ...string) result { return w.runWith("", args...) }

func (w *world) runWith(input string, args ...string) result {
	w.Helper()
	var out, errs bytes.Buffer
	cmd := w.command(args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		w.Fatal(err)
	}
	if strings.Contains(errs.String(), "DATA RACE") || strings.Contains(errs.String(), "panic") {
		w.Fatalf("%q: %s", args, errs.String())
	}
	return result{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

// must wants exit code 0 and returns what was printed.
func (w *world) must(args ...string) string {
	w.Helper()
	r := w.run(args...)
	if r.code != 0 {
		w.Fatalf("%q: exit code %d\n%s%s", args, r.code, r.out, r.err)
	}
	if strings.Contains(r.out+r.err, "\x1b") {
		w.Errorf("%q: escape sequences, without a terminal: %q", args, r.out+r.err)
	}
	return r.out
}

// refused wants an exit code and a text among what was printed.
func (w *world) refused(code int, text string, args ...string) {
	w.Helper()
	r := w.run(args...)
	if r.code != code || !strings.Contains(r.err, text) {
		w.Errorf("%q: exit code %d, want %d and %q:\n%s%s", args, r.code, code, text, r.out, r.err)
	}
}

func (w *world) contains(text string, wanted ...string) {
	w.Helper()
	for _, want := range wanted {
		if !strings.Contains(text, want) {
			w.Errorf("no %q in:\n%s", want, text)
		}
	}
}

// terminal is a run that a person sits before.
type terminal struct {
	w      *world
	cmd    *exec.Cmd
	tty    *os.File
	screen vt10x.Terminal
	ended  chan struct{}

	mu  sync.Mutex
	raw bytes.Buffer
}

func (w *world) terminal(args ...string) *terminal {
	w.Helper()
	rows, columns := 40, cmp.Or(w.columns, 150)
	t := &terminal{w: w, cmd: w.command(args...), screen: vt10x.New(vt10x.WithSize(columns, rows)), ended: make(chan struct{})}
	var err error
	if t.tty, err = pty.StartWithSize(t.cmd, &pty.Winsize{Rows: uint16(rows), Cols: uint16(columns)}); err != nil {
		w.Fatal(err)
	}
	go func() {
		defer close(t.ended)
		_, _ = io.Copy(t, t.tty) // ends with an error when the program does
	}()
	w.Cleanup(func() {
		_ = t.cmd.Process.Kill() // in case that the test failed
		<-t.ended
		_ = t.tty.Close()
	})
	return t
}

func (t *terminal) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.raw.Write(p)
	return t.screen.Write(p)
}

func (t *terminal) all() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.raw.String()
}

func (t *terminal) sees(text string) {
	t.w.Helper()
	for end := time.Now().Add(deadline); !strings.Contains(t.screen.String(), text); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.w.Fatalf("%q is not on the screen:\n%s\nall that was written: %q", text, t.screen.String(), t.all())
		}
	}
}

// wrote waits until this has been written, be it on the screen still or not.
func (t *terminal) wrote(text string) {
	t.w.Helper()
	for end := time.Now().Add(deadline); !strings.Contains(t.all(), text); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.w.Fatalf("%q was not written: %q", text, t.all())
		}
	}
}

func (t *terminal) types(text string) {
	t.w.Helper()
	ok(t.w, errOf(io.WriteString(t.tty, text)))
}

const ctrlC = "\x03"

// ends waits for the end and wants this exit code.
func (t *terminal) ends(code int) {
	t.w.Helper()
	select {
	case <-t.ended:
	case <-time.After(deadline):
		t.w.Fatalf("it does not end:\n%s", t.screen.String())
	}
	_ = t.cmd.Wait() // its code is looked at here
	if got := t.cmd.ProcessState.ExitCode(); got != code {
		t.w.Errorf("exit code %d, want %d:\n%s", got, code, t.screen.String())
	}
}

// ok ends a test with an error.
func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// errOf is the error of a call whose result does not matter.
func errOf(_ any, err error) error { return err }
