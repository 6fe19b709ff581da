package web

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/ops"
)

const (
	pageRows    = 50   // messages of a page
	listBudget  = 2000 // that are looked at for one
	budgetSpend = time.Second
)

// longestLink bounds what a selection takes in an address, of which a proxy may pass on 8 KB.
const longestLink = 4000 // bytes

var errNoState = &httpError{http.StatusBadRequest, "There is no such state"}

var errLong = &httpError{http.StatusBadRequest, "This text is too long for an address: look for a part of it"}

// states are those in which messages are listed, in the order of the tabs.
var states = []delayqueue.State{
	delayqueue.StatePending, delayqueue.StateReady, delayqueue.StateWaiting, delayqueue.StateUnack, delayqueue.StateRetry,
	delayqueue.StateGarbage, delayqueue.StateDone,
}

func stateNamed(name string) delayqueue.State {
	for _, s := range states {
		if s.String() == name {
			return s
		}
	}
	return delayqueue.StateGone
}

// A selection says which messages are meant, by the query of a page.
type selection struct {
	State  delayqueue.State // StateGone: all
	Text   string           // anywhere
	Filter ops.Filter
	Header string // name=text
	query  url.Values
}

// selectionNames are the names of the query that make a selection.
var selectionNames = []string{
	"state", "text", "key", "lane", "contains", "error", "errorhow", "like", "header", "headerhow", "from", "to",
}

func (r *request) selection() (*selection, error) {
	s := &selection{State: stateNamed(r.Arg("state")), Text: strings.TrimSpace(r.Arg("text")),
		query: url.Values{"q": {r.Queue}}}
	for _, name := range selectionNames {
		if value := r.Arg(name); value != "" {
			s.query.Set(name, value)
		}
	}
	for _, name := range []string{"error", "header"} {
		if r.Arg(name) == "" {
			s.query.Del(name + "how")
		}
	}
	for _, name := range []string{"error", "like", "header"} { // forms write line ends as CR LF
		if value := strings.ReplaceAll(r.Arg(name), "\r\n", "\n"); value != "" {
			s.query.Set(name, value)
		}
	}
	s.Filter = ops.Filter{Key: r.Arg("key"), Lane: r.Arg("lane"), Contains: r.Arg("contains"),
		ErrorLike: s.query.Get("like")}
	if s.Part("error") {
		s.Filter.ErrorContains = s.query.Get("error")
	} else {
		s.Filter.Error = s.query.Get("error")
	}
	if s.Header = r.Arg("header"); s.Header != "" {
		name, text, _ := strings.Cut(s.Header, "=")
		headers := map[string]string{strings.TrimSpace(name): strings.TrimSpace(text)}
		if s.Part("header") {
			s.Filter.HeadersContain = headers
		} else {
			s.Filter.Headers = headers
		}
	}
	if name := r.Arg("state"); s.State == delayqueue.StateGone && name != "" {
		return nil, errNoState
	}
	if r.h.cfg.Payload != nil && s.Filter.Contains != "" {
		return nil, errHidden
	}
	if len(s.query.Encode()) > longestLink {
		return nil, errLong
	}
	from, to, err := r.fromTo()
	if err != nil {
		return nil, err
	}
	s.Filter.From, s.Filter.To = from, to
	for name, at := range map[string]time.Time{"from": from, "to": to} {
		if !at.IsZero() {
			s.query.Set(name, instantText(at))
		}
	}
	return s, nil
}

// Part says whether only a part of the error, or of the header, was given.
func (s *selection) Part(name string) bool { return s.query.Get(name+"how") == "contains" }

// ErrorText is the text that is looked for in errors.
func (s *selection) ErrorText() string { return s.query.Get("error") }

// instantOf reads an instant, in that zone if the text names none.
func instantOf(text string, zone *time.Location) (t time.Time, err error) {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04", "2006-01-02T15:04:05", "2006-01-02 15:04",
		"2006-01-02"} {
		if t, err = time.ParseInLocation(layout, text, zone); err == nil {
			return t, nil
		}
	}
	return t, err
}

// Everywhere says whether messages of all states are meant.
func (s *selection) Everywhere() bool { return s.State == delayqueue.StateGone }

// Narrow says whether only some messages of a state are meant.
func (s *selection) Narrow() bool {
	return slices.ContainsFunc(selectionNames[2:], s.query.Has)
}

