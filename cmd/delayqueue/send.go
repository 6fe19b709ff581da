package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/go-delayqueue/delayqueue"
)

// sendFlags are the options of messages.
type sendFlags struct {
	delay, ttl durationFlag
	at         whenFlag
	key        string
	headers    map[string]string
	retries    int
	lines      bool
	create     bool
}

func (a *app) sendCommand() *cobra.Command {
	var f sendFlags
	c := &cobra.Command{
		Use:   "send QUEUE [PAYLOAD]",
		Short: "Send a message, or one for each line",
		Long: `send sends a message and prints its id. Without PAYLOAD it sends what it reads from its input, or with --lines a
message for each line of it. A queue that does not exist yet is made only with --create, for its name may be
mistyped.`,
		Example:           "  delayqueue send orders 42 --delay 15m --key order-42\n  seq 1000 | delayqueue send orders --lines --at 18:00",
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: a.completeQueue(),
		RunE: func(c *cobra.Command, args []string) error {
			ctx := c.Context()
			if f.lines && (len(args) == 2 || f.key != "") {
				return fail(exitUsage, "--lines reads its messages from the input, and a key is for one message alone")
			}
			if len(args) == 1 && onTerminal(os.Stdin) {
				return fail(exitUsage, "what shall be sent? Give a payload, or pipe it in")
			}
			if err := f.at.ahead("at", "--at now", justNow); err != nil {
				return err
			}
			err := a.queue(ctx, args[0])
			var known *failure
			if errors.As(err, &known) && known.code == exitNotFound {
				if known.text += "; --create makes it"; f.create {
					err = nil
				}
			}
			if err != nil {
				return err
			}
			p := delayqueue.NewPublisher(args[0], a.cli, delayqueue.UseCustomPrefix(a.prefix))
			if f.lines {
				return a.sendLines(ctx, p, f.options(c))
			}
			payload := ""
			if len(args) == 2 {
				payload = args[1]
			} else {
				text, err := io.ReadAll(a.in)
				if err != nil {
					return err
				}
				payload = string(text)
			}
			ctx, cancel := context.WithTimeout(ctx, oneCall)
			defer cancel()
			info, err := p.Send(ctx, payload, f.options(c)...)
			if err != nil {
				return err
			}
			return a.sayInfo(info)
		},
	}
	flags := c.Flags()
	flags.VarP(&f.delay, "delay", "d", "due so long from now")
	flags.Var(&f.at, "at", "due then")
	flags.StringVarP(&f.key, "key", "k", "", "a name of your own; at most one live message of a queue has it")
	flags.StringToStringVar(&f.headers, "header", nil, "name=value, any number")
	flags.IntVar(&f.retries, "retries", 3, "failures that are followed by another delivery")
	flags.Var(&f.ttl, "ttl", "garbage if it could not be handed out so long after it was due")
	flags.BoolVar(&f.lines, "lines", false, "a message for each line of the input")
	flags.BoolVar(&f.create, "create", false, "also to a queue that does not exist yet")
	c.MarkFlagsMutuallyExclusive("delay", "at")
	return c
}

func (f *sendFlags) options(c *cobra.Command) []delayqueue.MsgOption {
	options := []delayqueue.MsgOption{delayqueue.WithRetryCount(f.retries)}
	if c.Flags().Changed("delay") {
		options = append(options, delayqueue.WithDelay(time.Duration(f.delay)))
	}
	if c.Flags().Changed("at") {
		options = append(options, delayqueue.WithSchedule(f.at.Time))
	}
	if f.key != "" {
		options = append(options, delayqueue.WithKey(f.key))
	}
	if c.Flags().Changed("ttl") {
		options = append(options, delayqueue.WithMsgTTL(time.Duration(f.ttl)))
	}
	for name, value := range f.headers {
		options = append(options, delayqueue.WithHeader(name, value))
	}
	return options
}

func (a *app) sayInfo(info *delayqueue.MessageInfo) error {
	if a.json {
		return printJSON(struct {
			ID  string    `json:"id"`
			Key string    `json:"key,omitempty"`
			Due time.Time `json:"due"`
		}{info.ID, info.Key, utc(info.Due)})
	}
	say("%s due %s", info.ID, at(info.Due))
	return nil
}

const (
	batchMost = 5000     // messages
	longest   = 64 << 20 // bytes of a line
)

// sendLines sends as it reads, and says how many were sent also when it could not send all.
func (a *app) sendLines(ctx context.Context, p *delayqueue.Publisher, options []delayqueue.MsgOption) error {
	bar := a.progress("sending", inputSize())
	lines := bufio.NewScanner(io.TeeReader(a.in, bar))
	lines.Buffer(nil, longest)
	sent := 0
	var failed error
	for more := true; more && failed == nil && ctx.Err() == nil; {
		var batch []delayqueue.Outgoing
		for len(batch) < batchMost {
			if more = lines.Scan(); !more {
				break
			}
			batch = append(batch, delayqueue.Outgoing{Payload: lines.Text(), Options: options})
		}
		n, err := sendBatch(ctx, p, batch)
		sent, failed = sent+n, err
	}
	finish(bar)
	if failed == nil {
		failed = lines.Err()
	}
	if a.json {
		if err := printJSON(map[string]int{"sent": sent}); err != nil {
			return err
		}
	} else {
		say("sent %s", plural(sent, "message"))
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return failed
}

// inputSize is the size of a file, 0 for what is piped in.
func inputSize() int64 {
	info, err := os.Stdin.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return 0
	}
	return info.Size()
}

func finish(bar *progressbar.ProgressBar) { _ = bar.Finish() } // one that cannot be drawn stops nothing

func sendBatch(ctx context.Context, p *delayqueue.Publisher, batch []delayqueue.Outgoing) (sent int, err error) {
	if len(batch) == 0 {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, stuck)
	defer cancel()
	results, err := p.SendBatch(ctx, batch)
	var first error
	for _, r := range results {
		if r.Err == nil {
			sent++
		} else if first == nil {
			first = r.Err
		}
	}
	if first != nil { // all of them would be a page for each line
		err = fmt.Errorf("%s of %s failed: %w", plural(len(batch)-sent, "message"), plural(len(batch), "message"), first)
	}
	return sent, err
}
