package naive

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// progress: images are processed in batches, a message each, and a row of the job says how many are done. In the
// report, Celery tasks read the job's progress, add their part and write all of it back. Two tasks read the same
// number, so the part of one is lost: the job never ends, or has the wrong status. An addition in one statement of the
// database would not be enough, because a batch that is delivered again would be added again. So each batch has a row
// of its own, which may be written twice, and the number of these rows is the progress.
var progress = scenario{
	name: "progress",
	source: source{"https://github.com/RolnickLab/antenna/issues/1337",
		"Saving job progress concurrently is the root of multiple issues related to incorrect job statuses"},
	mistake: "The handler reads a counter, adds to it and writes it back, so two at once lose a part, and a second " +
		"delivery adds a part twice.",
	found:  []misfortune{beside, again, dies},
	queues: []string{"batches"},
	points: []string{"between the read and the write", "after the write"},
	lasts:  time.Hour,
	naive: func(p *process) []step {
		return countBatches(p, func(string) {
			done, _ := strconv.Atoi(p.get("job"))
			p.at("between the read and the write")
			p.set("job", strconv.Itoa(done+imagesOfBatch))
		})
	},
	correct: func(p *process) []step {
		return countBatches(p, func(batch string) {
			p.update(func(rows map[string]string) {
				rows["done/"+batch] = "yes"
				done := 0
				for row := range rows {
					if strings.HasPrefix(row, "done/") {
						done += imagesOfBatch
					}
				}
				rows["job"] = strconv.Itoa(done)
			})
		})
	},
	check: func(w *world) error {
		if got := w.get("job"); got != strconv.Itoa(batches*imagesOfBatch) {
			return fmt.Errorf("%q of %d images are noted as processed, and all of them are", got, batches*imagesOfBatch)
		}
		return nil
	},
}

const (
	batches       = 4
	imagesOfBatch = 10
)

// countBatches handles all batches of a job. The services differ in how they note that a batch is done.
func countBatches(p *process, note func(batch string)) (steps []step) {
	p.queue("batches").WithConcurrent(batches).WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
		note(msg.Payload)
		p.at("after the write")
		return nil
	})
	to := p.sender("batches")
	for i := range batches {
		batch := fmt.Sprint("batch ", i)
		steps = append(steps, step{0, sends(to, batch, batch, delayqueue.WithDelay(time.Minute))})
	}
	return steps
}
