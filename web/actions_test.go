package web

import (
	"errors"
	"fmt"
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
	a, b, c := f.sent("orders", "a", delayqueue.WithDelay(time.Hour)),
		f.sent("orders", "b", delayqueue.WithDelay(time.Hour)),
		f.sent("orders", "c", delayqueue.WithDelay(time.Hour))
	due := func(id string) time.Time {
		t.Helper()
		m, err := f.monitor("orders").Get(f.Context(), id)
		ok(t, err)
		return m.At
	}
	before := due(a)
	f.sees(f.get(address("act", "q", "orders", "do", "postpone", "id", a)).body, a, "By how much", "24h0m0s",
		"It counts from when each message is due.")
	got := f.ask(http.MethodPost, "act", form("q", "orders", "do", "postpone", "by", "24h0m0s", "id", a, "reason",
		"holiday"))
	if got.code != http.StatusSeeOther || !strings.HasPrefix(got.header.Get("Location"), "message?") {
		t.Fatalf("%d %s\n%s", got.code, got.header.Get("Location"), got.body)
	}
	if now := due(a); now.Sub(before) != 24*time.Hour {
		t.Errorf("postponed by %v", now.Sub(before))
	}
	f.sees(f.get(got.header.Get("Location")).body, "1 postponed")
	f.eventually("it is in the journal", func() bool {
		body := f.get(address("journal", "q", "orders")).body
		return strings.Contains(body, ">ann<") && strings.Contains(body, "holiday") && strings.Contains(body, a)
	})

	f.sees(f.did("act", form("q", "orders", "do", "run", "id", a, "id", b, "id", "nobody")),
		"2 made due now; 1 passed over")
	f.is("orders", a, delayqueue.StateReady)
	f.is("orders", b, delayqueue.StateReady)

	for _, name := range []string{"", "order", "orders "} {
		got := f.ask(http.MethodPost, "act", form("q", "orders", "do", "cancel", "id", c, "confirm", name))
		f.wants(http.StatusUnprocessableEntity, got, "typed", name)
	}
	f.is("orders", c, delayqueue.StatePending)
	f.sees(f.did("act", form("q", "orders", "do", "cancel", "id", c, "confirm", "orders")), "1 canceled")
	f.is("orders", c, delayqueue.StateGone)

	for _, bad := range []string{
		form("q", "orders", "do", "explode", "id", a), form("q", "orders", "do", "run"),
		form("q", "orders", "do", "postpone", "id", a, "by", "1s"),
		form("q", "orders", "do", "requeue", "id", a),
		form("q", "orders", "do", "run", "id", a) + strings.Repeat("&id=x", 10) +
			strings.Repeat("&id=", 2000),
	} {
		if got := f.ask(http.MethodPost, "act", bad); got.code < 400 &&
			!strings.Contains(got.header.Get("Location"), "passed") {
			t.Errorf("%.80s: %d %s", bad, got.code, got.header.Get("Location"))
		}
	}
}

// Each form needs the right for what it does, and for the state of what it does it to. With all other rights nothing
// is done.
func TestRights(t *testing.T) {
	all := []Action{Pause, RunNow, Reschedule, Requeue, Cancel, Delete, SetLimits, Skip}
	var rights []Action
	f := newFixture(t, Config{Authorize: only(&rights)})
	id := f.sent("orders", "a", delayqueue.WithDelay(time.Hour))
	one, counted := form("id", id, "confirm", "orders"),
		form("before", fmt.Sprint(time.Now().UnixMicro()), "most", "9", "confirm", "orders")
	for _, c := range []struct {
		page, form string
		right      Action
	}{
		{"act", one + "&do=run", RunNow}, {"act", one + "&do=postpone&by=1h0m0s", Reschedule},
		{"act", one + "&do=delete", Delete},
		{"act", one + "&do=cancel", Cancel}, {"act", one + "&do=requeue", Requeue}, {"act", one + "&do=skip", Skip},
		{"act", one + "&do=giveup", Skip}, {"plan", counted + "&do=delete&state=garbage", Delete},
		{"plan", counted + "&do=cancel&state=unack", Cancel}, {"plan", counted + "&do=requeue&state=garbage", Requeue},
		{"schedule", "name=a&do=pause", Pause}, {"schedule", "name=a&do=resume", Pause},
		{"schedule", "name=a&do=run", RunNow},
		{"pause", "do=pause&for=0s", Pause}, {"limits", "do=set&rate=5&per=1s", SetLimits}, {"limits", "do=lift", SetLimits},
	} {
		rights = slices.DeleteFunc(slices.Clone(all), func(a Action) bool { return a == c.right })
		f.wants(http.StatusForbidden, f.ask(http.MethodPost, c.page, c.form+"&q=orders"), c.page, c.form, c.right)
		rights = all
		if f.get(c.page+"?q=orders&"+c.form).code == http.StatusSeeOther { // it asks first
			t.Errorf("%s %s by GET: it is done", c.page, c.form)
		}
	}
	if c, err := f.monitor("orders").Counts(f.Context()); err != nil || c.Paused || c.Pending != 1 {
		t.Errorf("%+v, %v", c, err)
	}
	rights = []Action{RunNow}
	message := f.get(address("message", "q", "orders", "id", id)).body
	f.sees(message, ">Run now<")
	f.lacks(message, ">Cancel<", `value="skip"`)
	f.serve(Config{})
	f.sees(f.wants(http.StatusForbidden, f.ask(http.MethodPost, "act", one+"&q=orders&do=run")), "read-only")
}

func TestPauseAndResume(t *testing.T) {
	f := newFixture(t, Config{Authorize: allowed})
	f.sent("orders", "a", delayqueue.WithDelay(time.Hour))
	f.sees(f.get("pause?q=orders").body, "For how long", `name="for"`, `name="do" value="pause"`)
	f.lacks(f.get("pause?q=orders").body, `value="keep"`)
	var end time.Time
	for _, c := range []struct {
		form          string
		code          int
		paused, until bool
		says          string
	}{
		{"do=pause", http.StatusBadRequest, false, false, "For how long"},
		{"do=pause&for=3s", http.StatusBadRequest, false, false, "For how long"},
		{"do=pause&for=keep", http.StatusBadRequest, false, false, "For how long"},
		{"do=x&for=1h0m0s", http.StatusBadRequest, false, false, "For how long"},
		{"do=pause&for=1h0m0s&reason=card+provider+down", http.StatusSeeOther, true, true, "card provider down"},
		{"do=pause&for=keep&reason=and+stock", http.StatusSeeOther, true, true, "and stock"},
		{"do=resume", http.StatusSeeOther, false, false, "For how long"},
		{"do=pause&for=0s", http.StatusSeeOther, true, false, `<option value="keep">leave the end as it is`},
		{"do=pause&for=keep", http.StatusSeeOther, true, false, "Resume"},
	} {
		got := f.ask(http.MethodPost, "pause", "q=orders&"+c.form)
		now, err := f.monitor("orders").Counts(f.Context())
		if err != nil || got.code != c.code || now.Paused != c.paused || now.PausedUntil.IsZero() == c.until {
			t.Errorf("%s: %d; %+v, %v", c.form, got.code, now, err)
		}
		if keeps := strings.Contains(c.form, "=keep"); keeps && !now.PausedUntil.Equal(end) {
			t.Errorf("%s: until %v, before until %v", c.form, now.PausedUntil, end)
		}
		end = now.PausedUntil
		f.eventually(c.form+": the page says so", func() bool {
			return strings.Contains(f.get("pause?q=orders").body, c.says)
		})
	}
}
