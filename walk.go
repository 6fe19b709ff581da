package delayqueue

import (
	"context"
	"time"
)

// A walk goes through places, a page at a time, with pauses as long as the pages took, until its budget is spent; a cursor
// keeps where that was.
type walk struct {
	position
	Looked int64 `json:"l,omitempty"` // by all calls
	Total  int64 `json:"n,omitempty"` // in these places, when it began
}

// walkPage is how many messages a walk asks for at a time: a millisecond or two of the server's.
const walkPage = 250

// start counts what there is.
func (w *walk) start(ctx context.Context, m *Monitor, places []place) error {
	for _, p := range places {
		got, err := m.list(ctx, p, 0, spot{})
		if err != nil {
			return err
		}
		w.Total += int64(got.left)
	}
	return nil
}

// goOn looks at so many messages, or so many bytes of them, or until each says that it has enough; the last page may have
// up to 1 MB more.
func (w *walk) goOn(ctx context.Context, m *Monitor, places []place, messages, bytes int, each func(*MessageStatus) (more bool)) error {
	for w.Place < len(places) && messages > 0 && bytes > 0 {
		begun := time.Now()
		got, err := m.list(ctx, places[w.Place], min(messages, walkPage), w.spot())
		if err != nil {
			return err
		}
		rest := restAfter(begun)
		messages, bytes = messages-len(got.entries), bytes-got.bytes
		for _, e := range got.entries {
			w.Looked++
			w.Score, w.Tag = e.score, []byte(e.tag)
			if e.msg != nil && !each(e.msg) {
				return nil
			}
		}
		if !got.more() || len(got.entries) == 0 {
			w.position = position{Place: w.Place + 1}
		}
		if w.Place < len(places) && messages > 0 && bytes > 0 {
			sleep(ctx, time.Until(rest))
		}
	}
	return nil
}
