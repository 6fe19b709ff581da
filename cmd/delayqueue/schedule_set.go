package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/schedule"
)

type scheduleFlags struct {
	cron, zone         string
	every, offset      durationFlag
	jitter             durationFlag
	begin, end         boundFlag
	ttl, timeout, keep durationFlag
	headers            map[string]string
	retries, catchUp   int
	skip, create       bool
}

func (a *app) scheduleSetCommand() *cobra.Command {
	var f scheduleFlags
	c := &cobra.Command{
		Use:   "set QUEUE NAME [PAYLOAD]",
		Short: "Add a periodic message, or change it",
		Long: `set adds an entry, or changes the one of this name: what is not said stays as it was (delayqueue schedule show says how), and so does
the payload. That of a new entry is read from the input if there is no PAYLOAD, and with - that of any. The change takes effect at once.`,
		Example: `  delayqueue schedule set reports daily '{"of":"day"}' --cron "0 9 * * 1-5" --zone Europe/Berlin --skip
  delayqueue schedule set reports daily --cron "0 10 * * 1-5"
  delayqueue schedule set reports clean-up "" --every 15m`,
		Args:              cobra.RangeArgs(2, 3),
		ValidArgsFunction: a.completeQueue(),
		RunE:              func(c *cobra.Command, args []string) error { return a.setSchedule(c, args, &f) },
	}
	flags := c.Flags()
	flags.StringVar(&f.cron, "cron", "", "minute, hour, day of the month, month, day of the week")
	flags.StringVar(&f.zone, "zone", "", "in which the clocks show that (default UTC)")
	flags.Var(&f.every, "every", "at the multiples of it since 1970")
	flags.Var(&f.offset, "offset", "with --every: so much after each")
	flags.Var(&f.jitter, "jitter", "later by up to so much, always the same time, which follows from the name")
	flags.Var(&f.begin, "begin", "no message before; none: no such bound")
	flags.Var(&f.end, "end", "no message after; none: no such bound")
	flags.BoolVar(&f.skip, "skip", false, "send none while the last one lives")
	flags.IntVar(&f.catchUp, "catch-up", 1, "how many are sent of those that were missed, the latest")
	flags.StringToStringVar(&f.headers, "header", nil, "name=value, any number; without a value: no such header")
	flags.IntVar(&f.retries, "retries", 3, "failures that are followed by another delivery")
	flags.Var(&f.ttl, "ttl", "not sent, or garbage, if it could not be handed out so long after its instant")
	flags.Var(&f.timeout, "timeout", "a handler of it may run so long; 0: for any time")
	flags.Var(&f.keep, "keep", "once it is acked, it can be looked at so long, with its result")
	flags.BoolVar(&f.create, "create", false, "also for a queue that does not exist yet")
	return c
}

func (a *app) setSchedule(c *cobra.Command, args []string, f *scheduleFlags) error {
	s, err := a.scheduler(c.Context(), args[0], f.create)
	if err != nil {
		return err
	}
	look, cancel := context.WithTimeout(c.Context(), oneCall)
	_, err = schedule.Get(look, a.newMonitor(args[0]), args[1])
	cancel()
	isNew := errors.Is(err, schedule.ErrNoEntry)
	payload, said, err := a.schedulePayload(args, isNew) // which may take as long as who writes it
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Context(), oneCall)
	defer cancel()
	with := func(e *schedule.Entry) error {
		if said {
			e.Payload = payload
		}
		return f.apply(c, e, isNew)
	}
	if isNew {
		e := schedule.Entry{Name: args[1]}
		if err = with(&e); err == nil {
			err = s.Set(ctx, e)
		}
	} else {
		err = s.Change(ctx, args[1], with)
	}
	if err != nil {
		return scheduleFailure(err)
	}
	next, err := s.Next(ctx, args[1], 1)
	if err != nil || a.json || len(next) == 0 {
		return cmp.Or(err, a.sayScheduled(args[1], "set"))
	}
	say("schedule %s set; next %s", args[1], inZone(next[0]))
	return nil
}

// schedulePayload is what shall be sent, and whether that is said.
func (a *app) schedulePayload(args []string, isNew bool) (payload string, said bool, err error) {
	switch {
	case len(args) == 3 && args[2] != "-":
		return args[2], true, nil
	case len(args) == 2 && !isNew:
		return "", false, nil
	case onTerminal(os.Stdin):
		return "", false, fail(exitUsage, "what shall be sent? Give a payload, or pipe it in")
	}
	text, err := io.ReadAll(a.in)
	return string(text), true, err
}

