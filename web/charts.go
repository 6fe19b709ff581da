package web

import (
	"fmt"
	"html/template"
	"strings"
	"time"
)

// Charts are SVG that is made here, without a style of its own: the stylesheet has their colours. Each has its numbers in words, too.

const (
	sparkWide, sparkHigh = 120, 28
)

// spark draws how many messages waited while somebody looked, up to five minutes.
func (l *language) spark(samples []sample) template.HTML {
	if len(samples) == 0 {
		return ""
	}
	first, last := samples[0], samples[len(samples)-1]
	low, high := last.Waits, last.Waits
	for _, s := range samples {
		low, high = min(low, s.Waits), max(high, s.Waits)
	}
	end := last.At
	begin := end.Add(-max(end.Sub(first.At), time.Minute))
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
	words := l.say("What waits, in the last %s: from %s to %s", l.duration(end.Sub(first.At)), l.number(first.Waits), l.number(last.Waits))
	return template.HTML(fmt.Sprintf(`<svg class="spark" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="%s"><path class="area" d="%sL%.1f %d L%.1f %d Z"/><path class="line" d="%s"/><circle cx="%.1f" cy="%.1f" r="2"/></svg>`,
		sparkWide, sparkHigh, sparkWide, sparkHigh, template.HTMLEscapeString(words), line.String(), x(end), sparkHigh, x(first.At), sparkHigh, line.String(), x(end), y(last.Waits)))
}
