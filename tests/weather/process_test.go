package weather

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
)

// childEnv, when set, makes the test binary a consumer: tests over real processes start
// their own binary.
const childEnv = "DELAYQUEUE_TEST_CHILD"

// childSpec is what a child does. It pushes "<pid> <event> <payload> <delivery>" to the list Events.
type childSpec struct {
	Addr, Name, Events string
	Lease              time.Duration
	Concurrent         int
	Handling           time.Duration // how long a handler takes
	KillOn             string        // payload whose handler kills its own process by SIGKILL
	HangOn             string        // payload whose handler waits until its context ends, or for ever
	MaxLosses          int
	Groups             *groupSpec
	QueueConcurrency   int // 0: any
	Rate               int // a second; 0: any
}

func childMain(text string) {
	var spec childSpec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		panic(err)
	}
	cli := queuetest.PatientClient(spec.Addr) // a report that is repeated would be there twice
	if spec.Groups != nil {
		groupChild(spec, cli)
		return
	}
	report := func(event string, payload string, delivery int) {
		line := fmt.Sprintf("%d %s %s %d", os.Getpid(), event, payload, delivery)
		if err := cli.RPush(context.Background(), spec.Events, line).Err(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	q := delayqueue.NewQueue(spec.Name, cli, nil).WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
		report("start", msg.Payload, msg.Delivery)
		switch msg.Payload {
		case spec.KillOn:
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // the signal is on its way
		case spec.HangOn:
			if msg.Delivery == 1 {
				<-ctx.Done()
				report("cause="+strings.ReplaceAll(context.Cause(ctx).Error(), " ", "_"), msg.Payload, msg.Delivery)
				return nil
			}
		}
		time.Sleep(spec.Handling)
		report("end", msg.Payload, msg.Delivery)
		return delayqueue.SetResult(ctx, fmt.Sprintf("%d end %s %d", os.Getpid(), msg.Payload, msg.Delivery)) // of messages that are kept
	}).WithLease(spec.Lease).WithConcurrent(max(spec.Concurrent, 1)).WithMaxLosses(max(spec.MaxLosses, 1)).
		WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if spec.QueueConcurrency > 0 {
		q.WithQueueConcurrency(spec.QueueConcurrency)
	}
	if spec.Rate > 0 {
		q.WithRateLimit(spec.Rate, time.Second, 1)
	}
	done := q.StartConsume()
	// The parent ends a child by closing its standard input.
	var one [1]byte
	_, _ = os.Stdin.Read(one[:])
	q.StopConsume()
	<-done
}

// child is a consumer process.
type child struct {
	cmd    *exec.Cmd
	stdin  interface{ Close() error }
	log    *queuetest.LogBuffer
	exited chan error
}

func startChild(t testing.TB, spec childSpec) *child {
	t.Helper()
	text, err := json.Marshal(spec)
	queuetest.Must(t, err)
	c := &child{cmd: exec.Command(os.Args[0]), log: &queuetest.LogBuffer{}, exited: make(chan error, 1)}
	c.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	c.cmd.Stderr = c.log
	stdin, err := c.cmd.StdinPipe()
	queuetest.Must(t, err)
	c.stdin = stdin
	queuetest.Must(t, c.cmd.Start())
	go func() { c.exited <- c.cmd.Wait() }()
	t.Cleanup(func() {
		c.signal(syscall.SIGCONT)
		_ = stdin.Close() // the child may have gone
		select {
		case <-c.exited:
		case <-time.After(queuetest.Patience):
			t.Errorf("child %d does not stop", c.cmd.Process.Pid)
			c.signal(syscall.SIGKILL)
			<-c.exited
		}
		if t.Failed() {
			t.Logf("log of child %d:\n%s", c.cmd.Process.Pid, c.log)
		}
	})
	return c
}

func (c *child) signal(s syscall.Signal) { _ = c.cmd.Process.Signal(s) } // it may have gone

func (c *child) awaitExit(t *testing.T) {
	t.Helper()
	c.exited <- queuetest.Receive(t, "the child ends", c.exited)
}

