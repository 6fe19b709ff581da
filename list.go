package delayqueue

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"time"
)

// A Filter says which messages of a state are wanted, and how many at a time. The zero Filter wants all.
type Filter struct {
	From, To  time.Time         // by MessageStatus.At (of what is ready: since when it is), both included; zero: any
	Key       string            // it has exactly this key (WithKey), be it live or dead
	Contains  string            // in the payload
	Headers   map[string]string // it has each of these, and its value contains this text
	Error     string            // in the last error
	ErrorLike string            // what FoldError makes of the last error is exactly this (ErrorGroup.Pattern)
	Limit     int               // how many messages to look at for one page, at most 500; 0: 100

	// LatestFirst turns the order of List, All and ErrorGroups round. Calls for many ignore it: they have an order of their own.
	LatestFirst bool
}

func (f *Filter) matches(m *MessageStatus) bool {
	for name, text := range f.Headers {
		if value, ok := m.Headers[name]; !ok || !strings.Contains(value, text) {
			return false
		}
	}
	at := m.At.UnixMicro()
	if !f.From.IsZero() && at < f.From.UnixMicro() || !f.To.IsZero() && at > f.To.UnixMicro() {
		return false
	}
	if f.ErrorLike != "" && f.ErrorLike != FoldError(m.LastError) {
		return false
	}
	return (f.Key == "" || f.Key == m.Key) && strings.Contains(m.Payload, f.Contains) && strings.Contains(m.LastError, f.Error)
}

// pageSize is how many messages are looked at for one page: few, for the server works for nobody else meanwhile.
const pageSize = 100

func (f *Filter) limit() int { return min(cmp.Or(max(f.Limit, 0), pageSize), maxBatch) }

// bounds are the scores between which a filter wants messages, the upper one not included.
func (f *Filter) bounds() (from, to int64) {
	from, to = math.MinInt64, math.MaxInt64
	if !f.From.IsZero() {
		from = f.From.UnixMicro()
	}
	if !f.To.IsZero() {
		to = f.To.UnixMicro() + 1
	}
	return from, to
}

// turn puts places into the order that the filter asks for.
func (f *Filter) turn(places []place) {
	if !f.LatestFirst {
		return
	}
	slices.Reverse(places)
	for i := range places {
		places[i].back = true
	}
}

// A Page is a part of a list.
type Page struct {
	Messages []*MessageStatus // may be fewer than asked for, even none, while Next is not ""
	Next     string           // the cursor of the page that follows; "" if there is none
	Looked   int              // how many messages were looked at
}

// ErrBadCursor: that is no cursor of a Page, or no Next of a BulkResult.
var ErrBadCursor = errors.New("bad cursor")

// List returns a page of the messages in a state, in order of their time, the earliest first unless the filter says otherwise; cursor
// is "" for the first page, and then the Next of the page before, with the same filter. It looks at as many messages as the filter's Limit
// says, or at fewer if they are large, and returns those that match, so a page may be empty although others follow.
//
// Messages move while they are listed: one that changes its state or its time between two
// pages may be missed or met twice.
func (m *Monitor) List(ctx context.Context, state State, f Filter, cursor string) (*Page, error) {
	page, err := m.page(ctx, state, f, cursor)
	if err == nil && page.Looked == 0 && cursor == "" {
		err = m.there(ctx)
	}
	if err != nil {
		return nil, m.failed(err, "list %s", state)
	}
	return page, nil
}

// All lists the messages in a state, page by page, with pauses as long as the pages took, so that others get
// their share of the server. It ends after the first error.
func (m *Monitor) All(ctx context.Context, state State, f Filter) iter.Seq2[*MessageStatus, error] {
	return func(yield func(*MessageStatus, error) bool) {
		for cursor := ""; ; {
			begun := time.Now()
			page, err := m.List(ctx, state, f, cursor)
			if err != nil {
				yield(nil, err)
				return
			}
			rest := restAfter(begun)
			for _, msg := range page.Messages {
				if !yield(msg, nil) {
					return
				}
			}
			if cursor = page.Next; cursor == "" {
				return
			}
			sleep(ctx, time.Until(rest))
		}
	}
}

// restAfter is until when to leave the server alone after what began at that time and has just ended.
func restAfter(begun time.Time) time.Time {
	return time.Now().Add(min(time.Since(begun), time.Second))
}

// A position is where a page ended.
type position struct {
	Place int    `json:"p,omitempty"`
	Score string `json:"s,omitempty"`
	Tag   []byte `json:"t,omitempty"` // any bytes: not a string, which JSON would mend
}

func (p *position) spot() spot { return spot{p.Score, string(p.Tag)} }

// cursorOf makes a text of a position, of letters, digits, - and _ alone.
func cursorOf(v any) (string, error) {
	text, err := json.Marshal(v)
	return base64.RawURLEncoding.EncodeToString(text), err
}

func readCursor(cursor string, v any) error {
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil {
		err = json.Unmarshal(text, v)
	}
	if err != nil {
		return fmt.Errorf("%w %q: %w", ErrBadCursor, cursor, err)
	}
	return nil
}

func (m *Monitor) page(ctx context.Context, state State, f Filter, cursor string) (*Page, error) {
	var at position
	if cursor != "" {
		if err := readCursor(cursor, &at); err != nil {
			return nil, err
		}
	}
	places, err := m.places(state, f)
	if err != nil {
		return nil, err
	}
	f.turn(places)
	if at.Place < 0 || at.Place >= len(places) {
		return nil, fmt.Errorf("%w %q", ErrBadCursor, cursor)
	}
	got, err := m.list(ctx, places[at.Place], f.limit(), at.spot())
	if err != nil {
		return nil, err
	}
	page := &Page{Looked: len(got.entries)}
	for _, e := range got.entries {
		if e.msg != nil && f.matches(e.msg) {
			page.Messages = append(page.Messages, e.msg)
		}
	}
	next := position{Place: at.Place + 1}
	if last := len(got.entries) - 1; got.more() && last >= 0 {
		next = position{at.Place, got.entries[last].score, []byte(got.entries[last].tag)}
	}
	if next.Place < len(places) {
		page.Next, err = cursorOf(&next)
	}
	return page, err
}

func (m *Monitor) list(ctx context.Context, p place, limit int, after spot) (listReply, error) {
	p.most = m.most
	return read(ctx, func(ctx context.Context) (listReply, error) { return m.store.list(ctx, listRequest{p, limit, after}) })
}

// places are the structures in which messages of a state wait.
func (m *Monitor) places(state State, f Filter) ([]place, error) {
	from, to := f.bounds()
	switch state {
	case StatePending, StateRetry, StateDone:
		return []place{{in: state, state: state, from: from, to: to, part: "later"}}, nil
	case StateUnack, StateGarbage:
		return []place{{in: state, state: state, from: from, to: to}}, nil
	case StateReady:
		return []place{
			{in: StateReady, state: state},
			{in: StateRetry, state: state, from: from, to: to, part: "due"},
			{in: StatePending, state: state, from: from, to: to, part: "due"},
		}, nil
	default:
		return nil, fmt.Errorf("%w: state %s has no messages", ErrBadOption, state)
	}
}
