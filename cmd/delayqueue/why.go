package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/health"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/google/uuid"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func (a *app) whyCommand() *cobra.Command {
	var (
		byKey   bool
		lane    textFlag
		headers headersFlag
	)
	c := &cobra.Command{
		Use:   "why QUEUE (ID | KEY | --lane LANE | --header NAME=VALUE)",
		Short: "Say why a message is not handled yet",
		Long: `why says what a message waits for, since when, and what would end that, with
commands to copy. What must end first comes first. ID may be a message key. With
--lane it says so of the next message of a lane. With --header it counts the
messages that have a header of exactly this value by what they wait for, with an
example of each; it looks at 100,000 messages at most.`,
		Example: "  delayqueue why orders order-42\n  delayqueue why orders --lane customer-42\n" +
			"  delayqueue why orders --header customer=42",
		Args: cobra.RangeArgs(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			asked := 0
			for _, given := range []bool{len(args) == 2, lane.text != "", len(headers) > 0} {
				if given {
					asked++
				}
			}
			if asked != 1 {
				return fail(exitUsage, "name one of these: the id or the key of a message, --lane, --header")
			}
			return a.onMonitor(func(c *cobra.Command, m *ops.Queue, args []string) error {
				if len(headers) > 0 {
					return a.whyAll(c.Context(), m, ops.Filter{Headers: headers})
				}
				w, err := a.why(c.Context(), m, lane.text, args[1:], byKey)
				if err != nil {
					return err
				}
				a.sayWhy(m, w, "")
				return nil
			})(c, args)
		},
	}
	c.Flags().BoolVarP(&byKey, "key", "k", false, "ID is a message key, also if it looks like an id")
	c.Flags().Var(&lane, "lane", "the next message of this lane")
	c.Flags().Var(&headers, "header", "all messages with a header of exactly this value; any number")
	return c
}

// notThere says whether the queue is there, and the message is not.
func notThere(err error) bool {
	return errors.Is(err, delayqueue.ErrNotFound) && !errors.Is(err, delayqueue.ErrNoQueue)
}

// why asks about a lane, or about the message of which args has the id or the key, live or dead.
func (a *app) why(ctx context.Context, m *ops.Queue, lane string, args []string, byKey bool) (*ops.Why, error) {
	switch {
	case lane != "":
		return m.WhyLane(ctx, lane)
	case !byKey && uuid.Validate(args[0]) == nil:
		if w, err := m.Why(ctx, args[0]); !notThere(err) {
			return w, err
		}
		return nil, a.noID(ctx, m, args[0])
	}
	w, err := m.WhyKey(ctx, args[0])
	if !notThere(err) {
		return w, err
	}
	dead, err := deadByKey(ctx, m, args[0])
	switch {
	case err != nil:
		return nil, err
	case dead == nil:
		return nil, a.noKey(ctx, m, args[0], "")
	}
	return m.Why(ctx, dead.ID)
}

type whyJSON struct {
	ID     string      `json:"id,omitempty"` // not of a lane
	Key    string      `json:"key,omitempty"`
	State  string      `json:"state,omitempty"`
	Now    time.Time   `json:"now"`    // by the server's clock
	Causes []causeJSON `json:"causes"` // what must end first comes first
}

type causeJSON struct {
	Code     string     `json:"code"`
	Since    *time.Time `json:"since,omitempty"`
	Until    *time.Time `json:"until,omitempty"` // at the earliest
	Message  string     `json:"message,omitempty"`
	Dead     []string   `json:"dead,omitempty"` // ids, three at most
	Consumer string     `json:"consumer,omitempty"`
	Text     string     `json:"text"`
	Remedy   string     `json:"remedy,omitempty"`
}

func (a *app) whyJSONOf(m *ops.Queue, w *ops.Why) whyJSON {
	out := whyJSON{Now: utc(w.Now)}
	if w.Message != nil {
		out.ID, out.Key, out.State = w.Message.ID, w.Message.Key, w.Message.State.String()
	}
	for _, c := range w.Causes {
		remedy, commands := a.remedy(m, w, c)
		out.Causes = append(out.Causes, causeJSON{c.Code, instant(c.Since), instant(c.Until), c.Message, c.Dead, c.Consumer,
			a.causeText(c), strings.TrimSpace(remedy + " " + strings.Join(commands, " or "))})
	}
	return out
}

func (a *app) causeText(c ops.Cause) string {
	english, args := c.Say()
	return a.words(health.Text{English: english, Args: args}) + "."
}

