package features

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
)

// balance reads the books, and wants so many to be unaccounted for.
func balance(f *face.Fixture, unaccounted int64) delayqueue.Balance {
	f.T.Helper()
	b, err := delayqueue.NewMonitor(f.Name, f.Cli).Balance(queuetest.CtxB)
	f.Must(err)
	if b.Unaccounted != unaccounted || b.Entered != b.Left+b.Here+b.Unaccounted {
		f.T.Errorf("%+v, want %d unaccounted for", b, unaccounted)
	}
	return b
}

// untilHandled waits until nothing is to be delivered.
func untilHandled(f *face.Fixture) {
	f.T.Helper()
	queuetest.Eventually(f.T, "all is handled", func() bool {
		n, err := delayqueue.NewMonitor(f.Name, f.Cli).Counts(queuetest.CtxB)
		return err == nil && n.Pending+n.Ready+n.Unack+n.Retry == 0
	})
}

// TestBalanceOfEvicted: messages that another program deletes are unaccounted for, before and after their tags are dropped.
func TestBalanceOfEvicted(t *testing.T) {
	t.Parallel()
	face.OnServers(t, func(t *testing.T, f *face.Fixture) {
		q := f.Queue(func(string) bool { return true }).WithConcurrent(8)
		batch := make([]delayqueue.Outgoing, 1000)
		for i := range batch {
			batch[i].Payload = fmt.Sprint(i)
		}
		results, err := q.SendBatch(queuetest.CtxB, batch)
		f.Must(err)
		if b := balance(f, 0); b.Sent != 1000 || b.Here != 1000 || b.Since.IsZero() {
			t.Errorf("%+v", b)
		}
		for _, r := range results[300:400] {
			f.Must(f.Cli.HDel(queuetest.CtxB, f.KeyOf(r.Info.ID, "msg"), r.Info.ID).Err())
			f.Vanished++
		}
		if b := balance(f, 100); b.Here != 900 {
			t.Errorf("%+v", b)
		}
		if n, err := delayqueue.NewMonitor(f.Name, f.Cli).Counts(queuetest.CtxB); err != nil || n.Unaccounted != 100 {
			t.Errorf("%+v, %v", n, err)
		}
		q.StartConsume()
		untilHandled(f)
		if b := balance(f, 100); b.Acked != 900 || b.Here != 0 {
			t.Errorf("%+v", b)
		}
	})
}

// TestBalanceWhileInUse: the books balance at each instant while messages are sent, handled, fail, follow each other and are taken out.
func TestBalanceWhileInUse(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	q := f.Queue(nil).WithConcurrent(8).WithRetryDelays(time.Millisecond)
	var n atomic.Int64
	q.WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
		switch i := n.Add(1); {
		case i%7 == 0:
			return errors.New("no")
		case i%5 == 0 && msg.Payload != "next":
			return delayqueue.Then(ctx, "next")
		}
		return nil
	}).StartConsume()
	f.Send(q, "first")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for i := range 2000 {
			opts := []delayqueue.MsgOption{delayqueue.WithDelay(time.Duration(i%20) * time.Millisecond), delayqueue.WithRetryCount(i % 3)}
			if i%4 == 0 {
				opts = append(opts, delayqueue.WithRetention(time.Second))
			}
			info, err := q.Send(queuetest.CtxB, "x", opts...)
			f.Must(err)
			if i%3 == 0 {
				_, err = q.Cancel(queuetest.CtxB, info.ID)
				f.Must(err)
			}
		}
	}()
	looks := 0
	for ; ; looks++ {
		if balance(f, 0); t.Failed() {
			return
		}
		select {
		case <-ended:
		default:
			continue
		}
		break
	}
	untilHandled(f)
	if b := balance(f, 0); looks < 50 || b.Followed == 0 || b.Canceled == 0 || b.Acked == 0 || b.Sent != 2001 {
		t.Errorf("%d looks; %+v", looks, b)
	}
}

