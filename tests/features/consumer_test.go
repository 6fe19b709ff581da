package features

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
)

// TestAgain: it is no failure, uses up no retry, and failures count anew.
func TestAgain(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	seen := make(chan delayqueue.Message, 10)
	q := f.Queue(nil).WithNackRedeliveryDelay(0).WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
		seen <- *msg
		switch {
		case msg.Delivery == 10:
			return nil
		case msg.Delivery%3 == 0:
			return fmt.Errorf("wrapped: %w", delayqueue.Again(-time.Second))
		}
		return queuetest.ErrBoom
	})
	f.Send(q, "poll", delayqueue.WithRetryCount(2))
	q.StartConsume()
	for i := range 10 {
		if msg := queuetest.Receive(t, "it goes on", seen); msg.Delivery != i+1 || msg.Failures != i%3 {
			t.Errorf("delivery %d with %d failures, want %d with %d", msg.Delivery, msg.Failures, i+1, i%3)
		}
	}
	queuetest.Eventually(t, "it is acked", func() bool { return len(f.Check().Messages) == 0 })
	for _, err := range []error{delayqueue.Again(0), delayqueue.Snooze(0)} {
		if !errors.Is(err, delayqueue.ErrSnoozed) {
			t.Errorf("a middleware cannot tell %v from a failure", err)
		}
	}
}

func TestMsgTTL(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	deaths := make(chan error, 1)
	q := f.Queue(func(string) bool { t.Error("it is handed out"); return true }).
		WithGarbageHandler(func(_ context.Context, _ *delayqueue.Message, err error) { deaths <- err })
	late := f.Send(q, "late", delayqueue.WithMsgTTL(time.Millisecond))
	queuetest.Eventually(t, "it is late", func() bool { return time.Since(late.Due) > 2*time.Millisecond })
	q.StartConsume()
	if err := queuetest.Receive(t, "it dies", deaths); !errors.Is(err, delayqueue.ErrExpired) {
		t.Errorf("died of %v", err)
	}
	if record := f.Check().Fail[late.ID]; f.Where(late.ID) != "garbage" || record.Failures != 0 ||
		!strings.Contains(record.Error, "expired") {
		t.Errorf("%s, record %+v", f.Where(late.ID), record)
	}
}

// TestFetchedAheadIsGivenToOthers: a message that waits behind a slow one is given to others.
func TestFetchedAheadIsGivenToOthers(t *testing.T) {
	t.Parallel()
	f := face.New(t)
	started, release := make(chan struct{}, 100), make(chan struct{})
	q := f.Queue(func(payload string) bool {
		if payload == "slow" {
			started <- struct{}{}
			<-release
		}
		return true
	})
	var batch []delayqueue.Outgoing
	for range 2000 { // quick ones make the consumer fetch ahead
		batch = append(batch, delayqueue.Outgoing{Payload: "quick"})
	}
	batch = append(batch, delayqueue.Outgoing{Payload: "slow"})
	for range 50 {
		batch = append(batch, delayqueue.Outgoing{Payload: "quick"})
	}
	f.Must(queuetest.Failure(q.SendBatch(context.Background(), batch)))
	q.StartConsume()
	queuetest.Receive(t, "the slow one starts", started)
	var got queuetest.Tally
	f.QueueOn(f.Client(), func(payload string) bool { got.Add(payload); return true }).StartConsume()
	queuetest.Eventually(t, "only the slow one is left", func() bool { return len(f.Check().Messages) == 1 })
	if n := got.Of("quick"); n == 0 {
		t.Error("the idle consumer got none")
	}
	close(release)
	f.Drained()
}
