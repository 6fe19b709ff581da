package main

import (
	"context"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/spf13/cobra"
)

func (a *app) pauseCommand() *cobra.Command {
	var until whenFlag
	c := &cobra.Command{
		Use:   "pause QUEUE",
		Short: "Hand out nothing until resume",
		Long: `pause makes all consumers of a queue hand out nothing, within a second. Handlers that are running go on, and
sends are accepted. Who paused it and why is shown by stats.`,
		Example:           "  delayqueue pause orders --until 30m --reason 'card provider down'",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeQueue(),
		RunE: func(c *cobra.Command, args []string) error {
			if err := until.ahead("until", "delayqueue resume ends a pause", 0); err != nil {
				return err
			}
			return a.onQueue(c, args[0], func(ctx context.Context, m *delayqueue.Monitor) error {
				end, err := pause(ctx, m, &until)
				if err != nil {
					return err
				}
				return a.sayPaused(m.Name(), true, end)
			})
		},
	}
	c.Flags().Var(&until, "until", "go on by itself then, or after so long")
	return c
}

// pause pauses, for so long by the server's clock if that is what was said, and returns when the pause ends; zero: with resume.
func pause(ctx context.Context, m *delayqueue.Monitor, until *whenFlag) (end time.Time, err error) {
	if until.IsZero() {
		return end, m.Pause(ctx)
	}
	d, err := parseDuration(until.text)
	if err != nil {
		return until.Time, m.PauseUntil(ctx, until.Time)
	}
	if err := m.PauseFor(ctx, d); err != nil {
		return end, err
	}
	if c, err := m.Counts(ctx); err == nil && !c.PausedUntil.IsZero() {
		return c.PausedUntil, nil
	}
	return until.Time, nil // about then: it is paused, and what is said of it is no reason to fail
}

func (a *app) resumeCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "resume QUEUE",
		Short:             "End a pause",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.completeQueue(),
		RunE: func(c *cobra.Command, args []string) error {
			return a.onQueue(c, args[0], func(ctx context.Context, m *delayqueue.Monitor) error {
				if err := m.Resume(ctx); err != nil {
					return err
				}
				return a.sayPaused(m.Name(), false, time.Time{})
			})
		},
	}
}

func (a *app) sayPaused(queue string, paused bool, until time.Time) error {
	switch {
	case a.json:
		return printJSON(struct {
			Queue  string     `json:"queue"`
			Paused bool       `json:"paused"`
			Until  *time.Time `json:"paused_until,omitempty"`
		}{queue, paused, instant(until)})
	case !paused:
		say("queue %s goes on", queue)
	case until.IsZero():
		say("queue %s is paused until delayqueue resume %s", queue, queue)
	default:
		say("queue %s is paused until %s", queue, at(until))
	}
	return nil
}
