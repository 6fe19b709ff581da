package web

import (
	"context"
	"errors"
	"html/template"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/health"
	"github.com/go-delayqueue/delayqueue/ops"
)

// The page of a queue: how it stands, what comes due, its history.

const (
	keepMinutes = 10 * time.Second // how long the cache keeps each part of the page
	keepHours   = time.Minute
	keepDays    = 10 * time.Second
)

// A queuePage is what it shows.
type queuePage struct {
	row
	Tiles   []tab         // counts of messages in each state
	Late    time.Duration // longest wait in the samples
	Future  []*chart
	Overdue int64
	Beyond  int64 // due after the last bar
	Spans   []span
	Past    []*chart
	Groups  *ops.ErrorGroups // of garbage; nil: there is none
	Books   *books           // nil: they are not open
	Trouble string           // why something is missing
}

// A span is the counts of a stretch of time.
type span struct {
	Name    string
	Tally   ops.Tally
	In, Out health.Rate
	Failing health.Percent
}

func (h *Handler) queue(ctx context.Context, r *request) (any, error) {
	q, err := h.look(ctx, r.Queue)
	if err != nil {
		return nil, err
	}
	p := &queuePage{row: r.lang.row(q)}
	if q.Err != nil {
		return p, nil
	}
	for _, s := range q.Samples {
		p.Late = max(p.Late, s.Behind)
	}
	p.Tiles = r.tabs(delayqueue.StateGone, q.Counts)
	if q.Missing != nil { // what follows is read from all shards
		return p, nil
	}
	err = p.future(ctx, r)
	if err == nil {
		err = p.past(ctx, r)
	}
	if err == nil {
		err = p.grouped(ctx, r)
	}
	if err == nil {
		p.Books, err = r.books(ctx)
	}
	if err != nil {
		p.Trouble = r.lang.trouble(err)
	}
	return p, nil
}

// look is the newest look at a queue, which may be missing on the board.
func (h *Handler) look(ctx context.Context, name string) (*health.Look, error) {
	s, err := h.poller.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	q := s.queue(name)
	if q == nil {
		q, err = shared(ctx, h, "look "+name, h.bounds.interval, func(ctx context.Context) (*health.Look,
			error) {
			ctx, cancel := h.soon(ctx)
			defer cancel()
			reader := h.reader()
			return reader.Read(ctx, h.newMonitor(name)), nil
		})
	}
	if err == nil && errors.Is(q.Err, delayqueue.ErrNoQueue) {
		err = errNoQueue
	}
	return q, err
}

func (h *Handler) consumers(ctx context.Context, r *request) (any, error) { return h.alive(ctx, r) }

// alive are the consumers that are alive, the oldest first.
func (h *Handler) alive(ctx context.Context, r *request) ([]ops.Consumer, error) {
	all, err := shared(ctx, h, "consumers\x00"+r.Queue, h.bounds.interval,
		func(ctx context.Context) ([]ops.Consumer, error) {
			ctx, cancel := h.soon(ctx)
			defer cancel()
			return r.Monitor().Consumers(ctx)
		})
	return all, r.part(err)
}

// future is what comes due in the next hour and the next week.
func (p *queuePage) future(ctx context.Context, r *request) error {
	for _, f := range []struct {
		key, title string
		step       time.Duration
		n          int
		keep       time.Duration
		axis       []string
	}{
		{"minutes", r.lang.say("The next hour, minute by minute"), time.Minute, 60, keepMinutes,
			[]string{r.lang.say("now"), r.lang.say("%s min", "15"), r.lang.say("%s min", "30"),
				r.lang.say("%s min", "45"), r.lang.say("%s h", "1")}},
		{"hours", r.lang.say("The next week, hour by hour"), time.Hour, 168, keepHours,
			[]string{r.lang.say("now"), r.lang.say("%s d", "1"), r.lang.say("%s d", "2"), r.lang.say("%s d", "3"),
				r.lang.say("%s d", "4"),
				r.lang.say("%s d", "5"), r.lang.say("%s d", "6"), r.lang.say("%s d", "7")}},
	} {
		got, err := shared(ctx, r.h, f.key+" "+r.Queue, f.keep, func(ctx context.Context) (*ops.Forecast, error) {
			return r.h.newMonitor(r.Queue).Forecast(ctx, time.Time{}, f.step, f.n)
		})
		if err != nil {
			return err
		}
		p.Overdue, p.Beyond = got.Before.Pending+got.Before.Retry, got.After.Pending+got.After.Retry
		c := &chart{ID: f.key, Title: f.title, Axis: f.axis, Legend: []legend{{"first", r.lang.say("for the first time")},
			{"second", r.lang.say("again, after a failure")}}}
		for _, b := range got.Buckets {
			c.bars = append(c.bars, bar{at: b.Start, stack: []int64{b.Pending, b.Retry}})
		}
		p.Future = append(p.Future, r.lang.draw(c))
	}
	return nil
}