// remedy is what would end a cause sooner: words, and commands to copy. "" if nothing would.
func (a *app) remedy(m *ops.Queue, w *ops.Why, c ops.Cause) (words string, commands []string) {
	id := ""
	if w.Message != nil {
		id = w.Message.ID
	}
	to := func(words ...string) { commands = append(commands, a.toCopy(words...)) }
	switch {
	case c.Code == "garbage":
		to("requeue", m.Name(), id)
		return "To bring it back:", commands
	case len(c.Dead) > 0:
		to(append([]string{"requeue", m.Name()}, c.Dead...)...)
		to("run", m.Name(), id)
		return "To bring the dead back, or to make this one due now:", commands
	case id != "" && (c.Code == "instant" || c.Code == "retry" || c.Code == "acks"):
		to("run", m.Name(), id)
		return "To make it due now:", commands
	case c.Code == "resume":
		to("resume", m.Name())
		return "To end the pause:", commands
	case c.Code == "throttle":
		to("limits", "lift", m.Name())
		return "To end that:", commands
	case c.Code == "rate", c.Code == "concurrency" && c.Message == "":
		to("limits", m.Name())
		return "limits set changes the limit. To see it first:", commands
	case c.Code == "concurrency":
		to("limits", m.Name())
		to("cancel", m.Name(), c.Message)
		return "limits set changes the limit. To see it first, and to end a handler that hangs:", commands
	case c.Code == "worker":
		to("cancel", m.Name(), c.Message)
		return "More workers or consumers end that. To end a handler that hangs:", commands
	case c.Code == "handled":
		to("cancel", m.Name(), id)
		return "To end its handler:", commands
	case c.Code == "lane" && !c.Until.IsZero():
		to("lanes", "skip", m.Name(), c.Message, "--end")
		to("lanes", "skip", m.Name(), c.Message, "--garbage")
		return "To let the next one pass:", commands
	case c.Code == "lane" && c.Remedy != "":
		to("cancel", m.Name(), c.Message)
		return "To end its handler:", commands
	}
	if c.Remedy != "" {
		words = c.Remedy + "."
	}
	return words, nil
}

// toCopy is another command for the same Redis.
func (a *app) toCopy(words ...string) string {
	line := []string{a.command.Root().Name()}
	for _, word := range words {
		line = append(line, shellQuote(word))
	}
	a.command.Flags().Visit(func(f *pflag.Flag) {
		if f.Name != "json" && f.Name != "yes" && a.command.InheritedFlags().Lookup(f.Name) != nil { // as --redis
			line = append(line, flagWords(f)...)
		}
	})
	return strings.Join(line, " ")
}

// paper is how wide sentences are at most, in a pipe too.
const paper = 80

// wrapped breaks sentences into lines.
func wrapped(sentences string) string {
	lines := strings.Split(text.WrapSoft(sentences, paper), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	return strings.Join(lines, "\n")
}

// sayWhy prints an answer, a paragraph for each cause, and below it commands, which are not broken. lead stands before
// the message.
func (a *app) sayWhy(m *ops.Queue, w *ops.Why, lead string) {
	if a.json {
		printJSON(a.whyJSONOf(m, w))
		return
	}
	const indent = "   "
	columns := max(min(cmp.Or(width(), paper), paper)-len(indent), 30)
	if msg := w.Message; msg != nil {
		key := ""
		if msg.Key != "" {
			key = " (key " + msg.Key + ")"
		}
		say("%s%s%s, %s:", lead, msg.ID, key, msg.State)
		if msg.State == delayqueue.StateWaiting { // its causes are about others
			say("%sdue %s", indent, at(msg.At))
		}
	}
	for i, c := range w.Causes {
		words, commands := a.remedy(m, w, c)
		words = strings.TrimSpace(a.causeText(c) + " " + words)
		lines := append(strings.Split(text.WrapSoft(words, columns), "\n"), commands...)
		for j, line := range lines {
			lines[j] = indent + strings.TrimRight(line, " ")
		}
		say("%d. %s", i+1, painted(strings.TrimPrefix(strings.Join(lines, "\n"), indent)))
	}
}

type whyGroupJSON struct {
	Code    string  `json:"code"`
	Count   int64   `json:"count"`
	Example whyJSON `json:"example"`
}

// whyAll prints what many messages wait for, the most frequent first.
func (a *app) whyAll(ctx context.Context, m *ops.Queue, f ops.Filter) error {
	groups, left, err := m.WhyAll(ctx, f, 0)
	for _, g := range groups {
		if a.json {
			printJSON(whyGroupJSON{g.Code, g.Count, a.whyJSONOf(m, g.Example)})
			continue
		}
		say("%s: %s", plural(int(g.Count), "message"), paint(warn, g.Code))
		a.sayWhy(m, g.Example, "for example ")
	}
	if len(groups) == 0 && err == nil && !a.json {
		say("no message that waits or is being handled has this header")
	}
	if left > 0 {
		fmt.Fprintf(os.Stderr, "%s were not looked at\n", plural(int(left), "message"))
	}
	return err
}
