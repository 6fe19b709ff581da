package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/health"
	"github.com/spf13/cobra"
)

func (a *app) statsCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "stats [QUEUE...]",
		Short: "Show how many messages are in each state, and what is wrong",
		Long: `stats has a row for each named queue, or for all queues of the prefix that are
found at the start, the worst first: how many messages are in each state, how
long the oldest ready message has been waiting (BEHIND), when the next message
is due, and a verdict (STATE). WAITING are messages behind others of their
lanes; there is no such column if there are none. On a terminal, queues that are
fine are only counted, unless queues are named. Below the table stand how many
queues are how bad, and whether messages were lost, by the books.

A queue takes three calls of Redis, of O(log n) work whatever the backlog, some
more if a lane is late, and those for its schedules. If a queue cannot be read,
its row says why, the others are shown, and the exit code is not 0. If some
shards of a queue do not answer, the numbers of its row are those of the others.`,
		RunE: func(c *cobra.Command, names []string) error {
			b, err := a.newBoard(c.Context(), names)
			if err != nil {
				return err
			}
			return b.print(c.Context(), func(all []*health.Look) {
				shown := a.folded(all, len(names) > 0)
				if a.statsTable(shown).print(); !a.json {
					sayLevels(all, len(all)-len(shown))
					a.sayLost(all)
				}
			})
		},
	}
	a.verdictFlags(c)
	return c
}

type statsJSON struct {
	Queue       string     `json:"queue"`
	Pending     int64      `json:"pending"`
	Ready       int64      `json:"ready"`
	Waiting     int64      `json:"waiting"` // for others of their lanes
	Unack       int64      `json:"unack"`
	Retry       int64      `json:"retry"`
	Garbage     int64      `json:"garbage"`
	Done        int64      `json:"done"`
	Behind      float64    `json:"behind_seconds"`
	LaneSince   *time.Time `json:"lane_since,omitempty"`
	NextDue     *time.Time `json:"next_due,omitempty"`
	Paused      bool       `json:"paused"`
	PausedUntil *time.Time `json:"paused_until,omitempty"`
	PausedSince *time.Time `json:"paused_since,omitempty"`
	PausedBy    string     `json:"paused_by,omitempty"`
	PauseReason string     `json:"pause_reason,omitempty"`
	Limited     bool       `json:"limited"`
	Since       *time.Time `json:"limited_since,omitempty"`
	Until       *time.Time `json:"limited_until,omitempty"`
	Throttled   *time.Time `json:"throttled_until,omitempty"`
	Unaccounted int64      `json:"unaccounted"`          // have vanished without a word; less than 0: have appeared
	LossSince   *time.Time `json:"loss_since,omitempty"` // none: there was no loss that is not accepted
	Lost        int64      `json:"loss_messages"`
	Consumers   int        `json:"consumers"`
	verdictJSON
}

type statsErrorJSON struct {
	Queue string `json:"queue"`
	Error string `json:"error"`
}

// statsTable is the table, or prints JSON.
func (a *app) statsTable(all []*health.Look) *grid {
	header, lanes := []any{"queue", "pending", "ready", "unack", "retry", "garbage", "done", "behind", "next due",
		"state"}, withLanes(all)
	numbers := []int{2, 3, 4, 5, 6, 7, 8}
	if lanes {
		header, numbers = slices.Insert(header, 3, any("waiting")), append(numbers, 9)
	}
	t := a.grid(header...).numbers(numbers...).sentences(len(header))
	add := func(waiting any, cells ...any) {
		if lanes {
			cells = slices.Insert(cells, 3, waiting)
		}
		t.add(cells...)
	}
	for _, one := range all {
		n := one.Counts
		switch {
		case a.json:
			a.printLook(one, statsJSON{
				one.Name, n.Pending, n.Ready, n.Waiting, n.Unack, n.Retry, n.Garbage, n.Done, n.Behind.Seconds(),
				instant(n.LaneSince), instant(n.NextDue),
				n.Paused, instant(n.PausedUntil),
				instant(n.PausedSince), n.PausedBy, n.PauseReason,
				n.Limited, instant(n.LimitedSince), instant(n.LimitedUntil), instant(n.ThrottledUntil), n.Unaccounted,
				instant(n.LossSince), n.LossMessages, len(one.Consumers), a.verdictJSON(one),
			})
		case one.Err != nil:
			add("?", one.Name, "?", "?", "?", "?", "?", "?", "", "", a.verdict(one))
		default:
			next, behind := "", painted("")
			if !n.NextDue.IsZero() {
				next = "in " + brief(max(time.Until(n.NextDue), 0))
			}
			if n.Behind > 0 {
				behind = paint(warn, brief(n.Behind))
			}
			add(number(n.Waiting, faint), one.Name, n.Pending, number(n.Ready, warn), number(n.Unack, good),
				number(n.Retry, warn),
				number(n.Garbage, bad), n.Done, behind, next, a.verdict(one))
		}
	}
	return t
}

