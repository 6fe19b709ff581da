package features

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/script"
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
	if _, err := q.Send(queuetest.CtxB, "ten", delayqueue.WithSequence("s", 10), delayqueue.WithKey("{s}k")); !errors.Is(err, delayqueue.ErrDuplicateKey) ||
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
	f.Send(q, "before it", face.InAnHour, delayqueue.WithSequence("t", 0)) // from now on the queue's number of shards is known
	calls := face.UnderWay(t, cli)
	flying, answer := make(chan struct{}), make(chan struct{})
	var once sync.Once
	t.Cleanup(link.Interpose(cli, queuetest.CommandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		err := next(ctx, cmd)
		if cmd.Name() == "evalsha" && cmd.Args()[1] == script.PutScript.SHA && err == nil { // the script to forget callers may run, too
			once.Do(func() { close(flying); <-answer })
		}
		return err
	})))
	ctx, cancel := context.WithCancel(queuetest.CtxB)
	result := make(chan []delayqueue.SendResult)
	go func() {
		var batch []delayqueue.Outgoing
		for n := range int64(2*script.MaxPut + 1) {
			batch = append(batch, delayqueue.Outgoing{Options: []delayqueue.MsgOption{face.InAnHour, delayqueue.WithSequence("s", n)}})
		}
		got, _ := q.SendBatch(ctx, batch)
		result <- got
	}()
	<-flying
	cancel()
	got := <-result
	close(answer)
	queuetest.Eventually(t, "nothing is in flight", func() bool { return calls.Load() == 0 })
	for i, r := range got {
		if want := map[bool]delayqueue.Stored{true: delayqueue.StoredUnknown, false: delayqueue.StoredNo}[i < script.MaxPut]; face.Fate(f, r.Err) != want {
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
				switch _, err := p.Send(queuetest.CtxB, strconv.FormatInt(row, 10), face.InAnHour, delayqueue.WithSequence("outbox", row)); {
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
	if !errors.Is(err, delayqueue.ErrNotReplicated) || !errors.Is(err, delayqueue.ErrDuplicateKey) || face.Fate(f, err) != delayqueue.StoredNo || info != nil {
		t.Errorf("a key that is taken: %+v, %v", info, err)
	}
	_, err = f.Queue(nil).Send(queuetest.CtxB, "a", face.InAnHour, delayqueue.WithSequence("s", 1))
	if face.Passed(f, err, "s", 1); errors.Is(err, delayqueue.ErrNotReplicated) {
		t.Errorf("nobody asked for replicas: %v", err)
	}
}
