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
	agreed         bool // somebody said yes
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
finish, and what was taken they do not get. An outage of Redis is waited for. With --follow it goes on with what their
senders still send, waits for a queue that is not there yet, needs nobody to say yes, and says each minute how far it is.

Of asynq it moves what is pending, scheduled and waiting for a retry, and what is active although its server is gone for a
minute: payload, headers, the time at which it is due, timeout, deadline, retention, and the retries that are left. The
type of a task is the header "kind", so handlers of the package typed get it. An id that somebody chose (asynq.TaskID) is
the key, else the lock that a task of asynq.Unique holds; is there a message with that key already, it stays and the task is dropped. What is active, archived, completed or
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
	theirs, err := a.findTheirs(c, name, f)
	if err != nil {
		return err
	}
	if theirs.base() == "{"+a.prefix+":"+f.into+"}:" {
		return fail(exitUsage, "their keys and ours would be the same, %s…: take another --prefix than %s, here and in UseCustomPrefix",
			theirs.base(), a.prefix)
	}
	im := &importer{
		cli: a.cli, from: f.from, target: a.prefix + ":" + f.into, theirs: theirs, monitor: a.newMonitor(f.into),
		into: delayqueue.NewPublisher(f.into, a.cli, delayqueue.UseCustomPrefix(a.prefix)),
	}
	if err := im.begin(ctx); err != nil {
		return err
	}
	total, err := im.size(ctx)
	if err != nil {
		return err
	}
	if !f.dryRun && !f.agreed && !f.unattended() {
		if err := a.ask("Move %s of %s's queue %q to queue %q?", plural(int(total), "message"), f.from, name, f.into); err != nil {
			return err
		}
	}
	switch {
	case f.dryRun:
		err = a.watchImport(im, f, total, func() error { return im.dryRun(ctx) })
	case f.follow:
		err = a.watchImport(im, f, 0, func() error { return im.follow(ctx) })
	default:
		err = a.watchImport(im, f, total, func() error { return im.outlast(ctx, im.run) })
	}
	if err := im.say(a.json, f, name); err != nil {
		return err
	}
	if err != nil && !f.dryRun {
		fmt.Fprintln(os.Stderr, "it was cut off; the same command goes on, and moves nothing twice")
	}
	return err
}

// unattended: a service runs it, so there is nobody to ask.
func (f *importFlags) unattended() bool { return f.follow && !onTerminal(os.Stdin) }

// findTheirs is theirs, for which --follow waits: a queue of another library has no key before its first message.
func (a *app) findTheirs(c *cobra.Command, name string, f *importFlags) (foreignQueue, error) {
	ctx := c.Context()
	waiting := false
	for {
		theirs, err := a.theirs(c, name, f)
		code := exitDone
		if err != nil {
			code, _ = a.explain(err)
		}
		if !f.follow || code != exitNotFound && (code != exitNoRedis || !waiting) {
			return theirs, err
		}
		if !waiting {
			if !f.unattended() {
				if err := a.ask("%s. Wait for it, and move what comes to queue %q?", sentence(err), f.into); err != nil {
					return nil, err
				}
			}
			waiting, f.agreed = true, true
			fmt.Fprintln(os.Stderr, printable(err.Error()+"; waiting for it"))
		}
		if rest(ctx, followInterval); ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

// sentence is the text of an error at the beginning of one.
func sentence(err error) string {
	text := err.Error()
	return strings.ToUpper(text[:1]) + text[1:]
}

// sayEvery is how often an import without a terminal says how far it is, if it moved anything since.
const sayEvery = time.Minute

// watchImport shows how an import goes on: by a bar on a terminal, else by a line now and then.
func (a *app) watchImport(im *importer, f *importFlags, total int64, work func() error) error {
	bar := a.progress("moving", total)
	defer finish(bar)
	line := func(format string, args ...any) {
		_ = bar.Clear() // a bar that cannot be drawn stops nothing
		fmt.Fprintln(os.Stderr, printable(fmt.Sprintf(format, args...)))
	}
	silent, said := f.dryRun || onTerminal(os.Stderr), time.Now()
	if f.follow {
		said = time.Time{} // that it has begun is worth a line
	}
	im.moved = func(n int) {
		_ = bar.Add(n)
		if n > 0 && !silent && time.Since(said) > sayEvery {
			said = time.Now()
			line("moved %s so far", plural(int(im.Moved), "message"))
		}
	}
	im.outage = func(err error, first bool) bool {
		trouble := a.trouble(err)
		if !slices.Contains([]string{"no answer", "LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN"}, trouble) {
			return false
		}
		if _, text := a.explain(err); first {
			line("%s; waiting for Redis", text)
		}
		return true
	}
	return work()
}

// followInterval is how long what their senders send waits for the next look.
const followInterval = time.Second

// follow goes on until it is interrupted, which is its ordinary end.
func (im *importer) follow(ctx context.Context) error {
	for {
		if err := im.outlast(ctx, im.run); err != nil && ctx.Err() == nil {
			return err
		}
		if rest(ctx, followInterval); ctx.Err() != nil {
			return nil
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
