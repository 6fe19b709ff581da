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
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
)

// importFlags say which queue is moved where.
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
		Long: `import moves the waiting messages of a queue of another library, on the same
Redis, into a queue of this library, each message once. It makes the queue if
there is none. A message is taken out of their queue, stored here, and only then
deleted there. If the command is cut off, the same command goes on. Two at a
time do no harm, and their consumers may go on meanwhile. import waits for the
end of an outage of Redis.

With --follow it also moves the messages that their senders still send. It waits
for a queue that is not there yet, asks nobody if there is no terminal, and says
each minute how far it is.

From asynq it moves the tasks that are pending, scheduled or waiting for a
retry, and active tasks whose server has been gone for a minute. A message gets
the payload, headers, due time, timeout, deadline, retention and remaining
retries of its task. The type of a task is the header "kind", for handlers of
the package typed. The key is an id that was chosen by asynq.TaskID, else the
lock of asynq.Unique; if there is a message with that key already, that message
stays and the task is dropped. Tasks that are active, archived, completed or in
a group are left, and counted. If our queue has several shards, each key leaves
a sequence behind ("import {key} …"). delayqueue sequences deletes it once the
import is over.

From github.com/hdt3213/delayqueue it moves the messages that are pending, ready
or to be retried, and those that were handed out and are due again by now. A
message gets the payload, time and remaining retries. Messages that were just
handed out are left; once their consumer has finished or was stopped, the same
command moves the rest.`,
		Example: "  delayqueue import default --from asynq --into orders --dry-run\n" +
			"  delayqueue import default --from asynq --into orders --follow",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return a.importQueue(c, args[0], &f) },
	}
	c.Flags().StringVar(&f.from, "from", "", "the library: "+strings.Join(libraries, " or "))
	c.Flags().StringVar(&f.into, "into", "", "the queue of this library (default: of the same name)")
	c.Flags().StringVar(&f.prefix, "from-prefix", hdtPrefix, "with --from hdt3213: its UseCustomPrefix")
	c.Flags().BoolVar(&f.tagged, "hash-tag", false, "with --from hdt3213: its UseHashTagKey (default: what is found)")
	c.Flags().BoolVar(&f.dryRun, "dry-run", false, "say how many messages would be moved, and change nothing")
	c.Flags().BoolVar(&f.follow, "follow", false, "go on with messages that are still sent there, until interrupted")
	c.MarkFlagsMutuallyExclusive("dry-run", "follow")
	return c
}

func (f *importFlags) check(c *cobra.Command, name string) error {
	switch {
	case f.from == "":
		return fail(exitUsage, "from which library? --from %s", strings.Join(libraries, " or --from "))
	case !slices.Contains(libraries, f.from):
		return fail(exitUsage, "--from %q is none of %s%s", f.from, strings.Join(libraries, ", "),
			didYouMean(f.from, libraries))
	}
	if f.from != "hdt3213" && (c.Flags().Changed("from-prefix") || c.Flags().Changed("hash-tag")) {
		return fail(exitUsage, "--from-prefix and --hash-tag go with --from hdt3213")
	}
	if f.into != "" {
		return validName(f.into)
	}
	f.into = name
	if err := validName(name); err != nil {
		return fail(exitUsage, "%v: name the queue of this library by --into", err)
	}
	return nil
}

// theirs is the queue to import from, or an error if there is none.
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
		return fail(exitUsage,
			"their keys and ours would be the same, %s…: take another --prefix than %s, here and in UseCustomPrefix",
			theirs.base(), a.prefix)
	}
	set, err := a.shards(ctx, f.into)
	if err != nil {
		return err
	}
	im := &importer{
		cli: a.cli, from: f.from, target: a.prefix + ":" + f.into, theirs: theirs,
		monitor: ops.Of(delayqueue.NewMonitor(f.into, a.cli,
			delayqueue.UseCustomPrefix(a.prefix))), // in nobody's name: the journal has no entry
		into: a.publisher(f.into), sharded: len(set.All) > 1,
	}
	if err := im.begin(ctx); err != nil {
		return err
	}
	total, err := im.size(ctx)
	if err != nil {
		return err
	}
	if unattended := f.follow && !onTerminal(os.Stdin); !f.dryRun &&
		!unattended { // a service that follows has nobody to ask
		if err := a.ask("Move %s of %s's queue %q to queue %q?", plural(int(total), "message"), f.from, name,
			f.into); err != nil {
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
	im.say(a.json, f, name)
	if err != nil && !f.dryRun {
		fmt.Fprintln(os.Stderr, "it was cut off; the same command goes on, and moves nothing twice")
	}
	return err
}

// findTheirs is theirs. With --follow it waits for the queue, because another library's queue has no key before its
// first message.
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
			waiting = true
			fmt.Fprintln(os.Stderr, printable(err.Error()+"; waiting for it"))
		}
		if rest(ctx, followInterval); ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

// sayEvery is how often an import without a terminal says how far it is, if it has moved anything since.
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
		said = time.Time{} // the first messages are worth a line
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

// followInterval is the pause between two looks at their queue.
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

func (im *importer) say(json bool, f *importFlags, name string) {
	if json {
		printJSON(im.importResult)
		return
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
}

// foreignText is the content of a key of theirs.
type foreignText struct {
	text string
	err  error // of the server: the key is of another type
}

// readEach reads a text for each claim, in one round trip. Its error is that of the call as a whole.
func readEach(ctx context.Context, cli redis.UniversalClient, claims []claim,
	read func(redis.Pipeliner, string) *redis.StringCmd) ([]foreignText, error) {
	cmds := make([]*redis.StringCmd, len(claims))
	_, _ = cli.Pipelined(ctx, func(p redis.Pipeliner) error { // each has its error
		for i, c := range claims {
			cmds[i] = read(p, c.id)
		}
		return nil
	})
	texts := make([]foreignText, len(claims))
	for i, cmd := range cmds {
		text, err := cmd.Result()
		if err != nil && !errors.Is(err, redis.Nil) && !redis.HasErrorPrefix(err, "WRONGTYPE") {
			return texts, err
		}
		texts[i] = foreignText{text, err}
	}
	return texts, nil
}

// message decodes a text that is there.
func (t foreignText) message(decode func() (foreignMessage, error)) (m foreignMessage) {
	err := t.err
	switch {
	case errors.Is(err, redis.Nil):
		return foreignMessage{gone: true}
	case err == nil:
		m, err = decode()
	}
	if err != nil {
		m.problem = leftUnreadable
	}
	return m
}
