package main

import (
	"slices"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/health"
	"github.com/spf13/cobra"
)

func (a *app) statsCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "stats [QUEUE...]",
		Short: "Show how many messages are in each state, and how far behind a queue is",
		Long: `stats has a row for each named queue, or for all queues of the prefix that are
found at the start: how many messages are in each state, how long the oldest
ready message has been waiting (BEHIND), when the next message is due, and a
verdict (STATE). WAITING are messages behind others of their lanes; there is no
such column if there are none. A queue takes three calls of Redis,
of O(log n) work whatever the backlog, some more if a lane is late, and those
for its schedules. If a queue cannot be read, its row says why, the
others are shown, and the exit code is not 0. If some shards of a queue do not
answer, the numbers of its row are those of the others.`,
		RunE: func(c *cobra.Command, names []string) error {
			b, err := a.newBoard(c.Context(), names)
			if err != nil {
				return err
			}
			return b.print(c.Context(), a.statsTable)
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
