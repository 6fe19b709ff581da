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
	headers            headersFlag
	counts             string
	lane               laneFlag
	retries            int
	create             bool
}

func (f *messageFlags) flags(flags *pflag.FlagSet, header, ttl, counts string) {
	flags.Var(&f.headers, "header", header)
	flags.IntVar(&f.retries, "retries", 3, "retries after failures")
	flags.Var(&f.ttl, "ttl", ttl)
	flags.Var(&f.timeout, "timeout", "time limit of a handler; 0: none")
	flags.Var(&f.keep, "keep", "how long the message and its result are kept after the ack")
	flags.StringVar(&f.counts, "counts", "", counts)
	flags.Var(&f.lane, "lane",
		"handled after the messages of this lane that are due before it; with a width, so many at a time")
	flags.BoolVar(&f.create, "create", false, "make the queue if it does not exist")
}

// sendFlags are the options of send.
type sendFlags struct {
	messageFlags
	delay, maxWait durationFlag
	at, deadline   whenFlag
	key            textFlag
	policy         conflictFlag
	sequence       sequenceFlag
	maxParts       int
	countdown      int
}

func (a *app) sendCommand() *cobra.Command {
	var f sendFlags
	c := &cobra.Command{
		Use:   "send QUEUE [PAYLOAD]",
		Short: "Send a message",
		Long: `send sends a message and prints its id. Without PAYLOAD the payload is read from
the input. A queue that does not exist is made only with --create, because its
name may be mistyped.`,
		Example: "  delayqueue send orders 42 --delay 15m --key order-42",
		Args:    cobra.RangeArgs(1, 2),
		RunE:    func(c *cobra.Command, args []string) error { return a.send(c, args, &f) },
	}
	flags := c.Flags()
	flags.VarP(&f.delay, "delay", "d", "due after this time")
	flags.Var(&f.at, "at", "due then")
	flags.VarP(&f.key, "key", "k", "message key; at most one live message of a queue has it")
	flags.Var(&f.policy, "key-policy",
		"if the key is taken: refuse the new message, or keep, replace, reschedule or append to the message that has the key")
	flags.Var(&f.maxWait, "max-wait", "with a policy: due at most this time after the first send")
	flags.IntVar(&f.maxParts, "max-parts", 0, "with --key-policy append: a message with so many parts is due now")
	flags.IntVar(&f.countdown, "countdown", 0,
		"with --key, and --delay or --at: due when so many acks have counted (--counts), or then")
	flags.Var(&f.sequence, "sequence", "NAME=N: message N of this sequence, refused if the sequence has reached N")
	f.messageFlags.flags(flags, "name=value, any number", "garbage if not handed out within this time after it was due",
		"message key: the ack counts for the message that has this key and a countdown")
	flags.Var(&f.deadline, "deadline", "from this time on no delivery and no retry: the message is garbage")
	c.MarkFlagsMutuallyExclusive("delay", "at")
	return c
}

func (a *app) send(c *cobra.Command, args []string, f *sendFlags) error {
	ctx := c.Context()
	if f.policy.Conflict != delayqueue.Refuse && f.key.text == "" {
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
	p := a.publisher(args[0])
	payload := ""
	if len(args) == 2 {
		payload = args[1]
	} else {
		text, err := io.ReadAll(a.in)
		if err != nil {
			return err
		}
		if payload = string(text); payload == "" { // such as a variable that is not set
			return fail(exitUsage, "the input is empty: for a message without a payload write delayqueue send %s ''",
				shellQuote(args[0]))
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
	said := func(flag string, option delayqueue.MsgOption) {
		if c.Flags().Changed(flag) {
			options = append(options, option)
		}
	}
	said("delay", delayqueue.WithDelay(time.Duration(f.delay)))
	said("at", delayqueue.WithSchedule(f.at.Time))
	if f.key.text != "" {
		options = append(options, delayqueue.WithKey(f.key.text, f.policy.Conflict))
	}
	said("max-wait", delayqueue.WithMaxWait(time.Duration(f.maxWait)))
	said("max-parts", delayqueue.WithMaxParts(f.maxParts))
	said("countdown", delayqueue.WithCountdown(f.countdown))
	said("counts", delayqueue.WithCounts(f.counts))
	said("sequence", delayqueue.WithSequence(f.sequence.name, f.sequence.number))
	said("lane", delayqueue.WithLane(f.lane.name, f.lane.width))
	said("timeout", delayqueue.WithTimeout(time.Duration(f.timeout)))
	said("deadline", delayqueue.WithDeadline(f.deadline.Time))
	said("ttl", delayqueue.WithMsgTTL(time.Duration(f.ttl)))
	said("keep", delayqueue.WithRetention(time.Duration(f.keep)))
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
