package delayqueue

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

	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// passed wants that a send was refused for its number, and returns the last one.
func (f *fixture) passed(err error, name string, n int64) int64 {
	f.t.Helper()
	var s *SequenceError
	if !errors.Is(err, ErrSequence) || !errors.As(err, &s) || s.Queue != f.name || s.Name != name || s.N != n || f.fate(err) != StoredNo {
		f.t.Fatalf("%v, want ErrSequence of %s, %d", err, name, n)
	}
	return s.Last
}

// TestWithSequence: a number makes one message, whoever sends it and whatever has become of that.
func TestWithSequence(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var got tally
	q := f.queue(func(payload string) bool { got.add(payload); return true })
	f.send(q, "one", WithSequence("s", 1), WithKey("k"))
	f.send(q, "nine", WithSequence("s", 9), WithHeader("a", "b"), WithMsgTTL(time.Hour))
	for _, n := range []int64{1, 2, 9, math.MinInt64} {
		_, err := NewPublisher(f.name, f.client()).Send(ctxB, "again", WithSequence("s", n))
		if last := f.passed(err, "s", n); last != 9 {
			t.Errorf("%d: the last is %d", n, last)
		}
	}
	if _, err := q.Send(ctxB, "ten", WithSequence("s", 10), WithKey("k")); !errors.Is(err, ErrDuplicateKey) || f.fate(err) != StoredNo {
		t.Errorf("a key that is taken: %v", err)
	}
	f.must(q.SendDelayMsg("ten", 0, WithSequence("s", 10)))
	f.must(q.SendScheduleMsg("eleven", time.Now(), WithSequence("s", 11)))
	f.must(q.SendDelayMsg("other", 0, WithSequence("other", 1)))
	q.StartConsume()
	eventually(t, "all are handled", func() bool { n, _ := got.counts(); return n == 5 })
	f.drained()
	_, err := q.Send(ctxB, "again", WithSequence("s", 11))
	f.passed(err, "s", 11)
	if distinct, total := got.counts(); total != distinct || got.of("again") > 0 {
		t.Errorf("handled %v", got.n)
	}
}