// folded leaves out queues that are fine, on a terminal, so that the others have room.
func (a *app) folded(all []*health.Look, named bool) []*health.Look {
	if named || a.json || !onTerminal(os.Stdout) {
		return all
	}
	some := slices.DeleteFunc(slices.Clone(all), func(l *health.Look) bool { return l.Judge().Code == health.Well })
	if len(some) == 0 {
		return all
	}
	return some
}

// mostNames is how many queues a line names.
const mostNames = 5

// namesOfQueues are the names of the first queues.
func namesOfQueues(names []string) string {
	if more := len(names) - mostNames; more > 0 {
		names = append(slices.Clone(names[:mostNames]), fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// sayLevels says how many queues are how bad, and which are critical, because the first rows may have left the window.
// hidden of those that are fine are not in the table.
func sayLevels(all []*health.Look, hidden int) {
	if len(all) == 1 && hidden == 0 {
		return
	}
	names := map[health.Level][]string{}
	for _, l := range all {
		level := l.Judge().Level
		names[level] = append(names[level], l.Name)
	}
	var words []string
	for level := health.Critical; level >= health.Quiet; level-- {
		one := string(paint(colours[level], fmt.Sprintf("%d %s", len(names[level]), level)))
		switch {
		case len(names[level]) == 0:
			continue
		case level == health.Critical:
			one += " (" + oneLine(namesOfQueues(names[level])) + ")"
		case level == health.Fine && hidden > 0:
			one += " (not shown)"
		}
		words = append(words, one)
	}
	say("%s: %s", plural(len(all), "queue"), painted(strings.Join(words, ", ")))
}

// sayLost says what was lost in all of the queues together.
func (a *app) sayLost(all []*health.Look) {
	var n int64
	var since time.Time // since when the first loss is known
	var names []string
	unread := 0
	for _, l := range all {
		c := l.Counts
		if l.Err != nil || l.Missing != nil {
			unread++
		}
		if c.LossSince.IsZero() && c.Unaccounted <= 0 {
			continue
		}
		n += max(c.Unaccounted, 0) + c.LossMessages // a loss may count as both
		names = append(names, l.Name)
		if !c.LossSince.IsZero() && (since.IsZero() || c.LossSince.Before(since)) {
			since = c.LossSince
		}
	}
	if len(names) == 0 {
		if text := a.words(health.NoLoss(all, clock)); text != "" {
			say("%s", wrapped(text+"."))
		}
		return
	}
	not := ""
	if !since.IsZero() {
		not = ", since " + at(since)
	}
	if unread > 0 {
		not += fmt.Sprintf("; %s cannot be read, or not all shards", plural(unread, "queue"))
	}
	say("%s", paint(bad, fmt.Sprintf("lost: at most %s in %s: %s%s (delayqueue doctor QUEUE)", plural(int(n), "message"),
		plural(len(names), "queue"), namesOfQueues(names), not)))
}

// withLanes says whether a message of any queue waits for others of its lane: else there is no column for these.
func withLanes(all []*health.Look) bool {
	return slices.ContainsFunc(all, func(l *health.Look) bool { return l.Counts.Waiting > 0 })
}

// trouble is an error in a word or two: the code that Redis answered, "no answer" or "error".
func (a *app) trouble(err error) string {
	for _, code := range []string{"WRONGTYPE", "NOPERM", "CLUSTERDOWN", "TRYAGAIN", "LOADING", "OOM", "MISCONF",
		"READONLY", "MASTERDOWN"} {
		if strings.Contains(err.Error(), code+" ") {
			return code
		}
	}
	if code, _ := a.explain(err); code == exitNoRedis {
		return "no answer"
	}
	return "error"
}
