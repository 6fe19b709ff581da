package consume

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
)

// far says how long the fetches of a queue take.
func far(rtt time.Duration) func(*simulatedQueue) {
	return func(q *simulatedQueue) { q.rtt = rtt }
}

// TestSharesBesideFar: a queue whose fetches take long takes nothing from one that is near, and has its share itself, or
// what it can fetch.
func TestSharesBesideFar(t *testing.T) {
	for _, workers := range testkit.Size([]int{1, 4, 64}, []int{1, 4}) {
		for _, handler := range []time.Duration{0, time.Millisecond, 20 * time.Millisecond} {
			for _, rtt := range testkit.Size([]time.Duration{20 * time.Millisecond, 60 * time.Millisecond}, []time.Duration{20 * time.Millisecond}) {
				t.Run(fmt.Sprint(workers, " workers of ", handler, ", fetches of ", rtt), func(t *testing.T) {
					t.Parallel()
					simulate(t, workers, false, func(s *simulation) {
						away, near := s.queue(1, 0, -1, handler, far(rtt)), s.queue(1, 0, -1, handler)
						took := max(0.5, 50*handler.Seconds())
						if handler == 0 {
							took = 0.1 // or the test itself would take long
						}
						time.Sleep(3*rtt + 3*handler) // in the beginning nobody knows anything
						nearBefore, awayBefore := near.now().handled, away.now().handled
						time.Sleep(time.Duration(took * float64(time.Second)))
						nearHandled, awayHandled := float64(near.now().handled-nearBefore), float64(away.now().handled-awayBefore)
						fetched := 0.8 * script.MaxBatch / 2 * took / rtt.Seconds() // so much can be
						if handler == 0 {
							if nearHandled < 100_000*took || workers > 1 && awayHandled < fetched/3 {
								t.Errorf("%v of the far one, %v of the near one", awayHandled, nearHandled)
							}
							return
						}
						half := took / handler.Seconds() * float64(workers) / 2
						if nearHandled < 0.85*half { // the far one makes up for a round trip
							t.Errorf("near: %v handled, its share is %v", nearHandled, half)
						}
						if awayHandled < min(0.85*half, fetched) {
							t.Errorf("far: %v handled, its share is %v, and it can fetch %v", awayHandled, half, fetched)
						}
					})
				})
			}
		}
	}
}

// TestSharesWithOneFar: of three queues the one in the middle is far, and what it cannot fetch the others have.
func TestSharesWithOneFar(t *testing.T) {
	for _, workers := range testkit.Size([]int{1, 4, 64}, []int{1, 4}) {
		for _, uneven := range []bool{false, true} {
			t.Run(fmt.Sprint(workers, " workers, uneven ", uneven), func(t *testing.T) {
				t.Parallel()
				simulate(t, workers, false, func(s *simulation) {
					s.uneven = uneven
					first, away := s.queue(6, 0, -1, time.Millisecond), s.queue(3, 0, -1, time.Millisecond, far(20*time.Millisecond))
					last := s.queue(1, 0, -1, time.Millisecond)
					took := max(2, 16/float64(workers)) // as many messages with each number of workers, or more
					const part = 0.75                   // in the beginning the far one is behind: it knows nothing
					time.Sleep(time.Duration(took * float64(time.Second)))
					for i, q := range []*simulatedQueue{first, away, last} {
						want := []float64{0.6, 0.3, 0.1}[i] * float64(workers) * 1000 * took
						if n := float64(q.now().handled); n < min(part*want, 0.65*script.MaxBatch/2*took/q.rtt.Seconds()) {
							t.Errorf("queue %d: %v handled, want %v", i, n, want)
						}
					}
					if n := first.now().handled + away.now().handled + last.now().handled; float64(n) < 0.9*1000*took*float64(workers) {
						t.Errorf("%d handled by %d workers", n, workers)
					}
				})
			})
		}
	}
}

// TestSharesBesideSlow: a queue with long handlers keeps its share from one with quick ones, far or near, and the other way round.
func TestSharesBesideSlow(t *testing.T) {
	for _, slow := range testkit.Size([]time.Duration{100 * time.Microsecond, 20 * time.Millisecond}, []time.Duration{20 * time.Millisecond}) {
		for _, quick := range []time.Duration{100 * time.Microsecond, 20 * time.Millisecond} {
			t.Run(fmt.Sprint(slow, " and ", quick), func(t *testing.T) {
				t.Parallel()
				simulate(t, 16, false, func(s *simulation) {
					s.queue(1, 0, -1, time.Second, far(slow))
					s.queue(1, 0, -1, time.Millisecond, far(quick))
					time.Sleep(10*time.Second + 200*time.Millisecond)
					if a, b := s.queues[0].now(), s.queues[1].now(); a.busy < 70*time.Second || b.busy < 50*time.Second {
						t.Errorf("%v in slow handlers, %v in quick ones, of 80 s each", a.busy, b.busy)
					}
				})
			})
		}
	}
}

// TestSharesOfMany: a hundred queues have their shares, also of one worker, and of three hundred none starves.
func TestSharesOfMany(t *testing.T) {
	const ms = time.Millisecond
	type many struct {
		queues, workers int
		start, took     time.Duration // in the beginning nobody knows anything
	}
	for _, c := range testkit.Size(
		[]many{{100, 1, 500 * ms, 3000 * ms}, {100, 4, 500 * ms, 1500 * ms}, {100, 64, 100 * ms, 150 * ms}, {300, 64, 0, 75 * ms}},
		[]many{{30, 4, 150 * ms, 450 * ms}},
	) {
		simulate(t, c.workers, false, func(s *simulation) {
			for i := range c.queues {
				s.queue(1+i%2, 0, -1, 3*ms)
			}
			time.Sleep(c.start)
			before := make([]int, c.queues)
			for i, q := range s.queues {
				before[i] = q.now().handled
			}
			time.Sleep(c.took)
			for i, q := range s.queues {
				want := int(c.took/(3*ms)) * c.workers * (1 + i%2) / (c.queues * 3 / 2)
				n := q.now().handled - before[i]
				if c.queues == 300 && n > 0 {
					continue // for more the test itself would take long
				}
				if n < want*9/10-1 || n > want*11/10+3 {
					t.Errorf("%d queues, %d workers: queue %d: %d handled, want %d", c.queues, c.workers, i, n, want)
				}
			}
		})
	}
}

// TestSharesOfOneBesideFar: two queues whose handlers are quicker than their fetches do not keep the only worker from the others by
// waiting for those fetches in turn.
func TestSharesOfOneBesideFar(t *testing.T) {
	simulate(t, 1, false, func(s *simulation) {
		const away = 30 * time.Millisecond
		s.queue(6, 0, -1, 0, far(away))
		s.queue(3, 0, -1, 100*time.Millisecond, far(away))
		s.queue(6, 0, -1, 0, far(away))
		s.queue(1, 0, -1, 100*time.Millisecond, far(time.Millisecond))
		time.Sleep(time.Minute)
		for i, want := range []int{600, 300, 600, 100} {
			if n := s.queues[i].now().handled; n < want/2 {
				t.Errorf("queue %d has handled %d, want about %d", i, n, want)
			}
		}
	})
}
