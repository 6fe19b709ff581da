package consume

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/testkit"
)

// TestSharesByWeight: with something due everywhere, each queue's part is its weight's, whether handlers take no time or long, whether the
// workers are more than the weights or fewer, and also if a fetch takes a part of what a handler does.
func TestSharesByWeight(t *testing.T) {
	const us, ms = time.Microsecond, time.Millisecond
	for _, workers := range testkit.Size([]int{1, 3, 10, 64}, []int{1, 10}) {
		for _, c := range []struct{ handler, rtt time.Duration }{{0, 100 * us}, {ms, 100 * us}, {10 * ms, 100 * us}, {100 * ms, 100 * us},
			{ms, 300 * us}, {ms, 500 * us}} {
			t.Run(fmt.Sprint(workers, " workers of ", c.handler, ", fetches of ", c.rtt), func(t *testing.T) {
				t.Parallel()
				simulate(t, workers, false, func(s *simulation) {
					for _, w := range []int{6, 3, 1} {
						s.queue(w, 0, -1, c.handler, far(c.rtt))
					}
					took := max(50*ms, 100*c.handler, 1000*c.rtt)
					if c.handler == 0 {
						took = 50 * ms
					}
					time.Sleep(took)
					off := 0.1
					if c.handler == 0 { // workers are no bound, but fetches, which bring several
						off = 0.2
					}
					wantParts(t, off, s.parts(handled), 6, 3, 1)
					all, released := 0, 0
					for _, q := range s.queues {
						all += q.now().handled
						released += q.now().released
					}
					if released > all/100+2*len(s.queues) { // in the beginning nobody knows how long handlers take
						t.Errorf("%d were fetched for nothing, and %d handled", released, all)
					}
					if possible := float64(workers) * took.Seconds() / c.handler.Seconds(); float64(all) < 0.75*possible && c.handler > 0 {
						t.Errorf("%d handled of %.0f", all, possible)
					}
				})
			})
		}
	}
}

// TestSharesOfUnequalHandlers: it is workers that are shared, so one queue's slow handlers have no more of them.
func TestSharesOfUnequalHandlers(t *testing.T) {
	simulate(t, 10, false, func(s *simulation) {
		s.queue(6, 0, -1, 5*time.Millisecond)
		s.queue(3, 0, -1, 10*time.Millisecond)
		s.queue(1, 0, -1, time.Second)
		time.Sleep(testkit.Size(20*time.Second, 10*time.Second) + 100*time.Millisecond)
		wantParts(t, 0.1, s.parts(inHandlers), 6, 3, 1)
	})
}

// TestSharesOfTheIdle: what a queue does not use the others may, and it has no more than its share for that later.
func TestSharesOfTheIdle(t *testing.T) {
	simulate(t, 10, false, func(s *simulation) {
		idle := s.queue(6, 0, 0, 10*time.Millisecond)
		s.queue(3, 0, -1, 10*time.Millisecond)
		s.queue(1, 0, -1, 10*time.Millisecond)
		time.Sleep(2 * time.Second)
		wantParts(t, 0.1, s.parts(inHandlers)[1:], 7.5, 2.5)
		if n := s.queues[1].now().handled + s.queues[2].now().handled; n < 1800 {
			t.Errorf("%d handled of 2000", n)
		}
		before := s.queues[1].now().handled
		idle.send(-1)
		time.Sleep(10 * time.Second)
		if now, other := idle.now().handled, s.queues[1].now().handled-before; now < 5400 || now > 6300 || other < 2700 {
			t.Errorf("%d handled beside %d, want about 6000 and 3000", now, other)
		}
	})
}

// TestSharesComeBack: workers that one queue had alone come to another one as its handlers return, until that has its share.
func TestSharesComeBack(t *testing.T) {
	simulate(t, 10, false, func(s *simulation) {
		s.queue(1, 0, -1, time.Second)
		late := s.queue(4, 0, 0, 10*time.Millisecond)
		time.Sleep(1500 * time.Millisecond)
		late.send(-1)
		time.Sleep(600 * time.Millisecond) // all ten have returned once
		before := late.now().handled
		time.Sleep(10 * time.Second)
		if n := late.now().handled - before; n < 7200 || n > 8100 {
			t.Errorf("%d handled, want about 8000, of 8 workers", n)
		}
	})
}

// TestSharesAtMost: handlers of ten minutes have no more workers than AtMost, and the other queues have the rest.
func TestSharesAtMost(t *testing.T) {
	for _, strict := range []bool{false, true} {
		simulate(t, 64, strict, func(s *simulation) {
			bulk := s.queue(6, 16, -1, 10*time.Minute)
			time.Sleep(time.Second)
			other := s.queue(1, 0, -1, 10*time.Millisecond)
			quick := s.queue(1, 1, -1, time.Microsecond)
			time.Sleep(time.Second / 5)
			if c := bulk.now(); c.running != 16 || c.most != 16 {
				t.Errorf("%+v, want 16 at a time", c)
			}
			if c := quick.now(); c.most > 1 || !strict && c.handled < 120 {
				t.Errorf("%+v, want 1 at a time", c)
			}
			if n := other.now().handled; n < 800 || n > 960 {
				t.Errorf("%d handled, want about 940, of 47 workers", n)
			}
		})
	}
}

