package delayqueue

import (
	"math"
	"sync/atomic"
	"testing"
)

// TestAnyNumberOfWorkers: the largest number that there is means no bound, for a queue and for a pool.
func TestAnyNumberOfWorkers(t *testing.T) {
	t.Parallel()
	f, other := newFixture(t), newFixture(t)
	var handled atomic.Int64
	count := func(string) bool { handled.Add(1); return true }
	q := f.queue(count).WithConcurrent(math.MaxInt)
	f.several(20)
	q.StartConsume()
	f.drained()
	q.StopConsume()
	settledDown(t, q.current())
	p := NewPool(math.MaxInt, Share{Queue: q}, Share{Queue: other.queue(count), AtMost: math.MaxInt})
	f.several(20)
	other.several(20)
	p.StartConsume()
	f.drained()
	other.drained()
	p.StopConsume()
	if n := handled.Load(); n != 60 {
		t.Errorf("%d were handled", n)
	}
}
