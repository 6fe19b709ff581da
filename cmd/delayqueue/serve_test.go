package main

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
)

// exporting is an exporter that runs until the end of the test.
type exporting struct {
	*world
	said testkit.Buffer
}

func (e *exporting) text() string { return e.said.String() }

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
	cmd.Env, cmd.Stderr = all.Env, &e.said
	ok(w, cmd.Start())
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
	ok(t, w.monitor("mails").DeleteQueue(w.Context(), false))
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
	w.until("it says that the queue is not there", func() bool { return strings.Contains(e.text(), "no such queue") })
	if text := e.text(); strings.Count(text, "no such queue") != 1 {
		t.Errorf("said again and again:\n%s", text)
	}
	w.refused(exitFailed, "--listen:", "exporter", "--listen", "nowhere:x")
	w.refused(exitUsage, "is no name of a queue", "exporter", "{x}")
}

// post sends a form to the page, and returns the status.
func (e *exporting) post(page string, form url.Values) int {
	e.Helper()
	at := listening.FindStringSubmatch(e.text())
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.PostForm(at[1]+page, form)
	ok(e, err)
	answer.Body.Close()
	return answer.StatusCode
}

// named asks for the page by another name, and returns the status.
func (e *exporting) named(host string) int {
	e.Helper()
	r, err := http.NewRequestWithContext(e.Context(), http.MethodGet, listening.FindStringSubmatch(e.text())[1], nil)
	ok(e, err)
	r.Host = host
	answer, err := http.DefaultClient.Do(r)
	ok(e, err)
	answer.Body.Close()
	return answer.StatusCode
}

// The page shows queues as they come, and who uses this machine may put things right.
func TestWeb(t *testing.T) {
	s := redistest.Start(t)
	w := newWorld(t, "redis://"+s.Addr(), s.Client(t))
	w.send("orders", "a", delayqueue.WithDelay(time.Hour))
	paused := func() bool {
		t.Helper()
		c, err := w.monitor("orders").Counts(w.Context())
		ok(t, err)
		return c.Paused
	}
	pause := url.Values{"q": {"orders"}, "do": {"pause"}, "for": {"0s"}}

	looks := w.serving("web", "--listen", "127.0.0.1:0", "--read-only")
	looks.sees("orders")
	if code := looks.post("pause", pause); code != http.StatusForbidden || paused() {
		t.Errorf("a page that is read-only: %d", code)
	}
	e := w.serving("web", "--listen", "127.0.0.1:0", "orders")
	e.sees("orders")
	if code := e.post("pause", pause); code != http.StatusSeeOther || !paused() {
		t.Errorf("%d", code)
	}
	everybody := w.serving("web", "--listen", "0.0.0.0:0", "--read-only", "--host", "queues.example")
	everybody.sees("orders")
	for host, want := range map[string]int{"queues.example:80": http.StatusOK, "evil.example": http.StatusMisdirectedRequest} {
		if code := everybody.named(host); code != want {
			t.Errorf("as %s: %d", host, code)
		}
	}
	w.refused(exitUsage, "needs --read-only", "web", "--listen", "0.0.0.0:0")
	w.refused(exitUsage, "is no name of a queue", "web", "{x}")
	w.refused(exitFailed, "--listen:", "web", "--listen", "nowhere:x")
}
