package naive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// reviews: a week after an order was completed, its customer is asked for a review, unless the order was canceled. In
// the report the job of Action Scheduler is taken back on some ways out of the completed state, and mails without a
// look at the order. A message that a handler has cannot be taken back: InterceptKey answers StateUnack. If that
// handler's process dies, the message comes again after the order was canceled. So the handler looks at the order.
var reviews = scenario{
	name: "reviews",
	source: source{"https://github.com/woocommerce/woocommerce/issues/64743",
		"Delayed review-request email sends after order leaves `completed`"},
	mistake: "The handler trusts that the message of a canceled order was taken back, and does not look at the order.",
	found:   []misfortune{dies},
	queues:  []string{"reviews"},
	points:  []string{"before a look at the order"},
	lasts:   week + time.Hour,
	naive: func(p *process) []step {
		return askForReviews(p, func(string) bool { return true })
	},
	correct: func(p *process) []step {
		return askForReviews(p, func(order string) bool { return p.get("state/"+order) == "completed" })
	},
	check: func(w *world) (err error) {
		if n := len(w.mailed("customer of "+orderKept, howWasIt)); n != 1 {
			err = fmt.Errorf("the customer of %s was asked %d times", orderKept, n)
		}
		for order := range canceledAfter {
			canceled, _ := time.Parse(time.RFC3339Nano, w.get("canceled/"+order))
			for _, at := range w.mailed("customer of "+order, howWasIt) {
				if at.After(canceled) {
					err = errors.Join(err, fmt.Errorf("the customer of %s, which is canceled, was asked %v afterwards", order,
						at.Sub(canceled)))
				}
			}
		}
		return err
	},
}

const (
	week      = 7 * 24 * time.Hour
	howWasIt  = "how was it?"
	orderKept = "order 41"
)

// canceledAfter is when an order is canceled: long before its message is due, or while a handler may have the message.
var canceledAfter = map[string]time.Duration{"order 42": 3 * 24 * time.Hour, "order 43": week + 5*time.Second}

// askForReviews completes three orders, and cancels two of them. The services differ in whether they ask.
func askForReviews(p *process, ask func(order string) bool) (steps []step) {
	p.queue("reviews").WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
		order := msg.Payload
		p.at("before a look at the order")
		if ask(order) {
			p.mail("review of "+order, "customer of "+order, howWasIt)
		}
		return nil
	})
	to := p.sender("reviews")
	for _, order := range []string{orderKept, "order 42", "order 43"} {
		send := sends(to, order, order, delayqueue.WithDelay(week))
		steps = append(steps, step{0, func(ctx context.Context) error {
			p.set("state/"+order, "completed")
			return send(ctx)
		}})
	}
	for order, after := range canceledAfter {
		steps = append(steps, step{after, func(ctx context.Context) error {
			p.update(func(rows map[string]string) {
				rows["state/"+order], rows["canceled/"+order] = "canceled", p.now().Format(time.RFC3339Nano)
			})
			_, err := to.InterceptKey(ctx, order)
			return err
		}})
	}
	return steps
}
