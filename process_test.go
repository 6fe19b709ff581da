package delayqueue

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
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
	cli := patientClient(spec.Addr) // a report that is repeated would be there twice
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
	q := NewQueue(spec.Name, cli, nil).WithHandler(func(ctx context.Context, msg *Message) error {
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
		return SetResult(ctx, fmt.Sprintf("%d end %s %d", os.Getpid(), msg.Payload, msg.Delivery)) // of messages that are kept
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
	log    *logBuffer
	exited chan error
}

func startChild(t *testing.T, spec childSpec) *child {
	t.Helper()
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	c := &child{cmd: exec.Command(os.Args[0]), log: &logBuffer{}, exited: make(chan error, 1)}
	c.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	c.cmd.Stderr = c.log
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.stdin = stdin
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { c.exited <- c.cmd.Wait() }()
	t.Cleanup(func() {
		c.signal(syscall.SIGCONT)
		_ = stdin.Close() // the child may have gone
		select {
		case <-c.exited:
		case <-time.After(patience):
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
	c.exited <- receive(t, "the child ends", c.exited)
}

// event is one line of a child's report.
type event struct {
	pid      int
	what     string
	payload  string
	delivery int
}

func (f *fixture) events(list string) []event {
	f.t.Helper()
	lines, err := f.cli.LRange(context.Background(), list, 0, -1).Result()
	if err != nil {
		f.t.Fatal(err)
	}
	events := make([]event, len(lines))
	for i, line := range lines {
		if _, err := fmt.Sscan(line, &events[i].pid, &events[i].what, &events[i].payload, &events[i].delivery); err != nil {
			f.t.Fatalf("event %q: %v", line, err)
		}
	}
	return events
}

// find returns the events of a kind.
func find(events []event, what, payload string) (found []event) {
	for _, e := range events {
		if strings.HasPrefix(e.what, what) && (payload == "" || e.payload == payload) {
			found = append(found, e)
		}
	}
	return found
}

// eventList names a list for the children of a test, outside the queue's own keys.
func (f *fixture) eventList() string {
	list := "events:" + f.name
	f.t.Cleanup(func() { f.cli.Del(context.Background(), list) })
	return list
}

func TestConsumerKilledWhileHandling(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	list := f.eventList()
	spec := childSpec{Addr: shared.Addr(), Name: f.name, Events: list, Lease: 8 * time.Second, HangOn: "work", MaxLosses: 3}
	first, q := startChild(t, spec), f.queue(nil)
	info := f.send(q, "work")
	eventually(t, "the first process handles it", func() bool { return len(find(f.events(list), "start", "work")) == 1 })

	second := startChild(t, spec)
	first.signal(syscall.SIGKILL)
	killed := time.Now()
	first.awaitExit(t)
	eventually(t, "the second process handles it", func() bool { return len(find(f.events(list), "end", "work")) == 1 })
	// A lease (of which some may be over), a second, and what two processes need on a busy machine.
	if took := time.Since(killed); took > spec.Lease+time.Second+soon/2 {
		t.Errorf("redelivered %v after the kill, want within a lease and a second", took)
	}
	end := find(f.events(list), "end", "work")[0]
	if end.pid != second.cmd.Process.Pid || end.delivery != 2 {
		t.Errorf("ended by %+v, want by %d as delivery 2", end, second.cmd.Process.Pid)
	}
	eventually(t, "it is acked", func() bool { return f.where(info.ID) == "gone" })
}

func TestKilledConsumerRestartedAlone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	list := f.eventList()
	spec := childSpec{Addr: shared.Addr(), Name: f.name, Events: list, Lease: 6 * time.Second, HangOn: "work", MaxLosses: 3}
	first, q := startChild(t, spec), f.queue(nil)
	f.send(q, "work", WithRetryCount(0))
	eventually(t, "the first process handles it", func() bool { return len(find(f.events(list), "start", "work")) == 1 })
	first.signal(syscall.SIGKILL)
	first.awaitExit(t)
	state := f.check()
	if len(state.Unack) != 1 {
		t.Fatalf("%d messages in unack after the kill, want 1", len(state.Unack))
	}
	startChild(t, spec)
	eventually(t, "the process started again handles it", func() bool { return len(find(f.events(list), "end", "work")) == 1 })
	eventually(t, "no retry was used, though none was left: it is acked", func() bool { return len(f.check().Messages) == 0 })
}

func TestPoisonDoesNotTakeNeighboursAlong(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	list := f.eventList()
	spec := childSpec{
		Addr: shared.Addr(), Name: f.name, Events: list, Lease: 6 * time.Second,
		Concurrent: 4, Handling: 100 * time.Millisecond, KillOn: "poison", MaxLosses: 3,
	}
	q := f.queue(nil)
	batch := []Outgoing{{Payload: "beside-1"}, {Payload: "poison"}, {Payload: "beside-2"}, {Payload: "beside-3"}}
	results, err := q.SendBatch(context.Background(), batch)
	if err != nil {
		t.Fatal(err)
	}
	poison := results[1].Info.ID
	for kill := 1; kill <= 3; kill++ {
		startChild(t, spec).awaitExit(t)
		if starts := find(f.events(list), "start", "poison"); len(starts) != kill {
			t.Fatalf("poison was started %d times in %d processes", len(starts), kill)
		}
	}
	startChild(t, spec)
	eventually(t, "poison is in garbage", func() bool { return f.where(poison) == "garbage" })
	eventually(t, "its neighbours are handled", func() bool { return len(f.check().Messages) == 1 })
	if got := find(f.events(list), "start", "poison"); len(got) != 3 {
		t.Errorf("poison was handed out %d times, want 3", len(got))
	}
	record := f.check().Fail[poison]
	if record.Losses != 3 || record.Failures != 0 || record.Error != ErrPoison.Error() || len(record.Errors) != 3 ||
		record.Errors[1].Text != lostText {
		t.Errorf("record of the poison message: %+v", record)
	}
	for _, beside := range []string{"beside-1", "beside-2", "beside-3"} {
		if got := find(f.events(list), "end", beside); len(got) == 0 {
			t.Errorf("%s was never handled to its end", beside)
		}
	}
}

func TestFrozenConsumerAcksTooLate(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	list := f.eventList()
	spec := childSpec{Addr: shared.Addr(), Name: f.name, Events: list, Lease: 2 * time.Second, HangOn: "work", MaxLosses: 3}
	frozen := startChild(t, spec)
	release := make(chan struct{})
	handled := make(chan *Message, 2)
	q := f.queue(nil).WithLease(time.Minute).WithHandler(func(_ context.Context, msg *Message) error {
		handled <- msg
		<-release
		return nil
	})
	info := f.send(q, "work")
	eventually(t, "the process to be frozen handles it", func() bool { return len(find(f.events(list), "start", "work")) == 1 })
	frozen.signal(syscall.SIGSTOP)
	q.StartConsume()
	second := receive(t, "the message goes to another", handled)
	if second.Delivery != 2 || second.Failures != 0 {
		t.Errorf("second delivery is %+v", second)
	}
	frozen.signal(syscall.SIGCONT)
	eventually(t, "the frozen handler's context ends", func() bool { return len(find(f.events(list), "cause=", "work")) == 1 })
	if cause := find(f.events(list), "cause=", "work")[0].what; !strings.Contains(cause,
		strings.ReplaceAll(ErrDeliveryLost.Error(), " ", "_")) {
		t.Errorf("its cause is %s", cause)
	}
	// Its handler has returned nil: an ack that must change nothing.
	eventually(t, "the late ack is logged", func() bool { return frozen.log.count("its result is void") == 1 })
	if where := f.where(info.ID); where != "unack" {
		t.Errorf("after the late ack the message is %s, want unack with its second delivery", where)
	}
	close(release)
	eventually(t, "the second delivery is acked", func() bool { return f.where(info.ID) == "gone" })
	if n := frozen.log.count("void"); n != 1 {
		t.Errorf("the late ack was logged %d times, want once", n)
	}
}

// TestFrozenConsumerWhoseMessageIsAcked: it is gone, as after an interception, and the cause is
// a lost delivery all the same.
func TestFrozenConsumerWhoseMessageIsAcked(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	list := f.eventList()
	spec := childSpec{Addr: shared.Addr(), Name: f.name, Events: list, Lease: 2 * time.Second, HangOn: "work", MaxLosses: 3}
	frozen := startChild(t, spec)
	deliveries := make(chan int, 2)
	q := f.queue(nil).WithLease(time.Minute).WithHandler(func(_ context.Context, msg *Message) error {
		deliveries <- msg.Delivery
		return nil
	})
	info := f.send(q, "work")
	eventually(t, "the process to be frozen handles it", func() bool { return len(find(f.events(list), "start", "work")) == 1 })
	frozen.signal(syscall.SIGSTOP)
	q.StartConsume()
	if n := receive(t, "the message goes to another", deliveries); n != 2 {
		t.Errorf("delivery %d", n)
	}
	eventually(t, "that one acks it", func() bool { return f.where(info.ID) == "gone" })
	frozen.signal(syscall.SIGCONT)
	eventually(t, "the frozen handler's context ends", func() bool { return len(find(f.events(list), "cause=", "work")) == 1 })
	if cause := find(f.events(list), "cause=", "work")[0].what; cause != "cause="+strings.ReplaceAll(ErrDeliveryLost.Error(), " ", "_") {
		t.Errorf("its cause is %s, want ErrDeliveryLost", cause)
	}
	f.checkEmpty()
}

func TestTenProcessesOneQueue(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	list := f.eventList()
	q := f.queue(nil)
	const n = 500
	batch := make([]Outgoing, n)
	for i := range batch {
		batch[i] = Outgoing{Payload: fmt.Sprint(i), Options: []MsgOption{WithDelay(time.Duration(i) * time.Millisecond)}}
	}
	for range 10 {
		startChild(t, childSpec{Addr: shared.Addr(), Name: f.name, Events: list, Lease: 10 * time.Second, Concurrent: 2, MaxLosses: 3})
	}
	if _, err := q.SendBatch(context.Background(), batch); err != nil {
		t.Fatal(err)
	}
	f.drained()
	seen := make(map[string]int)
	pids := make(map[int]bool)
	for _, e := range find(f.events(list), "start", "") {
		seen[e.payload]++
		pids[e.pid] = true
	}
	for payload, times := range seen {
		if times != 1 {
			t.Errorf("message %s was handled %d times", payload, times)
		}
	}
	if len(seen) != n || len(pids) < 2 {
		t.Errorf("%d of %d messages were handled, by %d processes", len(seen), n, len(pids))
	}
}

// TestPoisonWithLongHandlers: handlers that take longer than a lease do not make neighbours of the
// poison message die of it, for last chances are taken one at a time.
func TestPoisonWithLongHandlers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	list := f.eventList()
	spec := childSpec{
		Addr: shared.Addr(), Name: f.name, Events: list, Lease: 4 * time.Second,
		Concurrent: 6, Handling: 5 * time.Second, KillOn: "poison", MaxLosses: 3,
	}
	batch := []Outgoing{{Payload: "poison"}}
	for i := range 3 {
		batch = append(batch, Outgoing{Payload: fmt.Sprint("beside-", i)})
	}
	results, err := f.queue(nil).SendBatch(context.Background(), batch)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		startChild(t, spec).awaitExit(t)
	}
	startChild(t, spec)
	eventually(t, "only garbage is left", func() bool { s := f.check(); return len(s.Messages) == len(s.Garbage) })
	if s := f.check(); len(s.Garbage) != 1 || s.Where(results[0].Info.ID) != "garbage" {
		t.Errorf("%d messages died as poison, want 1", len(s.Garbage))
	}
}