// TestSharesWithoutAServer: a queue whose server does not answer holds no worker, and has its share when it is back.
func TestSharesWithoutAServer(t *testing.T) {
	for _, strict := range []bool{false, true} {
		simulate(t, 10, strict, func(s *simulation) {
			first := s.queue(6, 0, -1, 10*time.Millisecond)
			other := s.queue(3, 0, -1, 10*time.Millisecond)
			time.Sleep(time.Second)
			if n := other.now().handled; strict != (n == 0) {
				t.Errorf("strict %v: %d of the second queue handled beside the first", strict, n)
			}
			back := make(chan struct{})
			first.away <- back
			time.Sleep(100 * time.Millisecond)
			before := other.now().handled
			time.Sleep(time.Second)
			if n := other.now().handled - before; n < 900 {
				t.Errorf("strict %v: %d of the second queue handled of 1000", strict, n)
			}
			before = first.now().handled
			close(back)
			time.Sleep(time.Second)
			if n := first.now().handled - before; n < 500 {
				t.Errorf("strict %v: %d of the first queue handled after the outage", strict, n)
			}
		})
	}
}

// TestSharesOfAFarServer: a queue whose fetches take longer than lapseAfter gets workers all the same, beside one that is
// near and has handlers longer than what is fetched may wait: not all of its share, because no worker waits for it.
func TestSharesOfAFarServer(t *testing.T) {
	for _, strict := range []bool{false, true} {
		simulate(t, 4, strict, func(s *simulation) {
			far := s.queue(100, 0, -1, 300*time.Millisecond, func(q *simulatedQueue) { q.rtt = 150 * time.Millisecond })
			near := s.queue(1, 0, -1, 300*time.Millisecond)
			time.Sleep(9 * time.Second)
			if n := far.now().handled; n < 30 {
				t.Errorf("strict %v: %d handled of 80, beside %d, and %d fetched for nothing", strict, n, near.now().handled, far.now().released)
			}
		})
	}
}

// TestSharesOfTheExpired: a backlog that no handler sees, near or far, does not hold up the other queue.
func TestSharesOfTheExpired(t *testing.T) {
	for _, workers := range []int{1, 4, 8} {
		simulate(t, workers, false, func(s *simulation) {
			expired := s.queue(1, 0, -1, 0, func(q *simulatedQueue) { q.expired = true })
			good := s.queue(1, 0, -1, 0)
			time.Sleep(time.Second / 4)
			if a, n := expired.now().aside, good.now().handled; n < a/2 {
				t.Errorf("%d workers: %d handled while %d expired ones were set aside", workers, n, a)
			}
		})
		simulate(t, workers, false, func(s *simulation) {
			s.queue(1, 0, -1, 0, far(20*time.Millisecond), func(q *simulatedQueue) { q.expired = true })
			near := s.queue(1, 0, -1, time.Millisecond)
			time.Sleep(time.Second)
			if n := near.now().handled; n < 800*workers {
				t.Errorf("%d workers: %d handled beside a far one", workers, n)
			}
		})
	}
}

// TestSharesInOrder: in a strict pool a queue is asked only while none before it has anything due, nothing is fetched that no
// worker is free for, and a message of the first queue gets the next worker.
func TestSharesInOrder(t *testing.T) {
	simulate(t, 4, true, func(s *simulation) {
		first := s.queue(1, 0, 1000, 10*time.Millisecond)
		second := s.queue(100, 0, -1, 100*time.Millisecond)
		time.Sleep(2 * time.Second)
		if n := first.now().handled; n < 700 || n == 1000 || second.now().handled > 0 {
			t.Errorf("%d of the first handled, and %d of the second", n, second.now().handled)
		}
		time.Sleep(2 * time.Second)
		for range 50 {
			first.send(1)
			before := first.now().handled
			time.Sleep(115 * time.Millisecond) // until a handler of the second queue has returned, and this one too
			if n := first.now().handled - before; n != 1 {
				t.Fatalf("%d handled", n)
			}
		}
		for _, q := range s.queues {
			if c := q.now(); c.released > 0 {
				t.Errorf("fetched for nothing: %+v", c)
			}
		}
		if n := second.now().handled; n < 4*60 {
			t.Errorf("%d of the second handled", n)
		}
	})
}

// TestSharesInOrderOfQuickHandlers: the same where both queues' handlers take less than a millisecond: the first one does not wait for
// the second, which gets nothing.
func TestSharesInOrderOfQuickHandlers(t *testing.T) {
	for _, workers := range testkit.Size([]int{1, 4, 64}, []int{4}) {
		simulate(t, workers, true, func(s *simulation) {
			first, second := s.queue(1, 0, 0, 0), s.queue(1, 0, -1, 0)
			time.Sleep(20 * time.Millisecond)
			first.send(-1)
			time.Sleep(20 * time.Millisecond)
			before := second.now().handled
			if n := first.handledIn(40 * time.Millisecond); n < 200 || second.now().handled > before {
				t.Errorf("%d workers: %d of the first handled, and %d of the second", workers, n, second.now().handled-before)
			}
		})
	}
}
