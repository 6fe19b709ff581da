package web

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// A search looks for a text in all that messages have, page by page, until its budget is spent; it goes on from its cursor. Which
// message has it as its id or its key is known at once.

const (
	searchBudget = 20_000 // messages that are looked at for one page
	searchPage   = 500    // of which so many are read at a time
)

// searched are the states in the order in which they are looked through: where something is wrong first.
var searched = []delayqueue.State{
	delayqueue.StateGarbage, delayqueue.StateRetry, delayqueue.StateUnack, delayqueue.StateReady, delayqueue.StatePending, delayqueue.StateDone,
}

// A spot is where a search goes on.
type spot struct {
	state  int // of searched
	looked int64
	cursor string // of the state's list
}

func (s spot) String() string { return fmt.Sprintf("%d.%d.%s", s.state, s.looked, s.cursor) }

func spotOf(text string) (s spot, err error) {
	parts := strings.SplitN(text, ".", 3)
	if len(parts) != 3 {
		return s, delayqueue.ErrBadCursor
	}
	s.cursor = parts[2]
	if s.state, err = strconv.Atoi(parts[0]); err == nil {
		s.looked, err = strconv.ParseInt(parts[1], 10, 64)
	}
	if err != nil || s.state < 0 || s.state >= len(searched) {
		return s, delayqueue.ErrBadCursor
	}
	return s, nil
}

// search fills a page with what it finds.
func (r *request) search(ctx context.Context, l *listing, counts delayqueue.Counts) (err error) {
	l.Hidden, l.Total = r.h.cfg.Payload != nil, totalOf(counts, l.State)
	at := spot{}
	if cursor := r.Arg("cursor"); cursor != "" {
		if at, err = spotOf(cursor); err != nil {
			return &httpError{400, "That is no page of a search"}
		}
	} else if found, err := r.named(ctx, l); found || err != nil {
		l.Next = l.Link("messages", "cursor", at.String())
		return err
	}
	end, begun := time.Now().Add(budgetSpend), at.looked
	for ; at.state < len(searched); at = (spot{at.state + 1, at.looked, ""}) {
		if l.State != delayqueue.StateGone && l.State != searched[at.state] {
			continue
		}
		full := func() bool {
			return len(l.Rows) >= pageRows || at.looked-begun >= searchBudget || time.Now().After(end)
		}
		if err := r.searchState(ctx, l, &at, full); err != nil {
			return err
		}
		if at.cursor != "" {
			break
		}
	}
	l.Looked, l.Total = at.looked, max(l.Total, at.looked)
	if at.state < len(searched) {
		l.Next = l.Link("messages", "cursor", at.String())
	}
	return nil
}

// searchState looks through one state until its end, where the cursor is empty, or until the page is full.
func (r *request) searchState(ctx context.Context, l *listing, at *spot, full func() bool) error {
	m := r.Monitor()
	for {
		page, err := m.List(ctx, searched[at.state], delayqueue.Filter{Limit: searchPage}, at.cursor)
		if err != nil {
			return err
		}
		at.looked += int64(page.Looked)
		for _, msg := range page.Messages {
			if in := r.foundIn(msg, l.Text); in != "" {
				one := r.row(msg)
				one.Found = in
				l.Rows = append(l.Rows, one)
			}
		}
		if at.cursor = page.Next; at.cursor == "" || full() {
			return nil
		}
	}
}

// named looks whether the text is the id or the key of a message.
func (r *request) named(ctx context.Context, l *listing) (found bool, err error) {
	m := r.Monitor()
	for _, by := range []struct {
		get func(context.Context, string) (*delayqueue.MessageStatus, error)
		in  string
	}{{m.Get, r.lang.say("its id")}, {m.GetKey, r.lang.say("its key")}} {
		msg, err := by.get(ctx, l.Text)
		if errors.Is(err, delayqueue.ErrNotFound) {
			continue
		}
		if err != nil {
			return false, err
		}
		one := r.row(msg)
		one.Found = by.in
		l.Rows = append(l.Rows, one)
	}
	return len(l.Rows) > 0, nil
}

// foundIn says where in a message the text is, "" for nowhere. What the service hides is not looked at.
func (r *request) foundIn(m *delayqueue.MessageStatus, text string) string {
	switch {
	case strings.Contains(m.ID, text):
		return r.lang.say("its id")
	case strings.Contains(m.Key, text):
		return r.lang.say("its key")
	case strings.Contains(m.LastError, text):
		return r.lang.say("its last error")
	}
	var names []string
	for name, value := range m.Headers {
		if strings.Contains(value, text) || strings.Contains(name, text) {
			names = append(names, name)
		}
	}
	if len(names) > 0 {
		return r.lang.say("its header %s", shown(slices.Min(names)))
	}
	if r.h.cfg.Payload == nil && strings.Contains(m.Payload, text) {
		return r.lang.say("its payload")
	}
	return ""
}

func totalOf(c delayqueue.Counts, s delayqueue.State) int64 {
	all := map[delayqueue.State]int64{
		delayqueue.StatePending: c.Pending, delayqueue.StateReady: c.Ready, delayqueue.StateUnack: c.Unack,
		delayqueue.StateRetry: c.Retry, delayqueue.StateGarbage: c.Garbage, delayqueue.StateDone: c.Done,
	}
	if s != delayqueue.StateGone {
		return all[s]
	}
	return c.Pending + c.Ready + c.Unack + c.Retry + c.Garbage + c.Done
}
