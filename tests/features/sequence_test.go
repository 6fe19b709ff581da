package features

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/redis/go-redis/v9"
)

// TestWithSequence: a number makes one message, whoever sends it and whatever has become of that.
func TestWithSequence(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	var got queuetest.Tally
	q := f.Queue(func(payload string) bool { got.Add(payload); return true })
	f.Send(q, "one", delayqueue.WithSequence("s", 1), delayqueue.WithKey("{s}k"))
	f.Send(q, "nine", delayqueue.WithSequence("s", 9), delayqueue.WithHeader("a", "b"), delayqueue.WithMsgTTL(time.Hour))
	for _, n := range []int64{1, 2, 9, math.MinInt64} {
		_, err := delayqueue.NewPublisher(f.Name, f.Client()).Send(queuetest.CtxB, "again", delayqueue.WithSequence("s", n))
		if last := face.Passed(f, err, "s", n); last != 9 {
			t.Errorf("%d: the last is %d", n, last)
		}
	}
	if _, err := q.Send(queuetest.CtxB, "ten", delayqueue.WithSequence("s", 10),
		delayqueue.WithKey("{s}k")); !errors.Is(err, delayqueue.ErrDuplicateKey) ||
		face.Fate(f, err) != delayqueue.StoredNo {
		t.Errorf("a key that is taken: %v", err)
	}
	f.Must(q.SendDelayMsg("ten", 0, delayqueue.WithSequence("s", 10)))
	f.Must(q.SendScheduleMsg("eleven", time.Now(), delayqueue.WithSequence("s", 11)))
	f.Must(q.SendDelayMsg("other", 0, delayqueue.WithSequence("other", 1)))
	q.StartConsume()
	queuetest.Eventually(t, "all are handled", func() bool { n, _ := got.Counts(); return n == 5 })
	f.Drained()
	_, err := q.Send(queuetest.CtxB, "again", delayqueue.WithSequence("s", 11))
	face.Passed(f, err, "s", 11)
	if distinct, total := got.Counts(); total != distinct || got.Of("again") > 0 {
		t.Errorf("handled %v", got.N)
	}
}

// TestSequenceWithdrawn: of a call that ends while its first messages are in flight, the others are not stored.
func TestSequenceWithdrawn(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	cli := f.Client()
	q := f.QueueOn(cli, nil)
	f.Send(q, "before it", face.InAnHour,
		delayqueue.WithSequence("t", 0)) // from now on the queue's number of shards is known
	calls := face.UnderWay(t, cli)
	flying, answer := make(chan struct{}), make(chan struct{})
	var once sync.Once
	t.Cleanup(link.Interpose(cli,
		queuetest.CommandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			err := next(ctx, cmd)
			if cmd.Name() == "evalsha" && cmd.Args()[1] == script.PutScript.SHA &&
				err == nil { // the script to forget callers may run, too
				once.Do(func() { close(flying); <-answer })
			}
			return err
		})))
	ctx, cancel := context.WithCancelCause(queuetest.CtxB)
	stop := errors.New("the user's own reason")
	result := make(chan []delayqueue.SendResult)
	go func() {
		var batch []delayqueue.Outgoing
		for n := range int64(2*script.MaxPut + 1) {
			batch = append(batch,
				delayqueue.Outgoing{Options: []delayqueue.MsgOption{face.InAnHour, delayqueue.WithSequence("s", n)}})
		}
		got, _ := q.SendBatch(ctx, batch)
		result <- got
	}()
	<-flying
	cancel(stop)
	got := <-result
	close(answer)
	queuetest.Eventually(t, "nothing is in flight", func() bool { return calls.Load() == 0 })
	for i, r := range got {
		want := map[bool]delayqueue.Stored{true: delayqueue.StoredUnknown, false: delayqueue.StoredNo}[i < script.MaxPut]
		if face.Fate(f, r.Err) != want || !errors.Is(r.Err, stop) {
			t.Fatalf("message %d: %v, want %v", i, r.Err, want)
		}
	}
	if n := len(f.Check().Pending); n != 1+script.MaxPut {
		t.Errorf("%d are stored, want %d", n, 1+script.MaxPut)
	}
	f.Send(q, "after it", face.InAnHour, delayqueue.WithSequence("t", 1))
}

