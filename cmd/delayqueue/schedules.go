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

// scheduler returns the scheduler of a queue. If there is no such queue, create says whether that is an error.
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
		Long: `schedules lists the schedules of a queue with their next instants. SKIPPED
counts the instants without a message: the last message still lived (overlap),
nobody ran the schedules in time (missed), or a pause. A process of yours must
run the schedules (Run of the package schedule). STATE says which schedules are
not sent and why, and which are overdue.`,
		Args: cobra.ExactArgs(1),
		RunE: a.onSchedules(func(ctx context.Context, _ *schedule.Scheduler, m *delayqueue.Monitor, _ []string) error {
			all, err := schedule.List(ctx, m)
			if err != nil {
				return err
			}
			a.scheduleTable(all).print()
			if a.json {
				return nil
			}
			fmt.Fprintln(os.Stderr, plural(len(all), "schedule"))
			for i := range all {
				if errors.Is(all[i].Trouble, schedule.ErrMovedToEnd) {
					fmt.Fprintln(os.Stderr, printable(a.notAnew(m.Name(), all[i].Name)))
				}
			}
			return nil
		}),
	}
}

// onSchedules is the RunE of a command that makes one call for the schedules of a queue.
func (a *app) onSchedules(
	run func(ctx context.Context, s *schedule.Scheduler, m *delayqueue.Monitor, args []string) error) runE {
	return func(c *cobra.Command, args []string) error {
		s, err := a.scheduler(c.Context(), args[0], false)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(c.Context(), oneCall)
		defer cancel()
		return scheduleFailure(run(ctx, s, a.newMonitor(args[0]).Monitor(), args))
	}
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
	Counts         string     `json:"counts,omitempty"`
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
		Name: s.Name, Cron: s.Cron, Zone: s.Zone, Every: s.Every.Seconds(), Offset: s.Offset.Seconds(),
		Jitter: s.Jitter.Seconds(),
		Begin:  instant(s.Begin), End: instant(s.End), Overlap: s.Overlap.String(), CatchUp: max(s.CatchUp, 0),
		Paused: s.Paused,
		Next:   instant(s.Next), Last: instant(s.Last), Overdue: instant(s.Overdue), Looked: instant(s.Looked),
		SkippedOverlap: s.Skipped.Overlap, SkippedMissed: s.Skipped.Missed, SkippedPaused: s.Skipped.Paused,
		Changed: instant(s.Changed), ChangedBy: s.ChangedBy, ChangeReason: s.ChangeReason, Program: s.Program,
		Counts: delayqueue.Describe(s.Options...).Counts,
	}
	if s.Trouble != nil {
		out.Trouble = s.Trouble.Error()
	}
	if s.Broken != nil {
		out.Broken = s.Broken.Error()
	}
	return out
}

func (a *app) scheduleTable(all []schedule.Status) *grid {
	t := a.grid("schedule", "when", "zone", "next", "last", "skipped", "state", "counts for").sentences(7)
	for i := range all {
		s := &all[i]
		out := scheduleJSONOf(s)
		t.row(out, s.Name, whenOf(&s.Entry), cmp.Or(s.Zone, "UTC"), nextOf(s), moment{s.Last}, skippedOf(s), stateOf(s),
			out.Counts)
	}
	return t
}

// nextOf is the next instant, unless the entry is overdue: that instant would read as if it were sent then.
func nextOf(s *schedule.Status) any {
	switch {
	case !s.Overdue.IsZero():
		return paint(warn, "overdue for "+brief(time.Since(s.Overdue)))
	case s.Next.IsZero():
		return ""
	}
	return moment{s.Next}
}

// notAnew says what to do about a schedule whose sequence was passed to its end.
func (a *app) notAnew(queue, entry string) string {
	return a.anew(fmt.Sprintf("%s does not begin anew by itself (the journal may say who moved its sequence):", entry),
		queue, entry)
}

// whenOf is the rule of an entry in words, without its zone.
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

// stateOf says whether an entry is sent, and if not, why.
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
		least bool // of a cron the count ends at 1,000
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
		RunE: func(c *cobra.Command, _ []string) error {
			return c.Help()
		}} // without RunE, a wrong verb would print the help and be no error
	c.AddCommand(
		a.scheduleSetCommand(),
		a.scheduleVerb("rm", "Delete a periodic message", "removed", (*schedule.Scheduler).Remove),
		a.scheduleVerb("pause", "Let the instants of a schedule pass without messages, until resume", "paused",
			(*schedule.Scheduler).Pause),
		a.scheduleVerb("resume", "End a pause", "resumed", (*schedule.Scheduler).Resume),
		a.scheduleRunCommand(), a.scheduleNextCommand(), a.scheduleShowCommand(),
	)
	return c
}

// scheduleVerb is a command that does something to one entry.
func (a *app) scheduleVerb(verb, short, did string,
	work func(*schedule.Scheduler, context.Context, string) error) *cobra.Command {
	return a.entryCommand(verb, short,
		func(ctx context.Context, s *schedule.Scheduler, _ *delayqueue.Monitor, name string) error {
			err := work(s, ctx, name)
			if err == nil {
				a.sayScheduled(name, did)
			}
			return err
		})
}

// entryCommand is a command about one entry.
func (a *app) entryCommand(verb, short string,
	work func(context.Context, *schedule.Scheduler, *delayqueue.Monitor, string) error,
) *cobra.Command {
	return &cobra.Command{
		Use:   verb + " QUEUE NAME",
		Short: short,
		Args:  cobra.ExactArgs(2),
		RunE: a.onSchedules(func(ctx context.Context, s *schedule.Scheduler, m *delayqueue.Monitor, args []string) error {
			return work(ctx, s, m, args[1])
		}),
	}
}

func (a *app) sayScheduled(name, did string) {
	a.say(map[string]any{"name": name, did: true}, "schedule %s %s", name, did)
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
	return a.entryCommand("run", "Send the message of an entry now",
		func(ctx context.Context, s *schedule.Scheduler, _ *delayqueue.Monitor, name string) error {
			info, err := s.RunNow(ctx, name)
			if err == nil {
				a.sayInfo(info)
			}
			return err
		})
}

func (a *app) scheduleNextCommand() *cobra.Command {
	return a.entryCommand("next", "Print the next five instants of an entry, and why nothing is sent",
		func(ctx context.Context, _ *schedule.Scheduler, m *delayqueue.Monitor, name string) error {
			s, err := schedule.Get(ctx, m, name)
			if err != nil {
				return err
			}
			if s.Reason() != "" {
				fmt.Fprintln(os.Stderr, wrapped(fmt.Sprintf("%s: %s", printable(name), stateOf(s))))
			}
			next, err := schedule.Next(ctx, m, name, 5)
			for _, t := range next {
				a.say(map[string]any{"at": t}, "%s", inZone(t))
			}
			return err
		})
}

// inZone is an instant in its zone, with its distance from now.
func inZone(t time.Time) string {
	return fmt.Sprintf("%s (in %s)", t.Format("Mon 2006-01-02 15:04:05 -0700 MST"), brief(time.Until(t)))
}
