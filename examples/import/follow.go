package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/ops"
)

// follow starts an import, or goes on with it, shows how far it is, and returns what became of its report.
func (im *importer) follow(ctx context.Context, j job, rows int, out io.Writer) (*delayqueue.Result, error) {
	id, until, err := im.find(ctx, j.Name)
	if errors.Is(err, delayqueue.ErrNotFound) {
		id, err = im.start(ctx, j)
	}
	if err != nil {
		return nil, err
	}
	if !until.IsZero() {
		fmt.Fprintf(out, "imported before, and not again until %s\n", until.Format(time.DateTime))
	}
	p := newProgress(out)
	show := func(ctx context.Context) {
		if s, err := im.look.Get(ctx, id); err == nil {
			others := s.PartCount // acks of sums, which are all parts but the first, and of the split
			p.show(max(s.Countdown-s.CountdownLeft-others, 0), rows)
		}
	}
	shown, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for p.wait(shown) {
			show(shown)
		}
	}()
	result, err := im.queue.Await(ctx, id)
	stop()
	<-ended
	show(ctx)
	p.end()
	return result, err
}

// find returns the id of the report. If the report was made, its key is held, and find says until when.
func (im *importer) find(ctx context.Context, name string) (id string, until time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute) // for so long a Redis that is away is waited for
	defer cancel()
	waits, err := im.look.GetKey(ctx, reportKey(name))
	var made *ops.KeyHeldError
	switch {
	case errors.As(err, &made):
		return made.ID, made.Until, nil
	case err != nil:
		return "", until, err
	}
	return waits.ID, until, nil
}

// start sends the split, and waits for the report that the split sends first. With Keep and the hold, all commands
// together send one split, also one that is killed in between. The ack of the split counts for the report, so it must
// be one.
func (im *importer) start(ctx context.Context, j job) (report string, err error) {
	split, err := splitFile.Send(ctx, im.queue, j, delayqueue.WithKey("split-"+j.Name, delayqueue.Keep),
		delayqueue.WithKeyHold(keep),
		delayqueue.WithCounts(reportKey(j.Name)), delayqueue.WithDeadline(j.Until))
	if err != nil {
		return "", err
	}
	for {
		id, _, err := im.find(ctx, j.Name)
		if !errors.Is(err, delayqueue.ErrNotFound) {
			return id, err
		}
		if s, err := im.look.Get(ctx, split.ID); err == nil && s.State == delayqueue.StateGarbage {
			return "", errors.New(s.LastError)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// A progress is one line, written again and again in a terminal, else a line a second.
type progress struct {
	out      io.Writer
	terminal bool
	last     string
}

func newProgress(out io.Writer) *progress {
	p := &progress{out: out}
	if file, ok := out.(*os.File); ok {
		info, err := file.Stat()
		p.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return p
}

// wait waits until it is time to show something again, and says whether ctx goes on.
func (p *progress) wait(ctx context.Context) bool {
	every := time.Second
	if p.terminal {
		every = 100 * time.Millisecond
	}
	select {
	case <-time.After(every):
		return true
	case <-ctx.Done():
		return false
	}
}

func (p *progress) show(done, rows int) {
	line := fmt.Sprintf("%d of %d rows", done, rows)
	switch {
	case line == p.last:
	case p.terminal:
		fmt.Fprint(p.out, "\r\x1b[K", line)
	default:
		fmt.Fprintln(p.out, line)
	}
	p.last = line
}

func (p *progress) end() {
	if p.terminal && p.last != "" {
		fmt.Fprintln(p.out)
	}
}
