package delayqueue

import (
	"fmt"
	"testing"
	"time"
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

// nobodyIdle checks that a queue with a backlog has what it has alone, less what the others use, to a tenth. With near ones that
// is all of them together.
func nobodyIdle(t *testing.T, workers int, strict bool, build func(s *simulation, alone bool) (backlogs []*simulatedQueue)) {
	t.Helper()
	measure := func(alone bool) (mine, others float64) {
		simulate(t, workers, strict, func(s *simulation) {
			backlogs := build(s, alone)
			busy := func(qs []*simulatedQueue) (sum float64) {
				for _, q := range qs {
					sum += inHandlers(q.now())
				}
				return sum
			}
			time.Sleep(2 * time.Second)
			before, all := busy(backlogs), busy(s.queues)
			const took = 4
			time.Sleep(took * time.Second)
			mine = (busy(backlogs) - before) / took
			others = (busy(s.queues)-all)/took - mine
		})
		return mine, others
	}
	alone, _ := measure(true)
	mine, others := measure(false)
	if t.Logf("%.2f of %d workers, %.2f alone, others %.2f", mine, workers, alone, others); mine < 0.9*(alone-others) {
		t.Errorf("%.2f workers, alone %.2f, and the others use %.2f", mine, alone, others)
	}
}

// TestSharesBesideTrickle: queues that get a message now and then, near or far, take no more from a backlog than the workers that
// those have.
func TestSharesBesideTrickle(t *testing.T) {
	const ms = time.Millisecond
	for _, n := range []int{1, 5} {
		for _, weight := range []int{1, 10} {
			for _, rtt := range []time.Duration{ms / 10, 20 * ms, 100 * ms} {
				t.Run(fmt.Sprint(n, " of weight ", weight, ", fetches of ", rtt), func(t *testing.T) {
					nobodyIdle(t, 8, false, func(s *simulation, alone bool) []*simulatedQueue {
						bulk := s.queue(1, 0, -1, 5*ms)
						for range n {
							if !alone {
								s.queue(weight, 0, 0, 5*ms, far(rtt)).trickle(20 * ms)
							}
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
		for _, rtt := range []time.Duration{ms / 10, ms, 5 * ms, 20 * ms} {
			for _, handler := range []time.Duration{ms, 20 * ms} {
				t.Run(fmt.Sprint("strict ", strict, ", fetches of ", rtt, ", handlers of ", handler), func(t *testing.T) {
					nobodyIdle(t, 10, strict, func(s *simulation, alone bool) []*simulatedQueue {
						if !alone {
							s.queue(6, 0, 0, ms, far(rtt)).trickle(7 * ms)
						}
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
	for _, handler := range []time.Duration{ms, 10 * ms, 40 * ms, 60 * ms, 200 * ms} {
		t.Run(fmt.Sprint(handler), func(t *testing.T) {
			nobodyIdle(t, 16, false, func(s *simulation, alone bool) []*simulatedQueue {
				if !alone {
					s.queue(6, 0, -1, handler, far(100*ms))
				}
				return []*simulatedQueue{s.queue(3, 0, -1, handler), s.queue(1, 0, -1, handler)}
			})
		})
	}
	for _, workers := range []int{1, 4} {
		nobodyIdle(t, workers, false, func(s *simulation, alone bool) []*simulatedQueue {
			if !alone {
				s.queue(1, 0, -1, 100*ms, far(60*ms))
			}
			return []*simulatedQueue{s.queue(1, 0, -1, 100*ms)}
		})
	}
}
