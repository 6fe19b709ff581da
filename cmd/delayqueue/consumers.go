package main

import (
	"cmp"
	"fmt"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/go-delayqueue/delayqueue/internal/health"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/spf13/cobra"
)

type consumerJSON struct {
	ID          string         `json:"id"`
	Host        string         `json:"host"`
	PID         int            `json:"pid"`
	Since       time.Time      `json:"since"`
	Seen        time.Time      `json:"seen"`
	Concurrency int            `json:"concurrency"`
	Handling    []handlingJSON `json:"handling"`
	Kinds       []kindJSON     `json:"kinds,omitempty"`
}

type kindJSON struct {
	Header  string  `json:"header,omitempty"`
	Kind    string  `json:"kind"`
	Other   bool    `json:"other,omitempty"` // all kinds that have no row of their own
	Handled int64   `json:"handled"`
	Failed  int64   `json:"failed"`
	P50     float64 `json:"p50_seconds"`
	P95     float64 `json:"p95_seconds"`
}

type handlingJSON struct {
	ID  string  `json:"id"`
	For float64 `json:"for_seconds"`
}

// What a table has at most; --json shows all.
const (
	handlingShown = 5  // messages of each consumer
	kindsShown    = 20 // kinds
)

func (a *app) consumersCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "consumers QUEUE",
		Short: "Show the consumers of a queue, and the messages they are handling",
		Long: `consumers lists the consumers that are alive, the oldest first, with the time of
their last sign of life and the messages they are handling, the longest first. A
consumer gives a sign of life each second, an idle one in a process with many
queues every few seconds. A consumer that was killed counts as alive until its
lease has run out.

If the queue counts kinds (WithKindHeader), a table of them follows, the one
with the most failures first: how many messages of each kind these consumers
handled in this hour and the hour before, how many of them failed, and within
which time half of the handlers, and 95 of a hundred, ended (rounded up to a
power of two of a millisecond).`,
		Args: cobra.ExactArgs(1),
		RunE: a.onMonitor(func(c *cobra.Command, m *ops.Queue, args []string) error {
			alive, err := m.Consumers(c.Context())
			if !inPart(err) { // what the other shards say is shown
				return err
			}
			t := a.grid("host", "pid", "up", "heard", "busy", "handling", "for", "id").numbers(2, 3, 5, 7)
			for _, one := range alive {
				if a.json {
					out := consumerJSON{one.ID, one.Host, one.PID, utc(one.Since), utc(one.Seen), one.Concurrency,
						[]handlingJSON{}, nil}
					for _, h := range one.Handling {
						out.Handling = append(out.Handling, handlingJSON{h.ID, h.For.Seconds()})
					}
					for _, k := range one.Kinds {
						out.Kinds = append(out.Kinds, kindJSON{k.Header, k.Name, k.Other, k.Handled, k.Failed, k.P50.Seconds(),
							k.P95.Seconds()})
					}
					printJSON(out)
					continue
				}
				busy := fmt.Sprintf("%d/%d", len(one.Handling), one.Concurrency)
				colour := good
				if len(one.Handling) >= one.Concurrency {
					colour = warn
				}
				heard := brief(max(time.Since(one.Seen), 0)) + " ago"
				cells := []any{one.Host, fmt.Sprint(one.PID), brief(one.Seen.Sub(one.Since)), heard, paint(colour, busy), "", "",
					one.ID}
				for i, h := range one.Handling[:min(len(one.Handling), handlingShown)] {
					if i > 0 {
						t.add(cells...)
						cells = []any{"", "", "", "", "", "", "", ""}
					}
					cells[5], cells[6] = h.ID, brief(h.For)
				}
				t.add(cells...)
			}
			if len(alive) == 0 && err == nil && !a.json {
				say("nobody consumes queue %s", m.Name())
			}
			t.print()
			a.printKinds(ops.KindsOf(alive))
			return err
		}),
	}
}

// printKinds prints the table of kinds, if there are any.
func (a *app) printKinds(all []ops.Kind) {
	if a.json || len(all) == 0 {
		return
	}
	t := a.grid("kind", "handled", "failed", "failing", "half within", "95% within").numbers(2, 3, 4, 5, 6).cuts(1)
	var rest ops.Kind
	for i, k := range all {
		if k.Other || i >= kindsShown {
			rest.Handled += k.Handled
			rest.Failed += k.Failed
			continue
		}
		failing := health.Failing(ops.Tally{Acked: k.Handled - k.Failed, Failed: k.Failed})
		t.add(cmp.Or(k.Name, "(none)"), k.Handled, number(k.Failed, bad), failing, brief(k.P50), brief(k.P95))
	}
	say("")
	t.print()
	if rest.Handled > 0 {
		say("other kinds: %s handled, %s failed", humanize.Comma(rest.Handled), humanize.Comma(rest.Failed))
	}
}