// TestSequenceManyRelays: some that send the same numbers at once, of which each now and then loses a reply and starts
// again, make one message of each.
func TestSequenceManyRelays(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	const relays, rows = 6, 400
	var wg sync.WaitGroup
	var lost atomic.Int64
	for i := range relays {
		p := f.LossyPublisher(7+int64(i), &lost)
		wg.Go(func() {
			for row := int64(1); row <= rows; {
				switch _, err := p.Send(queuetest.CtxB, strconv.FormatInt(row, 10), face.InAnHour,
					delayqueue.WithSequence("outbox", row)); {
				case err == nil:
					row++
				case errors.Is(err, delayqueue.ErrSequence):
					row = face.Passed(f, err, "outbox", row) + 1
				default:
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	seen := map[string]int{}
	for _, m := range f.Check().Messages {
		seen[m.Payload]++
	}
	if len(seen) != rows || slices.Max(slices.Collect(maps.Values(seen))) != 1 || lost.Load() == 0 {
		t.Errorf("%d rows of %d, %v; %d replies were lost", len(seen), rows, seen, lost.Load())
	}
}

// TestSequenceReplicated: who waits for replicas gets the same answers, and is told if what he was refused for is not
// confirmed.
func TestSequenceReplicated(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	q := f.Queue(nil).WithReplicaAck(1, 10*time.Millisecond)
	info, err := q.Send(queuetest.CtxB, "a", face.InAnHour, delayqueue.WithSequence("s", 1))
	if !errors.Is(err, delayqueue.ErrNotReplicated) || info == nil {
		t.Errorf("%+v, %v", info, err)
	}
	info, err = q.Send(queuetest.CtxB, "a", face.InAnHour, delayqueue.WithSequence("s", 1))
	face.Passed(f, err, "s", 1)
	if !errors.Is(err, delayqueue.ErrNotReplicated) || info != nil {
		t.Errorf("%+v, %v", info, err)
	}
	f.Send(f.Queue(nil), "b", face.InAnHour, delayqueue.WithKey("k"))
	info, err = q.Send(queuetest.CtxB, "b", face.InAnHour, delayqueue.WithKey("k"))
	if !errors.Is(err, delayqueue.ErrNotReplicated) || !errors.Is(err, delayqueue.ErrDuplicateKey) ||
		face.Fate(f, err) != delayqueue.StoredNo || info != nil {
		t.Errorf("a key that is taken: %+v, %v", info, err)
	}
	_, err = f.Queue(nil).Send(queuetest.CtxB, "a", face.InAnHour, delayqueue.WithSequence("s", 1))
	if face.Passed(f, err, "s", 1); errors.Is(err, delayqueue.ErrNotReplicated) {
		t.Errorf("nobody asked for replicas: %v", err)
	}
}

// TestSequenceOnAFullServer: nothing is stored and no number passed, by a send of one as by one of many.
func TestSequenceOnAFullServer(t *testing.T) {
	t.Parallel()
	f, server := face.OnDefaults(t)
	admin := server.Client(t)
	calls := face.UnderWay(t, f.Cli)
	q, m := f.Queue(nil), ops.Of(delayqueue.NewMonitor(f.Name, f.Cli))
	f.Send(q, "before", face.InAnHour, delayqueue.WithSequence("s", 1))
	f.Must(admin.ConfigSet(queuetest.CtxB, "maxmemory", "1").Err())
	_, err := q.Send(f.UntilSendsFail(), "full", face.InAnHour, delayqueue.WithSequence("s", 2))
	if err == nil || !strings.Contains(err.Error(), "OOM") || face.Fate(f, err) != delayqueue.StoredNo {
		t.Errorf("%v, want OOM and not stored", err)
	}
	queuetest.Eventually(t, "nothing is in flight", func() bool { return calls.Load() == 0 })
	f.Must(m.DropSequence(queuetest.CtxB, "s"))
	f.Must(admin.ConfigSet(queuetest.CtxB, "maxmemory", "0").Err())
	if s := f.Check(); len(s.Pending) != 1 || len(s.Sequences) != 0 {
		t.Errorf("%s", s.Dump())
	}
	f.Send(q, "after", face.InAnHour, delayqueue.WithSequence("s", 2))
}

// TestMonitorSequences: each can be looked at, listed and dropped.
func TestMonitorSequences(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	q, m := f.Queue(nil), ops.Of(delayqueue.NewMonitor(f.Name, f.Cli))
	if _, err := m.Sequences(queuetest.CtxB, ""); !errors.Is(err, delayqueue.ErrNoQueue) {
		t.Errorf("no queue: %v", err)
	}
	if _, err := m.Sequence(queuetest.CtxB, "s"); !errors.Is(err, delayqueue.ErrNoQueue) {
		t.Errorf("no queue: %v", err)
	}
	f.Send(q, "x", face.InAnHour)
	if page, err := m.Sequences(queuetest.CtxB, ""); err != nil || len(page.Sequences) != 0 || page.Next != "" {
		t.Errorf("none: %+v, %v", page, err)
	}
	const n = 600
	want := map[string]int64{}
	for i := range int64(n) {
		name := fmt.Sprint("name ", i)
		want[name] = i - 300
		f.Must(f.Cli.HSet(queuetest.CtxB, f.Key("sequence"), name, message.SequenceDigits(i-300)).Err())
	}
	got, pages := map[string]int64{}, 0
	for cursor := ""; pages == 0 || cursor != ""; pages++ {
		page, err := m.Sequences(queuetest.CtxB, cursor)
		f.Must(err)
		for _, s := range page.Sequences {
			got[s.Name] = s.Last
		}
		cursor = page.Next
	}
	if !maps.Equal(got, want) || pages < 2 {
		t.Errorf("%d of %d on %d pages", len(got), n, pages)
	}
	if last, err := m.Sequence(queuetest.CtxB, "name 5"); err != nil || last != -295 {
		t.Errorf("%d, %v", last, err)
	}
	f.Must(m.DropSequence(queuetest.CtxB, "name 5"))
	_, err := m.Sequence(queuetest.CtxB, "name 5")
	for what, err := range map[string]error{"dropped": err, "dropped again": m.DropSequence(queuetest.CtxB, "name 5"),
		"a bad name": m.DropSequence(queuetest.CtxB, "")} {
		if !errors.Is(err, delayqueue.ErrNotFound) || errors.Is(err, delayqueue.ErrNoQueue) ||
			!strings.Contains(err.Error(), f.Name) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, cursor := range []string{"x", "MTI", "IngiIA"} { // no JSON, no text, no number
		if _, err := m.Sequences(queuetest.CtxB, cursor); !errors.Is(err, ops.ErrBadCursor) {
			t.Errorf("cursor %q: %v", cursor, err)
		}
	}
	f.Must(m.DeleteQueue(queuetest.CtxB, true))
	f.Send(q, "x", face.InAnHour, delayqueue.WithSequence("name 7", -1000))
}

// TestPassSequence: a sequence passes numbers without a message.
func TestPassSequence(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	m := ops.Of(delayqueue.NewMonitor(f.Name, f.Cli))
	if _, err := m.PassSequence(queuetest.CtxB, "s", 5); !errors.Is(err, delayqueue.ErrNotFound) {
		t.Errorf("of none: %v", err)
	}
	if before, err := m.PassSequence(queuetest.CtxB, "s", 7); before != 5 || err != nil {
		t.Errorf("it was at %d, %v", before, err)
	}
	_, err := delayqueue.NewPublisher(f.Name, f.Cli).Send(queuetest.CtxB, "x", delayqueue.WithSequence("s", 7))
	face.Passed(f, err, "s", 7)
	if _, err := m.PassSequence(queuetest.CtxB, "", 7); !errors.Is(err, delayqueue.ErrBadOption) {
		t.Errorf("without a name: %v", err)
	}
}
