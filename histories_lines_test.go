package delayqueue

import (
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// histLease is how long a consumer of TestHistories has for what it was handed.
const histLease = time.Second

// A histLine is a consumer on a line of its own.
type histLine struct {
	*redistest.Wire
	q    *DelayQueue
	slow chan string // what a handler has begun that outlasts a lease
}

// connect makes a consumer whose calls and handlers are recorded.
func (h *history) connect(f *fixture) *histLine {
	l := &histLine{Wire: redistest.NewWire(f.t, shared.Addr()), slow: make(chan string)}
	cli := redis.NewClient(&redis.Options{Addr: l.Addr()})
	f.t.Cleanup(func() { _ = cli.Close() })
	hookOwn(f.t, cli, h)
	l.q = f.queueOn(cli, nil).WithConcurrent(4).WithLease(histLease).WithNackRedeliveryDelay(10 * time.Millisecond).WithDefaultRetryCount(2)
	l.q.WithHandler(h.handler(f, histLease, l.slow))
	return l
}

// takenOver cuts a line, and reports whether others have taken over what it held: something, unless that was settled just then.
func (l *histLine) takenOver(f *fixture) bool {
	receive(f.t, "it handles something slow", l.slow)
	losses := f.log.count("leases ran out")
	l.Cut()
	for end := time.Now().Add(8 * histLease); f.log.count("leases ran out") == losses; time.Sleep(histLease / 50) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// comesBack cuts a line off past a lease, and mends it.
func (l *histLine) comesBack(f *fixture) {
	late := func() int { return f.log.count("not ours any more") + f.log.count("came too late") }
	before := late()
	for tries := 1; !l.takenOver(f); tries++ {
		if l.Mend(); tries == 5 {
			f.t.Fatal("others do not take over")
		}
	}
	l.Mend()
	eventually(f.t, "it learns that it was too late", func() bool { return late() > before })
}
