package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// app is one run of the program.
type app struct {
	dialing
	prefix    string
	operator  string // name of the person who acts
	reason    string
	json, yes bool
	csv       bool // of lists: rows as CSV; all else is as with json

	hungAfter, laneAfter durationFlag // for verdicts

	started bool // the command line is right
	command *cobra.Command
	cli     redis.UniversalClient
	in      *bufio.Reader
}

func newApp() *app {
	if !coloured {
		text.DisableColors()
	}
	return &app{in: bufio.NewReader(os.Stdin)}
}

// coloured says whether the output is a terminal that takes colours (no-color.org).
var coloured = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && onTerminal(os.Stdout)

func onTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

func (a *app) close() {
	if a.cli != nil {
		_ = a.cli.Close() // nothing of it is needed any more
	}
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:     "delayqueue",
		Short:   "Look at delay queues on Redis, and steer them",
		Version: version(debug.ReadBuildInfo()),
		Long: `delayqueue looks at the queues of the Go library delayqueue and steers them.

` + addressHelp + `

Times are 2006-01-02T15:04:05Z, 2006-01-02 15:04, 2006-01-02, 15:04 (today),
tomorrow 15:04, now, or a duration from now on: 90s, 15m, 36h, 7d, -2h. With
--json, a list is one JSON object a line, and all else is one object. Colours
and progress bars are for terminals only. NO_COLOR turns colours off.

` + exitHelp,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", ".FlagUsagesWrapped 80"))
	root.InitDefaultVersionFlag() // now, so that what follows --version is not taken for its value
	flags := root.PersistentFlags()
	a.dialing.flags(flags)
	flags.StringVar(&a.prefix, "prefix", "dq", "prefix of the queues (UseCustomPrefix)")
	flags.StringVar(&a.operator, "operator", operator(),
		"name of the person who acts, for the journal and for listeners of events")
	flags.StringVar(&a.reason, "reason", "", "reason for the act, for the journal and the verdict of a paused queue")
	flags.BoolVar(&a.json, "json", false, "print JSON")
	flags.BoolVarP(&a.yes, "yes", "y", false, "do not ask")
	periodic, limits, journal, lanes := a.scheduleCommand(), a.limitsCommand(), a.journalCommand(), a.lanesCommand()
	root.AddCommand(
		a.statsCommand(), a.topCommand(), a.queuesCommand(), a.listCommand(), a.findCommand(), a.errorsCommand(),
		a.getCommand(), a.whyCommand(),
		a.sendCommand(), a.cancelCommand(),
		a.rescheduleCommand(), a.runCommand(), a.requeueCommand(), a.deleteCommand(), a.pauseCommand(), a.resumeCommand(),
		limits, journal,
		a.consumersCommand(), lanes, a.sequencesCommand(), a.importCommand(), a.schedulesCommand(), periodic,
		a.historyCommand(), a.forecastCommand(),
		a.eventsCommand(),
		a.doctorCommand(), a.exporterCommand(), a.webCommand(),
	)
	for _, c := range slices.Concat(root.Commands(), periodic.Commands(), limits.Commands(), journal.Commands(),
		lanes.Commands()) {
		c.ValidArgsFunction = cobra.NoFileCompletions
		if work := c.RunE; work != nil {
			c.RunE = func(c *cobra.Command, args []string) error {
				a.started, a.command, a.json = true, c, a.json || a.csv
				if a.prefix == "" || strings.ContainsAny(a.prefix, "{}:") { // about which the library would panic
					return fail(exitUsage, "--prefix %q: a prefix needs at least one character and none of { } :", a.prefix)
				}
				return work(c, args)
			}
		}
	}
	return root
}

// version names the module's version, the revision if it was built in a checkout, and Go's version.
func version(built *debug.BuildInfo, known bool) string {
	if !known {
		return "unknown: it was built without modules"
	}
	said := cmp.Or(built.Main.Version, "(devel)")
	settings := map[string]string{}
	for _, s := range built.Settings {
		settings[s.Key] = s.Value
	}
	if revision := settings["vcs.revision"]; revision != "" {
		said += ", revision " + revision
	}
	if settings["vcs.modified"] == "true" {
		said += " with changes"
	}
	return said + ", " + built.GoVersion
}

