package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	"github.com/go-delayqueue/delayqueue/internal/shard"
	"github.com/redis/go-redis/v9"
)

// A divided is a queue with shards on one server.
type divided struct {
	*face.Fixture
	m   *Queue
	set *shard.Set
}

func divide(t *testing.T, shards int) *divided {
	t.Helper()
	f := face.New(t)
	_, err := f.Calls().Shards(queuetest.CtxB, shards)
	f.Must(err)
	d := &divided{Fixture: f, m: Of(delayqueue.NewMonitor(f.Name, f.Cli))}
	if d.set, err = d.m.store.Look(queuetest.CtxB); err != nil || len(d.set.All) != shards {
		t.Fatalf("%+v, %v", d.set, err)
	}
	for i := range shards {
		if i > 0 {
			f.Named(strings.TrimSuffix(strings.TrimPrefix(d.base(i), "{dq:"), "}:"))
		}
	}
	t.Cleanup(func() { // the checker knows the field of no shards
		for i := range shards {
			f.Cli.HDel(queuetest.CtxB, d.base(i)+"state", "shards")
		}
	})
	return d
}

// base is how the keys of a shard begin.
func (d *divided) base(shard int) string {
	return strings.TrimSuffix(d.set.All[shard].Keys.State, "state")
}

// send sends a message to a shard, and returns its id.
func (d *divided) send(shard int, payload string, delay time.Duration, opts ...func(*message.Envelope)) string {
	d.T.Helper()
	return d.sendAt(shard, payload, message.When{Us: delay.Microseconds()}, opts...)
}

func (d *divided) sendAt(shard int, payload string, w message.When, opts ...func(*message.Envelope)) string {
	d.T.Helper()
	e := message.Envelope{Payload: payload, Retries: 3}
	for _, opt := range opts {
		opt(&e)
	}
	ids := message.NewIDSource()
	msg := script.SendMessage{ID: message.WithShard(ids.Next(), d.set.At(shard)), Key: e.Key, When: w,
		Version: e.Version(), Text: e.Encode(w)}
	if e.Lane.Width > 0 {
		msg.Put = &script.PutOptions{Laned: true}
	}
	_, err := d.set.All[shard].Send(queuetest.CtxB, script.NewCaller(),
		script.SendRequest{Messages: []*script.SendMessage{&msg}})
	d.Must(err)
	return msg.ID
}

// fetch lets a consumer of this name fetch from a shard, and returns the lease and what it was handed.
func (d *divided) fetch(shard int, name string, n int64, want int, presence string) script.FetchReply {
	d.T.Helper()
	got, err := d.set.All[shard].Fetch(queuetest.CtxB, &script.Caller{ID: name, N: n}, script.FetchRequest{Want: want,
		Presence: presence, Settings: &script.FetchSettings{Lease: time.Minute, MaxLosses: 3}})
	d.Must(err)
	return got
}

// end sends messages to a shard and ends their deliveries like that.
func (d *divided) end(shard int, kind script.OutcomeKind, payloads ...string) (ids []string) {
	d.T.Helper()
	for _, payload := range payloads {
		ids = append(ids, d.send(shard, payload, 0))
	}
	c := script.NewCaller()
	got := d.fetch(shard, c.ID, 1, len(ids), "-")
	var all []script.Settlement
	for _, tag := range got.Tags {
		all = append(all, script.Settlement{Lease: got.Lease, Tag: tag, ID: tag, Number: 1, Kind: kind, Failed: true,
			Failures: 1, Text: "failed", Delay: time.Hour})
	}
	d.Must(queuetest.Failure(d.set.All[shard].Settle(queuetest.CtxB, script.NewCaller(), all, false)))
	if len(all) != len(ids) {
		d.T.Fatalf("%d of %d were handed out", len(all), len(ids))
	}
	return ids
}

