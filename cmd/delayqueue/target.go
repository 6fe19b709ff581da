package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/spf13/cobra"
)

// target is the messages of a steering command: some by name, or all that match.
type target struct {
	selection
	bulkFlags
	all, byKey bool
}

// flags adds the flags. what names the states of --all without --state, and about what happened at the times of
// --from and --to. states are those that --state may name; without any there is no such flag, and without spread none
// of that name.
func (t *target) flags(c *cobra.Command, what, about, states string, spread bool) {
	c.Flags().BoolVar(&t.all, "all", false, "all messages in "+what+" that match the other flags")
	t.selection.flags(c, about)
	c.Flags().BoolVarP(&t.byKey, "key", "k", false, "each ID is a message key")
	t.bulkFlags.flags(c, states, spread)
}

// check checks the command line; state is that of the messages of --all.
func (t *target) check(ids []string, state delayqueue.State) error {
	switch {
	case t.all && len(ids) > 0:
		return fail(exitUsage, "give ids or --all, not both")
	case !t.all && (t.any() || len(t.states) > 0 || t.dryRun || t.spread != 0 || t.rate != 0 || t.most != 0 ||
		t.cursor != ""):
		return fail(exitUsage,
			"--from, --to, --state, --dry-run and the like, which say which messages and how, go with --all")
	case t.states != nil && len(t.states) == 0:
		return fail(exitUsage, "--state is empty: a variable that is not set?")
	case !t.all && len(ids) == 0:
		return fail(exitUsage, "which messages? Give ids, or --all")
	}
	return t.selection.check(state)
}

// oneCall bounds a call for one message.
const oneCall = 15 * time.Second

// outcome says what became of one message.
type outcome struct {
	ID    string `json:"id"`
	Done  bool   `json:"done"`
	Was   string `json:"was,omitempty"`
	Error string `json:"error,omitempty"`
}

// each works on each message and prints the outcome. It goes on after an error and returns the first error.
func (a *app) each(ctx context.Context, m *ops.Queue, names []string, find finder, did string,
	work func(context.Context, string) (was string, err error)) error {
	var first error
	for _, name := range names {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		was, err := a.one(ctx, m, name, find, work)
		out := outcome{ID: name, Done: err == nil, Was: was}
		if err != nil {
			_, out.Error = a.explain(err)
		}
		switch {
		case a.json:
			printJSON(out)
		case err == nil && was != "":
			say("%s %s (was %s)", name, did, was)
		case err == nil:
			say("%s %s", name, did)
		case len(names) > 1:
			fmt.Fprintln(os.Stderr, "delayqueue: "+printable(out.Error))
		}
		if first == nil {
			first = err
		}
	}
	if first != nil && (a.json || len(names) > 1) {
		code, _ := a.explain(first)
		return &failure{code: code} // the text was printed
	}
	return first
}

func (a *app) one(ctx context.Context, m *ops.Queue, name string, find finder,
	work func(context.Context, string) (string, error)) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, oneCall)
	defer cancel()
	id, err := find(ctx, name)
	if err != nil {
		return "", err
	}
	was, err := work(ctx, id)
	var wrong *delayqueue.StateError
	if errors.As(err, &wrong) && wrong.State == delayqueue.StateGone {
		return "", a.noID(ctx, m, name)
	}
	return was, err
}

// plainly makes work of a function that does not say in which state the message was.
func plainly(work func(context.Context, string) error) func(context.Context, string) (string, error) {
	return func(ctx context.Context, id string) (string, error) { return "", work(ctx, id) }
}

// A finder finds the id of a message by an argument.
type finder = func(ctx context.Context, name string) (id string, err error)

// finder reads ids, or with byKey the keys of live messages or of garbage.
func (a *app) finder(m *ops.Queue, byKey, garbage bool) finder {
	return func(ctx context.Context, name string) (string, error) {
		if !byKey {
			return name, nil
		}
		var msg *ops.MessageStatus
		var err error
		wanted := "live"
		if garbage {
			wanted = "dead"
			msg, err = deadByKey(ctx, m, name)
		} else {
			msg, err = getKey(ctx, m, name)
		}
		switch {
		case err != nil:
			return "", err
		case msg == nil:
			return "", a.noKey(ctx, m, name, wanted)
		}
		return msg.ID, nil
	}
}

// deadByKey finds the message with this key that died last; nil for none.
func deadByKey(ctx context.Context, m *ops.Queue, key string) (last *ops.MessageStatus, err error) {
	for msg, err := range m.All(ctx, delayqueue.StateGarbage, ops.Filter{Key: key}) {
		switch {
		case err == nil:
			last = msg
		case last == nil || !inPart(err): // all messages with a key are in one shard
			return nil, err
		}
	}
	return last, nil
}

// get and getKey return nil if there is no such message.
func get(ctx context.Context, m *ops.Queue, id string) (*ops.MessageStatus, error) {
	return orNil(m.Get(ctx, id))
}

func getKey(ctx context.Context, m *ops.Queue, key string) (*ops.MessageStatus, error) {
	return orNil(m.GetKey(ctx, key))
}

