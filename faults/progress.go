package main

import (
	"fmt"
	"os"
	"time"
)

// progress says what goes on: on a terminal one line, updated in place, elsewhere a line
// for each fault as it begins.
type progress struct {
	out      *os.File
	terminal bool
	begun    time.Time
	n, of    int
	name     string
	since    time.Time
}

func newProgress(out *os.File, of int) *progress {
	info, err := out.Stat()
	return &progress{out: out, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0, begun: time.Now(), of: of}
}

// begin names the next fault.
func (p *progress) begin(name string) {
	p.n++
	p.name, p.since = name, time.Now()
	if !p.terminal {
		fmt.Fprintf(p.out, "%4d/%d  %5s  %s\n", p.n, p.of, time.Since(p.begun).Round(time.Second), name)
	}
}

// show says how a trial stands, which is also what the trial itself goes by.
func (p *progress) show(t *trial) {
	if err := t.books.catchUp(); err != nil {
		t.Errorf("%v", err)
		return
	}
	if !p.terminal {
		return
	}
	t.mu.Lock()
	stage, struck := t.stage, len(t.strikes)
	t.mu.Unlock()
	fmt.Fprintf(p.out, "\r\033[K%4d/%d  %5s  %s: %s  struck %d  accepted %d  handled %d", p.n, p.of,
		time.Since(p.since).Round(time.Second), p.name, stage, struck, t.books.count(sent), t.books.count(succeeded))
}

// end clears the line.
func (p *progress) end() {
	if p.terminal {
		fmt.Fprint(p.out, "\r\033[K")
	}
}
