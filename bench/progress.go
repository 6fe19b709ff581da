package main

import (
	"fmt"
	"io"
	"os"
	"time"
)

// progress says what is being measured: on a terminal one line, updated in place,
// elsewhere a line for each.
type progress struct {
	out      io.Writer
	terminal bool
	begun    time.Time
}

func newProgress(out *os.File) *progress {
	info, err := out.Stat()
	return &progress{out: out, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0, begun: time.Now()}
}

// step begins step i of n.
func (p *progress) step(i, n int, what string) {
	line := fmt.Sprintf("%4d/%d  %5s  %s", i, n, time.Since(p.begun).Round(time.Second), what)
	if p.terminal {
		fmt.Fprintf(p.out, "\r\033[K%s", line)
	} else {
		fmt.Fprintln(p.out, line)
	}
}

// end clears the line.
func (p *progress) end() {
	if p.terminal {
		fmt.Fprint(p.out, "\r\033[K")
	}
}
