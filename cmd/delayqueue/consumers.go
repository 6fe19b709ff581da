package main

import (
	"fmt"
	"time"

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
}

type handlingJSON struct {
	ID  string  `json:"id"`
	For float64 `json:"for_seconds"`
}

// handlingShown is how many messages of each consumer a table has; --json shows all.
const handlingShown = 5

func (a *app) consumersCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "consumers QUEUE",
		Short: "Show the consumers of a queue, and the messages they are handling",
		Long: `consumers lists the consumers that are alive, the oldest first, with the time of
their last sign of life and the messages they are handling, the longest first. A
consumer gives a sign of life each second, an idle one in a process with many
queues every few seconds. A consumer that was killed counts as alive until its
lease has run out.`,
		Args: cobra.ExactArgs(1),
		RunE: a.onMonitor(func(c *cobra.Command, m *ops.Queue, args []string) error {
			alive, err := m.Consumers(c.Context())
			if !inPart(err) { // what the other shards say is shown
				return err
			}
			t := a.grid("host", "pid", "up", "heard", "busy", "handling", "for", "id").numbers(2, 3, 5, 7)
			for _, one := range alive {
				if a.json {
					out := consumerJSON{one.ID, one.Host, one.PID, utc(one.Since), utc(one.Seen), one.Concurrency, []handlingJSON{}}
					for _, h := range one.Handling {
						out.Handling = append(out.Handling, handlingJSON{h.ID, h.For.Seconds()})
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
			return err
		}),
	}
}
