// Lanes shows what messages of one queue do that have lanes (WithLane):
//
//   - The messages of a customer are handled one after the other. One of bob's fails twice, and those behind it wait
//     for its retries.
//   - The tenant acme has a long backlog, of which five messages at a time are handled.
//   - Messages without a lane come all the while, and none of these delays them.
//
// Try it:
//
//	go run ./examples/lanes
//	go run ./examples/lanes -backlog 2000
//	REDIS_ADDR=127.0.0.1:6379 go run ./examples/lanes
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

	"github.com/go-delayqueue/delayqueue/examples/internal/connect"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)           // a second Ctrl-C ends it at once
	slog.SetLogLoggerLevel(slog.LevelWarn) // a failure that is retried is no news, and would break the drawing
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the program. Its result is the exit code.
func run(ctx context.Context, args []string, out, errs io.Writer) int {
	flags := flag.NewFlagSet("lanes", flag.ContinueOnError)
	flags.SetOutput(errs)
	work := flags.Duration("work", 100*time.Millisecond, "how long the work of a message takes")
	backlog := flags.Int("backlog", 300, "messages of the tenant acme")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	if flags.NArg() > 0 || *work < time.Millisecond || *backlog < 1 {
		fmt.Fprintln(errs, "lanes: no arguments, -work at least 1ms, and -backlog at least 1; -h tells more")
		return 2
	}
	server, err := connect.Open()
	if err != nil {
		fmt.Fprintln(errs, "lanes:", err)
		return 1
	}
	defer server.Close()
	fmt.Fprintln(out, server.About)
	s := newScene(server.Client, *work, *backlog)
	if err := s.play(ctx, out); err != nil {
		fmt.Fprintln(errs, "lanes:", err)
		return 1
	}
	return 0
}

// play sends all messages, draws the scene until they are handled or ctx ends, and says how it was.
func (s *scene) play(ctx context.Context, out io.Writer) error {
	if err := s.clear(); err != nil { // what a run that was killed has left
		return err
	}
	if err := s.send(ctx); err != nil {
		return err
	}
	done := s.queue.StartConsume()
	others, stop := context.WithCancel(ctx)
	sent := make(chan error, 1)
	go func() { sent <- s.sendOthers(others) }()
	d := newDrawing(out, s)
	for !s.over() && d.wait(ctx) {
		d.draw()
	}
	stop()
	err := <-sent
	s.queue.StopConsume() // handlers finish
	<-done
	d.draw()
	if ctx.Err() == nil {
		fmt.Fprint(out, s.summary())
	}
	return errors.Join(err, s.clear())
}
