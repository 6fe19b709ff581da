package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/redis/go-redis/v9"
)

func TestSendBadOptions(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(nil)
	for name, c := range map[string]struct {
		opt  MsgOption
		text string
	}{
		"nil option":           {nil, "option 1 is nil"},
		"negative retry count": {WithRetryCount(-1), "WithRetryCount(-1)"},
		"empty key":            {WithKey(""), "WithKey: 0 bytes"},
		"key over 512 bytes":   {WithKey(strings.Repeat("k", 513)), "WithKey: 513 bytes"},
		"TTL of 0":             {WithMsgTTL(0), "WithMsgTTL(0s)"},
		"no retention":         {WithRetention(0), "WithRetention(0s)"},
		"short retention":      {WithRetention(time.Second - 1), "WithRetention(999.999999ms)"},
		"long retention":       {WithRetention(90*24*time.Hour + 1), "90 days"},
		"retention in seconds": {WithRetention(30), "did you mean 30*time.Second?"},
		"negative TTL":         {WithMsgTTL(-time.Second), "WithMsgTTL(-1s)"},
		"TTL below 1 ms":       {WithMsgTTL(time.Millisecond - 1), "at least 1ms"},
		"empty header key":     {WithHeader("", "v"), "WithHeader"},
		"delay that overflows": {WithDelay(math.MaxInt64), "delay 2562047h"},
		"time after 2200":      {WithSchedule(time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)), "2200"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := q.Send(context.Background(), "x", c.opt)
			if !errors.Is(err, ErrBadOption) || !strings.Contains(fmt.Sprint(err), c.text) || !strings.Contains(fmt.Sprint(err), f.name) {
				t.Errorf("Send: %v; want ErrBadOption with %q and the queue's name", err, c.text)
			}
			if err := q.SendDelayMsg("x", 0, c.opt); !errors.Is(err, ErrBadOption) {
				t.Errorf("SendDelayMsg: %v", err)
			}
		})
	}
	for name, err := range map[string]error{
		"WithDelay in SendDelayMsg":       q.SendDelayMsg("x", 0, WithDelay(1)),
		"WithSchedule in SendScheduleMsg": q.SendScheduleMsg("x", time.Now(), WithSchedule(time.Now())),
		"delay of SendDelayMsg":           q.SendDelayMsg("x", math.MaxInt64),
		"time of SendScheduleMsg":         q.SendScheduleMsg("x", time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC)),
	} {
		if !errors.Is(err, ErrBadOption) {
			t.Errorf("%s: %v", name, err)
		}
	}
	f.checkEmpty()
}

func TestSendPayloads(t *testing.T) {
	f := newFixture(t)
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	payloads := []string{"", string(every), "\x00", strings.Repeat("\xff\r\n", 3000), strings.Repeat("64 megabytes....", 4<<20)}
	got := make(chan string, len(payloads))
	q := f.queue(func(payload string) bool { got <- payload; return true })
	for _, p := range payloads {
		f.send(q, p)
	}
	q.StartConsume()
	for _, want := range payloads {
		if p := receive(t, "it arrives", got); p != want {
			t.Errorf("payload of %d bytes arrived as %d other bytes", len(want), len(p))
		}
	}
	eventually(t, "all are settled", func() bool {
		n, err := f.cli.HLen(context.Background(), q.store.keys.msg).Result()
		return n == 0 && err == nil
	})
	if err := fits(maxPayload + 1); !errors.Is(err, ErrPayloadTooLarge) || fits(maxPayload) != nil {
		t.Errorf("a payload that no Redis string can hold: %v", err)
	}
}

