package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// This file has what the database and Redis know of numbers: which rows have one, and how far Redis has come.

// sync compares Redis with the database, and sends what has a number and is not in Redis.
func (r *relay) sync(ctx context.Context) error {
	defer r.tellHealed()
	if err := r.compare(ctx); err != nil {
		return err
	}
	for r.last < r.numbered {
		rows, err := r.read(ctx, "number > ? ORDER BY number", r.last)
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			break // what comes after was dead, or is deleted
		}
		if err := r.send(ctx, rows); err != nil {
			return err
		}
		if err := r.confirm(ctx); err != nil {
			return err
		}
	}
	r.synced = true
	return nil
}

// tellHealed tells how many messages were sent again.
func (r *relay) tellHealed() {
	n := r.untold
	if n == 0 {
		return
	}
	r.untold = 0
	r.box.log.Warn("outbox: messages that redis had forgotten were sent again", slog.String("queue", r.name),
		slog.Int64("messages", n))
	for _, f := range r.box.listeners() {
		r.box.call(func() { f(r.name, n) })
	}
}

// compare reads how far Redis and the database are, and mends whichever has forgotten.
func (r *relay) compare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	if !r.synced {
		var sequence, text string
		var confirmed int64
		err := r.box.one(ctx, []any{&sequence, &r.numbered, &confirmed, &r.forgot, &text},
			"SELECT sequence, numbered, confirmed, forgotten, marks FROM {prefix}outbox_queues WHERE queue = ?", r.name)
		if err != nil {
			return err
		}
		r.marks = readMarks(text)
		if sequence != r.sequence || confirmed != r.noted { // somebody else has relayed
			r.sequence, r.last, r.noted, r.sent, r.healed = sequence, confirmed, confirmed, 0, 0
		}
	}
	if !r.synced || !r.settled { // a new queue has no number of shards before its first message
		n, err := r.store.Shards(ctx, 0)
		if err != nil || n > 1 {
			return cmp.Or(err, ErrShards)
		}
		r.settled = n == 1
	}
	last, err := r.monitor.Sequence(ctx, r.sequence)
	if err != nil && !errors.Is(err, delayqueue.ErrNotFound) && !errors.Is(err, delayqueue.ErrNoQueue) {
		return err
	}
	if last > maxNumber {
		return fmt.Errorf("the sequence %q is at %d in redis, which no outbox has written: drop it", r.sequence, last)
	}
	r.looked = time.Now()
	if r.synced && last == r.last {
		return nil
	}
	var sent, healed int64
	if last > r.last { // the answers were lost
		err := r.box.one(ctx, []any{&sent, &healed},
			"SELECT COUNT(*), COALESCE(SUM(CASE WHEN number <= ? THEN 1 ELSE 0 END), 0) "+
				"FROM {prefix}outbox WHERE queue = ? AND number > ? AND number <= ? AND kind = 'send'",
			r.forgot, r.name, r.last, last)
		if err != nil {
			return err
		}
	}
	if last < r.last {
		r.forgot = max(r.forgot, r.last)
		r.marks.forget(last)
		r.box.log.Warn("outbox: redis has forgotten messages, which are sent again", slog.String("queue", r.name),
			slog.Int64("behind", last), slog.Int64("to", r.last))
	}
	numbered := max(r.numbered, last, r.forgot)
	err = r.update(ctx, r.box.db, "UPDATE {prefix}outbox_queues SET numbered = ?, confirmed = ?, "+
		"forgotten = ?, marks = ?, sent = sent + ?, healed = healed + ?, until_us = {now} + ? "+
		"WHERE queue = ? AND holder = ? AND numbered = ?",
		numbered, last, r.forgot, r.marks.text(), r.sent+sent, r.healed+healed, lease.Microseconds(),
		r.name, r.box.id, r.numbered)
	if err != nil {
		return err
	}
	r.numbered, r.last, r.noted, r.sent, r.healed = numbered, last, last, 0, 0
	r.untold += healed
	return nil
}

