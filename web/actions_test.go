package web

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// form is a form's text.
func form(pairs ...string) string {
	values := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		values.Add(pairs[i], pairs[i+1])
	}
	return values.Encode()
}

func allowed(*http.Request, Action, string) (string, error) { return "ann", nil }

// only allows to look, and to do what is among the rights at the time.
func only(rights *[]Action) func(*http.Request, Action, string) (string, error) {
	return func(_ *http.Request, do Action, _ string) (string, error) {
		if do == Look || slices.Contains(*rights, do) {
			return "ann", nil
		}
		return "", errors.New("not you")
	}
}

func TestAct(t *testing.T) {
	f := newFixture(t, Config{Authorize: allowed})
	a, b, c := f.sent("orders", "a", delayqueue.WithDelay(time.Hour)), f.sent("orders", "b", delayqueue.WithDelay(time.Hour)),
		f.sent("orders", "c", delayqueue.WithDelay(time.Hour))
	due := func(id string) time.Time {
		t.Helper()
		m, err := f.monitor("orders").Get(f.Context(), id)
		ok(t, err)
		return m.At
	}
	before := due(a)
	f.sees(f.get(address("act", "q", "orders", "do", "postpone", "id", a)).body, a, "By how much", "24h0m0s")
	got := f.ask(http.MethodPost, "act", form("q", "orders", "do", "postpone", "by", "24h0m0s", "id", a, "reason", "holiday"))
	if got.code != http.StatusSeeOther || !strings.HasPrefix(got.header.Get("Location"), "message?") {
		t.Fatalf("%d %s\n%s", got.code, got.header.Get("Location"), got.body)
	}
	if now := due(a); now.Sub(before) != 24*time.Hour {
		t.Errorf("postponed by %v", now.Sub(before))
	}
	f.sees(f.get(got.header.Get("Location")).body, "1 postponed")

	got = f.ask(http.MethodPost, "act", form("q", "orders", "do", "run", "id", a, "id", b, "id", "nobody"))
	f.sees(f.get(got.header.Get("Location")).body, "2 made due now; 1 passed over")
	f.is("orders", a, delayqueue.StateReady)
	f.is("orders", b, delayqueue.StateReady)

	for _, name := range []string{"", "order", "orders "} {
		if got := f.ask(http.MethodPost, "act", form("q", "orders", "do", "delete", "id", c, "confirm",
			name)); got.code != http.StatusUnprocessableEntity {
			t.Errorf("deleted after %q was typed: %d", name, got.code)
		}
	}
	f.is("orders", c, delayqueue.StatePending)
	got = f.ask(http.MethodPost, "act", form("q", "orders", "do", "delete", "id", c, "confirm", "orders"))
	f.sees(f.get(got.header.Get("Location")).body, "1 deleted")
	f.is("orders", c, delayqueue.StateGone)

	for _, bad := range []string{
		form("q", "orders", "do", "explode", "id", a), form("q", "orders", "do", "run"),
		form("q", "orders", "do", "postpone", "id", a, "by", "1s"),
		form("q", "orders", "do", "requeue", "id", a), form("q", "orders", "do", "run", "id", a) + strings.Repeat("&id=x", 10) +
			strings.Repeat("&id=", 2000),
	} {
		if got := f.ask(http.MethodPost, "act", bad); got.code < 400 && !strings.Contains(got.header.Get("Location"), "passed") {
			t.Errorf("%.80s: %d %s", bad, got.code, got.header.Get("Location"))
		}
	}
}

// Nothing is done on GET, by who may not, from another site, or where nobody may.
func TestActIsRefused(t *testing.T) {
	f := newFixture(t, Config{Authorize: func(r *http.Request, do Action, queue string) (string, error) {
		if do == Look || do == RunNow && r.Header.Get("X-User") == "ann" {
			return r.Header.Get("X-User"), nil
		}
		return "", errors.New("not you")
	}})
	id := f.sent("orders", "a", delayqueue.WithDelay(time.Hour))
	ann := header("X-User", "ann")
	run, remove := form("q", "orders", "do", "run", "id", id), form("q", "orders", "do", "delete", "id", id, "confirm", "orders")
	for name, got := range map[string]reply{
		"by GET":            f.get("act?" + run + "&confirm=orders"),
		"by bob":            f.ask(http.MethodPost, "act", run, header("X-User", "bob")),
		"by ann, deleting":  f.ask(http.MethodPost, "act", remove, ann),
		"from another site": f.ask(http.MethodPost, "act", run, ann, header("Sec-Fetch-Site", "cross-site")),
		"pausing":           f.ask(http.MethodPost, "pause", form("q", "orders", "do", "pause", "for", "0s"), ann),
	} {
		if got.code != http.StatusForbidden {
			t.Errorf("%s: %d", name, got.code)
		}
	}
	f.is("orders", id, delayqueue.StatePending)
	f.lacks(f.get(address("message", "q", "orders", "id", id), ann).body, ">Delete<")
	f.sees(f.get(address("message", "q", "orders", "id", id), ann).body, ">Run now<")
	if got := f.ask(http.MethodPost, "act", run, ann); got.code != http.StatusSeeOther {
		t.Errorf("by ann: %d %s", got.code, got.body)
	}
	f.is("orders", id, delayqueue.StateReady)
	if c, err := f.monitor("orders").Counts(f.Context()); err != nil || c.Paused {
		t.Error("it is paused", err)
	}
	f.serve(Config{})
	if got := f.ask(http.MethodPost, "act", run); got.code != http.StatusForbidden || !strings.Contains(got.body, "read-only") {
		t.Errorf("without Authorize: %d", got.code)
	}
}

func TestPauseAndResume(t *testing.T) {
	f := newFixture(t, Config{Authorize: allowed})
	f.send("orders", "a", delayqueue.WithDelay(time.Hour))
	post := func(pairs ...string) reply {
		return f.ask(http.MethodPost, "pause", form(append([]string{"q", "orders"}, pairs...)...))
	}
	counts := func() delayqueue.Counts {
		t.Helper()
		c, err := f.monitor("orders").Counts(f.Context())
		ok(t, err)
		return c
	}
	f.sees(f.get(address("pause", "q", "orders")).body, "For how long")
	for _, bad := range [][]string{{"do", "pause"}, {"do", "pause", "for", "3s"}, {"do", "x", "for", "1h0m0s"}} {
		if got := post(bad...); got.code != http.StatusBadRequest || counts().Paused {
			t.Errorf("%v: %d", bad, got.code)
		}
	}
	post("do", "pause", "for", "1h0m0s", "reason", "card provider down")
	if c := counts(); !c.Paused || c.PausedUntil.IsZero() {
		t.Errorf("%+v", c)
	}
	f.sees(f.get(address("pause", "q", "orders")).body, "It is paused", "Resume")
	post("do", "resume")
	if counts().Paused {
		t.Error("still paused")
	}
	post("do", "pause", "for", "0s")
	if c := counts(); !c.Paused || !c.PausedUntil.IsZero() {
		t.Errorf("%+v", c)
	}
}
