package weather

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/redis/go-redis/v9"
)

// forgetting returns a function that puts the keys of a queue back as they are now, which is what a replica that lags has.
func forgetting(f *face.Fixture) (forget func()) {
	keys, dumps := check.Queue{Prefix: "dq", Name: f.Name}.Keys(), map[string]string{}
	for _, key := range keys {
		if dump, err := f.Cli.Dump(queuetest.CtxB, key).Result(); err != redis.Nil {
			f.Must(err)
			dumps[key] = dump
		}
	}
	return func() {
		_, err := f.Cli.TxPipelined(queuetest.CtxB, func(pipe redis.Pipeliner) error {
			for _, key := range keys {
				pipe.Del(queuetest.CtxB, key)
				if dump, ok := dumps[key]; ok {
					pipe.Restore(queuetest.CtxB, key, 0, dump)
				}
			}
			return nil
		})
		f.Must(err)
	}
}

// TestForgottenFetch: a failover forgets a fetch, and what the message has become since is handed out to another consumer under the same
// number. The first consumer cannot end that delivery. It is told at its next renewal.
func TestForgottenFetch(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policy delayqueue.Conflict
		told   bool // the first handler runs on until it is told
		want   []string
	}{
		"Replace":               {delayqueue.Replace, false, nil},
		"Replace, with renewal": {delayqueue.Replace, true, nil},
		"Append":                {delayqueue.Append, false, []string{"first", "second"}},
		"Append, with renewal":  {delayqueue.Append, true, []string{"first", "second"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := face.New(t)
			q := func(handle delayqueue.Handler) *delayqueue.DelayQueue {
				return f.Queue(nil).WithHandler(handle).WithLease(3 * time.Second).WithRetryDelays(time.Millisecond)
			}
			begun, leave, cause := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			first := q(func(ctx context.Context, _ *delayqueue.Message) error {
				close(begun)
				if c.told {
					<-ctx.Done()
					cause <- context.Cause(ctx)
				}
				<-leave
				return nil
			})
			got, fail := make(chan delayqueue.Message, 10), make(chan struct{})
			second := q(func(_ context.Context, msg *delayqueue.Message) error {
				if got <- *msg; msg.Delivery > 1 {
					return nil
				}
				<-fail
				return queuetest.ErrBoom
			})
			sender, key := f.Queue(nil), delayqueue.WithKey("k", c.policy)
			f.Send(sender, "first", key)
			forget := forgetting(f)
			if c.policy == delayqueue.Append { // so the message has as many parts as before
				f.Send(sender, "forgotten", key)
			}
			over := first.StartConsume()
			queuetest.Receive(t, "the first handler begins", begun)
			first.StopConsume() // it hands out nothing more, and its handler runs on
			forget()
			f.Send(sender, "second", key)
			second.StartConsume()
			queuetest.Receive(t, "the other consumer has it", got)
			if c.told {
				if err := queuetest.Receive(t, "the first handler is told", cause); !errors.Is(err, delayqueue.ErrDeliveryLost) {
					t.Error(err)
				}
			}
			close(leave)
			queuetest.Receive(t, "the first consumer ends", over)
			if n := f.Log.Count("came too late"); !c.told && n == 0 {
				t.Error("its ack was not void")
			}
			close(fail)
			again := queuetest.Receive(t, "what the other one has failed at comes again", got)
			if again.Delivery != 2 || c.policy == delayqueue.Replace && again.Payload != "second" || !slices.Equal(again.Parts, c.want) {
				t.Errorf("%+v", again)
			}
			f.Drained()
		})
	}
}

// TestForgottenSettlement: a failover forgets an ack. The message comes again when a lease has run out, although the same consumer still
// handles another message of that fetch and renews its lease.
func TestForgottenSettlement(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	begun, leave, slow := make(chan int, 10), make(chan struct{}), make(chan struct{})
	q := f.Queue(nil).WithLease(3 * time.Second).WithConcurrent(2).WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
		begun <- msg.Delivery
		if msg.Payload == "slow" {
			<-slow
		} else if msg.Delivery == 1 {
			<-leave
		}
		return nil
	})
	sent, err := f.Queue(nil).SendBatch(queuetest.CtxB, []delayqueue.Outgoing{{Payload: "slow"}, {Payload: "quick"}})
	f.Must(err)
	q.StartConsume()
	queuetest.Receive(t, "one handler begins", begun)
	queuetest.Receive(t, "the other begins", begun)
	forget := forgetting(f)
	close(leave)
	queuetest.Eventually(t, "the ack is settled", func() bool { return f.Where(sent[1].Info.ID) == "gone" })
	forget()
	if n := queuetest.Receive(t, "it comes again", begun); n != 2 {
		t.Errorf("delivery %d", n)
	}
	queuetest.Eventually(t, "it is settled", func() bool { return f.Where(sent[1].Info.ID) == "gone" })
	close(slow)
	f.Drained()
}
