// Priorities shows three queues that share eight workers: "critical" with weight 6, "normal" with 3, and "bulk" with 1,
// which is also never given more than six. Bulk starts with thousands of messages and takes what it may. Two seconds
// later normal gets many too, and after four critical: see how the workers move, and move back as each is done.
//
//	go run ./examples/priorities
//	go run ./examples/priorities -strict
//	REDIS_ADDR=127.0.0.1:6379 go run ./examples/priorities
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

const workers = 8

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends it at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the program. Its result is the exit code.
func run(ctx context.Context, args []string, out, errs io.Writer) int {
	flags := flag.NewFlagSet("priorities", flag.ContinueOnError)
	flags.SetOutput(errs)
	strict := flags.Bool("strict", false, "a queue is served only while none before it has anything due")
	length := flags.Duration("for", 10*time.Second, "how long to run")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	if flags.NArg() > 0 || *length <= 0 {
		fmt.Fprintln(errs, "priorities: no arguments, and -for more than 0; -h tells more")
		return 2
	}
	server, err := connect.Open()
	if err != nil {
		fmt.Fprintln(errs, "priorities:", err)
		return 1
	}
	defer server.Close()
	fmt.Fprintln(out, server.About)
	ctx, cancel := context.WithTimeout(ctx, *length)
	defer cancel()
	if err := show(ctx, newClasses(server.Client, *length), *strict, out); err != nil {
		fmt.Fprintln(errs, "priorities:", err)
		return 1
	}
	return 0
}

// show runs the pool until ctx ends, and draws it.
func show(ctx context.Context, classes []*class, strict bool, out io.Writer) error {
	var shares []delayqueue.Share
	for _, c := range classes {
		shares = append(shares, delayqueue.Share{Queue: c.queue, Weight: c.weight, AtMost: c.atMost})
	}
	pool := delayqueue.NewPool(workers, shares...)
	if strict {
		pool.Strict()
	}
	done := pool.StartConsume()
	loaded := make(chan error, 1)
	go func() { loaded <- load(ctx, classes) }()

	d := newDrawing(out, classes)
	tick := time.NewTicker(d.every)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
			d.draw()
		}
	}
	pool.StopConsume() // handlers finish; what none has started stays in its queue
	<-done
	d.draw()
	err := <-loaded
	for _, c := range classes {
		err = errors.Join(err, c.clear())
	}
	return err
}