// past is the counts of the last two days and the last month.
func (p *queuePage) past(ctx context.Context, r *request) error {
	days, err := shared(ctx, r.h, "days "+r.Queue, keepDays, func(ctx context.Context) ([]ops.Tally, error) {
		return r.h.newMonitor(r.Queue).History(ctx, ops.Daily, 30)
	})
	if err != nil {
		return err
	}
	say := r.lang.say
	p.Spans = []span{
		spanOf(say("The last hour, about"), p.LastHour(), time.Hour),
		spanOf(say("The last 24 hours"), health.Sum(p.Hours[max(len(p.Hours)-24, 0):]), 24*time.Hour),
		spanOf(say("The last 30 days"), health.Sum(days), 30*24*time.Hour),
	}
	axis := func(unit string, all ...string) (out []string) {
		for _, n := range all {
			out = append(out, say("%s ago", say(unit, n)))
		}
		return append(out, say("now"))
	}
	hours := &chart{ID: "past-hours", Title: say("Two days, hour by hour"), Axis: axis("%s h", "48", "36", "24", "12")}
	month := &chart{ID: "past-days", Title: say("A month, day by day"), Axis: axis("%s d", "30", "20", "10")}
	for c, tallies := range map[*chart][]ops.Tally{hours: p.Hours, month: days} {
		c.Legend = []legend{{"good", say("done")}, {"bad", say("failed or lost")}, {"sent", say("sent")}}
		for _, t := range tallies {
			c.bars = append(c.bars, bar{at: t.Start, stack: []int64{t.Acked, t.Failed + t.Lost}, line: t.Sent})
		}
		r.lang.draw(c)
	}
	p.Past = []*chart{hours, month}
	return nil
}

func spanOf(name string, n ops.Tally, long time.Duration) span {
	return span{name, n, health.RateOf(n.Sent, long), health.RateOf(n.Acked+n.Garbage+n.Superseded, long),
		health.Failing(n)}
}

// A chart is bars in a row, with its numbers in a table beside it.
type chart struct {
	ID      string // of its elements
	Title   string
	Axis    []string // below, evenly
	Legend  []legend
	Most    int64 // the highest
	Total   int64 // of all bars
	Caption string
	SVG     template.HTML
	Rows    []chartRow // those that are not 0

	bars []bar
}

// A legend says what a colour means; the class is of the stylesheet.
type legend struct{ Class, Text string }

// A bar is a stack of numbers, and perhaps a number of the line.
type bar struct {
	at    time.Time
	stack []int64
	line  int64
}

// A chartRow is a bar in numbers, in the order of the legend.
type chartRow struct {
	When   template.HTML
	Values []int64
}

const (
	keepGroups  = 30 * time.Second
	groupLook   = 2000 // messages that are looked at, the newest, because they show what is wrong now
	groupsShown = 10
)

// grouped is garbage by what went wrong, for the page of a queue: the largest groups.
func (p *queuePage) grouped(ctx context.Context, r *request) (err error) {
	if p.Counts.Garbage == 0 {
		return nil
	}
	p.Groups, err = shared(ctx, r.h, "groups "+r.Queue, keepGroups, func(ctx context.Context) (*ops.ErrorGroups, error) {
		g, err := r.h.newMonitor(r.Queue).ErrorGroups(ctx, delayqueue.StateGarbage, ops.Filter{LatestFirst: true}, groupLook,
			"")
		for _, one := range g.Groups[min(len(g.Groups), groupsShown):] {
			g.Others += one.Count
		}
		g.Groups = g.Groups[:min(len(g.Groups), groupsShown)]
		return g, err
	})
	return err
}
