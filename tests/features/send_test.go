package features

import (
	"context"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
)

func TestSendBadOptions(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	q := f.Queue(nil)
	refusesOptions(f, map[string]badOptions{
		"nil option": {[]delayqueue.MsgOption{nil}, []string{"option 1 is nil"}},
		"empty key":  {[]delayqueue.MsgOption{delayqueue.WithKey("")}, []string{"WithKey: 0 bytes"}},
		"blank key": {[]delayqueue.MsgOption{delayqueue.WithKey(" \t")},
			[]string{`WithKey(" \t"): a key of blanks only`}},
		"key over 512 bytes": {[]delayqueue.MsgOption{delayqueue.WithKey(strings.Repeat("k", 513))},
			[]string{"WithKey: 513 bytes"}},
		"short retention": {[]delayqueue.MsgOption{delayqueue.WithRetention(time.Second - 1)},
			[]string{"WithRetention(999.999999ms)"}},
		"long retention": {[]delayqueue.MsgOption{delayqueue.WithRetention(90*24*time.Hour + 1)}, []string{"90 days"}},
		"TTL of 0":       {[]delayqueue.MsgOption{delayqueue.WithMsgTTL(0)}, []string{"WithMsgTTL(0s)"}},
		"TTL below 1 ms": {[]delayqueue.MsgOption{delayqueue.WithMsgTTL(time.Millisecond - 1)},
			[]string{"at least 1ms"}},
		"empty header key":     {[]delayqueue.MsgOption{delayqueue.WithHeader("", "v")}, []string{"WithHeader"}},
		"delay that overflows": {[]delayqueue.MsgOption{delayqueue.WithDelay(math.MaxInt64)}, []string{"delay 2562047h"}},
		"time after 2200": {[]delayqueue.MsgOption{delayqueue.WithSchedule(time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC))},
			[]string{"2200"}},
	})
	for name, err := range map[string]error{
		"WithDelay in SendDelayMsg":       q.SendDelayMsg("x", 0, delayqueue.WithDelay(1)),
		"WithSchedule in SendScheduleMsg": q.SendScheduleMsg("x", time.Now(), delayqueue.WithSchedule(time.Now())),
		"delay of SendDelayMsg":           q.SendDelayMsg("x", math.MaxInt64),
		"time of SendScheduleMsg":         q.SendScheduleMsg("x", time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC)),
	} {
		if !errors.Is(err, delayqueue.ErrBadOption) {
			t.Errorf("%s: %v", name, err)
		}
	}
	f.CheckEmpty()
}

func TestSendPayloads(t *testing.T) {
	f := face.New(t)
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	payloads := []string{"", string(every), "\x00", strings.Repeat("\xff\r\n", 3000),
		strings.Repeat("64 megabytes....", 4<<20)}
	got := make(chan string, len(payloads))
	q := f.Queue(func(payload string) bool { got <- payload; return true })
	for _, p := range payloads {
		f.Send(q, p)
	}
	q.StartConsume()
	for range payloads {
		if p := queuetest.Receive(t, "it arrives", got); !slices.Contains(payloads, p) {
			t.Errorf("a payload arrived as %d other bytes", len(p))
		} else {
			payloads = slices.DeleteFunc(slices.Clone(payloads), func(other string) bool { return other == p })
		}
	}
	f.Drained()
}

func TestSendBatch(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	q := f.Queue(nil)
	f.Send(q, "holder", delayqueue.WithKey("taken"), delayqueue.WithDelay(time.Hour))
	batch := []delayqueue.Outgoing{
		{Payload: "good", Options: []delayqueue.MsgOption{delayqueue.WithDelay(time.Hour), delayqueue.WithKey("free")}},
		{Payload: "bad option", Options: []delayqueue.MsgOption{delayqueue.WithRetention(1)}},
		{Payload: "key taken", Options: []delayqueue.MsgOption{delayqueue.WithKey("taken")}},
		{Payload: "key taken in the batch", Options: []delayqueue.MsgOption{delayqueue.WithKey("free")}},
	}
	for range 1200 { // several script calls
		batch = append(batch,
			delayqueue.Outgoing{Payload: "more", Options: []delayqueue.MsgOption{delayqueue.WithDelay(time.Hour)}})
	}
	results, err := q.SendBatch(context.Background(), batch)
	if len(results) != len(batch) {
		t.Fatalf("%d results for %d messages", len(results), len(batch))
	}
	if !errors.Is(err, delayqueue.ErrBadOption) || !errors.Is(err, delayqueue.ErrDuplicateKey) {
		t.Errorf("the joined error is %v", err)
	}
	if results[0].Err != nil || results[0].Info.Key != "free" || time.Until(results[0].Info.Due) > time.Hour {
		t.Errorf("good: %+v", results[0])
	}
	if !errors.Is(results[1].Err, delayqueue.ErrBadOption) || results[1].Info != nil {
		t.Errorf("bad option: %+v", results[1])
	}
	for i, r := range results[2:4] {
		if !errors.Is(r.Err, delayqueue.ErrDuplicateKey) {
			t.Errorf("key taken %d: %+v", i, r)
		}
	}
	state := f.Check()
	if len(state.Pending) != 1202 {
		t.Errorf("%d pending, want 1202", len(state.Pending))
	}
	for i, r := range results[4:] {
		if r.Err != nil || state.Messages[r.Info.ID].Due != r.Info.Due.UnixMicro() {
			t.Fatalf("message %d: %+v, stored as %+v", i, r, state.Messages[r.Info.ID])
		}
	}
	if empty, err := q.SendBatch(context.Background(), nil); err != nil || len(empty) != 0 {
		t.Errorf("an empty batch: %v, %v", empty, err)
	}
}

