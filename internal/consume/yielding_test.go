package consume

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// A sharedServer runs scripts one after the other, in virtual time, for consumers that drain a backlog as fast as they can.
type sharedServer struct {
	calls   serverCalls
	free    time.Duration // when it has done what it has
	handed  int           // deliveries
	strange []time.Duration
}

type serverCall struct {
	at  time.Duration // when it comes to the server
	run func(at time.Duration)
}

type serverCalls []serverCall

func (c serverCalls) Len() int           { return len(c) }
func (c serverCalls) Less(i, j int) bool { return c[i].at < c[j].at }
func (c serverCalls) Swap(i, j int)      { c[i], c[j] = c[j], c[i] }
func (c *serverCalls) Push(x any)        { *c = append(*c, x.(serverCall)) }
func (c *serverCalls) Pop() any {
	last := (*c)[len(*c)-1]
	*c = (*c)[:len(*c)-1]
	return last
}

func (s *sharedServer) calledAt(at time.Duration, run func(at time.Duration)) {
	heap.Push(&s.calls, serverCall{at, run})
}

// costs takes the server for so long, and says when it begins.
func (s *sharedServer) costs(at, cost time.Duration) (begins time.Duration) {
	begins = max(at, s.free)
	s.free = begins + cost
	return begins
}

// consumer drains, with a yielding or without, from so far away.
func (s *sharedServer) consumer(way, jitter, due time.Duration, paced bool, random *rand.Rand) *yielding {
	p, here := &yielding{}, time.Unix(1_790_000_000, 0)
	offset := message.ServerTime(random.Int64N(1e9)) // the clocks differ
	first := true
	var fetch func(sent time.Duration)
	fetch = func(sent time.Duration) {
		s.calledAt(sent+way+time.Duration(random.Int64N(int64(jitter))), func(at time.Duration) {
			n := p.most()
			if !paced {
				n = script.MaxBatch
			}
			if sent < due { // nothing is
				begins := s.costs(at, 80*time.Microsecond)
				answered := s.free + way + time.Duration(random.Int64N(int64(jitter)))
				p.answered(here.Add(sent), offset+message.ServerTime(here.Add(begins).UnixMicro()), here.Add(answered), n, 0)
				fetch(sent + min(100*time.Millisecond, due-sent))
				return
			}
			if first { // nobody knows yet how long handlers take
				n, first = 8, false
			}
			begins := s.costs(at, 80*time.Microsecond+time.Duration(n)*3*time.Microsecond)
			s.handed += n
			answered := s.free + way + time.Duration(random.Int64N(int64(jitter)))
			s.calledAt(answered+way, func(at time.Duration) { // it is settled
				s.costs(at, 40*time.Microsecond+time.Duration(n)*1500*time.Nanosecond)
			})
			if paced {
				p.answered(here.Add(sent), offset+message.ServerTime(here.Add(begins).UnixMicro()), here.Add(answered), n, n)
			}
			fetch(answered)
		})
	}
	fetch(time.Duration(random.Int64N(int64(time.Second))))
	return p
}

// run goes on for so long, with a stranger who looks each ms from some instant on.
func (s *sharedServer) run(from, to time.Duration) {
	for at := from; at < to; at += time.Millisecond {
		s.calledAt(at, func(at time.Duration) { s.strange = append(s.strange, s.costs(at, 0)-at) })
	}
	for len(s.calls) > 0 && s.calls[0].at < to {
		c := heap.Pop(&s.calls).(serverCall)
		c.run(c.at)
	}
	slices.Sort(s.strange)
}

// TestYieldingOfManyConsumers: how long somebody else waits, 99 times of 100, beside consumers that find a backlog when they start, and
// beside some that have waited for it together. It grows with their number, for each has a fetch and a settlement at the server; those that
// start while others drain do not know how fast the server is without these. Smaller fetches cost the server more for each delivery.
func TestYieldingOfManyConsumers(t *testing.T) {
	for _, way := range []time.Duration{100 * time.Microsecond, 10 * time.Millisecond} {
		for _, c := range []struct {
			consumers           int
			foundMS, togetherMS float64
			leastPart           float64 // of what is handed out without a yielding
		}{{1, 3, 3, 0.9}, {4, 6, 6, 0.9}, {12, 10, 10, 0.7}, {24, 17, 10, 0.7}, {50, 27, 21, 0.7}, {200, 95, 90, 0.65}} {
			for due, most := range map[time.Duration]float64{0: c.foundMS, 3 * time.Second: c.togetherMS} {
				t.Run(fmt.Sprint(c.consumers, " consumers, ", way, " away, due after ", due), func(t *testing.T) {
					var with, without sharedServer
					random := rand.New(rand.NewPCG(1, uint64(c.consumers)))
					for range c.consumers {
						with.consumer(way, 200*time.Microsecond, due, true, random)
						without.consumer(way, 200*time.Microsecond, due, false, random)
					}
					with.run(3*time.Second, 8*time.Second)
					without.run(3*time.Second, 8*time.Second)
					p99, before := with.strange[len(with.strange)*99/100], without.strange[len(without.strange)*99/100]
					t.Logf("p50 %v p99 %v, without %v and %v; %d handed out, without %d", with.strange[len(with.strange)/2], p99,
						without.strange[len(without.strange)/2], before, with.handed, without.handed)
					if p99.Seconds()*1e3 > most {
						t.Errorf("p99 %v, want at most %v ms", p99, most)
					}
					if part := float64(with.handed) / float64(without.handed); part < c.leastPart {
						t.Errorf("%.2f of what goes without a yielding", part)
					}
				})
			}
		}
	}
}

// TestYieldingOnlyToOthers: neither distance nor a network whose delays vary, nor a clock that is stepped, makes the fetches of a consumer
// smaller that has the server for itself.
func TestYieldingOnlyToOthers(t *testing.T) {
	for _, way := range []time.Duration{100 * time.Microsecond, 10 * time.Millisecond, 100 * time.Millisecond} {
		var s sharedServer
		random := rand.New(rand.NewPCG(1, 1))
		p := s.consumer(way, max(way/8, 100*time.Microsecond), 0, true, random)
		smallest := script.MaxBatch
		for at := 6 * time.Second; at < 20*time.Second; at += 10 * time.Millisecond {
			s.calledAt(at, func(time.Duration) { smallest = min(smallest, p.most()) })
		}
		s.run(0, 20*time.Second)
		if smallest < script.MaxBatch/2 || p.most() < script.MaxBatch*3/4 {
			t.Errorf("%v away: %d at least, %d in the end", way, smallest, p.most())
		}
	}
	var p yielding
	at, clock := time.Unix(1_790_000_000, 0), serverStart
	for i := range 100 {
		if i == 50 {
			clock += 3600 * serverSecond
		}
		p.answered(at, clock, at.Add(time.Millisecond), p.most(), p.most())
		at, clock = at.Add(time.Millisecond), clock+1000
	}
	if p.most() != script.MaxBatch {
		t.Errorf("after a step of the clock: %d", p.most())
	}
}
