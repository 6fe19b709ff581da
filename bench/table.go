package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"

	"golang.org/x/text/language"
	text "golang.org/x/text/message"
)

// A kind is a table: what its columns are.
type kind int

const (
	throughputTable kind = iota
	latenessTable
	idleTable
	memoryTable
	massTable
	backlogTable
	payloadTable
	instructionsTable
	peerThroughput
	peerLateness
	peerIdle
	peerBacklog
	peerKill
	kinds
)

// A column shows a metric, or its ratio to another system's.
type column struct {
	title   string
	metric  metric
	against string // "": the figure itself
}

var kindTitles = [kinds]string{
	throughputTable:   "Throughput, and cost of a message",
	latenessTable:     "Lateness: start of the handler minus due, in ms",
	idleTable:         "A consumer with nothing to do",
	memoryTable:       "Server memory of a pending message with a 100-byte payload",
	massTable:         "A million messages due in the same second",
	backlogTable:      "Cost of a message while others are pending",
	payloadTable:      "Larger payloads: a message sent in batches of 500, and drained by 64 workers",
	instructionsTable: "Thousands of machine instructions of redis-server",
}

var kindColumns = [kinds][]column{
	throughputTable: {
		{"messages/s", rate, ""}, {"x floor", rate, nameFloor},
		{"Redis CPU us", redisCPU, ""}, {"x floor", redisCPU, nameFloor}, {"client CPU us", clientCPU, ""},
		{"commands", commands, ""}, {"round trips", trips, ""}, {"allocations", allocs, ""},
	},
	latenessTable: {
		{"p50", lateP50, ""}, {"p99", lateP99, ""}, {"max", lateMax, ""}, {"early, messages", early, ""},
		{"fetches a message", fetches, ""},
	},
	idleTable: {
		{"commands/s", commandsSecond, ""}, {"round trips/s", tripsSecond, ""},
		{"Redis CPU %", redisShare, ""}, {"client CPU %", clientShare, ""},
	},
	memoryTable: {{"bytes", bytesEach, ""}, {"x floor", bytesEach, nameFloor}},
	massTable: {
		{"messages/s", rate, ""}, {"Redis CPU us", redisCPU, ""}, {"longest hold ms", holdMs, ""},
		{"PING p99 ms", pingP99, ""}, {"PING max ms", pingMax, ""}, {"PING p99 ms before", pingQuiet, ""},
	},
	backlogTable: {
		{"messages/s", rate, ""}, {"x floor", rate, nameFloor},
		{"Redis CPU us", redisCPU, ""}, {"x floor", redisCPU, nameFloor}, {"client CPU us", clientCPU, ""},
		{"commands", commands, ""}, {"allocations", allocs, ""},
	},
	payloadTable: {
		{"memory", bytesEach, ""}, {"send: Redis CPU us", sendRedis, ""}, {"client CPU us", sendClient, ""},
		{"bytes in", bytesIn, ""},
		{"drain: Redis CPU us", drainRedis, ""}, {"client CPU us", drainClient, ""}, {"bytes out", bytesOut, ""},
		{"log of send", sendLog, ""}, {"log of drain", drainLog, ""},
	},
	instructionsTable: {{"a call", callCost, ""}, {"a message", eachCost, ""}},
}

// A table is text: a title, a head, and lines as long as the head.
type table struct {
	title, note string
	head        []string
	lines       [][]string
}

// tablesOf shows results.
func tablesOf(res *results) []table {
	var out []table
	for k := range kinds {
		t := table{title: kindTitles[k], note: kindNotes[k], head: []string{"scenario", "system"}}
		for _, c := range kindColumns[k] {
			t.head = append(t.head, c.title)
		}
		for _, r := range res.rows {
			if r.Kind == k {
				t.lines = append(t.lines, linesOf(r)...)
			}
		}
		if len(t.lines) > 0 {
			out = append(out, t)
		}
	}
	return out
}

// linesOf is a line for each system that a row has.
func linesOf(r *row) [][]string {
	var lines [][]string
	for _, system := range systemNames {
		if len(r.Samples[system]) == 0 {
			continue
		}
		line := []string{r.Name, system}
		for _, c := range kindColumns[r.Kind] {
			line = append(line, cell(r, system, c))
		}
		lines = append(lines, line)
	}
	return lines
}

func cell(r *row, system string, c column) string {
	v, ok := r.median(system, c.metric)
	if !ok {
		return ""
	}
	if c.against != "" {
		base, ok := r.median(c.against, c.metric)
		if !ok || c.against == system || base == 0 {
			return ""
		}
		v /= base
	}
	return figure(v)
}

// figure is a number with three digits that count, or all that stand before its point.
func figure(v float64) string {
	switch a := math.Abs(v); {
	case v == 0:
		return "0"
	case a >= 1000:
		return text.NewPrinter(language.English).Sprint(int64(math.Round(v)))
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	case a >= 0.1:
		return fmt.Sprintf("%.2f", v)
	default:
		return fmt.Sprintf("%.4f", v)
	}
}

// printTables writes tables for a terminal, aligned: names to the left, figures to the right.
func printTables(out io.Writer, tables []table) {
	for _, t := range tables {
		lines := append([][]string{t.head}, t.lines...)
		width := 0
		var figures strings.Builder
		w := tabwriter.NewWriter(&figures, 0, 0, 2, ' ', tabwriter.AlignRight)
		for _, line := range lines {
			width = max(width, len(line[0]))
			fmt.Fprintln(w, strings.Join(line[1:], "\t")+"\t")
		}
		_ = w.Flush() // to memory
		fmt.Fprintf(out, "\n%s\n\n", t.title)
		i, last := 0, ""
		for text := range strings.Lines(figures.String()) {
			fmt.Fprintf(out, "%-*s%s", width, unless(lines[i][0], last), text)
			last = lines[i][0]
			i++
		}
	}
}

// unless is a name, or nothing if it is the same as the last.
func unless(name, last string) string {
	if name == last {
		return ""
	}
	return name
}

// markdown is the same for a document.
func (t table) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s |\n|---|---|%s\n", strings.Join(t.head, " | "), strings.Repeat("--:|", len(t.head)-2))
	last := ""
	for _, line := range t.lines {
		fmt.Fprintf(&b, "| %s | %s |\n", unless(line[0], last), strings.Join(line[1:], " | "))
		last = line[0]
	}
	return b.String()
}