// TestSendCancelled: who calls with a context that has ended is told its cause. TestSequenceWithdrawn has a call whose
// context ends later.
func TestSendCancelled(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	q := f.Queue(nil)
	stop := errors.New("the user's own reason")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(stop)
	results, batch := q.SendBatch(ctx, []delayqueue.Outgoing{{Payload: "x"}})
	for call, err := range map[string]error{"Send": queuetest.Failure(q.Send(ctx, "x")), "SendBatch": batch,
		"of the batch": results[0].Err,
		"Intercept":    queuetest.Failure(q.Intercept(ctx, "x"))} {
		if !errors.Is(err, stop) {
			t.Errorf("%s: %v", call, err)
		}
	}
	f.CheckEmpty()
}

// TestRedisRefuses covers OOM, READONLY, NOAUTH and WRONGTYPE.
func TestRedisRefuses(t *testing.T) {
	t.Parallel()
	f, server := face.OnDefaults(t)
	admin := server.Client(t)
	calls := face.UnderWay(t, f.Cli)
	ctx := context.Background()
	config := func(name, value string) {
		t.Helper()
		f.Must(admin.ConfigSet(ctx, name, value).Err())
	}
	refused := func(what, text string, target error) {
		t.Helper()
		_, err := f.Queue(nil).Send(f.UntilSendsFail(), "refused") // a replica is asked to its end
		if err == nil || !strings.Contains(err.Error(), text) || !strings.Contains(err.Error(), f.Name) ||
			!strings.Contains(err.Error(), "message 0") {
			t.Errorf("%s: send returned %v; want %q, the queue and the id", what, err, text)
		}
		if target != nil && !errors.Is(err, target) {
			t.Errorf("%s: %v is not %v", what, err, target)
		}
		queuetest.Eventually(t, "nothing is under way", func() bool { return calls.Load() == 0 })
	}

	// A full server refuses sends, and consuming drains it.
	q := f.Queue(func(string) bool { return true })
	for range 100 {
		f.Send(q, "work")
	}
	config("maxmemory", "1")
	refused("OOM", "OOM", nil)
	q.StartConsume()
	queuetest.Eventually(t, "consuming drains a full server", func() bool { return len(f.Check().Messages) == 0 })
	config("maxmemory", "0")
	q.StopConsume()

	f.Must(admin.Do(ctx, "replicaof", "127.0.0.1", "1").Err())
	refused("READONLY", "READONLY", context.DeadlineExceeded)
	f.Must(admin.Do(ctx, "replicaof", "no", "one").Err())

	for _, structure := range []string{"pending", "msg", "key", "wake",
		"state"} { // held is read if an acked message has the key: TestScriptWritesAllOrNothing
		name := f.Key(structure)
		if err := admin.Rename(ctx, name, "aside").Err(); err != nil && !strings.Contains(err.Error(), "no such key") {
			t.Fatal(err)
		}
		f.Must(admin.Set(ctx, name, "somebody else's", 0).Err())
		q := f.Queue(nil)
		_, err := q.Send(ctx, "x", delayqueue.WithKey("k"))
		if !errors.Is(err, delayqueue.ErrWrongType) || !strings.Contains(err.Error(), "belongs to another program") {
			t.Errorf("wrong type of %s: %v", name, err)
		}
		admin.Del(ctx, name)
		if err := admin.Rename(ctx, "aside", name).Err(); err != nil && !strings.Contains(err.Error(), "no such key") {
			t.Fatal(err)
		}
		f.CheckEmpty() // nothing was half written
	}

	config("requirepass", "secret")
	f2 := delayqueue.NewQueue(f.Name, queuetest.RedisClient(t, server.Addr()), nil)
	if _, err := f2.Send(ctx, "x"); err == nil || !strings.Contains(err.Error(), "NOAUTH") {
		t.Errorf("NOAUTH: %v", err)
	}
	f.Must(admin.ConfigSet(ctx, "requirepass", "").Err())
}

// TestEnvelopeOfSend goes all the way through the options.
func TestEnvelopeOfSend(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	q := f.Queue(nil)
	info, err := q.Send(context.Background(), "\x00payload\xff", delayqueue.WithKey(strings.Repeat("k", 512)),
		delayqueue.WithDelay(time.Hour),
		delayqueue.WithRetryCount(7),
		delayqueue.WithMsgTTL(90*time.Second), delayqueue.WithHeader("a", "1"), delayqueue.WithHeader("b", ""))
	f.Must(err)
	got := f.Check().Messages[info.ID]
	want := check.Envelope{Format: 2, Size: got.Size,
		Envelope: message.Envelope{Due: info.Due.UnixMicro(), Key: info.Key, TTL: 90 * time.Second,
			Since: message.LatestUnknown, Headers: map[string]string{"a": "1", "b": ""}, Retries: 7, Payload: "\x00payload\xff"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("stored %+v, want %+v", got, want)
	}
}
