package outbox

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/ops"
)

// A relay moves the rows of one queue to Redis. Of all Boxes, one holds the queue and relays. The others look when
// its time is over.
//
// A row gets its number after it was committed, because ids do not commit in order: one transaction commits the
// numbers, and only then the rows are sent. Redis stores a number only if it has come to the number before
// (script.WithReached), so two Boxes that relay at once, or one that was frozen, cannot make two messages of one row,
// or pass over a row.
//
// Rows up to the number confirmed were in Redis. If Redis has come less far, it has forgotten what is between, and it
// is sent again. If the database has come less far than Redis, it has forgotten numbers (an asynchronous failover),
// which must not be given to other rows: Redis would take those for sent.
type relay struct {
	box         *Box
	queue       Queue
	name        string
	monitor     *ops.Queue
	store       *script.Store
	channel     string        // of Redis, on which other Boxes tell of rows
	wakes       chan struct{} // there may be rows
	unpublished atomic.Int64  // calls of Committed that the others were not told of
	holds       atomic.Bool   // this Box relays

	// What follows belongs to run.
	synced     bool   // what follows is as Redis and the database have it
	settled    bool   // the queue has one shard
	sequence   string // its name in Redis
	numbered   int64  // the highest number of a row
	last       int64  // to which Redis has come
	noted      int64  // of these, what the database has as confirmed
	sent       int64  // messages, since then
	healed     int64  // of these, messages that Redis had forgotten
	untold     int64  // such messages, of which the log and OnHealed were not told
	forgot     int64  // the highest number that Redis has ever forgotten
	marks      marks
	readLimit  int // rows to read at a time
	batchLimit int // rows to send at a time
	looked     time.Time
	tidied     time.Time
	deletable  bool // there are more rows to delete
	warned     time.Time
	deadLogged time.Time
	deadRows   int   // that died since then
	lastDead   error // why the last of them did
}

func newRelay(b *Box, q Queue) *relay {
	cli, prefix := q.Redis()
	store := script.NewStore(cli, prefix, q.Name())
	return &relay{
		box: b, queue: q, name: q.Name(), wakes: make(chan struct{}, 1), readLimit: minBatch, batchLimit: maxBatch,
		monitor: ops.Of(delayqueue.NewMonitor(q.Name(), cli, delayqueue.UseCustomPrefix(prefix))),
		store:   store, channel: store.Keys.Outbox,
	}
}

const (
	lease     = 5 * time.Second // how long a Box holds a queue without a sign of it
	renewing  = 2 * time.Second
	idleWait  = time.Second           // between two looks, and after a failure
	retrySoon = 10 * time.Millisecond // after a failure that the next look mends
	callTime  = 5 * time.Second       // for one call of Redis or of the database

	minBatch, maxBatch = 100, 1000
	batchBytes         = 4 << 20 // about

	maxGap = 1 << 20 // between two ids of a batch
	// maxNumber is more than any outbox gives, and less than what an ops.Queue can make of a sequence.
	maxNumber = 1 << 62
)

var (
	errLost   = errors.New("another box relays this queue")
	errForgot = errors.New("redis has forgotten messages")
)

// ErrShards: a queue has several shards (delayqueue.WithShards), and a sequence lies in one of them.
var ErrShards = errors.New("an outbox needs a queue with one shard, because its sequence lies in one")

// run relays until ctx ends. Its error is one that no wait mends.
func (r *relay) run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		wait, err := r.step(ctx)
		if errors.Is(err, ErrShards) {
			r.release(context.WithoutCancel(ctx))
			return fmt.Errorf("outbox: queue %q is not relayed: %w", r.name, err)
		}
		if err != nil {
			r.synced, wait = false, retrySoon
			if ctx.Err() == nil && !errors.Is(err, errForgot) && !errors.Is(err, errLost) {
				r.warn(err)
				r.release(ctx)
				wait = idleWait
			}
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-r.wakeIf(err == nil && r.holds.Load()):
		}
	}
	r.release(context.WithoutCancel(ctx))
	return nil
}

// wakeIf is the channel of those that know of rows, if now is the time to look.
func (r *relay) wakeIf(ready bool) <-chan struct{} {
	if !ready {
		return nil
	}
	return r.wakes
}

// warn logs that relaying fails, at most once a minute.
func (r *relay) warn(err error) {
	if time.Since(r.warned) > time.Minute {
		r.warned = time.Now()
		r.box.log.Warn("outbox: rows wait in the table, because relaying fails; it is tried again",
			slog.String("queue", r.name), slog.Any("error", err))
	}
}

