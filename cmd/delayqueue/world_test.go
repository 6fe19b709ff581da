package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/redis/go-redis/v9"
)

// asProgram is the variable that makes this test binary the program, with this patience.
const asProgram = "DELAYQUEUE_TEST_PATIENCE"

// shared is the server of all tests that do not need one of their own.
var shared *redistest.Server

// TestMain runs the tests. A test that runs the program starts this binary again: it is built as the tests are.
func TestMain(m *testing.M) {
	if text, is := os.LookupEnv(asProgram); is {
		patience, _ = time.ParseDuration(text) // a test wrote it
		link.ReadFor = patience
		os.Exit(run())
	}
	os.Exit(redistest.Main(m, &shared))
}

// world is a server and a prefix of the test's own.
type world struct {
	*testing.T
	url      string
	cli      redis.UniversalClient
	prefix   string
	env      []string
	columns  int           // of terminals; 0: 150
	rows     int           // of terminals; 0: 40
	patience time.Duration // of the program, on an idle machine; 0: so long that no server is taken for one that is away
	hurried  bool          // patience is the same on a busy machine: an answer that comes late does no harm
}

// inAnHour is when messages are due that nobody is to handle.
var inAnHour = delayqueue.WithDelay(time.Hour)

// hasty is the patience of a program whose server is away.
const hasty = 2 * time.Second

// Context has an end, until which a Monitor's read is tried: without one it is given up on after two seconds.
func (w *world) Context() context.Context {
	ctx, cancel := context.WithTimeout(w.T.Context(), testkit.Scaled(2*testkit.Patience))
	w.Cleanup(cancel)
	return ctx
}

// scenarios are told on one server and on a Cluster. A short test tells those of the second row on the Cluster alone.
// They are about one queue, for which the program does nothing else on one server.
var scenarios = [2][]func(w *world){{
	tellBadQueue, tellBulkStates, tellDoctor, tellDoctorShards, tellImportAsynq, tellImportHdt, tellImportShards, tellList,
	tellManyQueues, tellOtherPrefix, tellShards, tellStats, tellTop,
}, {
	tellBulkAsks, tellBulkCounted, tellBulkEmpty, tellBulkExact, tellBulkGoesOn,
	tellCancel, tellConditions, tellConsumers, tellCountdown,
	tellCountdownSteered, tellDoctorBooks, tellDoctorBusy, tellDoctorCannot, tellDoctorCountdown, tellDoctorHeld,
	tellDoctorLoss,
	tellDoctorLane, tellDoctorLanes, tellDoctorLeases, tellDoctorLostLanes, tellDoctorNewer, tellDoctorPaused,
	tellDoctorStandstill, tellErrors, tellEvents,
	tellFind, tellForecast, tellGet, tellHistory,
	tellHostile, tellImportBesideServers, tellImportCutOff, tellImportHdtPrefix,
	tellImportRubbish, tellJournal, tellLanes, tellLimits, tellManyErrors, tellPause,
	tellDelete, tellQuoting, tellRepairInSteps,
	tellRequeue, tellReschedule, tellSchedules, tellSend, tellSequencePages, tellSequences, tellShiftGoesOn, tellWatch,
	tellWhy,
}}

func TestOnOneServer(t *testing.T) {
	t.Parallel()
	tellAll(t, "redis://"+shared.Addr(), shared.Client(t), testkit.Size(scenarios[:], scenarios[:1]))
}

func TestOnCluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	tellAll(t, clusterURL(c), c.Client(t), append(scenarios[:], []func(*world){tellNodeAsServer}))
}

func clusterURL(c *redistest.Cluster) string {
	return "redis+cluster://" + strings.Join(c.Addrs(), ",")
}

func tellAll(t *testing.T, url string, cli redis.UniversalClient, rows [][]func(*world)) {
	for _, row := range rows {
		for _, tell := range row {
			_, name, _ := strings.Cut(runtime.FuncForPC(reflect.ValueOf(tell).Pointer()).Name(), ".tell")
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				tell(newWorld(t, url, cli))
			})
		}
	}
}

func newWorld(t *testing.T, url string, cli redis.UniversalClient) *world {
	return &world{T: t, url: url, cli: cli, prefix: strings.ReplaceAll(t.Name(), "/", "-")}
}

// onServer is a world on the server that tests share, for a test that runs beside others.
func onServer(t *testing.T) *world {
	t.Parallel()
	return newWorld(t, "redis://"+shared.Addr(), shared.Client(t))
}

// ownServer is a world on a server of its own, for a test that runs beside others.
func ownServer(t *testing.T, args ...string) (*world, *redistest.Server) {
	t.Parallel()
	s := redistest.Start(t, args...)
	return newWorld(t, "redis://"+s.Addr(), s.Client(t)), s
}