// Some says whether only some messages of a state, or of all states, are meant.
func (s *selection) Some() bool { return s.Narrow() || s.Text != "" }

// Link is the address of a page about these messages.
func (s *selection) Link(page string, pairs ...any) string { return linkOf(page, s.query, pairs...) }

// Full is how many messages fill a page.
func (l *listing) Full() int { return pageRows }

// Pairs are names and values for a form.
func (s *selection) Pairs() (all []fact) {
	for _, name := range selectionNames {
		if value := s.query.Get(name); value != "" {
			all = append(all, fact{name, value})
		}
	}
	return all
}

// A listing is a page of messages.
type listing struct {
	*selection
	Tabs    []tab
	Rows    []messageRow
	Verbs   []verb // for ticked messages and, on a list, for all that match
	Looked  int64  // by this page and the pages before
	Total   int64  // messages of a search or a narrow list; 0: of a whole list
	Onwards bool   // the script goes on by itself
	Next    string // address of the next page
	Go      string // why: a key of the catalogue
	Orders  []tab  // both, of a list
	Hidden  bool   // payloads were not searched
}

// A tab is a state.
type tab struct {
	State      delayqueue.State
	Name, Link string
	Count      int64
	Here       bool
}

// A messageRow is a message, without what may be large.
type messageRow struct {
	*ops.MessageStatus
	Place   string // the state in words
	Headers []headerLink
	Says    string // the beginning of its payload
	Error   string // of its last error
	Found   string // where the text was found
}

func (h *Handler) messages(ctx context.Context, r *request) (any, error) {
	s, err := r.selection()
	if err != nil {
		return nil, err
	}
	counts, err := shared(ctx, h, "counts\x00"+r.Queue, 2*time.Second, func(ctx context.Context) (ops.Counts, error) {
		ctx, cancel := h.soon(ctx)
		defer cancel()
		return r.Monitor().Counts(ctx)
	})
	if err = r.part(err); err != nil {
		return nil, err
	}
	if s.Everywhere() && s.Text == "" && !s.Narrow() {
		s.State = mostOf(counts)
		s.query.Set("state", s.State.String())
	}
	l := &listing{selection: s, Tabs: r.tabs(s.State, counts)}
	r.order(l)
	l.Verbs = r.verbsFor(s.State)
	if s.Text != "" || s.Everywhere() {
		return l, r.search(ctx, l)
	}
	return l, r.list(ctx, l, counts)
}

// mostOf is the state that is shown if none is asked for: the first with messages.
func mostOf(c ops.Counts) delayqueue.State {
	for _, s := range []delayqueue.State{delayqueue.StatePending, delayqueue.StateReady, delayqueue.StateWaiting,
		delayqueue.StateRetry,
		delayqueue.StateGarbage} {
		if totalOf(c, s) > 0 {
			return s
		}
	}
	return delayqueue.StatePending
}

// tabs are all states, but for the one of lanes if no message is in it; the page shows one of them, or none.
func (r *request) tabs(here delayqueue.State, c ops.Counts) (all []tab) {
	for _, state := range states {
		if state == delayqueue.StateWaiting && state != here && c.Waiting == 0 {
			continue
		}
		link := linkOf("messages", nil, "q", r.Queue, "state", state)
		all = append(all, tab{state, r.lang.state(state), link, totalOf(c, state), state == here})
	}
	return all
}

// order sets the order of a list, and the links to both.
func (r *request) order(l *listing) {
	if l.Text != "" || l.Everywhere() {
		return
	}
	latest := l.State == delayqueue.StateGarbage || l.State == delayqueue.StateDone // the latest show what is wrong now
	if asked := r.Arg("order"); asked != "" {
		latest = asked == "latest"
	}
	l.Filter.LatestFirst = latest
	l.Orders = []tab{
		{Name: r.lang.say("Latest first"), Link: l.Link("messages", "order", "latest"), Here: latest},
		{Name: r.lang.say("Earliest first"), Link: l.Link("messages", "order", "earliest"), Here: !latest},
	}
}

// Order is that of a list, for the forms and links that keep it.
func (l *listing) Order() string {
	if l.Filter.LatestFirst {
		return "latest"
	}
	return "earliest"
}

