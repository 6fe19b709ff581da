package schedule

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/go-delayqueue/delayqueue/internal/journal"
)

// changed tells the journal and the log what has become of an entry.
func (s *Scheduler) changed(ctx context.Context, name string, old, to *record) {
	act, detail := journal.SetSchedule, ""
	switch {
	case to.Removed:
		act = journal.RemoveSchedule
	case old == nil || old.Removed || old.unreadable != nil:
		detail = "new: " + to.inWords()
	case old.Paused != to.Paused && to.Paused:
		act = journal.PauseSchedule
	case old.Paused != to.Paused:
		act = journal.ResumeSchedule
	default:
		detail = old.changes(to)
	}
	s.log.Info("schedule: an entry was changed", slog.String("queue", s.Name()), slog.String("entry", name),
		slog.String("act", string(act)), slog.String("detail", detail))
	s.journal.Note(ctx, act, name, detail)
}

// inWords says when an entry comes.
func (w *times) inWords() string {
	text := "cron " + w.Cron
	if w.Cron == "" {
		text = fmt.Sprintf("every %v", seconds(w.Every))
	}
	for _, more := range []struct {
		said bool
		text string
	}{
		{w.Zone != "", " in " + w.Zone},
		{w.Offset != 0, fmt.Sprintf(" + %v", seconds(w.Offset))},
		{w.Jitter != 0, fmt.Sprintf(", jitter %v", seconds(w.Jitter))},
		{w.Begin != 0, fmt.Sprintf(", from unix second %d", w.Begin)},
		{w.End != 0, fmt.Sprintf(", to unix second %d", w.End)},
	} {
		if more.said {
			text += more.text
		}
	}
	return text
}

// changes says in what two records differ; of payloads and options only that they do.
func (r *record) changes(to *record) string {
	var parts []string
	if r.times != to.times {
		parts = append(parts, r.inWords()+" becomes "+to.inWords())
	}
	if string(r.Payload) != string(to.Payload) {
		parts = append(parts, "the payload")
	}
	if r.Overlap != to.Overlap {
		parts = append(parts, fmt.Sprintf("overlap %v becomes %v", r.Overlap, to.Overlap))
	}
	if r.CatchUp != to.CatchUp {
		parts = append(parts, fmt.Sprintf("catch-up %d becomes %d", max(r.CatchUp, 0), max(to.CatchUp, 0)))
	}
	if a, b := (plan{Options: r.Options}),
		(plan{Options: to.Options}); (&record{plan: a}).text() != (&record{plan: b}).text() {
		parts = append(parts, "options")
	}
	if r.Program != to.Program {
		parts = append(parts, fmt.Sprintf("program %q becomes %q", r.Program, to.Program))
	}
	return strings.Join(parts, "; ")
}
