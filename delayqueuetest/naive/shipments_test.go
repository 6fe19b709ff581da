package naive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// shipments: an order is paid, and a message tells the warehouse to ship it. In the report a push to a Redis far away
// timed out now and then, and was tried again, and the same Sidekiq job ran twice. An error of a send may mean that the
// message was stored, and only its answer was lost: SendError.Stored says so. The second send needs the key of the
// first one.
var shipments = scenario{
	name:    "shipments",
	source:  source{"https://github.com/sidekiq/sidekiq/issues/3303", "Same job (identical JID) runs twice"},
	mistake: "The sender takes an error for \"not stored\" and sends again without a key, so there are two messages.",
	found:   []misfortune{replyLost},
	queues:  []string{"shipments"},
	points:  []string{"after the order was shipped"},
	lasts:   time.Hour,
	naive: func(p *process) []step {
		return shipOrders(p, func(string) []delayqueue.MsgOption { return nil })
	},
	correct: func(p *process) []step {
		return shipOrders(p, func(order string) []delayqueue.MsgOption {
			return []delayqueue.MsgOption{delayqueue.WithKey(order, delayqueue.Keep), delayqueue.WithKeyHold(held)}
		})
	},
	check: func(w *world) (err error) {
		for _, order := range paidOrders {
			if n := len(w.mailed("warehouse", "ship "+order)); n != 1 {
				err = errors.Join(err, fmt.Errorf("%s was shipped %d times", order, n))
			}
		}
		return err
	},
}

var paidOrders = []string{"order 51", "order 52", "order 53", "order 54"}

// shipOrders ships what was paid. The services differ in the options with which they send.
func shipOrders(p *process, options func(order string) []delayqueue.MsgOption) (steps []step) {
	p.queue("shipments").WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
		p.mail(msg.ID, "warehouse", "ship "+msg.Payload)
		p.at("after the order was shipped")
		return nil
	})
	to := p.sender("shipments")
	for i, order := range paidOrders {
		steps = append(steps, step{time.Duration(i) * time.Minute, func(ctx context.Context) (err error) {
			for range 3 {
				if _, err = to.Send(ctx, order, options(order)...); err == nil {
					return nil
				}
			}
			return err
		}})
	}
	return steps
}
