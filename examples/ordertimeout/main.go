// Ordertimeout is an HTTP service that closes orders which nobody has paid in time.
//
// It shows a delayed message that is taken back: an order sends itself a message, keyed by
// its number, and paying intercepts that message by its key, in whichever process. It also
// shows a typed payload, what an at-least-once queue asks of a handler, and a graceful stop. Two processes
// that have one Redis serve the same orders.
//
//	go run ./examples/ordertimeout
//	REDIS_ADDR=127.0.0.1:6379 go run ./examples/ordertimeout -addr 127.0.0.1:8081
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-delayqueue/delayqueue/examples/internal/connect"
)

// patience is how long a stop waits for what is under way, HTTP and queue each.
const patience = 10 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends it at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the program; it serves until ctx ends. Its result is the exit code.
func run(ctx context.Context, args []string, out, errs io.Writer) int {
	flags := flag.NewFlagSet("ordertimeout", flag.ContinueOnError)
	flags.SetOutput(errs)
	addr := flags.String("addr", "127.0.0.1:8080", "where to listen")
	timeout := flags.Duration("timeout", 15*time.Second, "how long an order may stay unpaid")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	fail := func(code int, err error) int {
		fmt.Fprintln(errs, "ordertimeout:", err)
		return code
	}
	if *timeout <= 0 || *timeout > maxTimeout {
		return fail(2, fmt.Errorf("-timeout %v: it must be positive and at most %v", *timeout, maxTimeout))
	}
	redis, err := connect.Open()
	if err != nil {
		return fail(1, err)
	}
	defer redis.Close()
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		return fail(1, err)
	}
	fmt.Fprintln(out, redis.About)
	fmt.Fprintf(out, `listening on %[1]s, an order that is not paid within %[2]v is closed; try

  curl -d '{"item":"tea"}' http://%[1]s/orders

and, with the id that this answers in place of 1,

  curl -X POST http://%[1]s/orders/1/pay
  curl http://%[1]s/orders/1

`, listener.Addr(), *timeout)

	say := log.New(out, "", log.Ltime|log.Lmicroseconds)
	s := newService(redis.Client, *timeout, say)
	server := &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: 5 * time.Second,
		ErrorLog:          log.New(errs, "ordertimeout: ", 0),
	}
	s.queue.StartConsume()
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()

	code := 0
	select {
	case <-ctx.Done():
		say.Print("stopping: no more requests")
	case err := <-served:
		code = fail(1, err)
	}
	// First the requests, then the queue: a request may still send or take back.
	if err := within(server.Shutdown); err != nil {
		code = fail(1, fmt.Errorf("requests were cut off: %w", err))
	}
	say.Print("stopping: no more timeouts, those that are due later stay in Redis")
	if err := within(s.queue.Shutdown); err != nil {
		code = fail(1, err)
	}
	say.Print("stopped")
	return code
}

func within(stop func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return stop(ctx)
}
