package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	_ "time/tzdata" // a machine may have no zones

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/schedule"
)

// scheduler is for a queue that exists, or may be made.
func (a *app) scheduler(ctx context.Context, name string, create bool) (*schedule.Scheduler, error) {
	err := a.queue(ctx, name)
	var known *failure
	if errors.As(err, &known) && known.code == exitNotFound && create {
		err = nil
	}
	if err != nil {
		return nil, err
	}
	return schedule.New(delayqueue.NewPublisher(name, a.cli, delayqueue.UseCustomPrefix(a.prefix))), nil
}

func (a *app) schedulesCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schedules QUEUE",
		Short: "Show periodic messages",
		Long: `schedules lists the entries of a queue that send a message again and again, with their next instants, and how many instants have no
message, and why: the last message lived (overlap), nobody ran them in time (missed), a pause. Some process must run
them: schedule.Run of the library.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeQueue(),
		RunE: func(c *cobra.Command, args []string) error {
			m, err := a.monitor(c.Context(), args[0])
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(c.Context(), oneCall)
			defer cancel()
			all, err := schedule.List(ctx, m)
			if err != nil {
				return err
			}
			return a.saySchedules(all)
		},
	}
}

type scheduleJSON struct {
	Name           string     `json:"name"`
	Cron           string     `json:"cron,omitempty"`
	Zone           string     `json:"zone,omitempty"`
	Every          float64    `json:"every_seconds,omitempty"`
	Offset         float64    `json:"offset_seconds,omitempty"`
	Overlap        string     `json:"overlap"`
	CatchUp        int        `json:"catch_up"`
	Paused         bool       `json:"paused"`
	Next           *time.Time `json:"next,omitempty"`
	Last           *time.Time `json:"last,omitempty"`
	SkippedOverlap int64      `json:"skipped_overlap"`
	SkippedMissed  int64      `json:"skipped_missed"`
	SkippedPaused  int64      `json:"skipped_paused"`
	Broken         string     `json:"unreadable,omitempty"`
}

func (a *app) saySchedules(all []schedule.Status) error {
	g := newGrid("schedule", "when", "zone", "next", "last", "skipped", "state")
	for _, s := range all {
		if a.json {
			out := scheduleJSON{
				Name: s.Name, Cron: s.Cron, Zone: s.Zone, Every: s.Every.Seconds(), Offset: s.Offset.Seconds(),
				Overlap: s.Overlap.String(), CatchUp: max(s.CatchUp, 0), Paused: s.Paused, Next: instant(s.Next), Last: instant(s.Last),
				SkippedOverlap: s.Skipped.Overlap, SkippedMissed: s.Skipped.Missed, SkippedPaused: s.Skipped.Paused,
			}
			if s.Broken != nil {
				out.Broken = s.Broken.Error()
			}
			if err := printJSON(out); err != nil {
				return err
			}
			continue
		}
		state := "running"
		switch {
		case s.Broken != nil:
			state = s.Broken.Error()
		case s.Paused:
			state = "paused"
		}
		when := s.Cron
		if s.Every > 0 {
			if when = "every " + brief(s.Every); s.Offset > 0 {
				when += " + " + brief(s.Offset)
			}
		}
		g.add(s.Name, when, cmp.Or(s.Zone, "UTC"), at(s.Next), at(s.Last), skippedOf(s.Skipped), state)
	}
	if !a.json && len(all) > 0 {
		g.print()
	}
	if !a.json {
		fmt.Fprintln(os.Stderr, plural(len(all), "schedule"))
	}
	return nil
}

// skippedOf says how many instants have no message, and why.
func skippedOf(s schedule.Skipped) string {
	var parts []string
	for _, one := range []struct {
		n   int64
		why string
	}{{s.Overlap, "overlap"}, {s.Missed, "missed"}, {s.Paused, "paused"}} {
		if one.n > 0 {
			parts = append(parts, humanize.Comma(one.n)+" "+one.why)
		}
	}
	return strings.Join(parts, ", ")
}

func (a *app) scheduleCommand() *cobra.Command {
	c := &cobra.Command{Use: "schedule", Short: "Add, change or steer a periodic message", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() }} // without it a wrong verb would be help, and no error
	c.AddCommand(
		a.scheduleSetCommand(),
		a.scheduleVerb("rm", "Delete a periodic message", "removed", (*schedule.Scheduler).Remove),
		a.scheduleVerb("pause", "Let its instants pass, until resume", "paused", (*schedule.Scheduler).Pause),
		a.scheduleVerb("resume", "End a pause", "resumed", (*schedule.Scheduler).Resume),
		a.scheduleRunCommand(), a.scheduleNextCommand(),
	)
	return c
}

// scheduleVerb is a command that does something to one entry.
func (a *app) scheduleVerb(verb, short, did string, work func(*schedule.Scheduler, context.Context, string) error) *cobra.Command {
	return &cobra.Command{
		Use:               verb + " QUEUE NAME",
		Short:             short,
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.completeQueue(),
		RunE: func(c *cobra.Command, args []string) error {
			s, err := a.scheduler(c.Context(), args[0], false)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(c.Context(), oneCall)
			defer cancel()
			if err := work(s, ctx, args[1]); err != nil {
				return scheduleFailure(err)
			}
			return a.sayScheduled(args[1], did)
		},
	}
}

func (a *app) sayScheduled(name, did string) error {
	if a.json {
		return printJSON(map[string]any{"name": name, did: true})
	}
	say("schedule %s %s", name, did)
	return nil
}

// scheduleFailure gives errors of schedules their exit codes.
func scheduleFailure(err error) error {
	switch {
	case errors.Is(err, schedule.ErrNoEntry):
		return fail(exitNotFound, "%v", err)
	case errors.Is(err, schedule.ErrBadEntry):
		return fail(exitUsage, "%v", err)
	}
	return err
}

type scheduleFlags struct {
	entry              schedule.Entry
	every, offset      durationFlag
	ttl, timeout, keep durationFlag
	headers            map[string]string
	retries            int
	skip, create       bool
}

func (a *app) scheduleSetCommand() *cobra.Command {
	var f scheduleFlags
	c := &cobra.Command{
		Use:   "set QUEUE NAME [PAYLOAD]",
		Short: "Add a periodic message, or change it",
		Long: `set adds an entry, or makes the one of this name another one: what is not said is as by default, not as it was. Without
