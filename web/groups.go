package web

import (
	"cmp"
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// Garbage by what went wrong: errors that differ only in numbers, ids and quoted words are one group.

const (
	keepGroups  = 30 * time.Second
	groupLook   = 2000 // messages that are looked at
	groupPage   = 100  // at a time
	groupsShown = 10
)

// A group is messages that failed alike.
type group struct {
	Pattern string // what their errors have in common, … for what differs
	Common  string // the longest text that all of them have, to find them by
	Count   int
	First   time.Time // when the first of them died
	Last    time.Time
	Example string // id of one
}

// groups are the largest.
type groups struct {
	All    []group
	Looked int
	More   bool // there is more garbage than was looked at
	Others int  // messages in groups that are not shown
}

// differs is what may be another in each message of a group.
var differs = regexp.MustCompile(`"[^"]*"|'[^']*'|[0-9]+(?:[.:][0-9]+)+|\b[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}\b|\b[0-9a-fA-F]*[0-9][0-9a-fA-F]*\b|[0-9]+`)

// fold is an error without what differs, and the longest part that does not.
func fold(text string) (pattern, common string) {
	text = strings.TrimSpace(text)
	at := 0
	for _, found := range differs.FindAllStringIndex(text, -1) {
		if part := text[at:found[0]]; len(part) > len(common) {
			common = part
		}
		at = found[1]
	}
	if part := text[at:]; len(part) > len(common) {
		common = part
	}
	return differs.ReplaceAllString(text, "…"), strings.TrimSpace(common)
}

// groupsOf reads garbage, page by page, and no more than groupLook of it.
func groupsOf(ctx context.Context, m *delayqueue.Monitor) (*groups, error) {
	found := map[string]*group{}
	out := &groups{}
	for cursor := ""; ; {
		page, err := m.List(ctx, delayqueue.StateGarbage, delayqueue.Filter{Limit: groupPage}, cursor)
		if err != nil {
			return nil, err
		}
		out.Looked += page.Looked
		for _, msg := range page.Messages {
			pattern, common := fold(msg.LastError)
			g := found[pattern]
			if g == nil {
				g = &group{Pattern: pattern, Common: common, First: msg.At}
				found[pattern] = g
			}
			g.Count++
			g.Last, g.Example = msg.At, msg.ID
		}
		if cursor = page.Next; cursor == "" || out.Looked >= groupLook {
			out.More = cursor != ""
			break
		}
	}
	for _, g := range slices.SortedFunc(maps.Values(found), func(a, b *group) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Pattern, b.Pattern))
	}) {
		if len(out.All) < groupsShown {
			out.All = append(out.All, *g)
		} else {
			out.Others += g.Count
		}
	}
	return out, nil
}

// grouped is for the page of a queue.
func (p *queuePage) grouped(ctx context.Context, r *request) (err error) {
	if p.Counts.Garbage == 0 {
		return nil
	}
	p.Groups, err = shared(ctx, r.h, "groups "+r.Queue, keepGroups, func(ctx context.Context) (*groups, error) {
		return groupsOf(ctx, r.h.newMonitor(r.Queue))
	})
	return err
}