// operator is the user of this machine.
func operator() string {
	name := cmp.Or(os.Getenv("USER"), os.Getenv("LOGNAME"))
	if name == "" { // as in a container, or under cron
		name = fmt.Sprint("uid ", os.Getuid())
		if u, err := user.Current(); err == nil && u.Username != "" {
			name = u.Username
		}
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}

func (a *app) connect(ctx context.Context) (err error) {
	if a.cli == nil {
		a.cli, err = a.reach(ctx)
	}
	return err
}

var partName = regexp.MustCompile(`/[0-9]+$`)

func validName(name string) error {
	if name == "" || strings.ContainsAny(name, "{}") || partName.MatchString(name) || !utf8.ValidString(name) ||
		strings.ContainsFunc(name, unicode.IsControl) || strings.TrimSpace(name) != name {
		return fail(exitUsage,
			"%q is no name of a queue: it is UTF-8, needs at least one character, none of { }, no control characters, "+
				"no blank at either end, and no slash and digits at its end", name)
	}
	return nil
}

func validNames(names []string) (err error) {
	for _, name := range names {
		err = cmp.Or(err, validName(name))
	}
	return err
}

// queue returns an error if there is no queue of this name.
func (a *app) queue(ctx context.Context, name string) error {
	if err := validName(name); err != nil {
		return err
	}
	if err := a.connect(ctx); err != nil {
		return err
	}
	soon, cancel := context.WithTimeout(ctx, link.ReadFor)
	defer cancel()
	_, err := a.newMonitor(name).Counts(soon)
	return a.absent(ctx, name, err)
}

// absent is the error of the counts of a queue, with a hint if there is no queue of this name. It is nil if the command
// itself says what is wrong.
func (a *app) absent(ctx context.Context, name string, err error) error {
	switch {
	case err == nil, errors.Is(err, delayqueue.ErrWrongType), errors.Is(err, delayqueue.ErrMissingShards):
		return nil
	case errors.Is(err, delayqueue.ErrNoQueue):
		return a.noQueue(ctx, name, "")
	case refusesKey(err):
		return a.noQueue(ctx, name, " that this user may see")
	}
	return err
}

// refusesKey says whether the server refuses this user a key.
func refusesKey(err error) bool {
	text := strings.ToLower(err.Error())
	return strings.Contains(text, "noperm") && strings.Contains(text, "key") ||
		strings.Contains(text, "acl failure") && strings.Contains(text, "key")
}

// monitor returns the queue of this name if there is one.
func (a *app) monitor(ctx context.Context, name string) (*ops.Queue, error) {
	if err := a.queue(ctx, name); err != nil {
		return nil, err
	}
	return a.newMonitor(name), nil
}

// runE is what a command does.
type runE = func(*cobra.Command, []string) error

// onMonitor is the RunE of a command whose first argument is a queue.
func (a *app) onMonitor(run func(c *cobra.Command, m *ops.Queue, args []string) error) runE {
	return func(c *cobra.Command, args []string) error {
		m, err := a.monitor(c.Context(), args[0])
		if err != nil {
			return err
		}
		return run(c, m, args)
	}
}

// onQueue is the RunE of a command that makes one call for a queue.
func (a *app) onQueue(run func(ctx context.Context, m *ops.Queue, args []string) error) runE {
	return a.onMonitor(func(c *cobra.Command, m *ops.Queue, args []string) error {
		ctx, cancel := context.WithTimeout(c.Context(), oneCall)
		defer cancel()
		return run(ctx, m, args)
	})
}

// onTarget is the RunE of a command for the messages whose ids follow the queue, or for all that a target selects.
func (a *app) onTarget(which *target, state delayqueue.State,
	run func(c *cobra.Command, m *ops.Queue, ids []string) error) runE {
	return func(c *cobra.Command, args []string) error {
		if err := which.check(args[1:], state); err != nil {
			return err
		}
		return a.onMonitor(func(c *cobra.Command, m *ops.Queue, args []string) error {
			if which.anew {
				m.Anew()
			}
			return run(c, m, args[1:])
		})(c, args)
	}
}

func (a *app) newMonitor(name string) *ops.Queue {
	return ops.Of(delayqueue.NewMonitor(name, a.cli, delayqueue.UseCustomPrefix(a.prefix))).WithOperator(
		a.operator).WithReason(a.reason)
}
