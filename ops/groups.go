package ops

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/message"
)

// noError is what FoldError makes of "": messages without an error are a group as well.
const noError = "(no error)"

// FoldError makes errors alike that differ only in numbers, ids, quotes and blanks. Each number becomes #, together
// with the characters that join its parts, as in addresses and times. Each id becomes #, and the text between two
// quotes becomes an ellipsis. Line breaks and other characters that cannot be printed are blanks, and several blanks
// are one. A status code stays: a number from 100 to 599 behind the word smtp, http, https, HTTP/1.1, HTTP/2, status or
// code, with blanks, ":" or "=" between. Any other number, and an id, behind these words becomes an ellipsis. FoldError
// looks at 4 KB.
func FoldError(text string) string { return foldError(text, true) }

// foldError is FoldError. Without codes each status code becomes #, as in a pattern for all of them.
func foldError(text string, codes bool) string {
	text = strings.Join(strings.FieldsFunc(text[:min(len(text), 4<<10)], func(r rune) bool {
		return r == ' ' || !unicode.IsPrint(r)
	}), " ")
	if text == "" {
		return noError
	}
	var folded strings.Builder
	from, tokens := 0, foldable.FindAllStringIndex(text, -1)
	unclosed := map[string]bool{} // quotes of which no closing one follows: each search for one goes to the end
	for i := 0; i < len(tokens); i++ {
		start, end := tokens[i][0], tokens[i][1]
		part, instead := text[start:end], ""
		switch {
		case isID(part):
			instead = "#"
		case strings.Contains("`\"'", part) && !unclosed[part] && (part != "'" || start == 0 || !inWord(text[start-1])):
			n := slices.IndexFunc(tokens[i+1:], func(t []int) bool {
				return text[t[0]:t[1]] == part && (part != "'" || t[1] == len(text) || !inWord(text[t[1]]))
			})
			if unclosed[part] = n < 0; n >= 0 {
				i += 1 + n
				end, instead = tokens[i][1], part+"…"+part
			}
		case strings.ContainsAny(part, "-_"): // an id may have a prefix, as in order-7f3a9c21be
			instead = wordPart.ReplaceAllStringFunc(part, func(word string) string {
				if isID(word) {
					return "#"
				}
				return word
			})
		}
		if instead != "" {
			folded.WriteString(text[from:start] + instead)
			from = end
		}
	}
	text = foldNumbers(folded.String()+text[from:], codes)
	if codes { // what is no status code must not read like a pattern of all of them
		text = anyStatus.ReplaceAllString(text, "$1…")
	}
	return text
}

// foldNumbers makes # of numbers, but for status codes that are to stay.
func foldNumbers(text string, codes bool) string {
	var folded strings.Builder
	from := 0
	for _, at := range number.FindAllStringIndex(text, -1) {
		part := text[at[0]:at[1]]
		if !strings.ContainsAny(part, "0123456789") || codes && statusCode.MatchString(part) &&
			statusWord.MatchString(text[max(at[0]-24, 0):at[0]]) && (at[1] == len(text) || !inWord(text[at[1]])) {
			continue
		}
		folded.WriteString(text[from:at[0]] + "#")
		from = at[1]
	}
	return folded.String() + text[from:]
}

// like says whether an error has this pattern. A pattern with # for a status code is of all codes.
func like(pattern, text string) bool {
	return pattern == foldError(text, !anyStatus.MatchString(pattern))
}

var (
	// foldable finds escaped quotes, quotes and words.
	foldable = regexp.MustCompile(`\\[\\"'` + "`]|[\"'`]" + `|[0-9A-Za-z]+(?:[-_][0-9A-Za-z]+)*`)
	wordPart = regexp.MustCompile(`[0-9A-Za-z]+`)
	// number finds a number with the characters that join its parts, and what may be an IPv6 address.
	number = regexp.MustCompile(
		`(?:(?:\b[0-9A-Fa-f]{1,4}:|::)(?:[0-9A-Fa-f]{0,4}:){1,6}|::)[0-9A-Fa-f]{1,4}\b(?:[.,][0-9]+)*|[0-9]+(?:[.,:][0-9]+)*`)
)

const statusWords = `(?i)((?:\b|_)(?:smtp|https?|http/[0-9.#]{1,8}|status|code)[ :=]{1,4})`

var (
	statusWord = regexp.MustCompile(statusWords + `$`)
	statusCode = regexp.MustCompile(`^[1-5][0-9][0-9]$`)
	anyStatus  = regexp.MustCompile(statusWords + `#`)
)

