package consume

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/testkit"
)

// TestSharesBesideHanging: beside a queue whose handlers begin to hang, another one that is as near goes on. The first one has its
// share of the workers.
func TestSharesBesideHanging(t *testing.T) {
	const near, slow, away = 100 * time.Microsecond, 3 * time.Millisecond, 20 * time.Millisecond
	for _, workers := range testkit.Size([]int{2, 64}, []int{2}) {
		for _, handler := range testkit.Size([]time.Duration{0, 500 * time.Microsecond, 5 * time.Millisecond}, []time.Duration{500 * time.Microsecond}) {
			for _, rtts := range [][2]time.Duration{{near, near}, {slow, slow}, {away, away}, {near, away}, {away, near}} {
				t.Run(fmt.Sprint(workers, " workers of ", handler, ", fetches of ", rtts), func(t *testing.T) {
					t.Parallel()
					simulate(t, workers, false, func(s *simulation) {
						broken, well := s.queue(1, 0, -1, handler, far(rtts[0])), s.queue(1, 0, -1, handler, far(rtts[1]))
						if rtts[0] == near && rtts[1] == away {
							return // the first has the workers for which the other one has fetched nothing
						}
						took := 5*time.Millisecond + 4*rtts[1] + 5*handler
						time.Sleep(took + 4*rtts[0]) // in the beginning nobody knows anything
						before := well.handledIn(took)
						broken.hangs.Store(true)
						time.Sleep(took + 4*rtts[0])
						after, hang := well.handledIn(took), broken.now().running
						if hang > workers/2 || after < before*2/5 || after == 0 {
							t.Errorf("%d hang; the other queue has handled %d, and %d before", hang, after, before)
						}
					})
				})
			}
		}
	}
}

// TestSharesBesideSomeHanging: it is the same where most handlers return, and with weights and more queues.
func TestSharesBesideSomeHanging(t *testing.T) {
	for i, most := range []int{6, 3, 1} {
		simulate(t, 10, false, func(s *simulation) {
			for _, w := range []int{6, 3, 1} {
				s.queue(w, 0, -1, 500*time.Microsecond, far(time.Millisecond))
			}
			time.Sleep(50 * time.Millisecond)
			for n := range 20 { // one after the other
				s.queues[i].hangs.Store(n%2 == 0)
				time.Sleep(2 * time.Millisecond)
			}
			s.queues[i].hangs.Store(true)
			time.Sleep(50 * time.Millisecond)
			if n := s.queues[i].now().running; n > most {
				t.Errorf("queue %d: %d of 10 workers hang", i, n)
			}
			for o, q := range s.queues {
				if n, want := q.handledIn(100*time.Millisecond), 190*[]int{6, 3, 1}[o]; o != i && n < want*9/10 {
					t.Errorf("queue %d hangs: queue %d has handled %d, want %d", i, o, n, want)
				}
			}
		})
	}
}