var errNoPage = &httpError{http.StatusBadRequest, "There is no such page"}

// list looks at messages until a page is full or its budget is spent.
func (r *request) list(ctx context.Context, l *listing, counts ops.Counts) error {
	m, cursor := r.Monitor(), r.Arg("cursor")
	f := l.Filter
	f.Limit = pageRows
	looked := int64(0)
	if l.Narrow() {
		l.Looked = max(numberOf(r.Arg("looked")), 0)
	}
	for end := time.Now().Add(r.h.spend); ; {
		page, err := m.List(ctx, l.State, f, cursor)
		if errors.Is(err, ops.ErrBadCursor) {
			return errNoPage
		}
		if err = r.part(err); err != nil {
			return err
		}
		looked += int64(page.Looked)
		for _, msg := range page.Messages {
			l.Rows = append(l.Rows, r.row(msg))
		}
		cursor = page.Next
		full := len(l.Rows) >= pageRows || !l.Narrow() && len(l.Rows) > 0
		if cursor == "" || full || looked >= listBudget || time.Now().After(end) {
			break
		}
	}
	pairs := []any{"order", l.Order(), "cursor", cursor}
	if l.Looked += looked; l.Narrow() {
		pairs = append(pairs, "looked", l.Looked)
		l.Total = max(totalOf(counts, l.State), l.Looked)
	}
	if l.Onwards = cursor != "" && l.Narrow() && len(l.Rows) < pageRows; cursor != "" {
		l.Next = l.Link("messages", pairs...)
	}
	return nil
}

func (r *request) row(m *ops.MessageStatus) messageRow {
	kept := &ops.MessageStatus{State: m.State, At: m.At}
	kept.ID, kept.Key, kept.Failures = strings.Clone(m.ID), strings.Clone(m.Key), m.Failures
	one := messageRow{MessageStatus: kept, Place: r.lang.state(m.State), Headers: r.headersOf(m, saysMost)}
	one.Says, one.Error = strings.Clone(r.payloadBegins(m)), strings.Clone(beginning(m.LastError, saysMost))
	return one
}

func totalOf(c ops.Counts, s delayqueue.State) int64 {
	return map[delayqueue.State]int64{
		delayqueue.StatePending: c.Pending, delayqueue.StateReady: c.Ready, delayqueue.StateUnack: c.Unack,
		delayqueue.StateRetry: c.Retry, delayqueue.StateGarbage: c.Garbage, delayqueue.StateDone: c.Done,
		delayqueue.StateWaiting: c.Waiting,
	}[s]
}

const (
	searchBudget = 10_000 // messages that are looked at for one page
	searchPage   = 500    // that are read at a time
)

// search fills a page by ops.Queue.Find until the page is full or its budget is spent. Hidden payloads are not
// searched.
func (r *request) search(ctx context.Context, l *listing) error {
	m, cursor := r.Monitor(), r.Arg("cursor")
	how := ops.Find{Messages: searchPage, NoPayload: r.h.cfg.Payload != nil, Filter: l.Filter}
	if !l.Everywhere() {
		how.States = []delayqueue.State{l.State}
	}
	l.Hidden = how.NoPayload
	end, atOnce := time.Now().Add(r.h.spend), false
	for looked := 0; ; {
		how.Limit = pageRows - len(l.Rows)
		found, err := m.Find(ctx, l.Text, how, cursor)
		if errors.Is(err, ops.ErrBadCursor) {
			return &httpError{400, "This is no page of a search"}
		}
		if err = r.part(err); err != nil {
			return err
		}
		for _, match := range found.Matches {
			one := r.row(match.MessageStatus)
			one.Found = r.lang.place(match)
			l.Rows = append(l.Rows, one)
		}
		atOnce = cursor == "" && len(found.Matches) > 0 && found.Looked == 0 && // its id or its key
			found.Matches[0].Countdown == 0 // of a message that waits for acks, those that count for it are wanted, too
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
func (l *language) place(m ops.Match) string {
	switch m.In {
	case "id":
		return l.say("its id")
	case "key":
		return l.say("its key")
	case "counts":
		return l.say("its ack counts for it")
	case "header":
		return l.say("its header %s", shown(m.Header))
	case "payload":
		return l.say("its payload")
	case "error":
		return l.say("its last error")
	}
	return ""
}
