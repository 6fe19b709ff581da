// Reports is a service that makes three reports again and again, in two replicas of which each can be killed by hand.
//
//	cd examples/reports
//	go run .
//
// It starts an embedded Redis and two replicas, processes of their own, and says their ids. Each prints the reports
// that it makes. There is no leader. Then, in another terminal:
//
//	kill -9 ID      a replica dies: the other one goes on, and no instant is missing or there twice. What it was
//	                making comes again within eleven seconds, with the same message id. After -restart it is there again
//	kill -STOP ID   it freezes, until kill -CONT ID
//	kill -9 ID ID   both die. They have sent five seconds ahead, and what is five seconds old is not missed yet; of what
//	                is missed beyond that, the latest instants are caught up
//
// The entries, which are the same in each replica (entries in replica.go):
//
//	sales    each minute on the clock of Berlin: Cron and Zone
//	stock    every 5 s: Every; up to 100 instants that were missed are caught up
//	export   every 5 s, but one takes longer than that: Skip, so there is never a second one beside it
//
// With a Redis of your own the program is one replica: start it in as many terminals as you like, and change its
// entries from another one, with the command line of cmd/delayqueue:
//
//	REDIS_ADDR=127.0.0.1:6379 go run .
//	delayqueue schedules example-reports
//	delayqueue schedule pause example-reports stock
//
// The module is one of its own because schedule/ is.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
	_ "time/tzdata" // zones, where the machine has none

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/examples/internal/connect"
	"github.com/go-delayqueue/delayqueue/schedule"
)

const (
	queueName = "example-reports"
	replicas  = 2 // that the program starts, if it has a Redis embedded
)

// patience is how long a stop waits for the reports that are being made.
const patience = 5 * time.Second

// childFlag makes a replica end when its standard input does, which is how the process that started it ends it.
const childFlag = "child"

// settings are the flags.
type settings struct {
	every, restart time.Duration
	child          bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends it at once
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// read reads the flags.
func read(args []string, errs io.Writer) (set settings, err error) {
	flags := flag.NewFlagSet("reports", flag.ContinueOnError)
	flags.SetOutput(errs)
	flags.DurationVar(&set.every, "every", 5*time.Second, "how often stock and export are made, in whole seconds")
	flags.DurationVar(&set.restart, "restart", 20*time.Second, "how long after its death one of them is started again")
	flags.BoolVar(&set.child, childFlag, false, "be one of them: end when standard input does")
	if err := flags.Parse(args); err != nil {
		return set, err
	}
	if set.restart < 0 {
		err = fmt.Errorf("-restart %v: it may not be negative", set.restart)
		fmt.Fprintln(errs, "reports:", err)
	}
	return set, err
}

// run is the program; it goes on until ctx ends. Its result is the exit code.
func run(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) int {
	set, err := read(args, errs)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	fail := func(code int, err error) int {
		fmt.Fprintln(errs, "reports:", err)
		return code
	}
	server, err := connect.Open()
	if err != nil {
		return fail(1, err)
	}
	defer server.Close()
	s := schedule.New(delayqueue.NewPublisher(queueName, server.Client))
	for _, e := range entries(&set) {
		if err := s.Set(ctx, e); errors.Is(err, schedule.ErrBadEntry) {
			return fail(2, err)
		} else if err != nil {
			return fail(1, err)
		}
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if set.child {
		go func() {
			_, _ = io.Copy(io.Discard, in)
			stop()
		}()
	} else {
		fmt.Fprintln(out, server.About)
		if err := announce(ctx, s, out); err != nil {
			return fail(1, err)
		}
	}
	if server.Embedded {
		keep(ctx, &set, server.Client.Options().Addr, out, errs)
	} else {
		replicate(ctx, &set, server.Client, out)
	}
	return 0
}

// announce prints when reports will be made.
func announce(ctx context.Context, s *schedule.Scheduler, out io.Writer) error {
	all, err := s.List(ctx)
	for _, one := range all {
		fmt.Fprintf(out, "%-6s  next of %s\n", one.Name, one.Next.Format(time.RFC3339))
	}
	return err
}
