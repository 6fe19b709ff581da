package features

import (
	"context"
	"fmt"
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
	const messages = 1500
	fetches := func(t *testing.T, round int, limit func(q *delayqueue.DelayQueue)) (n int) {
		f := face.New(t)
		f = &face.Fixture{Base: f.Named(fmt.Sprint(f.Name, round))}
		var book queuetest.Ledger
		cli := f.Client()
		farther(t, cli, 10*time.Millisecond)
		t.Cleanup(link.Interpose(cli, book.Hook(script.FetchScript.SHA)))
		q := unhurried(face.NoTick(f.QueueOn(cli, func(string) bool { time.Sleep(time.Millisecond); return true }))).WithConcurrent(8)
		limit(q)
		face.Several(f, messages)
		q.StartConsume()
		f.Drained()
		return len(book.Fetches())
	}
	for name, limit := range map[string]func(q *delayqueue.DelayQueue){
		"rate":   func(q *delayqueue.DelayQueue) { q.WithRateLimit(100_000, time.Second, 10_000) },
		"places": func(q *delayqueue.DelayQueue) { q.WithQueueConcurrency(5000) },
	} {
		t.Run(name, func(t *testing.T) {
			// A machine that stands still makes more of them: the fewest of several rounds, with the limit and without it in turn.
			least, without := messages, messages
			for round := 0; round < 3 || least > 2*without && round < 10; round++ {
				without = min(without, fetches(t, 2*round, func(*delayqueue.DelayQueue) {}))
				least = min(least, fetches(t, 2*round+1, limit))
			}
			if least > 2*without {
				t.Errorf("%d fetches, without a limit %d", least, without)
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
			for round := range 3 { // a machine that stands still makes more of them: the best counts
				if n, trips = placesOverALine(t, round, c.places, c.messages); n != c.messages || trips <= c.most {
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
func placesOverALine(t *testing.T, round, places, messages int) (n, trips int) {
	f := face.New(t)
	f = &face.Fixture{Base: f.Named(fmt.Sprint(f.Name, round))}
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
