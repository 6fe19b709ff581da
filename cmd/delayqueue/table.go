package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/go-delayqueue/delayqueue/internal/export"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
)

// A grid is a table. On a terminal with a header, it is made to fit the window: fit says what gives way. What the next
// command needs (ids, keys, names) is never cut, so a row that has no room goes on in its next line.
type grid struct {
	header []any
	rows   [][]cell
	right  []int       // columns of numbers, counted from 1
	cut    []int       // columns that may be cut, because get or --json has the whole text
	long   []int       // columns of sentences, which are narrow so that the others have room, and never cut
	json   bool        // rows are printed as JSON instead, one a line
	csv    *export.CSV // rows are printed as CSV instead; nil: not
	of     any         // what rows stand for, whose names are the header of a CSV
}

// A cell has a short text for narrow terminals.
type cell struct{ text, short string }

// A moment is an instant in a table. On a narrow terminal only its distance from now is shown.
type moment struct{ time.Time }

func newGrid(header ...any) *grid { return &grid{header: header} }

// grid is a table, or with --json one object for each row.
func (a *app) grid(header ...any) *grid {
	g := &grid{header: header, json: a.json}
	if a.csv {
		g.csv = &export.CSV{Writer: csvOutput{}}
	}
	return g
}

// csvOutput is the output for CSV. A terminal gets nothing that could control it.
type csvOutput struct{}

func (csvOutput) Write(text []byte) (int, error) {
	if onTerminal(os.Stdout) {
		_, err := os.Stdout.WriteString(printable(string(text)))
		return len(text), err
	}
	return os.Stdout.Write(text)
}

// ofKind says what rows stand for, so that a CSV without rows has a header.
func (g *grid) ofKind(object any) *grid {
	g.of = object
	return g
}

// row adds a row, or prints what it stands for as JSON.
func (g *grid) row(object any, cells ...any) {
	switch {
	case g.csv != nil:
		unsaid = cmp.Or(unsaid, g.csv.Write(object))
		return
	case g.json:
		printJSON(object)
		return
	}
	g.add(cells...)
}

// numbers aligns columns to the right; the first is 1.
func (g *grid) numbers(columns ...int) *grid {
	g.right = columns
	return g
}

// cuts names the columns that may be cut; the first is 1.
func (g *grid) cuts(columns ...int) *grid {
	g.cut = columns
	return g
}

// sentences names the columns of sentences; the first is 1.
func (g *grid) sentences(columns ...int) *grid {
	g.long = columns
	return g
}

func (g *grid) add(cells ...any) {
	row := make([]cell, len(cells))
	for i, value := range cells {
		c := &row[i]
		switch value := value.(type) {
		case painted:
			c.text = string(value)
		case int64:
			c.text = humanize.Comma(value)
		case moment:
			*c = cell{at(value.Time), age(value.Time)}
			continue
		default:
			c.text = oneLine(fmt.Sprint(value))
		}
		c.short = c.text
	}
	g.rows = append(g.rows, row)
}

// fact adds something with its name, unless it is empty.
func (g *grid) fact(name string, value any) {
	if value != "" && value != painted("") {
		g.add(paint(faint, name), value)
	}
}

const (
	gap      = 2  // between columns
	indent   = 2  // of the lines of a row behind its first
	readable = 20 // no column is made narrower
	widest   = 64 // a cell that is wider does not make its column wider: its row alone gives way
)

// A column says how a column of a table is drawn.
type column struct {
	cells            []int // widths
	index            int   // of its cells in a row
	start, width     int
	next             bool // it begins the next line of a row
	short            bool // it has the short texts
	right, cut, long bool
}

// narrow makes the column as wide as its widest cell, and no wider than most. Cells that are wider are cut, or their
// rows give way.
func (c *column) narrow(most int) {
	c.width = 0
	for _, w := range c.cells {
		switch {
		case w <= most:
			c.width = max(c.width, w)
		case c.cut:
			c.width = most
		}
	}
	c.width = max(c.width, c.cells[0]) // of the header
}

// measure takes the widths of the texts.
func (g *grid) measure(c *column) {
	c.cells = []int{0}
	if c.index < len(g.header) {
		c.cells[0] = textWidth(fmt.Sprint(g.header[c.index]))
	}
	for _, row := range g.rows {
		c.cells = append(c.cells, textWidth(c.of(row)))
	}
	c.narrow(widest)
}

// of is the column's text in a row.
func (c *column) of(row []cell) string {
	switch {
	case c.index >= len(row):
		return ""
	case c.short:
		return row[c.index].short
	}
	return row[c.index].text
}

func textWidth(s string) int { return text.StringWidthWithoutEscSequences(s) }

