package typed

import (
	"os"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/go-delayqueue/delayqueue/ops"
)

func TestMain(m *testing.M) { os.Exit(queuetest.RunTests(m)) }

// A fixture is one test's queue.
type fixture struct {
	*testing.T
	base *queuetest.Base
	pub  *delayqueue.Publisher
	mon  *ops.Queue
}

// onBoth runs a test on the embedded server and on a real one. The invariant checker reads what it leaves.
func onBoth(t *testing.T, test func(f *fixture)) {
	t.Helper()
	queuetest.OnServers(t, func(t *testing.T, b *queuetest.Base) {
		test(&fixture{t, b, delayqueue.NewPublisher(b.Name, b.Cli), ops.Of(delayqueue.NewMonitor(b.Name, b.Cli))})
	})
}

// mux makes a Mux whose unknown kinds come back soon, and are given up on after a time of the test's.
func (f *fixture) mux(hour time.Duration) *Mux {
	m := NewMux().WithLogger(f.base.Logger())
	m.hour, m.away = hour, 5*time.Millisecond
	return m
}

// consume starts a consumer that is stopped at the end of the test.
func (f *fixture) consume(mux *Mux) *delayqueue.DelayQueue {
	q := delayqueue.NewQueue(f.base.Name, f.base.Cli, nil).WithHandler(mux.Handler).WithConcurrent(4).
		WithRetryDelays(5 * time.Millisecond).WithLogger(f.base.Logger())
	q.StartConsume()
	f.base.Stops(q)
	return q
}

// sent is a message that was sent, as Send says.
func (f *fixture) sent(info *delayqueue.MessageInfo, err error) *delayqueue.MessageInfo {
	f.Helper()
	f.base.Must(err)
	return info
}

// until waits until cond holds.
func (f *fixture) until(what string, cond func() bool) {
	f.Helper()
	testkit.Until(f, what, cond)
}

// garbage waits until a message is garbage, and returns it.
func (f *fixture) garbage(id string) (msg *ops.MessageStatus) {
	f.Helper()
	f.until("message "+id+" is garbage", func() bool {
		var err error
		msg, err = f.mon.Get(f.Context(), id)
		return err == nil && msg.State == delayqueue.StateGarbage
	})
	return msg
}
