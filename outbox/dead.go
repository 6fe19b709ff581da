package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Dead returns rows that can never be sent, by their ids, behind the row with the id after. It returns at most limit,
// and fewer if they are large: those that follow come behind the last one. Error says why: an option that is wrong,
// too large a payload, a TTL or deadline that was over before Redis could be reached. Dead rows stay until Requeue, or
// until somebody deletes them.
func (b *Box) Dead(ctx context.Context, after int64, limit int) ([]Row, error) {
	if limit < 1 {
		return nil, fmt.Errorf("outbox: Dead: a limit of %d", limit)
	}
	args := []any{after}
	for _, r := range b.relays {
		args = append(args, r.name)
	}
	rows, err := b.rows(ctx, "WHERE number = 0 AND id > ? AND queue IN (?"+strings.Repeat(", ?", len(b.relays)-1)+
		") ORDER BY id LIMIT ?", append(args, limit)...)
	if err != nil {
		return nil, fmt.Errorf("outbox: dead rows: %w", err)
	}
	return rows, nil
}

// Requeue has dead rows sent, in the order of their ids, and says how many of these ids were dead. What is wrong with
// them must have been mended: by an UPDATE of the row, or by a program that knows its options.
func (b *Box) Requeue(ctx context.Context, ids ...int64) (int64, error) {
	if len(ids) == 0 {
		return 0, nil
	}
	query, args := b.dialect.withIDs(
		"UPDATE {prefix}outbox{by} SET number = NULL, error = NULL WHERE number = 0 AND {ids}", ids)
	n, err := b.exec(ctx, b.db, query, args...)
	if err != nil {
		return 0, fmt.Errorf("outbox: requeue: %w", err)
	}
	b.Committed()
	return n, nil
}

// Stats says how a queue of the outbox does.
type Stats struct {
	Queue   string
	Waiting int64         // rows that are not in Redis yet, without dead ones
	Oldest  time.Duration // how long the oldest of them has waited, by the database's clock
	Dead    int64         // rows that can never be sent
	Sent    int64         // messages, in all; each counts again when it is healed
	Healed  int64         // messages that Redis had forgotten, in all
	Refused int64         // messages that were refused because of their key, in all
	Relayed bool          // some Box relays the queue
}

// Health is a line for the person on call: "fine", or what is wrong and what to do, the most urgent first. Dead rows
// are wrong. Rows that have waited for more than a minute are wrong, because the Box that relays looks once a second,
// and is replaced within some five seconds. A queue that no Box relays is fine while no row has waited for so long.
func (s Stats) Health() string {
	const late = time.Minute
	var wrong []string
	if s.Waiting > 0 && s.Oldest > late {
		waits := fmt.Sprintf("%s, the oldest for %v", countRows(s.Waiting, "waits", "wait"), s.Oldest.Round(time.Second))
		if s.Relayed {
			wrong = append(wrong, waits+": see the log of the box that relays, if Redis answers, and if a table is locked")
		} else {
			wrong = append(wrong, "no box relays, and "+waits+": call Box.Run for this queue in some process")
		}
	}
	if s.Dead > 0 {
		wrong = append(wrong, countRows(s.Dead, "is", "are")+" dead: see Box.Dead")
	}
	return cmp.Or(strings.Join(wrong, "; "), "fine")
}

// countRows is "1 row is" or "1,234 rows are".
func countRows(n int64, one, many string) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	if n == 1 {
		return text + " row " + one
	}
	return text + " rows " + many
}

// Stats returns what there is to say of each queue that has rows, or had any, by name. It counts the rows that wait.
func (b *Box) Stats(ctx context.Context) ([]Stats, error) {
	stats, err := b.stats(ctx)
	if err != nil {
		return nil, fmt.Errorf("outbox: stats: %w", err)
	}
	return stats, nil
}

// stats reads no row that was sent, because there may be millions, and each scrape of metrics asks. The row with the
// lowest id or number stands for the oldest one, because an index finds it.
func (b *Box) stats(ctx context.Context) ([]Stats, error) {
	found, confirmed := map[string]*Stats{}, map[string]int64{}
	err := b.each(ctx, func(got *sql.Rows) error {
		var s Stats
		var number int64
		err := got.Scan(&s.Queue, &number, &s.Sent, &s.Healed, &s.Refused, &s.Relayed)
		found[s.Queue], confirmed[s.Queue] = &s, number
		return err
	}, "SELECT queue, confirmed, sent, healed, refused, until_us > {now} AND until_us <= {now} + ? "+
		"FROM {prefix}outbox_queues", 2*lease.Microseconds())
	for queue, more := "", true; more && err == nil; { // those that no Box has relayed yet are not in outbox_queues
		if found[queue] == nil && queue != "" {
			found[queue] = &Stats{Queue: queue}
		}
		more = false
		err = b.each(ctx, func(got *sql.Rows) error { more = true; return got.Scan(&queue) },
			"SELECT queue FROM {prefix}outbox WHERE queue > ?{waiting} ORDER BY queue LIMIT 1", queue)
	}
	if err != nil {
		return nil, err
	}
	var stats []Stats
	for _, queue := range slices.Sorted(maps.Keys(found)) {
		s := found[queue]
		if err := b.count(ctx, s, confirmed[queue]); err != nil {
			return nil, err
		}
		stats = append(stats, *s)
	}
	return stats, nil
}

// count counts the rows of a queue that are dead, and those that wait: without a number, or not confirmed.
func (b *Box) count(ctx context.Context, s *Stats, confirmed int64) error {
	for _, of := range []struct {
		where, by string
		args      []any
	}{
		{"queue = ? AND number IS NULL", "id", []any{s.Queue}},
		{"queue = ? AND number > ?", "number", []any{s.Queue, confirmed}},
	} {
		var n, us int64
		err := b.one(ctx, []any{&n, &us}, "SELECT COUNT(*), COALESCE((SELECT {now} - created_us FROM "+
			"{prefix}outbox WHERE "+of.where+" ORDER BY "+of.by+" LIMIT 1), 0) FROM {prefix}outbox WHERE "+of.where,
			append(of.args, of.args...)...)
		if err != nil {
			return err
		}
		s.Waiting, s.Oldest = s.Waiting+n, max(s.Oldest, time.Duration(us)*time.Microsecond)
	}
	return b.one(ctx, []any{&s.Dead}, "SELECT COUNT(*) FROM {prefix}outbox WHERE queue = ? AND number = 0", s.Queue)
}

// each calls f for each row of the answer.
func (b *Box) each(ctx context.Context, f func(*sql.Rows) error, query string, args ...any) error {
	got, err := b.db.QueryContext(ctx, b.dialect.fill(query), args...)
	if err != nil {
		return b.failed(err)
	}
	defer got.Close()
	for got.Next() {
		if err := f(got); err != nil {
			return b.failed(err)
		}
	}
	if err := got.Err(); err != nil {
		return b.failed(err)
	}
	return nil
}
