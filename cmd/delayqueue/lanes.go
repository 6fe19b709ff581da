package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dustin/go-humanize"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/spf13/cobra"
)

func (a *app) lanesCommand() *cobra.Command {
	limit := 20
	c := &cobra.Command{
		Use:   "lanes QUEUE [NAME]",
		Short: "Show what lanes are doing, or end a turn",
		Long: `lanes lists the lanes of a queue (WithLane, send --lane), those in which most
messages wait first: how many messages wait, since when the first of them is
due, how many messages have a turn of how many that may have one, and where one
of these is. With the name of a lane it shows all messages that have a turn.
lanes skip lets the next message of a lane pass.`,
		Example: "  delayqueue lanes orders\n  delayqueue lanes orders customer-42",
		Args:    cobra.RangeArgs(1, 2),
		RunE: a.onMonitor(func(c *cobra.Command, m *ops.Queue, args []string) error {
			if limit < 1 {
				return fail(exitUsage, "--limit must be above 0")
			}
			if len(args) == 2 {
				return a.showLane(c.Context(), m, args[1])
			}
			return a.listLanes(c.Context(), m, limit)
		}),
	}
	c.Flags().IntVarP(&limit, "limit", "l", limit, "lanes to show at most, of 1000")
	c.AddCommand(a.skipCommand())
	return c
}

type laneJSON struct {
	Name    *string      `json:"name,omitempty"`
	Name64  []byte       `json:"name_base64,omitempty"` // of a name that is no text
	Width   int          `json:"width"`
	Turns   int64        `json:"turns"`
	Waiting int64        `json:"waiting"`
	Since   *time.Time   `json:"since,omitempty"` // when the first that waits is due
	Holders []holderJSON `json:"holders"`         // in a list, one of them
}

type holderJSON struct {
	ID        string     `json:"id"`
	State     string     `json:"state"`
	At        *time.Time `json:"at,omitempty"`
	Delivery  int        `json:"delivery"`
	LastError string     `json:"last_error,omitempty"`
	Consumer  string     `json:"consumer,omitempty"`
}

func laneJSONOf(l *ops.Lane) laneJSON {
	out := laneJSON{Width: l.Width, Turns: l.Turns, Waiting: l.Waiting, Since: instant(l.Since), Holders: []holderJSON{}}
	if utf8.ValidString(l.Name) {
		out.Name = &l.Name
	} else {
		out.Name64 = []byte(l.Name)
	}
	for _, h := range l.Holders {
		out.Holders = append(out.Holders, holderJSON{h.ID, h.State.String(), instant(h.At), h.Delivery, h.LastError,
			h.Consumer})
	}
	return out
}

// listLanes looks at all lanes, and prints those in which most messages wait, or what was found before a call failed.
func (a *app) listLanes(ctx context.Context, m *ops.Queue, limit int) error {
	all, err := m.Lanes(ctx, 0, "")
	for inPart(err) && all.Next != "" {
		var more *ops.LanePage
		more, err = m.Lanes(ctx, 0, all.Next)
		all.Merge(more)
	}
	t := a.grid("lane", "waits", "since", "turns", "state", "for", "id").numbers(2, 4)
	for i := range all.Lanes[:min(len(all.Lanes), limit)] {
		l := &all.Lanes[i]
		cells := []any{l.Name, painted(humanize.Comma(l.Waiting)), sinceOf(l, all.Now),
			fmt.Sprintf("%d/%d", l.Turns, l.Width), "", "", ""}
		if len(l.Holders) > 0 {
			h := &l.Holders[0]
			cells[4], cells[5], cells[6] = paint(coloursOf(h.State), h.State.String()), age(h.At), h.ID
		}
		if l.Blocked(all.Now) {
			cells[1] = number(l.Waiting, warn)
		}
		t.row(laneJSONOf(l), cells...)
	}
	t.print()
	if n := int64(len(all.Lanes)) + all.Others; err == nil && !a.json {
		fmt.Fprintln(os.Stderr, plural(int(n), "lane"))
	}
	return err
}

