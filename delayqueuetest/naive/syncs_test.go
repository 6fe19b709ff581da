package naive

import (
	"context"
	"fmt"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// syncs: the stock of a shop is copied each hour, one copy at a time. In the report a process was killed while it held
// the lock of a Sidekiq job, and afterwards all jobs of that kind were taken for duplicates and skipped. A lock that a
// handler takes and gives back stays with the dead. The lane of a queue (WithLane) is given back when the lease of the
// message is over. Two copies may still run at once then, so each copy is one transaction.
var syncs = scenario{
	name: "syncs",
	source: source{"https://github.com/zoolutions/sidekiq-unique-jobs/issues/546",
		"Locked jobs after kill -9 with while_executing lock"},
	mistake: "The handler takes a lock without an end and skips its work if the lock is taken, so a process that dies " +
		"with the lock stops all later work.",
	found:  []misfortune{dies},
	queues: []string{"syncs"},
	points: []string{"before the copy", "after the copy"},
	lasts:  4 * time.Hour,
	naive: func(p *process) []step {
		return copyStock(p, func(copyAll func()) {
			taken := false
			p.update(func(rows map[string]string) {
				taken = rows["lock"] == ""
				rows["lock"] = "taken"
			})
			if !taken {
				return // another process is at it
			}
			copyAll()
			p.set("lock", "")
		})
	},
	correct: func(p *process) []step {
		return copyStock(p, func(copyAll func()) { copyAll() }, delayqueue.WithLane("the shop"))
	},
	check: func(w *world) error {
		if want, got := fmt.Sprint(stockChanges-1), w.get("copied stock"); got != want {
			return fmt.Errorf("the copy of the stock says %q an hour after the stock became %q", got, want)
		}
		return nil
	},
}

const stockChanges = 4

// copyStock changes the stock once an hour, and has it copied. The services differ in what keeps two copies apart.
func copyStock(p *process, alone func(copyAll func()), options ...delayqueue.MsgOption) (steps []step) {
	p.queue("syncs").WithHandler(func(context.Context, *delayqueue.Message) error {
		alone(func() {
			p.at("before the copy")
			p.update(func(rows map[string]string) { rows["copied stock"] = rows["stock"] })
			p.at("after the copy")
		})
		return nil
	})
	to := p.sender("syncs")
	for hour := range stockChanges {
		send := sends(to, "the shop", fmt.Sprint("sync at ", hour), options...)
		steps = append(steps, step{time.Duration(hour) * time.Hour, func(ctx context.Context) error {
			p.set("stock", fmt.Sprint(hour))
			return send(ctx)
		}})
	}
	return steps
}