// step relays all rows that are there. wait is how long there is nothing to do, unless somebody hurries.
func (r *relay) step(ctx context.Context) (wait time.Duration, err error) {
	if !r.holds.Load() {
		if wait, err = r.take(ctx); !r.holds.Load() {
			return wait, err
		}
	}
	if !r.synced || time.Since(r.looked) >= idleWait {
		if err := r.sync(ctx); err != nil {
			return 0, err
		}
	}
	waiting, err := r.move(ctx)
	if err != nil {
		return 0, err
	}
	r.logDead()
	deletable, err := r.tidy(ctx)
	if waiting || deletable {
		return 0, err
	}
	return idleWait, err
}

// move numbers and sends rows until none waits, or for some time: then it says that there may be more. While some are
// sent, the next ones get their numbers.
func (r *relay) move(ctx context.Context) (more bool, err error) {
	var rows []Row
	for end := time.Now().Add(renewing); ; {
		last, sent := r.last, r.sent
		more = time.Now().After(end)
		var next []Row
		var failed error
		var ahead sync.WaitGroup
		if !more {
			ahead.Go(func() { next, failed = r.next(ctx, last, sent) })
		}
		err := r.send(ctx, rows)
		ahead.Wait()
		if failed == nil && len(next) > 0 {
			r.noted, r.sent = last, r.sent-sent
		}
		if err := cmp.Or(err, failed); err != nil || len(next) == 0 {
			return more, err
		}
		rows = next
	}
}

// next reads rows and gives them their numbers. last and sent are noted in the same transaction. It runs beside send,
// so it reads and writes nothing that send writes.
func (r *relay) next(ctx context.Context, last, sent int64) ([]Row, error) {
	rows, err := r.read(ctx, "number IS NULL ORDER BY id")
	for i := 1; i < len(rows); i++ {
		if uint64(rows[i].ID)-uint64(rows[i-1].ID) > maxGap { // it would use up so many numbers
			rows = rows[:i]
		}
	}
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return rows, r.number(ctx, rows, last, sent)
}

// read reads rows of the queue, and sets how many it reads next: no more than batchBytes, if they are like these.
func (r *relay) read(ctx context.Context, where string, args ...any) ([]Row, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	args = append(append([]any{r.name}, args...), r.readLimit)
	rows, err := r.box.rows(ctx, "WHERE queue = ? AND "+where+" LIMIT ?", args...)
	if len(rows) == 0 {
		return nil, err
	}
	size := 0
	for i := range rows {
		size += rows[i].size()
	}
	fitting := batchBytes * len(rows) / max(size, 1)
	r.readLimit = max(1, min(2*max(len(rows), minBatch), fitting, maxBatch))
	return rows, err
}

// take makes this Box the one that relays, or says how long another one does.
func (r *relay) take(ctx context.Context) (wait time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	n, err := r.box.exec(ctx, r.box.db, "UPDATE {prefix}outbox_queues SET holder = ?, until_us = {now} + ? "+
		"WHERE queue = ? AND (holder = ? OR until_us < {now} OR until_us > {now} + ?)",
		r.box.id, lease.Microseconds(), r.name, r.box.id, 2*lease.Microseconds()) // or the clock has gone back
	if err != nil || n > 0 {
		r.synced = false
		r.holds.Store(n > 0)
		return idleWait, err
	}
	var left int64
	err = r.box.one(ctx, []any{&left}, "SELECT until_us - {now} FROM {prefix}outbox_queues WHERE queue = ?", r.name)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return 0, r.insert(ctx)
	case err != nil:
		return idleWait, err
	}
	return min(max(time.Duration(left)*time.Microsecond, 0)+10*time.Millisecond, 2*lease), nil
}

// insert makes the row of the queue. If somebody has deleted it, all rows that are kept are sent again.
func (r *relay) insert(ctx context.Context) error {
	var numbered int64
	err := r.box.one(ctx, []any{&numbered}, "SELECT COALESCE(MAX(number), 0) FROM {prefix}outbox WHERE queue = ?", r.name)
	if err != nil {
		return err
	}
	d := &r.box.dialect
	_, err = r.box.exec(ctx, r.box.db, d.insert+" {prefix}outbox_queues (queue, sequence, marks, numbered, forgotten) "+
		"VALUES (?, ?, '', ?, ?) "+d.behind, r.name, "outbox/"+d.prefix+rand.Text(), numbered, numbered)
	return err
}

// release lets another Box relay.
func (r *relay) release(ctx context.Context) {
	if !r.holds.Swap(false) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	// If that fails, the others wait for the end of the lease.
	_, _ = r.box.exec(ctx, r.box.db, "UPDATE {prefix}outbox_queues SET until_us = 0 WHERE queue = ? AND holder = ?",
		r.name, r.box.id)
}
