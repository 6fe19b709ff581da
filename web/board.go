package web

import (
	"context"

	"github.com/go-delayqueue/delayqueue/internal/health"
)

// The board has a row for each queue, the worst first.

// A row is what it shows of one.
type row struct {
	*health.Look
	Verdict       verdict
	In, Out       health.Rate
	Failing       health.Percent
	Busy, Workers int
	Garbage       int64 // that came in the last hour
}

// A board is all rows.
type board struct {
	*snapshot
	Rows  []row
	Level health.Level // of the worst
	Words string
	Mend  string // why queues may be missing
}

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
	}
	b.judge(r.lang)
	return b, nil
}

// row is of one queue.
func (l *language) row(q *health.Look) row {
	out := row{Look: q, Verdict: l.verdict(q), Failing: -1}
	if q.Err != nil {
		return out
	}
	out.In, out.Out = q.Rates()
	out.Failing = health.Failing(q.LastHour())
	out.Busy, out.Workers = q.Workers()
	out.Garbage = q.LastHour().Garbage
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
	switch {
	case len(b.Rows) == 0 && b.Trouble == nil:
		b.Words = l.say("There is no queue yet")
	case bad > 0:
		b.Words = l.say("Queues in trouble: %s", l.number(bad))
	case worth > 0:
		b.Words = l.say("Queues to look at: %s", l.number(worth))
	case b.Trouble != nil:
		b.Words = l.say("Queues may be missing")
	default:
		b.Words = l.say("All is well")
	}
}
