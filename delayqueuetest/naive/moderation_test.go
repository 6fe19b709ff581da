package naive

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// moderation: what users report is looked at within minutes. In the report of the mistake, jobs of BullMQ stood in
// PostgreSQL as created, and Redis had been emptied: nobody ever looked at them, and nothing compared the two. A Redis
// that crashes, or fails over, forgets its last second in the same way. So a cron job reads the rows that are still
// open, and sends each again with the key of the first send, which makes no second message if the first one is there.
var moderation = scenario{
	name:    "moderation",
	source:  source{"https://github.com/roostorg/coop/issues/146", "Clearing out Redis orphans manual review jobs"},
	mistake: "The sender notes in the database that a message was sent, and nobody looks whether it still is there.",
	found:   []misfortune{forgets},
	queues:  []string{"moderation"},
	points:  []string{"before the decision", "after the decision"},
	lasts:   2 * time.Hour,
	naive:   moderate,
	correct: func(p *process) []step {
		steps, to := moderate(p), p.sender("moderation")
		for after := sweepEvery; after < 2*time.Hour; after += sweepEvery {
			steps = append(steps, step{after, func(ctx context.Context) (err error) {
				for _, post := range p.open() {
					_, failed := to.Send(ctx, post, delayqueue.WithKey(post, delayqueue.Keep))
					err = errors.Join(err, failed)
				}
				return err
			}})
		}
		return steps
	},
	check: func(w *world) (err error) {
		for _, post := range reportedPosts {
			if got := w.get("moderation/" + post); got != "decided" {
				err = errors.Join(err, fmt.Errorf("two hours after it was reported, %s is %q", post, got))
			}
		}
		return err
	},
}

const sweepEvery = 10 * time.Minute

var reportedPosts = []string{"post 1", "post 2", "post 3", "post 4"}

// open returns the posts that are noted as sent, and that nobody has decided on.
func (w *world) open() (posts []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for row, state := range w.rows {
		if post, ok := strings.CutPrefix(row, "moderation/"); ok && state == "sent" {
			posts = append(posts, post)
		}
	}
	slices.Sort(posts)
	return posts
}

// moderate has a decision made on each post that is reported. It is all of the naive service.
func moderate(p *process) (steps []step) {
	p.queue("moderation").WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
		p.at("before the decision")
		p.set("moderation/"+msg.Payload, "decided")
		p.at("after the decision")
		return nil
	})
	to := p.sender("moderation")
	for i, post := range reportedPosts {
		steps = append(steps, step{time.Duration(i) * 7 * time.Minute, func(ctx context.Context) error {
			p.update(func(rows map[string]string) {
				if rows["moderation/"+post] == "" {
					rows["moderation/"+post] = "sent"
				}
			})
			_, err := to.Send(ctx, post, delayqueue.WithKey(post, delayqueue.Keep), delayqueue.WithDelay(5*time.Minute))
			return err
		}})
	}
	return steps
}
