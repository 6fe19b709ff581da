package delayqueue

import (
	"context"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// farther puts a time on the way to the server, and the same on the way back, of all commands of the library's own connections beside
// a client.
func farther(t *testing.T, cli redis.UniversalClient, way time.Duration) {
	hookOwn(t, cli, tripHook(func(_ []redis.Cmder, next func() error) error {
		time.Sleep(way)
		err := next()
		time.Sleep(way)
		return err
	}))
}

// TestLimitsThatNeverBind: a limit that is never reached costs no fetches: as many are fetched ahead as without it.
func TestLimitsThatNeverBind(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]func(q *DelayQueue){
		"none":   func(*DelayQueue) {},
		"rate":   func(q *DelayQueue) { q.WithRateLimit(100_000, time.Second, 10_000) },
		"places": func(q *DelayQueue) { q.WithQueueConcurrency(5000) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			var book ledger
			cli := f.client()
			farther(t, cli, 10*time.Millisecond)
			book.of(t, cli)
			q := unhurried(noTick(f.queueOn(cli, func(string) bool { time.Sleep(time.Millisecond); return true }))).WithConcurrent(8)
			limit(q)
			const messages = 1500
			f.several(messages)
			q.StartConsume()
			f.drained()
			n, fetches := 0, 0
			for _, h := range book.fetches() {
				n, fetches = n+h.n, fetches+1
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
	f := newFixture(t)
	var book ledger
	var all atomic.Int64
	cli := f.client()
	farther(t, cli, 10*time.Millisecond)
	book.of(t, cli)
	hookOwn(t, cli, tripHook(func(_ []redis.Cmder, next func() error) error {
		all.Add(1)
		return next()
	}))
	q := unhurried(noTick(f.queueOn(cli, func(string) bool { time.Sleep(time.Millisecond); return true }))).
		WithConcurrent(8).WithQueueConcurrency(places)
	f.several(messages)
	q.StartConsume()
	f.drained()
	trips = int(all.Load())
	for _, h := range book.fetches() {
		n += h.n
	}
	t.Logf("%d in %d fetches, %d round trips", n, len(book.fetches()), trips)
	return n, trips
}

// TestRefillsLoseReplies: a settlement and the fetch behind it whose replies are lost are each repeated, and count once.
func TestRefillsLoseReplies(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var lost atomic.Int64
	var running, most atomic.Int64
	var got tally
	cli := f.client()
	hookOwn(t, cli, tripHook(func(cmds []redis.Cmder, next func() error) error {
		err := next()
		if len(cmds) > 1 && lost.Add(1)%5 == 0 {
			for _, cmd := range cmds {
				cmd.SetErr(io.EOF)
			}
			return io.EOF
		}
		return err
	}))
	q := noTick(f.queueOn(cli, nil)).WithConcurrent(8).WithQueueConcurrency(3).WithHandler(func(_ context.Context, msg *Message) error {
		n := running.Add(1)
		for all := most.Load(); n > all && !most.CompareAndSwap(all, n); all = most.Load() {
		}
		got.add(msg.ID)
		running.Add(-1)
		return nil
	})
	f.several(100)
	q.StartConsume()
	f.drained()
	if lost.Load() < 5 || most.Load() > 3 { // of five the reply of one is lost
		t.Errorf("%d joint calls, %d at a time", lost.Load(), most.Load())
	}
	if all, n := got.counts(); all != 100 || n != 100 {
		t.Errorf("%d messages were handled, %d times", all, n)
	}
}
