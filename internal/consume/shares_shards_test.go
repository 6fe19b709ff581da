package consume

import (
	"math"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/testkit"
)

// TestSharesOfShards: the shards of a queue have together what one queue has, by weight, with AtMost, and in a strict pool.
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
					s.queue(1, c.atMost, -1, 20*time.Millisecond)
				}
				s.shards = 0
				s.queue(1, 0, -1, 20*time.Millisecond)
				took := testkit.Size(5*time.Second, time.Second)
				time.Sleep(took)
				var busy [2]float64
				released := 0
				for i, q := range s.queues {
					q.mu.Lock()
					busy[i/4] += q.counts.busy.Seconds() / (took.Seconds() * workers)
					released += q.counts.released
					q.mu.Unlock()
				}
				if math.Abs(busy[0]-c.want) > 0.1 || busy[0]+busy[1] < 0.9 {
					t.Errorf("the shards have %.2f of the workers, and the other queue %.2f, want %.2f and the rest", busy[0], busy[1], c.want)
				}
				if released > 200 {
					t.Errorf("%d deliveries were released", released)
				}
			})
		})
	}
}

// TestShardsKeepNoWorkerFree: what one shard has brought is handled, also while another shard, which may have more, does not answer.
func TestShardsKeepNoWorkerFree(t *testing.T) {
	for _, workers := range []int{1, 4} {
		simulate(t, workers, false, func(s *simulation) {
			s.shards = 3
			quick := s.queue(1, 0, 4, time.Millisecond)
			for range 2 {
				s.queue(1, 0, -1, time.Millisecond, far(time.Second))
			}
			time.Sleep(LapseAfter / 2)
			if n := quick.now().handled; n != 4 {
				t.Errorf("%d workers: %d of 4 deliveries are handled", workers, n)
			}
		})
	}
}

// TestShareWhileWorkersRun: workers that began before they were shared count for nobody.
func TestShareWhileWorkersRun(t *testing.T) {
	simulate(t, 2, false, func(s *simulation) {
		s.ws.shared = false
		s.queue(1, 0, 100, 100*time.Millisecond)
		time.Sleep(50 * time.Millisecond)
		s.ws.Share()
		s.queue(1, 0, 100, 100*time.Millisecond, func(q *simulatedQueue) { q.rtt = 20 * time.Millisecond })
		time.Sleep(time.Second)
		if n := s.queues[1].now().handled; n == 0 {
			t.Error("the second queue has no worker")
		}
	})
}
