// Orders is an HTTP service that keeps orders in a database, and closes those that nobody has paid in time. The order
// and the message that closes it are written in one transaction, by an outbox. So an order is closed or paid whatever
// is killed when, and one whose transaction was rolled back is never heard of.
//
//	go run ./examples/orders
//	DATABASE_URL=postgres://… REDIS_ADDR=127.0.0.1:6379 go run ./examples/orders -addr 127.0.0.1:8081
//
// It has a SQLite file and an embedded Redis if none is named. With -kill it shows that it loses nothing: it runs
// itself as a child, places and pays orders, kills the child again and again, and counts at the end. The embedded
// Redis dies with the child, and what it had forgotten is sent again.
//
//	go run ./examples/orders -kill 10
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
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-delayqueue/delayqueue/examples/internal/connect"
)

// patience is how long a stop waits for what is under way.
const patience = 10 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends it at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the program. Its result is the exit code.
func run(ctx context.Context, args []string, out, errs io.Writer) int {
	flags := flag.NewFlagSet("orders", flag.ContinueOnError)
	flags.SetOutput(errs)
	addr := flags.String("addr", "127.0.0.1:8080", "where to listen")
	unpaid := flags.Duration("unpaid", 15*time.Second, "how long an order may stay unpaid")
	file := flags.String("file", filepath.Join(os.TempDir(), "delayqueue-orders.db"),
		"the SQLite file; DATABASE_URL=postgres://… uses PostgreSQL")
	kills := flags.Int("kill", 0, "run as a child under load, kill it so often, and count")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	fail := func(err error) int {
		fmt.Fprintln(errs, "orders:", err)
		return 1
	}
	if *kills > 0 {
		if err := torture(ctx, *kills, out, errs); err != nil {
			return fail(err)
		}
		return 0
	}
	db, err := openDatabase(ctx, *file)
	if err != nil {
		return fail(err)
	}
	defer db.Close()
	redis, err := connect.Open()
	if err != nil {
		return fail(err)
	}
	defer redis.Close()
	s, err := newService(db, redis.Client, *unpaid, log.New(out, "", log.Ltime|log.Lmicroseconds))
	if err != nil {
		return fail(err)
	}
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		return fail(err)
	}
	fmt.Fprintf(out, `database: %[3]s
%[4]s
listening on %[1]s, an order that is not paid within %[2]v is closed; try

  curl -d tea http://%[1]s/orders

and, with the id that this answers,

  curl -X POST http://%[1]s/orders/ID/pay
  curl http://%[1]s/orders/ID
  curl http://%[1]s/count

`, listener.Addr(), *unpaid, db.about, redis.About)
	if err := s.serve(ctx, listener); err != nil {
		return fail(err)
	}
	return 0
}

// serve serves until ctx ends: first requests stop, then the queue and the outbox. Orders that wait stay.
func (s *service) serve(ctx context.Context, listener net.Listener) error {
	queue, stop := context.WithCancel(context.Background())
	defer stop()
	relayed, consumed := make(chan error, 1), make(chan error, 1)
	go func() { relayed <- s.box.Run(queue) }()
	go func() { consumed <- s.queue.Run(queue) }()
	server := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	var failed error
	select {
	case <-ctx.Done():
	case failed = <-served:
	case failed = <-relayed:
		relayed <- nil
	}
	s.log.Print("stopping")
	within, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	failed = errors.Join(failed, server.Shutdown(within))
	stop()
	return errors.Join(failed, <-consumed, <-relayed)
}
