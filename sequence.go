package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
)

// A sequence numbers messages, so that each number makes one of them, whoever sends it and however often: see WithSequence.

// maxSequence is how long the name of a sequence may be, in bytes.
const maxSequence = 512

// ErrSequence: the sequence has come to this number, or further, before. The error is a *SequenceError, which says how
// far. The message was not stored, and one with this number was, or could have been.
var ErrSequence = errors.New("the sequence has passed this number")

// A SequenceError says how far a sequence has come. errors.Is finds ErrSequence in it.
type SequenceError struct {
	Queue string // its name
	Name  string // of the sequence
	N     int64  // of the message that was refused
	Last  int64  // of the last message that was stored
}

func (e *SequenceError) Error() string {
	return fmt.Sprintf("sequence %q is at %d, and this is %d", e.Name, e.Last, e.N)
}

// Is makes errors.Is(err, ErrSequence) true.
func (e *SequenceError) Is(target error) bool { return target == ErrSequence }

// ErrSequenceStopped: a message before this one in the same SendBatch, with a lower number of the same sequence, was not
// stored, so this one was not either: that number would have come too late for ever. The error is a *SequenceStoppedError.
var ErrSequenceStopped = errors.New("a lower number of the sequence in the same batch was not stored")

// A SequenceStoppedError says where a sequence stopped in a SendBatch. errors.Is finds ErrSequenceStopped in it.
type SequenceStoppedError struct {
	Queue string // its name
	Name  string // of the sequence
	N     int64  // of the message that was refused
	At    int64  // of the first one before it in the batch that was not stored; its own error says why
}

func (e *SequenceStoppedError) Error() string {
	return fmt.Sprintf("sequence %q: %d stands before %d in the same batch, and was not stored", e.Name, e.At, e.N)
}

// Is makes errors.Is(err, ErrSequenceStopped) true.
func (e *SequenceStoppedError) Is(target error) bool { return target == ErrSequenceStopped }

// findStops names in the errors of a batch's messages the number at which each sequence stopped.
func findStops(items []batchItem, results []SendResult) {
	var at map[string]int64
	for i := range items {
		put, err := items[i].put, results[i].Err
		if err == nil || put == nil || put.sequence == "" || items[i].stored == StoredYes || errors.Is(err, ErrSequence) {
			continue
		}
		first, some := at[put.sequence]
		if stopped := (*SequenceStoppedError)(nil); errors.As(err, &stopped) {
			if some {
				stopped.At = first
			}
		} else if !some {
			if at == nil {
				at = make(map[string]int64)
			}
			at[put.sequence] = put.number
		}
	}
}

// WithSequence makes the message number n of the sequence of this name, a name of any 1 to 512 bytes, on this queue: it
// is stored only if n is greater than the last number that was, in one step with that, and refused with ErrSequence
// otherwise. So whoever sends what is numbered elsewhere (rows of an outbox, offsets of a log, the minutes of a
// schedule) may send it twice, from any number of machines at once, and each number makes one message, however late the
// second one comes. Numbers need not follow one upon the other, and may be negative.
//
// A message that is refused for another reason, as for its key, does not count. The messages of a SendBatch
// must rise in each sequence (ErrBadOption of those that do not), and what stands behind one of the same sequence that is
// not stored, for whatever other reason but ErrSequence, is not stored either (ErrSequenceStopped). So a call of which the outcome is
// not known, or that was refused in part, may be repeated as it is. What sends rows on one by one must not pass over one that is not
// there yet, or was refused: a number that is lower than the last comes too late for ever. So does one that a failover
// forgot, with its message, if the next number is sent all the same, as by a call that was under way. Where none may be
// missing, send with WithReplicaAck, and a number only when the one before is confirmed: its send returned nil, or
// ErrSequence without ErrNotReplicated.
//
// A name is kept until Monitor.DropSequence, or DeleteQueue.
func WithSequence(name string, n int64) MsgOption {
	return func(m *draft) error {
		m.put.sequence, m.put.number = name, n
		return checkSequence("WithSequence", name)
	}
}

// sequenceDigits is a number as Redis keeps it: those of any two compare as their texts do.
func sequenceDigits(n int64) string { return fmt.Sprintf("%020d", uint64(n)^1<<63) }

