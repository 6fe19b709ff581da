package features

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/redis/go-redis/v9"
)

// rewrite changes the envelope of a stored message, as another program would.
func rewriteIn(f *queuetest.Base, id string, change func(string) string) {
	f.T.Helper()
	ctx, key := context.Background(), f.KeyOf(id, "msg")
	envelope, err := f.Cli.HGet(ctx, key, id).Result()
	f.Must(err)
	f.Must(f.Cli.HSet(ctx, key, id, change(envelope)).Err())
}

// TestMessageOfANewerVersion is set aside for a consumer that can read it, and said to be: for its version, or for a
// field that must be understood.
func TestMessageOfANewerVersion(t *testing.T) {
	t.Parallel()
	inFields := func(number byte) func(string) string { // a message of version 2 with a field of that number
		return func(text string) string {
			return "\x02" + text[1:19] + string([]byte{number}) + "\x01x" + "\x01\x05newer"
		}
	}
	version := func(v string) func(string) string { return func(text string) string { return v + text[1:] } }
	t.Run("version", func(t *testing.T) { setAside(t, version("\x03"), version("\x01")) })
	t.Run("field", func(t *testing.T) {
		setAside(t, inFields(200), inFields(100))
	})
}

func setAside(t *testing.T, newer, readable func(envelope string) string) {
	t.Parallel()
	f := face.New(t)
	got := make(chan string, 2)
	q := f.Queue(func(payload string) bool { got <- payload; return true })
	info := f.Send(q, "newer", delayqueue.WithRetryCount(0))
	rewriteIn(f.Base, info.ID, newer)
	q.StartConsume()
	var at float64 // us
	queuetest.Eventually(t, "it is set aside", func() bool {
		var err error
		at, err = f.Cli.ZScore(queuetest.CtxB, f.KeyOf(info.ID, "retry"), "2:"+info.ID).Result()
		return err == nil
	})
	record, err := f.Cli.HGet(context.Background(), f.KeyOf(info.ID, "fail"), info.ID).Result()
	f.Must(err)
	var when float64 // us
	if _, err := fmt.Sscan(record, new(int), new(int), new(int), &when); err != nil {
		t.Fatalf("record %q: %v", record, err)
	}
	if in := time.Duration(at-when) * time.Microsecond; in > 10*time.Second || in < 5*time.Second {
		t.Errorf("set aside for %v, want 5 to 10 s", in)
	}
	f.Log.Says(t, 1, "only a newer version")
	f.Send(q, "ours")
	if p := queuetest.Receive(t, "the rest goes on", got); p != "ours" {
		t.Errorf("handled %q", p)
	}
	// The newer consumer, which reads it.
	rewriteIn(f.Base, info.ID, readable)
	f.Must(f.Cli.ZAdd(context.Background(), f.KeyOf(info.ID, "retry"), redis.Z{Score: 1, Member: "2:" + info.ID}).Err())
	if p := queuetest.Receive(t, "it is handled, with no retry used", got); p != "newer" {
		t.Errorf("handled %q", p)
	}
}

// TestTagsWithoutMessages are dropped, counted and logged.
func TestTagsWithoutMessages(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	got := make(chan string, 1)
	q := f.Queue(func(payload string) bool { got <- payload; return true })
	ctx := context.Background()
	f.Cli.ZAdd(ctx, f.Key("pending"), redis.Z{Score: 1, Member: "orphan"})
	f.Cli.ZAdd(ctx, f.Key("retry"), redis.Z{Score: 1, Member: "2:orphan"})
	f.Cli.RPush(ctx, f.Key("ready"), "3:orphan")
	f.Send(q, "ours")
	vanished := face.CountEvents(t, q, delayqueue.VanishedEvent)
	unhurried(q).WithConcurrent(10).StartConsume() // a lost reply tells nobody
	queuetest.Receive(t, "the rest goes on", got)
	queuetest.Eventually(t, "events count all three", func() bool { return vanished.Load() == 3 })
	queuetest.Eventually(t, "all three are counted", func() bool {
		return f.Cli.HGet(ctx, f.Key("state"), "dropped").Val() == "3"
	})
	queuetest.Eventually(t, "it is logged", func() bool { return f.Log.Count("dropped tags without a message") > 0 })
}

// TestLeasesAreRenewedEveryThird: from the beginning of one renewal to that of the next, however slow the line is.
func TestLeasesAreRenewedEveryThird(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	cli := f.Client()
	const lease, roundTrip = 3 * time.Second, 300 * time.Millisecond
	onTime := make(chan struct{}, 1)
	var mu sync.Mutex   // attempts that were given up go on beside the next
	var begun time.Time // of a renewal that succeeded; zero: the last one failed
	t.Cleanup(link.Interpose(cli,
		queuetest.CommandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if len(cmd.Args()) < 2 || cmd.Args()[1] != script.ExtendScript.SHA {
				return next(ctx, cmd)
			}
			mu.Lock()
			last := begun
			if begun = time.Now(); !last.IsZero() && begun.Sub(last) < lease/3+roundTrip {
				select {
				case onTime <- struct{}{}:
				default:
				}
			}
			mu.Unlock()
			time.Sleep(roundTrip)
			err := next(ctx, cmd)
			if err != nil {
				mu.Lock()
				begun = time.Time{}
				mu.Unlock()
			}
			return err
		})))
	release := make(chan struct{})
	q := f.QueueOn(cli, func(string) bool { <-release; return true }).WithLease(lease)
	f.Send(q, "x")
	q.StartConsume()
	queuetest.Receive(t, "a renewal begins a third of a lease after the last one", onTime)
	close(release)
}
