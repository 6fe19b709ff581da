package delayqueue

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// NoError is what FoldError makes of no text: an error that is not there is a group as well.
const NoError = "(no error)"

// FoldError makes errors alike that differ in numbers, ids and what they quote: each number (with what joins its parts, as
// in addresses and times) and each id becomes #, and what stands between quotes becomes an ellipsis. It looks at 4 KB.
func FoldError(text string) string {
	if text == "" {
		return NoError
	}
	text = text[:min(len(text), 4<<10)]
	var out strings.Builder
	unclosed := map[byte]bool{} // quotes that have no end any more
	for i := 0; i < len(text); {
		c := text[i]
		switch {
		case (c == '"' || c == '`' || c == '\'' && (i == 0 || !alnum(text[i-1]))) && !unclosed[c]:
			n := quoted(text[i:])
			if unclosed[c] = n == 0; n == 0 {
				continue
			}
			out.WriteByte(c)
			out.WriteString("…")
			out.WriteByte(c)
			i += n
		case alnum(c):
			n := word(text[i:])
			if !isID(text[i : i+n]) {
				n = foldNumbers(&out, text[i:], n)
			} else {
				out.WriteByte('#')
			}
			i += n
		default:
			out.WriteByte(c)
			i++
		}
	}
	return out.String()
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

func alnum(c byte) bool { return digit(c) || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// quoted is how long the text is from its quote to the next one like it, both included; 0 if there is none.
func quoted(text string) int {
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] == '\\' && text[0] != '`':
			i++
		case text[i] == text[0] && (text[0] != '\'' || i+1 == len(text) || !alnum(text[i+1])):
			return i + 1
		}
	}
	return 0
}

// word is how long the word is at the beginning of a text: letters, digits, and - and _ between them.
func word(text string) int {
	for i := range len(text) {
		if !alnum(text[i]) && ((text[i] != '-' && text[i] != '_') || i+1 == len(text) || !alnum(text[i+1])) {
			return i
		}
	}
	return len(text)
}

// isID says whether a word is no word of a language: a UUID, or long, of letters and digits.
func isID(word string) bool {
	letters, digits, hex := 0, 0, true
	for i := range len(word) {
		c := word[i]
		switch {
		case digit(c):
			digits++
		case alnum(c):
			letters++
			hex = hex && (c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' || i == 1 && word[:2] == "0x")
		}
	}
	return digits > 0 && letters > 0 && (hex && len(word) >= 8 || digits > 1 && len(word) >= 16 && !strings.ContainsAny(word, "-_"))
}

// foldNumbers writes a word of n bytes and each number in it as #; a number may go on behind it. It returns how far that is.
func foldNumbers(out *strings.Builder, text string, n int) int {
	for i := 0; i < n; {
		if !digit(text[i]) {
			out.WriteByte(text[i])
			i++
			continue
		}
		out.WriteByte('#')
		for i < len(text) && (digit(text[i]) || strings.IndexByte(".,:", text[i]) >= 0 && i+1 < len(text) && digit(text[i+1])) {
			i++
		}
		n = max(n, i)
	}
	return n
}

// An ErrorGroup is those messages whose last errors are alike.
type ErrorGroup struct {
	Pattern     string    // what FoldError makes of them: as Filter.ErrorLike it selects just this group
	Count       int64     // messages
	First, Last time.Time // when they died, or their last delivery ended
	ID, Error   string    // of the last one
}

// ErrorGroups are the errors of a state, in groups.
type ErrorGroups struct {
	Groups []ErrorGroup // the largest first; at most 1,000
	Others int64        // messages of further groups
	Looked int64        // by this call, and those that it goes on from
	Total  int64        // messages there were at the beginning
	Next   string       // the cursor with which it goes on; "" if all was looked at
}

const maxGroups = 1000

// ErrorGroups counts the messages of StateGarbage or StateRetry that match f by their last errors, digits, ids and quoted
// parts folded (FoldError). A call looks at budget messages (0: 10,000; at most 100,000), and 64 MB of them, in pages, with pauses as
// long as the pages took, the earliest first unless f says otherwise; cursor is "" for the first call, and then, with the same filter, the
// Next of the one before, whose groups Merge puts together. Beside an error it returns what was counted until then, and Next.
func (m *Monitor) ErrorGroups(ctx context.Context, state State, f Filter, budget int, cursor string) (*ErrorGroups, error) {
	got, err := m.errorGroups(ctx, state, f, budget, cursor)
	if err != nil {
		err = m.failed(err, "group errors")
	}
	return got, err
}

func (m *Monitor) errorGroups(ctx context.Context, state State, f Filter, budget int, cursor string) (*ErrorGroups, error) {
	g := &ErrorGroups{}
	if state != StateGarbage && state != StateRetry {
		return g, fmt.Errorf("%w: state %s has no errors", ErrBadOption, state)
	}
	places, err := m.places(state, f)
	if err != nil {
		return g, err
	}
	f.turn(places)
	var at walk
	if cursor != "" {
		if err := readCursor(cursor, &at); err != nil || at.Place != 0 {
			return g, cmp.Or(err, fmt.Errorf("%w %q", ErrBadCursor, cursor))
		}
	} else if err := at.start(ctx, m, places); err != nil {
		return g, err
	} else if at.Total == 0 {
		return g, m.there(ctx)
	}
	err = at.goOn(ctx, m, places, min(cmp.Or(max(budget, 0), 10_000), 100_000), 64<<20, func(msg *MessageStatus) bool {
		if f.matches(msg) {
			when := msg.At
			if state == StateRetry {
				when = msg.EndedAt
			}
			g.add(ErrorGroup{FoldError(msg.LastError), 1, when, when, msg.ID, msg.LastError})
		}
		return true
	})
	g.sort()
	g.Looked, g.Total = at.Looked, at.Total
	if at.Place < len(places) {
		g.Next, _ = cursorOf(&at) // there is nothing in it that cannot be written
	}
	return g, err
}

// add counts more of a group.
func (g *ErrorGroups) add(more ErrorGroup) {
	i := slices.IndexFunc(g.Groups, func(one ErrorGroup) bool { return one.Pattern == more.Pattern })
	if i < 0 && len(g.Groups) >= maxGroups {
		g.Others += more.Count
		return
	}
	if i < 0 {
		g.Groups = append(g.Groups, more)
		return
	}
	one := &g.Groups[i]
	one.Count += more.Count
	if more.First.Before(one.First) {
		one.First = more.First
	}
	if !more.Last.Before(one.Last) {
		one.Last, one.ID, one.Error = more.Last, more.ID, more.Error
	}
}

// sort puts the largest first.
func (g *ErrorGroups) sort() {
	slices.SortStableFunc(g.Groups, func(a, b ErrorGroup) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Pattern, b.Pattern))
	})
}

// Merge adds what a call found that went on from this one's Next.
func (g *ErrorGroups) Merge(more *ErrorGroups) {
	for _, one := range more.Groups {
		g.add(one)
	}
	g.sort()
	g.Others += more.Others
	g.Looked, g.Next = more.Looked, more.Next
}
