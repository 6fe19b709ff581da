package consume

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
)

const ms = time.Millisecond

// TestWants: what a lone consumer asks for is one for each free worker, and for quick handlers what they get through
// meanwhile.
func TestWants(t *testing.T) {
	for name, c := range map[string]struct {
		workers, busy, buffered int
		each, rtt               time.Duration
		want                    int
	}{
		"no worker":                      {0, 0, 0, 0, ms, 0},
		"all are free":                   {8, 0, 0, 0, ms, 8},
		"some are free":                  {8, 3, 0, 0, ms, 5},
		"none is free":                   {8, 8, 0, 0, ms, 0},
		"quick handlers":                 {8, 0, 0, ms / 10, ms, 8 + 2*80},
		"quick, and the buffer has some": {8, 8, 72, ms / 10, ms, 8 + 2*80 - 80},
		"quick, and the buffer is full":  {8, 8, 80, ms / 10, ms, 0},
		"quick, and no more at a time":   {8, 8, 100, ms, time.Hour, script.MaxBatch},
		"nothing is fetched ahead":       {8, 8, 0, ms / 10, 0, 0},
		"slow against the network":       {8, 0, 0, 10 * ms, ms, 8},
		"slow against the buffer":        {8, 0, 0, maxBuffered / 2, time.Second, 8},
	} {
		ws := Workers{size: c.workers, used: c.busy}
		m := ws.join(Portion{Weight: 1})
		m.busy, m.buffer, m.each = c.busy, make([]*delivery, c.buffered), c.each
		if got, _ := m.room(script.MaxBatch, true, c.rtt); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
		if m.careful = 1; m.wants(c.rtt) > c.workers {
			t.Errorf("%s: after a release something is fetched ahead", name)
		}
	}
}

// TestWantsOfShards: shards of a queue of a pool fetch together what AtMost lets them handle.
func TestWantsOfShards(t *testing.T) {
	ws := Workers{size: 10, shared: true, gap: time.Second} // of slow handlers
	var shards []*member
	for range 4 {
		shards = append(shards, ws.join(Portion{Weight: 0.25, AtMost: 2, Grouped: true}))
	}
	all := 0
	for _, m := range shards {
		all += m.ask(script.MaxBatch, true, 0)
	}
	if all != 2 {
		t.Errorf("%d are fetched, want 2", all)
	}
	first := shards[0].asked
	shards[0].buffer, shards[0].asked = make([]*delivery, first), 0
	shards[1].busy, shards[1].asked = shards[1].asked, 0
	if n, _ := shards[2].room(script.MaxBatch, true, 0); n != 0 {
		t.Errorf("%d more beside what is fetched and handled", n)
	}
	shards[0].buffer = nil
	if n, _ := shards[2].room(script.MaxBatch, true, 0); n != first {
		t.Errorf("%d when nothing of the first shard is left, want %d", n, first)
	}
}

// TestSharesByWeight: with something due everywhere, each queue's part of the workers' time is its weight's, whether
// handlers take no time or long, whether the workers are more than the weights or fewer, and no worker is free.
func TestSharesByWeight(t *testing.T) {
	for _, weights := range [][]int{{1, 3}, {6, 3, 1}, {1, 1, 1, 10}} {
		for _, workers := range testkit.Size([]int{1, 4, 8, 20}, []int{1, 8}) {
			for _, handler := range testkit.Size([]time.Duration{0, ms, 10 * ms, 30 * ms, 100 * ms, 300 * ms},
				[]time.Duration{0, ms, 100 * ms}) {
				if handler == 0 && len(weights) == 4 {
					continue // workers are no bound, but how often the heaviest fetches
				}
				t.Run(fmt.Sprint(weights, " of ", workers, " workers of ", handler), func(t *testing.T) {
					t.Parallel()
					simulate(t, workers, false, func(s *simulation) {
						var want []float64
						for _, w := range weights {
							s.queue(w, 0, -1, handler, far(max(ms/10, handler/300)))
							want = append(want, float64(w))
						}
						took := max(100*ms, 250*handler)
						time.Sleep(took)
						wantParts(t, s.inHandlers(took), want...)
						handled, released := 0, 0
						for _, q := range s.queues {
							handled, released = handled+q.now().handled, released+q.now().released
						}
						if possible := float64(workers) * took.Seconds() / handler.Seconds(); handler > 0 &&
							float64(handled) < 0.85*possible {
							t.Errorf("%d handled of %.0f", handled, possible)
						}
						if released > handled/20+2*len(s.queues) { // in the beginning nobody knows how long handlers take
							t.Errorf("%d were fetched for nothing, and %d handled", released, handled)
						}
					})
				})
			}
		}
	}
}