// spoil makes a key of a shard another program's, until undo or the end of the test.
func (d *divided) spoil(shard int, structure string) (undo func()) {
	d.T.Helper()
	key, kept := d.base(shard)+structure, d.base(shard)+structure+" kept"
	_ = d.Cli.Rename(queuetest.CtxB, key, kept).Err() // it may be empty
	d.Must(d.Cli.Set(queuetest.CtxB, key, "x", 0).Err())
	undo = sync.OnceFunc(func() {
		d.Cli.Del(queuetest.CtxB, key)
		_ = d.Cli.Rename(queuetest.CtxB, kept, key).Err()
	})
	d.T.Cleanup(undo)
	return undo
}

// inPart wants that a call was answered by so many shards only.
func (d *divided) inPart(what string, err error, answered int) {
	d.T.Helper()
	var m *shard.MissingError
	if !errors.As(err, &m) || !errors.Is(err, delayqueue.ErrMissingShards) || m.Answered != answered ||
		m.Of != len(d.set.All) || !strings.Contains(err.Error(), d.Name) {
		d.T.Errorf("%s: %v, want %d of %d shards", what, err, answered, len(d.set.All))
	}
}

// TestSteerInShards: a call for one message finds it in its shard, by its id or its key.
func TestSteerInShards(t *testing.T) {
	t.Parallel()
	d := divide(t, 3)
	for i := range 3 {
		key := fmt.Sprintf("key %d", i)
		id := d.send(i, "x", time.Hour)
		d.send(d.set.Named(key), key, time.Hour, func(e *message.Envelope) { e.Key = key })
		if got, err := d.m.Get(queuetest.CtxB, id); err != nil || got.Payload != "x" {
			t.Errorf("get: %+v, %v", got, err)
		}
		if got, err := d.m.GetKey(queuetest.CtxB, key); err != nil || got.Payload != key {
			t.Errorf("get: %+v, %v", got, err)
		}
		d.Must(d.m.RunNow(queuetest.CtxB, id))
		d.Must(d.m.Delete(queuetest.CtxB, id))
		d.Must(d.m.RescheduleKey(queuetest.CtxB, key, time.Now()))
		if got, err := d.m.CancelKey(queuetest.CtxB, key); err != nil || !got.Intercepted {
			t.Errorf("cancel: %+v, %v", got, err)
		}
	}
	if _, err := d.m.Get(queuetest.CtxB, "5"); !errors.Is(err, delayqueue.ErrNotFound) {
		t.Errorf("no id: %v", err)
	}
}

// TestConsumersOfShards: a consumer is one, whichever shards it tells of itself.
func TestConsumersOfShards(t *testing.T) {
	t.Parallel()
	d := divide(t, 3)
	handles := func(up int64, us ...int64) string {
		var all []string
		for _, us := range us {
			all = append(all, fmt.Sprintf(`{"id":"m%d","us":%d}`, us, us))
		}
		return fmt.Sprintf(`{"host":"h","pid":1,"up":%d,"concurrency":4,"handling":[%s]}`, up, strings.Join(all, ","))
	}
	var many []int64
	for i := range int64(90) {
		many = append(many, 1000+i)
	}
	d.fetch(0, "a", 1, 0, handles(3e6, 500, 3))
	d.fetch(1, "a", 1, 0, handles(60e6, 700))
	d.fetch(2, "a", 1, 0, handles(3e6, many...))
	d.fetch(2, "b", 1, 0, handles(1e6))
	got, err := d.m.Consumers(queuetest.CtxB)
	if err != nil || len(got) != 2 || got[0].ID != "a" || got[1].ID != "b" || len(got[0].Handling) != 93 ||
		got[0].Concurrency != 4 {
		t.Fatalf("%+v, %v", got, err)
	}
	if up := got[0].Seen.Sub(got[0].Since); up < time.Minute-time.Second {
		t.Errorf("up for %v", up)
	}
	if !slices.IsSortedFunc(got[0].Handling, func(a, b Handling) int { return int(b.For - a.For) }) {
		t.Errorf("not the longest first: %v", got[0].Handling)
	}
	if err := d.m.DeleteQueue(queuetest.CtxB, false); !errors.Is(err, ErrConsumersAlive) {
		t.Errorf("delete: %v", err)
	}
	d.spoil(0, "consumers")
	got, err = d.m.Consumers(queuetest.CtxB)
	if d.inPart("consumers", err, 2); len(got) != 2 || len(got[0].Handling) != 91 {
		t.Errorf("%+v", got)
	}
}

