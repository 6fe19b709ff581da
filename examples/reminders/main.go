// Reminders reads lines such as "2s pay the rent" or "15:04 call the bank" from a file or
// standard input, and prints each when its time has come, with how late that was.
//
// It shows delays and clock times, a failure with its retry, several consumers on one
// queue, and a stop that loses nothing: with a Redis of your own, what still waits at
// Ctrl-C fires when the program runs again.
//
//	go run ./examples/reminders examples/reminders/sample.txt
//	echo "3s tea" | go run ./examples/reminders
//	REDIS_ADDR=127.0.0.1:6379 go run ./examples/reminders < /dev/null
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

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/examples/internal/connect"
)

const (
	queueName  = "example-reminders"
	retryDelay = time.Second // how soon a reminder that failed comes again
	// settleTime is how long a shared queue must have looked empty until the program
	// ends: another process's retry is in no count while it waits.
	settleTime = retryDelay + time.Second
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends it at once
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the program. Its result is the exit code: 1 if anything could not be scheduled.
func run(ctx context.Context, args []string, in io.Reader, out, errs io.Writer) int {
	flags := flag.NewFlagSet("reminders", flag.ContinueOnError)
	flags.SetOutput(errs)
	flags.Usage = func() {
		fmt.Fprint(errs, "usage: reminders [file]\n\nEach line of the file, or of standard input, is a time and a text:\n",
			forms)
	}
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	fail := func(code int, err error) int {
		fmt.Fprintln(errs, "reminders:", err)
		return code
	}
	switch flags.NArg() {
	case 0:
	case 1:
		file, err := os.Open(flags.Arg(0))
		if err != nil {
			return fail(1, err)
		}
		defer file.Close()
		in = file
	default:
		return fail(2, errors.New("one file; -h tells more"))
	}

	server, err := connect.Open()
	if err != nil {
		return fail(1, err)
	}
	defer server.Close()
	fmt.Fprintln(out, server.About)

	p := &program{out: out, errs: errs, embedded: server.Embedded, started: time.Now(), list: map[string]*entry{}}
	p.monitor = delayqueue.NewMonitor(queueName, server.Client)
	p.queue = delayqueue.NewQueue(queueName, server.Client, nil).
		WithHandler(p.fire).
		WithConcurrent(4).
		WithNackRedeliveryDelay(retryDelay)
	done := p.queue.StartConsume()
	p.work(ctx, in)
	// What no handler has started stays in the queue.
	p.queue.StopConsume()
	<-done
	return p.report(ctx.Err() != nil)
}