// A told is one line of a child's report.
type told struct {
	pid      int
	what     string
	payload  string
	delivery int
}

// A crew is the consumer processes of a queue on the shared server. What they do is told in a list outside the queue's own keys.
type crew struct {
	*face.Fixture
	spec childSpec
}

func crewOf(f *face.Fixture, spec childSpec) *crew {
	spec.Addr, spec.Name, spec.Events = queuetest.Shared.Addr(), f.Name, "events:"+f.Name
	spec.MaxLosses = cmp.Or(spec.MaxLosses, 3)
	f.T.Cleanup(func() { f.Cli.Del(context.Background(), spec.Events) })
	return &crew{f, spec}
}

func (c *crew) start() *child {
	c.T.Helper()
	return startChild(c.T, c.spec)
}

// told returns what was told of this kind, and of this payload; "": of any.
func (c *crew) told(what, payload string) (found []told) {
	c.T.Helper()
	lines, err := c.Cli.LRange(context.Background(), c.spec.Events, 0, -1).Result()
	c.Must(err)
	for _, line := range lines {
		var e told
		if _, err := fmt.Sscan(line, &e.pid, &e.what, &e.payload, &e.delivery); err != nil {
			c.T.Fatalf("event %q: %v", line, err)
		}
		if strings.HasPrefix(e.what, what) && (payload == "" || e.payload == payload) {
			found = append(found, e)
		}
	}
	return found
}

// tells waits until that was told once.
func (c *crew) tells(what, payload string) {
	c.T.Helper()
	queuetest.Eventually(c.T, fmt.Sprintf("a process tells %s of %s", what, payload), func() bool { return len(c.told(what, payload)) == 1 })
}

func TestConsumerKilledWhileHandling(t *testing.T) {
	t.Parallel()
	f := face.OnShared(t)
	crew := crewOf(f, childSpec{Lease: 8 * time.Second, HangOn: "work"})
	first, q := crew.start(), f.Queue(nil)
	info := f.Send(q, "work", delayqueue.WithRetryCount(0))
	crew.tells("start", "work")

	second := crew.start()
	first.signal(syscall.SIGKILL)
	killed := time.Now()
	first.awaitExit(t)
	crew.tells("end", "work")
	// A lease (of which some may be over), a second, and what two processes need on a busy machine.
	if took := time.Since(killed); took > crew.spec.Lease+time.Second+soon/2 {
		t.Errorf("redelivered %v after the kill, want within a lease and a second", took)
	}
	end := crew.told("end", "work")[0]
	if end.pid != second.cmd.Process.Pid || end.delivery != 2 {
		t.Errorf("ended by %+v, want by %d as delivery 2", end, second.cmd.Process.Pid)
	}
	queuetest.Eventually(t, "it is acked", func() bool { return f.Where(info.ID) == "gone" })
}

func TestPoisonDoesNotTakeNeighboursAlong(t *testing.T) {
	t.Parallel()
	f := face.OnShared(t)
	crew := crewOf(f, childSpec{Lease: 6 * time.Second, Concurrent: 4, Handling: 100 * time.Millisecond, KillOn: "poison"})
	q := f.Queue(nil)
	batch := []delayqueue.Outgoing{{Payload: "beside-1"}, {Payload: "poison"}, {Payload: "beside-2"}, {Payload: "beside-3"}}
	results, err := q.SendBatch(context.Background(), batch)
	f.Must(err)
	poison := results[1].Info.ID
	for kill := 1; kill <= 3; kill++ {
		crew.start().awaitExit(t)
		if starts := crew.told("start", "poison"); len(starts) != kill {
			t.Fatalf("poison was started %d times in %d processes", len(starts), kill)
		}
	}
	crew.start()
	queuetest.Eventually(t, "poison is in garbage", func() bool { return f.Where(poison) == "garbage" })
	queuetest.Eventually(t, "its neighbours are handled", func() bool { return len(f.Check().Messages) == 1 })
	if got := crew.told("start", "poison"); len(got) != 3 {
		t.Errorf("poison was handed out %d times, want 3", len(got))
	}
	record := f.Check().Fail[poison]
	if record.Losses != 3 || record.Failures != 0 || record.Error != delayqueue.ErrPoison.Error() || len(record.Errors) != 3 ||
		record.Errors[1] != queuetest.LostText {
		t.Errorf("record of the poison message: %+v", record)
	}
	for _, beside := range []string{"beside-1", "beside-2", "beside-3"} {
		if got := crew.told("end", beside); len(got) == 0 {
			t.Errorf("%s was never handled to its end", beside)
		}
	}
}

