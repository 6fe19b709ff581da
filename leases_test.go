package delayqueue

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestLeasesAreRenewedEveryThird: from the beginning of one renewal to that of the next, however slow the line is.
func TestLeasesAreRenewedEveryThird(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	cli := f.client()
	const lease, roundTrip = 3 * time.Second, 300 * time.Millisecond
	onTime := make(chan struct{}, 1)
	var mu sync.Mutex   // attempts that were given up go on beside the next
	var begun time.Time // of a renewal that succeeded; zero: the last one failed
	hookOwn(t, cli, commandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if len(cmd.Args()) < 2 || cmd.Args()[1] != extendScript.sha {
			return next(ctx, cmd)
		}
		mu.Lock()
		last := begun
		if begun = time.Now(); !last.IsZero() && begun.Sub(last) < lease/3+roundTrip {
			select {
			case onTime <- struct{}{}:
			default:
			}
		}
		mu.Unlock()
		time.Sleep(roundTrip)
		err := next(ctx, cmd)
		if err != nil {
			mu.Lock()
			begun = time.Time{}
			mu.Unlock()
		}
		return err
	}))
	release := make(chan struct{})
	q := f.queueOn(cli, func(string) bool { <-release; return true }).WithLease(lease)
	f.send(q, "x")
	q.StartConsume()
	receive(t, "a renewal begins a third of a lease after the last one", onTime)
	close(release)
}

// TestHeldList: after adds and removals in any order it has what is left, and the sums of that.
func TestHeldList(t *testing.T) {
	var l heldList
	var want []*delivery
	for i := range 2000 {
		if n := rand.IntN(4); n > 0 && i < 1000 {
			ds := make([]*delivery, n)
			for j := range ds {
				ds[j] = &delivery{bytes: rand.IntN(100), lastChance: rand.IntN(2) == 0}
			}
			l.add(ds...)
			want = append(want, ds...)
		} else if len(want) > 0 {
			j := rand.IntN(len(want))
			l.remove(want[j], want[j], &delivery{}) // the second time it is not there
			want = slices.Delete(want, j, j+1)
		}
		var sums heldSums
		for _, d := range want {
			sums.count(d, 1)
		}
		if got := l.totals(); got != sums || sums.deliveries != len(want) {
			t.Fatalf("sums %+v, want %+v", got, sums)
		}
	}
	all := l.all()
	if missing := slices.DeleteFunc(slices.Clone(want), func(d *delivery) bool { return slices.Contains(all, d) }); len(missing) > 0 ||
		len(all) != len(want) {
		t.Errorf("it holds %d, want %d, and lacks %d", len(all), len(want), len(missing))
	}
	if l.remove(want...); len(l.all()) > 0 || l.totals() != (heldSums{}) {
		t.Errorf("%+v are left", l.totals())
	}
}
