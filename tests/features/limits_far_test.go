package features

import (
	"context"
	"io"
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

// farther puts a time on the way to the server, and the same on the way back, of all commands of the library's own connections beside
// a client.
func farther(t *testing.T, cli redis.UniversalClient, way time.Duration) {
	t.Cleanup(link.Interpose(cli, queuetest.TripHook(func(_ []redis.Cmder, next func() error) error {
		time.Sleep(way)
		err := next()
		time.Sleep(way)
		return err
	})))
}

// TestLimitsThatNeverBind: a limit that is never reached costs no fetches: as many are fetched ahead as without it.
func TestLimitsThatNeverBind(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]func(q *delayqueue.DelayQueue){
		"none":   func(*delayqueue.DelayQueue) {},
		"rate":   func(q *delayqueue.DelayQueue) { q.WithRateLimit(100_000, time.Second, 10_000) },
		"places": func(q *delayqueue.DelayQueue) { q.WithQueueConcurrency(5000) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := face.New(t)
			var book queuetest.Ledger
			cli := f.Client()
			farther(t, cli, 10*time.Millisecond)
			t.Cleanup(link.Interpose(cli, book.Hook(script.FetchScript.SHA)))
			q := unhurried(face.NoTick(f.QueueOn(cli, func(string) bool { time.Sleep(time.Millisecond); return true }))).WithConcurrent(8)
			limit(q)
			const messages = 1500
			face.Several(f, messages)
			q.StartConsume()
			f.Drained()
			n, fetches := 0, 0
			for _, h := range book.Fetches() {
				n, fetches = n+h.N, fetches+1
			}
			// The buffer lasts for a round trip, in which eight workers handle 160 at most; on a slow machine far fewer.
			if t.Logf("%d in %d fetches", n, fetches); n < messages || fetches > messages/6 { // without fetching ahead: a quarter
				t.Errorf("%d were handed out in %d fetches", n, fetches)
			}
		})
	}
}

// TestPlacesAreRefilled: while messages wait for a place, the fetch for those that a settlement frees goes out with it. So a message
// needs one round trip, and what is free is taken at once: of eight places eight in two round trips, however the handlers end.
func TestPlacesAreRefilled(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ places, messages, most int }{
		"one":   {1, 60, 60 + 15}, // round trips
		"eight": {8, 240, 240/4 + 40},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var n, trips int
			for range 3 { // a machine that stands still makes more of them: the best counts
				if n, trips = placesOverALine(t, c.places, c.messages); n != c.messages || trips <= c.most {
					break
				}
			}
			if n != c.messages || trips > c.most {
				t.Errorf("%d in %d round trips, want %d in %d at most", n, trips, c.messages, c.most)
			}
		})
	}
}

// placesOverALine has messages handled, and returns how many were handed out and in how many round trips.
func placesOverALine(t *testing.T, places, messages int) (n, trips int) {
	f := face.New(t)
	var book queuetest.Ledger
	var all atomic.Int64
	cli := f.Client()
	farther(t, cli, 10*time.Millisecond)
	t.Cleanup(link.Interpose(cli, book.Hook(script.FetchScript.SHA)))
	t.Cleanup(link.Interpose(cli, queuetest.TripHook(func(_ []redis.Cmder, next func() error) error {
		all.Add(1)
		return next()
	})))
	q := unhurried(face.NoTick(f.QueueOn(cli, func(string) bool { time.Sleep(time.Millisecond); return true }))).
		WithConcurrent(8).WithQueueConcurrency(places)
	face.Several(f, messages)
	q.StartConsume()
	f.Drained()
	trips = int(all.Load())
	for _, h := range book.Fetches() {
		n += h.N
	}
	t.Logf("%d in %d fetches, %d round trips", n, len(book.Fetches()), trips)
	return n, trips
}

// TestRefillsLoseReplies: a settlement and the fetch behind it whose replies are lost are each repeated, and count once.
func TestRefillsLoseReplies(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	var lost atomic.Int64
	var running, most atomic.Int64
	var got queuetest.Tally
	cli := f.Client()
	t.Cleanup(link.Interpose(cli, queuetest.TripHook(func(cmds []redis.Cmder, next func() error) error {
		err := next()
		if len(cmds) > 1 && lost.Add(1)%5 == 0 {
			for _, cmd := range cmds {
				cmd.SetErr(io.EOF)
			}
			return io.EOF
		}
		return err
	})))
	q := face.NoTick(f.QueueOn(cli, nil)).WithConcurrent(8).WithQueueConcurrency(3).WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
		n := running.Add(1)
		for all := most.Load(); n > all && !most.CompareAndSwap(all, n); all = most.Load() {
		}
		got.Add(msg.ID)
		running.Add(-1)
		return nil
	})
	face.Several(f, 100)
	q.StartConsume()
	f.Drained()
	if lost.Load() < 5 || most.Load() > 3 { // of five the reply of one is lost
		t.Errorf("%d joint calls, %d at a time", lost.Load(), most.Load())
	}
	if all, n := got.Counts(); all != 100 || n != 100 {
		t.Errorf("%d messages were handled, %d times", all, n)
	}
}
