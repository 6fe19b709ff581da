// Import handles each row of a file as a message of its own, adds up what the rows give, and prints one report.
//
//	go run ./examples/import examples/import/sample.csv
//	REDIS_ADDR=127.0.0.1:6379 go run ./examples/import examples/import/sample.csv
//
// With a Redis of your own, kill it with kill -9 whenever you like. The same command goes on where it was, and each
// row is in the report once. Several of these commands at a time share the rows of one import, and each prints its
// report.
//
//	split    reads the file, and sends the report and then the rows, each once (WithSequence)
//	row      does the work of one row; its result is a part of a sum from the ack on (Then, Append)
//	sum      adds up 500 results; the sum is a part of the report from the ack on (Then, Append)
//	report   waits for the acks of all rows and sums (WithCountdown), or for the time limit
//
// The sample has a row that fails twice, a row that fails for ever, and one that nobody can read.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/examples/internal/connect"
)

// patience is how long a stop waits for the rows that are being handled.
const patience = 2 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends it at once
	slog.SetLogLoggerLevel(
		slog.LevelWarn) // a failure that is retried is no news, and would break the line of the progress
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the program. Its result is the exit code.
func run(ctx context.Context, args []string, out, errs io.Writer) int {
	flags := flag.NewFlagSet("import", flag.ContinueOnError)
	flags.SetOutput(errs)
	flags.Usage = func() {
		fmt.Fprintln(errs,
			"usage: import [flags] file\n\nThe first line of the file is ignored, the others are like A-1001,1250 (an id and "+
				"cents).")
		flags.PrintDefaults()
	}
	work := flags.Duration("work", 200*time.Millisecond, "how long the work of a row takes")
	limit := flags.Duration("limit", time.Hour, "after which time there is a report of what there is then")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	fail := func(code int, err error) int {
		fmt.Fprintln(errs, "import:", err)
		return code
	}
	if flags.NArg() != 1 || *work < 0 || *limit < time.Millisecond {
		return fail(2, errors.New("one file, -work not negative, and -limit at least 1ms; -h tells more"))
	}
	j := job{Path: flags.Arg(0), Until: time.Now().Add(*limit)}
	var rows []string
	var err error
	if j.Name, rows, err = load(j.Path); err != nil {
		return fail(1, err)
	}
	server, err := connect.Open()
	if err != nil {
		return fail(1, err)
	}
	defer server.Close()
	fmt.Fprintln(out, server.About)

	im := newImporter(server.Client, *work)
	im.queue.StartConsume()
	result, err := im.follow(ctx, j, len(rows), out)
	if err == nil {
		fmt.Fprint(out, result.Value)
	}
	stop, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err = errors.Join(err, im.queue.Shutdown(stop)) // after the time limit, rows may still be in hand
	switch {
	case ctx.Err() != nil && server.Embedded:
		fmt.Fprintln(out, "stopped, and what is left ends with the embedded Redis")
		return 1
	case ctx.Err() != nil:
		fmt.Fprintln(out, "stopped, and the same command goes on")
		return 1
	case err != nil:
		return fail(1, err)
	case result.State == delayqueue.StateGarbage:
		return fail(1, fmt.Errorf("no report: %s", result.Err))
	}
	return 0
}
