package ops

import (
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/redis/go-redis/v9"
)

// histLease is how long a consumer of TestHistories has for what it was handed.
const histLease = time.Second

// A histLine is a consumer on a line of its own.
type histLine struct {
	*redistest.Wire
	q    *delayqueue.DelayQueue
	slow chan string // what a handler has begun that outlasts a lease
}

// connect makes a consumer whose calls and handlers are recorded.
func (h *history) connect(f *face.Fixture) *histLine {
	l := &histLine{Wire: redistest.NewWire(f.T, queuetest.Shared.Addr()), slow: make(chan string)}
	cli := redis.NewClient(&redis.Options{Addr: l.Addr()})
	f.T.Cleanup(func() { _ = cli.Close() })
	f.T.Cleanup(link.Interpose(cli, h))
	l.q = f.QueueOn(cli, nil).WithConcurrent(4).WithLease(histLease).WithNackRedeliveryDelay(10 * time.Millisecond).WithDefaultRetryCount(2)
	l.q.WithHandler(h.handler(f, histLease, l.slow))
	return l
}

// takenOver cuts a line, and reports whether others have taken over what it held: something, unless that was settled just then.
func (l *histLine) takenOver(f *face.Fixture) bool {
	queuetest.Receive(f.T, "it handles something slow", l.slow)
	losses := f.Log.Count("leases ran out")
	l.Cut()
	for end := time.Now().Add(8 * histLease); f.Log.Count("leases ran out") == losses; time.Sleep(histLease / 50) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// comesBack cuts a line off past a lease, and mends it.
func (l *histLine) comesBack(f *face.Fixture) {
	late := func() int { return f.Log.Count("not ours any more") + f.Log.Count("came too late") }
	before := late()
	for tries := 1; !l.takenOver(f); tries++ {
		if l.Mend(); tries == 5 {
			f.T.Fatal("others do not take over")
		}
	}
	l.Mend()
	queuetest.Eventually(f.T, "it learns that it was too late", func() bool { return late() > before })
}