// sinceOf says since when a message waits for its turn, or when the first will.
func sinceOf(l *ops.Lane, now time.Time) painted {
	if l.Blocked(now) {
		return paint(warn, age(l.Since))
	}
	return paint(faint, age(l.Since))
}

func (a *app) showLane(ctx context.Context, m *ops.Queue, name string) error {
	l, err := m.Lane(ctx, name)
	if err != nil {
		return err
	}
	if a.json {
		printJSON(laneJSONOf(l))
		return nil
	}
	facts := newGrid()
	facts.fact("lane", l.Name)
	facts.fact("turns", fmt.Sprintf("%d of at most %d", l.Turns, l.Width))
	facts.fact("waiting", plural(int(l.Waiting), "message"))
	facts.fact("first due", at(l.Since))
	facts.print()
	say("")
	t := a.grid("id", "state", "at", "delivery", "consumer", "last error").numbers(4).cuts(6)
	for _, h := range l.Holders {
		t.add(h.ID, paint(coloursOf(h.State), h.State.String()), moment{h.At}, h.Delivery, h.Consumer,
			paint(bad, cut(h.LastError, inTable)))
	}
	t.print()
	return nil
}

func (a *app) skipCommand() *cobra.Command {
	var end, garbage, byKey bool
	c := &cobra.Command{
		Use:   "skip QUEUE ID (--end | --garbage)",
		Short: "End the turn of a message, so that the next of its lane passes",
		Long: `skip ends the turn that a message has in its lane. --end puts the message behind
all messages of the lane that are due now. --garbage gives the message up; its
last error says who skipped it, and why (--reason). A message that is being
handled is refused: cancel ends it. The command asks first.`,
		Example: "  delayqueue lanes skip orders 0190f3a0-0000-7000-8000-000000000001 --end",
		Args:    cobra.ExactArgs(2),
		RunE: a.onMonitor(func(c *cobra.Command, m *ops.Queue, args []string) error {
			question, did, skip := "Put %s behind all messages of its lane that are due, in queue %q?", "waits behind its lane",
				m.SkipToEnd
			if garbage {
				question, did, skip = "Give up %s, and let the next of its lane pass, in queue %q?", "is garbage", m.SkipToGarbage
			}
			find := a.finder(m, byKey, false)
			if err := a.askAbout(c.Context(), m, args[1:], find, question, "message "+args[1], m.Name()); err != nil {
				return err
			}
			return a.each(c.Context(), m, args[1:], find, did, plainly(skip))
		}),
	}
	c.Flags().BoolVar(&end, "end", false, "behind all messages of the lane that are due")
	c.Flags().BoolVar(&garbage, "garbage", false, "to garbage")
	c.Flags().BoolVarP(&byKey, "key", "k", false, "ID is a message key")
	c.MarkFlagsOneRequired("end", "garbage")
	c.MarkFlagsMutuallyExclusive("end", "garbage")
	return c
}

// laneFlag is the flag NAME[:WIDTH].
type laneFlag struct {
	name  string
	width int
}

func (l *laneFlag) String() string {
	if l.name == "" {
		return ""
	}
	return fmt.Sprintf("%s:%d", l.name, l.width)
}
func (*laneFlag) Type() string { return "name[:width]" }
func (l *laneFlag) Set(text string) error {
	l.name, l.width = text, 1
	if i := strings.LastIndexByte(text, ':'); i >= 0 {
		n, err := strconv.Atoi(text[i+1:])
		if err != nil {
			return fmt.Errorf(
				"%q: behind the last colon stands how many messages of the lane are handled at a time; for none write %s:1",
				text, text)
		}
		l.name, l.width = text[:i], n
	}
	return nil
}

// laneOf is the lane of a message as --lane takes it; "" if it has none.
func laneOf(name string, width int) string {
	l := laneFlag{name, cmp.Or(width, 1)}
	return l.String()
}
