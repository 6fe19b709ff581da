package naive

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// mailing: all holders of a ticket get a mail. The Celery task of the report took almost four hours for a large event.
// Redis gave the task out again after each hour, so that four ran at once, each from the first holder on. A mailing
// that is delivered again must go on, and not begin again: each mail is a message of its own here, named with Then. So
// a mailing that dies has named nobody. A mail that may have gone out goes again with the same key.
var mailing = scenario{
	name: "mailing",
	source: source{"https://github.com/pretix/pretix/issues/2058",
		"Celery tasks running longer than 1h might run multiple times"},
	mistake: "The handler mails everybody in one loop, so each further delivery mails everybody again from the start.",
	found:   []misfortune{beside, dies, again},
	queues:  []string{"mailings"},
	points:  []string{"after a mail"},
	lasts:   time.Hour,
	naive: func(p *process) []step {
		p.queue("mailings").WithHandler(func(context.Context, *delayqueue.Message) error {
			for _, holder := range holders {
				p.mail("", holder, doorsOpen)
				p.at("after a mail")
			}
			return nil
		})
		return mailHolders(p)
	},
	correct: func(p *process) []step {
		p.queue("mailings").WithHandler(func(ctx context.Context, msg *delayqueue.Message) error {
			if holder, ok := strings.CutPrefix(msg.Payload, "to "); ok {
				p.mail(doorsOpen+" to "+holder, holder, doorsOpen)
				p.at("after a mail")
				return nil
			}
			for _, holder := range holders {
				if err := delayqueue.Then(ctx, "to "+holder); err != nil {
					return err
				}
			}
			return nil
		})
		return mailHolders(p)
	},
	check: func(w *world) (err error) {
		for _, holder := range holders {
			if n := len(w.mailed(holder, doorsOpen)); n != 1 {
				err = errors.Join(err, fmt.Errorf("%s got the mail %d times", holder, n))
			}
		}
		return err
	},
}

const doorsOpen = "doors open at eight"

var holders = []string{"ann", "bob", "cleo", "dan", "eve", "fay"}

func mailHolders(p *process) []step {
	send := sends(p.sender("mailings"), "concert", "mailing for the concert", delayqueue.WithDelay(time.Minute))
	return []step{{0, send}}
}
