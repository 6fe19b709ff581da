package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
)

// A grid is a table without lines. With a header, it is made to fit the width of the terminal.
type grid struct {
	header []any
	rows   [][]cell
	right  []int // columns of numbers, counted from 1
	last   int   // the column that is cut last, counted from 1; 0: none
}

// A cell has a short text for where there is no room for the other.
type cell struct{ text, short string }

// A moment is an instant in a table: how far off it is alone, where there is no more room.
type moment struct{ time.Time }

func newGrid(header ...any) *grid { return &grid{header: header} }

// numbers aligns columns to the right; the first is 1.
func (g *grid) numbers(columns ...int) *grid {
	g.right = columns
	return g
}

// cutLast names the column that matters most.
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

const (
	gap       = 2 // between columns
	narrowest = 8 // no column is cut to less
	idEnd     = 9 // what is left of an id: its end, in which ids differ
)

// render draws the table, cut to so many columns of characters; 0: not at all.
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
		for i, head := range g.header { // the blanks behind the last are not to be coloured: they make it too wide
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

// snipFront leaves the end of an id, which has no escape sequences. The header, which may have some, is never that wide.
func snipFront(id string, most int) string {
	if text.StringWidthWithoutEscSequences(id) <= most {
		return id
	}
	return "…" + id[len(id)-most+1:]
}

// A column is how one of a table is drawn.
type column struct {
	long, brief   int // how wide it is with its texts, and with its short ones
	most          int // 0: it is not cut
	hidden, short bool
	id, number    bool
}

// width is how wide it is drawn.
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

// fit says how columns are drawn in so much width, nil for as they are. Until they fit, columns in which nothing stands are
// left out, the last first; instants are said by how far off they are; ids are cut; the widest of the others is cut, and
// only then the one that matters most. Numbers never are.
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

// measure says how wide columns are.
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

// empty reports whether nothing stands in a column, or nothing but zeros.
func (g *grid) empty(i int) bool {
	for _, row := range g.rows {
		if i < len(row) && !slices.Contains([]string{"", "0", "0/0", "–"}, row[i].text) {
			return false
		}
	}
	return len(g.rows) > 0
}

// print draws the table on the output.
func (g *grid) print() { say("%s", painted(g.render(width()))) }

// width of the terminal, 0 for no terminal.
func width() int {
	w, _, err := term.GetSize(int(os.Stdout.Fd()))
	if err != nil {
		return 0
	}
	return w
}

// height of the terminal in lines, 0 for no terminal.
func height() int {
	_, h, err := term.GetSize(int(os.Stdout.Fd()))
	if err != nil {
		return 0
	}
	return h
}
