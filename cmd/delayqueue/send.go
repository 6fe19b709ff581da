package main

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-delayqueue/delayqueue"
)

// sendFlags are the options of messages.
type sendFlags struct {
	delay, ttl, keep, timeout, maxWait durationFlag
	at, deadline                       whenFlag
	key                                string
	policy                             conflictFlag
	sequence                           sequenceFlag
	headers                            map[string]string
	retries, maxParts                  int
	lines                              bool
	fromLine                           int
	create                             bool
}

func (a *app) sendCommand() *cobra.Command {
	var f sendFlags
	c := &cobra.Command{
		Use:   "send QUEUE [PAYLOAD]",
		Short: "Send a message, or one for each line",
		Long: `send sends a message and prints its id. Without PAYLOAD it sends what it reads from its input, or with --lines a
message for each line of it, in batches of one call; what was cut off says with which line to go on. A queue that does
not exist yet is made only with --create, for its name may be mistyped.`,
		Example:           "  delayqueue send orders 42 --delay 15m --key order-42\n  seq 1000 | delayqueue send orders --lines --at 18:00",
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: a.completeQueue(),
		RunE:              func(c *cobra.Command, args []string) error { return a.send(c, args, &f) },
	}
	flags := c.Flags()
	flags.VarP(&f.delay, "delay", "d", "due so long from now")
	flags.Var(&f.at, "at", "due then")
	flags.StringVarP(&f.key, "key", "k", "", "a name of your own; at most one live message of a queue has it")
	flags.Var(&f.policy, "key-policy", "if the key is taken: refuse, or keep, replace, reschedule or append to the message that has it")
	flags.Var(&f.maxWait, "max-wait", "with such a policy: put off no longer than that after the first")
	flags.IntVar(&f.maxParts, "max-parts", 0, "with --key-policy append: so many parts are due now, and the next begins a message")
	flags.Var(&f.sequence, "sequence", "NAME=N: message N of this sequence, refused if it has come so far before")
	flags.StringToStringVar(&f.headers, "header", nil, "name=value, any number")
	flags.IntVar(&f.retries, "retries", 3, "failures that are followed by another delivery")
	flags.Var(&f.ttl, "ttl", "garbage if it could not be handed out so long after it was due")
	flags.Var(&f.timeout, "timeout", "a handler of it may run so long; 0: for any time")
	flags.Var(&f.deadline, "deadline", "garbage then, unless it is done: no delivery, no retry")
	flags.Var(&f.keep, "keep", "once it is acked, it can be looked at so long, with its result")
	flags.BoolVar(&f.lines, "lines", false, "a message for each line of the input")
	flags.IntVar(&f.fromLine, "from-line", 1, "with --lines: leave out the lines before this one")
	flags.BoolVar(&f.create, "create", false, "also to a queue that does not exist yet")
	c.MarkFlagsMutuallyExclusive("delay", "at")
	return c
}

func (a *app) send(c *cobra.Command, args []string, f *sendFlags) error {
	ctx := c.Context()
	if f.fromLine < 1 || f.fromLine > 1 && !f.lines {
		return fail(exitUsage, "--from-line goes with --lines, and the first line is 1")
	}
	if f.lines && (len(args) == 2 || f.key != "" || f.sequence.name != "") {
		return fail(exitUsage, "--lines reads its messages from the input, and a key is for one message alone, as is a number")
	}
	if f.policy.Conflict != delayqueue.Refuse && f.key == "" {
		return fail(exitUsage, "--key-policy goes with --key")
	}
	if len(args) == 1 && onTerminal(os.Stdin) {
		return fail(exitUsage, "what shall be sent? Give a payload, or pipe it in")
	}
	if f.delay < 0 {
		return fail(exitUsage, "--delay %s is in the past: --delay 0, or %s?", f.delay.String(), time.Duration(-f.delay))
	}
	if err := f.at.ahead("at", "--at now", justNow); err != nil {
		return err
	}
	if err := f.deadline.ahead("deadline", "leave it out", 0); err != nil {
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
		return a.sendLines(c, p, f.options(c), f.fromLine)
	}
	payload := ""
	if len(args) == 2 {
		payload = args[1]
	} else {
		text, err := io.ReadAll(a.in)
		if err != nil {
			return err
		}
		if payload = string(text); payload == "" { // a variable that is not set, where nobody types
			return fail(exitUsage, "the input is empty: for a message without a payload write delayqueue send %s ''", shellQuote(args[0]))
		}
	}
	ctx, cancel := context.WithTimeout(ctx, oneCall)
	defer cancel()
	info, err := p.Send(ctx, payload, f.options(c)...)
	if err != nil {
		return err
	}
	return a.sayInfo(info)
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
		options = append(options, delayqueue.WithKey(f.key, f.policy.Conflict))
	}
	if c.Flags().Changed("max-wait") {
		options = append(options, delayqueue.WithMaxWait(time.Duration(f.maxWait)))
	}
	if c.Flags().Changed("max-parts") {
		options = append(options, delayqueue.WithMaxParts(f.maxParts))
	}
	if f.sequence.name != "" {
		options = append(options, delayqueue.WithSequence(f.sequence.name, f.sequence.number))
	}
	if c.Flags().Changed("timeout") {
		options = append(options, delayqueue.WithTimeout(time.Duration(f.timeout)))
	}
	if c.Flags().Changed("deadline") {
		options = append(options, delayqueue.WithDeadline(f.deadline.Time))
	}
	if c.Flags().Changed("ttl") {
		options = append(options, delayqueue.WithMsgTTL(time.Duration(f.ttl)))
	}
	if c.Flags().Changed("keep") {
		options = append(options, delayqueue.WithRetention(time.Duration(f.keep)))
	}
	for name, value := range f.headers {
		options = append(options, delayqueue.WithHeader(name, value))
	}
	return options
}

func (a *app) sayInfo(info *delayqueue.MessageInfo) error {
	if a.json {
		return printJSON(struct {
			ID      string    `json:"id"`
			Key     string    `json:"key,omitempty"`
			Due     time.Time `json:"due,omitzero"`
			Existed bool      `json:"existed,omitempty"`
		}{info.ID, info.Key, utc(info.Due), info.Existed})
	}
	switch {
	case info.Existed && info.Due.IsZero():
		say("%s has the key, and was acked", info.ID)
	case info.Existed:
		say("%s has the key, due %s", info.ID, at(info.Due))
	default:
		say("%s due %s", info.ID, at(info.Due))
	}
	return nil
}
