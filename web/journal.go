package web

import (
	"context"
	"errors"
	"regexp"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/journal"
	"github.com/go-delayqueue/delayqueue/ops"
)

const journalRows = 50

// A journalView is a page of the journal.
type journalView struct {
	Rows []journalRow // the newest first
	Next string       // address of the older ones
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
	read := func(ctx context.Context) (*ops.JournalPage, error) {
		return r.Monitor().Journal(ctx, journalRows, r.Arg("cursor"))
	}
	var page *ops.JournalPage
	var err error
	if r.Arg("cursor") == "" {
		page, err = shared(ctx, h, "journal\x00"+r.Queue, 2*time.Second, read)
	} else { // which anybody can make up: it is not kept
		page, err = read(ctx)
	}
	if errors.Is(err, ops.ErrBadCursor) {
		err = errNoPage
	}
	if err != nil {
		return nil, err
	}
	v := &journalView{}
	for _, entry := range page.Entries {
		one := journalRow{JournalEntry: entry}
		h.hide(&one.JournalEntry)
		if b := entry.Bulk; b != nil {
			one.Phase, one.Job = r.lang.phase(b), jobLink(r.Queue, entry.ID)
		}
		v.Rows = append(v.Rows, one)
	}
	if page.Next != "" {
		v.Next = linkOf("journal", nil, "q", r.Queue, "cursor", page.Next)
	}
	return v, nil
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
	}
	return l.say(string(b.Phase))
}