// inWord says whether a quote beside this character is an apostrophe.
func inWord(c byte) bool {
	return c == '#' || c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// isID says whether a word is an id: a UUID, or a long mix of letters and digits.
func isID(word string) bool {
	letters, digits, hex := 0, 0, true
	for i := range len(word) {
		c := word[i]
		switch {
		case c >= '0' && c <= '9':
			digits++
		case c != '-' && c != '_':
			letters++
			hex = hex && (c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' || i == 1 && word[:2] == "0x")
		}
	}
	return digits > 0 && letters > 0 &&
		(hex && len(word) >= 8 || digits > 1 && len(word) >= 16 && !strings.ContainsAny(word, "-_"))
}

// An ErrorGroup is the messages whose last errors are alike.
type ErrorGroup struct {
	Pattern     string    // what FoldError makes of the errors; as Filter.ErrorLike it selects this group
	Count       int64     // messages
	First, Last time.Time // when the first and the last message died, or its last delivery ended
	LastHour    int64     // how many of them did within the hour before they were looked at
	ID, Error   string    // of the last message
}

// ErrorGroups are the errors of a state, in groups.
type ErrorGroups struct {
	Groups []ErrorGroup // the largest first; at most 1,000
	Others int64        // messages of further groups
	Looked int64        // messages looked at, by this call and those before it
	Total  int64        // messages in the state when the first call began
	Next   string       // the cursor of the next call; "" if all was looked at
}

const maxGroups = 1000

// ErrorGroups counts the messages of StateGarbage or StateRetry that match f, in groups by their last errors
// (FoldError).
//
// A call looks at budget messages (0: 10,000; at most 100,000), and at 64 MB of them, page by page. A pause follows
// each page, as long as the page took. cursor is "" for the first call, and then the Next of the call before, with
// the same filter. Merge puts the groups of these calls together. Beside an error ErrorGroups returns what was
// counted until then, and Next. List says what if some shards do not answer. If there are more than 1,000 groups, each
// call and each Merge moves the smallest to Others, so the count of a small group may be too low.
func (m *Queue) ErrorGroups(ctx context.Context, state delayqueue.State, f Filter, budget int,
	cursor string) (*ErrorGroups, error) {
	got, err := m.errorGroups(ctx, state, f, budget, cursor)
	if err != nil {
		err = m.failed(err, "group errors")
	}
	return got, err
}

func (m *Queue) errorGroups(ctx context.Context, state delayqueue.State, f Filter, budget int,
	cursor string) (*ErrorGroups, error) {
	g, index := &ErrorGroups{Next: cursor}, map[string]int{}
	if state != delayqueue.StateGarbage && state != delayqueue.StateRetry {
		return g, fmt.Errorf("%w: state %s has no errors", delayqueue.ErrBadOption, state)
	}
	set, err := m.store.Look(ctx)
	if err != nil {
		return g, err
	}
	places, err := placesOf(set, state, f)
	if err != nil {
		return g, err
	}
	f.turn(places)
	var at walk
	if cursor != "" {
		if err := cmp.Or(readCursor(cursor, &at), at.valid()); err != nil || at.Place < 0 || at.Place >= len(places) {
			return g, cmp.Or(err, fmt.Errorf("%w %q", ErrBadCursor, cursor))
		}
	} else {
		if err := at.start(ctx, m, places); err != nil {
			return g, err
		}
		if at.Total == 0 {
			return g, cmp.Or(at.Err(len(set.All), ""), m.there(ctx))
		}
	}
	err = at.goOn(ctx, m, places, walkPage, min(cmp.Or(max(budget, 0), 10_000), 100_000), 64<<20,
		func(msg *MessageStatus) bool {
			if f.matches(msg) {
				when := msg.At
				if state == delayqueue.StateRetry {
					when = msg.EndedAt
				}
				one := ErrorGroup{Pattern: FoldError(msg.LastError), Count: 1, First: when, Last: when, ID: msg.ID,
					Error: msg.LastError}
				if message.InstantTime(at.now).Sub(when) <= time.Hour {
					one.LastHour = 1
				}
				g.add(index, one)
			}
			return true
		})
	g.sort()
	g.Looked, g.Total, g.Next = at.Looked, at.Total, ""
	if at.Place < len(places) {
		g.Next, _ = cursorOf(&at) // there is nothing in it that cannot be written
	}
	return g, cmp.Or(err, at.Err(len(set.All), ""))
}

// add adds messages of a group. index has the places of the groups by their patterns.
func (g *ErrorGroups) add(index map[string]int, more ErrorGroup) {
	i, known := index[more.Pattern]
	if !known {
		index[more.Pattern] = len(g.Groups)
		g.Groups = append(g.Groups, more)
		return
	}
	one := &g.Groups[i]
	one.Count += more.Count
	one.LastHour += more.LastHour
	if more.First.Before(one.First) {
		one.First = more.First
	}
	if !more.Last.Before(one.Last) {
		one.Last, one.ID, one.Error = more.Last, more.ID, more.Error
	}
}

// sort puts the largest first, and keeps no more than maxGroups. The smallest leave, not those that were met last,
// because a large group may stand behind thousands of small ones.
func (g *ErrorGroups) sort() {
	slices.SortStableFunc(g.Groups, func(a, b ErrorGroup) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Pattern, b.Pattern))
	})
	for _, one := range g.Groups[min(len(g.Groups), maxGroups):] {
		g.Others += one.Count
	}
	g.Groups = g.Groups[:min(len(g.Groups), maxGroups)]
}

// Merge adds the groups of the call that went on from g.Next.
func (g *ErrorGroups) Merge(more *ErrorGroups) {
	index := map[string]int{}
	for i, one := range g.Groups {
		index[one.Pattern] = i
	}
	for _, one := range more.Groups {
		g.add(index, one)
	}
	g.sort()
	g.Others += more.Others
	g.Looked, g.Next = more.Looked, more.Next
}
