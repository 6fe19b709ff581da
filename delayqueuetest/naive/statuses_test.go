package naive

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// statuses: a provider calls a webhook when a chat message was sent, delivered and read. Each call becomes a message of
// the queue, which writes the status. In the report a Sidekiq worker handles "delivered" before "sent", and the chat
// message stays "sent" for ever. An update must know whether what it finds is newer: a status has a rank, and other
// data have a version or an instant of their own.
var statuses = scenario{
	name: "statuses",
	source: source{"https://github.com/chatwoot/chatwoot/issues/14529",
		"WhatsApp message status downgraded (delivered -> sent) due to webhook race condition"},
	mistake: "The handler writes the status that it was given, so an older status that comes later replaces a newer one.",
	found:   []misfortune{outOfOrder, late, again, dies, beside},
	queues:  []string{"statuses"},
	points:  []string{"before the status is written", "after the status was written"},
	lasts:   time.Hour,
	naive: func(p *process) []step {
		return writeStatuses(p, func(chat, status string) { p.set("status/"+chat, status) })
	},
	correct: func(p *process) []step {
		return writeStatuses(p, func(chat, status string) {
			p.update(func(rows map[string]string) {
				if statusRanks[status] > statusRanks[rows["status/"+chat]] {
					rows["status/"+chat] = status
				}
			})
		})
	},
	check: func(w *world) (err error) {
		for _, chat := range chats {
			if got := w.get("status/" + chat); got != "read" {
				err = errors.Join(err, fmt.Errorf("the message to %s is %q, and was read", chat, got))
			}
		}
		return err
	},
}

var (
	chats       = []string{"ann", "bob", "cleo"}
	statusRanks = map[string]int{"sent": 1, "delivered": 2, "read": 3} // what is not there has 0
)

// writeStatuses handles what the provider says of a message to each person. The services differ in how they write it.
func writeStatuses(p *process, write func(chat, status string)) (steps []step) {
	p.queue("statuses").WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
		chat, status, _ := strings.Cut(msg.Payload, " is ")
		p.at("before the status is written")
		write(chat, status)
		p.at("after the status was written")
		return nil
	})
	to := p.sender("statuses")
	for _, chat := range chats {
		for after, status := range []string{"sent", "delivered", "read"} {
			payload := chat + " is " + status
			steps = append(steps, step{time.Duration(after) * time.Second, sends(to, payload, payload)})
		}
	}
	return steps
}
