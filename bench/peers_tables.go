package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// A peerFigure is a line of the comparison.
type peerFigure struct {
	what string
	row  string
	metric
	cell func([]float64) string // of the samples; nil: their median
}

// withSpread is the median, and how far the samples lie apart.
func withSpread(values []float64) string {
	mid := median(values)
	apart := slices.Max(values) - slices.Min(values)
	if len(values) < 2 || mid == 0 {
		return figure(mid)
	}
	return fmt.Sprintf("%s ±%.0f %%", figure(mid), 50*apart/mid)
}

// span is the lowest and the highest. NaN is what could not be seen, and infinite what took too long.
func span(values []float64) string {
	seen := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	if len(seen) == 0 {
		return "not seen"
	}
	text := func(v float64) string {
		return choose(math.IsInf(v, 1), fmt.Sprintf("over %.0f", killPatience.Seconds()), figure(v))
	}
	low, high := text(slices.Min(seen)), text(slices.Max(seen))
	if low == high {
		return low
	}
	return low + " – " + high
}

// share of a core, whose least difference is a tick of the clock that counts CPU time.
func share(values []float64) string {
	v, least := median(values), 100*cpuTick.Seconds()/idleOver.Seconds()
	return choose(v < least, "<"+figure(least), figure(v))
}

// peerSections are the tables of the comparison.
func (r *peersRun) peerSections() []struct {
	title string
	lines []peerFigure
} {
	throughput := func(suffix string) (lines []peerFigure) {
		for _, f := range []struct {
			title string
			metric
		}{{"messages/s", rate}, {"server CPU us", serverCPU}, {"client CPU us", clientCPU}} {
			for _, row := range []struct{ what, name string }{
				{"send, one at a time", send1}, {"send, 64 callers", send64},
				{"send, batches of 500", sendBatch}, {"handle, 64 workers", drain64},
			} {
				lines = append(lines, peerFigure{what: row.what + ": " + f.title, row: row.name + suffix, metric: f.metric,
					cell: withSpread})
			}
		}
		return lines
	}
	var backlog []peerFigure
	for _, level := range r.peerLevels() {
		for _, f := range []struct {
			what, title string
			metric
		}{
			{"send", "messages/s", rate}, {"send", "server CPU us", serverCPU},
			{"drain", "server CPU us", serverCPU}, {"memory", "bytes a message", bytesEach},
		} {
			row := backlogName(f.what, level)
			backlog = append(backlog, peerFigure{what: row + ": " + f.title, row: row, metric: f.metric, cell: withSpread})
		}
	}
	return []struct {
		title string
		lines []peerFigure
	}{
		{titleThroughput, throughput("")},
		{titleStrict, throughput(strictSuffix)},
		{titleLateness, []peerFigure{
			{what: "p50 ms", row: "lateness", metric: lateP50, cell: withSpread},
			{what: "p99 ms", row: "lateness", metric: lateP99, cell: withSpread},
			{what: "max ms", row: "lateness", metric: lateMax, cell: withSpread},
			{what: "early, messages", row: "lateness", metric: early, cell: span},
			{what: "never, messages", row: "lateness", metric: never, cell: span},
		}},
		{titleIdle, []peerFigure{
			{what: "commands or transactions/s", row: idleName, metric: commandsSecond},
			{what: "server, % of a core", row: idleName, metric: redisShare, cell: share},
			{what: "client, % of a core", row: idleName, metric: clientShare, cell: share},
		}},
		{titleBacklog, backlog},
		{titleKill, []peerFigure{
			{what: "half of them run again after, s", row: killName, metric: again50, cell: span},
			{what: "all of them run again after, s", row: killName, metric: againMax, cell: span},
			{what: "not run again, messages", row: killName, metric: never, cell: span},
			{what: "retries charged", row: killName, metric: charged, cell: span},
		}},
		{titleKillBusy, []peerFigure{
			{what: "all are handled after, s", row: killBusyName, metric: againMax, cell: span},
			{what: "not handled, messages", row: killBusyName, metric: never, cell: span},
			{what: "handled twice, messages", row: killBusyName, metric: twice, cell: span},
		}},
	}
}

// samples of a line, of a contender.
func (r *peersRun) samples(l peerFigure, c contender) []float64 {
	name := l.row
	if c.alwaysStrict {
		name = strings.TrimSuffix(name, strictSuffix)
	}
	if found := r.res.find(name); found != nil {
		return found.values(c.name, l.metric)
	}
	return nil
}

// tables of what was found: a line for each figure, a column for each contender.
func (r *peersRun) tables() []table {
	var out []table
	for _, section := range r.peerSections() {
		t := table{title: section.title, head: []string{""}}
		for _, c := range r.measured() {
			t.head = append(t.head, c.name)
		}
		for _, l := range section.lines {
			if r.res.find(l.row) == nil { // a contender that is always strict has figures of another row
				continue
			}
			line, any := []string{l.what}, false
			for _, c := range r.measured() {
				cell := "none"
				if values := r.samples(l, c); len(values) > 0 {
					any = true
					if l.cell != nil {
						cell = l.cell(values)
					} else {
						cell = figure(median(values))
					}
				}
				line = append(line, cell)
			}
			if any {
				t.lines = append(t.lines, line)
			}
		}
		if len(t.lines) > 0 {
			out = append(out, t)
		}
	}
	return out
}
