package naive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// charging: a trial ends, and its user is charged. The Sidekiq job of the report charged a subscription at Stripe 15
// minutes after it was enqueued, and ran twice. A flag in the database does not help: the process may die after the
// charge and before the flag. Only the provider can tell that it has seen the charge, by a key that both calls send.
// Another service came to that key in https://github.com/dimagi/commcare-hq/pull/33509, "Prevent double charging".
var charging = scenario{
	name:    "charging",
	source:  source{"https://github.com/sidekiq/sidekiq/issues/1762", "Job being invoked twice?"},
	mistake: "The handler charges first and notes it afterwards, so a second delivery in between charges again.",
	found:   []misfortune{dies, beside},
	queues:  []string{"charges"},
	points:  []string{"before the charge", "after the charge"},
	lasts:   time.Hour,
	naive: func(p *process) []step {
		return chargeTrials(p, func(string) string { return "" })
	},
	correct: func(p *process) []step {
		return chargeTrials(p, func(user string) string { return "trial of " + user })
	},
	check: func(w *world) (err error) {
		for _, user := range trialUsers {
			if n := w.charged(user); n != 1 {
				err = errors.Join(err, fmt.Errorf("%s was charged %d times", user, n))
			}
			if got := w.get("paid/" + user); got != "yes" {
				err = errors.Join(err, fmt.Errorf("%s is noted as paid: %q, want \"yes\"", user, got))
			}
		}
		return err
	},
}

var trialUsers = []string{"ann", "bob", "cleo", "dan"}

// chargeTrials charges each user once. The services differ in the key that they send to the provider.
func chargeTrials(p *process, key func(user string) string) (steps []step) {
	p.queue("charges").WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
		user := msg.Payload
		if p.get("paid/"+user) == "yes" {
			return nil
		}
		p.at("before the charge")
		p.charge(key(user), user, 900)
		p.at("after the charge")
		p.set("paid/"+user, "yes")
		return nil
	})
	charges := p.sender("charges")
	for i, user := range trialUsers {
		steps = append(steps, step{time.Duration(i) * time.Minute,
			sends(charges, user, "trial of "+user, delayqueue.WithDelay(15*time.Minute))})
	}
	return steps
}
