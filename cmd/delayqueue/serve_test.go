package main

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/go-delayqueue/delayqueue/metrics/promqueue"
)

// exporting is an exporter that runs until the end of the test.
type exporting struct {
	*world
	said testkit.Buffer
}

func (w *world) exporter(args ...string) *exporting {
	w.Helper()
	return w.serving(append([]string{"exporter", "--listen", "127.0.0.1:0", "--discover", "50ms"}, args...)...)
}

// serving is the program with these arguments, which says where it listens.
func (w *world) serving(args ...string) *exporting {
	w.Helper()
	e, cmd := &exporting{world: w}, w.command(args...)
	cmd.Stderr = &e.said
	ok(w, cmd.Start())
	w.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	return e
}

// address is where it listens; "" if it has not said so.
func (e *exporting) address() string {
	return regexp.MustCompile(`http://[^\s;]+`).FindString(e.said.String())
}

// page is what a scrape finds, "" if nothing.
func (e *exporting) page() string {
	answer, err := http.Get(e.address())
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
	w, s := ownServer(t)
	e := w.exporter()
	w.send("orders", "a")
	e.sees(`delayqueue_messages{queue="orders",state="ready"} 1`)
	e.sees(`delayqueue_consumers{queue="orders"} 0`)
	w.send("mails", "a", inAnHour)
	e.sees(`delayqueue_messages{queue="mails",state="pending"} 1`)
	ok(t, w.monitor("mails").DeleteQueue(w.Context(), true))
	e.sees(`delayqueue_deleted{queue="mails"} 1`)
	e.sees(`delayqueue_deleted{queue="orders"} 0`)
	s.Stop()
	e.sees(`delayqueue_up{queue="orders"} 0`)
	s.Restart(t)
	e.sees(`delayqueue_loss_messages{queue="orders"} 1`) // it came back empty, and nobody consumes
	w.send("orders", "a")
	e.sees(`delayqueue_messages{queue="orders",state="ready"} 1`)
}

// A queue whose journal cannot be read is not taken for one that somebody has deleted. A deleted queue is dropped, but
// not at once.
func TestExporterKeepsLostQueues(t *testing.T) {
	w := onServer(t)
	e := exporter{app: &app{cli: w.cli, prefix: w.prefix}, watched: map[string]bool{},
		collector: promqueue.NewCollector(promqueue.Config{})}
	ok(t, w.cli.Set(w.Context(), check.Queue{Prefix: w.prefix, Name: "orders"}.Key("journal"), "x", 0).Err())
	equal(t, "deleted, by a journal of a wrong type", e.deleted(w.Context(), "orders"), false)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	equal(t, "deleted, by a journal that nobody could read", e.deleted(over, "mails"), false)
	w.send("mails", "a")
	served := func(want bool) {
		t.Helper()
		ok(t, e.look(w.Context()))
		equal(t, "served", e.watched["mails"], want)
	}
	served(true)
	ok(t, w.monitor("mails").DeleteQueue(w.Context(), true))
	e.keep = keepDeleted
	served(true)
	e.keep = 0
	served(false)
}

// It starts without Redis, and finds it when it is there.
func TestExporterBeforeRedis(t *testing.T) {
	w, s := ownServer(t)
	s.Stop()
	e := w.exporter("orders")
	w.until("it says that nobody answers", func() bool { return strings.Contains(e.said.String(), "nothing answers at") })
	w.lacks(e.page(), "delayqueue_up")
	s.Restart(t)
	e.sees(`delayqueue_up{queue="orders"} 1`)
	w.until("it says that the queue is not there", func() bool {
		return strings.Contains(e.said.String(), "no such queue")
	})
	equal(t, "lines", strings.Count(e.said.String(), "no such queue"), 1)
	w.refused(exitFailed, "--listen:", "exporter", "--listen", "nowhere:x")
	w.refused(exitUsage, "is no name of a queue", "exporter", "{x}")
}

// post sends a form to the page, and returns the status of where that leads.
func (e *exporting) post(page string, form url.Values) int {
	e.Helper()
	answer, err := http.PostForm(e.address()+page, form)
	ok(e, err)
	answer.Body.Close()
	return answer.StatusCode
}

// The page shows queues as they come, and who uses this machine may put things right.
func TestWeb(t *testing.T) {
	w := onServer(t)
	w.send("orders", "a", inAnHour)
	paused := func() bool { return w.counts("orders").Paused }
	pause := url.Values{"q": {"orders"}, "do": {"pause"}, "for": {"0s"}}

	looks := w.serving("web", "--listen", "127.0.0.1:0", "--read-only")
	looks.sees("orders")
	if code := looks.post("pause", pause); code != http.StatusForbidden || paused() {
		t.Errorf("a page that is read-only: %d", code)
	}
	e := w.serving("web", "--listen", "127.0.0.1:0", "orders")
	e.sees("orders")
	if code := e.post("pause", pause); code != http.StatusOK || !paused() {
		t.Errorf("%d", code)
	}
	everybody := w.serving("web", "--listen", "0.0.0.0:0", "--read-only", "--host", "queues.example")
	everybody.sees("orders")
	for host, want := range map[string]int{"queues.example:80": http.StatusOK,
		"evil.example": http.StatusMisdirectedRequest} {
		r, err := http.NewRequestWithContext(w.Context(), http.MethodGet, everybody.address(), nil)
		ok(t, err)
		r.Host = host
		answer, err := http.DefaultClient.Do(r)
		ok(t, err)
		if answer.Body.Close(); answer.StatusCode != want {
			t.Errorf("as %s: %d", host, answer.StatusCode)
		}
	}
	w.refused(exitUsage, "needs --read-only", "web", "--listen", "0.0.0.0:0")
	w.refused(exitUsage, "is no name of a queue", "web", "{x}")
	w.refused(exitFailed, "--listen:", "web", "--listen", "nowhere:x")
}
