package consume

import (
	"testing"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

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

// TestBrokenInLane: a message that cannot be read, because another program cut it off, ends its turn, so the next of
// its lane comes.
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
