package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-delayqueue/delayqueue"
)

// importFlags say what is moved from where.
type importFlags struct {
	from           string
	into           string
	prefix         string // of hdt3213's keys
	tagged         bool   // they have hash tags
	dryRun, follow bool
}

// libraries are those whose queues can be imported.
var libraries = []string{"asynq", "hdt3213"}

func (a *app) importCommand() *cobra.Command {
	var f importFlags
	c := &cobra.Command{
		Use:   "import QUEUE --from asynq|hdt3213",
		Short: "Move what waits in a queue of another library",
		Long: `import moves what waits in a queue of another library (on the same Redis) into a queue of this one, which it makes if
there is none, each message once: it takes a message out of theirs, stores it here and only then deletes it there. Whatever
cut it off, the same command goes on; two at a time do no harm. Their consumers may go on meanwhile: what they have they
finish, and what was taken they do not get.

Of asynq it moves what is pending, scheduled and waiting for a retry, and what is active although its server is gone for a
minute: payload, headers, the time at which it is due, timeout, deadline, retention, and the retries that are left. The
type of a task is the header "kind", so handlers of the package typed get it. An id that somebody chose (asynq.TaskID) is
the key; is there a message with that key already, it stays and the task is dropped. What is active, archived, completed or
in a group is left, and counted.

Of github.com/hdt3213/delayqueue it moves what is pending, ready and to be retried, and what was handed out and is to come
again by now: payload, time, and the retries that are left. What was handed out a moment ago is left: once its consumer has
finished or was stopped, the same command moves what remains.`,
		Example: "  delayqueue import default --from asynq --into orders --dry-run\n" +
			"  delayqueue import default --from asynq --into orders --follow",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return a.importQueue(c, args[0], &f) },
	}
	c.Flags().StringVar(&f.from, "from", "", "the library: "+strings.Join(libraries, " or "))
	c.Flags().StringVar(&f.into, "into", "", "the queue of ours (default: of the same name)")
	c.Flags().StringVar(&f.prefix, "from-prefix", hdtPrefix, "with --from hdt3213: its UseCustomPrefix")
	c.Flags().BoolVar(&f.tagged, "hash-tag", false, "with --from hdt3213: its UseHashTagKey (default: what is found)")
	c.Flags().BoolVar(&f.dryRun, "dry-run", false, "say how many it would be, and change nothing")
	c.Flags().BoolVar(&f.follow, "follow", false, "go on with what their senders still send, until it is interrupted")
	c.MarkFlagsMutuallyExclusive("dry-run", "follow")
	return c
}

func (f *importFlags) check(c *cobra.Command, name string) error {
	switch {
	case f.from == "":
		return fail(exitUsage, "from where? --from %s", strings.Join(libraries, " or --from "))
	case !slices.Contains(libraries, f.from):
		return fail(exitUsage, "--from %q is none of %s%s", f.from, strings.Join(libraries, ", "), didYouMean(nearest(f.from, libraries), ""))
	}
	if f.from != "hdt3213" && (c.Flags().Changed("from-prefix") || c.Flags().Changed("hash-tag")) {
		return fail(exitUsage, "--from-prefix and --hash-tag go with --from hdt3213")
	}
	if f.into == "" {
		f.into = name
	}
	return validName(f.into)
}

// theirs is the queue to import from, which is there.
func (a *app) theirs(c *cobra.Command, name string, f *importFlags) (foreignQueue, error) {
	if f.from == "asynq" {
		q := &asynqQueue{cli: a.cli, name: name}
		return q, q.find(c.Context())
	}
	q := &hdtQueue{cli: a.cli, prefix: f.prefix, name: name, tagged: f.tagged}
	if !c.Flags().Changed("hash-tag") {
		if err := q.findTagged(c.Context()); err != nil {
			return nil, err
		}
	}
	return q, q.find(c.Context())
}

func (a *app) importQueue(c *cobra.Command, name string, f *importFlags) error {
	ctx := c.Context()
	if err := f.check(c, name); err != nil {
		return err
	}
	if err := a.connect(ctx); err != nil {
		return err
	}
	theirs, err := a.theirs(c, name, f)
	if err != nil {
		return err
	}
	if theirs.base() == "{"+a.prefix+":"+f.into+"}:" {
		return fail(exitUsage, "their keys and ours would be the same, %s…: take another --prefix than %s, here and in UseCustomPrefix",
			theirs.base(), a.prefix)
	}
	im := &importer{
		cli: a.cli, from: f.from, target: a.prefix + ":" + f.into, theirs: theirs,
		into: delayqueue.NewPublisher(f.into, a.cli, delayqueue.UseCustomPrefix(a.prefix)),
	}
	if err := im.begin(ctx, a.newMonitor(f.into)); err != nil {
		return err
	}
	total, err := im.size(ctx)
	if err != nil {
		return err
	}
	if !f.dryRun {
		if err := a.ask("Move %s of %s's queue %q to queue %q?", plural(int(total), "message"), f.from, name, f.into); err != nil {
			return err
		}
	}
	bar := a.progress("moving", total)
	im.moved = func(n int) { _ = bar.Add(n) } // a bar that cannot be drawn stops nothing
	switch {
	case f.dryRun:
		err = im.dryRun(ctx)
	case f.follow:
		err = im.follow(ctx)
	default:
		err = im.run(ctx)
	}
	finish(bar)
	if err := im.say(a.json, f, name); err != nil {
		return err
	}
	if err != nil && !f.dryRun {
		fmt.Fprintln(os.Stderr, "it was cut off; the same command goes on, and moves nothing twice")
	}
	return err
}

// followInterval is how long what their senders send waits for the next look.
const followInterval = time.Second

// follow goes on until it is interrupted, which is its ordinary end.
func (im *importer) follow(ctx context.Context) error {
	tick := time.NewTicker(followInterval)
	defer tick.Stop()
	for {
		if err := im.run(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (im *importer) say(json bool, f *importFlags, name string) error {
	if json {
		return printJSON(im.importResult)
	}
	did := "moved"
	if f.dryRun {
		did = "would have moved"
	}
	say("%s %s of %s's queue %s to queue %s", did, plural(int(im.Moved), "message"), f.from, name, f.into)
	for _, one := range []struct {
		n    int64
		what string
	}{
		{im.Repeated, "stored before, by an import that was cut off or runs beside this one"},
		{im.There, "dropped: a message with the same key was there"},
		{im.Gone, "deleted by somebody while on the way"},
	} {
		if one.n > 0 {
			say("%s %s", plural(int(one.n), "message"), one.what)
		}
	}
	for _, why := range slices.Sorted(maps.Keys(im.Left)) {
		say("left %d: %s", im.Left[why], why)
	}
	return nil
}
