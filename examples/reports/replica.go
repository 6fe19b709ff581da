package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/schedule"
	"github.com/redis/go-redis/v9"
)

// entries are what every replica sets, and runs.
func entries(set *settings) []schedule.Entry {
	return []schedule.Entry{
		{Name: "sales", Cron: "* * * * *", Zone: "Europe/Berlin"},
		{Name: "stock", Every: set.every, CatchUp: 100},
		{Name: "export", Every: set.every, Overlap: schedule.Skip, CatchUp: schedule.NoCatchUp},
	}
}

// A replica makes reports.
type replica struct {
	set *settings
	say *log.Logger
}

// replicate is a replica until ctx ends.
func replicate(ctx context.Context, set *settings, cli *redis.Client, out io.Writer) {
	r := &replica{set, log.New(out, fmt.Sprintf("[%d] ", os.Getpid()), log.Ltime|log.Lmicroseconds|log.Lmsgprefix)}
	queue := delayqueue.NewQueue(queueName, cli, nil).WithHandler(r.handle).WithConcurrent(4)
	s := schedule.New(queue)
	events := s.ListenEvent(r.event)
	defer events.Stop()
	queue.StartConsume()
	_ = s.Run(ctx) // it returns when ctx has ended
	stop, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := queue.Shutdown(stop); err != nil {
		r.say.Print("left to another replica: ", err)
	}
	r.say.Print("stopped")
}

// handle makes a report. It may run more than once for a report, with the same id: a replica may die before it
// returns. So what it writes must bear being written twice, as a file named after entry and instant does.
func (r *replica) handle(ctx context.Context, msg *delayqueue.Message) error {
	entry, instant := schedule.Of(msg)
	took := 100 * time.Millisecond
	if entry == "export" {
		took = r.set.every * 5 / 2
	}
	select {
	case <-time.After(took):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	of := "now" // delayqueue schedule run
	if !instant.IsZero() {
		of = instant.Format(time.RFC3339)
	}
	again := ""
	if msg.Delivery > 1 {
		again = fmt.Sprintf(", delivery %d", msg.Delivery)
	}
	r.say.Printf("made    %-6s of %s  message %s%s", entry, of, msg.ID, again)
	return nil
}

// event tells of what is out of the ordinary.
func (r *replica) event(e schedule.Event) {
	of := e.Instant.Format(time.RFC3339)
	switch e.Code {
	case schedule.CaughtUpEvent:
		r.say.Printf("missed  %-6s of %s, sent %v late", e.Entry, of, e.Lateness.Round(time.Second))
	case schedule.SkippedEvent:
		r.say.Printf("skipped %-6s of %s: the last one is not made yet", e.Entry, of)
	}
}
