package consume

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/redis/go-redis/v9"
)

// onLastChance makes messages due that were lost once, of twice that they may be lost.
func (s *serving) onLastChance(payloads ...string) {
	s.T.Helper()
	s.settings.MaxLosses = 2
	for _, p := range payloads {
		m := s.message(message.Envelope{Payload: p})
		m.When = message.When{Us: int64(time.Hour / time.Microsecond)}
		s.store(m)
		now := time.Now().UnixMicro()
		_, err := s.over.TxPipelined(queuetest.CtxB, func(tx redis.Pipeliner) error {
			tx.ZRem(queuetest.CtxB, s.Key("pending"), m.ID)
			tx.HSet(queuetest.CtxB, s.Key("fail"), m.ID, fmt.Sprintf("2 0 1 %d ", now))
			tx.ZAdd(queuetest.CtxB, s.Key("retry"), redis.Z{Score: float64(now), Member: "2:" + m.ID})
			return nil
		})
		s.Must(err)
	}
}

// another is a queue beside this one.
func (s *serving) another() *serving {
	f := s.Base.Named(s.Name + "-another")
	return &serving{Base: f, calls: script.NewStore(f.Cli, "dq", f.Name), over: f.Cli, ids: message.NewIDSource(),
		settings: s.settings}
}

// TestHandledAlone: beside a message on its last chance no other message is handled, of any queue that shares the
// workers.
func TestHandledAlone(t *testing.T) {
	for name, queues := range map[string]int{"one queue": 1, "two queues": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			running, handled := 0, 0
			begin := func(payload string, n int) {
				mu.Lock()
				defer mu.Unlock()
				if running += n; running > 1 && strings.HasPrefix(payload, "last") {
					t.Errorf("%s runs beside %d others", payload, running-1)
				}
				if n < 0 {
					handled++
				}
			}
			all := []*serving{newServing(t)}
			if queues == 2 {
				all = append(all, all[0].another())
			}
			for _, s := range all {
				s.settings.Workers = 8
				s.settings.Callback = func(payload string) bool {
					begin(payload, 1)
					time.Sleep(rand.N(3 * time.Millisecond))
					mu.Lock()
					if beside := running - 1; beside > 0 && strings.HasPrefix(payload, "last") {
						t.Errorf("%d others began beside %s", beside, payload)
					}
					mu.Unlock()
					begin("", -1)
					return true
				}
				s.onLastChance("last 1", "last 2", "last 3", "last 4")
				s.backlog(300)
			}
			all[0].workers.Resize(8)
			if queues > 1 {
				all[0].workers.Share()
			}
			for _, s := range all {
				s.startIn(&all[0].workers)
			}
			queuetest.Eventually(t, "all are handled", func() bool {
				mu.Lock()
				defer mu.Unlock()
				return handled == queues*304
			})
			for _, s := range all {
				s.Drained()
			}
		})
	}
}

// TestAloneForALease: who waits until nothing else is handled waits for a lease at most, and the others wait as long
// for that message.
func TestAloneForALease(t *testing.T) {
	s := newServing(t)
	s.settings.Workers, s.settings.Lease, s.settings.MaxLosses = 3, time.Second, 2
	begins, end := make(chan string, 3), make(chan struct{})
	s.settings.Callback = func(payload string) bool {
		begins <- payload
		if payload != "next" {
			<-end
		}
		return true
	}
	s.send("hangs")
	s.start()
	began := map[string]time.Time{}
	for _, want := range []string{"hangs", "last", "next"} {
		if want == "last" {
			s.onLastChance("last")
		}
		if want == "next" {
			s.send("next")
		}
		if got := queuetest.Receive(t, want+" begins", begins); got != want {
			t.Fatalf("%s begins, want %s", got, want)
		}
		began[want] = time.Now()
	}
	if alone := began["next"].Sub(began["last"]); alone < s.settings.Lease*3/4 {
		t.Errorf("it was alone for %v, want a lease", alone)
	}
	close(end)
	s.Drained()
}

// TestAloneBesideALongHandler: a handler that has been waited for once is not waited for again, and the others go on
// when that message has been settled, or is held no more; a failed attempt at a fetch, or a stop, does not let
// anything else begin beside it.
func TestAloneBesideALongHandler(t *testing.T) {
	t.Parallel()
	s := newServing(t)
	s.settings.Workers, s.settings.MaxLosses, s.settings.Lease = 3, 2, 15*time.Minute // which no test waits for
	begins, hung, end := make(chan string, 9), make(chan struct{}), make(chan struct{})
	s.settings.Callback = func(payload string) bool {
		switch begins <- payload; payload {
		case "hangs":
			<-hung
		case "last 2":
			<-end
		}
		return true
	}
	s.send("hangs")
	c := s.start()
	queuetest.Receive(t, "it hangs", begins)
	alone := func() alone {
		s.workers.mu.Lock()
		defer s.workers.mu.Unlock()
		return s.workers.alone
	}
	s.workers.mu.Lock()
	s.workers.alone.waited = time.Now()
	s.workers.mu.Unlock()
	for _, payload := range []string{"last 1", "last 2"} {
		s.onLastChance(payload)
		if got := queuetest.Receive(t, payload+" begins", begins); got != payload {
			t.Errorf("%s begins, want %s", got, payload)
		}
	}
	c.member.withdraw()
	c.Stop()
	queuetest.Eventually(t, "nothing is fetched any more", func() bool { return c.member.unhandled() == 2 })
	if a := alone(); a.by != c.member || a.has == "" {
		t.Errorf("it is not alone any more: %+v", a)
	}
	close(end)
	queuetest.Eventually(t, "it was settled", func() bool { return alone().by == nil })
	close(hung)
	s.Drained()
}

