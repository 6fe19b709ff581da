package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-delayqueue/delayqueue"
)

// target is what a steering command is about: some messages by name, or all that match.
type target struct {
	selection
	bulkFlags
	all, byKey bool
}

// flags; what is the state of those that --all means if --state does not say so, about what happened to them.
func (t *target) flags(c *cobra.Command, what, about string) {
	c.Flags().BoolVar(&t.all, "all", false, "all "+what+" messages that match the other flags")
	t.selection.flags(c, about)
}

func (t *target) keyFlag(c *cobra.Command) {
	c.Flags().BoolVarP(&t.byKey, "key", "k", false, "each ID is the key that the sender gave the message")
}

// check is about the command line alone; state is that of the messages that --all means.
func (t *target) check(ids []string, state delayqueue.State) error {
	switch {
	case t.all && len(ids) > 0:
		return fail(exitUsage, "give ids or --all, not both")
	case !t.all && (t.any() || len(t.states) > 0 || t.dryRun || t.spread != 0 || t.rate != 0):
		return fail(exitUsage, "--from, --to, --state, --dry-run and what else says which messages and how go with --all")
	case !t.all && len(ids) == 0:
		return fail(exitUsage, "which messages? Give ids, or --all")
	}
	return t.selection.check(state)
}

// oneCall is how long a call for one message is tried.
const oneCall = 15 * time.Second

// outcome is what became of one message.
type outcome struct {
	ID    string `json:"id"`
	Done  bool   `json:"done"`
	Was   string `json:"was,omitempty"`
	Error string `json:"error,omitempty"`
}

// each does something to each message, and says so. It goes on after an error and returns the first.
func (a *app) each(ctx context.Context, m *delayqueue.Monitor, names []string, find finder, did string,
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
			if err := printJSON(out); err != nil {
				return err
			}
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
		return &failure{code: code} // it was said
	}
	return first
}

func (a *app) one(ctx context.Context, m *delayqueue.Monitor, name string, find finder,
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
		return "", a.noMessage(ctx, m, name, false, "")
	}
	return was, err
}

// plainly is work that does not say where the message was.
func plainly(work func(context.Context, string) error) func(context.Context, string) (string, error) {
	return func(ctx context.Context, id string) (string, error) { return "", work(ctx, id) }
}

// A finder makes an id of what a person wrote.
type finder = func(ctx context.Context, name string) (id string, err error)

// finder reads ids, or keys: those of live messages, or of garbage.
func (a *app) finder(m *delayqueue.Monitor, byKey, garbage bool) finder {
	return func(ctx context.Context, name string) (string, error) {
		if !byKey {
			return name, nil
		}
		var msg *delayqueue.MessageStatus
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
			return "", a.noMessage(ctx, m, name, true, wanted)
		}
		return msg.ID, nil
	}
}

// deadByKey finds the one of this key that died last, nil for none.
func deadByKey(ctx context.Context, m *delayqueue.Monitor, key string) (last *delayqueue.MessageStatus, err error) {
	for msg, err := range m.All(ctx, delayqueue.StateGarbage, delayqueue.Filter{Key: key}) {
		if err != nil {
			return nil, err
		}
		last = msg
	}
	return last, nil
}

// get and getKey are nil for a message that is not there.
func get(ctx context.Context, m *delayqueue.Monitor, id string) (*delayqueue.MessageStatus, error) {
	return orNil(m.Get(ctx, id))
}

func getKey(ctx context.Context, m *delayqueue.Monitor, key string) (*delayqueue.MessageStatus, error) {
	return orNil(m.GetKey(ctx, key))
}

// orNil makes nil of a message that is not found in a queue that is there.
func orNil(msg *delayqueue.MessageStatus, err error) (*delayqueue.MessageStatus, error) {
	if errors.Is(err, delayqueue.ErrNotFound) && !errors.Is(err, delayqueue.ErrNoQueue) {
		return nil, nil
	}
	return msg, err
}
