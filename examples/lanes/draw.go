package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// cells are the messages of a lane that are drawn one by one; of a longer lane, what is handled now is drawn.
const cells = 20

// A drawing has a line for each lane. In a terminal it is drawn again in the same place, else once a second below the
// last.
type drawing struct {
	out   io.Writer
	scene *scene
	every time.Duration
	above string // goes back to the first line of the last drawing
	drawn bool
}

func newDrawing(out io.Writer, s *scene) *drawing {
	fmt.Fprintln(out, "a message: ✓ handled, █ being handled, ↻ failed and comes again, · waiting")
	d := &drawing{out: out, scene: s, every: time.Second}
	if isTerminal(out) {
		d.every, d.above = 50*time.Millisecond, fmt.Sprintf("\x1b[%dA", len(s.lanes)+1)
	}
	return d
}

// wait waits until it is time to draw again, and says whether ctx goes on.
func (d *drawing) wait(ctx context.Context) bool {
	select {
	case <-time.After(d.every):
		return true
	case <-ctx.Done():
		return false
	}
}

func (d *drawing) draw() {
	var b strings.Builder
	if d.drawn {
		b.WriteString(d.above)
	}
	d.drawn = true
	s := d.scene
	s.mu.Lock()
	for i, l := range s.lanes {
		at := ""
		if i == 0 {
			at = fmt.Sprintf("%.1f s", time.Since(s.begun).Seconds())
		}
		fmt.Fprintf(&b, "%7s  %-7s  %d at a time  %s  handled %4d of %4d\n", at, l.name, l.width, l.picture(), l.handled,
			l.messages)
	}
	fmt.Fprintf(&b, "%7s  %-7s  %-11s  %*s  handled %4d, at most %6.1f ms late\n", "", "no lane", "", cells, "", s.others,
		float64(s.worst.Microseconds())/1000)
	s.mu.Unlock()
	_, _ = io.WriteString(d.out, b.String())
}

// picture is the messages of a lane.
func (l *lane) picture() string {
	var b strings.Builder
	if l.messages > cells {
		b.WriteString(strings.Repeat("█", l.busy) + strings.Repeat("·", min(cells-l.busy, l.messages-l.handled-l.busy)))
	} else {
		for _, is := range l.is {
			b.WriteString(map[state]string{waits: "·", runs: "█", retries: "↻", handled: "✓"}[is])
		}
	}
	return fmt.Sprintf("%-*s", cells, b.String())
}

func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
