package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// A drawing is a table of the classes. In a terminal it is drawn again in the same place, else once a second below
// the last.
type drawing struct {
	out     io.Writer
	classes []*class
	begun   time.Time
	every   time.Duration
	above   string // goes back to the first row of the last table
	drawn   bool
}

func newDrawing(out io.Writer, classes []*class) *drawing {
	d := &drawing{out: out, classes: classes, begun: time.Now(), every: time.Second}
	if isTerminal(out) {
		d.every, d.above = 100*time.Millisecond, fmt.Sprintf("\x1b[%dA", len(classes))
	}
	return d
}

func (d *drawing) draw() {
	var b strings.Builder
	if d.drawn {
		b.WriteString(d.above)
	}
	d.drawn = true
	for i, c := range d.classes {
		at := ""
		if i == 0 {
			at = fmt.Sprintf("%.1f s", time.Since(d.begun).Seconds())
		}
		busy, handled := int(c.busy.Load()), c.handled.Load()
		fmt.Fprintf(&b, "%7s  %-8s  weight %d  %s %d  handled %5d  left %5d  last one %7s late\n", at, c.name, c.weight,
			strings.Repeat("█", busy)+strings.Repeat("·", max(workers-busy, 0)), busy, handled, max(c.sent.Load()-handled, 0),
			time.Duration(c.lateBy.Load()).Round(time.Millisecond))
	}
	_, _ = io.WriteString(d.out, b.String())
}

func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
