// Observed is a service with a page about its queue at /queues/, and a /metrics page for Prometheus. It sends itself
// messages, some of which fail, so that there is something to see.
//
//	cd examples/observed
//	go run .
//	xdg-open http://127.0.0.1:8080/queues/
//	curl http://127.0.0.1:8080/metrics
//	prometheus --config.file=prometheus.yml --storage.tsdb.path=$(mktemp -d)
//
// prometheus.yml, beside this file, has it scraped and loads the alerts of ../../metrics. REDIS_ADDR=host:port
// uses your Redis in place of an embedded one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/examples/internal/connect"
	"github.com/go-delayqueue/delayqueue/metrics/promqueue"
	"github.com/go-delayqueue/delayqueue/web"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	queueName   = "example-observed"
	concurrency = 4
	patience    = 10 * time.Second // how long a stop waits for what is under way, HTTP and queue each
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends it at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the program; it serves until ctx ends. Its result is the exit code.
func run(ctx context.Context, args []string, out, errs io.Writer) int {
	flags := flag.NewFlagSet("observed", flag.ContinueOnError)
	flags.SetOutput(errs)
	addr := flags.String("addr", "127.0.0.1:8080", "where to listen")
	every := flags.Duration("every", 100*time.Millisecond, "time between two messages")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	fail := func(code int, err error) int {
		fmt.Fprintln(errs, "observed:", err)
		return code
	}
	if *every <= 0 {
		return fail(2, fmt.Errorf("-every %v: it must be positive", *every))
	}
	server, err := connect.Open()
	if err != nil {
		return fail(1, err)
	}
	defer server.Close()
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		return fail(1, err)
	}

	queue := delayqueue.NewQueue(queueName, server.Client, nil).
		WithHandler(handle).
		WithConcurrent(concurrency).
		WithDefaultRetryCount(2).
		WithNackRedeliveryDelay(500 * time.Millisecond)
	metrics := promqueue.NewCollector(promqueue.Config{})
	defer metrics.Close()
	metrics.Watch(delayqueue.NewMonitor(queueName, server.Client))
	metrics.Instrument(queue)
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics)

	mux := http.NewServeMux()
	page := web.New(server.Client, web.Config{Authorize: onlyHere})
	mux.Handle("/queues/", page)
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	site := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ErrorLog: log.New(errs, "observed: ", 0)}
	fmt.Fprintln(out, server.About)
	fmt.Fprintf(out, "listening on %[1]s, one message every %[2]v; try\n\n"+
		"  http://%[1]s/queues/ in a browser\n  curl http://%[1]s/metrics\n\n", listener.Addr(), *every)

	say := log.New(out, "", log.Ltime|log.Lmicroseconds)
	queue.StartConsume()
	served := make(chan error, 1)
	go func() { served <- site.Serve(listener) }()
	code := 0
	if err := produce(ctx, queue, *every, served, say); err != nil {
		code = fail(1, err)
	}
	say.Print("stopping")
	page.Close() // the feeds of open pages end, which Shutdown would wait for
	for _, stop := range []func(context.Context) error{queue.Shutdown, site.Shutdown} {
		if err := within(stop); err != nil {
			code = fail(1, err)
		}
	}
	return code
}

// onlyHere lets who uses this machine look and put things right, under a name of this machine: another one that leads
// here is somebody else's site. A real service asks who somebody is.
func onlyHere(r *http.Request, _ web.Action, _ string) (string, error) {
	for _, addr := range []string{r.RemoteAddr, r.Host} {
		host, _, err := net.SplitHostPort(addr)
		if ip := net.ParseIP(host); err != nil || host != "localhost" && !ip.IsLoopback() {
			return "", errors.New("this page is for who uses the machine that it runs on")
		}
	}
	return "who runs the example", nil
}

func within(stop func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return stop(ctx)
}

// produce sends messages until ctx ends or the web server does.
func produce(ctx context.Context, queue *delayqueue.DelayQueue, every time.Duration, served <-chan error,
	say *log.Logger) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case err := <-served:
			return err
		case <-tick.C:
		}
		if _, err := queue.Send(ctx, payload(n),
			delayqueue.WithDelay(rand.N(2*time.Second).Truncate(time.Millisecond))); err != nil && ctx.Err() == nil {
			say.Print("not sent: ", err)
		}
	}
}

// payload says how the handling of the nth message is to go.
func payload(n int) string {
	switch {
	case n%50 == 10:
		return "broken"
	case n%10 == 5:
		return "flaky"
	case n%20 == 7:
		return "busy"
	}
	return "fine"
}

// handle takes up to 50 ms. What is flaky fails once, what is busy is put off once, what is broken always fails.
func handle(ctx context.Context, msg *delayqueue.Message) error {
	select {
	case <-time.After(rand.N(50 * time.Millisecond)):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	switch {
	case msg.Payload == "broken" || msg.Payload == "flaky" && msg.Failures == 0:
		return errors.New(msg.Payload)
	case msg.Payload == "busy" && msg.Delivery == 1:
		return delayqueue.Snooze(time.Second)
	}
	return nil
}
