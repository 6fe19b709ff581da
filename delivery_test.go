package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// rewrite changes the envelope of a stored message, as another program would.
func (f *fixture) rewrite(q *DelayQueue, id string, change func(string) string) {
	f.t.Helper()
	ctx, key := context.Background(), q.store.keys.msg
	envelope, err := f.cli.HGet(ctx, key, id).Result()
	if err != nil {
		f.t.Fatal(err)
	}
	if err := f.cli.HSet(ctx, key, id, change(envelope)).Err(); err != nil {
		f.t.Fatal(err)
	}
}

// score waits until a message is in a sorted set and returns its score there.
func (f *fixture) score(key, tag string) (score float64) {
	f.t.Helper()
	eventually(f.t, tag+" is in "+key, func() bool {
		var err error
		score, err = f.cli.ZScore(context.Background(), key, tag).Result()
		return err == nil
	})
	return score
}

// TestMessageOfANewerVersion is set aside for a consumer that can read it, and said to be: for its version, or for a
// field that must be understood.
func TestMessageOfANewerVersion(t *testing.T) {
	t.Parallel()
	inFields := func(others map[byte]string) func(string) string {
		return func(text string) string {
			e, err := decodeEnvelope(text)
			if err != nil && !errors.Is(err, errNewerVersion) {
				t.Error(err)
			}
			e.payload = "newer"
			return e.inFields(others)
		}
	}
	version := func(v string) func(string) string { return func(text string) string { return v + text[1:] } }
	t.Run("version", func(t *testing.T) { setAside(t, version("\x03"), version("\x01")) })
	t.Run("field", func(t *testing.T) {
		setAside(t, inFields(map[byte]string{200: "x"}), inFields(map[byte]string{100: "x"}))
	})
}

func setAside(t *testing.T, newer, readable func(envelope string) string) {
	t.Parallel()
	f := newFixture(t)
	got := make(chan string, 2)
	q := f.queue(func(payload string) bool { got <- payload; return true })
	info := f.send(q, "newer", WithRetryCount(0))
	f.rewrite(q, info.ID, newer)
	q.StartConsume()
	at := f.score(q.store.keys.retry, "2:"+info.ID)
	record, err := f.cli.HGet(context.Background(), q.store.keys.fail, info.ID).Result()
	f.must(err)
	var when float64 // us
	if _, err := fmt.Sscan(record, new(int), new(int), new(int), &when); err != nil {
		t.Fatalf("record %q: %v", record, err)
	}
	if in := time.Duration(at-when) * time.Microsecond; in > 10*time.Second || in < 5*time.Second {
		t.Errorf("set aside for %v, want 5 to 10 s", in)
	}
	f.log.says(t, 1, "only a newer version")
	f.send(q, "ours")
	if p := receive(t, "the rest goes on", got); p != "ours" {
		t.Errorf("handled %q", p)
	}
	// The newer consumer, which reads it.
	f.rewrite(q, info.ID, readable)
	if err := f.cli.ZAdd(context.Background(), q.store.keys.retry, redis.Z{Score: 1, Member: "2:" + info.ID}).Err(); err != nil {
		t.Fatal(err)
	}
	if p := receive(t, "it is handled, with no retry used", got); p != "newer" {
		t.Errorf("handled %q", p)
	}
}

// TestBrokenMessage goes to garbage, where it can be looked at, and the rest goes on.
func TestBrokenMessage(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	got, deaths := make(chan string, 1), make(chan error, 1)
	q := f.queue(func(payload string) bool { got <- payload; return true }).
		WithGarbageHandler(func(_ context.Context, _ *Message, err error) { deaths <- err })
	info := f.send(q, "x")
	f.rewrite(q, info.ID, func(string) string { return "rubbish" })
	f.send(q, "ours")
	q.StartConsume()
	if p := receive(t, "the rest goes on", got); p != "ours" {
		t.Errorf("handled %q", p)
	}
	if err := receive(t, "it dies", deaths); !strings.Contains(err.Error(), "broken envelope") {
		t.Errorf("died of %v", err)
	}
	f.score(q.store.keys.garbage, info.ID)
	if _, err := q.TryIntercept(info); err != nil { // so that the checker finds no rubbish
		t.Error(err)
	}
}

// TestTagsWithoutMessages are dropped, counted and logged.
func TestTagsWithoutMessages(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	got := make(chan string, 1)
	q := f.queue(func(payload string) bool { got <- payload; return true })
	ctx, k := context.Background(), q.store.keys
	f.cli.ZAdd(ctx, k.pending, redis.Z{Score: 1, Member: "orphan"})
	f.cli.ZAdd(ctx, k.retry, redis.Z{Score: 1, Member: "2:orphan"})
	f.cli.RPush(ctx, k.ready, "3:orphan")
	f.cli.ZAdd(ctx, k.unack, redis.Z{Score: 1, Member: "4:orphan"})
	f.send(q, "ours")
	var vanished atomic.Int64
	defer q.ListenEvent(func(e Event) {
		if e.Code == VanishedEvent {
			vanished.Add(int64(e.Count))
		}
	}).Stop()
	q.WithConcurrent(10).WithLease(16 * time.Second).StartConsume() // an attempt has a quarter of it; a lost reply tells nobody
	receive(t, "the rest goes on", got)
	eventually(t, "events count all four", func() bool { return vanished.Load() == 4 })
	eventually(t, "all four are counted", func() bool {
		return f.cli.HGet(ctx, k.state, "dropped").Val() == "4"
	})
	eventually(t, "it is logged", func() bool { return f.log.count("dropped tags without a message") > 0 })
}

