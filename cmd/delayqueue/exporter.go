package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/journal"
	"github.com/go-delayqueue/delayqueue/metrics/promqueue"
	"github.com/go-delayqueue/delayqueue/schedule"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
)

// exporter serves the gauges of queues to Prometheus.
type exporter struct {
	*app
	names     []string // none: all queues that are found
	every     time.Duration
	keep      time.Duration // for which a queue that somebody has deleted is served on
	collector *promqueue.Collector
	watched   map[string]bool
	log       *slog.Logger
}

// scrapeTime is how long a scrape may read queues; Prometheus waits for 10 s, unless it is told otherwise.
const scrapeTime = 3 * time.Second

// keepDeleted is longer than some scrapes that fail, so that Prometheus learns that the queue was deleted.
const keepDeleted = 15 * time.Minute

func (a *app) exporterCommand() *cobra.Command {
	var listen string
	every := durationFlag(time.Minute)
	c := &cobra.Command{
		Use:   "exporter [QUEUE...]",
		Short: "Serve the gauges of queues to Prometheus, whether they run or not",
		Long: `exporter serves /metrics: the gauges of the named queues, or of all queues of
the prefix, which it looks for every --discover. Totals and histograms come from
the services themselves. exporter goes on while Redis is away: then
delayqueue_up is 0, or missing if Redis was never reached. The alerts are in
metrics/alerts.yml.`,
		Example: "  delayqueue exporter --listen :9469",
		RunE: func(c *cobra.Command, names []string) error {
			if every <= 0 {
				return fail(exitUsage, "--discover must be above 0")
			}
			if err := a.prepare(); err != nil {
				return err
			}
			if err := validNames(names); err != nil {
				return err
			}
			log := slog.New(slog.NewTextHandler(os.Stderr, nil))
			e := &exporter{
				app: a, names: names, every: time.Duration(every), keep: keepDeleted, watched: map[string]bool{}, log: log,
				collector: promqueue.NewCollector(promqueue.Config{Timeout: scrapeTime, Logger: log}),
			}
			return e.serve(c.Context(), listen)
		},
	}
	c.Flags().StringVar(&listen, "listen", "127.0.0.1:9469", "address for Prometheus, host:port")
	c.Flags().Var(&every, "discover", "interval of looking for queues")
	return c
}

// serve answers until ctx ends.
func (e *exporter) serve(ctx context.Context, listen string) error {
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return fail(exitFailed, "--listen: %v", err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(e.collector)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry,
		promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(e.log.Handler(), slog.LevelError)}))
	web := &http.Server{Handler: mux, ReadHeaderTimeout: patience,
		ErrorLog: slog.NewLogLogger(e.log.Handler(), slog.LevelWarn)}
	served := make(chan error, 1)
	go func() { served <- web.Serve(listener) }()
	fmt.Fprintf(os.Stderr, "listening on http://%s/metrics\n", listener.Addr())

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		e.watch(ctx)
	}()
	select {
	case <-ctx.Done():
		err = nil // interrupted, which is the ordinary end
	case err = <-served:
		cancel()
	}
	<-watched
	last, done := context.WithTimeout(context.Background(), patience)
	defer done()
	return errors.Join(err, web.Shutdown(last))
}

// watch connects to Redis and looks for queues, again and again, until ctx ends.
func (e *exporter) watch(ctx context.Context) {
	said := ""
	for {
		err := e.look(ctx)
		wait, text := e.every, ""
		if err != nil && ctx.Err() == nil {
			if _, text = e.explain(err); e.cli == nil {
				wait = min(wait, patience)
			}
		}
		if text != said {
			if said = text; text != "" {
				e.log.Warn("delayqueue: exporter: queues cannot be looked for", slog.String("error", text))
			} else {
				e.log.Info("delayqueue: exporter: queues can be looked for again")
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// look adds new queues to the collector and removes those that somebody has deleted, some time after that.
func (e *exporter) look(ctx context.Context) error {
	if err := e.connect(ctx); err != nil {
		return err
	}
	names := e.names
	var err error
	if len(names) == 0 {
		err = e.discover(ctx, func(name string) { names = append(names, name) })
	}
	for _, name := range names {
		if !e.watched[name] {
			e.watched[name] = true
			m := delayqueue.NewMonitor(name, e.cli, delayqueue.UseCustomPrefix(e.prefix))
			e.collector.Watch(m)
			e.collector.WatchSchedules(schedule.New(delayqueue.NewPublisher(name, e.cli, delayqueue.UseCustomPrefix(e.prefix))))
			if len(e.names) > 0 {
				e.warnIfMissing(ctx, m)
			}
		}
	}
	for name := range e.watched {
		if err == nil && !slices.Contains(names, name) && e.deleted(ctx, name) {
			delete(e.watched, name)
			e.collector.Unwatch(name)
		}
	}
	return err
}

// deleted says whether the journal of a queue that Redis has no more says that somebody has deleted it, and not just
// now. Else, or if the journal cannot be read, it is served on, because it was lost: the collector counts what was in
// it.
func (e *exporter) deleted(ctx context.Context, name string) bool {
	page, err := e.newMonitor(name).Journal(ctx, 1, "")
	return err == nil && len(page.Entries) > 0 && page.Entries[0].Act == journal.DeleteQueue &&
		page.Now.Sub(page.Entries[0].At) >= e.keep
}

// warnIfMissing says that a named queue does not exist.
func (e *exporter) warnIfMissing(ctx context.Context, m *delayqueue.Monitor) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err := m.Counts(ctx); errors.Is(err, delayqueue.ErrNoQueue) {
		e.log.Warn("delayqueue: exporter: there is no such queue: the name may be wrong; it is served all the same",
			slog.String("queue", m.Name()))
	}
}
