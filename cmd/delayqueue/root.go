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
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/go-delayqueue/delayqueue"
)

// app is one run of the program.
type app struct {
	dialing
	prefix    string
	operator  string // who acts, as the events of others say
	reason    string // why
	json, yes bool

	started bool // the command line was right
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

// coloured: somebody looks, and wants colours (no-color.org).
var coloured = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && onTerminal(os.Stdout)

func onTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

func (a *app) close() {
	if a.cli != nil {
		_ = a.cli.Close() // nothing of it is needed any more
	}
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "delayqueue",
		Short: "Look at delay queues on Redis, and steer them",
		Long: `delayqueue looks at the queues of the Go library delayqueue and steers them.

` + addressHelp + `

Times are 2006-01-02T15:04:05Z, 2006-01-02 15:04, 2006-01-02, 15:04 (today), tomorrow 15:04, now, or a duration
from now on: 90s, 15m, 36h, 7d, -2h. With --json, lists are one JSON object a line and everything else is one object.
Colours and progress bars are for terminals only, and NO_COLOR turns colours off.

` + exitHelp,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	flags := root.PersistentFlags()
	a.dialing.flags(flags)
	flags.StringVar(&a.prefix, "prefix", "dq", "prefix of the queues (UseCustomPrefix)")
	flags.StringVar(&a.operator, "operator", operator(), "who acts, as the journal and the listeners of events are told")
	flags.StringVar(&a.reason, "reason", "", "why you act, for the journal and for those who look at a pause")
	flags.BoolVar(&a.json, "json", false, "print JSON")
	flags.BoolVarP(&a.yes, "yes", "y", false, "do not ask")
	periodic, limits, journal := a.scheduleCommand(), a.limitsCommand(), a.journalCommand()
	root.AddCommand(
		a.statsCommand(), a.topCommand(), a.queuesCommand(), a.listCommand(), a.findCommand(), a.errorsCommand(), a.getCommand(),
		a.sendCommand(), a.cancelCommand(),
		a.rescheduleCommand(), a.runCommand(), a.requeueCommand(), a.purgeCommand(), a.pauseCommand(), a.resumeCommand(), limits, journal,
		a.consumersCommand(), a.sequencesCommand(), a.importCommand(), a.schedulesCommand(), periodic, a.historyCommand(), a.eventsCommand(),
		a.doctorCommand(), a.exporterCommand(), a.webCommand(), a.continueCommand(),
	)
	for _, c := range slices.Concat(root.Commands(), periodic.Commands(), limits.Commands(), journal.Commands()) {
		c.DisableFlagsInUseLine = false
		if check := c.Args; check != nil && !c.HasSubCommands() {
			c.Args = func(c *cobra.Command, args []string) error {
				a.command = c
				return argsError(c, args, check(c, args))
			}
		}
		work := c.RunE
		if work == nil {
			continue
		}
		c.RunE = func(c *cobra.Command, args []string) error {
			a.started, a.command = true, c
			if err := a.checkIdentity(); err != nil {
				return err
			}
			return work(c, args)
		}
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		a.command = c
		return err
	})
	return root
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

// checkIdentity refuses what the library would panic about.
func (a *app) checkIdentity() error {
	if a.prefix == "" || strings.ContainsAny(a.prefix, "{}:") {
		return fail(exitUsage, "--prefix %q: a prefix needs at least one character and none of { } :", a.prefix)
	}
	return nil
}

// usage says where the command line is described.
func (a *app) usage() string {
	path := "delayqueue"
	if a.command != nil {
		path = a.command.CommandPath()
	}
	return "See " + path + " --help."
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
		return fail(exitUsage, "%q is no name of a queue: it is UTF-8, needs at least one character, none of { }, no control characters, "+
			"no blank at either end, and no slash and digits at its end", name)
	}
	return nil
}

// queue makes sure that there is such a queue.
func (a *app) queue(ctx context.Context, name string) error {
	if err := validName(name); err != nil {
		return err
	}
	if err := a.connect(ctx); err != nil {
		return err
	}
	soon, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := a.newMonitor(name).Counts(soon)
	switch {
	case err == nil, errors.Is(err, delayqueue.ErrWrongType):
		return nil // what is wrong with it is for others to say
	case errors.Is(err, delayqueue.ErrNoQueue):
		return a.noQueue(ctx, name, "")
	case refusesKey(err):
		return a.noQueue(ctx, name, " that this user may see")
	}
	return err
}

// refusesKey: the user may not touch the keys of a queue of this name.
func refusesKey(err error) bool {
	text := strings.ToLower(err.Error())
	return strings.Contains(text, "noperm") && strings.Contains(text, "key") ||
		strings.Contains(text, "acl failure") && strings.Contains(text, "key")
}

// monitor is for a queue that exists.
func (a *app) monitor(ctx context.Context, name string) (*delayqueue.Monitor, error) {
	if err := a.queue(ctx, name); err != nil {
		return nil, err
	}
	return a.newMonitor(name), nil
}

func (a *app) newMonitor(name string) *delayqueue.Monitor {
	return delayqueue.NewMonitor(name, a.cli, delayqueue.UseCustomPrefix(a.prefix)).WithOperator(a.operator).WithReason(a.reason)
}
