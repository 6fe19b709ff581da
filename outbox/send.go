package outbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// send sends rows that have numbers, in their order.
func (r *relay) send(ctx context.Context, rows []Row) error {
	for renewed := time.Now(); len(rows) > 0; {
		done, err := 0, error(nil)
		if rows[0].Cancel && rows[0].broken == nil {
			done, err = 1, r.cancel(ctx, &rows[0])
		} else {
			done, err = r.sendSome(ctx, rows)
		}
		if err != nil {
			return err
		}
		rows = rows[done:]
		if time.Since(renewed) > renewing { // a row that is sent by itself takes some calls
			err := r.update(ctx, r.box.db,
				"UPDATE {prefix}outbox_queues SET until_us = {now} + ? WHERE queue = ? AND holder = ?",
				lease.Microseconds(), r.name, r.box.id)
			if err != nil {
				return err
			}
			renewed = time.Now()
		}
	}
	return nil
}

// sendSome sends rows up to the next cancel, and says how many are settled. It stops behind a row that was not stored
// for a reason of its own, because those behind it were not stored either.
func (r *relay) sendSome(ctx context.Context, rows []Row) (done int, err error) {
	var batch []delayqueue.Outgoing
	for i := range rows[:min(len(rows), r.batchLimit)] {
		if rows[i].Cancel && rows[i].broken == nil {
			break
		}
		message, err := rows[i].outgoing(r.sequence, rows[i].ageNow())
		if err != nil {
			if i == 0 {
				return r.unsendable(ctx, rows, err)
			}
			break
		}
		batch = append(batch, message)
	}
	sending, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	results, failed := r.queue.SendBatch(script.WithReached(sending, r.reached()), batch)
	if len(results) != len(batch) {
		return 0, cmp.Or(failed, fmt.Errorf("SendBatch returns %d results for %d messages", len(results), len(batch)))
	}
	for i := range results {
		row, err := &rows[i], results[i].Err
		switch {
		case errors.Is(err, delayqueue.ErrSequenceStopped):
			if i == 0 {
				return 0, errForgot
			}
			return i, nil
		case errors.Is(err, delayqueue.ErrDuplicateKey):
			r.batchLimit = 1 // others may follow
			return i + 1, r.refuse(ctx, row, err)
		case errors.Is(err, delayqueue.ErrBadOption), errors.Is(err, delayqueue.ErrPayloadTooLarge):
			return i + 1, r.markDead(ctx, rows[i:i+1], err)
		case tooLarge(err):
			largest := i
			for j := i; j < len(results) && tooLarge(results[j].Err); j++ {
				if rows[j].size() > rows[largest].size() {
					largest = j
				}
			}
			if largest > i {
				r.batchLimit = largest - i
				return i, nil
			}
			return i + 1, r.markDead(ctx, rows[i:i+1], err)
		case err == nil, errors.Is(err, delayqueue.ErrSequence), errors.Is(err, delayqueue.ErrNotReplicated):
			// ErrSequence: it was there. ErrNotReplicated: a failover may forget it, which the next look shows.
			r.last = row.number
			r.sent++
			if row.number <= r.forgot {
				r.healed++
				r.untold++
			}
		default: // it is not known, or was refused for now
			return i, fmt.Errorf("row %d: %w", row.ID, err)
		}
	}
	r.batchLimit = min(2*r.batchLimit, maxBatch)
	return len(results), nil
}

// tooLarge says whether a server refuses an argument for its size (proto-max-bulk-len).
func tooLarge(err error) bool {
	return err != nil && strings.Contains(err.Error(), "invalid bulk length")
}

// unsendable settles the first rows, which cannot be sent for this reason. Those that Redis had taken and forgotten,
// and that have expired since then, count as sent.
func (r *relay) unsendable(ctx context.Context, rows []Row, why error) (done int, err error) {
	had := func(row *Row) bool { return row.number <= r.forgot && errors.Is(why, delayqueue.ErrExpired) }
	for done = 1; done < len(rows); done++ {
		row := &rows[done]
		_, also := row.outgoing(r.sequence, row.ageNow())
		if also == nil || also.Error() != why.Error() || row.Cancel && row.broken == nil || had(row) != had(&rows[0]) {
			break
		}
	}
	if had(&rows[0]) {
		return done, r.pass(ctx, &rows[done-1])
	}
	return done, r.markDead(ctx, rows[:done], why)
}

// reached is how far Redis must have come, or else it has forgotten what was sent.
func (r *relay) reached() map[string]int64 {
	if r.last == 0 {
		return nil
	}
	return map[string]int64{r.sequence: r.last}
}

