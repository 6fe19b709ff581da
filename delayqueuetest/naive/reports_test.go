package naive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// reports: shortly before midnight a report of the day is mailed. In the report of the mistake, jobs were backed up,
// so a report was made after midnight, and was a report of the next day. The handler must not ask the clock what the
// message is about: Message.Due is the instant for which it was sent, and retries do not change that instant.
var reports = scenario{
	name: "reports",
	source: source{"https://github.com/buttondown/roadmap/issues/2707",
		"If cron is backed up, daily reports can be sent after UTC midnight (and therefore be for the following day)"},
	mistake: "The handler takes the day from the clock, as if it ran at the instant for which its message was sent.",
	found:   []misfortune{late},
	queues:  []string{"reports"},
	points:  []string{"before the report is made"},
	start:   reportsBegin,
	lasts:   (reportedDays + 1) * day,
	naive: func(p *process) []step {
		return makeReports(p, func(*delayqueue.Message) time.Time { return p.now() })
	},
	correct: func(p *process) []step {
		return makeReports(p, func(msg *delayqueue.Message) time.Time { return msg.Due })
	},
	check: func(w *world) (err error) {
		for n := range reportedDays + 1 {
			date, want := dateOf(reportsBegin.Add(time.Duration(n)*day)), 1
			if n == reportedDays {
				want = 0 // nobody wants this one
			}
			if got := len(w.mailed("owner", "report of "+date)); got != want {
				err = errors.Join(err, fmt.Errorf("the report of %s was mailed %d times, want %d", date, got, want))
			}
		}
		return err
	},
}

const (
	day          = 24 * time.Hour
	reportedDays = 3
	reportTime   = 23*time.Hour + 58*time.Minute // of each day
)

var reportsBegin = time.Date(2031, 3, 1, 0, 0, 0, 0, time.UTC)

func dateOf(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// makeReports mails a report of each day. The services differ in where they get the day from.
func makeReports(p *process, dayOf func(msg *delayqueue.Message) time.Time) (steps []step) {
	p.queue("reports").WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
		p.at("before the report is made")
		date := dateOf(dayOf(msg))
		p.mail("report of "+date, "owner", "report of "+date)
		return nil
	})
	to := p.sender("reports")
	for n := range reportedDays {
		after := time.Duration(n) * day
		due := reportsBegin.Add(after + reportTime)
		steps = append(steps, step{after, sends(to, "daily", "daily "+dateOf(due), delayqueue.WithSchedule(due))})
	}
	return steps
}
