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
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
)

// A grid is a table without lines. With a header, it is made to fit the width of the terminal.
type grid struct {
	header []any
	rows   [][]cell
	right  []int       // columns of numbers, counted from 1
	last   int         // number of the column that is cut last; 0: none
	json   bool        // rows are printed as JSON instead, one a line
	csv    *export.CSV // rows are printed as CSV instead; nil: not
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

// cutLast names the column that matters most, which is cut after all others.
func (g *grid) cutLast(column int) *grid {
	g.last = column
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
	gap       = 2 // between columns
	narrowest = 8 // no column is cut to less
	idEnd     = 9 // characters that are left of an id: its end, in which ids differ
)

// render draws the table, cut to this width in characters; 0: not cut.
func (g *grid) render(width int) string {
	t := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", strings.Repeat(" ", gap)
	style.Box.UnfinishedRow = "…"
	style.Format.Header = text.FormatDefault
	t.SetStyle(style)
	if len(g.header) > 0 {
		header := make(table.Row, len(g.header))
		for i, head := range g.header { // each by itself: coloured blanks behind the last would make the table too wide
			header[i] = faint.Sprint(strings.ToUpper(fmt.Sprint(head)))
		}
		t.AppendHeader(header)
	}
	columns, fits := g.fit(width)
	for _, row := range g.rows {
		cells := make(table.Row, len(row))
		for i, c := range row {
			if cells[i] = c.text; len(columns) > 0 && columns[i].short {
				cells[i] = c.short
			}
		}
		t.AppendRow(cells)
	}
	configs := make([]table.ColumnConfig, len(columns))
	for i, c := range columns {
		configs[i] = table.ColumnConfig{Number: i + 1, Hidden: c.hidden, WidthMax: c.most, WidthMaxEnforcer: snip}
		if c.id {
			configs[i].WidthMaxEnforcer = snipFront
		}
	}
	for _, n := range g.right {
		if len(configs) < n {
			configs = append(configs, make([]table.ColumnConfig, n-len(configs))...)
		}
		configs[n-1].Number, configs[n-1].Align, configs[n-1].AlignHeader = n, text.AlignRight, text.AlignRight
	}
	if !fits {
		t.SetAllowedRowLength(width)
	}
	t.SetColumnConfigs(configs)
	t.SuppressTrailingSpaces()
	return t.Render()
}

func snip(cell string, most int) string { return text.Snip(cell, most, "…") }

// snipFront leaves the end of an id. An id has no escape sequences; the header may have some, and is never that wide.
func snipFront(id string, most int) string {
	if text.StringWidthWithoutEscSequences(id) <= most {
		return id
	}
	return "…" + id[len(id)-most+1:]
}

// A column says how a column of a table is drawn.
type column struct {
	long, brief   int // width with the texts, and with the short ones
	most          int // width to which it is cut; 0: it is not cut
	hidden, short bool
	id, number    bool
}

// width is the width in which the column is drawn.
func (c *column) width() int {
	w := c.long
	if c.short {
		w = c.brief
	}
	if c.most > 0 {
		w = min(w, c.most)
	}
	return w
}

// fit says how columns are drawn in a width; nil: as they are. These steps follow each other until the columns fit:
// empty columns are left out, the last first; cells show their short texts; ids are cut; the widest of the other
// columns is cut; the column that matters most is cut. Numbers are never cut.
func (g *grid) fit(width int) (columns []column, fits bool) {
	if width <= 0 || len(g.header) == 0 {
		return nil, true
	}
	columns = make([]column, len(g.header))
	for i, head := range g.header {
		columns[i].id = slices.Contains([]any{"id", "handling", "last one"}, head)
		columns[i].number = slices.Contains(g.right, i+1)
	}
	g.measure(columns)
	over := func() int {
		total := -gap - width
		for i := range columns {
			if !columns[i].hidden {
				total += columns[i].width() + gap
			}
		}
		return total
	}
	for i := len(columns) - 1; i >= 0 && over() > 0; i-- {
		columns[i].hidden = g.empty(i) && i+1 != g.last
	}
	for i := 0; i < len(columns) && over() > 0; i++ {
		columns[i].short = true
	}
	for i := 0; i < len(columns) && over() > 0; i++ {
		if c := &columns[i]; c.id && c.width() > idEnd && !c.hidden {
			c.most = max(idEnd, c.width()-over())
		}
	}
	for over() > 0 {
		widest := -1
		for i := range columns {
			c := &columns[i]
			if !c.hidden && !c.id && !c.number && i+1 != g.last && c.width() > narrowest &&
				(widest < 0 || c.width() > columns[widest].width()) {
				widest = i
			}
		}
		if widest < 0 {
			if widest = g.last - 1; g.last == 0 || columns[widest].width() <= narrowest {
				break // the ends of the rows are cut
			}
		}
		columns[widest].most = columns[widest].width() - 1
	}
	return columns, over() <= 0
}

// measure sets the widths of columns.
func (g *grid) measure(columns []column) {
	for i := range columns {
		c := &columns[i]
		c.long = text.StringWidthWithoutEscSequences(fmt.Sprint(g.header[i]))
		c.brief = c.long
		for _, row := range g.rows {
			if i < len(row) {
				c.long = max(c.long, text.StringWidthWithoutEscSequences(row[i].text))
				c.brief = max(c.brief, text.StringWidthWithoutEscSequences(row[i].short))
			}
		}
	}
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