// TestBalanceAfterUpgrade: the books of a queue that a version without books has used are opened at what is there, and history goes on.
func TestBalanceAfterUpgrade(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]func(f *face.Fixture){
		"a consumer": func(f *face.Fixture) {
			f.Queue(func(string) bool { return true }).StartConsume()
			queuetest.Eventually(f.T, "the books are open", func() bool {
				b, err := delayqueue.NewMonitor(f.Name, f.Cli).Balance(queuetest.CtxB)
				return err == nil && !b.Since.IsZero()
			})
		},
		"a send":  func(f *face.Fixture) { f.Send(f.Queue(nil), "x", face.InAnHour) },
		"a batch": func(f *face.Fixture) { f.Send(f.Queue(nil), "x", face.InAnHour, delayqueue.WithKey("k")) },
		"a message with a lane": func(f *face.Fixture) {
			f.Send(f.Queue(nil), "x", face.InAnHour, delayqueue.WithLane("l"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := face.New(t)
			for range 30 {
				f.Send(f.Queue(nil), "old", face.InAnHour)
			}
			state := f.Cli.HGetAll(queuetest.CtxB, f.Key("state")).Val()
			for field := range state {
				if field != "armed" && !strings.HasPrefix(field, "call:") {
					f.Must(f.Cli.HDel(queuetest.CtxB, f.Key("state"), field).Err())
				}
			}
			f.Must(f.Cli.HSet(queuetest.CtxB, f.Key("state"), "sent", "30", "acked", "5").Err())
			if b, err := delayqueue.NewMonitor(f.Name, f.Cli).Balance(queuetest.CtxB); err != nil || b != (delayqueue.Balance{Here: 30}) {
				t.Errorf("before: %+v, %v", b, err)
			}
			first(f)
			if b := balance(f, 0); b.Found != 30 || b.Entered != b.Here || b.Since.IsZero() {
				t.Errorf("%+v", b)
			}
		})
	}
}

// TestRolledBack: a server that comes back with older data is noticed by its consumer, once, also if more has been sent since. It says how much
// was forgotten at most.
func TestRolledBack(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before, forgotten, after int // messages sent
		handled                  bool
		most                     int
	}{
		"sends":             {5, 20, 0, false, 20},
		"sends, and others": {5, 20, 50, false, 20},
		"acks":              {5, 20, 0, true, 40},
		"nothing":           {5, 0, 0, false, 0},
		"all it ever saw":   {0, 20, 0, true, 40},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, server := face.OwnServer(t)
			events := make(chan delayqueue.Event, 100)
			q := f.Queue(func(string) bool { return true }).WithFetchInterval(100 * time.Millisecond)
			defer q.ListenEvent(func(e delayqueue.Event) {
				if e.Code == delayqueue.RolledBackEvent {
					events <- e
				}
			}).Stop()
			other := delayqueue.NewPublisher(f.Name, server.Client(t))
			send := func(n int, opts ...delayqueue.MsgOption) {
				for range n {
					_, err := other.Send(queuetest.CtxB, "x", opts...)
					f.Must(err)
				}
			}
			if c.before > 0 {
				q.StartConsume()
			} else {
				send(1, face.InAnHour)
			}
			send(c.before, face.InAnHour)
			time.Sleep(1500 * time.Millisecond) // so that what follows is of another second
			saved := time.Now()
			f.Must(f.Cli.Save(queuetest.CtxB).Err())
			q.StartConsume()
			queuetest.Eventually(t, "it has looked", func() bool { return f.Cli.HExists(queuetest.CtxB, f.Key("state"), "seen").Val() })
			if c.handled {
				send(c.forgotten)
				queuetest.Eventually(t, "all are acked", func() bool { return balance(f, 0).Acked == int64(c.forgotten) })
			} else {
				send(c.forgotten, face.InAnHour)
			}
			time.Sleep(500 * time.Millisecond) // the consumer sees that
			server.Kill()
			server.Restart(t)
			send(c.after, face.InAnHour)
			if c.most == 0 {
				time.Sleep(time.Second)
				if len(events) > 0 || f.Log.Count("has gone back") > 0 {
					t.Errorf("nothing was forgotten, and it said so: %+v", <-events)
				}
				return
			}
			e := queuetest.Receive(t, "the event", events)
			known := !e.Since.Before(saved.Add(-time.Second)) && !e.Since.After(time.Now())
			if e.Count != c.most || known != (c.before > 0) {
				t.Errorf("%+v, want %d at most since %v", e, c.most, saved)
			}
			time.Sleep(500 * time.Millisecond)
			if n := f.Log.Count("has gone back"); len(events) > 0 || n != 1 {
				t.Errorf("it was said %d times in the log, and in %d events more", n, len(events))
			}
			balance(f, 0)
		})
	}
}

// TestBalanceOfNoQueue: there are no books of a queue that was never used.
func TestBalanceOfNoQueue(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	if b, err := delayqueue.NewMonitor(f.Name, f.Cli).Balance(queuetest.CtxB); !errors.Is(err, delayqueue.ErrNoQueue) || b != (delayqueue.Balance{}) {
		t.Errorf("%+v, %v", b, err)
	}
}
