package consume

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// TestGiveUpBesideARenewal: a renewal between two messages of a lost reply lets go of neither.
func TestGiveUpBesideARenewal(t *testing.T) {
	t.Parallel()
	s := newServing(t)
	const n = 20
	s.backlog(n)
	caller := script.NewCaller()
	caller.Next()
	got, err := s.calls.Fetch(queuetest.CtxB, caller, script.FetchRequest{Want: n, Settings: &s.settings.FetchSettings})
	s.Must(err)
	for _, tag := range got.Tags {
		got.Described = append(got.Described, script.DescribedMessage{Tag: tag})
	}
	var c *Consumer
	s.settings.Callback = queuetest.Acks
	s.settings.Log = slog.New(slog.NewTextHandler(s.Log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.MessageKey && strings.Contains(a.Value.String(), "does not come through") {
			s.Must(c.leases.renew())
		}
		return a
	}}))
	c = s.start()
	c.giveUp(&got, time.Now(), time.Now(), s.settings.MaxLosses)
	queuetest.Eventually(t, "all wait again", func() bool { return len(s.Held()) == 0 })
	state := s.Check()
	for _, tag := range got.Tags {
		id, _ := message.SplitTag(tag)
		if record := state.Fail[id]; record.Losses != 1 || state.Where(id) != "retry" {
			t.Errorf("%s is in %s: %+v", id, state.Where(id), record)
		}
	}
	if s.Log.Count("came too late") > 0 || s.Log.Count("forgotten settlements") > 0 {
		t.Error("some were let go of")
	}
}

// twoInLane stores two messages of a lane, and returns the one that has the turn.
func (s *serving) twoInLane() (first string) {
	var batch []*script.SendMessage
	for range 2 {
		m := s.message(message.Envelope{Lane: message.Lane{Name: "l", Width: 1}, Payload: "x"})
		m.Put = &script.PutOptions{Laned: true}
		batch = append(batch, m)
	}
	s.store(batch...)
	return batch[0].ID
}

// TestBrokenInLane: a message that cannot be read, because another program cut it off, ends its turn, so the next of its lane comes.
func TestBrokenInLane(t *testing.T) {
	t.Parallel()
	s := newServing(t)
	id := s.twoInLane()
	envelope, err := s.Cli.HGet(queuetest.CtxB, s.Key("msg"), id).Result()
	s.Must(err)
	s.Must(s.Cli.HSet(queuetest.CtxB, s.Key("msg"), id, envelope[:len(envelope)-1]).Err())
	handled := make(chan struct{}, 1)
	s.settings.Callback = func(string) bool { handled <- struct{}{}; return true }
	s.start()
	queuetest.Receive(t, "the next", handled)
	// The check at the end would find it.
	if n, err := s.Cli.ZRem(queuetest.CtxB, s.Key("garbage"), id).Result(); n != 1 {
		t.Errorf("it is not in garbage, %v", err)
	}
	s.Must(s.Cli.HDel(queuetest.CtxB, s.Key("msg"), id).Err())
	s.Vanished++
	s.Must(s.Cli.HDel(queuetest.CtxB, s.Key("fail"), id).Err())
}

// TestGiveUpInLane: a message that does not come through, and was lost too often, ends its turn, so the next of its lane comes.
func TestGiveUpInLane(t *testing.T) {
	t.Parallel()
	s := newServing(t)
	s.twoInLane()
	caller := script.NewCaller()
	caller.Next()
	got, err := s.calls.Fetch(queuetest.CtxB, caller, script.FetchRequest{Want: 10, Settings: &s.settings.FetchSettings})
	s.Must(err)
	got.Described = []script.DescribedMessage{{Tag: got.Tags[0]}}
	handled := make(chan struct{}, 1)
	s.settings.Callback = func(string) bool { handled <- struct{}{}; return true }
	s.start().giveUp(&got, time.Now(), time.Now(), 1)
	queuetest.Receive(t, "the next", handled)
}
