package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
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

// watchStats redraws in place, within the window as it is. An outage does not end it. What was seen last stays on
// the screen.
func (a *app) watchStats(ctx context.Context, monitors []*delayqueue.Monitor, missing error, every time.Duration) error {
	inPlace := onTerminal(os.Stdout) && !a.json
	var last bytes.Buffer
	if inPlace {
		fmt.Print(altScreen)
		defer func() { fmt.Print(mainScreen + last.String()) }()
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		var frame bytes.Buffer
		all := a.readStats(ctx, monitors)
		if ctx.Err() != nil {
			return nil // it was told to end
		}
		if err := a.drawFrame(&frame, all, missing, inPlace); err != nil {
			return err
		}
		last = frame
		if inPlace {
			fmt.Fprintf(&frame, "\n%s\n", faint.Sprintf("%s, every %s; Ctrl-C ends", time.Now().Format("15:04:05"), brief(every)))
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
func (a *app) drawFrame(frame *bytes.Buffer, all []queueStats, missing error, inPlace bool) error {
	wrong := missing
	for _, one := range all {
		if wrong == nil {
			wrong = one.err
		}
	}
	most := 0
	if inPlace {
		most = max(height()-footLines, 2)
		if wrong != nil {
			most = max(most-1, 2)
		}
	}
	columns := 0
	if inPlace {
		columns = width()
	}
	if err := a.printStats(frame, all, columns, most); err != nil {
		return err
	}
	if wrong != nil && !a.json {
		_, text := a.explain(wrong)
		text = oneLine(text)
		if columns > 0 {
			text = cut(text, columns)
		}
		frame.WriteString(bad.Sprint(text) + "\n")
	}
	return nil
}
