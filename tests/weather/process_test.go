package weather

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

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
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
	Shards             int           // 0: no option
}

func childMain(text string) {
	var spec childSpec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		panic(err)
	}
	cli := queuetest.PatientClient(spec.Addr) // a report that is repeated would be there twice
	report := func(event string, payload string, delivery int) {
		line := fmt.Sprintf("%d %s %s %d", os.Getpid(), event, payload, delivery)
		if err := cli.RPush(context.Background(), spec.Events, line).Err(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	var opts []delayqueue.QueueOption
	if spec.Shards > 0 {
		opts = append(opts, delayqueue.WithShards(spec.Shards))
	}
	q := delayqueue.NewQueue(spec.Name, cli, nil,
		opts...).WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
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
		return nil
	}).WithLease(spec.Lease).WithConcurrent(max(spec.Concurrent, 1)).
		WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil)))
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
	queuetest.Must(t, c.cmd.Start())
	go func() { c.exited <- c.cmd.Wait() }()
	t.Cleanup(func() {
		c.signal(syscall.SIGCONT)
		_ = stdin.Close() // the child may have gone
		select {
		case <-c.exited:
		case <-time.After(testkit.Scaled(queuetest.Patience)):
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

// A crew is the consumer processes of a queue on the shared server. What they do is told in a list outside the
// queue's own keys.
type crew struct {
	*face.Fixture
	spec childSpec
}

func crewOf(f *face.Fixture, spec childSpec) *crew {
	spec.Addr, spec.Name, spec.Events = queuetest.Shared.Addr(), f.Name, "events:"+f.Name
	spec.Shards = queuetest.Shards()
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
	queuetest.Eventually(c.T, fmt.Sprintf("a process tells %s of %s", what, payload), func() bool {
		return len(c.told(what, payload)) == 1
	})
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
	killed := testkit.Worked()
	first.awaitExit(t)
	crew.tells("end", "work")
	// A lease (of which some may be over), a second, and what two processes need.
	if took := testkit.Worked() - killed; took > crew.spec.Lease+6*time.Second {
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
	batch := []delayqueue.Outgoing{{Payload: "beside-1"}, {Payload: "poison"}, {Payload: "beside-2"},
		{Payload: "beside-3"}}
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
	if record.Losses != 3 || record.Failures != 0 || record.Error != delayqueue.ErrPoison.Error() ||
		len(record.Errors) != 3 ||
		record.Errors[1] != queuetest.LostText {
		t.Errorf("record of the poison message: %+v", record)
	}
	for _, beside := range []string{"beside-1", "beside-2", "beside-3"} {
		if got := crew.told("end", beside); len(got) == 0 {
			t.Errorf("%s was never handled to its end", beside)
		}
	}
}

func TestFrozenConsumerAcksTooLate(t *testing.T) {
	t.Parallel()
	f := face.OnShared(t)
	release := make(chan struct{})
	handled := make(chan *delayqueue.Message, 2)
	crew := crewOf(f, childSpec{Lease: 2 * time.Second, HangOn: "work"})
	q := f.Queue(nil).WithLease(20 * time.Second).WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
		handled <- msg
		<-release
		return nil
	})
	frozen, info := crew.start(), f.Send(q, "work")
	crew.tells("start", "work")
	frozen.signal(syscall.SIGSTOP)
	q.StartConsume()
	second := queuetest.Receive(t, "the message goes to another", handled)
	if second.Delivery != 2 || second.Failures != 0 {
		t.Errorf("second delivery is %+v", second)
	}
	frozen.signal(syscall.SIGCONT)
	crew.tells("cause=", "work")
	if cause := crew.told("cause=", "work")[0].what; cause != "cause="+
		strings.ReplaceAll(delayqueue.ErrDeliveryLost.Error(), " ", "_") {
		t.Errorf("its cause is %s, want ErrDeliveryLost", cause)
	}
	// Its handler has returned nil: an ack that must change nothing. Either the consumer knows that already, or Redis
	// says it.
	late := func() int {
		return frozen.log.Count("its result is void") + frozen.log.Count("settlements came too late and changed nothing")
	}
	queuetest.Eventually(t, "the late ack is logged", func() bool { return late() == 1 })
	if where := f.Where(info.ID); where != "unack" {
		t.Errorf("after the late ack the message is %s, want unack with its second delivery", where)
	}
	close(release)
	queuetest.Eventually(t, "the second delivery is acked", func() bool { return f.Where(info.ID) == "gone" })
	if n := late(); n != 1 {
		t.Errorf("the late ack was logged %d times, want once", n)
	}
}
