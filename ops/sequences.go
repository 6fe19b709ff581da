package ops

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/conc"
	"github.com/go-delayqueue/delayqueue/internal/journal"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// A Sequence is the last number of a sequence. A sequence numbers messages, so that each number makes one message
// (WithSequence).
type Sequence struct {
	Name string // as given to WithSequence
	Last int64  // the greatest number that was stored or passed
}

// A SequencePage is a part of a list.
type SequencePage struct {
	Sequences []Sequence // may be none while Next is not ""
	Next      string     // the cursor of the page that follows; "" if there is none
}

// Sequence returns the last number of a sequence. It returns ErrNotFound if there is none of this name.
func (m *Queue) Sequence(ctx context.Context, name string) (last int64, err error) {
	got, err := m.sequences(ctx, name, "0")
	if err == nil && len(got.Found) == 0 {
		err = m.there(ctx)
		if err == nil {
			err = delayqueue.ErrNotFound
		}
	}
	if err != nil {
		return 0, m.failed(err, "sequence %q", name)
	}
	return got.Found[0].Last, nil
}

// Sequences returns a page of the sequences, in no order. cursor is "" for the first page, and then the Next of the
// page before. A sequence that is there all the while is on some page, perhaps on two.
func (m *Queue) Sequences(ctx context.Context, cursor string) (*SequencePage, error) {
	page, err := m.sequencePage(ctx, cursor)
	if err == nil && len(page.Sequences) == 0 && cursor == "" {
		err = m.there(ctx)
	}
	if err != nil {
		return nil, m.failed(err, "sequences")
	}
	return page, nil
}

func (m *Queue) sequencePage(ctx context.Context, cursor string) (*SequencePage, error) {
	at := "0"
	if cursor != "" {
		if err := readCursor(cursor, &at); err != nil {
			return nil, err
		}
		for word := range strings.SplitSeq(at, "/") { // of a shard, and in it
			if _, err := strconv.ParseUint(word, 10, 64); err != nil {
				return nil, fmt.Errorf("%w %q", ErrBadCursor, cursor)
			}
		}
	}
	got, err := m.sequences(ctx, "", at)
	if err != nil {
		return nil, err
	}
	page := &SequencePage{Sequences: conc.Mapped(got.Found, func(q *script.Sequence) Sequence { return Sequence(*q) })}
	if got.Cursor != "0" {
		page.Next, err = cursorOf(got.Cursor)
	}
	return page, err
}

func (m *Queue) sequences(ctx context.Context, name, cursor string) (script.SequencesReply, error) {
	return m.store.Sequences(ctx, name, cursor)
}

// DropSequence deletes a sequence: any number may come next. It returns ErrNotFound if there is none of this name.
func (m *Queue) DropSequence(ctx context.Context, name string) error {
	found, err := m.store.DropSequence(ctx, &m.calls, name)
	if err == nil && !found {
		err = delayqueue.ErrNotFound
	}
	if err != nil {
		return m.failed(err, "drop sequence %q", name)
	}
	m.done(ctx, journalRecord{Act: journal.DropSequence, Target: name})
	return nil
}

// PassSequence moves a sequence on to n, as a message with that number would, but sends none. Messages with a number
// up to n are refused from then on (WithSequence). A sequence never goes back. before is the last number until then.
// PassSequence returns ErrNotFound if there was none of this name, and the sequence is at n all the same. It is for a
// relay that does not begin with the first row, and for rows that need not be sent.
func (m *Queue) PassSequence(ctx context.Context, name string, n int64) (before int64, err error) {
	if err = message.CheckSequence("PassSequence", name); err == nil {
		var was bool
		if before, was, err = m.store.PassSequence(ctx, &m.calls, name, n); err == nil && !was {
			err = delayqueue.ErrNotFound
		}
		if m.who.by != "" &&
			(err == nil || errors.Is(err, delayqueue.ErrNotFound)) { // without an operator a program calls, such as a scheduler
			m.done(ctx, journalRecord{Act: journal.PassSequence, Target: name, Detail: fmt.Sprintf("to %d", n)})
		}
	}
	if err != nil {
		return 0, m.failed(err, "pass sequence %q", name)
	}
	return before, nil
}
