package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/google/uuid"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"
)

func (a *app) getCommand() *cobra.Command {
	var byKey, raw, result bool
	c := &cobra.Command{
		Use:   "get QUEUE (ID | KEY)",
		Short: "Show one message",
		Long: `get shows one message, by its id or its message key: the live message with that
key, else the one that died last.`,
		Example: "  delayqueue get orders order-42",
		Args:    cobra.ExactArgs(2),
		RunE: a.onMonitor(func(c *cobra.Command, m *ops.Queue, args []string) error {
			find := get
			if byKey = byKey || uuid.Validate(args[1]) != nil; byKey {
				find = getKey
			}
			msg, err := find(c.Context(), m, args[1])
			if byKey && err == nil && msg == nil {
				msg, err = deadByKey(c.Context(), m, args[1])
			}
			switch {
			case err != nil:
				return err
			case msg == nil && byKey:
				return a.noKey(c.Context(), m, args[1], "")
			case msg == nil:
				return a.noID(c.Context(), m, args[1])
			case raw:
				_, err = os.Stdout.WriteString(msg.Payload)
				return err
			case result && msg.State != delayqueue.StateDone:
				return fail(exitRefused, "message %s is %s: only what is done has a result", msg.ID, msg.State)
			case result:
				_, err = os.Stdout.WriteString(msg.Result)
				return err
			case a.json:
				printJSON(jsonOf(msg))
			default:
				printMessage(msg)
			}
			return nil
		}),
	}
	c.Flags().BoolVarP(&byKey, "key", "k", false, "ID is a message key, also if it looks like an id")
	c.Flags().BoolVar(&raw, "payload", false, "print the payload alone, byte by byte")
	c.Flags().BoolVar(&result, "result", false, "print the result of a message in done alone, byte by byte")
	return c
}

func printMessage(m *ops.MessageStatus) {
	t := newGrid()
	row := t.fact
	row("id", m.ID)
	row("key", m.Key)
	row("state", paint(coloursOf(m.State), m.State.String()))
	if m.Lane != "" {
		row("lane", laneOf(m.Lane, m.LaneWidth))
	}
	row("sent", at(sentAt(m.ID)))
	row("due", at(m.Due))
	if m.TTL > 0 {
		row("ttl", brief(m.TTL)+", "+expiry(m))
	}
	row("deadline", at(m.Deadline))
	if m.Timeout < 0 {
		row("timeout", "none")
	} else if m.Timeout > 0 {
		row("timeout", brief(m.Timeout))
	}
	if m.Retention > 0 {
		row("kept for", brief(m.Retention))
	}
	ackRows(m, row)
	switch m.State {
	case delayqueue.StateUnack:
		row("lease ends", at(m.At))
		row("held by", m.Consumer)
	case delayqueue.StateRetry:
		row("next delivery", at(m.At))
	case delayqueue.StateGarbage:
		row("died", at(m.At))
	case delayqueue.StateDone:
		row("kept until", at(m.At))
	}
	row("delivery", fmt.Sprint(m.Delivery))
	row("failures", fmt.Sprintf("%d of at most %d", m.Failures, m.MaxRetries+1))
	row("losses", fmt.Sprint(m.Losses))
	row("last error", paint(bad, m.LastError))
	for _, e := range m.LastErrors[min(len(m.LastErrors), 1):] {
		row("before that", paint(bad, errorLine(e)))
	}
	row("last delivery", at(m.EndedAt))
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		row("header "+name, m.Headers[name])
	}
	if m.Broken != nil {
		row("unreadable", paint(bad, m.Broken.Error()))
	}
	payloadRows(m, row)
	row("earlier groups", strings.Join(m.Earlier, " "))
	bounded(row, "result", m.Result, "--result or --json")
	t.print()
}

// coloursOf are the colours of a state.
func coloursOf(s delayqueue.State) text.Colors {
	switch s {
	case delayqueue.StateRetry, delayqueue.StateWaiting:
		return warn
	case delayqueue.StateGarbage:
		return bad
	default:
		return good
	}
}

// ackRows shows how many acks a countdown lacks, and for which key the own ack counts.
func ackRows(m *ops.MessageStatus, row func(name string, value any)) {
	name := "waits for"
	if m.State != delayqueue.StatePending { // acks count on, and it waits for none
		name = "lacks"
	}
	if m.Countdown > 0 {
		row(name, fmt.Sprintf("%s acks; %s of %s have come", humanize.Comma(int64(m.CountdownLeft)),
			humanize.Comma(int64(m.Countdown-m.CountdownLeft)), humanize.Comma(int64(m.Countdown))))
	}
	row("counts for", m.Counts)
}

