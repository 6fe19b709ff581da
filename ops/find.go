package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/google/uuid"
)

// A Find says where Queue.Find looks, and how much it does in one call. The zero Find looks everywhere.
type Find struct {
	States    []delayqueue.State // none: garbage, retry, unack, ready, waiting, pending and done, in this order
	Messages  int                // how many messages one call looks at, at most 100,000; 0: 10,000
	Bytes     int                // about how much of them one call reads; 0: 16 MB
	Limit     int                // how many messages one call finds, at most 500; 0: 100
	NoPayload bool               // payloads are not searched: for users who must not know or guess what is in them
	Filter    Filter             // which of the messages; its Limit is ignored, and its LatestFirst turns round each state
}

// A Match is a message that was found, and where the text stands in it.
type Match struct {
	*MessageStatus
	// "id": the text is the id; "counts": the text is the key for which the ack counts (WithCounts); "key", "header",
	// "payload" or "error": it contains the text; "": no text. A text with "=" is also looked for in "name=value" of each
	// header.
	In     string
	Header string // the name of that header
}

// Found is the result of a call of Find.
type Found struct {
	Matches []Match
	Looked  int64  // messages looked at, by this call and those before it
	Total   int64  // messages in these states when the first call began
	Next    string // the cursor of the next call; "" if all was looked at
}

// Find looks for a text. The first call looks for a message with this id or key, and if there is one, returns it at
// once. Otherwise, and with Next as the cursor, Find looks at each message of the states: at its id, at the key for
// which its ack counts, and at what its key, headers, payload (of a group: the first part) and last error contain. With
// the text "" it finds what Find.Filter selects; Filter.Key is looked for as a text is.
//
// A call looks at no more than f says, page by page. A pause follows each page, as long as the page took. Beside an
// error Find returns what was found until then, and Next. List says what is met if messages move meanwhile, and what
// if some shards do not answer.
func (m *Queue) Find(ctx context.Context, text string, f Find, cursor string) (*Found, error) {
	found, err := m.find(ctx, text, f, cursor)
	if err != nil {
		err = m.failed(err, "find")
	}
	return found, err
}

// A finding is how far a search has come. Its JSON is a cursor.
type finding struct {
	walk
	Given []string `json:"g,omitempty"` // ids of messages that were found at once
}

func (m *Queue) find(ctx context.Context, text string, f Find, cursor string) (*Found, error) {
	found, which := &Found{Next: cursor}, f.Filter
	which.Limit, which.LatestFirst = 0, false // they select nothing
	if text == "" && reflect.DeepEqual(which, Filter{}) && len(f.States) == 0 {
		return found, fmt.Errorf("%w: find what?", delayqueue.ErrBadOption)
	}
	if len(f.States) == 0 {
		f.States = []delayqueue.State{delayqueue.StateGarbage, delayqueue.StateRetry, delayqueue.StateUnack,
			delayqueue.StateReady,
			delayqueue.StateWaiting, delayqueue.StatePending, delayqueue.StateDone}
	}
	set, err := m.store.Look(ctx)
	if err != nil {
		return found, err
	}
	var places []place
	for _, state := range f.States {
		some, err := placesOf(set, state, f.Filter)
		if err != nil {
			return found, err
		}
		f.Filter.turn(some)
		places = append(places, some...)
	}
	var at finding
	if cursor != "" {
		if err := cmp.Or(readCursor(cursor, &at), at.valid()); err != nil || at.Place < 0 || at.Place >= len(places) {
			return found, cmp.Or(err, fmt.Errorf("%w %q", ErrBadCursor, cursor))
		}
	} else {
		if err := m.atOnce(ctx, &at, text, &f, places, found); err != nil {
			return found, err
		}
	}
	if len(found.Matches) == 0 {
		limit := min(cmp.Or(max(f.Limit, 0), pageSize), script.MaxBatch)
		messages, bytes := min(cmp.Or(max(f.Messages, 0), 10_000), 100_000), cmp.Or(max(f.Bytes, 0), 16<<20)
		err = at.goOn(ctx, m, places, walkPage, messages, bytes, func(msg *MessageStatus) bool {
			if in, header, ok := f.where(msg, text); ok && !slices.Contains(at.Given, msg.ID) {
				found.Matches = append(found.Matches, Match{msg, in, header})
			}
			return len(found.Matches) < limit
		})
	}
	found.Looked, found.Total, found.Next = at.Looked, at.Total, ""
	if at.Place < len(places) {
		found.Next, _ = cursorOf(&at) // there is nothing in it that cannot be written
	}
	return found, cmp.Or(err, at.Err(len(set.All), ""))
}

// atOnce begins a search: it counts the messages, and finds those with this id or key.
func (m *Queue) atOnce(ctx context.Context, at *finding, text string, f *Find, places []place, found *Found) error {
	if err := at.start(ctx, m, places); err != nil {
		return err
	}
	if at.Total == 0 {
		if err := m.there(ctx); err != nil {
			return err
		}
	}
	name := cmp.Or(text, f.Filter.Key)
	for _, by := range []string{"id", "key"} {
		if name == "" || by == "id" && uuid.Validate(name) != nil {
			continue
		}
		msg, err := m.statusBy(ctx, by, name, 0)
		switch {
		case err != nil && len(at.Out) == 0 &&
			!errors.Is(err, delayqueue.ErrNotFound): // ErrNotFound: perhaps the key is held, and no message has it
			return err
		case msg != nil && slices.Contains(f.States, msg.State) && f.Filter.matches(msg) &&
			!slices.Contains(at.Given, msg.ID):
			at.Given = append(at.Given, msg.ID)
			found.Matches = append(found.Matches, Match{MessageStatus: msg, In: by})
		}
	}
	return nil
}

// where says where the text stands in a message, and whether the message is one that is looked for.
func (f *Find) where(m *MessageStatus, text string) (in, header string, ok bool) {
	switch {
	case !f.Filter.matches(m):
		return "", "", false
	case text == "":
		return "", "", true
	case m.ID == text:
		return "id", "", true
	case strings.Contains(m.Key, text):
		return "key", "", true
	case m.Counts == text:
		return "counts", "", true
	}
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		value := m.Headers[name]
		if strings.Contains(value, text) || strings.Contains(text, "=") && strings.Contains(name+"="+value, text) {
			return "header", name, true
		}
	}
	switch {
	case !f.NoPayload && strings.Contains(m.Payload, text):
		return "payload", "", true
	case strings.Contains(m.LastError, text):
		return "error", "", true
	}
	return "", "", false
}