// orNil makes nil of ErrNotFound, unless the queue itself is not found.
func orNil(msg *ops.MessageStatus, err error) (*ops.MessageStatus, error) {
	if notThere(err) {
		return nil, nil
	}
	return msg, err
}

// textFlag is a text. An empty text is refused, because a filter without a text selects everything.
type textFlag struct{ text, hint string }

func (t *textFlag) String() string { return t.text }
func (*textFlag) Type() string     { return "string" }
func (t *textFlag) Set(text string) error {
	if text == "" {
		return errors.New("it is empty: a variable that is not set?" + t.hint)
	}
	t.text = text
	return nil
}

// headersFlag is name=value, once for each header. A value may have any characters in it, quotes and commas too.
type headersFlag map[string]string

func (h headersFlag) String() string { return strings.Join(h.pairs(), " ") }
func (headersFlag) Type() string     { return "name=value" }
func (h *headersFlag) Set(text string) error {
	name, value, found := strings.Cut(text, "=")
	_, twice := (*h)[name]
	switch {
	case !found:
		return errors.New("want a name, an equals sign and a value, as in tenant=acme")
	case name == "":
		return errors.New("the name is empty: a variable that is not set?")
	case twice:
		return errors.New("the name is given twice")
	case *h == nil:
		*h = headersFlag{}
	}
	(*h)[name] = value
	return nil
}

// pairs are the headers as the flag takes them, in order of their names.
func (h headersFlag) pairs() (pairs []string) {
	for _, name := range slices.Sorted(maps.Keys(h)) {
		pairs = append(pairs, name+"="+h[name])
	}
	return pairs
}

// selection says which messages of a state are meant.
type selection struct {
	from, to  whenFlag
	key       textFlag
	lane      textFlag
	contains  textFlag
	headers   headersFlag
	headersIn headersFlag // parts of values
	errorText textFlag
	errorIn   textFlag // a part
	errorLike textFlag
}

// flags adds the flags; about is what happened to the messages between --from and --to.
func (s *selection) flags(c *cobra.Command, about string) {
	f := c.Flags()
	f.Var(&s.from, "from", "only messages "+about+" then or later")
	f.Var(&s.to, "to", "only messages "+about+" then or earlier")
	f.Var(&s.key, "with-key", "only messages with this message key, live or dead")
	f.Var(&s.lane, "lane", "only messages of this lane")
	f.Var(&s.contains, "contains", "only messages with this text in the payload")
	f.Var(&s.headers, "header", "only messages with a header of exactly this value; any number")
	f.Var(&s.headersIn, "header-contains", "only messages with this text in a header; any number")
	f.Var(&s.errorText, "error", "only messages with exactly this last error")
	f.Var(&s.errorIn, "error-contains", "only messages with this text in the last error")
	s.errorLike.hint = "; --error-like '(no error)' selects messages without an error"
	f.Var(&s.errorLike, "error-like", "only the group of this error, as the command errors prints it")
}

// any says whether the selection leaves some messages out.
func (s *selection) any() bool {
	return !s.from.IsZero() || !s.to.IsZero() || s.key.text != "" || s.lane.text != "" ||
		s.contains.text != "" || len(s.headers) > 0 || len(s.headersIn) > 0 ||
		s.errorText.text != "" || s.errorIn.text != "" || s.errorLike.text != ""
}

func (s *selection) filter() ops.Filter {
	return ops.Filter{From: s.from.Time, To: s.to.Time, Key: s.key.text, Lane: s.lane.text,
		Contains: s.contains.text, Headers: s.headers, HeadersContain: s.headersIn, Error: s.errorText.text,
		ErrorContains: s.errorIn.text, ErrorLike: s.errorLike.text}
}

// check refuses headers without a text, and bounds between which no message can lie.
func (s *selection) check(state delayqueue.State) error {
	for flag, headers := range map[string]headersFlag{"header": s.headers, "header-contains": s.headersIn} {
		for name, text := range headers {
			if text == "" {
				return fail(exitUsage, "--%s %s= is empty: a variable that is not set?", flag, name)
			}
		}
	}
	if !s.from.IsZero() && !s.to.IsZero() && s.from.After(s.to.Time) {
		return fail(exitUsage, "--from %s is after --to %s", s.from.text, s.to.text)
	}
	if state != delayqueue.StateGarbage || !s.from.After(time.Now().Add(justNow)) {
		return nil
	}
	hint := ""
	if _, err := parseDuration(s.from.text); err == nil {
		hint = ": did you mean --from -" + s.from.text + "?"
	}
	return fail(exitUsage, "--from %s is in the future, and nothing has died then%s", s.from.text, hint)
}

// which is what --all means, in words, with the number of messages in these states.
func (t *target) which(total int64, states string) string {
	words := plural(int(total), "message") + " that are " + states
	if total == 1 {
		words = "1 message that is " + states
	}
	if t.any() {
		words = "what matches of " + words
	} else {
		words = "all of " + words
	}
	if t.most > 0 {
		words = fmt.Sprintf("at most %d, and %s", t.most, words)
	}
	return words
}