// errorLine is an earlier error, with its delivery and instant if they are known.
func errorLine(e ops.KeptError) string {
	if e.Delivery == 0 || e.At.IsZero() {
		return e.Text
	}
	return fmt.Sprintf("delivery %d, %s: %s", e.Delivery, at(e.At), e.Text)
}

// payloadRows shows a payload, or the parts of a group.
func payloadRows(m *ops.MessageStatus, row func(name string, value any)) {
	if m.PartCount > 0 {
		row("parts", fmt.Sprintf("%s, %s", plural(m.PartCount, "part"), plural(m.PartBytes, "byte")))
	}
	if len(m.Parts) == 0 {
		bounded(row, "payload", m.Payload, "--payload or --json")
	}
	shown := 0
	for i, part := range m.Parts {
		if shown >= mostShown {
			row("", fmt.Sprintf("… %s more: --json prints all", plural(len(m.Parts)-i, "part")))
			break
		}
		bounded(row, "part "+strconv.Itoa(i+1), part, "--json")
		shown += len(part)
	}
}

// mostShown is how many bytes of a payload or a result a person sees, because a megabyte floods the terminal.
const mostShown = 4 << 10

// bounded shows the beginning of a text, and says how much more there is and which flag prints all.
func bounded(row func(name string, value any), name, text, all string) {
	shown := text[:min(len(text), mostShown)]
	row(name, shown)
	if more := len(text) - len(shown); more > 0 {
		row("", fmt.Sprintf("… %s more: %s prints all", plural(more, "byte"), all))
	}
}

// sentAt is the instant in an id, by the sender's clock; zero for an id that is no UUIDv7.
func sentAt(id string) time.Time {
	u, err := uuid.Parse(id)
	if err != nil || u.Version() != 7 {
		return time.Time{}
	}
	return time.Unix(u.Time().UnixTime())
}

// expiry says what the TTL does to a message now.
func expiry(m *ops.MessageStatus) string {
	if m.Delivery > 1 || m.State == delayqueue.StateUnack || m.State == delayqueue.StateGarbage {
		return "which is for the first delivery alone"
	}
	return "garbage if it is not handed out by " + at(m.Due.Add(m.TTL))
}

// near is how many keys are compared with a key that was not found.
const near = 10_000

// noKey is the error for a message that is not found by its key. It names the nearest key. wanted is "live", "dead"
// or "" for any.
func (a *app) noKey(ctx context.Context, m *ops.Queue, what, wanted string) error {
	held := new(ops.KeyHeldError)
	if _, err := m.GetKey(ctx, what); errors.As(err, &held) {
		return fail(exitNotFound, "%v", held)
	}
	set, err := a.shards(ctx, m.Name())
	if err != nil {
		return err
	}
	var names []string
	for _, one := range set.All {
		keys, err := link.Within(ctx, one.Server, func(ctx context.Context) ([]string, error) {
			keys, _, err := a.cli.HScan(ctx, keyspace(one).Key("key"), 0, "", int64(near/len(set.All))).Result()
			return keys, err
		})
		if err != nil && len(set.All) == 1 { // of several, one that does not answer gives no hint
			return err
		}
		for pair := range slices.Chunk(keys, 2) {
			names = append(names, pair[0])
		}
	}
	hint := didYouMean(what, names)
	other := getKey
	if wanted == "live" {
		other = deadByKey
	}
	if wanted != "" {
		if msg, err := other(ctx, m, what); err == nil && msg != nil {
			hint = fmt.Sprintf(": that of message %s, which is %s", msg.ID, msg.State)
		}
		wanted += " "
	}
	if hint == "" {
		hint = ": " + a.searches(m, what)
	}
	return fail(exitNotFound, "no %smessage of queue %q has the key %q%s", wanted, m.Name(), what, hint)
}

// searches says how to look for what is neither an id nor a key.
func (a *app) searches(m *ops.Queue, what string) string {
	return a.toCopy("find", m.Name(), what) + " searches"
}

// noID is the error for a message that is not found by its id.
func (a *app) noID(ctx context.Context, m *ops.Queue, what string) error {
	hint := "it was handled, taken back or deleted, or never sent here"
	if uuid.Validate(what) != nil {
		if msg, err := getKey(ctx, m, what); err == nil && msg != nil {
			return fail(exitNotFound, "%q is the key of message %s and no id: add --key", what, msg.ID)
		}
		hint = "an id is a UUID like 0190f3a0-0000-7000-8000-000000000001; " + a.searches(m, what)
	}
	return fail(exitNotFound, "queue %q has no message %s: %s", m.Name(), what, hint)
}
