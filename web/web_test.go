package web

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
)

// TestMain finds goroutines that are left, when they have had time to end.
func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		err := goleak.Find()
		for end := time.Now().Add(patience); err != nil && time.Now().Before(end); {
			err = goleak.Find()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// patience is how long something may take that must happen; no measure of speed.
const patience = time.Minute

// A fixture is a page on a server of its own.
type fixture struct {
	*testing.T
	server *redistest.Server
	cli    *redis.Client
	page   *Handler
	http   *httptest.Server
	log    *logText
}

func newFixture(t *testing.T, c Config) *fixture {
	t.Helper()
	f := &fixture{T: t, server: redistest.Start(t), log: &logText{}}
	f.cli = f.server.Client(t)
	f.serve(c)
	return f
}

// Context has an end, until which a Monitor's read is tried: without one it is given up on after two seconds.
func (f *fixture) Context() context.Context {
	ctx, cancel := context.WithTimeout(f.T.Context(), patience)
	f.Cleanup(cancel)
	return ctx
}

// serve mounts a page of its own at /queues/.
func (f *fixture) serve(c Config) {
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(f.log, nil))
	}
	f.page = New(f.cli, c)
	f.page.bounds = bounds{patience, patience, patience, patience, patience} // a slow machine is no outage
	mux := http.NewServeMux()
	mux.Handle("/queues/", f.page)
	f.http = httptest.NewServer(mux)
	f.Cleanup(f.http.Close)
	f.Cleanup(f.page.Close)
}

type logText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// send puts messages into a queue.
func (f *fixture) send(queue, payload string, opts ...delayqueue.MsgOption) {
	f.Helper()
	if _, err := delayqueue.NewPublisher(queue, f.cli).Send(f.Context(), payload, opts...); err != nil {
		f.Fatal(err)
	}
}

// A reply is a page as it came.
type reply struct {
	code   int
	header http.Header
	body   string
}

// ask asks for a page below /queues/; edit may change the request.
func (f *fixture) ask(method, path, form string, edit ...func(*http.Request)) reply {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.T.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, f.http.URL+"/queues/"+path, strings.NewReader(form))
	if err != nil {
		f.Fatal(err)
	}
	if form != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, e := range edit {
		e(r)
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	got, err := transport.RoundTrip(r) // follows no redirect
	if err != nil {
		f.Fatal(err)
	}
	defer got.Body.Close()
	body, err := io.ReadAll(got.Body)
	if err != nil {
		f.Fatal(err)
	}
	return reply{got.StatusCode, got.Header, string(body)}
}

func (f *fixture) get(path string, edit ...func(*http.Request)) reply {
	f.Helper()
	return f.ask(http.MethodGet, path, "", edit...)
}

// sees fails unless all texts are there.
func (f *fixture) sees(in string, texts ...string) {
	f.Helper()
	for _, text := range texts {
		if !strings.Contains(in, text) {
			f.Errorf("there is no %q in:\n%s", text, in)
		}
	}
}

func (f *fixture) lacks(in string, texts ...string) {
	f.Helper()
	for _, text := range texts {
		if strings.Contains(in, text) {
			f.Errorf("there is %q in:\n%s", text, in)
		}
	}
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func TestBoard(t *testing.T) {
	f := newFixture(t, Config{})
	for i := range 3 {
		f.send("orders", fmt.Sprint(i), delayqueue.WithDelay(time.Hour))
	}
	f.send("mails", "x")
	if err := f.cli.Set(f.Context(), "{dq:bad}:pending", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := f.cli.HSet(f.Context(), "{dq:bad}:state", "x", "1").Err(); err != nil {
		t.Fatal(err)
	}
	got := f.get("")
	if got.code != http.StatusOK {
		t.Fatalf("%d %s", got.code, got.body)
	}
	f.sees(got.body, ">orders<", "<span>3</span>", ">mails<", "no consumers", ">bad<", "cannot be read", "WRONGTYPE")
	if bad, mails, orders := strings.Index(got.body, ">bad<"), strings.Index(got.body, ">mails<"),
		strings.Index(got.body, ">orders<"); bad > mails || mails > orders {
		t.Error("not the worst first")
	}
	f.sees(f.get("", header("Accept-Language", "fr, zh-CN;q=0.9, en;q=0.3")).body, "没有消费者", `lang="zh"`)
}

func TestVerdictOfAPause(t *testing.T) {
	f := newFixture(t, Config{Queues: []string{"orders"}})
	f.send("orders", "x")
	m := delayqueue.NewMonitor("orders", f.cli).WithOperator("ann").WithReason("card <provider> down")
	until := time.Now().Add(48 * time.Hour)
	if err := m.PauseUntil(f.Context(), until); err != nil {
		t.Fatal(err)
	}
	f.sees(f.get("queue?q=orders").body, "paused until "+until.UTC().Format("2006-01-02"), "card &lt;provider&gt; down")
}
