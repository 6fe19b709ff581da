package web

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/health"
	"github.com/go-delayqueue/delayqueue/ops"
)

// The board has a row for each queue, the worst first.

// A row is what it shows of one.
type row struct {
	*health.Look
	Verdict       verdict
	Others        []verdict // what else is wrong
	In, Out       health.Rate
	Failing       health.Percent
	Busy, Workers int
	Recent        ops.Tally // of this hour and the one before
}

// A board is all rows.
type board struct {
	*snapshot
	Rows  []row
	Level health.Level // of the worst
	Words string
	Lost  string // whether messages were lost in any of the queues
	Mend  string // why queues may be missing
	Sick  bool   // the servers are in trouble
	Since string // from when on what fails, and new garbage, are counted
	Name  string // what the names of the rows contain
}

// longestName is what is looked for at most.
const longestName = 500 // bytes

func (h *Handler) board(ctx context.Context, r *request) (any, error) {
	s, err := h.poller.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	b := &board{snapshot: s}
	for _, q := range health.WorstFirst(s.Queues) {
		if _, err := r.may(Look, q.Name); err == nil {
			b.Rows = append(b.Rows, r.lang.row(q))
		}
		if len(q.Hours) > 0 {
			b.Since = r.lang.clock(q.Recent().Start)
		}
	}
	b.judge(r.lang)
	b.Sick = s.Servers == health.Critical
	if b.Name = strings.TrimSpace(r.Arg("name")); b.Name != "" {
		b.Name = b.Name[:min(len(b.Name), longestName)]
		err = b.find(ctx, r)
	}
	return b, err
}

// find leaves the rows whose names contain a text. One of just that name is looked for if there are more queues than
// are shown.
func (b *board) find(ctx context.Context, r *request) error {
	b.Rows = slices.DeleteFunc(b.Rows, func(row row) bool {
		return !strings.Contains(strings.ToLower(row.Name), strings.ToLower(b.Name))
	})
	if b.queue(b.Name) != nil || !r.h.known(b.Name) {
		return nil
	}
	if _, err := r.may(Look, b.Name); err != nil {
		return nil
	}
	q, err := r.h.look(ctx, b.Name)
	if errors.Is(err, errNoQueue) {
		return nil
	}
	if err == nil {
		b.Rows = append([]row{r.lang.row(q)}, b.Rows...)
	}
	return err
}

// row is of one queue.
func (l *language) row(q *health.Look) row {
	found := q.Findings()
	out := row{Look: q, Verdict: l.verdict(q, found[0]), Failing: -1}
	for _, v := range found[1:] {
		out.Others = append(out.Others, l.verdict(q, v))
	}
	if q.Err != nil {
		return out
	}
	out.In, out.Out = q.Rates()
	out.Recent = q.Recent()
	out.Failing = health.Failing(out.Recent)
	out.Busy, out.Workers = q.Workers()
	return out
}

// judge says in a sentence how all are.
func (b *board) judge(l *language) {
	bad, worth := 0, 0
	for _, r := range b.Rows {
		b.Level = max(b.Level, r.Verdict.Level)
		switch r.Verdict.Level {
		case health.Critical:
			bad++
		case health.Warning:
			worth++
		}
	}
	if b.Trouble != nil {
		b.Mend = l.trouble(b.Trouble)
		b.Level = max(b.Level, health.Warning)
	}
	b.Lost = l.lost(b.Rows)
	all := l.number(len(b.Rows))
	if b.Hidden {
		b.Level = max(b.Level, health.Notice)
	}
	switch {
	case len(b.Rows) == 0 && b.Trouble == nil:
		b.Words = l.say("There is no queue yet")
	case bad > 0 && worth > 0:
		b.Words = l.say("Queues in trouble: %s, to look at: %s, of %s", l.number(bad), l.number(worth), all)
	case bad > 0:
		b.Words = l.say("Queues in trouble: %s of %s", l.number(bad), all)
	case worth > 0:
		b.Words = l.say("Queues to look at: %s of %s", l.number(worth), all)
	case b.Trouble != nil:
		b.Words = l.say("Queues may be missing")
	case b.Hidden:
		b.Words = l.say("All is well with the %s queues that are shown", all)
	default:
		b.Words = l.say("All is well. Queues: %s", all)
	}
	if b.Trouble != nil && bad+worth > 0 {
		b.Words = l.say("%s. More queues may be missing", b.Words)
	}
}

// lost says in how many queues messages were lost, or from when on it is known that none was.
func (l *language) lost(rows []row) string {
	lost, all := 0, make([]*health.Look, len(rows))
	for i, r := range rows {
		if all[i] = r.Look; r.Counts.Unaccounted > 0 || !r.Counts.LossSince.IsZero() {
			lost++
		}
	}
	if lost > 0 {
		return l.say("Queues that have lost messages: %s", l.number(lost))
	}
	return l.text(health.NoLoss(all, func(t time.Time) string { return l.clockOf(t, "2006-01-02 15:04:05") }))
}
