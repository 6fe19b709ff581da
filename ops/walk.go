package ops

import (
	"context"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/internal/shard"
)

// A walk goes through places page by page, until its budget is spent. A pause follows each page, as long as the page
// took. The JSON of a walk is a cursor.
//
// A walk ends, whatever moves meanwhile, and meets each message that does not move, unless many come in at both ends.
// What is held has an order that renewals do not change. A place with scores is left at the score that was its last
// when the walk came there. If twice as many messages were met before as there were, because messages come in faster
// than the walk goes, it turns round, and meets the rest from that end.
//
// A shard that does not answer is left out. If no shard answers any more, the walk is where it was before the first of
// them fell silent, or if it has met messages since, before the last did.
type walk struct {
	position
	shard.Absence
	Met    int    `json:"m,omitempty"` // messages in this place
	Left   int    `json:"b,omitempty"` // messages there when the walk came to this place; 0: it is at the first page
	End    int64  `json:"e,omitempty"` // score of the last of them
	Turned *int64 `json:"r,omitempty"` // the score at which the walk turned round
	Looked int64  `json:"l,omitempty"` // messages, by all calls
	Total  int64  `json:"n,omitempty"` // messages in these places, when the first call began

	now int64 // us of the server, when it gave the last page
}

// walkPage is how many messages a search reads at a time. They take the server a millisecond or two.
const walkPage = 250

// start counts the messages.
func (w *walk) start(ctx context.Context, m *Queue, places []place) error {
	for _, p := range places {
		got, err := m.list(ctx, p, 0, script.Spot{}, &w.Absence)
		if err != nil {
			return err
		}
		w.Total += int64(got.left)
	}
	return nil
}

// goOn looks at so many messages, or at so many bytes of them, or until each returns false. The last page may have up
// to 1 MB more. page is how many messages are read at a time.
func (w *walk) goOn(ctx context.Context, m *Queue, places []place, page, messages, bytes int,
	each func(*MessageStatus) (more bool)) error {
	whole, met := *w, false // before a shard was left out, or after the last message since
	for w.Place < len(places) && messages > 0 && bytes > 0 {
		begun := time.Now()
		if len(w.Out) == len(whole.Out) || met { // what each was given must not come again
			whole, met = *w, false
		}
		got, err := m.list(ctx, w.part(places[w.Place]), min(messages, page), w.spot(), &w.Absence)
		if err == nil && w.Left == 0 && got.more() {
			err = w.bound(ctx, m, places[w.Place], got.left)
		}
		if err != nil && ctx.Err() == nil {
			*w = whole
		}
		if err != nil {
			return err
		}
		rest := restAfter(begun)
		w.now = got.now
		messages, bytes = messages-len(got.entries), bytes-got.bytes
		for _, e := range got.entries {
			w.Looked, w.Met = w.Looked+1, w.Met+1
			w.Score, w.Tag = e.Next.Score, []byte(e.Next.Tag)
			if e.msg == nil {
				continue
			}
			if met = true; !each(e.msg) {
				return nil
			}
		}
		w.moveOn(&got, places[w.Place])
		if w.Place < len(places) && messages > 0 && bytes > 0 {
			link.Sleep(ctx, time.Until(rest))
		}
	}
	return nil
}

// bound notes where the walk leaves a place that has so many messages.
func (w *walk) bound(ctx context.Context, m *Queue, p place, left int) error {
	w.Left = left
	if !p.ordered() {
		return nil
	}
	p.back = !p.back
	last, err := m.list(ctx, p, 1, script.Spot{}, &w.Absence)
	for _, e := range last.entries {
		w.End = script.ScoreInstant(e.Score)
	}
	return err
}

// part is what the walk has still to look at in a place.
func (w *walk) part(p place) place {
	if w.Left == 0 || !p.ordered() {
		return p
	}
	forward := !p.back
	p.leave(w.End, forward)
	if w.Turned != nil {
		p.leave(*w.Turned, !forward)
		p.back = forward
	}
	return p
}

// leave makes a score the last one of a place, at its end or at its beginning. Scores beyond all instants are alike.
func (p *place) leave(score int64, end bool) {
	switch {
	case end && score < message.LastInstant:
		p.to = min(p.to, score+1)
	case !end && score > message.FirstInstant:
		p.from = max(p.from, score)
	}
}

// moveOn notes where the next page begins. While as many messages come in as were there, and some more, the walk goes
// on as it does.
func (w *walk) moveOn(got *listReply, p place) {
	many := 2*w.Left + 1000
	switch {
	case !got.more(), len(got.entries) == 0,
		p.in == delayqueue.StateReady && w.Met > many, p.ordered() && w.Met > 2*many:
		w.position, w.Met, w.Left, w.End, w.Turned = position{Place: w.Place + 1}, 0, 0, 0, nil
	case p.ordered() && w.Turned == nil && w.Met > many:
		at := script.ScoreInstant(w.Score)
		w.Turned, w.Score, w.Tag = &at, "", nil
	}
}
