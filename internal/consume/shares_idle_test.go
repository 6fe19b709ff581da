package consume

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/testkit"
)

// trickle sends one message each so often, until the end.
func (q *simulatedQueue) trickle(every time.Duration) {
	q.sim.polling.Go(func() {
		for {
			select {
			case <-q.sim.end:
				return
			case <-time.After(every):
				q.send(1)
			}
		}
	})
}

// nobodyIdle checks that queues with a backlog have all workers that the others do not use, to a tenth.
func nobodyIdle(t *testing.T, workers int, strict bool, handler time.Duration, build func(s *simulation) (backlogs []*simulatedQueue)) {
	t.Helper()
	simulate(t, workers, strict, func(s *simulation) {
		backlogs := build(s)
		busy := func(qs []*simulatedQueue) (sum float64) {
			for _, q := range qs {
				sum += inHandlers(q.now())
			}
			return sum
		}
		took := max(time.Second, 20*handler)
		time.Sleep(took / 2)
		before, all := busy(backlogs), busy(s.queues)
		time.Sleep(took)
		mine := (busy(backlogs) - before) / took.Seconds()
		others := (busy(s.queues)-all)/took.Seconds() - mine
		if mine < 0.9*(float64(workers)-others) {
			t.Errorf("%.2f of %d workers, and the others use %.2f", mine, workers, others)
		}
	})
}

// TestSharesBesideTrickle: queues that get a message now and then, near or far, take no more from a backlog than the workers that
// those have.
func TestSharesBesideTrickle(t *testing.T) {
	const ms = time.Millisecond
	for _, n := range testkit.Size([]int{1, 5}, []int{5}) {
		for _, weight := range []int{1, 10} {
			for _, rtt := range []time.Duration{ms / 10, 20 * ms, 100 * ms} {
				t.Run(fmt.Sprint(n, " of weight ", weight, ", fetches of ", rtt), func(t *testing.T) {
					t.Parallel()
					nobodyIdle(t, 8, false, 5*ms, func(s *simulation) []*simulatedQueue {
						bulk := s.queue(1, 0, -1, 5*ms)
						for range n {
							s.queue(weight, 0, 0, 5*ms, far(rtt)).trickle(20 * ms)
						}
						return []*simulatedQueue{bulk}
					})
				})
			}
		}
	}
}

// TestSharesBehindUrgent: an urgent stream that needs a hundredth of the workers leaves a backlog the others.
func TestSharesBehindUrgent(t *testing.T) {
	const ms = time.Millisecond
	for _, strict := range []bool{false, true} {
		for _, rtt := range testkit.Size([]time.Duration{ms / 10, ms, 5 * ms, 20 * ms}, []time.Duration{ms, 20 * ms}) {
			for _, handler := range []time.Duration{ms, 20 * ms} {
				t.Run(fmt.Sprint("strict ", strict, ", fetches of ", rtt, ", handlers of ", handler), func(t *testing.T) {
					t.Parallel()
					nobodyIdle(t, 10, strict, handler, func(s *simulation) []*simulatedQueue {
						s.queue(6, 0, 0, ms, far(rtt)).trickle(7 * ms)
						return []*simulatedQueue{s.queue(1, 0, -1, handler, far(rtt))}
					})
				})
			}
		}
	}
}

// TestSharesBesideFarAndSlow: near queues have the workers for which a far one of more weight has fetched nothing.
func TestSharesBesideFarAndSlow(t *testing.T) {
	const ms = time.Millisecond
	for _, handler := range testkit.Size([]time.Duration{ms, 10 * ms, 40 * ms, 60 * ms, 200 * ms}, []time.Duration{10 * ms, 60 * ms}) {
		t.Run(fmt.Sprint(handler), func(t *testing.T) {
			t.Parallel()
			nobodyIdle(t, 16, false, handler, func(s *simulation) []*simulatedQueue {
				s.queue(6, 0, -1, handler, far(100*ms))
				return []*simulatedQueue{s.queue(3, 0, -1, handler), s.queue(1, 0, -1, handler)}
			})
		})
	}
	for _, workers := range []int{1, 4} {
		nobodyIdle(t, workers, false, 100*ms, func(s *simulation) []*simulatedQueue {
			s.queue(1, 0, -1, 100*ms, far(60*ms))
			return []*simulatedQueue{s.queue(1, 0, -1, 100*ms)}
		})
	}
}