// fit says how columns are drawn in a width; 0: on one line, however long. These steps follow each other until the
// columns fit: empty columns are left out, the last first; cells show their short texts; columns that may be cut are
// made narrower, and those of sentences; the columns that have no room begin the next line of each row.
func (g *grid) fit(width int) (columns []*column) {
	count := len(g.header)
	for _, row := range g.rows {
		count = max(count, len(row))
	}
	for i := range count {
		has := func(numbers []int) bool { return slices.Contains(numbers, i+1) }
		c := &column{index: i, right: has(g.right), cut: has(g.cut), long: has(g.long)}
		g.measure(c)
		columns = append(columns, c)
	}
	if width == 0 {
		place(columns, 0)
		return columns
	}
	for i := len(columns) - 1; i >= 0 && total(columns) > width; i-- {
		if g.empty(columns[i].index) {
			columns = slices.Delete(columns, i, i+1)
		}
	}
	for _, c := range columns {
		if c.short = total(columns) > width; c.short {
			g.measure(c)
		}
	}
	shrink(columns, width)
	for rest, used := columns, 0; len(rest) > 0; used = indent {
		n := 1
		for n < len(rest) && used+total(rest[:n+1]) <= width {
			n++
		}
		line := rest[:n]
		for _, c := range line {
			c.narrow(widest)
		}
		shrink(line, width-used)
		place(line, used)
		line[0].next, rest = used > 0, rest[n:]
	}
	return columns
}

func total(columns []*column) int {
	sum := -gap
	for _, c := range columns {
		sum += c.width + gap
	}
	return sum
}

// place says where the columns of a line begin.
func place(line []*column, from int) {
	for _, c := range line {
		c.start = from
		from += c.width + gap
	}
}

// shrink makes columns narrower until they fit, or until all are as narrow as can be: first those that may be cut, then
// those of sentences, the widest first.
func shrink(columns []*column, width int) {
	for total(columns) > width {
		var next *column
		for _, c := range columns {
			if (c.cut || c.long) && c.width > max(readable, c.cells[0]) &&
				(next == nil || c.cut && !next.cut || c.cut == next.cut && c.width > next.width) {
				next = c
			}
		}
		if next == nil {
			return
		}
		next.narrow(next.width - 1)
	}
}

// render draws the table in a width in characters; 0: each row has one line, and nothing is cut.
func (g *grid) render(width int) string {
	header, rows := g.lines(width)
	return strings.Join(append(header, slices.Concat(rows...)...), "\n")
}

// lines are the lines of the header, and of each row.
func (g *grid) lines(width int) (header []string, rows [][]string) {
	var heads []cell
	for _, head := range g.header { // each by itself: coloured blanks behind the last would make the table too wide
		name := faint.Sprint(strings.ToUpper(fmt.Sprint(head)))
		heads = append(heads, cell{name, name})
	}
	if len(heads) == 0 {
		width = 0 // facts
	}
	columns := g.fit(width)
	for _, row := range g.rows {
		rows = append(rows, drawRow(columns, row, width))
	}
	return drawRow(columns, heads, width), rows
}

// drawRow draws the cells of a row. A cell that is wider than its column takes the room of the next ones, which then
// have a line of their own. So has a cell that has no room before the end of the line.
func drawRow(columns []*column, row []cell, width int) (lines []string) {
	var line strings.Builder
	at := 0 // where the next cell may begin
	end := func() {
		if at > 0 {
			lines = append(lines, strings.TrimRight(line.String(), " "))
		}
		line.Reset()
		at = 0
	}
	for _, c := range columns {
		if c.next {
			end()
		}
		shown := c.of(row)
		if c.cut && width > 0 {
			shown = text.Snip(shown, c.width, "…")
		}
		long := textWidth(shown)
		if long == 0 {
			continue
		}
		start := c.start
		if c.right {
			start += max(c.width-long, 0)
		}
		parts := []string{shown}
		switch {
		case width == 0:
			start = max(start, at)
		case start < at || start+long > width:
			end()
			start = max(min(start, width-long), min(start, indent))
			parts = strings.Split(text.WrapSoft(shown, max(width-start, 1)), "\n")
		}
		for i, part := range parts {
			if i > 0 {
				end()
			}
			line.WriteString(strings.Repeat(" ", start-max(at-gap, 0)) + part)
			at = start + textWidth(part) + gap
		}
	}
	end()
	return lines
}

// empty reports whether a column holds nothing, or nothing but zeros.
func (g *grid) empty(i int) bool {
	for _, row := range g.rows {
		if i < len(row) && !slices.Contains([]string{"", "0", "0/0", "–"}, row[i].text) {
			return false
		}
	}
	return len(g.rows) > 0
}

// print draws the table on the output, unless it is empty.
func (g *grid) print() {
	if g.csv != nil && g.of != nil {
		unsaid = cmp.Or(unsaid, g.csv.Header(g.of))
	}
	if len(g.rows) > 0 {
		say("%s", painted(g.render(width())))
	}
}

// window is the size of the terminal in columns and lines, 0 and 0 for no terminal.
func window() (columns, lines int) {
	columns, lines, err := term.GetSize(int(os.Stdout.Fd()))
	if err != nil {
		return 0, 0
	}
	return columns, lines
}

func width() int {
	columns, _ := window()
	return columns
}
