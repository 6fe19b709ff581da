package web

import (
	"context"
	"errors"
	"regexp"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/journal"
	"github.com/go-delayqueue/delayqueue/ops"
)

const (
	journalRows = 50
	journalMost = 200 // if only acts between two instants are wanted
)

// A journalView is a page of the journal.
type journalView struct {
	Rows     []journalRow // the newest first
	Next     string       // address of the older ones
	From, To time.Time    // between which the acts are, both included; zero: no bound
}

// A journalRow is an entry.
type journalRow struct {
	ops.JournalEntry
	Phase string // of a job, in words
	Job   string // its address
}

// payloadWanted is the part of an entry's detail that says what the payloads of its messages contain. Of a long
// detail the end is missing, and perhaps that of this part.
var payloadWanted = regexp.MustCompile(`payload "(?:[^"\\]|\\.)*(?:"|\\?$)`)

func (h *Handler) journal(ctx context.Context, r *request) (any, error) {
	v := &journalView{}
	var err error
	if v.From, v.To, err = r.fromTo(); err == nil && !v.To.IsZero() && v.To.Before(v.From) {
		err = errNoSpan
	}
	if err != nil {
		return nil, err
	}
	cursor := r.Arg("cursor")
	for more := true; more; { // Redis keeps the last 1,000 acts, so there are few pages
		page, err := h.journalPage(ctx, r, cursor, !v.From.IsZero() || !v.To.IsZero())
		if errors.Is(err, ops.ErrBadCursor) {
			err = errNoPage
		}
		if err != nil {
			return nil, err
		}
		cursor = page.Next
		for _, entry := range page.Entries {
			switch {
			case entry.At.Before(v.From):
				cursor = ""
			case v.To.IsZero() || !entry.At.After(v.To):
				v.Rows = append(v.Rows, h.journalRow(r, entry))
			}
		}
		more = len(v.Rows) == 0 && cursor != ""
	}
	if cursor != "" {
		pairs := []any{"q", r.Queue, "cursor", cursor}
		for name, at := range map[string]time.Time{"from": v.From, "to": v.To} {
			if !at.IsZero() {
				pairs = append(pairs, name, instantText(at))
			}
		}
		v.Next = linkOf("journal", nil, pairs...)
	}
	return v, nil
}

// journalPage reads a page. Only the first one of the whole journal is kept: anybody can make up a cursor, and bounds.
func (h *Handler) journalPage(ctx context.Context, r *request, cursor string, bounded bool) (*ops.JournalPage, error) {
	rows := journalRows
	if bounded {
		rows = journalMost
	}
	read := func(ctx context.Context) (*ops.JournalPage, error) { return r.Monitor().Journal(ctx, rows, cursor) }
	if cursor == "" && !bounded {
		return shared(ctx, h, "journal\x00"+r.Queue, 2*time.Second, read)
	}
	return read(ctx)
}

func (h *Handler) journalRow(r *request, entry ops.JournalEntry) journalRow {
	one := journalRow{JournalEntry: entry}
	h.hide(&one.JournalEntry)
	if b := entry.Bulk; b != nil {
		one.Phase, one.Job = r.lang.phase(b), jobLink(r.Queue, entry.ID)
	}
	return one
}

// hide takes what was looked for in payloads out of the entry of a job, if payloads are hidden.
func (h *Handler) hide(e *ops.JournalEntry) {
	if h.cfg.Payload != nil && e.Bulk != nil {
		e.Detail = payloadWanted.ReplaceAllString(e.Detail, "payload …")
	}
}

// act is what somebody did, in words. An act that another program made up is shown as it is.
func (l *language) act(a string) string { return l.say(shown(a)) }

// phase is how a job stands, in words.
func (l *language) phase(b *ops.BulkState) string {
	switch {
	case b.Interrupted():
		return l.say("interrupted after %s of %s", l.number(b.Looked), l.number(b.Total))
	case b.Phase == journal.Running && b.StopAsked:
		return l.say("running, asked to stop")
	case b.Phase == journal.Finished, b.Phase == journal.Failed && b.Looked >= b.Total:
		if n, of := journal.InShards(b.Error); of != "" {
			return l.say("done in %s of %s shards", n, of)
		}
	}
	return l.say(string(b.Phase))
}
