package consume

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/redis/go-redis/v9"
)

// TestLeasesTickWhileHeld: renewals begin with what is held and end when nothing is, and what is added just then is
// renewed.
func TestLeasesTickWhileHeld(t *testing.T) {
	t.Parallel()
	s := newServing(t)
	s.settings.Lease = 100 * time.Millisecond
	c := s.start()
	for i := range 40 {
		d := &delivery{consumer: c, lease: unknownLease(), tag: strconv.Itoa(i), msg: message.Delivered{ID: "x", Delivery: 1},
			terms: &noTerms}
		c.leases.add(d)
		queuetest.Eventually(t, "its renewal says that Redis does not know it", func() bool {
			return d.fate.Load() == fateLost
		})
		if i%4 == 0 {
			queuetest.Eventually(t, "renewals end", func() bool {
				c.leases.mu.Lock()
				defer c.leases.mu.Unlock()
				return !c.leases.ticking
			})
		}
	}
}

// TestFetchWaitsForConnection: a lease, and what is left until a deadline, begin when the fetch has a connection.
func TestFetchWaitsForConnection(t *testing.T) {
	t.Parallel()
	s := newServing(t)
	s.over = s.Client()
	others := script.NewStore(s.over, "dq", s.Name).ForConsumer(time.Hour)
	defer others.Release()
	const places = 64 // of consumers
	began, release := make(chan struct{}, places), make(chan struct{})
	var all sync.WaitGroup
	defer all.Wait()
	for range places {
		all.Go(func() {
			_ = others.Attempt(queuetest.CtxB, link.Effort{Call: func(context.Context, redis.UniversalClient) error {
				began <- struct{}{}
				<-release
				return nil
			}})
		})
	}
	for range places {
		queuetest.Receive(t, "a call has a connection", began)
	}
	handled := make(chan struct{})
	s.settings.Handle = func(context.Context, *message.Delivered) Verdict {
		handled <- struct{}{}
		<-handled
		return Verdict{}
	}
	s.send("x", func(e *message.Envelope) { e.Deadline = time.Now().Add(time.Hour).UnixMicro() })
	c := s.start()
	<-time.After(50 * time.Millisecond) // so that the fetch waits
	free := time.Now()
	close(release)
	queuetest.Receive(t, "delivery", handled)
	if d := c.leases.held.all()[0]; d.lease.began.Age(free) > 0 {
		t.Errorf("its lease began %v too early", d.lease.began.Age(free))
	}
	close(handled)
}

// TestOutageIsNoRoundTrip: after it, no more is fetched ahead than before.
func TestOutageIsNoRoundTrip(t *testing.T) {
	t.Parallel()
	s, wire := wiredServing(t)
	var handled, failed, most, longest atomic.Int64
	t.Cleanup(link.Interpose(s.over,
		queuetest.CommandHook(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			begun := time.Now()
			err := next(ctx, cmd)
			if err == nil {
				longest.Store(max(longest.Load(), int64(time.Since(begun))))
			} else {
				failed.Add(1)
			}
			return err
		})))
	var c atomic.Pointer[Consumer]
	s.settings.Handle = func(context.Context, *message.Delivered) Verdict {
		most.Store(max(most.Load(), int64(c.Load().member.unhandled())))
		time.Sleep(5 * time.Millisecond)
		handled.Add(1)
		return Verdict{}
	}
	c.Store(s.start())
	s.backlog(20)
	queuetest.Eventually(t, "20 are handled", func() bool { return handled.Load() == 20 })
	wire.Cut()
	queuetest.Eventually(t, "the outage lasts", func() bool { return failed.Load() >= 8 })
	s.backlog(200)
	wire.Mend()
	queuetest.Reaches(t, "the rest is handled", 220, func() int { return int(handled.Load()) })
	if n, trip := most.Load(), time.Duration(longest.Load()); n > 60+4*int64(trip/(5*time.Millisecond)) {
		t.Errorf("one worker of 5 ms held %d messages, with round trips of %v at most", n, trip)
	}
}

// TestRenewalsShortenLists: what was settled long ago is not listed any more beside a handler that runs on.
func TestRenewalsShortenLists(t *testing.T) {
	t.Parallel()
	s, release := newServing(t), make(chan struct{})
	defer close(release)
	s.settings.Workers, s.settings.Lease = 64, time.Hour // until renewsNow
	var calls atomic.Int64
	hung := make(chan struct{})
	s.settings.Callback = func(string) bool {
		if calls.Add(1) == 64 {
			close(hung)
			<-release
		}
		return true
	}
	s.backlog(64)
	c := s.start()
	listed := func() (tags []int) {
		for _, l := range s.Check().Leases {
			tags = append(tags, len(l.Tags))
		}
		return tags
	}
	queuetest.Receive(t, "one runs on", hung)
	if got := listed(); !slices.Equal(got, []int{64}) {
		t.Fatalf("lists of %v, want one of 64", got)
	}
	queuetest.Eventually(t, "the others are settled", func() bool { return c.leases.held.totals().deliveries == 1 })
	c.leases.renewsNow()
	queuetest.Eventually(t, "it is alone in the list", func() bool { return slices.Equal(listed(), []int{1}) })
}

// TestHeldList: after adds and removals in any order it has what is left, the leases of that, and its sums.
func TestHeldList(t *testing.T) {
	var l heldList
	var want []*delivery
	some := []*lease{unknownLease(), unknownLease(), unknownLease(), unknownLease()}
	for i := range 2000 {
		if n := rand.IntN(4); n > 0 && i < 1000 {
			ds := make([]*delivery, n)
			for j := range ds {
				ds[j] = &delivery{lease: some[rand.IntN(len(some))], bytes: rand.IntN(100)}
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
			sums.deliveries++
			sums.bytes += d.bytes
		}
		if got := l.totals(); got != sums || sums.deliveries != len(want) {
			t.Fatalf("sums %+v, want %+v", got, sums)
		}
		byLease := l.byLease()
		for _, one := range some {
			held := slices.DeleteFunc(slices.Clone(want), func(d *delivery) bool { return d.lease != one })
			if len(held) != len(byLease[one]) {
				t.Fatalf("%d of a lease are held, want %d", len(byLease[one]), len(held))
			}
		}
	}
	all := l.all()
	if missing := slices.DeleteFunc(slices.Clone(want), func(d *delivery) bool {
		return slices.Contains(all, d)
	}); len(missing) > 0 ||
		len(all) != len(want) {
		t.Errorf("it holds %d, want %d, and lacks %d", len(all), len(want), len(missing))
	}
	if l.remove(want...); len(l.all())+len(l.byLease()) > 0 || l.totals() != (heldSums{}) {
		t.Errorf("%+v are left", l.totals())
	}
}
