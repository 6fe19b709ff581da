package web

import (
	"context"
	"errors"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

const (
	searchBudget = 10_000 // messages that are looked at for one page
	searchPage   = 500    // of which so many are read at a time
)

// search fills a page with what Monitor.Find finds until it is full or its budget is spent. What the service hides is not looked at.
func (r *request) search(ctx context.Context, l *listing) error {
	m, cursor := r.Monitor(), r.Arg("cursor")
	how := delayqueue.Find{Messages: searchPage, NoPayload: r.h.cfg.Payload != nil}
	if l.State != delayqueue.StateGone {
		how.States = []delayqueue.State{l.State}
	}
	l.Hidden = how.NoPayload
	end, atOnce := time.Now().Add(budgetSpend), false
	for looked := 0; ; {
		how.Limit = pageRows - len(l.Rows)
		found, err := m.Find(ctx, l.Text, how, cursor)
		if errors.Is(err, delayqueue.ErrBadCursor) {
			return &httpError{400, "That is no page of a search"}
		}
		if err != nil {
			return err
		}
		for _, match := range found.Matches {
			one := r.row(match.MessageStatus)
			one.Found = r.lang.place(match)
			l.Rows = append(l.Rows, one)
		}
		atOnce = cursor == "" && len(found.Matches) > 0 && found.Looked == 0 // its id or its key
		looked += searchPage
		l.Looked, l.Total, cursor = found.Looked, max(found.Total, found.Looked), found.Next
		if cursor == "" || atOnce || len(l.Rows) >= pageRows || looked >= searchBudget || time.Now().After(end) {
			break
		}
	}
	l.Onwards = cursor != "" && !atOnce && len(l.Rows) < pageRows
	if cursor != "" {
		l.Next = l.Link("messages", "cursor", cursor)
	}
	return nil
}

// place says where in a message the text was found.
func (l *language) place(m delayqueue.Match) string {
	switch m.In {
	case "id":
		return l.say("its id")
	case "key":
		return l.say("its key")
	case "header":
		return l.say("its header %s", shown(m.Header))
	case "payload":
		return l.say("its payload")
	}
	return l.say("its last error")
}