// TestSharesOfUnequalHandlers: it is the time of workers that is shared, so one queue's slow handlers have no more of
// it.
func TestSharesOfUnequalHandlers(t *testing.T) {
	for _, workers := range []int{1, 8} {
		simulate(t, workers, false, func(s *simulation) {
			s.queue(6, 0, -1, 2*ms)
			s.queue(3, 0, -1, 100*ms)
			s.queue(1, 0, -1, 10*ms)
			const took = 20 * time.Second
			time.Sleep(took)
			wantParts(t, s.inHandlers(took), 6, 3, 1)
		})
	}
}

// TestSharesOfTheIdle: what a queue does not use the others may, it has no more than its share for that later, and its
// message waits for no more than a handler of theirs.
func TestSharesOfTheIdle(t *testing.T) {
	for _, strict := range []bool{false, true} {
		for _, workers := range []int{1, 8} {
			for _, handler := range []time.Duration{2 * ms, 40 * ms, 300 * ms} {
				simulate(t, workers, strict, func(s *simulation) {
					idle, bulk := s.queue(1, 0, 0, ms), s.queue(1, 0, -1, handler)
					time.Sleep(time.Second)
					before := bulk.now().busy
					for range 20 {
						sent, n := time.Now(), idle.now().handled
						idle.send(1)
						time.Sleep(max(handler, 10*ms)*21/10 + ms)
						if c := idle.now(); c.handled != n+1 || c.begun.Sub(sent) > handler+5*ms {
							t.Errorf("strict %v, %d workers of %v: it waited for %v", strict, workers, handler, c.begun.Sub(sent))
						}
					}
					took := 20 * (max(handler, 10*ms)*21/10 + ms)
					if busy := (bulk.now().busy - before).Seconds() / took.Seconds(); busy < 0.85*float64(workers) {
						t.Errorf("strict %v, %d workers of %v: the other queue has %.2f of them", strict, workers, handler, busy)
					}
					if strict {
						return
					}
					idle.send(-1)
					time.Sleep(handler)
					before, mine := bulk.now().busy, idle.now().busy
					time.Sleep(100 * handler)
					wantParts(t, []float64{(bulk.now().busy - before).Seconds(), (idle.now().busy - mine).Seconds()}, 1, 1)
				})
			}
		}
	}
}

// TestSharesOfMany: fifty queues have their shares of one worker, and of eight.
func TestSharesOfMany(t *testing.T) {
	for _, workers := range []int{1, 8} {
		for _, handler := range []time.Duration{2 * ms, 100 * ms} {
			simulate(t, workers, false, func(s *simulation) {
				for range 50 {
					s.queue(1, 0, -1, handler)
				}
				const rounds = 20
				time.Sleep(rounds * 50 * handler / time.Duration(workers))
				handled, released := 0, 0
				for i, q := range s.queues {
					c := q.now()
					if handled, released = handled+c.handled, released+c.released; c.handled < rounds*3/4 || c.handled > rounds*3/2 {
						t.Errorf("%d workers of %v: queue %d: %d handled, want %d", workers, handler, i, c.handled, rounds)
					}
				}
				if handled < 45*rounds || released > handled/20+50 { // in the beginning nobody knows how long handlers take
					t.Errorf("%d workers of %v: %d handled, and %d fetched for nothing", workers, handler, handled, released)
				}
			})
		}
	}
}

