package ops

import (
	"context"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// A walk goes through places page by page, until its budget is spent. A pause follows each page, as long as the page took. The JSON of a
// walk is a cursor.
type walk struct {
	position
	Shards int   `json:"h,omitempty"` // as in a pageCursor
	Looked int64 `json:"l,omitempty"` // messages, by all calls
	Total  int64 `json:"n,omitempty"` // messages in these places, when the first call began
}

// walkPage is how many messages a search reads at a time. They take the server a millisecond or two.
const walkPage = 250

// start counts the messages.
func (w *walk) start(ctx context.Context, m *Queue, places []place) error {
	for _, p := range places {
		got, err := m.list(ctx, p, 0, script.Spot{})
		if err != nil {
			return err
		}
		w.Total += int64(got.left)
	}
	return nil
}

// goOn looks at so many messages, or at so many bytes of them, or until each returns false. The last page may have up to 1 MB more. page is
// how many messages are read at a time.
func (w *walk) goOn(ctx context.Context, m *Queue, places []place, page, messages, bytes int, each func(*MessageStatus) (more bool)) error {
	for w.Place < len(places) && messages > 0 && bytes > 0 {
		begun := time.Now()
		got, err := m.list(ctx, places[w.Place], min(messages, page), w.spot())
		if err != nil {
			return err
		}
		rest := restAfter(begun)
		messages, bytes = messages-len(got.entries), bytes-got.bytes
		for _, e := range got.entries {
			w.Looked++
			w.Score, w.Tag = e.Score, []byte(e.Tag)
			if e.msg != nil && !each(e.msg) {
				return nil
			}
		}
		if !got.more() || len(got.entries) == 0 {
			w.position = position{Place: w.Place + 1}
		}
		if w.Place < len(places) && messages > 0 && bytes > 0 {
			link.Sleep(ctx, time.Until(rest))
		}
	}
	return nil
}