// TestManyMessagesOfANewerVersion: one line says so for all of them, and one that nobody can read is given up in the end.
func TestManyMessagesOfANewerVersion(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	got, deaths := make(chan string, 1), make(chan error, 1)
	q := f.queue(func(payload string) bool { got <- payload; return true }).WithConcurrent(4).
		WithGarbageHandler(func(_ context.Context, _ *Message, err error) { deaths <- err })
	sender := f.queue(nil)
	var last string
	ids := make([]string, 30)
	for i := range ids {
		last = f.send(sender, "newer", WithKey(fmt.Sprint("key ", i))).ID
		ids[i] = last
		f.rewrite(q, last, func(e string) string { return "\x03" + e[1:] })
	}
	f.send(sender, "ours")
	q.StartConsume()
	receive(t, "the rest goes on", got)
	ctx, k := context.Background(), q.store.keys
	eventually(t, "all are set aside", func() bool { return f.cli.ZCard(ctx, k.retry).Val() == 30 })
	f.log.says(t, 1, "only a newer version")
	f.cli.ZRem(ctx, k.retry, "2:"+last)
	f.cli.HSet(ctx, k.fail, last, "1000 0 0 1 ")
	f.cli.ZAdd(ctx, k.retry, redis.Z{Score: 1, Member: "1000:" + last})
	if err := receive(t, "it is given up", deaths); !errors.Is(err, errNewerVersion) {
		t.Errorf("given up for %v", err)
	}
	f.score(k.garbage, last)
	q.StopConsume()
	f.send(sender, "has its key", inAnHour, WithKey("key 29"))
	for _, id := range ids { // so that the checker finds none
		f.rewrite(q, id, func(e string) string { return "\x01" + e[1:] })
	}
}

// TestUnfit: what is broken goes to garbage, what a newer version wrote waits for a day, and a TTL counts for a first
// delivery alone.
func TestUnfit(t *testing.T) {
	const now = serverTime(rigBase)
	due := func(n int, ago time.Duration) Message {
		return Message{Delivery: n, Due: time.UnixMicro(rigBase).Add(-ago)}
	}
	for name, c := range map[string]struct {
		d      *delivery
		unfit  bool
		kind   outcomeKind
		reason error
	}{
		"all is well":               {&delivery{msg: due(1, 0)}, false, 0, nil},
		"broken":                    {&delivery{msg: due(1, 0), broken: errBoom}, true, outcomeGarbage, errBoom},
		"of a newer version":        {&delivery{msg: due(newerDeliveries-1, 0), broken: errNewerVersion}, true, outcomeRetry, nil},
		"of a newer version, again": {&delivery{msg: due(newerDeliveries, 0), broken: errNewerVersion}, true, outcomeGarbage, errNewerVersion},
		"in time":                   {&delivery{msg: due(1, time.Second), ttl: time.Second}, false, 0, nil},
		"too late":                  {&delivery{msg: due(1, time.Second+time.Microsecond), ttl: time.Second}, true, outcomeGarbage, ErrExpired},
		"too late, but not first":   {&delivery{msg: due(2, time.Hour), ttl: time.Second}, false, 0, nil},
	} {
		d := c.d
		d.msg.Failures, d.losses = 2, 1
		o, unfit := unfit(d, now)
		if unfit != c.unfit {
			t.Errorf("%s: unfit is %v", name, unfit)
		}
		if !unfit {
			continue
		}
		if o.d != d || o.kind != c.kind || !errors.Is(o.err, c.reason) || o.text == "" || o.failures != 2 || o.losses != 1 {
			t.Errorf("%s: %+v", name, o)
		}
		if (o.delay > 0) != (c.kind == outcomeRetry) {
			t.Errorf("%s: it waits %v", name, o.delay)
		}
	}
}

// TestNotReceived: a message that does not come through counts a loss, and is poison in the end.
func TestNotReceived(t *testing.T) {
	for losses, want := range []outcomeKind{outcomeRetry, outcomeRetry, outcomeGarbage, outcomeGarbage} {
		record := fmt.Sprintf("2 1 %d 1700000000000000 x", losses)
		o := notReceived(nil, heldMessage{tag: "2:" + idOf("a"), size: 5, fail: record, key: "k"}, 3, time.Now())
		if o.kind != want || o.failures != 1 || o.losses != losses+1 || o.d.msg.ID != idOf("a") || o.d.msg.Delivery != 2 || o.d.msg.Key != "k" {
			t.Errorf("after %d losses: %+v of %+v", losses, o, o.d)
		}
		if errors.Is(o.err, ErrPoison) != (want == outcomeGarbage) {
			t.Errorf("after %d losses: %v", losses, o.err)
		}
	}
}