// key is the key of one of the structures of the queue orders.
func (w *world) key(structure string) string {
	return check.Queue{Prefix: w.prefix, Name: "orders"}.Key(structure)
}

// do changes a structure of the queue orders behind the library's back.
func (w *world) do(command, structure string, args ...any) {
	w.Helper()
	if err := w.cli.Do(w.Context(), append([]any{command, w.key(structure)}, args...)...).Err(); !errors.Is(err,
		redis.Nil) {
		ok(w, err)
	}
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
	w.sendEach(queue, n, func(i int) delayqueue.Outgoing {
		return delayqueue.Outgoing{Payload: fmt.Sprint("p", i%2),
			Options: []delayqueue.MsgOption{delayqueue.WithDelay(delay)}}
	})
}

func (w *world) sendEach(queue string, n int, message func(i int) delayqueue.Outgoing) {
	w.Helper()
	batch := make([]delayqueue.Outgoing, n)
	for i := range batch {
		batch[i] = message(i)
	}
	ok(w, errOf(w.publisher(queue).SendBatch(w.Context(), batch)))
}

// consumer makes a consumer, whose lease is so long that it is heard of however slow the machine is.
func (w *world) consumer(queue string, handler delayqueue.Handler) *delayqueue.DelayQueue {
	return delayqueue.NewQueue(queue, w.cli, nil, delayqueue.UseCustomPrefix(w.prefix)).WithHandler(handler).
		WithRetryDelays(time.Hour).WithLease(time.Minute).WithLogger(slog.New(slog.DiscardHandler))
}

// consume starts a consumer that ends with the test.
func (w *world) consume(queue string, handler delayqueue.Handler) *delayqueue.DelayQueue {
	q := w.consumer(queue, handler)
	done := q.StartConsume()
	w.Cleanup(func() {
		q.StopConsume()
		<-done
	})
	return q
}

// handled starts a consumer that acks all, and waits until it is heard of. The result are its messages.
func (w *world) handled(queue string) <-chan *delayqueue.Message {
	w.Helper()
	handled := make(chan *delayqueue.Message, 10_000)
	w.consume(queue, func(_ context.Context, m *delayqueue.Message) error {
		handled <- m
		return nil
	})
	w.heardOf(queue)
	return handled
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
func (w *world) kill(queue, text string, payloads ...string) (ids []string) {
	w.Helper()
	for _, payload := range payloads {
		ids = append(ids, w.send(queue, payload, delayqueue.WithRetryCount(0)))
	}
	q := w.consumer(queue, func(context.Context, *delayqueue.Message) error { return errors.New(text) })
	done := q.StartConsume()
	for _, id := range ids {
		w.reaches(queue, id, delayqueue.StateGarbage)
	}
	q.StopConsume()
	<-done
	return ids
}

// reaches waits until a message is in a state.
func (w *world) reaches(queue, id string, state delayqueue.State) {
	w.Helper()
	w.until(fmt.Sprintf("message %s is %v", id, state), func() bool { return w.state(queue, id) == state })
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

func (w *world) counts(queue string) ops.Counts {
	w.Helper()
	n, err := w.monitor(queue).Counts(w.Context())
	ok(w, err)
	return n
}

// hasPending waits until so many messages of the queue orders are pending. Redis may be away meanwhile.
func (w *world) hasPending(want int64) {
	w.Helper()
	w.until(fmt.Sprint(want, " are pending"), func() bool {
		n, err := w.monitor("orders").Counts(w.Context())
		return err == nil && n.Pending == want
	})
}

func (w *world) sound(queue string) *check.State {
	w.Helper()
	return check.Assert(w, w.cli, w.prefix, queue)
}

func (w *world) until(what string, is func() bool) {
	w.Helper()
	testkit.Until(w, what, is)
}

// once waits until so many messages are handled, and wants none of them twice.
func once[T any](w *world, handled <-chan T, n int, name func(T) string) {
	w.Helper()
	seen := map[string]bool{}
	for len(seen) < n {
		one := name(testkit.Receive(w, "a message", handled))
		if seen[one] {
			w.Errorf("%s was handled twice", one)
		}
		seen[one] = true
	}
	if more := len(handled); more > 0 {
		w.Errorf("%d were handled more than once", more)
	}
}

// decode reads one JSON object a line.
func decode[T any](w *world, text string) (all []T) {
	w.Helper()
	for line := range strings.Lines(text) {
		var one T
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			w.Fatalf("%v in %q", err, line)
		}
		all = append(all, one)
	}
	return all
}

// equal wants a value.
func equal[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// places wants messages in these structures.
func (w *world) places(s *check.State, want map[string]string) {
	w.Helper()
	for id, structure := range want {
		equal(w, id, s.Where(id), structure)
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
