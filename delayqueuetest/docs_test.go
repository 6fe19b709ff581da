package delayqueuetest_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/delayqueuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/redis/go-redis/v9"
)

// The code of docs/testing.md, but for the service (service_test.go).

type Sender interface {
	Send(ctx context.Context, payload string, opts ...delayqueue.MsgOption) (*delayqueue.MessageInfo, error)
}

type fakeSender struct {
	payloads []string
	options  []delayqueue.Description
}

func (f *fakeSender) Send(_ context.Context, payload string,
	opts ...delayqueue.MsgOption) (*delayqueue.MessageInfo, error) {
	f.payloads = append(f.payloads, payload)
	f.options = append(f.options, delayqueue.Describe(opts...))
	return &delayqueue.MessageInfo{}, nil
}

// remind is the code under test.
func remind(ctx context.Context, queue Sender, user string) error {
	_, err := queue.Send(ctx, user, delayqueue.WithDelay(24*time.Hour),
		delayqueue.WithKey("remind-"+user, delayqueue.Replace))
	return err
}

func TestRemindsOnceADay(t *testing.T) {
	queue := &fakeSender{}
	if err := remind(t.Context(), queue, "ann"); err != nil {
		t.Fatal(err)
	}
	if len(queue.payloads) != 1 || queue.payloads[0] != "ann" {
		t.Fatalf("sent %q", queue.payloads)
	}
	if got := queue.options[0]; got.Delay != 24*time.Hour || got.Key != "remind-ann" ||
		got.OnConflict != delayqueue.Replace {
		t.Errorf("sent with %+v", got)
	}
}

func TestGivesUpAfterAWeek(t *testing.T) {
	rig := delayqueuetest.New(t)
	queue := rig.Queue("mails").WithRetryDelays(time.Minute, time.Hour, 24*time.Hour).
		WithHandler(func(context.Context, *delayqueue.Message) error { return errors.New("no such mailbox") })
	if _, err := queue.Send(t.Context(), "hello", delayqueue.WithRetryCount(8)); err != nil {
		t.Fatal(err)
	}
	handled := rig.Advance(7 * 24 * time.Hour)
	if dead := rig.Garbage("mails"); handled != 9 || len(dead) != 1 || dead[0].LastError != "no such mailbox" {
		t.Errorf("handled %d times, garbage %v", handled, dead)
	}
}

func TestSendsTheReceipt(t *testing.T) {
	rig := delayqueuetest.New(t)
	receipts := delayqueue.NewPublisher("receipts", rig.Client())
	orders := rig.Queue("orders").WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
		_, err := receipts.Send(ctx, "receipt of "+msg.Payload, delayqueue.WithDelay(time.Hour))
		return err
	})
	if _, err := orders.Send(t.Context(), "42"); err != nil {
		t.Fatal(err)
	}
	rig.Advance(0)
	if sent := rig.Sent("receipts"); len(sent) != 1 || sent[0].Payload != "receipt of 42" ||
		sent[0].Due != rig.Now().Add(time.Hour) {
		t.Errorf("sent %v", sent)
	}
	rig.RequireEmpty("orders")
}

func TestByTheWallClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rig := delayqueuetest.New(t)
		queue := rig.Queue("reports").WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
			time.Sleep(time.Hour) // cut off by WithTimeout
			return ctx.Err()
		})
		tomorrow := time.Now().AddDate(0, 0, 1)
		if _, err := queue.Send(t.Context(), "x", delayqueue.WithSchedule(tomorrow), delayqueue.WithTimeout(time.Minute),
			delayqueue.WithRetryCount(0)); err != nil {
			t.Fatal(err)
		}
		rig.Advance(48 * time.Hour)
		if dead := rig.Garbage("reports"); len(dead) != 1 || !dead[0].At.Equal(tomorrow.Add(time.Minute)) {
			t.Errorf("garbage %v", dead)
		}
	})
}

func TestOnARealServer(t *testing.T) {
	redisAddr := redistest.Start(t).Addr()
	redisCli := redis.NewClient(&redis.Options{Addr: redisAddr})
	defer redisCli.Close()
	monitor := ops.Of(delayqueue.NewMonitor("orders", redisCli, delayqueue.UseCustomPrefix(t.Name())))
	defer monitor.DeleteQueue(context.Background(), true)
	var got []string
	queue := delayqueue.NewQueue("orders", redisCli, nil, delayqueue.UseCustomPrefix(t.Name())).
		WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
			got = append(got, msg.Payload)
			return nil
		})
	sent, err := queue.Send(t.Context(), "42", delayqueue.WithDelay(15*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if err := monitor.RunNow(t.Context(), sent.ID); err != nil { // as if its time had come
		t.Fatal(err)
	}
	if handled, err := queue.Drain(t.Context()); handled != 1 || err != nil || !slices.Equal(got, []string{"42"}) {
		t.Errorf("handled %d: %v, %v", handled, got, err)
	}
}
