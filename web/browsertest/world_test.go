package browsertest

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/go-delayqueue/delayqueue/schedule"
	"github.com/go-delayqueue/delayqueue/web"
	"github.com/redis/go-redis/v9"
)

// What all tests look at.
var (
	browser context.Context
	shop    *world
)

func TestMain(m *testing.M) { os.Exit(redistest.Quietly(func() int { return all(m) })) }

func all(m *testing.M) int {
	var end func()
	var err error
	if browser, end, err = startBrowser(); err != nil {
		fmt.Fprintln(os.Stderr, "browsertest:", err)
		return 1
	}
	defer end()
	if shop, err = build(); err != nil {
		fmt.Fprintln(os.Stderr, "browsertest:", err)
		return 1
	}
	defer shop.close()
	defer func() { log.Print("output of the redis-server:\n" + shop.server.Output()) }()
	return m.Run()
}

const (
	waiting = 200_000 // messages of orders that are pending
	dead    = 4_000   // and in garbage
)

// A world is a service with five queues and the page about them:
//
//	orders   200,000 pending, 4,000 in garbage, and consumers that fail now and then
//	mails    all is well
//	invoices no consumer, and messages that are due
//	reports  paused, with schedules
//	broken   another program has written into it
type world struct {
	server *redistest.Server
	cli    *redis.Client
	page   *web.Handler
	http   *httptest.Server
	url    string // of the page

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	queues []*delayqueue.DelayQueue
}

func build() (w *world, err error) {
	w = &world{}
	if w.server, err = redistest.Run(); err != nil {
		return nil, err
	}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	w.cli = redis.NewClient(&redis.Options{Addr: w.server.Addr()})
	if err := errors.Join(w.orders(), w.mails(), w.invoices(), w.reports(), w.broken()); err != nil {
		w.close()
		return nil, err
	}
	w.page, w.http, w.url = w.serve(web.Config{Authorize: anybody})
	return w, nil
}

// anybody may do all, by the name of ann.
func anybody(*http.Request, web.Action, string) (string, error) { return "ann", nil }

// serve mounts a page at /queues/.
func (w *world) serve(c web.Config) (*web.Handler, *httptest.Server, string) {
	page := web.New(w.cli, c)
	mux := http.NewServeMux()
	mux.Handle("/queues/", page)
	server := httptest.NewServer(mux)
	return page, server, server.URL + "/queues/"
}

func (w *world) close() {
	w.cancel()
	w.wg.Wait()
	for _, q := range w.queues {
		q.StopConsume()
	}
	if w.page != nil {
		w.page.Close()
		w.http.Close()
	}
	_ = w.cli.Close() // nothing of it is needed any more
	w.server.Close()
}

// consume starts a consumer.
func (w *world) consume(queue string, workers int, handle delayqueue.Handler) *delayqueue.DelayQueue {
	q := delayqueue.NewQueue(queue, w.cli,
		nil).WithHandler(handle).WithConcurrent(workers).WithLogger(slog.New(slog.DiscardHandler)).
		WithRetryDelays(time.Hour).WithGarbageRetention(24*time.Hour, 100_000).WithDefaultRetryCount(1)
	q.StartConsume()
	w.queues = append(w.queues, q)
	return q
}

// batch sends n messages, which one makes.
func (w *world) batch(queue string, n int, one func(i int) delayqueue.Outgoing) error {
	p := delayqueue.NewPublisher(queue, w.cli)
	all := make([]delayqueue.Outgoing, n)
	for i := range all {
		all[i] = one(i)
	}
	_, err := p.SendBatch(w.ctx, all)
	return err
}

// failures are what goes wrong with orders.
var failures = []string{
	"card declined: order %d: issuer says 05", "timeout after %d ms: POST /charge", "no stock left for item %d",
	"invalid address in order %d",
}

func (w *world) orders() error {
	err := w.batch("orders", waiting, func(i int) delayqueue.Outgoing {
		return delayqueue.Outgoing{
			Payload: fmt.Sprintf(`{"order":%d,"customer":"c-%d","total":%d.50,"items":[{"sku":"A-%d","count":2}]}`, i, i%977,
				i%300, i%41),
			Options: []delayqueue.MsgOption{
				delayqueue.WithDelay(time.Minute + time.Duration(i%7000)*time.Second),
				delayqueue.WithKey("order-" + strconv.Itoa(i)),
				delayqueue.WithHeader("region", []string{"eu", "us", "apac"}[i%3]),
			},
		}
	})
	if err != nil {
		return err
	}
	err = w.batch("orders", dead, func(i int) delayqueue.Outgoing {
		return delayqueue.Outgoing{Payload: "fail " + strconv.Itoa(i),
			Options: []delayqueue.MsgOption{delayqueue.WithRetryCount(0)}}
	})
	if err != nil {
		return err
	}
	w.consume("orders", 8, func(_ context.Context, msg *delayqueue.Message) error {
		var n int
		if _, err := fmt.Sscanf(msg.Payload, "fail %d", &n); err == nil {
			return fmt.Errorf(failures[n*n%7%len(failures)], n)
		}
		return nil
	})
	m := ops.Of(delayqueue.NewMonitor("orders", w.cli))
	ctx, cancel := context.WithTimeout(w.ctx, 10*testkit.Patience)
	defer cancel()
	for {
		if c, err := m.Counts(ctx); err != nil || c.Garbage >= dead {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// mails has traffic all the time.
func (w *world) mails() error {
	q := w.consume("mails", 4, func(ctx context.Context, msg *delayqueue.Message) error {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
		}
		return nil
	})
	w.wg.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_, _ = q.Send(w.ctx, "mail", delayqueue.WithDelay(time.Second)) // what is not sent is not seen
			case <-w.ctx.Done():
				return
			}
		}
	})
	return nil
}

func (w *world) invoices() error {
	return w.batch("invoices", 30, func(i int) delayqueue.Outgoing {
		return delayqueue.Outgoing{Payload: fmt.Sprint("invoice ", i)}
	})
}

func (w *world) reports() error {
	w.consume("reports", 1, func(context.Context, *delayqueue.Message) error { return nil })
	s := schedule.New(delayqueue.NewPublisher("reports", w.cli))
	err := errors.Join(
		s.Set(w.ctx, schedule.Entry{Name: "nightly", Cron: "30 3 * * *", Zone: "Europe/Berlin", Payload: "all"}),
		s.Set(w.ctx, schedule.Entry{Name: "pulse", Every: time.Hour, Payload: "pulse", Overlap: schedule.Skip}),
	)
	if err != nil {
		return err
	}
	return ops.Of(delayqueue.NewMonitor("reports", w.cli)).WithOperator("bob").PauseUntil(w.ctx,
		time.Now().Add(5*time.Hour))
}

func (w *world) broken() error {
	return errors.Join(w.cli.HSet(w.ctx, "{dq:broken}:state", "x", "1").Err(),
		w.cli.Set(w.ctx, "{dq:broken}:pending", "x", 0).Err())
}

// ok ends a test with an error.
func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