func sequenceNumber(digits string) (int64, error) {
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || len(digits) != 20 {
		return 0, fmt.Errorf("sequence number %q", digits)
	}
	return int64(n ^ 1<<63), nil
}

// A Sequence is how far the numbered messages of one name have come.
type Sequence struct {
	Name string // as WithSequence has it
	Last int64  // the greatest number that was stored
}

// A SequencePage is a part of a list.
type SequencePage struct {
	Sequences []Sequence // may be none while Next is not ""
	Next      string     // the cursor of the page that follows; "" if there is none
}

// Sequence returns the last number of a sequence (WithSequence); ErrNotFound if there was none.
func (m *Monitor) Sequence(ctx context.Context, name string) (last int64, err error) {
	got, err := m.sequences(ctx, name, "0")
	if err == nil && len(got.found) == 0 {
		err = m.there(ctx)
		if err == nil {
			err = ErrNotFound
		}
	}
	if err != nil {
		return 0, m.failed(err, "sequence %q", name)
	}
	return got.found[0].Last, nil
}

// Sequences returns a page of the sequences, in no order; cursor is "" for the first page, and then the Next of
// the page before. One that is there all the while is on some page, perhaps on two.
func (m *Monitor) Sequences(ctx context.Context, cursor string) (*SequencePage, error) {
	page, err := m.sequencePage(ctx, cursor)
	if err == nil && len(page.Sequences) == 0 && cursor == "" {
		err = m.there(ctx)
	}
	if err != nil {
		return nil, m.failed(err, "sequences")
	}
	return page, nil
}

func (m *Monitor) sequencePage(ctx context.Context, cursor string) (*SequencePage, error) {
	at := "0"
	if cursor != "" {
		if err := readCursor(cursor, &at); err != nil {
			return nil, err
		}
		if _, err := strconv.ParseUint(at, 10, 64); err != nil {
			return nil, fmt.Errorf("%w %q", ErrBadCursor, cursor)
		}
	}
	got, err := m.sequences(ctx, "", at)
	if err != nil {
		return nil, err
	}
	page := &SequencePage{Sequences: got.found}
	if got.cursor != "0" {
		page.Next, err = cursorOf(got.cursor)
	}
	return page, err
}

func (m *Monitor) sequences(ctx context.Context, name, cursor string) (sequencesReply, error) {
	return read(ctx, func(ctx context.Context) (sequencesReply, error) { return m.store.sequences(ctx, name, cursor) })
}

// DropSequence forgets a sequence: any number may come next. It returns ErrNotFound if there is none of this name.
func (m *Monitor) DropSequence(ctx context.Context, name string) error {
	found := false
	err := m.calls.call(ctx, func(c *caller) (err error) {
		found, err = m.store.dropSequence(ctx, c, name)
		return err
	})
	if err == nil && !found {
		err = ErrNotFound
	}
	if err != nil {
		return m.failed(err, "drop sequence %q", name)
	}
	m.noted(ctx, journalRecord{Act: ActDropSequence, Target: name})
	return nil
}

// PassSequence moves a sequence on to n, as a message with that number would, but sends none: what has a number up to n
// is refused from then on (WithSequence). It never goes back. before is the last number until then; ErrNotFound if there was
// none, and then the sequence is at n all the same. For a relay that begins at another place than the first one, and for
// what need not be sent.
func (m *Monitor) PassSequence(ctx context.Context, name string, n int64) (before int64, err error) {
	if err = checkSequence("PassSequence", name); err == nil {
		err = m.calls.call(ctx, func(c *caller) error {
			last, was, err := m.store.passSequence(ctx, c, name, n)
			if before = last; err == nil && !was {
				err = ErrNotFound
			}
			return err
		})
		if m.who.by != "" && (err == nil || errors.Is(err, ErrNotFound)) { // else it is a program's, as a scheduler's
			m.noted(ctx, journalRecord{Act: ActPassSequence, Target: name, Detail: fmt.Sprintf("to %d", n)})
		}
	}
	if err != nil {
		return 0, m.failed(err, "pass sequence %q", name)
	}
	return before, nil
}

// checkSequence refuses what is no name of a sequence.
func checkSequence(option, name string) error {
	if name == "" || len(name) > maxSequence {
		return fmt.Errorf("%w: %s: %d bytes: a name has 1 to %d", ErrBadOption, option, len(name), maxSequence)
	}
	return nil
}
