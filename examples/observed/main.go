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
// uses your Redis in place of an embedded one, and -cluster host:port,host:port a Redis Cluster.
//
//	go run . -trouble
//
// is a service of 37 queues with 210,000 messages, in which a lot is wrong. TASKS.md has ten tasks for a person
// who does not know what. With -size 0.1 queues have a tenth of that.
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
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/examples/internal/connect"
	"github.com/go-delayqueue/delayqueue/metrics/promqueue"
	"github.com/go-delayqueue/delayqueue/web"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
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

// options are those of the command line.
type options struct {
	addr    string
	every   time.Duration
	cluster string
	trouble bool
	size    float64
}

func (o *options) parse(args []string, errs io.Writer) error {
	flags := flag.NewFlagSet("observed", flag.ContinueOnError)
	flags.SetOutput(errs)
	flags.StringVar(&o.addr, "addr", "127.0.0.1:8080", "where to listen")
	flags.DurationVar(&o.every, "every", 100*time.Millisecond, "time between two messages")
	flags.StringVar(&o.cluster, "cluster", "", "`addresses` of nodes of a Redis Cluster, with commas, for REDIS_ADDR")
	flags.BoolVar(&o.trouble, "trouble", false, "many queues, in which a lot is wrong: see TASKS.md")
	flags.Float64Var(&o.size, "size", 1, "how large queues are with -trouble")
	if err := flags.Parse(args); err != nil {
		return err
	}
	err := error(nil)
	switch {
	case o.every <= 0:
		err = fmt.Errorf("-every %v: it must be positive", o.every)
	case !(o.size > 0 && o.size <= 10): // not so if it is NaN
		err = fmt.Errorf("-size %v: it must be above 0, and at most 10", o.size)
	}
	if err != nil {
		fmt.Fprintln(errs, "observed:", err)
	}
	return err
}

// A service is what this program does beside serving the page.
type service struct {
	ctx     context.Context // of all work; it ends when the program is to end
	cli     redis.UniversalClient
	metrics *promqueue.Collector
	say     *log.Logger
	queues  []*delayqueue.DelayQueue // those that consume
	working sync.WaitGroup           // senders and schedulers
}

// run is the program; it serves until ctx ends. Its result is the exit code.
func run(ctx context.Context, args []string, out, errs io.Writer) int {
	var o options
	if err := o.parse(args, errs); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	if err := o.run(ctx, out, errs); err != nil {
		fmt.Fprintln(errs, "observed:", err)
		return 1
	}
	return 0
}

func (o *options) run(ctx context.Context, out, errs io.Writer) error {
	cli, about, closed, err := o.open()
	if err != nil {
		return err
	}
	defer closed()
	listener, err := net.Listen("tcp", o.addr)
	if err != nil {
		return err
	}
	metrics := promqueue.NewCollector(promqueue.Config{})
	defer metrics.Close()
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics)

	mux := http.NewServeMux()
	page := web.New(cli, web.Config{Authorize: onlyHere})
	mux.Handle("/queues/", page)
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	site := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ErrorLog: log.New(errs, "observed: ", 0)}
	fmt.Fprintln(out, about)
	fmt.Fprintf(out, "listening on %[1]s; try\n\n"+
		"  http://%[1]s/queues/ in a browser\n  curl http://%[1]s/metrics\n\n", listener.Addr())

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	served := make(chan error, 1)
	go func() {
		err := site.Serve(listener)
		cancel(err)
		served <- err
	}()
	s := &service{ctx: ctx, cli: cli, metrics: metrics, say: log.New(out, "", log.Ltime|log.Lmicroseconds)}
	if o.trouble {
		err = s.makeTrouble(o.size)
	} else {
		s.sendAndHandle(o.every)
	}
	if err == nil {
		<-ctx.Done()
	}
	s.say.Print("stopping")
	cancel(nil)
	page.Close() // the feeds of open pages end, which Shutdown would wait for
	err = errors.Join(err, s.stop(), within(site.Shutdown))
	if why := <-served; !errors.Is(why, http.ErrServerClosed) {
		err = errors.Join(err, why)
	}
	return err
}

// open connects to Redis, or starts one.
func (o *options) open() (cli redis.UniversalClient, about string, closed func(), err error) {
	if o.cluster == "" {
		server, err := connect.Open()
		if err != nil {
			return nil, "", nil, err
		}
		return server.Client, server.About, server.Close, nil
	}
	logging.Disable() // the queues say once that a node is away
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: strings.Split(o.cluster, ",")})
	err = within(func(ctx context.Context) error { return cluster.Ping(ctx).Err() })
	if err != nil {
		_ = cluster.Close()
		return nil, "", nil, fmt.Errorf("the cluster at %s (-cluster) does not answer: %w", o.cluster, err)
	}
	return cluster, "redis: the cluster at " + o.cluster, func() { _ = cluster.Close() }, nil
}

// stop waits for what is under way.
func (s *service) stop() error {
	for _, q := range s.queues {
		q.StopConsume()
	}
	err := within(func(ctx context.Context) (err error) {
		for _, q := range s.queues {
			err = errors.Join(err, q.Shutdown(ctx))
		}
		return err
	})
	s.working.Wait()
	return err
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

// consume starts the consumer of a queue, and has it counted.
func (s *service) consume(queue *delayqueue.DelayQueue) {
	s.metrics.Instrument(queue)
	queue.StartConsume()
	s.queues = append(s.queues, queue)
}

// sendAndHandle begins what there is to see without -trouble.
func (s *service) sendAndHandle(every time.Duration) {
	queue := delayqueue.NewQueue(queueName, s.cli, nil).
		WithHandler(handle).
		WithConcurrent(concurrency).
		WithDefaultRetryCount(2).
		WithNackRedeliveryDelay(500 * time.Millisecond)
	s.metrics.Watch(delayqueue.NewMonitor(queueName, s.cli))
	s.consume(queue)
	s.feed(queue, every, func(n int) delayqueue.Outgoing {
		return delayqueue.Outgoing{Payload: payload(n), Options: []delayqueue.MsgOption{
			delayqueue.WithDelay(rand.N(2 * time.Second).Truncate(time.Millisecond))}}
	})
}

// feed sends messages, the first of which is number 1, until the service ends.
func (s *service) feed(queue *delayqueue.DelayQueue, every time.Duration, message func(n int) delayqueue.Outgoing) {
	s.working.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for n := 1; ; n++ {
			select {
			case <-s.ctx.Done():
				return
			case <-tick.C:
			}
			m := message(n)
			if _, err := queue.Send(s.ctx, m.Payload, m.Options...); err != nil && s.ctx.Err() == nil {
				s.say.Print("not sent: ", err)
			}
		}
	})
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
