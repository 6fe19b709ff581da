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

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/schedule"
	"github.com/spf13/cobra"
)

type scheduleFlags struct {
	cron, zone    string
	every, offset durationFlag
	jitter        durationFlag
	begin, end    boundFlag
	messageFlags
	catchUp int
	skip    bool
}

func (a *app) scheduleSetCommand() *cobra.Command {
	var f scheduleFlags
	c := &cobra.Command{
		Use:   "set QUEUE NAME [PAYLOAD]",
		Short: "Add a periodic message, or change it",
		Long: `set adds an entry, or changes the entry of this name at once. Settings without a
flag, and the payload, stay as they were (delayqueue schedule show). The payload
of a new entry is read from the input if there is no PAYLOAD; "-" reads it for
any entry.`,
		Example: `  delayqueue schedule set reports daily '{"of":"day"}' \
    --cron "0 9 * * 1-5" --zone Europe/Berlin --skip
  delayqueue schedule set reports daily --cron "0 10 * * 1-5"
  delayqueue schedule set reports clean-up "" --every 15m`,
		Args: cobra.RangeArgs(2, 3),
		RunE: func(c *cobra.Command, args []string) error { return a.setSchedule(c, args, &f) },
	}
	flags := c.Flags()
	flags.StringVar(&f.cron, "cron", "", "minute, hour, day of the month, month, day of the week")
	flags.StringVar(&f.zone, "zone", "", "time zone of --cron, such as Europe/Berlin (default UTC)")
	flags.Var(&f.every, "every", "at the multiples of this time since 1970")
	flags.Var(&f.offset, "offset", "with --every: later than each multiple by this time")
	flags.Var(&f.jitter, "jitter", "later by up to this time; the name of the entry decides by how much")
	flags.Var(&f.begin, "begin", "no message before this time; none: no bound")
	flags.Var(&f.end, "end", "no message after this time; none: no bound")
	flags.BoolVar(&f.skip, "skip", false, "send no message while the last one lives")
	flags.IntVar(&f.catchUp, "catch-up", 1, "how many missed messages are sent, the latest ones")
	f.messageFlags.flags(flags, "name=value, any number; name= removes the header",
		"not sent, or garbage, if not handed out within this time after its instant",
		"message key: the ack of each message counts for the message that has this key and a countdown; empty: for none")
	return c
}

func (a *app) setSchedule(c *cobra.Command, args []string, f *scheduleFlags) error {
	s, err := a.scheduler(c.Context(), args[0], f.create)
	if err != nil {
		return err
	}
	look, cancel := context.WithTimeout(c.Context(), oneCall)
	_, err = schedule.Get(look, a.newMonitor(args[0]).Monitor(), args[1])
	cancel()
	isNew := errors.Is(err, schedule.ErrNoEntry)
	payload, said, err := a.schedulePayload(args, isNew) // reading the input may take any time
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
	did := "set"
	if err == nil && !a.json && len(next) > 0 {
		did += "; next " + inZone(next[0])
	}
	a.sayScheduled(args[1], did)
	return err
}

// schedulePayload is the payload, and whether one is given.
func (a *app) schedulePayload(args []string, isNew bool) (payload string, said bool, err error) {
	switch {
	case len(args) == 3 && args[2] != "-":
		return args[2], true, nil
	case len(args) == 2 && !isNew:
		return "", false, nil
	case onTerminal(os.Stdin):
		return "", false, fail(exitUsage, "no payload: give one, or pipe it in")
	}
	text, err := io.ReadAll(a.in)
	return string(text), true, err
}

// apply changes an entry as the flags say.
func (f *scheduleFlags) apply(c *cobra.Command, e *schedule.Entry, isNew bool) error {
	settings := delayqueue.Describe(e.Options...)
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
	set("lane", func() { settings.Lane, settings.LaneWidth = f.lane.name, f.lane.width })
	set("counts", func() { settings.Counts = f.counts })
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

// A shownSchedule is an entry with its message.
type shownSchedule struct {
	scheduleJSON
	Payload   string            `json:"payload"`
	Headers   map[string]string `json:"headers,omitempty"`
	Retries   *int              `json:"retries,omitempty"`
	TTL       float64           `json:"ttl_seconds,omitempty"`
	Timeout   *float64          `json:"timeout_seconds,omitempty"`
	Retention float64           `json:"keep_seconds,omitempty"`
	Lane      string            `json:"lane,omitempty"`
	LaneWidth int               `json:"lane_width,omitempty"`
}

func (a *app) scheduleShowCommand() *cobra.Command {
	return a.entryCommand("show", "Show an entry with its message",
		func(ctx context.Context, _ *schedule.Scheduler, m *delayqueue.Monitor, name string) error {
			s, err := schedule.Get(ctx, m, name)
			if err != nil {
				return err
			}
			settings := delayqueue.Describe(s.Options...)
			if a.json {
				printJSON(shownOf(s, &settings))
			} else {
				printSchedule(s, &settings)
			}
			return nil
		})
}

func shownOf(s *schedule.Status, of *delayqueue.Description) shownSchedule {
	out := shownSchedule{scheduleJSON: scheduleJSONOf(s), Payload: s.Payload, Headers: of.Headers, Retries: of.Retries,
		TTL: of.TTL.Seconds(), Retention: of.Retention.Seconds(), Lane: of.Lane, LaneWidth: of.LaneWidth}
	if of.Timeout != nil {
		timeout := of.Timeout.Seconds()
		out.Timeout = &timeout
	}
	return out
}

func printSchedule(s *schedule.Status, of *delayqueue.Description) {
	t := newGrid()
	row := t.fact
	row("schedule", s.Name)
	row("state", stateOf(s))
	row("when", whenOf(&s.Entry))
	row("zone", cmp.Or(s.Zone, "UTC"))
	row("begin", at(s.Begin))
	row("end", at(s.End))
	row("next", nextOf(s))
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
	row("counts for", of.Counts)
	row("lane", laneOf(of.Lane, of.LaneWidth))
	for _, name := range slices.Sorted(maps.Keys(of.Headers)) {
		row("header "+name, of.Headers[name])
	}
	row("payload", s.Payload)
	t.print()
}