// A frozenChild was frozen while it handled a message.
type frozenChild struct {
	*child
	crew *crew
	info *delayqueue.MessageInfo
}

// freezeHandling freezes a process while it handles a message, and consumes in this one with handler.
func freezeHandling(f *face.Fixture, handler delayqueue.Handler) frozenChild {
	f.T.Helper()
	crew := crewOf(f, childSpec{Lease: 2 * time.Second, HangOn: "work"})
	q := f.Queue(nil).WithLease(20 * time.Second).WithHandler(handler)
	c := frozenChild{crew.start(), crew, f.Send(q, "work")}
	crew.tells("start", "work")
	c.signal(syscall.SIGSTOP)
	q.StartConsume()
	return c
}

// wakesTooLate lets the child go on, and waits until the context of its handler has ended because the delivery is lost.
func (c frozenChild) wakesTooLate(t *testing.T) {
	t.Helper()
	c.signal(syscall.SIGCONT)
	c.crew.tells("cause=", "work")
	if cause := c.crew.told("cause=", "work")[0].what; cause != "cause="+strings.ReplaceAll(delayqueue.ErrDeliveryLost.Error(), " ", "_") {
		t.Errorf("its cause is %s, want ErrDeliveryLost", cause)
	}
}

func TestFrozenConsumerAcksTooLate(t *testing.T) {
	t.Parallel()
	f := face.OnShared(t)
	release := make(chan struct{})
	handled := make(chan *delayqueue.Message, 2)
	frozen := freezeHandling(f, func(_ context.Context, msg *delayqueue.Message) error {
		handled <- msg
		<-release
		return nil
	})
	second := queuetest.Receive(t, "the message goes to another", handled)
	if second.Delivery != 2 || second.Failures != 0 {
		t.Errorf("second delivery is %+v", second)
	}
	frozen.wakesTooLate(t)
	// Its handler has returned nil: an ack that must change nothing. Either the consumer knows that already, or Redis says it.
	late := func() int {
		return frozen.log.Count("its result is void") + frozen.log.Count("settlements came too late and changed nothing")
	}
	queuetest.Eventually(t, "the late ack is logged", func() bool { return late() == 1 })
	if where := f.Where(frozen.info.ID); where != "unack" {
		t.Errorf("after the late ack the message is %s, want unack with its second delivery", where)
	}
	close(release)
	queuetest.Eventually(t, "the second delivery is acked", func() bool { return f.Where(frozen.info.ID) == "gone" })
	if n := late(); n != 1 {
		t.Errorf("the late ack was logged %d times, want once", n)
	}
}

// TestFrozenConsumerWhoseMessageIsAcked: it is gone, as after an interception, and the cause is
// a lost delivery all the same.
func TestFrozenConsumerWhoseMessageIsAcked(t *testing.T) {
	t.Parallel()
	f := face.OnShared(t)
	deliveries := make(chan int, 2)
	frozen := freezeHandling(f, func(_ context.Context, msg *delayqueue.Message) error {
		deliveries <- msg.Delivery
		return nil
	})
	if n := queuetest.Receive(t, "the message goes to another", deliveries); n != 2 {
		t.Errorf("delivery %d", n)
	}
	queuetest.Eventually(t, "that one acks it", func() bool { return f.Where(frozen.info.ID) == "gone" })
	frozen.wakesTooLate(t)
	f.CheckEmpty()
}

