package web

import (
	"cmp"
	"context"
	"errors"
	"html/template"
	"slices"
	"strings"
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
	Kinds   []kindRow // none: no consumer counts kinds
	Rest    ops.Kind  // the kinds that have no row, together
	Books   *books    // nil: they are not open, or Unread
	Unread  bool      // the books cannot be read without the shards that are missing
	Trouble string    // why something is missing
	Away    string    // which shards are missing, and why

	From, To time.Time // of the span that was asked for
	Between  *between  // nil: none was
}

// A span is the counts of a stretch of time.
type span struct {
	Name    string
	Tally   ops.Tally
	In, Out health.Rate
	Failing health.Percent
}

func (h *Handler) queue(ctx context.Context, r *request) (any, error) {
	from, to, err := r.fromTo()
	if err == nil && (from.IsZero() != to.IsZero() || to.Before(from)) {
		err = errNoSpan
	}
	if err != nil {
		return nil, err
	}
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
	p.byKind(ops.KindsOf(q.Consumers))
	if q.Missing != nil {
		p.Away = r.lang.missing(q.Missing)
	}
	err = p.future(ctx, r)
	if err == nil {
		err = p.past(ctx, r)
	}
	if err == nil && to.After(from) {
		err = p.between(ctx, r, from, to)
	}
	if errors.Is(err, errNoTime) {
		return nil, err
	}
	if err == nil {
		p.Books, err = r.books(ctx)
		p.Unread = p.Books == nil && errors.Is(err, delayqueue.ErrMissingShards)
		err = p.without(r, err)
	}
	if err != nil {
		p.Trouble = r.lang.trouble(err)
	}
	return p, nil
}

// without takes note of shards that are missing, and returns any other error.
func (p *queuePage) without(r *request, err error) error {
	if !errors.Is(err, delayqueue.ErrMissingShards) {
		return err
	}
	p.Away = cmp.Or(p.Away, r.lang.missing(err))
	return nil
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
		if err = p.without(r, err); err != nil {
			return err
		}
		p.Overdue, p.Beyond = got.Before.Pending+got.Before.Retry, got.After.Pending+got.After.Retry
		c := &chart{ID: f.key, Title: f.title, Axis: f.axis, Legend: []legend{{"first", r.lang.say("for the first time")},
			{"second", r.lang.say("again, after a failure")}}}
		for _, b := range got.Buckets {
			end := b.Start.Add(f.step)
			c.bars = append(c.bars, bar{at: b.Start, stack: []int64{b.Pending, b.Retry}, links: []string{
				listLink(r.Queue, delayqueue.StatePending, b.Start, end), listLink(r.Queue, delayqueue.StateRetry, b.Start, end)}})
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
	if err = p.without(r, err); err != nil {
		return err
	}
	days = withHours(days, p.Hours)
	say := r.lang.say
	for _, n := range []ops.Tally{p.Recent, health.Sum(p.Hours[max(len(p.Hours)-24, 0):]), health.Sum(days)} {
		p.Spans = append(p.Spans, r.lang.span(n, p.At))
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
		long := time.Hour
		if c == month {
			long = 24 * time.Hour
		}
		c.Legend = []legend{{"good", say("done")}, {"bad", say("failed or lost")}, {"sent", say("sent")}}
		for _, t := range tallies {
			c.bars = append(c.bars, bar{at: t.Start, stack: []int64{t.Acked, t.Failed + t.Lost}, line: t.Sent,
				links: []string{"", listLink(r.Queue, delayqueue.StateGarbage, t.Start, t.Start.Add(long))}})
		}
		r.lang.draw(c)
	}
	p.Past = []*chart{hours, month}
	return nil
}

// withHours counts the present day by its hours if these were read later. Otherwise the last 24 hours could be more
// than the last 30 days.
func withHours(days, hours []ops.Tally) []ops.Tally {
	days = slices.Clone(days)
	all := func(t ops.Tally) int64 { return t.Sent + t.Delivered + t.Acked + t.Failed + t.Lost + t.Garbage }
	for i := range days {
		if first := slices.IndexFunc(hours, func(t ops.Tally) bool { return t.Start.Equal(days[i].Start) }); first >= 0 {
			day := health.Sum(hours[first:min(first+24, len(hours))])
			if day.Start = days[i].Start; all(day) > all(days[i]) {
				days[i] = day
			}
		}
	}
	return days
}

// span is what was counted from n.Start until now.
func (l *language) span(n ops.Tally, now time.Time) span {
	long := max(now.Sub(n.Start), time.Hour) // clocks differ
	return span{l.say("since %s", l.clock(n.Start)), n, health.RateOf(n.Sent, long),
		health.RateOf(n.Acked+n.Garbage+n.Superseded, long), health.Failing(n)}
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
	links []string // of each of stack, to its messages; "" or none: there is no such link
	line  int64
}

// A chartRow is a bar in numbers, in the order of the legend.
type chartRow struct {
	When   template.HTML
	Values []int64
	links  []string
}

// Link is the address of the messages of a value, "" if there is none.
func (r chartRow) Link(i int) string {
	if i >= len(r.links) || r.Values[i] == 0 {
		return ""
	}
	return r.links[i]
}

const (
	kindsShown  = 20 // kinds that have a row
	longestKind = 64 // bytes that consumers keep of a name
)

// A kindRow is what became of the messages of a kind.
type kindRow struct {
	ops.Kind
	Failing health.Percent
	Link    string // to its messages in garbage; "": no filter finds them
}

// byKind makes the rows of kinds.
func (p *queuePage) byKind(all []ops.Kind) {
	for _, k := range all {
		if k.Other || len(p.Kinds) == kindsShown {
			p.Rest.Handled += k.Handled
			p.Rest.Failed += k.Failed
			continue
		}
		row := kindRow{k, health.Failing(ops.Tally{Acked: k.Handled - k.Failed, Failed: k.Failed}), ""}
		// consumers cut names, and write U+FFFD for what is no UTF-8; a filter takes blanks away
		exact := len(k.Name) < longestKind && !strings.Contains(k.Name, "\uFFFD") && strings.TrimSpace(k.Name) == k.Name
		if exact && k.Name != "" && k.Failed > 0 {
			row.Link = linkOf("messages", nil, "q", p.Name, "state", "garbage", "header", k.Header+"="+k.Name)
		}
		p.Kinds = append(p.Kinds, row)
	}
}