// TestQueueOfShards: what is done to a queue is done to each of its shards, and the journal says so once.
func TestQueueOfShards(t *testing.T) {
	t.Parallel()
	d := divide(t, 3)
	m := d.m.WithOperator("me")
	for i := range 3 {
		d.send(i, "x", time.Hour)
	}
	acts := func(want ...string) {
		t.Helper()
		page, err := m.Journal(queuetest.CtxB, 0, "")
		d.Must(err)
		var got []string
		for _, e := range page.Entries {
			got = append(got, strings.TrimSpace(string(e.Act)+" "+e.Detail))
		}
		if slices.Reverse(got); !slices.Equal(got, want) {
			t.Errorf("the journal has %q, want %q", got, want)
		}
	}
	d.Must(m.Pause(queuetest.CtxB))
	undo := d.spoil(2, "wake")
	d.inPart("resume", m.Resume(queuetest.CtxB), 2)
	_, err := m.SetLimits(queuetest.CtxB, Limits{Concurrency: 9})
	d.inPart("limits", err, 2)
	undo()
	d.Must(m.Resume(queuetest.CtxB))
	before, err := m.SetLimits(queuetest.CtxB, Limits{Rate: 1, Per: time.Second, Burst: 1})
	if err != nil || before != (Limits{Concurrency: 9}) {
		t.Errorf("before: %v, %v", before, err)
	}
	if l, err := m.Limits(queuetest.CtxB); err != nil || l.Set != (Limits{Rate: 1, Per: time.Second, Burst: 3}) {
		t.Errorf("%+v, %v", l, err)
	}
	if _, err := m.SetLimits(queuetest.CtxB, Limits{Rate: 1, Per: 200 * 24 * time.Hour, Burst: 1}); !errors.Is(err,
		delayqueue.ErrBadOption) {
		t.Errorf("too slow for shards: %v", err)
	}
	if all, err := m.History(queuetest.CtxB, Daily, 1); err != nil || all[0].Sent != 3 {
		t.Errorf("%+v, %v", all, err)
	}
	if f, err := m.Forecast(queuetest.CtxB, time.Time{}, 2*time.Hour, 1); err != nil || f.Buckets[0].Pending != 3 {
		t.Errorf("%+v, %v", f, err)
	}
	acts("pause", "resume in 2 of 3 shards", "set limits 9 at a time; before: no limit; in 2 of 3 shards", "resume",
		"set limits 1 in 1s, burst 1; before: 9 at a time")
	undo = d.spoil(1, "history")
	all, err := m.History(queuetest.CtxB, Daily, 1)
	if d.inPart("history", err, 2); len(all) != 1 || all[0].Sent != 2 {
		t.Errorf("%+v", all)
	}
	undo()
	d.spoil(1, "waiting")
	f, err := m.Forecast(queuetest.CtxB, time.Time{}, 2*time.Hour, 1)
	if d.inPart("forecast", err, 2); f == nil || f.Buckets[0].Pending != 2 {
		t.Errorf("%+v", f)
	}
	d.Must(m.DeleteQueue(queuetest.CtxB, true))
	if err := m.DeleteQueue(queuetest.CtxB, false); !errors.Is(err, delayqueue.ErrNoQueue) {
		t.Errorf("deleted: %v", err)
	}
}

