package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/health"
)

// Sequences that every terminal knows.
const (
	altScreen   = "\x1b[?1049h\x1b[?25l" // and no cursor
	mainScreen  = "\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	clearToLine = "\x1b[K"
	clearToEnd  = "\x1b[J"
)

// footLines are those below the table, and the header above it.
const footLines = 4

// A board shows many queues, once or again and again.
type board struct {
	*app
	monitors []*delayqueue.Monitor
	missing  error // why there may be others
	watcher  health.Watcher
	every    time.Duration
	print    func(out io.Writer, all []*health.Look, columns, most int) error // with no more rows than most, unless that is 0
}

// newWatcher asks many queues at a time: those that do not answer are waited for together.
func newWatcher() health.Watcher { return health.Watcher{Limit: patience, AtOnce: 32} }

// once prints the table. The first error decides on the exit code; all were said.
func (b *board) once(ctx context.Context) error {
	all := b.watcher.Read(ctx, b.monitors)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := b.print(os.Stdout, all, width(), 0); err != nil {
		return err
	}
	if b.missing != nil {
		return b.missing
	}
	for _, one := range all {
		if one.Err != nil {
			code, text := b.explain(one.Err)
			if b.json {
				text = ""
			}
			return &failure{code, text}
		}
	}
	return nil
}

// watch redraws in place, within the window as it is. An outage does not end it. What was seen last stays on
// the screen.
func (b *board) watch(ctx context.Context) error {
	inPlace := onTerminal(os.Stdout) && !b.json
	var last bytes.Buffer
	if inPlace {
		fmt.Print(altScreen)
		defer func() { fmt.Print(mainScreen + last.String()) }()
	}
	tick := time.NewTicker(b.every)
	defer tick.Stop()
	for {
		var frame bytes.Buffer
		all := b.watcher.Read(ctx, b.monitors)
		if ctx.Err() != nil {
			return nil // it was told to end
		}
		if err := b.drawFrame(&frame, all, inPlace); err != nil {
			return err
		}
		last = frame
		if inPlace {
			fmt.Fprintf(&frame, "\n%s\n", faint.Sprintf("%s, every %s; Ctrl-C ends", time.Now().Format("15:04:05"), brief(b.every)))
			fmt.Print(home + strings.ReplaceAll(frame.String(), "\n", clearToLine+"\n") + clearToEnd)
		} else if frame.Len() > 0 {
			fmt.Print(frame.String())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// drawFrame is the table and, on a line of its own, the first thing that is wrong.
func (b *board) drawFrame(frame *bytes.Buffer, all []*health.Look, inPlace bool) error {
	wrong := b.missing
	for _, one := range all {
		if wrong == nil {
			wrong = one.Err
		}
	}
	most, columns := 0, 0
	if inPlace {
		most, columns = max(height()-footLines, 2), width()
		if wrong != nil {
			most = max(most-1, 2)
		}
	}
	if err := b.print(frame, all, columns, most); err != nil {
		return err
	}
	if wrong != nil && !b.json {
		_, text := b.explain(wrong)
		text = oneLine(text)
		if columns > 0 {
			text = cut(text, columns)
		}
		frame.WriteString(bad.Sprint(text) + "\n")
	}
	return nil
}

// withRoom are as many as most (0: any number), one less if there are more, for the line that says so.
func withRoom(all []*health.Look, most int) (shown []*health.Look, hidden int) {
	if most == 0 || len(all) <= most {
		return all, 0
	}
	return all[:most-1], len(all) - most + 1
}

// printWhole draws a table of queues.
func printWhole(out io.Writer, t *grid, columns, hidden int) error {
	text := t.render(columns)
	if hidden > 0 {
		text += "\n" + faint.Sprintf("… and %s for which there is no room: name some, or make the window higher", plural(hidden, "queue"))
	}
	_, err := fmt.Fprintln(out, text)
	return err
}
