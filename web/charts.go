package web

import (
	"fmt"
	"html/template"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/health"
)

// Charts are SVG that is made here, without a style of its own: the stylesheet has their colours. Each has its
// numbers in words, too.

const (
	sparkWide, sparkHigh = 120, 28
)

// spark draws how many messages waited while somebody looked, up to five minutes.
func (l *language) spark(samples []health.Sample) template.HTML {
	if len(samples) == 0 {
		return ""
	}
	first, last := samples[0], samples[len(samples)-1]
	low, high := last.Waits, last.Waits
	for _, s := range samples {
		low, high = min(low, s.Waits), max(high, s.Waits)
	}
	end := last.At
	begin := end.Add(-max(end.Sub(first.At), 20*time.Second))
	x := func(t time.Time) float64 {
		return 2 + float64(sparkWide-4)*float64(t.Sub(begin))/float64(end.Sub(begin))
	}
	y := func(n int64) float64 {
		if high == low {
			return sparkHigh / 2
		}
		return 3 + float64(sparkHigh-6)*float64(high-n)/float64(high-low)
	}
	var line strings.Builder
	for i, s := range samples {
		fmt.Fprintf(&line, "%c%.1f %.1f", "ML"[min(i, 1)], x(s.At), y(s.Waits))
	}
	words := l.say("What waits, in the last %s: from %s to %s", l.duration(end.Sub(first.At)), l.number(first.Waits),
		l.number(last.Waits))
	return template.HTML(
		fmt.Sprintf(`<svg class="spark" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="%s">`+
			`<path class="area" d="%sL%.1f %d L%.1f %d Z"/><path class="line" d="%s"/><circle cx="%.1f" cy="%.1f" r="2"/></svg>`,
			sparkWide, sparkHigh, sparkWide, sparkHigh, template.HTMLEscapeString(words), line.String(), x(end), sparkHigh,
			x(first.At), sparkHigh,
			line.String(), x(end), y(last.Waits)))
}

// caption sums up a chart. A line counts something else than the bars: then each has its sum.
func (l *language) caption(c *chart, lined bool) string {
	if !lined {
		return l.say("%s in all, at most %s", l.number(c.Total), l.number(c.Most))
	}
	sums := make([]int64, len(c.Legend))
	for _, row := range c.Rows {
		for i, n := range row.Values {
			sums[i] += n
		}
	}
	var parts []string
	for i, of := range c.Legend {
		parts = append(parts, of.Text+" "+l.number(sums[i]))
	}
	return strings.Join(parts, ", ")
}

// linked makes a bar a link to the messages of its first number that has some. The keyboard and readers of a screen
// have the links of the table.
func linked(group string, r chartRow) string {
	for i := range r.Values {
		if to := r.Link(i); to != "" {
			return `<a href="` + template.HTMLEscapeString(to) + `" tabindex="-1" aria-hidden="true">` + group + `</a>`
		}
	}
	return group
}

// draw makes the picture of a chart, and its table. The bars are 100 units high and 10 wide; the page stretches them.
func (l *language) draw(c *chart) *chart {
	lined := len(c.Legend) > 2
	for _, b := range c.bars {
		var high int64
		for _, n := range b.stack {
			high += n
		}
		c.Total += high
		c.Most = max(c.Most, high, b.line)
		if high > 0 || b.line > 0 {
			values := b.stack
			if lined {
				values = append(values[:len(values):len(values)], b.line)
			}
			c.Rows = append(c.Rows, chartRow{l.when(b.at), values, b.links})
		}
	}
	c.Caption = l.caption(c, lined)
	words := l.say("%s: %s; the table below has the numbers", c.Title, c.Caption)
	var out, line strings.Builder
	fmt.Fprintf(&out, `<svg class="bars" viewBox="0 0 %d 100" preserveAspectRatio="none" role="group" aria-label="%s">`,
		10*len(c.bars),
		template.HTMLEscapeString(words))
	height := func(n int64) float64 { return 98 * float64(n) / float64(max(c.Most, 1)) }
	for i, b := range c.bars {
		y := 100.0
		tip := l.clockOf(b.at, "2006-01-02 15:04")
		var rects strings.Builder
		for j, n := range b.stack {
			if n > 0 {
				high := max(height(n), 1.5)
				y -= high
				fmt.Fprintf(&rects, `<rect class="%s" x="%d" y="%.1f" width="8" height="%.1f"/>`, c.Legend[j].Class, 10*i+1, y,
					high)
			}
			tip += " · " + c.Legend[j].Text + " " + l.number(n)
		}
		if lined {
			tip += " · " + c.Legend[len(b.stack)].Text + " " + l.number(b.line)
			fmt.Fprintf(&line, "%c%d %.1f", "ML"[min(i, 1)], 10*i+5, 100-height(b.line))
		}
		group := fmt.Sprintf(`<g><title>%s</title><rect class="room" x="%d" y="0" width="10" height="100"/>%s</g>`,
			template.HTMLEscapeString(tip), 10*i, rects.String())
		out.WriteString(linked(group, chartRow{Values: b.stack, links: b.links}))
	}
	if lined {
		fmt.Fprintf(&out, `<path class="%s" d="%s"/>`, c.Legend[2].Class, line.String())
	}
	c.SVG = template.HTML(out.String() + "</svg>")
	return c
}