// update executes a statement that changes the row of the queue only if this Box holds it.
func (r *relay) update(ctx context.Context, in execer, query string, args ...any) error {
	_, err := r.held(r.box.exec(ctx, in, query, args...))
	return err
}

// held adds errLost if no row was changed.
func (r *relay) held(n int64, err error) (int64, error) {
	if err == nil && n == 0 {
		err = errLost
		r.holds.Store(false)
	}
	return n, err
}

// number gives rows their numbers: their ids, moved behind the highest number. So numbers rise as ids do, and have
// gaps.
func (r *relay) number(ctx context.Context, rows []Row, last, sent int64) error {
	by := r.numbered + 1 - rows[0].ID
	ids := make([]int64, len(rows))
	for i := range rows {
		ids[i] = rows[i].ID
		rows[i].number = rows[i].ID + by
	}
	numbered := rows[len(rows)-1].number
	n, err := r.changeRows(ctx, change{
		set: "numbered = ?, confirmed = ?, sent = sent + ?", to: []any{numbered, last, sent},
		where: " AND numbered = ?", is: []any{r.numbered},
		rows: "UPDATE {prefix}outbox{by} SET number = id + ? WHERE number IS NULL AND {ids}", args: []any{by}, ids: ids,
	})
	if err != nil {
		return err
	}
	if n != int64(len(ids)) {
		return fmt.Errorf("%d of %d rows could be numbered: somebody else changes the table", n, len(ids))
	}
	r.numbered = numbered
	return nil
}

// A change is one of the row of the queue, if this Box holds it, and of rows with some ids.
type change struct {
	set   string
	to    []any
	where string // behind what names the row
	is    []any
	rows  string
	args  []any
	ids   []int64
}

// changeRows does both in one transaction, and says how many rows were changed. In PostgreSQL it is one statement: a
// relay that is frozen between two would keep its lock on the row of the queue, and no other Box could relay.
func (r *relay) changeRows(ctx context.Context, c change) (n int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	queue := "UPDATE {prefix}outbox_queues SET " + c.set + ", until_us = {now} + ? " +
		"WHERE queue = ? AND holder = ?" + c.where
	with := slices.Concat(c.to, []any{lease.Microseconds(), r.name, r.box.id}, c.is)
	if d := &r.box.dialect; d.numbered {
		query, args := d.withIDs("WITH mine AS ("+queue+" RETURNING queue) "+c.rows+" AND EXISTS (SELECT * FROM mine)", c.ids,
			append(with, c.args...)...)
		return r.held(r.box.exec(ctx, r.box.db, query, args...))
	}
	tx, err := r.box.db.BeginTx(ctx, nil)
	if err != nil {
		return 0, r.box.failed(err)
	}
	defer func() {
		if err != nil {
			_ = tx.Rollback() // err says what happened
		}
	}()
	if err := r.update(ctx, tx, queue, with...); err != nil {
		return 0, err
	}
	query, args := r.box.dialect.withIDs(c.rows, c.ids, c.args...)
	if n, err = r.box.exec(ctx, tx, query, args...); err != nil {
		return 0, err
	}
	if err := tx.Commit(); err != nil {
		return 0, r.box.failed(err)
	}
	return n, nil
}

// confirm notes in the database how far Redis has come.
func (r *relay) confirm(ctx context.Context) error {
	if r.noted == r.last && r.sent == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	err := r.update(ctx, r.box.db, "UPDATE {prefix}outbox_queues SET confirmed = ?, "+
		"sent = sent + ?, healed = healed + ?, until_us = {now} + ? WHERE queue = ? AND holder = ? AND numbered = ?",
		r.last, r.sent, r.healed, lease.Microseconds(), r.name, r.box.id, r.numbered)
	if err == nil {
		r.noted, r.sent, r.healed = r.last, 0, 0
	}
	return err
}