PAYLOAD it is what is read from the input. The change takes effect at once.`,
		Example: `  delayqueue schedule set reports daily '{"of":"day"}' --cron "0 9 * * 1-5" --zone Europe/Berlin --skip
  delayqueue schedule set reports clean-up "" --every 15m`,
		Args:              cobra.RangeArgs(2, 3),
		ValidArgsFunction: a.completeQueue(),
		RunE:              func(c *cobra.Command, args []string) error { return a.setSchedule(c, args, &f) },
	}
	flags := c.Flags()
	flags.StringVar(&f.entry.Cron, "cron", "", "minute, hour, day of the month, month, day of the week")
	flags.StringVar(&f.entry.Zone, "zone", "", "in which the clocks show that (default UTC)")
	flags.Var(&f.every, "every", "at the multiples of it since 1970")
	flags.Var(&f.offset, "offset", "with --every: so much after each")
	flags.BoolVar(&f.skip, "skip", false, "send none while the last one lives")
	flags.IntVar(&f.entry.CatchUp, "catch-up", 1, "how many are sent of those that were missed, the latest")
	flags.StringToStringVar(&f.headers, "header", nil, "name=value, any number")
	flags.IntVar(&f.retries, "retries", 3, "failures that are followed by another delivery")
	flags.Var(&f.ttl, "ttl", "not sent, or garbage, if it could not be handed out so long after its instant")
	flags.Var(&f.timeout, "timeout", "a handler of it may run so long; 0: for any time")
	flags.Var(&f.keep, "keep", "once it is acked, it can be looked at so long, with its result")
	flags.BoolVar(&f.create, "create", false, "also for a queue that does not exist yet")
	return c
}

func (a *app) setSchedule(c *cobra.Command, args []string, f *scheduleFlags) error {
	if len(args) == 2 && onTerminal(os.Stdin) {
		return fail(exitUsage, "what shall be sent? Give a payload, or pipe it in")
	}
	e := f.entry
	e.Name, e.Every, e.Offset = args[1], time.Duration(f.every), time.Duration(f.offset)
	if f.skip {
		e.Overlap = schedule.Skip
	}
	if e.CatchUp == 0 {
		e.CatchUp = schedule.NoCatchUp
	}
	s, err := a.scheduler(c.Context(), args[0], f.create)
	if err != nil {
		return err
	}
	if len(args) == 3 {
		e.Payload = args[2]
	} else {
		text, err := io.ReadAll(a.in)
		if err != nil {
			return err
		}
		e.Payload = string(text)
	}
	e.Options = f.options(c)
	ctx, cancel := context.WithTimeout(c.Context(), oneCall)
	defer cancel()
	if err := s.Set(ctx, e); err != nil {
		return scheduleFailure(err)
	}
	next, err := s.Next(ctx, e.Name, 1)
	if err != nil || a.json || len(next) == 0 {
		return cmp.Or(err, a.sayScheduled(e.Name, "set"))
	}
	say("schedule %s set; next %s", e.Name, inZone(next[0]))
	return nil
}

func (f *scheduleFlags) options(c *cobra.Command) []delayqueue.MsgOption {
	options := []delayqueue.MsgOption{delayqueue.WithRetryCount(f.retries)}
	for name, option := range map[string]func() delayqueue.MsgOption{
		"ttl":     func() delayqueue.MsgOption { return delayqueue.WithMsgTTL(time.Duration(f.ttl)) },
		"timeout": func() delayqueue.MsgOption { return delayqueue.WithTimeout(time.Duration(f.timeout)) },
		"keep":    func() delayqueue.MsgOption { return delayqueue.WithRetention(time.Duration(f.keep)) },
	} {
		if c.Flags().Changed(name) {
			options = append(options, option())
		}
	}
	for name, value := range f.headers {
		options = append(options, delayqueue.WithHeader(name, value))
	}
	return options
}

func (a *app) scheduleRunCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "run QUEUE NAME",
		Short:             "Send the message of an entry now",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.completeQueue(),
		RunE: func(c *cobra.Command, args []string) error {
			s, err := a.scheduler(c.Context(), args[0], false)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(c.Context(), oneCall)
			defer cancel()
			info, err := s.RunNow(ctx, args[1])
			if err != nil {
				return scheduleFailure(err)
			}
			return a.sayInfo(info)
		},
	}
}

func (a *app) scheduleNextCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "next QUEUE NAME",
		Short:             "Print the next five instants of an entry, in its zone",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.completeQueue(),
		RunE: func(c *cobra.Command, args []string) error {
			m, err := a.monitor(c.Context(), args[0])
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(c.Context(), oneCall)
			defer cancel()
			next, err := schedule.Next(ctx, m, args[1], 5)
			if err != nil {
				return scheduleFailure(err)
			}
			for _, t := range next {
				if a.json {
					if err := printJSON(map[string]any{"at": t}); err != nil {
						return err
					}
					continue
				}
				say("%s", inZone(t))
			}
			return nil
		},
	}
}

// inZone is an instant as the clocks of its zone show it, and how far off it is.
func inZone(t time.Time) string {
	return fmt.Sprintf("%s (in %s)", t.Format("Mon 2006-01-02 15:04:05 -0700 MST"), brief(time.Until(t)))
}
