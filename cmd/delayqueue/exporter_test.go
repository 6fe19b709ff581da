package main

import (
	"context"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
)

// exporting is an exporter that runs until the end of the test.
type exporting struct {
	*world
	mu   sync.Mutex
	said strings.Builder
}

func (e *exporting) Write(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.said.Write(p)
}

func (e *exporting) text() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.said.String()
}

func (w *world) exporter(args ...string) *exporting {
	w.Helper()
	return w.serving(append([]string{"exporter", "--listen", "127.0.0.1:0", "--discover", "50ms"}, args...)...)
}

// serving is the program with these arguments, which says where it listens.
func (w *world) serving(args ...string) *exporting {
	w.Helper()
	e := &exporting{world: w}
	ctx, cancel := context.WithCancel(context.Background())
	all := w.command(args...)
	cmd := exec.CommandContext(ctx, all.Path, all.Args[1:]...)
	cmd.Env, cmd.Stderr = all.Env, e
	if err := cmd.Start(); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed
	})
	return e
}

var listening = regexp.MustCompile(`listening on (http://[^\s;]+)`)

// page is what a scrape finds, "" if nothing.
func (e *exporting) page() string {
	at := listening.FindStringSubmatch(e.text())
	if at == nil {
		return ""
	}
	answer, err := http.Get(at[1])
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		e.Errorf("%d %s %v", answer.StatusCode, text, err)
	}
	return string(text)
}

func (e *exporting) sees(what string) {
	e.Helper()
	e.until(what, func() bool { return strings.Contains(e.page(), what) })
}

// Queues are found as they come and go, and nobody consumes.
func TestExporter(t *testing.T) {
	s := redistest.Start(t)
	w := newWorld(t, "redis://"+s.Addr(), s.Client(t))
	e := w.exporter()
	w.send("orders", "a")
	e.sees(`delayqueue_messages{queue="orders",state="ready"} 1`)
	e.sees(`delayqueue_consumers{queue="orders"} 0`)
	w.send("mails", "a", delayqueue.WithDelay(time.Hour))
	e.sees(`delayqueue_messages{queue="mails",state="pending"} 1`)
	if err := w.monitor("mails").DeleteQueue(w.Context(), false); err != nil {
		t.Fatal(err)
	}
	w.until("it is forgotten", func() bool { return !strings.Contains(e.page(), "mails") })
	s.Stop()
	e.sees(`delayqueue_up{queue="orders"} 0`)
	s.Restart(t)
	w.until("what came back empty is not reported on, so that an alert rings", func() bool { return !strings.Contains(e.page(), "orders") })
	w.send("orders", "a")
	e.sees(`delayqueue_up{queue="orders"} 1`)
}

// It starts without Redis, and finds it when it is there.
func TestExporterBeforeRedis(t *testing.T) {
	s := redistest.Start(t)
	w := newWorld(t, "redis://"+s.Addr(), s.Client(t))
	s.Stop()
	e := w.exporter("orders")
	w.until("it says that nobody answers", func() bool { return strings.Contains(e.text(), "nothing answers at") })
	if page := e.page(); strings.Contains(page, "delayqueue_up") {
		t.Errorf("nobody answers, and yet:\n%s", page)
	}
	s.Restart(t)
	e.sees(`delayqueue_up{queue="orders"} 1`)
	w.refused(exitFailed, "--listen:", "exporter", "--listen", "nowhere:x")
	w.refused(exitUsage, "is no name of a queue", "exporter", "{x}")
}