// TestSharesAtMost: handlers of ten minutes have no more workers than AtMost, and the other queues have the rest.
func TestSharesAtMost(t *testing.T) {
	for _, strict := range []bool{false, true} {
		simulate(t, 64, strict, func(s *simulation) {
			bulk := s.queue(6, 16, -1, 10*time.Minute)
			time.Sleep(time.Second)
			other := s.queue(1, 0, -1, 10*ms)
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

// TestSharesWithoutAServer: a queue whose server does not answer holds no worker after an attempt, and has its share
// when it is back.
func TestSharesWithoutAServer(t *testing.T) {
	for _, strict := range []bool{false, true} {
		simulate(t, 10, strict, func(s *simulation) {
			first, other := s.queue(6, 0, -1, 10*ms), s.queue(3, 0, -1, 10*ms)
			time.Sleep(time.Second)
			if n := other.now().handled; strict != (n < 20) {
				t.Errorf("strict %v: %d of the second queue handled beside the first", strict, n)
			}
			back := make(chan struct{})
			first.away <- back
			time.Sleep(1100 * ms)
			if n := other.handledIn(time.Second); n < 900 {
				t.Errorf("strict %v: %d of the second queue handled of 1000", strict, n)
			}
			close(back)
			if n := first.handledIn(time.Second); n < 500 {
				t.Errorf("strict %v: %d of the first queue handled after the outage", strict, n)
			}
		})
	}
}

// TestSharesOfTheFar: beside a queue whose fetches take long, one that is near is handled, and the other way round.
func TestSharesOfTheFar(t *testing.T) {
	for _, workers := range []int{1, 8} {
		for _, handler := range []time.Duration{20 * ms, 300 * ms} {
			simulate(t, workers, false, func(s *simulation) {
				s.queue(1, 0, -1, handler, far(100*ms))
				s.queue(1, 0, -1, handler)
				const took = 5 * time.Second
				time.Sleep(took)
				if busy := s.inHandlers(took); min(busy[0], busy[1]) < 0.1*float64(workers) {
					t.Errorf("%d workers of %v: the far one has %.2f of them, and the near one %.2f", workers, handler, busy[0],
						busy[1])
				}
			})
		}
	}
}

// TestSharesOfTheExpired: a backlog that no handler sees does not hold up the other queue.
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
	}
}

// TestSharesInOrder: in a strict pool a queue is fetched from only while none before it has anything due.
func TestSharesInOrder(t *testing.T) {
	for _, handler := range []time.Duration{0, 10 * ms} {
		simulate(t, 4, true, func(s *simulation) {
			first, second := s.queue(1, 0, -1, handler), s.queue(100, 0, -1, handler)
			time.Sleep(100 * ms)
			if n, m := first.now().handled, second.now().handled; n < 30 || m > 4 {
				t.Errorf("handlers of %v: %d of the first handled, and %d of the second", handler, n, m)
			}
		})
	}
}

// TestSharesOfShards: the shards of a queue have together what one queue has, by weight, with AtMost, and in a strict
// pool.
func TestSharesOfShards(t *testing.T) {
	const workers = 20
	for name, c := range map[string]struct {
		strict bool
		atMost int
		want   float64 // of the time of the workers
	}{
		"by weight": {false, 0, 0.5},
		"at most 4": {false, 4, 0.2},
		"strict":    {true, 0, 1},
		"strict, 4": {true, 4, 0.2},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, workers, c.strict, func(s *simulation) {
				s.shards = 4
				for range 4 {
					s.queue(1, c.atMost, -1, 20*ms)
				}
				s.shards = 0
				s.queue(1, 0, -1, 20*ms)
				const took = 2 * time.Second
				time.Sleep(took)
				var busy [2]float64
				released := 0
				for i, n := range s.inHandlers(took) {
					busy[i/4] += n / workers
					released += s.queues[i].now().released
				}
				if math.Abs(busy[0]-c.want) > 0.1 || busy[0]+busy[1] < 0.9 {
					t.Errorf("the shards have %.2f of the workers, and the other queue %.2f, want %.2f and the rest", busy[0], busy[1],
						c.want)
				}
				if released > 20 {
					t.Errorf("%d deliveries were released", released)
				}
			})
		})
	}
}

// TestShareWhileWorkersRun: a queue that begins to share its workers while they run gives them up as its handlers
// return.
func TestShareWhileWorkersRun(t *testing.T) {
	simulate(t, 2, false, func(s *simulation) {
		s.ws.shared = false
		s.queue(1, 0, 100, 100*ms)
		time.Sleep(50 * ms)
		s.ws.Share()
		s.queue(1, 0, 100, 100*ms)
		time.Sleep(time.Second)
		if n := s.queues[1].now().handled; n < 5 {
			t.Errorf("%d of the second queue handled", n)
		}
	})
}

// TestFewAreReleased: of a queue by itself one handler in a hundred takes long. A rate counts each release.
func TestFewAreReleased(t *testing.T) {
	for _, c := range []struct {
		handler, slow, rtt time.Duration
		most               float64 // for each delivery that is handled
	}{{ms, ms, ms / 10, 0}, {ms, 500 * ms, ms / 10, 0.05}, {ms, 500 * ms, ms, 0.05}, {5 * ms, 500 * ms, 10 * ms, 0.05},
		{0, 2 * time.Second, ms / 10, 1.5}} {
		simulate(t, 8, false, func(s *simulation) {
			s.ws.shared = false
			q := s.queue(1, 0, -1, c.handler, far(c.rtt), func(q *simulatedQueue) { q.slow = c.slow })
			time.Sleep(20 * time.Second)
			if n := q.now(); float64(n.released) > c.most*float64(n.handled) || n.handled < 2000 {
				t.Errorf("%+v: %d handled, and %d released", c, n.handled, n.released)
			}
		})
	}
}

// far says how long the fetches of a queue take.
func far(rtt time.Duration) func(*simulatedQueue) {
	return func(q *simulatedQueue) { q.rtt = rtt }
}