func TestSendBatch(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(nil)
	f.send(q, "holder", WithKey("taken"), WithDelay(time.Hour))
	batch := []Outgoing{
		{Payload: "good", Options: []MsgOption{WithDelay(time.Hour), WithKey("free")}},
		{Payload: "bad option", Options: []MsgOption{WithRetryCount(-1)}},
		{Payload: "key taken", Options: []MsgOption{WithKey("taken")}},
		{Payload: "key taken in the batch", Options: []MsgOption{WithKey("free")}},
	}
	for range 1200 { // several script calls
		batch = append(batch, Outgoing{Payload: "more", Options: []MsgOption{WithDelay(time.Hour)}})
	}
	results, err := q.SendBatch(context.Background(), batch)
	if len(results) != len(batch) {
		t.Fatalf("%d results for %d messages", len(results), len(batch))
	}
	if !errors.Is(err, ErrBadOption) || !errors.Is(err, ErrDuplicateKey) {
		t.Errorf("the joined error is %v", err)
	}
	if results[0].Err != nil || results[0].Info.Key != "free" || time.Until(results[0].Info.Due) > time.Hour {
		t.Errorf("good: %+v", results[0])
	}
	if !errors.Is(results[1].Err, ErrBadOption) || results[1].Info != nil {
		t.Errorf("bad option: %+v", results[1])
	}
	for i, r := range results[2:4] {
		if !errors.Is(r.Err, ErrDuplicateKey) {
			t.Errorf("key taken %d: %+v", i, r)
		}
	}
	state := f.check()
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

func TestSendDuplicateKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.queue(nil).WithHandler(func(_ context.Context, msg *Message) error {
		if msg.Payload == "dies" {
			return ErrSkipRetry
		}
		return nil
	})
	keyed := func(payload string, opts ...MsgOption) (*MessageInfo, error) {
		return q.Send(context.Background(), payload, append(opts, WithKey("order-42"))...)
	}
	for _, end := range []string{"acked", "intercepted", "garbage"} {
		payload := map[string]string{"acked": "lives", "intercepted": "lives", "garbage": "dies"}[end]
		first, err := keyed(payload, WithDelay(200*time.Millisecond))
		if err != nil {
			t.Fatalf("%s: the key is not free: %v", end, err)
		}
		_, err = keyed(payload)
		var dup *DuplicateKeyError
		if !errors.Is(err, ErrDuplicateKey) || !errors.As(err, &dup) || dup.ID != first.ID || dup.Key != "order-42" || dup.Queue != f.name {
			t.Errorf("%s: second send: %v; want ErrDuplicateKey naming %s", end, err, first.ID)
		}
		if end == "intercepted" {
			if r, err := q.TryIntercept(first); err != nil || !r.Intercepted {
				t.Fatalf("intercept: %+v, %v", r, err)
			}
		} else {
			done := q.StartConsume()
			eventually(t, end, func() bool { w := f.where(first.ID); return w == "gone" || w == "garbage" })
			q.StopConsume()
			receive(t, "it stops", done)
		}
	}
	if _, err := keyed("after garbage", WithDelay(time.Hour)); err != nil {
		t.Errorf("the key is not free after garbage: %v", err)
	}
}

func TestSendCancelled(t *testing.T) {
	t.Parallel()
	f, server := ownServer(t)
	q := f.queue(nil)
	stop := errors.New("the user's own reason")

	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(stop)
	if _, err := q.Send(ctx, "x"); !errors.Is(err, stop) {
		t.Errorf("cancelled before: %v", err)
	}
	if results, err := q.SendBatch(ctx, []Outgoing{{Payload: "x"}}); !errors.Is(err, stop) || !errors.Is(results[0].Err, stop) {
		t.Errorf("batch cancelled before: %v", err)
	}
	if _, err := q.Intercept(ctx, "x"); !errors.Is(err, stop) {
		t.Errorf("intercept cancelled before: %v", err)
	}
	f.checkEmpty()

	// In flight: the server stands still, one caller withdraws, the other one's message arrives.
	server.Pause()
	ctx, cancel = context.WithCancelCause(context.Background())
	left := make(chan error)
	stayed := make(chan error)
	for range 4 { // more than can be in flight
		go func() { _, err := q.Send(ctx, "leaves", WithDelay(time.Hour)); left <- err }()
		go func() { _, err := q.Send(context.Background(), "stays", WithDelay(time.Hour)); stayed <- err }()
	}
	time.AfterFunc(50*time.Millisecond, func() { cancel(stop) })
	for range 4 {
		if err := receive(t, "a withdrawn call returns at once", left); !errors.Is(err, stop) {
			t.Errorf("cancelled in flight: %v", err)
		}
	}
	server.Resume()
	for range 4 {
		if err := receive(t, "the other one's send returns", stayed); err != nil {
			t.Errorf("another's cancelled context failed this send: %v", err)
		}
	}
	state := f.check() // in or out, never half in
	stays := 0
	for _, m := range state.Messages {
		if m.Payload == "stays" {
			stays++
		}
	}
	if stays != 4 {
		t.Errorf("%d messages that stayed are stored, want 4", stays)
	}
}

func TestSendGivesUp(t *testing.T) {
	t.Parallel()
	cli := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1})
	defer cli.Close()
	q := NewQueue("nobody-there", cli, nil)
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	if _, err := q.Send(ctx, "x"); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), `"nobody-there"`) {
		t.Errorf("Send: %v", err)
	}
	if _, err := q.Intercept(ctx, "x"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Intercept: %v", err)
	}
}

