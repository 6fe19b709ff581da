package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
)

// A grid is a table without lines. With a header, it is cut to the width of the terminal.
type grid struct {
	header []any
	rows   [][]string
	right  []int // columns of numbers, counted from 1
}

func newGrid(header ...any) *grid { return &grid{header: header} }

// numbers aligns columns to the right; the first is 1.
func (g *grid) numbers(columns ...int) *grid {
	g.right = columns
	return g
}

func (g *grid) add(cells ...any) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		switch cell := cell.(type) {
		case painted:
			row[i] = string(cell)
		case int64:
			row[i] = humanize.Comma(cell)
		default:
			row[i] = oneLine(fmt.Sprint(cell))
		}
	}
	g.rows = append(g.rows, row)
}

const (
	gap       = 2 // between columns
	narrowest = 8 // no column is cut to less
)

// render draws the table, cut to so many columns of characters; 0: not at all.
func (g *grid) render(width int) string {
	t := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", strings.Repeat(" ", gap)
	style.Box.UnfinishedRow = "…"
	style.Format.Header = text.FormatUpper
	style.Color.Header = faint
	t.SetStyle(style)
	if len(g.header) > 0 {
		t.AppendHeader(g.header)
	}
	for _, row := range g.rows {
		cells := make(table.Row, len(row))
		for i, cell := range row {
			cells[i] = cell
		}
		t.AppendRow(cells)
	}
	var configs []table.ColumnConfig
	for _, n := range g.right {
		configs = append(configs, table.ColumnConfig{Number: n, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	if width > 0 && len(g.header) > 0 {
		for i, most := range g.fit(width) {
			if most > 0 {
				configs = append(configs, table.ColumnConfig{Number: i + 1, WidthMax: most, WidthMaxEnforcer: func(cell string, most int) string {
					return text.Snip(cell, most, "…")
				}})
			}
		}
		t.SetAllowedRowLength(width)
	}
	t.SetColumnConfigs(configs)
	t.SuppressTrailingSpaces()
	return t.Render()
}

// fit says how wide columns may be, 0 for those that are not cut. The widest give way first; ids, which are of no
// use in part, and numbers never do.
func (g *grid) fit(width int) []int {
	widths := make([]int, len(g.header))
	total := -gap
	for i, head := range g.header {
		widths[i] = text.StringWidthWithoutEscSequences(fmt.Sprint(head))
		for _, row := range g.rows {
			if i < len(row) {
				widths[i] = max(widths[i], text.StringWidthWithoutEscSequences(row[i]))
			}
		}
		total += widths[i] + gap
	}
	most := make([]int, len(widths))
	whole := map[int]bool{}
	for _, n := range g.right {
		whole[n-1] = true
	}
	for total > width {
		widest := -1
		for i, w := range widths {
			if g.header[i] != "id" && !whole[i] && w > narrowest && (widest < 0 || w > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break // the ends of the rows are cut
		}
		widths[widest]--
		total--
		most[widest] = widths[widest]
	}
	return most
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
