package ops

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
	"strconv"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// A Filter selects messages of a state, and says how many are looked at at a time. The zero Filter selects all
// messages. A message must match each field that is set, and each text as a whole, but for the fields in whose name
// is "Contain".
type Filter struct {
	// bounds of MessageStatus.At, both included; a message in StateReady has the instant since when it is ready; zero: no
	// bound
	From, To  time.Time
	Key       string            // the key of the message (WithKey), live or dead; "": any
	Lane      string            // the lane of the message (WithLane); "": any, and none
	Headers   map[string]string // the message has each of these headers, with exactly this value
	Error     string            // the last error; "": any
	ErrorLike string            // a pattern of the last error (ErrorGroup.Pattern), in which # is any status code; "": any
	Limit     int               // how many messages are looked at for one page, at most 500; 0: 100

	Contains       string            // a part of the payload
	HeadersContain map[string]string // the message has each of these headers, with this part in its value
	ErrorContains  string            // a part of the last error

	// LatestFirst turns round the order of List, All and ErrorGroups, but for StateUnack, which has no order of time.
	// Calls for many ignore it, because they have an order of their own.
	LatestFirst bool
}

func (f *Filter) matches(m *MessageStatus) bool {
	for name, want := range f.Headers {
		if value, ok := m.Headers[name]; !ok || value != want {
			return false
		}
	}
	for name, part := range f.HeadersContain {
		if value, ok := m.Headers[name]; !ok || !strings.Contains(value, part) {
			return false
		}
	}
	at := m.At.UnixMicro()
	if !f.From.IsZero() && at < f.From.UnixMicro() || !f.To.IsZero() && at > f.To.UnixMicro() {
		return false
	}
	if f.ErrorLike != "" && !like(f.ErrorLike, m.LastError) {
		return false
	}
	return (f.Key == "" || f.Key == m.Key) && (f.Lane == "" || f.Lane == m.Lane) &&
		(f.Error == "" || f.Error == m.LastError) &&
		strings.Contains(m.Payload, f.Contains) && strings.Contains(m.LastError, f.ErrorContains)
}

// A page has so many messages, and so many bytes of them at most. It is small because the server works for nobody
// else meanwhile.
const pageSize, pageBytes = 100, 512 << 10

func (f *Filter) limit() int { return min(cmp.Or(max(f.Limit, 0), pageSize), script.MaxBatch) }

// bounds are the scores between which the filter selects messages. The upper one is not included.
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

// turn puts places into the order of the filter.
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
	Messages []*MessageStatus // may be none, although Next is not ""
	Next     string           // the cursor of the page that follows; "" if there is none
	Looked   int              // how many messages were looked at
}

// ErrBadCursor: the text is not a cursor that this call has returned.
var ErrBadCursor = errors.New("bad cursor")

// List returns a page of the messages in a state, in the order of MessageStatus.At; in StateReady first released
// messages, then retries, then new ones; in StateUnack in an order that renewals of leases do not change. If the
// queue has several shards, released messages and those in StateUnack are listed shard by shard, and List reads as
// many messages of each shard as it reads of a queue without shards. cursor is "" for the first page, and then the
// Next of the page before, with the same filter. List looks at Filter.Limit messages, or at fewer if they are large,
// and returns those that match. So a page may be empty although others follow.
//
// If some shards do not answer, List returns what the others hold, and an ErrMissingShards. They are left out of the
// pages that follow, and the errors of these say so.
//
// Messages move while they are listed. The pages end all the same, and so do All, Find and ErrorGroups:
//   - A message that is in the state from the first page to the last, at the same time, is met at least once. In
//     StateUnack its time may change, but a failover between two pages may hide it. In StateReady, if the last message
//     of a page leaves before the next page, as many may be missed as are released between these pages.
//   - No stay of a message in the state is met more than twice, unless it is given another time more than once.
//   - Messages that come in meanwhile may be met or not. If they come in faster than pages are read, the pages that
//     are left come in the other order. Once the pages have met four times as many messages as were there, and 2,000
//     more, they end, and may have missed some.
func (m *Queue) List(ctx context.Context, state delayqueue.State, f Filter, cursor string) (*Page, error) {
	page, err := m.page(ctx, state, f, cursor)
	if err == nil && page.Looked == 0 && cursor == "" {
		err = m.there(ctx)
	}
	return page, m.failed(err, "list %s", state)
}

// All lists the messages in a state, page by page; of a queue with several shards, first those of one shard, then
// those of the next. A pause follows each page, as long as the page took, so that others get their share of the
// server. All ends after the first error. If some shards do not answer, the error comes behind the messages of the
// others.
func (m *Queue) All(ctx context.Context, state delayqueue.State, f Filter) iter.Seq2[*MessageStatus, error] {
	return func(yield func(*MessageStatus, error) bool) {
		var w walk
		set, err := m.store.Look(ctx)
		var places []place
		if err == nil {
			places, err = placesOf(set, state, f)
		}
		more := true
		if err == nil {
			f.turn(places)
			err = w.goOn(ctx, m, places, f.limit(), math.MaxInt, math.MaxInt, func(msg *MessageStatus) bool {
				more = !f.matches(msg) || yield(msg, nil)
				return more
			})
		}
		if err == nil && w.Looked == 0 {
			err = m.there(ctx)
		}
		if err == nil {
			err = w.Err(len(set.All), "")
		}
		if err != nil && more {
			yield(nil, m.failed(err, "list %s", state))
		}
	}
}

// restAfter is the end of the pause after a page that began at that time and has just ended.
func restAfter(begun time.Time) time.Time {
	return time.Now().Add(min(time.Since(begun), time.Second))
}

// A position is where a page ended.
type position struct {
	Place int    `json:"p,omitempty"`
	Score string `json:"s,omitempty"`
	Tag   []byte `json:"t,omitempty"` // any bytes; JSON would change a string
}

func (p *position) spot() script.Spot { return script.Spot{Score: p.Score, Tag: string(p.Tag)} }

// valid refuses a score that Redis would not take.
func (p *position) valid() error {
	if n, err := strconv.ParseFloat(p.Score, 64); p.Score != "" && (err != nil || math.IsNaN(n)) {
		return fmt.Errorf("%w: score %q", ErrBadCursor, p.Score)
	}
	return nil
}

// cursorOf makes a text of a position. It has only letters, digits, - and _.
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

func (m *Queue) page(ctx context.Context, state delayqueue.State, f Filter, cursor string) (*Page, error) {
	var at walk
	if cursor != "" {
		if err := cmp.Or(readCursor(cursor, &at), at.valid()); err != nil {
			return nil, err
		}
	}
	set, err := m.store.Look(ctx)
	if err != nil {
		return nil, err
	}
	places, err := placesOf(set, state, f)
	if err != nil {
		return nil, err
	}
	places = merged(places)
	f.turn(places)
	if at.Place < 0 || at.Place >= len(places) {
		return nil, fmt.Errorf("%w %q", ErrBadCursor, cursor)
	}
	page, before := &Page{}, at.Looked
	err = at.goOn(ctx, m, places, f.limit(), f.limit(), pageBytes, func(msg *MessageStatus) bool {
		if f.matches(msg) {
			page.Messages = append(page.Messages, msg)
		}
		return true
	})
	if err != nil {
		return nil, err
	}
	if page.Looked = int(at.Looked - before); at.Place < len(places) {
		page.Next, _ = cursorOf(&at) // there is nothing in it that cannot be written
	}
	return page, at.Err(len(set.All), "")
}