// TestSequenceOverBatches: what one call sends in many batches arrives in its order, whatever else is sent.
func TestSequenceOverBatches(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(nil)
	var wg sync.WaitGroup
	const calls, each = 8, 3*maxPut + 7
	for i := range calls {
		wg.Go(func() {
			var batch []Outgoing
			for n := range int64(each) {
				options := []MsgOption{inAnHour, WithSequence(fmt.Sprint("s", i), n)}
				if n%50 == 0 {
					options = options[:1] // one in between that send stores
				}
				batch = append(batch, Outgoing{Options: options})
			}
			if _, err := q.SendBatch(ctxB, batch); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	s := f.check()
	if len(s.Pending) != calls*each {
		t.Errorf("%d are stored, want %d", len(s.Pending), calls*each)
	}
	f.nothingWaits(&q.batcher)
}

// TestSequenceWithdrawn: of a call that ends while its first messages are in flight, the others are not stored.
func TestSequenceWithdrawn(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	cli := f.client()
	flying, answer := make(chan struct{}), make(chan struct{})
	var once sync.Once
	hookOwn(t, cli, commandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		err := next(ctx, cmd)
		if strings.HasPrefix(cmd.Name(), "eval") && err == nil {
			once.Do(func() { close(flying); <-answer })
		}
		return err
	}))
	q := f.queueOn(cli, nil)
	ctx, cancel := context.WithCancel(ctxB)
	result := make(chan []SendResult)
	go func() {
		var batch []Outgoing
		for n := range int64(2*maxPut + 1) {
			batch = append(batch, Outgoing{Options: []MsgOption{inAnHour, WithSequence("s", n)}})
		}
		got, _ := q.SendBatch(ctx, batch)
		result <- got
	}()
	<-flying
	cancel()
	got := <-result
	close(answer)
	eventually(t, "nothing is in flight", q.batcher.idle)
	for i, r := range got {
		if want := map[bool]Stored{true: StoredUnknown, false: StoredNo}[i < maxPut]; f.fate(r.Err) != want {
			t.Fatalf("message %d: %v, want %v", i, r.Err, want)
		}
	}
	if n := len(f.check().Pending); n != maxPut {
		t.Errorf("%d are stored, want %d", n, maxPut)
	}
	f.nothingWaits(&q.batcher)
	f.send(q, "after it", inAnHour, WithSequence("t", 1))
}

// TestSequenceManyRelays: some that send the same numbers at once, of which each now and then loses a reply and starts
// again, make one message of each.
func TestSequenceManyRelays(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const relays, rows = 6, 400
	var wg sync.WaitGroup
	var lost atomic.Int64
	for i := range relays {
		cli := f.client()
		loseReplies(t, cli, 7+int64(i), &lost)
		p := NewPublisher(f.name, cli)
		wg.Go(func() {
			for row := int64(1); row <= rows; {
				switch _, err := p.Send(ctxB, strconv.FormatInt(row, 10), inAnHour, WithSequence("outbox", row)); {
				case err == nil:
					row++
				case errors.Is(err, ErrSequence):
					row = f.passed(err, "outbox", row) + 1
				default:
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	seen := map[string]int{}
	for _, m := range f.check().Messages {
		seen[m.Payload]++
	}
	if len(seen) != rows || slices.Max(slices.Collect(maps.Values(seen))) != 1 || lost.Load() == 0 {
		t.Errorf("%d rows of %d, %v; %d replies were lost", len(seen), rows, seen, lost.Load())
	}
}

// TestSequenceOnAFullServer: nothing is stored and no number passed, by a send of one as by one of many.
func TestSequenceOnAFullServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client(t)
	f := fixtureOn(t, redis.NewClient(&redis.Options{Addr: server.Addr()}))
	q, m := f.queue(nil), NewMonitor(f.name, f.cli)
	f.send(q, "before", inAnHour, WithSequence("s", 1))
	f.must(admin.ConfigSet(ctxB, "maxmemory", "1").Err())
	_, err := q.Send(q.batcher.untilFailure(), "full", inAnHour, WithSequence("s", 2))
	if err == nil || !strings.Contains(err.Error(), "OOM") || f.fate(err) != StoredNo {
		t.Errorf("%v, want OOM and not stored", err)
	}
	eventually(t, "nothing is in flight", q.batcher.idle)
	f.must(m.DropSequence(ctxB, "s"))
	f.must(admin.ConfigSet(ctxB, "maxmemory", "0").Err())
	if s := f.check(); len(s.Pending) != 1 || len(s.Sequences) != 0 {
		t.Errorf("%s", s.Dump())
	}
	f.send(q, "after", inAnHour, WithSequence("s", 2))
}

// TestSequenceReplicated: who waits for replicas gets the same answers, and is told if what he was refused for is not
// confirmed.
func TestSequenceReplicated(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(nil).WithReplicaAck(1, 10*time.Millisecond)
	info, err := q.Send(ctxB, "a", inAnHour, WithSequence("s", 1))
	if !errors.Is(err, ErrNotReplicated) || info == nil {
		t.Errorf("%+v, %v", info, err)
	}
	info, err = q.Send(ctxB, "a", inAnHour, WithSequence("s", 1))
	f.passed(err, "s", 1)
	if !errors.Is(err, ErrNotReplicated) || info != nil {
		t.Errorf("%+v, %v", info, err)
	}
	f.send(f.queue(nil), "b", inAnHour, WithKey("k"))
	info, err = q.Send(ctxB, "b", inAnHour, WithKey("k"))
	if !errors.Is(err, ErrNotReplicated) || !errors.Is(err, ErrDuplicateKey) || f.fate(err) != StoredNo || info != nil {
		t.Errorf("a key that is taken: %+v, %v", info, err)
	}
	_, err = f.queue(nil).Send(ctxB, "a", inAnHour, WithSequence("s", 1))
	if f.passed(err, "s", 1); errors.Is(err, ErrNotReplicated) {
		t.Errorf("nobody asked for replicas: %v", err)
	}
}

// TestMonitorSequences: each can be looked at, listed and dropped.
func TestMonitorSequences(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q, m := f.queue(nil), NewMonitor(f.name, f.cli)
	if _, err := m.Sequences(ctxB, ""); !errors.Is(err, ErrNoQueue) {
		t.Errorf("no queue: %v", err)
	}
	if _, err := m.Sequence(ctxB, "s"); !errors.Is(err, ErrNoQueue) {
		t.Errorf("no queue: %v", err)
	}
	f.send(q, "x", inAnHour)
	if page, err := m.Sequences(ctxB, ""); err != nil || len(page.Sequences) != 0 || page.Next != "" {
		t.Errorf("none: %+v, %v", page, err)
	}
	const n = 600
	want := map[string]int64{}
	for i := range int64(n) {
		name := fmt.Sprint("name ", i)
		want[name] = i - 300
		f.must(f.cli.HSet(ctxB, q.store.keys.sequence, name, sequenceDigits(i-300)).Err())
	}
	got, pages := map[string]int64{}, 0
	for cursor := ""; pages == 0 || cursor != ""; pages++ {
		page, err := m.Sequences(ctxB, cursor)
		f.must(err)
		for _, s := range page.Sequences {
			got[s.Name] = s.Last
		}
		cursor = page.Next
	}
	if !maps.Equal(got, want) || pages < 2 {
		t.Errorf("%d of %d on %d pages", len(got), n, pages)
	}
	if last, err := m.Sequence(ctxB, "name 5"); err != nil || last != -295 {
		t.Errorf("%d, %v", last, err)
	}
	f.must(m.DropSequence(ctxB, "name 5"))
	_, err := m.Sequence(ctxB, "name 5")
	for what, err := range map[string]error{"dropped": err, "dropped again": m.DropSequence(ctxB, "name 5"),
		"a bad name": m.DropSequence(ctxB, "")} {
		if !errors.Is(err, ErrNotFound) || errors.Is(err, ErrNoQueue) || !strings.Contains(err.Error(), f.name) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, cursor := range []string{"x", "MTI", "IngiIA"} { // no JSON, no text, no number
		if _, err := m.Sequences(ctxB, cursor); !errors.Is(err, ErrBadCursor) {
			t.Errorf("cursor %q: %v", cursor, err)
		}
	}
	f.must(m.DeleteQueue(ctxB, false))
	f.send(q, "x", inAnHour, WithSequence("name 7", -1000))
}

// TestSequenceDigits: the texts of two numbers compare as the numbers do.
func TestSequenceDigits(t *testing.T) {
	all := []int64{math.MinInt64, math.MinInt64 + 1, -1 << 53, -11, -10, -1, 0, 1, 9, 10, 1 << 53, 1<<53 + 1, math.MaxInt64}
	for i, n := range all {
		digits := sequenceDigits(n)
		if back, err := sequenceNumber(digits); err != nil || back != n || len(digits) != 20 {
			t.Errorf("%d is %q, which is %d, %v", n, digits, back, err)
		}
		if i > 0 && digits <= sequenceDigits(all[i-1]) {
			t.Errorf("%d is %q, not more than %q", n, digits, sequenceDigits(all[i-1]))
		}
	}
	for _, bad := range []string{"", "1", "18446744073709551616", "0000000000000000001x", "000000000000000000001"} {
		if n, err := sequenceNumber(bad); err == nil {
			t.Errorf("%q is %d", bad, n)
		}
	}
}

// TestPassSequence: a sequence passes numbers without a message.
func TestPassSequence(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := NewMonitor(f.name, f.cli)
	if _, err := m.PassSequence(ctxB, "s", 5); !errors.Is(err, ErrNotFound) {
		t.Errorf("of none: %v", err)
	}
	if before, err := m.PassSequence(ctxB, "s", 7); before != 5 || err != nil {
		t.Errorf("it was at %d, %v", before, err)
	}
	_, err := NewPublisher(f.name, f.cli).Send(ctxB, "x", WithSequence("s", 7))
	f.passed(err, "s", 7)
	if _, err := m.PassSequence(ctxB, "", 7); !errors.Is(err, ErrBadOption) {
		t.Errorf("without a name: %v", err)
	}
}