// TestThousandCalls: 1,000 calls at once, whose consumers are killed one after the other. Each returns the result of the
// delivery that was acked.
func TestThousandCalls(t *testing.T) {
	t.Parallel()
	f := face.OnShared(t)
	const calls = 1000
	crew := crewOf(f, childSpec{Lease: time.Second, Concurrent: 8, Handling: 5 * time.Millisecond, MaxLosses: 100})
	children := []*child{crew.start(), crew.start()}
	p := delayqueue.NewPublisher(f.Name, f.Cli)
	ctx, cancel := context.WithTimeout(queuetest.CtxB, 5*queuetest.Patience)
	defer cancel()
	results := make([]*delayqueue.Result, calls)
	var answered atomic.Int64
	var all sync.WaitGroup
	for i := range calls {
		all.Go(func() {
			r, err := p.Call(ctx, fmt.Sprint("m", i), delayqueue.WithRetention(time.Hour))
			if err != nil || r.State != delayqueue.StateDone {
				t.Errorf("%d: %+v, %v", i, r, err)
			}
			results[i] = r
			answered.Add(1)
		})
	}
	for i := range 3 {
		queuetest.Reaches(t, "calls are answered", (i+1)*calls/5, func() int { return int(answered.Load()) })
		victim := children[i%2]
		victim.signal(syscall.SIGKILL)
		victim.awaitExit(t)
		children[i%2] = crew.start()
	}
	queuetest.Reaches(t, "all calls are answered", calls, func() int { return int(answered.Load()) })
	all.Wait()
	ended := map[string]bool{}
	for _, e := range crew.told("", "") {
		ended[fmt.Sprintf("%d %s %s %d", e.pid, e.what, e.payload, e.delivery)] = true
	}
	state := f.Check()
	for i, r := range results {
		if want := fmt.Sprintf(" end m%d %d", i, state.Fail[r.ID].Delivery-1); !strings.HasSuffix(r.Value, want) || !ended[r.Value] {
			t.Errorf("%d: the result is %q, the delivery that was acked%s", i, r.Value, want)
		}
	}
	if len(state.Done) != calls {
		t.Errorf("%d are done", len(state.Done))
	}
}

// TestQueueConcurrencyWhenConsumersDie: what a killed consumer held is free when its leases have run out, not before; the
// others go on meanwhile with what places there are.
func TestQueueConcurrencyWhenConsumersDie(t *testing.T) {
	t.Parallel()
	f := face.OnShared(t)
	const messages, most = 40, 4
	face.Several(f, messages)
	crew := crewOf(f, childSpec{Lease: 8 * time.Second, Concurrent: 4, MaxLosses: 10, Handling: 20 * time.Millisecond,
		QueueConcurrency: most, Rate: 200})
	killedBy := map[int]string{} // by process
	for _, kill := range []string{"3", "11", "none"} {
		crew.spec.KillOn = kill
		killedBy[crew.start().cmd.Process.Pid] = kill
	}
	ended := map[string]bool{}
	queuetest.Reaches(t, "messages are handled", messages-2, func() int { // two kill whoever handles them, while there is one
		if n := len(f.Held()); n > most {
			t.Fatalf("%d are with consumers, want at most %d", n, most)
		}
		for _, e := range crew.told("end", "") {
			ended[e.payload] = true
		}
		return len(ended)
	})
	f.Drained()
	open, dead := map[int]map[string]bool{}, map[int]bool{} // what is in the hands of each process
	for _, e := range crew.told("", "") {
		if dead[e.pid] {
			continue
		} else if open[e.pid] == nil {
			open[e.pid] = map[string]bool{}
		}
		if delete(open[e.pid], e.payload); e.what == "start" {
			open[e.pid][e.payload] = true
		}
		sum := 0
		for _, set := range open {
			sum += len(set)
		}
		if sum > most {
			t.Errorf("%d at a time", sum)
		}
		if e.payload == killedBy[e.pid] {
			dead[e.pid] = true
			clear(open[e.pid])
		}
	}
}
