package main

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
)

// post sends a form to the page, and returns the status.
func (e *exporting) post(page string, form url.Values) int {
	e.Helper()
	at := listening.FindStringSubmatch(e.text())
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.PostForm(at[1]+page, form)
	if err != nil {
		e.Fatal(err)
	}
	answer.Body.Close()
	return answer.StatusCode
}

// named asks for the page by another name, and returns the status.
func (e *exporting) named(host string) int {
	e.Helper()
	r, err := http.NewRequestWithContext(e.Context(), http.MethodGet, listening.FindStringSubmatch(e.text())[1], nil)
	if err != nil {
		e.Fatal(err)
	}
	r.Host = host
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		e.Fatal(err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
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
