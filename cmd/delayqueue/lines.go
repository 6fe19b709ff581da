package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
)

// A batch of lines is sent by one call of Redis, so it is stored as a whole or not at all.
const (
	batchLines = 500
	batchBytes = 512 << 10
	longest    = 64 << 20 // bytes of a line
)

// numbered is a batch of lines.
type numbered struct {
	first int // from 1
	texts []string
	err   error // why the input ended
}

// readLines reads at most one batch ahead.
func readLines(ctx context.Context, in io.Reader, from int) <-chan numbered {
	out := make(chan numbered)
	go func() {
		defer close(out)
		lines := bufio.NewScanner(in)
		lines.Buffer(nil, longest)
		next := 1
		for more := true; more; {
			batch := numbered{first: max(next, from)}
			for size := 0; len(batch.texts) < batchLines && size < batchBytes; {
				if more = lines.Scan(); !more {
					batch.err = lines.Err()
					break
				}
				if next++; next > from {
					batch.texts = append(batch.texts, lines.Text())
					size += len(lines.Bytes())
				}
			}
			select {
			case out <- batch:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

// sending is how far sendLines has come.
type sending struct {
	sent    int
	refused []error // of lines that were refused before Redis was asked; the lines after them were sent
	next    int     // line to go on with
	doubt   int     // number of lines, from next on, that may have been sent
}

// sendLines sends while it reads. If it cannot send all lines, it says with which line to go on.
func (a *app) sendLines(c *cobra.Command, p *delayqueue.Publisher, options []delayqueue.MsgOption, from int) error {
	ctx := c.Context()
	bar := a.progress("sending", inputSize())
	reading, stop := context.WithCancel(ctx)
	defer stop()
	batches := readLines(reading, io.TeeReader(a.in, bar), from)
	s := sending{next: from}
	var failed error
	for failed == nil {
		var batch numbered
		var more bool
		select {
		case <-ctx.Done():
			failed = ctx.Err()
			continue
		case batch, more = <-batches:
		}
		if !more {
			break
		}
		if failed = s.send(ctx, p, batch, options); failed == nil && batch.err != nil {
			failed = fmt.Errorf("line %d: %w", s.next, batch.err)
		}
	}
	finish(bar)
	a.saySent(c, &s, failed)
	if failed == nil && len(s.refused) > 0 {
		return &failure{code: exitUsage} // each was printed
	}
	return failed
}

// send sends one batch. After an interrupt it waits a second for the outcome.
func (s *sending) send(ctx context.Context, p *delayqueue.Publisher, lines numbered, options []delayqueue.MsgOption) error {
	if len(lines.texts) == 0 {
		return nil
	}
	tries, cancel := context.WithTimeout(context.WithoutCancel(ctx), stuck)
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(time.Second, cancel)
		context.AfterFunc(tries, func() { timer.Stop() })
	})()
	batch := make([]delayqueue.Outgoing, len(lines.texts))
	for i, text := range lines.texts {
		batch[i] = delayqueue.Outgoing{Payload: text, Options: options}
	}
	results, _ := p.SendBatch(tries, batch) // the results have the errors
	var first error
	stored, unknown := 0, 0
	for i, r := range results {
		switch {
		case r.Err == nil || errors.Is(r.Err, delayqueue.ErrNotReplicated):
			stored++
		case errors.Is(r.Err, delayqueue.ErrPayloadTooLarge), errors.Is(r.Err, delayqueue.ErrBadOption):
			s.refused = append(s.refused, fmt.Errorf("line %d was not sent: %w", lines.first+i, r.Err))
		default:
			unknown++
			if first == nil {
				first = r.Err
			}
		}
	}
	s.sent += stored
	s.next = lines.first
	if first == nil {
		s.next += len(lines.texts)
		return nil
	}
	s.doubt = len(lines.texts)
	return first
}

func (a *app) saySent(c *cobra.Command, s *sending, failed error) {
	if a.json {
		out := struct {
			Sent     int      `json:"sent"`
			Refused  []string `json:"refused,omitempty"`
			FromLine int      `json:"from_line,omitempty"`
			InDoubt  int      `json:"in_doubt,omitempty"`
		}{Sent: s.sent}
		for _, err := range s.refused {
			out.Refused = append(out.Refused, err.Error())
		}
		if failed != nil {
			out.FromLine, out.InDoubt = s.next, s.doubt
		}
		printJSON(out)
		return
	}
	for _, err := range s.refused {
		fmt.Fprintln(os.Stderr, "delayqueue: "+printable(err.Error()))
	}
	say("sent %s", plural(s.sent, "message"))
	if failed == nil {
		return
	}
	if s.doubt > 0 {
		fmt.Fprintf(os.Stderr, "lines %d to %d may or may not have been sent: --from-line %d sends them again, --from-line %d skips them\n",
			s.next, s.next+s.doubt-1, s.next, s.next+s.doubt)
		return
	}
	fmt.Fprintf(os.Stderr, "the lines before %d were sent; to go on with the same input: %s\n", s.next,
		again(c, "from-line", fmt.Sprint(s.next)))
}

// inputSize is the size of a file, 0 for what is piped in.
func inputSize() int64 {
	info, err := os.Stdin.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return 0
	}
	return info.Size()
}

func finish(bar *progressbar.ProgressBar) { _ = bar.Finish() } // a bar that cannot be drawn stops nothing