// TestRedisRefuses covers OOM, READONLY, NOAUTH and WRONGTYPE.
func TestRedisRefuses(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client(t)
	f := fixtureOn(t, redis.NewClient(&redis.Options{Addr: server.Addr()}))
	ctx := context.Background()
	config := func(name, value string) {
		t.Helper()
		if err := admin.ConfigSet(ctx, name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(what, text string, target error) {
		t.Helper()
		q := f.queue(nil)
		_, err := q.Send(q.batcher.untilFailure(), "refused") // a replica is asked to its end
		if err == nil || !strings.Contains(err.Error(), text) || !strings.Contains(err.Error(), f.name) ||
			!strings.Contains(err.Error(), "message 0") {
			t.Errorf("%s: send returned %v; want %q, the queue and the id", what, err, text)
		}
		if target != nil && !errors.Is(err, target) {
			t.Errorf("%s: %v is not %v", what, err, target)
		}
		eventually(t, "nothing is under way", q.batcher.idle)
	}

	// A full server refuses sends, and consuming drains it.
	q := f.queue(func(string) bool { return true })
	for range 100 {
		f.send(q, "work")
	}
	config("maxmemory", "1")
	refused("OOM", "OOM", nil)
	q.StartConsume()
	eventually(t, "consuming drains a full server", func() bool { return len(f.check().Messages) == 0 })
	config("maxmemory", "0")
	q.StopConsume()

	if err := admin.Do(ctx, "replicaof", "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	refused("READONLY", "READONLY", nil)
	if err := admin.Do(ctx, "replicaof", "no", "one").Err(); err != nil {
		t.Fatal(err)
	}

	for _, i := range sendScript.keys {
		if structures[i] == "held" {
			continue // it is read where an acked message has the key: TestScriptWrongTypeOfProducers
		}
		name := q.store.keys.all[i].(string)
		if err := admin.Rename(ctx, name, "aside").Err(); err != nil && !strings.Contains(err.Error(), "no such key") {
			t.Fatal(err)
		}
		if err := admin.Set(ctx, name, "somebody else's", 0).Err(); err != nil {
			t.Fatal(err)
		}
		q := f.queue(nil)
		_, err := q.Send(ctx, "x", WithKey("k"))
		if !errors.Is(err, ErrWrongType) || !strings.Contains(err.Error(), "belongs to another program") {
			t.Errorf("wrong type of %s: %v", name, err)
		}
		admin.Del(ctx, name)
		if err := admin.Rename(ctx, "aside", name).Err(); err != nil && !strings.Contains(err.Error(), "no such key") {
			t.Fatal(err)
		}
		f.checkEmpty() // nothing was half written
	}

	config("requirepass", "secret")
	f2 := NewQueue(f.name, redisClient(t, server.Addr()), nil)
	if _, err := f2.Send(ctx, "x"); err == nil || !strings.Contains(err.Error(), "NOAUTH") {
		t.Errorf("NOAUTH: %v", err)
	}
	if err := admin.ConfigSet(ctx, "requirepass", "").Err(); err != nil {
		t.Fatal(err)
	}
}

func redisClient(t *testing.T, addr string) *redis.Client {
	cli := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = cli.Close() })
	return cli
}

func TestWithReplicaAck(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t, "--repl-diskless-sync-delay", "0")
	f := fixtureOn(t, redis.NewClient(&redis.Options{Addr: primary.Addr()}))
	q := f.queue(nil).WithReplicaAck(1, 100*time.Millisecond)

	info, err := q.Send(context.Background(), "alone", WithDelay(time.Hour))
	if !errors.Is(err, ErrNotReplicated) || info == nil || !strings.Contains(err.Error(), "0 of 1") {
		t.Errorf("with no replica: %v, %v", info, err)
	}
	if n := len(f.check().Pending); n != 1 {
		t.Errorf("%d messages stored, want 1: it was stored, only not confirmed", n)
	}

	host, port, _ := strings.Cut(primary.Addr(), ":")
	replica := redistest.Start(t, "--replicaof", host, port).Client(t)
	q.WithReplicaAck(1, patience)
	results, err := q.SendBatch(context.Background(),
		[]Outgoing{{Payload: "a", Options: []MsgOption{WithDelay(time.Hour)}}, {Payload: "b", Options: []MsgOption{WithDelay(time.Hour)}}})
	if err != nil {
		t.Fatalf("with a replica: %v", err)
	}
	for _, r := range results {
		if ok, err := replica.HExists(context.Background(), q.store.keys.msg, r.Info.ID).Result(); err != nil || !ok {
			t.Errorf("the replica does not have %s: %v", r.Info.ID, err)
		}
	}
}
