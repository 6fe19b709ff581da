package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	s := schedule.New(delayqueue.NewPublisher(name, a.cli, delayqueue.UseCustomPrefix(a.prefix)))
	return s.WithLogger(slog.New(slog.DiscardHandler)).WithOperator(a.operator).WithReason(a.reason), nil
}

func (a *app) schedulesCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schedules QUEUE",
		Short: "Show periodic messages",
		Long: `schedules lists the entries of a queue that send a message again and again, with their next instants, and how many instants have no
message, and why: the last message lived (overlap), nobody ran them in time (missed), a pause. Some process must run
them: schedule.Run of the library. The last column says which are not sent, and why, and which are overdue.`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeQueue(),
		RunE: func(c *cobra.Command, args []string) error {
			all, err := lookAt(a, c, args[0], schedule.List)
			if err != nil {
				return err
			}
			return a.saySchedules(all)
		},
	}
}

// lookAt asks something of the schedules of a queue.
func lookAt[T any](a *app, c *cobra.Command, queue string, look func(context.Context, *delayqueue.Monitor) (T, error)) (got T, err error) {
	m, err := a.monitor(c.Context(), queue)
	if err != nil {
		return got, err
	}
	ctx, cancel := context.WithTimeout(c.Context(), oneCall)
	defer cancel()
	got, err = look(ctx, m)
	return got, scheduleFailure(err)
}

type scheduleJSON struct {
	Name           string     `json:"name"`
	Cron           string     `json:"cron,omitempty"`
	Zone           string     `json:"zone,omitempty"`
	Every          float64    `json:"every_seconds,omitempty"`
	Offset         float64    `json:"offset_seconds,omitempty"`
	Jitter         float64    `json:"jitter_seconds,omitempty"`
	Begin          *time.Time `json:"begin,omitempty"`
	End            *time.Time `json:"end,omitempty"`
	Overlap        string     `json:"overlap"`
	CatchUp        int        `json:"catch_up"`
	Paused         bool       `json:"paused"`
	Next           *time.Time `json:"next,omitempty"`
	Last           *time.Time `json:"last,omitempty"`
	SkippedOverlap int64      `json:"skipped_overlap"`
	SkippedMissed  int64      `json:"skipped_missed"`
	SkippedPaused  int64      `json:"skipped_paused"`
	Trouble        string     `json:"trouble,omitempty"`
	Overdue        *time.Time `json:"overdue,omitempty"`
	Looked         *time.Time `json:"looked,omitempty"`
	Changed        *time.Time `json:"changed,omitempty"`
	ChangedBy      string     `json:"changed_by,omitempty"`
	ChangeReason   string     `json:"change_reason,omitempty"`
	Program        string     `json:"program,omitempty"`
	Broken         string     `json:"unreadable,omitempty"`
}

func scheduleJSONOf(s *schedule.Status) scheduleJSON {
	out := scheduleJSON{
		Name: s.Name, Cron: s.Cron, Zone: s.Zone, Every: s.Every.Seconds(), Offset: s.Offset.Seconds(), Jitter: s.Jitter.Seconds(),
		Begin: instant(s.Begin), End: instant(s.End), Overlap: s.Overlap.String(), CatchUp: max(s.CatchUp, 0), Paused: s.Paused,
		Next: instant(s.Next), Last: instant(s.Last), Overdue: instant(s.Overdue), Looked: instant(s.Looked),
		SkippedOverlap: s.Skipped.Overlap, SkippedMissed: s.Skipped.Missed, SkippedPaused: s.Skipped.Paused,
		Changed: instant(s.Changed), ChangedBy: s.ChangedBy, ChangeReason: s.ChangeReason, Program: s.Program,
	}
	if s.Trouble != nil {
		out.Trouble = s.Trouble.Error()
	}
	if s.Broken != nil {
		out.Broken = s.Broken.Error()
	}
	return out
}

func (a *app) saySchedules(all []schedule.Status) error {
	if a.json {
		for i := range all {
			if err := printJSON(scheduleJSONOf(&all[i])); err != nil {
				return err
			}
		}
		return nil
	}
	if len(all) > 0 {
		scheduleTable(all).print()
	}
	fmt.Fprintln(os.Stderr, plural(len(all), "schedule"))
	return nil
}

func scheduleTable(all []schedule.Status) *grid {
	g := newGrid("schedule", "when", "zone", "next", "last", "skipped", "state").cutLast(7)
	for i := range all {
		s := &all[i]
		g.add(s.Name, whenOf(&s.Entry), cmp.Or(s.Zone, "UTC"), moment{s.Next}, moment{s.Last}, skippedOf(s), stateOf(s))
	}
	return g
}

// whenOf says the instants of an entry, but for its zone.
func whenOf(e *schedule.Entry) string {
	text := e.Cron
	if e.Every > 0 {
		if text = "every " + brief(e.Every); e.Offset > 0 {
			text += " + " + brief(e.Offset)
		}
	}
	if e.Jitter > 0 {
		text += ", jitter " + brief(e.Jitter)
	}
	return text
}

// stateOf says whether an entry is sent, and what is wrong if it is not.
func stateOf(s *schedule.Status) any {
	overdue := ""
	if !s.Overdue.IsZero() {
		overdue = "; overdue since " + at(s.Overdue)
	}
	switch {
	case s.Trouble != nil:
		return paint(bad, s.Trouble.Error()+overdue)
	case s.Paused:
		return "paused"
	case overdue != "":
		return paint(warn, "running"+overdue)
	case s.Next.IsZero():
		return "over"
	}
	return "running"
}

// skippedOf says how many instants have no message, and why.
func skippedOf(s *schedule.Status) string {
	var parts []string
	for _, one := range []struct {
		n     int64
		why   string
		least bool // of a cron they are not counted any further
	}{{s.Skipped.Overlap, "overlap", false}, {s.Skipped.Missed, "missed", true}, {s.Skipped.Paused, "paused", true}} {
		if one.n == 0 {
			continue
		}
		number := humanize.Comma(one.n)
		if one.least && s.Cron != "" && one.n >= 1000 {
			number += "+"
		}
		parts = append(parts, number+" "+one.why)
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
		a.scheduleRunCommand(), a.scheduleNextCommand(), a.scheduleShowCommand(),
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
			next, err := lookAt(a, c, args[0], func(ctx context.Context, m *delayqueue.Monitor) ([]time.Time, error) {
				return schedule.Next(ctx, m, args[1], 5)
			})
			if err != nil {
				return err
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