// TestLateErrorHandler: a delivery whose time was over while the error handler heard of the loss before it comes to
// no handler.
func TestLateErrorHandler(t *testing.T) {
	t.Parallel()
	s, begins, told := newServing(t), make(chan string, 1), make(chan struct{})
	s.settings.Limit = 20 * time.Millisecond
	s.settings.OnError = func(_ context.Context, _ *message.Delivered, err error) {
		if errors.Is(err, ErrDeliveryLost) {
			queuetest.Eventually(t, "it is over", func() bool { return s.over.ZCard(queuetest.CtxB, s.Key("unack")).Val() == 0 })
			close(told)
		}
	}
	s.settings.Callback = func(payload string) bool { begins <- payload; return true }
	s.onLastChance("x")
	c := s.start()
	queuetest.Receive(t, "the loss is told", told)
	c.Stop()
	queuetest.Receive(t, "consuming ends", c.Done())
	if len(begins) > 0 {
		t.Error("its handler has begun")
	}
}

// TestAloneAsks: a member asks for the workers if it has one and its name is new. It waits for no fetch of a member
// whose server is silent, and the others fetch for as long as they waited before anybody asks again.
func TestAloneAsks(t *testing.T) {
	const lease = time.Hour // of which nothing passes
	ws := &Workers{size: 2, shared: true}
	a, b := ws.join(Portion{Weight: 1, AtMost: 1}), ws.join(Portion{Weight: 1, Order: 1})
	asks := func(what string, named time.Duration, want, waits bool) {
		t.Helper()
		if now, in := a.becomesAlone(lease, named); now != want || in > 0 != waits {
			t.Errorf("%s: %v, %v", what, now, in)
		}
	}
	asks("an old name", lease+1, false, false)
	a.busy = 1
	asks("no free worker", 0, false, true)
	if !b.wantsName() {
		t.Error("others wait for a member without a free worker")
	}
	a.busy = 0
	b.asked = 1
	asks("another fetches", 0, false, true)
	if b.wantsName() {
		t.Error("another would ask, too")
	}
	b.withdraw()
	asks("its server is silent", lease+1, true, false)
	a.isAlone("x", lease)
	asks("its message is handled", 0, false, true)
	a.wasAlone([]*delivery{{tag: "y"}})
	asks("another one was settled", 0, false, true)
	ws.alone.since = time.Now().Add(-lease)
	a.wasAlone([]*delivery{{tag: "x"}})
	asks("the others fetch", 0, false, true)
	if rest := time.Until(ws.alone.rests); !ws.mayFetch() || b.wantsName() || rest < lease*9/10 {
		t.Errorf("they fetch for %v", rest)
	}
}

// TestAloneLetsGo: a consumer that waits to handle a message alone lets the others go on when it stops, or its server
// is silent.
func TestAloneLetsGo(t *testing.T) {
	for name, ends := range map[string]func(c *Consumer, wire *redistest.Wire, endBase func()){
		"a stop":                      func(c *Consumer, _ *redistest.Wire, _ func()) { c.Stop() },
		"the end of the base context": func(_ *Consumer, _ *redistest.Wire, end func()) { end() },
		"a silent server":             func(_ *Consumer, wire *redistest.Wire, _ func()) { wire.Freeze() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, wire := wiredServing(t)
			other := s.another()
			hung, begins := make(chan struct{}), make(chan string, 3)
			callback := func(payload string) bool {
				if begins <- payload; payload == "hangs" {
					<-hung
				}
				return true
			}
			s.settings.Callback, other.settings.Callback = callback, callback
			s.workers.Resize(4)
			s.workers.Share()
			other.send("hangs")
			other.startIn(&s.workers)
			queuetest.Receive(t, "it hangs", begins)
			s.onLastChance("last")
			base, endBase := context.WithCancel(context.Background())
			defer endBase()
			s.settings.Base = base
			c := s.startIn(&s.workers)
			queuetest.Eventually(t, "it waits", func() bool {
				s.workers.mu.Lock()
				defer s.workers.mu.Unlock()
				return s.workers.alone.by == c.member
			})
			other.send("next")
			ends(c, wire, endBase)
			if got := queuetest.Receive(t, "the other queue goes on", begins); got != "next" {
				t.Errorf("%s began", got)
			}
			close(hung)
			wire.Thaw()
		})
	}
}
