package features

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/redis/go-redis/v9"
)

// TestSequenceInBatch: the messages of a SendBatch must rise, in each sequence; those that do not are refused alone.
func TestSequenceInBatch(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	q := f.Queue(nil)
	numbered := func(name string, n int64) delayqueue.Outgoing {
		return delayqueue.Outgoing{Payload: fmt.Sprint(name, n),
			Options: []delayqueue.MsgOption{face.InAnHour, delayqueue.WithSequence(name, n)}}
	}
	got, err := q.SendBatch(queuetest.CtxB, []delayqueue.Outgoing{numbered("s", 1),
		{Payload: "plain", Options: []delayqueue.MsgOption{face.InAnHour}}, numbered("t", -5),
		numbered("s", 1), numbered("s", 3), numbered("s", 2), numbered("t", 5)})
	for i, r := range got {
		if want := i == 3 || i == 5; (r.Err != nil) != want || want &&
			(!errors.Is(r.Err, delayqueue.ErrBadOption) || r.Info != nil) {
			t.Errorf("message %d: %+v", i, r)
		}
	}
	if !errors.Is(err, delayqueue.ErrBadOption) ||
		!strings.Contains(err.Error(), `WithSequence("s", 2): number 3 stands before it`) {
		t.Errorf("%v", err)
	}
	if n := len(f.Check().Pending); n != 5 {
		t.Errorf("%d are stored", n)
	}
	for name, option := range map[string]delayqueue.MsgOption{"no name": delayqueue.WithSequence("", 1),
		"a long name": delayqueue.WithSequence(strings.Repeat("x", 513), 1)} {
		if _, err := q.Send(queuetest.CtxB, "x", option); !errors.Is(err, delayqueue.ErrBadOption) ||
			!strings.Contains(err.Error(), "WithSequence") {
			t.Errorf("%s: %v", name, err)
		}
	}
	f.Send(q, "a name of 512 bytes", face.InAnHour, delayqueue.WithSequence(strings.Repeat("\xff", 512), 1))
}

// TestSequenceStops: what stands behind a message that is not stored, in the same SendBatch and the same sequence, is
// not stored either, and all of it may be sent again.
func TestSequenceStops(t *testing.T) {
	t.Parallel()
	f, server := face.OwnServer(t, "--proto-max-bulk-len", "1mb")
	cli := queuetest.ClientWith(t, &redis.Options{Addr: server.Addr(), Dialer: hearsRefusals})
	q := f.QueueOn(cli, nil)
	f.Send(q, "taken", face.InAnHour, delayqueue.WithKey("{its key is taken}"))
	for name, row := range map[string]struct {
		bad     []delayqueue.MsgOption // of number 2
		payload string
		err     error // nil: the server's
	}{
		"its key is taken": {[]delayqueue.MsgOption{delayqueue.WithKey("{its key is taken}")}, "x",
			delayqueue.ErrDuplicateKey},
		"a bad option behind": {[]delayqueue.MsgOption{delayqueue.WithRetention(1)}, "x", delayqueue.ErrBadOption},
		"it has no key for a hold": {[]delayqueue.MsgOption{delayqueue.WithKeyHold(time.Hour)}, "x",
			delayqueue.ErrBadOption},
		"the server does not take that": {nil, strings.Repeat("x", 2<<20), nil},
	} {
		numbered := func(n int64, payload string, opts ...delayqueue.MsgOption) delayqueue.Outgoing {
			return delayqueue.Outgoing{Payload: payload,
				Options: append(opts[:len(opts):len(opts)], face.InAnHour, delayqueue.WithSequence(name, n))}
		}
		batch := []delayqueue.Outgoing{numbered(1, "x"), numbered(2, row.payload, row.bad...), numbered(3, "x"),
			numbered(1, "falls"),
			{Payload: "plain", Options: []delayqueue.MsgOption{face.InAnHour}}, numbered(5, "x"),
			numbered(6, "x", delayqueue.WithRetention(1)), numbered(7, "x")}
		for i := range int64(script.MaxPut) { // in another call to Redis
			batch = append(batch, numbered(8+i, "x"))
		}
		got, err := q.SendBatch(queuetest.CtxB, batch)
		for i, r := range got {
			var stopped *delayqueue.SequenceError
			is := errors.As(r.Err, &stopped)
			switch {
			case i == 0 || i == 4:
				if r.Err != nil {
					t.Errorf("%s: message %d: %v", name, i, r.Err)
				}
			case i == 1 || i == 3 || i == 6:
				if r.Err == nil || is || face.Fate(f, r.Err) == delayqueue.StoredYes ||
					i == 1 && row.err != nil && (!errors.Is(r.Err, row.err) || face.Fate(f, r.Err) != delayqueue.StoredNo) {
					t.Errorf("%s: message %d: %v", name, i, r.Err)
				}
			case !is || !errors.Is(r.Err, delayqueue.ErrSequenceStopped) || face.Fate(f, r.Err) != delayqueue.StoredNo ||
				stopped.Last != 2 ||
				!strings.Contains(r.Err.Error(), fmt.Sprintf("sequence %q: 2 stands before ", name)):
				t.Errorf("%s: message %d: %v", name, i, r.Err)
			}
		}
		if want := fmt.Sprintf("sequence %q: 2 stands before 3", name); !errors.Is(err, delayqueue.ErrSequenceStopped) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
		batch[1], batch[6] = numbered(2, "x"), numbered(6, "x")
		got, _ = q.SendBatch(queuetest.CtxB, append(batch[:3:3], batch[5:]...))
		face.Passed(f, got[0].Err, name, 1)
		for i, r := range got[1:] {
			if r.Err != nil {
				t.Errorf("%s: sent again, message %d: %v", name, i+1, r.Err)
			}
		}
	}
	if n := len(f.Check().Pending); n != 1+4*(8-1+script.MaxPut) {
		t.Errorf("%d are stored", n)
	}
}