// TestSequencesOfShards: the pages go through all shards.
func TestSequencesOfShards(t *testing.T) {
	t.Parallel()
	d := divide(t, 3)
	names := []string{"a", "b", "c", "d", "e", "f"}
	for _, name := range names {
		if _, err := d.m.PassSequence(queuetest.CtxB, name, 5); !errors.Is(err, delayqueue.ErrNotFound) {
			t.Error(err)
		}
		if last, err := d.m.Sequence(queuetest.CtxB, name); err != nil || last != 5 {
			t.Errorf("%s: %d, %v", name, last, err)
		}
	}
	var met []string
	for cursor, n := "", 0; cursor != "" || n == 0; n++ {
		page, err := d.m.Sequences(queuetest.CtxB, cursor)
		d.Must(err)
		for _, s := range page.Sequences {
			met = append(met, s.Name)
		}
		if cursor = page.Next; n > 20 {
			t.Fatal("the pages have no end")
		}
	}
	if slices.Sort(met); !slices.Equal(met, names) {
		t.Errorf("sequences %v", met)
	}
}

// TestChangesOfShardsWait: the first call of a Queue that changes something is tried until its context ends, also
// while the number of shards is not known.
func TestChangesOfShardsWait(t *testing.T) { // not parallel, because of ReadFor
	readFor := link.ReadFor
	defer func() { link.ReadFor = readFor }()
	link.ReadFor = queuetest.Hasty
	f, wire, cli := face.Wired(t)
	f.Send(f.Queue(nil), "x", face.InAnHour)
	wire.Cut()
	if _, err := Of(delayqueue.NewMonitor(f.Name, cli)).Get(queuetest.CtxB, "x"); err == nil {
		t.Error("a call that reads waits")
	}
	done := make(chan error, 1)
	go func() { done <- Of(delayqueue.NewMonitor(f.Name, cli)).Pause(queuetest.CtxB) }()
	select {
	case err := <-done:
		t.Fatal(err)
	case <-time.After(10 * queuetest.Hasty):
	}
	wire.Mend()
	f.Must(queuetest.Receive(t, "the pause", done))
}

// TestSilentShard: a shard that does not answer is missing when the context ends, and holds up no call for what is in
// another.
func TestSilentShard(t *testing.T) {
	t.Parallel()
	d := divide(t, 2)
	ids := []string{d.send(0, "x", time.Hour), d.send(1, "x", time.Hour)}
	for i := range 2 {
		d.fetch(i, "c", 1, 0, `{"host":"h","pid":1,"up":1,"concurrency":2}`)
	}
	var struck, ends atomic.Int64
	defer link.Interpose(d.Cli,
		queuetest.CommandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if args := cmd.Args(); len(args) > 3 && strings.HasPrefix(fmt.Sprint(args[3]), d.base(1)) {
				struck.Add(1)
				until, _ := ctx.Deadline()
				ends.Store(until.UnixMicro())
				<-ctx.Done()
				cmd.SetErr(ctx.Err())
				return ctx.Err()
			}
			return next(ctx, cmd)
		}))()
	m := Of(delayqueue.NewMonitor(d.Name, d.Cli))
	ctx := func() context.Context { return queuetest.Within(t, time.Second) }
	all, err := m.Consumers(ctx())
	if d.inPart("consumers", err, 1); len(all) != 1 || struck.Load() == 0 {
		t.Errorf("%+v", all)
	}
	mine := ctx()
	d.inPart("pause", m.Pause(mine), 1)
	if until, _ := mine.Deadline(); ends.Load() >= until.UnixMicro() {
		t.Error("the pause waited for the shard until the end of the caller's time")
	}
	if err := m.DeleteQueue(ctx(), true); err == nil || !strings.Contains(err.Error(), "shard 2 of 2") {
		t.Errorf("delete: %v", err)
	}
	if err := m.RunNow(ctx(), ids[0]); err != nil {
		t.Errorf("a message of another shard: %v", err)
	}
	if err := m.RunNow(ctx(), ids[1]); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a message of that shard: %v", err)
	}
}