// apply makes an entry what the flags say; what they do not say stays.
func (f *scheduleFlags) apply(c *cobra.Command, e *schedule.Entry, isNew bool) error {
	settings, err := delayqueue.SettingsOf(e.Options...)
	if err != nil {
		return err
	}
	set := func(flag string, to func()) {
		if c.Flags().Changed(flag) {
			to()
		}
	}
	set("cron", func() { e.Cron, e.Every, e.Offset = f.cron, 0, 0 })
	set("every", func() {
		e.Every, e.Cron = time.Duration(f.every), f.cron
		if e.Offset >= e.Every {
			e.Offset = 0
		}
	})
	set("offset", func() { e.Offset = time.Duration(f.offset) })
	set("zone", func() { e.Zone = f.zone })
	set("jitter", func() { e.Jitter = time.Duration(f.jitter) })
	set("begin", func() { e.Begin = f.begin.Time })
	set("end", func() { e.End = f.end.Time })
	set("skip", func() {
		if e.Overlap = schedule.Allow; f.skip {
			e.Overlap = schedule.Skip
		}
	})
	set("catch-up", func() {
		if e.CatchUp = f.catchUp; e.CatchUp == 0 {
			e.CatchUp = schedule.NoCatchUp
		}
	})
	if isNew || c.Flags().Changed("retries") {
		settings.Retries = &f.retries
	}
	set("ttl", func() { settings.TTL = time.Duration(f.ttl) })
	set("timeout", func() { timeout := time.Duration(f.timeout); settings.Timeout = &timeout })
	set("keep", func() { settings.Retention = time.Duration(f.keep) })
	settings.Headers = maps.Clone(settings.Headers)
	for name, value := range f.headers {
		if settings.Headers == nil {
			settings.Headers = map[string]string{}
		}
		if settings.Headers[name] = value; value == "" {
			delete(settings.Headers, name)
		}
	}
	e.Options = settings.Options()
	return nil
}

// A shownSchedule is an entry with what it sends.
type shownSchedule struct {
	scheduleJSON
	Payload   string            `json:"payload"`
	Headers   map[string]string `json:"headers,omitempty"`
	Retries   *int              `json:"retries,omitempty"`
	TTL       float64           `json:"ttl_seconds,omitempty"`
	Timeout   *float64          `json:"timeout_seconds,omitempty"`
	Retention float64           `json:"keep_seconds,omitempty"`
}

func (a *app) scheduleShowCommand() *cobra.Command {
	var raw bool
	c := &cobra.Command{
		Use:               "show QUEUE NAME",
		Short:             "Show an entry with what it sends",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.completeQueue(),
		RunE: func(c *cobra.Command, args []string) error {
			s, err := lookAt(a, c, args[0], func(ctx context.Context, m *delayqueue.Monitor) (*schedule.Status, error) {
				return schedule.Get(ctx, m, args[1])
			})
			if err != nil {
				return err
			}
			settings, err := delayqueue.SettingsOf(s.Options...)
			switch {
			case err != nil:
				return err
			case raw:
				_, err = os.Stdout.WriteString(s.Payload)
				return err
			case a.json:
				return printJSON(shownOf(s, &settings))
			}
			printSchedule(s, &settings)
			return nil
		},
	}
	c.Flags().BoolVar(&raw, "raw", false, "print the payload alone, as it is")
	return c
}

func shownOf(s *schedule.Status, of *delayqueue.MessageSettings) shownSchedule {
	out := shownSchedule{scheduleJSON: scheduleJSONOf(s), Payload: s.Payload, Headers: of.Headers, Retries: of.Retries,
		TTL: of.TTL.Seconds(), Retention: of.Retention.Seconds()}
	if of.Timeout != nil {
		timeout := of.Timeout.Seconds()
		out.Timeout = &timeout
	}
	return out
}

func printSchedule(s *schedule.Status, of *delayqueue.MessageSettings) {
	t := newGrid()
	row := func(name string, value any) {
		if value != "" && value != painted("") {
			t.add(paint(faint, name), value)
		}
	}
	row("schedule", s.Name)
	row("state", stateOf(s))
	row("when", whenOf(&s.Entry))
	row("zone", cmp.Or(s.Zone, "UTC"))
	row("begin", at(s.Begin))
	row("end", at(s.End))
	row("next", at(s.Next))
	row("last", at(s.Last))
	row("skipped", skippedOf(s))
	row("overlap", s.Overlap.String())
	row("catch up", fmt.Sprint(max(s.CatchUp, 0)))
	row("changed", at(s.Changed))
	row("by", s.ChangedBy)
	row("reason", s.ChangeReason)
	row("program", s.Program)
	if of.Retries != nil {
		row("retries", fmt.Sprint(*of.Retries))
	}
	if of.TTL > 0 {
		row("ttl", brief(of.TTL))
	}
	if of.Timeout != nil {
		row("timeout", brief(*of.Timeout))
	}
	if of.Retention > 0 {
		row("kept for", brief(of.Retention))
	}
	for _, name := range slices.Sorted(maps.Keys(of.Headers)) {
		row("header "+name, of.Headers[name])
	}
	row("payload", s.Payload)
	t.print()
}
