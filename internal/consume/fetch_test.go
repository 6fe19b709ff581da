package consume

import (
	"context"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// TestFetchIsRepeatedAsOneCall: if the reply to a fetch is lost, its repeat brings what the first attempt has handed
// out, once.
func TestFetchIsRepeatedAsOneCall(t *testing.T) {
	t.Parallel()
	s, wire := wiredServing(t)
	const n = 3
	handled := make(chan *message.Delivered, 2*n)
	s.settings.Workers, s.settings.Lease = n, time.Hour // what were not brought would not come again
	s.settings.Handle = func(_ context.Context, msg *message.Delivered) Verdict { handled <- msg; return Verdict{} }
	s.backlog(n)
	struck := wire.DropReply(redistest.Script(script.FetchScript.SHA))
	c := s.start()
	queuetest.Receive(t, "the reply is lost", struck)
	for range n {
		if msg := queuetest.Receive(t, "a message", handled); msg.Delivery != 1 {
			t.Errorf("it is delivery %d", msg.Delivery)
		}
	}
	queuetest.Eventually(t, "all are settled", func() bool { return c.leases.held.totals().deliveries == 0 })
	s.CheckEmpty()
	if len(handled) > 0 {
		t.Errorf("%d messages more were handled", len(handled))
	}
}

// TestStoppedConsumerPassesTheAlarmOn: a consumer that has taken the marker of a message sets the alarm again when it
// stops.
func TestStoppedConsumerPassesTheAlarmOn(t *testing.T) {
	t.Parallel()
	s := newServing(t)
	m, due := s.message(message.Envelope{}), message.When{Us: time.Hour.Microseconds()}
	e := message.Envelope{}
	m.When, m.Text = due, e.Encode(due)
	s.store(m)
	markers := func() int64 {
		n, err := s.Cli.ZCard(queuetest.CtxB, s.Key("wake")).Result()
		s.Must(err)
		return n
	}
	c := s.start()
	queuetest.Eventually(t, "it has the marker", func() bool { return markers() == 0 })
	c.Stop()
	queuetest.Receive(t, "consuming ends", c.Done())
	if n := markers(); n != 1 {
		t.Errorf("%d markers are left for others", n)
	}
}
