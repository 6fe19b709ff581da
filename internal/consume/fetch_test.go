package consume

import (
	"context"
	"errors"
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

// TestTickFails: if a key that only a tick needs is another program's, the log says so, and messages are handled.
// With the key gone, what a dead consumer held comes back.
func TestTickFails(t *testing.T) {
	t.Parallel()
	s := newServing(t)
	handled := make(chan *message.Delivered, 3)
	s.settings.Lease = time.Second
	s.settings.Handle = func(_ context.Context, msg *message.Delivered) Verdict { handled <- msg; return Verdict{} }
	s.backlog(1)
	dead := script.NewCaller()
	dead.Next()
	got, err := s.calls.Fetch(queuetest.CtxB, dead, script.FetchRequest{Want: 1, Settings: &s.settings.FetchSettings})
	if s.Must(err); len(got.Tags) != 1 || !got.Tick {
		t.Fatalf("%+v", got)
	}
	s.settings.Lease = time.Minute // of the one that lives, however slow the machine is
	s.Must(s.Cli.Set(queuetest.CtxB, s.Key("lanes"), "another program's", 0).Err())
	s.backlog(1)
	s.start()
	if msg := queuetest.Receive(t, "what waits", handled); msg.Delivery != 1 {
		t.Errorf("it is delivery %d", msg.Delivery)
	}
	queuetest.Eventually(t, "the log says so", func() bool { return s.Log.Count("a tick failed") > 0 })
	s.Must(s.Cli.Del(queuetest.CtxB, s.Key("lanes")).Err())
	if msg := queuetest.Receive(t, "what the dead one held", handled); msg.Delivery != 2 || msg.Failures != 0 {
		t.Errorf("delivery %d, %d failures", msg.Delivery, msg.Failures)
	}
}

// TestTickReplyIsLost: what a tick has taken back comes, although its reply was lost, and counts as lost once.
func TestTickReplyIsLost(t *testing.T) {
	t.Parallel()
	s, wire := wiredServing(t)
	handled := make(chan *message.Delivered, 1)
	s.settings.Lease = time.Second
	s.settings.Handle = func(_ context.Context, msg *message.Delivered) Verdict { handled <- msg; return Verdict{} }
	s.backlog(1)
	dead := script.NewCaller()
	dead.Next()
	got, err := s.calls.Fetch(queuetest.CtxB, dead, script.FetchRequest{Want: 1, Settings: &s.settings.FetchSettings})
	if s.Must(err); len(got.Tags) != 1 {
		t.Fatalf("%+v", got)
	}
	s.settings.Lease = time.Minute // of the one that lives, however slow the machine is
	queuetest.Eventually(t, "its lease is over", func() bool {
		state := s.Check()
		return len(state.Unack) == 1 && state.Unack[0].Score < state.Now
	})
	struck := wire.DropReply(redistest.Script(script.TickScript.SHA))
	s.start()
	queuetest.Receive(t, "the reply is lost", struck)
	if msg := queuetest.Receive(t, "it comes again", handled); msg.Delivery != 2 {
		t.Errorf("it is delivery %d", msg.Delivery)
	}
}

// TestTickFailsInADrain: a drain that cannot take back what dead consumers held says so, and not that nothing is left.
func TestTickFailsInADrain(t *testing.T) {
	t.Parallel()
	s := newServing(t)
	s.Must(s.Cli.Set(queuetest.CtxB, s.Key("lanes"), "another program's", 0).Err())
	s.settings.Drains = true
	s.settings.Handle = func(context.Context, *message.Delivered) Verdict { return Verdict{} }
	c := s.start()
	queuetest.Receive(t, "the drain ends", c.Done())
	if !errors.Is(c.poller.drainErr, script.ErrWrongType) || c.poller.drainDone {
		t.Errorf("%v, done %v", c.poller.drainErr, c.poller.drainDone)
	}
	s.Must(s.Cli.Del(queuetest.CtxB, s.Key("lanes")).Err())
}
