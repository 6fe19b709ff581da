package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"
)

func (a *app) eventsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "events QUEUE",
		Short: "Follow what happens to messages, until interrupted",
		Long: `events prints what happens to the messages of a queue from now on, until it is
interrupted. It hears processes that called EnableReport, and the acts of people
by this command and the page, with their names. Redis keeps no events: after the
connection was lost, a line says that there is a gap.`,
		Args: cobra.ExactArgs(1),
		RunE: a.onMonitor(func(c *cobra.Command, m *ops.Queue, args []string) error {
			heard := make(chan delayqueue.Event)
			sub, err := m.Monitor().ListenEvent(c.Context(), func(e delayqueue.Event) {
				select {
				case heard <- e:
				case <-c.Context().Done():
				}
			})
			if err != nil {
				return err
			}
			defer sub.Stop()
			if !a.json && onTerminal(os.Stderr) {
				fmt.Fprintf(os.Stderr, "listening to queue %s; Ctrl-C ends\n", printable(m.Name()))
			}
			for unsaid == nil {
				select {
				case <-c.Context().Done():
					return nil // interrupted, which is the ordinary end
				case e := <-heard:
					a.printEvent(e)
				}
			}
			return nil
		}),
	}
}

type eventJSON struct {
	Event   string    `json:"event"`
	Code    int       `json:"code"`
	Time    time.Time `json:"time"`
	Count   int       `json:"count"`
	IDs     []string  `json:"ids,omitempty"`
	Dropped int64     `json:"dropped,omitempty"`
	By      string    `json:"by,omitempty"`
}

// idsShown is how many ids of one event a line shows.
const idsShown = 3

func (a *app) printEvent(e delayqueue.Event) {
	if a.json {
		printJSON(eventJSON{e.Code.String(), int(e.Code), utc(e.Time), e.Count, e.IDs, e.Dropped, e.By})
		return
	}
	if e.Dropped > 0 {
		say("%s", paint(warn, plural(int(e.Dropped), "event")+" came too fast and were dropped"))
	}
	var colour text.Colors
	switch e.Code {
	case delayqueue.FinalFailedEvent, delayqueue.LostEvent, delayqueue.VanishedEvent, delayqueue.QueueDeletedEvent,
		delayqueue.RefusedEvent:
		colour = bad
	case delayqueue.GapEvent:
		say("%s  %s", clock(e.Time), paint(bad, "gap            cut off from Redis until now; events may have been missed"))
		return
	}
	ids := strings.Join(e.IDs[:min(len(e.IDs), idsShown)], " ")
	if len(e.IDs) > idsShown {
		ids += " …"
	}
	if e.By != "" {
		ids = strings.TrimSpace(ids + " by " + e.By)
	}
	count := "" // the event is about the queue
	if e.Count > 0 {
		count = fmt.Sprint(e.Count)
	}
	say("%s  %s  %5s  %s", clock(e.Time), paint(colour, fmt.Sprintf("%-13s", e.Code)), count, ids)
}
