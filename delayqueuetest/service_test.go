package delayqueuetest_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/delayqueuetest"
	"github.com/go-delayqueue/delayqueue/typed"
	"github.com/redis/go-redis/v9"
)

type Order struct{ ID int }

var CloseOrder = typed.Kind[Order]("close-order")

type Shop struct {
	queue *delayqueue.DelayQueue
	open  map[int]bool
}

func NewShop(redisCli redis.UniversalClient) *Shop {
	s, mux := &Shop{open: map[int]bool{}}, typed.NewMux()
	typed.Handle(mux, CloseOrder, func(_ context.Context, o Order, _ *delayqueue.Message) error {
		delete(s.open, o.ID)
		return nil
	})
	s.queue = delayqueue.NewQueue("orders", redisCli, nil).WithHandler(mux.Handler)
	return s
}

func (s *Shop) Order(ctx context.Context, id int) error {
	s.open[id] = true
	_, err := CloseOrder.Send(ctx, s.queue, Order{id}, delayqueue.WithDelay(15*time.Minute))
	return err
}

func TestUnpaidOrdersAreClosed(t *testing.T) {
	rig := delayqueuetest.New(t)
	shop := NewShop(rig.Client())
	rig.Add(shop.queue)
	if err := shop.Order(t.Context(), 42); err != nil {
		t.Fatal(err)
	}
	if rig.Advance(14 * time.Minute); !shop.open[42] {
		t.Error("closed before its time")
	}
	if rig.Advance(time.Minute); shop.open[42] {
		t.Error("still open")
	}
	rig.RequireEmpty()
}
