package outbox

import (
	"context"
	"database/sql"
	"encoding/json"
	"slices"
	"time"
)

// A mark says that rows up to a number were in Redis at a time of the database's clock.
type mark struct {
	AtUs   int64 `json:"at"`
	Number int64 `json:"number"`
}

// marks are some sixty of them, oldest first.
type marks []mark

func readMarks(text string) (m marks) {
	if json.Unmarshal([]byte(text), &m) != nil {
		return nil // rows are kept longer
	}
	return m
}

func (m marks) text() string {
	if len(m) == 0 {
		return ""
	}
	text, err := json.Marshal(m)
	if err != nil { // it is made of numbers
		panic(err)
	}
	return string(text)
}

// forget deletes what Redis has forgotten.
func (m *marks) forget(last int64) {
	*m = slices.DeleteFunc(*m, func(k mark) bool { return k.Number > last })
}

// add notes how far Redis is, if enough time has passed since the last mark.
func (m *marks) add(nowUs, number int64, keep time.Duration) bool {
	for i := range *m { // if the clock was ahead, these rows are in Redis by now at the latest
		(*m)[i].AtUs = min((*m)[i].AtUs, nowUs)
	}
	if n := len(*m); n > 0 && ((*m)[n-1].Number >= number || nowUs-(*m)[n-1].AtUs < (keep/marksOfKeep).Microseconds()) {
		return false
	}
	*m = append(*m, mark{AtUs: nowUs, Number: number})
	return true
}

const marksOfKeep = 60

// over returns the number up to which rows have been kept long enough, and how many marks say so.
func (m marks) over(nowUs int64, keep time.Duration) (number int64, n int) {
	for n < len(m) && m[n].AtUs <= nowUs-keep.Microseconds() {
		number = m[n].Number
		n++
	}
	return number, n
}

// tidyBatch is how many rows are deleted at a time.
const tidyBatch = 2 * maxBatch

// tidy renews the lease, notes how far Redis is, and deletes rows that were kept long enough. more: there may be more
// of these.
func (r *relay) tidy(ctx context.Context) (more bool, err error) {
	if !r.deletable && time.Since(r.tidied) < renewing {
		return false, r.confirm(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	var nowUs int64
	if err := r.box.one(ctx, []any{&nowUs}, "SELECT {now}"); err != nil {
		return false, err
	}
	r.marks.add(nowUs, r.last, r.box.keep)
	upTo, n := r.marks.over(nowUs, r.box.keep)
	more = n > 0
	for end := time.Now().Add(idleWait); more && time.Now().Before(end); {
		deleted, err := r.delete(ctx, upTo)
		if err != nil {
			return false, err
		}
		more = deleted == tidyBatch
	}
	if more {
		n-- // the last of these marks says all
	}
	r.marks = slices.Delete(r.marks, 0, n)
	err = r.update(ctx, r.box.db, "UPDATE {prefix}outbox_queues SET confirmed = ?, sent = sent + ?, "+
		"marks = ?, until_us = {now} + ? WHERE queue = ? AND holder = ? AND numbered = ?",
		r.last, r.sent, r.marks.text(), lease.Microseconds(), r.name, r.box.id, r.numbered)
	if err == nil {
		r.noted, r.sent, r.tidied, r.deletable = r.last, 0, time.Now(), more
	}
	return more, err
}

// delete deletes rows up to a number.
func (r *relay) delete(ctx context.Context, upTo int64) (int, error) {
	d := &r.box.dialect
	var ids []int64
	err := r.box.each(ctx, func(got *sql.Rows) error {
		var id int64
		err := got.Scan(&id)
		ids = append(ids, id)
		return err
	}, "SELECT id FROM {prefix}outbox WHERE queue = ? AND number > 0 AND number <= ? ORDER BY number LIMIT ?",
		r.name, upTo, tidyBatch)
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	query, args := d.withIDs(d.delete+" WHERE {ids}", ids)
	_, err = r.box.exec(ctx, r.box.db, query, args...)
	return len(ids), err
}
