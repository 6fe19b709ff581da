package main

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// messageFlags are the options of a message that is sent now or by a schedule.
type messageFlags struct {
	ttl, timeout, keep durationFlag
	headers            map[string]string
	retries            int
	create             bool
}

func (f *messageFlags) flags(flags *pflag.FlagSet, header, ttl string) {
	flags.StringToStringVar(&f.headers, "header", nil, header)
	flags.IntVar(&f.retries, "retries", 3, "retries after failures")
	flags.Var(&f.ttl, "ttl", ttl)
	flags.Var(&f.timeout, "timeout", "time limit of a handler; 0: none")
	flags.Var(&f.keep, "keep", "how long the message and its result are kept after the ack")
	flags.BoolVar(&f.create, "create", false, "make the queue if it does not exist")
}

// sendFlags are the options of send.
type sendFlags struct {
	messageFlags
	delay, maxWait durationFlag
	at, deadline   whenFlag
	key            string
	policy         conflictFlag
	sequence       sequenceFlag
	maxParts       int
	lines          bool
	fromLine       int
}

func (a *app) sendCommand() *cobra.Command {
	var f sendFlags
	c := &cobra.Command{
		Use:   "send QUEUE [PAYLOAD]",
		Short: "Send a message, or one for each line",
		Long: `send sends a message and prints its id. Without PAYLOAD the payload is read from the input. With --lines each line of the input
is a message, sent in batches; if that is cut off, it says with which line to go on. A queue that does not exist is made only
with --create, because its name may be mistyped.`,
		Example: "  delayqueue send orders 42 --delay 15m --key order-42\n  seq 1000 | delayqueue send orders --lines --at 18:00",
		Args:    cobra.RangeArgs(1, 2),
		RunE:    func(c *cobra.Command, args []string) error { return a.send(c, args, &f) },
	}
	flags := c.Flags()
	flags.VarP(&f.delay, "delay", "d", "due after this time")
	flags.Var(&f.at, "at", "due then")
	flags.StringVarP(&f.key, "key", "k", "", "message key; at most one live message of a queue has it")
	flags.Var(&f.policy, "key-policy", "if the key is taken: refuse the new message, or keep, replace, reschedule or append to the message that has the key")
	flags.Var(&f.maxWait, "max-wait", "with a policy: due at most this time after the first send")
	flags.IntVar(&f.maxParts, "max-parts", 0, "with --key-policy append: a message with so many parts is due now")
	flags.Var(&f.sequence, "sequence", "NAME=N: message N of this sequence, refused if the sequence has reached N")
	f.messageFlags.flags(flags, "name=value, any number", "garbage if not handed out within this time after it was due")
	flags.Var(&f.deadline, "deadline", "from this time on no delivery and no retry: the message is garbage")
	flags.BoolVar(&f.lines, "lines", false, "send a message for each line of the input")
	flags.IntVar(&f.fromLine, "from-line", 1, "with --lines: the first line to send")
	c.MarkFlagsMutuallyExclusive("delay", "at")
	return c
}

func (a *app) send(c *cobra.Command, args []string, f *sendFlags) error {
	ctx := c.Context()
	if f.fromLine < 1 || f.fromLine > 1 && !f.lines {
		return fail(exitUsage, "--from-line goes with --lines, and the first line is 1")
	}
	if f.lines && (len(args) == 2 || f.key != "" || f.sequence.name != "") {
		return fail(exitUsage, "--lines reads its messages from the input; a key is for one message alone, as is a number")
	}
	if f.policy.Conflict != delayqueue.Refuse && f.key == "" {
		return fail(exitUsage, "--key-policy goes with --key")
	}
	if len(args) == 1 && onTerminal(os.Stdin) {
		return fail(exitUsage, "no payload: give one, or pipe it in")
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
		if payload = string(text); payload == "" { // such as a variable that is not set
			return fail(exitUsage, "the input is empty: for a message without a payload write delayqueue send %s ''", shellQuote(args[0]))
		}
	}
	ctx, cancel := context.WithTimeout(ctx, oneCall)
	defer cancel()
	info, err := p.Send(ctx, payload, f.options(c)...)
	if err != nil {
		return err
	}
	a.sayInfo(info)
	return nil
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

func (a *app) sayInfo(info *delayqueue.MessageInfo) {
	if a.json {
		printJSON(struct {
			ID      string    `json:"id"`
			Key     string    `json:"key,omitempty"`
			Due     time.Time `json:"due,omitzero"`
			Existed bool      `json:"existed,omitempty"`
		}{info.ID, info.Key, utc(info.Due), info.Existed})
		return
	}
	switch {
	case info.Existed && info.Due.IsZero():
		say("%s has the key, and was acked", info.ID)
	case info.Existed:
		say("%s has the key, due %s", info.ID, at(info.Due))
	default:
		say("%s due %s", info.ID, at(info.Due))
	}
}