// maxGroups is how many messages of one key a cancel takes out.
const maxGroups = 1000

// cancel takes out the message of a key. The sequence passes the number of the row only after that. If the process
// dies between, the cancel is repeated, and no later row was sent before.
//
// It names the message by its id, which it looks up before it sees that the sequence has not come to this row. So the
// message is none that was sent after this row, also if another Box goes on while this one is frozen.
func (r *relay) cancel(ctx context.Context, row *Row) error {
	ctx, stop := context.WithTimeout(ctx, callTime)
	defer stop()
	for range maxGroups {
		found, err := r.monitor.GetKey(ctx, row.Payload)
		if errors.Is(err, delayqueue.ErrNotFound) || errors.Is(err, delayqueue.ErrNoQueue) {
			break
		}
		if err != nil {
			return err
		}
		last, err := r.monitor.Sequence(ctx, r.sequence)
		if err != nil && !errors.Is(err, delayqueue.ErrNotFound) {
			return err
		}
		if last >= row.number {
			r.last = row.number
			return nil
		}
		if _, err := r.queue.Cancel(ctx, found.ID); err != nil { // if it has gone meanwhile, the next look says so
			return err
		}
	}
	return r.pass(ctx, row)
}

// pass moves the sequence on to a row that is not sent.
func (r *relay) pass(ctx context.Context, row *Row) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	before, err := r.monitor.PassSequence(script.WithReached(ctx, r.reached()), r.sequence, row.number)
	if err != nil && !errors.Is(err, delayqueue.ErrNotFound) {
		return err
	}
	if before < r.last { // it did not pass
		return errForgot
	}
	r.last = row.number
	return nil
}

// refuse deletes the row of a message that was refused, and tells that. A message that Redis had taken was not refused
// then: another one has the key again that Redis had forgotten to be done. So its row is dead, and not deleted.
func (r *relay) refuse(ctx context.Context, row *Row, why error) error {
	if row.number <= r.forgot {
		why = fmt.Errorf("redis had taken it, and has gone back to when another message had its key: %w", why)
		return r.markDead(ctx, []Row{*row}, why)
	}
	_, err := r.changeRows(ctx, change{
		set: "refused = refused + 1", rows: r.box.dialect.delete + " WHERE {ids}", ids: []int64{row.ID},
	})
	if err != nil {
		return err
	}
	err = r.pass(ctx, row) // or else a Box that was frozen may send it, when its key is free
	for _, f := range r.box.refusals() {
		r.box.call(func() { f(Refusal{Row: *row, Error: why}) })
	}
	return err
}

// markDead sets rows aside that can never be sent, with the reason.
func (r *relay) markDead(ctx context.Context, rows []Row, why error) error {
	ids := make([]int64, len(rows))
	for i := range rows {
		ids[i] = rows[i].ID
	}
	text := fmt.Sprintf("%.1000s", legible(why.Error()))
	dead := func(text string) (int64, error) {
		return r.changeRows(ctx, change{
			set: "holder = ?", to: []any{r.box.id}, // as it is
			rows: "UPDATE {prefix}outbox{by} SET number = 0, error = ? WHERE number > 0 AND {ids}",
			args: []any{text}, ids: ids,
		})
	}
	n, err := dead(text)
	if err != nil && !errors.Is(err, errLost) {
		n, err = dead(strconv.QuoteToASCII(text)) // not each database takes all characters
	}
	if err != nil {
		return err
	}
	r.deadRows += int(n)
	r.lastDead = fmt.Errorf("row %d: %w", ids[len(ids)-1], why)
	return r.pass(ctx, &rows[len(rows)-1])
}

// logDead logs how many rows have died, at most once a minute.
func (r *relay) logDead() {
	if r.deadRows == 0 || time.Since(r.deadLogged) < time.Minute {
		return
	}
	r.box.log.Error("outbox: rows are dead: see Box.Dead", slog.String("queue", r.name), slog.Int("rows", r.deadRows),
		slog.Any("last", r.lastDead))
	r.deadRows, r.deadLogged = 0, time.Now()
}

// legible is a text that each database takes.
func legible(text string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "\uFFFD")
}

// call calls a function of the user's. It has a goroutine of its own, which it may end.
func (b *Box) call(f func()) {
	var done sync.WaitGroup
	done.Go(func() {
		defer func() {
			if p := recover(); p != nil {
				b.log.Error("outbox: a function of OnRefused or OnHealed panics", slog.Any("panic", p))
			}
		}()
		f()
	})
	done.Wait()
}
