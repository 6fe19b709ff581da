package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/go-delayqueue/delayqueue/typed"
	"github.com/redis/go-redis/v9"
)

const (
	queueName = "example-import"
	perSum    = 500             // results in a sum; the last sum has up to 999, and a group has room for 1,000
	maxRows   = 500 * perSum    // so there are at most 500 sums, and they fit into the report, which is a group, too
	batch     = 500             // messages in a round trip
	grace     = 2 * time.Second // from the time limit to the report, for the sums of what there is
	keep      = 24 * time.Hour  // how long the report is kept; the same file is not imported again meanwhile
)

// The kinds of messages.
var (
	splitFile = typed.Kind[job]("split")
	handleRow = typed.Kind[row]("row")
	addUp     = typed.Kind[tally]("sum")
	report    = typed.Kind[tally]("report")
)

// A job is a file to be imported.
type job struct {
	Path  string    // where each program that runs finds the file
	Name  string    // of the import; it changes with the content of the file (load)
	Until time.Time // the time limit
}

// A row has what its handler must know of the import, too.
type row struct {
	Import string
	Rows   int // of the file
	Until  time.Time
	Number int // from 1
	Text   string
}

func reportKey(name string) string { return "import-" + name }

func sumsOf(rows int) int { return max(rows/perSum, 1) }

// sum is the key of the sum to which a row belongs, and how many rows that has.
func (r *row) sum() (key string, size int) {
	last := sumsOf(r.Rows) - 1
	n := min((r.Number-1)/perSum, last)
	if size = perSum; n == last {
		size = r.Rows - last*perSum
	}
	return reportKey(r.Import) + "/" + strconv.Itoa(n), size
}

type importer struct {
	queue *delayqueue.DelayQueue
	look  *ops.Queue
	work  time.Duration // of a row
}

func newImporter(cli *redis.Client, work time.Duration) *importer {
	im := &importer{look: ops.Of(delayqueue.NewMonitor(queueName, cli)), work: work}
	mux := typed.NewMux()
	typed.Handle(mux, splitFile, im.split)
	typed.Handle(mux, handleRow, im.row)
	typed.HandleGroup(mux, addUp, im.sum)
	typed.HandleGroup(mux, report, im.report)
	im.queue = delayqueue.NewQueue(queueName, cli, nil).
		WithHandler(mux.Handler).
		WithConcurrent(4).
		WithRetryDelays(200*time.Millisecond, time.Second).
		WithLease(3 * time.Second). // so what a killed program had in hand comes again after 3 s
		WithMaxLosses(20)           // a row is not the reason if somebody kills the program again and again
	return im
}

// split sends the report and the rows. A split that was killed begins again, so each message has a number in a
// sequence and is stored once. The other way would be a key with a hold for each row. A sequence is simpler, because
// it serves the report as well, to which a second send with Append would add a part. It leaves one number in Redis,
// and not a key for each row.
func (im *importer) split(ctx context.Context, j job, msg *delayqueue.Message) error {
	name, rows, err := load(j.Path)
	if err == nil && name != j.Name {
		err = errors.New("the file has changed")
	}
	if err != nil {
		return fmt.Errorf("%w: %w", delayqueue.ErrSkipRetry, err)
	}
	first, err := report.Outgoing(tally{Import: name, Rows: len(rows), Began: msg.Due},
		delayqueue.WithSequence(name, 0),
		delayqueue.WithKey(reportKey(name), delayqueue.Append),
		delayqueue.WithCountdown(len(rows)+sumsOf(len(rows))+1), // and this split
		delayqueue.WithSchedule(j.Until.Add(grace)),
		delayqueue.WithRetention(keep), // for its result
		delayqueue.WithKeyHold(keep))   // so that find finds it
	if err != nil {
		return err
	}
	out := []delayqueue.Outgoing{first}
	for i, text := range rows {
		r := row{Import: name, Rows: len(rows), Until: j.Until, Number: i + 1, Text: text}
		one, err := handleRow.Outgoing(r, delayqueue.WithSequence(name, int64(r.Number)),
			delayqueue.WithCounts(reportKey(name)))
		if err != nil {
			return err
		}
		if out = append(out, one); len(out) < batch && i < len(rows)-1 {
			continue
		}
		results, _ := im.queue.SendBatch(ctx, out)
		for _, result := range results {
			if result.Err != nil && !errors.Is(result.Err, delayqueue.ErrSequence) { // which says that it was stored before
				return result.Err
			}
		}
		out = out[:0]
	}
	return nil
}

// row handles a row. A row that nobody can read is a result like any other: it is noted and acked, and so is a row
// whose last try has failed. So the import does not wait for it, and the report lists it. Garbage is left for the
// unexpected, such as a row that kills its programs. Such a row is missing at the time limit, unless somebody
// requeues it before.
func (im *importer) row(ctx context.Context, r row, msg *delayqueue.Message) error {
	result := tally{Import: r.Import}
	cents, err := im.handle(ctx, r.Text, msg.Failures)
	switch {
	case err == nil:
		result.Handled, result.Cents = 1, cents
	case ctx.Err() == nil && (errors.Is(err, errUnreadable) || msg.Failures == msg.MaxRetries):
		result.note(r.Number, err)
	default:
		return err
	}
	key, size := r.sum()
	return addUp.Then(ctx, result, delayqueue.WithKey(key, delayqueue.Append), delayqueue.WithMaxParts(size),
		delayqueue.WithSchedule(r.Until), // or as soon as the group is full
		delayqueue.WithCounts(reportKey(r.Import)))
}

// sum adds up a full group, or what there is at the time limit. It may run twice, and its result is in the report once.
func (im *importer) sum(ctx context.Context, parts []tally, _ *delayqueue.Message) error {
	total := addAll(parts)
	return report.Then(ctx, total, delayqueue.WithKey(reportKey(total.Import), delayqueue.Append))
}

// report may run twice, too. Commands print the result of the delivery that was acked (follow). The sequence is of no
// use any more: the split is over, because its ack counts for the report, and the key of the split is held, so there
// is no other.
func (im *importer) report(ctx context.Context, parts []tally, msg *delayqueue.Message) error {
	total := addAll(parts)
	if total.Rows == 0 {
		return nil // sums that came while the report was made, after the time limit
	}
	if err := im.look.DropSequence(ctx, total.Import); err != nil && !errors.Is(err, delayqueue.ErrNotFound) {
		return err
	}
	return delayqueue.SetResult(ctx, total.table(msg.Due.Sub(total.Began)))
}
