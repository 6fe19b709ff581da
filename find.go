package delayqueue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"
)

// A Find says where Monitor.Find looks, and how much it does in one call. The zero Find looks everywhere.
type Find struct {
	States    []State // none: garbage, retry, unack, ready, pending and done, in this order
	Messages  int     // how many are looked at in one call; 0: 10,000; at most 100,000
	Bytes     int     // and how much of them is read, about; 0: 16 MB
	Limit     int     // how many may be found in one call; 0: 100; at most 500
	NoPayload bool    // what payloads contain is not found: for who may not know it, and must not be able to guess it
}

// A Match is a message that was found, and where the text stands in it.
type Match struct {
	*MessageStatus
	In     string // "id", which it is; "key", which it is or is in; "header", "payload" or "error", which it is in
	Header string // the name of that header
}

// Found is what a call of Find came to.
type Found struct {
	Matches []Match
	Looked  int64  // by this call, and those that it goes on from
	Total   int64  // messages there were in these states at the beginning
	Next    string // the cursor with which it goes on; "" if all was looked at
}

// Find looks for a text: the message of this id or key first, at once and without a look at any other; then, with Next as the
// cursor, in each message of the states: its id, and what its key, headers, payload (of a group the first part) or last error
// contain. A call looks at no more than f says, in pages, with pauses as long as the pages took. Beside an error it returns
// what was found until then, and Next.
//
// Messages move meanwhile: one that changes its state or its time between two pages may be missed or met twice.
func (m *Monitor) Find(ctx context.Context, text string, f Find, cursor string) (*Found, error) {
	found, err := m.find(ctx, text, f, cursor)
	if err != nil {
		err = m.failed(err, "find")
	}
	return found, err
}

// A finding is where a search stands.
type finding struct {
	walk
	Given []string `json:"g,omitempty"` // ids of those that were found at once
}

func (m *Monitor) find(ctx context.Context, text string, f Find, cursor string) (*Found, error) {
	found := &Found{}
	if text == "" {
		return found, fmt.Errorf("%w: find what?", ErrBadOption)
	}
	if len(f.States) == 0 {
		f.States = []State{StateGarbage, StateRetry, StateUnack, StateReady, StatePending, StateDone}
	}
	var places []place
	for _, state := range f.States {
		some, err := m.places(state, Filter{})
		if err != nil {
			return found, err
		}
		places = append(places, some...)
	}
	var at finding
	if cursor != "" {
		if err := readCursor(cursor, &at); err != nil || at.Place < 0 || at.Place >= len(places) {
			return found, cmp.Or(err, fmt.Errorf("%w %q", ErrBadCursor, cursor))
		}
	} else if err := m.atOnce(ctx, &at, text, f.States, places, found); err != nil {
		return found, err
	}
	var err error
	if len(found.Matches) == 0 {
		limit := min(cmp.Or(max(f.Limit, 0), pageSize), maxBatch)
		messages, bytes := min(cmp.Or(max(f.Messages, 0), 10_000), 100_000), cmp.Or(max(f.Bytes, 0), 16<<20)
		err = at.goOn(ctx, m, places, messages, bytes, func(msg *MessageStatus) bool {
			if in, header := where(msg, text, f.NoPayload); in != "" && !slices.Contains(at.Given, msg.ID) {
				found.Matches = append(found.Matches, Match{msg, in, header})
			}
			return len(found.Matches) < limit
		})
	}
	found.Looked, found.Total = at.Looked, at.Total
	if at.Place < len(places) {
		found.Next, _ = cursorOf(&at) // there is nothing in it that cannot be written
	}
	return found, err
}

// atOnce begins a search: it counts, and finds what has this id or key.
func (m *Monitor) atOnce(ctx context.Context, at *finding, text string, states []State, places []place, found *Found) error {
	if err := at.start(ctx, m, places); err != nil {
		return err
	}
	if at.Total == 0 {
		if err := m.there(ctx); err != nil {
			return err
		}
	}
	for _, by := range []string{"id", "key"} {
		if by == "id" && uuid.Validate(text) != nil {
			continue
		}
		msg, err := read(ctx, func(ctx context.Context) (*MessageStatus, error) { return m.store.look(ctx, by, text) })
		switch {
		case err != nil && !errors.Is(err, ErrNotFound): // a key may be held, and no message has it
			return err
		case msg != nil && slices.Contains(states, msg.State) && !slices.Contains(at.Given, msg.ID):
			at.Given = append(at.Given, msg.ID)
			found.Matches = append(found.Matches, Match{MessageStatus: msg, In: by})
		}
	}
	return nil
}

// where says where a text stands in a message; "" if nowhere.
func where(m *MessageStatus, text string, noPayload bool) (in, header string) {
	switch {
	case m.ID == text:
		return "id", ""
	case strings.Contains(m.Key, text):
		return "key", ""
	}
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		if strings.Contains(m.Headers[name], text) {
			return "header", name
		}
	}
	switch {
	case !noPayload && strings.Contains(m.Payload, text):
		return "payload", ""
	case strings.Contains(m.LastError, text):
		return "error", ""
	}
	return "", ""
}
