package web

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// Plans, and what is left of jobs, come from addresses and forms: whoever sends them may have made them up.

// forged is a token with other fields.
func (f *fixture) forged(token string, fields map[string]any) string {
	f.Helper()
	text, err := base64.RawURLEncoding.DecodeString(token)
	all := map[string]json.RawMessage{}
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	for name, value := range fields {
		if err == nil {
			all[name], err = json.Marshal(value)
		}
	}
	if err != nil {
		f.Fatal(err)
	}
	if text, err = json.Marshal(all); err != nil {
		f.Fatal(err)
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// cutOff is the Next of a call that deletes all in these states of orders, and has done nothing yet. It needs two messages.
func (f *fixture) cutOff(states []delayqueue.State, dry bool) string {
	f.Helper()
	b := delayqueue.Bulk{States: states, DryRun: dry, Progress: func(*delayqueue.BulkResult) bool { return false }}
	b.Limit, b.Contains = 1, "nobody has this"
	r, err := f.monitor("orders").BulkDelete(f.Context(), b)
	if err != nil || r.Next == "" {
		f.Fatalf("%+v %v", r, err)
	}
	return f.forged(r.Next, map[string]any{"of": map[string]any{}, "s": "", "t": nil, "n": 0})
}

// To take out what is being handled is no right to delete what waits.
func TestPlanOfSeveralStatesNeedsAllRights(t *testing.T) {
	f := newFixture(t, Config{Authorize: func(_ *http.Request, do Action, _ string) (string, error) {
		if do == Look || do == Cancel {
			return "ann", nil
		}
		return "", fmt.Errorf("not you")
	}})
	a, b := f.sent("orders", "a", delayqueue.WithDelay(time.Hour)), f.sent("orders", "b", delayqueue.WithDelay(time.Hour))
	for _, states := range [][]delayqueue.State{{delayqueue.StatePending}, {delayqueue.StateUnack, delayqueue.StatePending},
		{delayqueue.StatePending, delayqueue.StateUnack}} {
		plan := f.forged(f.cutOff(states, false), map[string]any{"plan": true, "frozen": true, "counted": 9})
		if got := f.ask(http.MethodPost, "plan", form("q", "orders", "plan", plan, "confirm", "orders")); got.code != http.StatusForbidden {
			t.Errorf("%v: %d %s", states, got.code, got.body)
		}
		if got := f.ask(http.MethodPost, "plan", form("q", "orders", "plan", f.cutOff(states, false), "confirm",
			"orders")); got.code != http.StatusBadRequest {
			t.Errorf("%v, what is left of a job: %d %s", states, got.code, got.body)
		}
	}
	for _, id := range []string{a, b} {
		f.is("orders", id, delayqueue.StatePending)
		if got := f.ask(http.MethodPost, "act", form("q", "orders", "do", "cancel", "id", id, "confirm",
			"orders")); got.code != http.StatusConflict {
			t.Errorf("one by one: %d", got.code)
		}
		f.is("orders", id, delayqueue.StatePending)
	}
}

// What is counted is what the page says that it counts.
func TestCountIsOfWhatThePageSays(t *testing.T) {
	f := newFixture(t, Config{Authorize: allowed})
	f.sent("orders", "a", delayqueue.WithDelay(time.Hour))
	f.sent("orders", "b", delayqueue.WithDelay(time.Hour))
	next := f.cutOff([]delayqueue.State{delayqueue.StatePending}, true)
	page := func(pairs ...string) reply {
		return f.get(address("plan", append([]string{"q", "orders", "count", "1", "next", next}, pairs...)...))
	}
	if got := page("do", "delete", "state", "pending"); got.code != http.StatusOK {
		t.Errorf("%d %s", got.code, got.body)
	}
	for _, other := range [][]string{
		{"do", "delete", "state", "garbage"}, {"do", "run", "state", "pending"}, {"do", "delete", "state", "pending", "contains", "b"},
		{"do", "delete", "state", "pending", "key", "k"}, {"do", "delete", "state", "pending", "header", "x=y"},
		{"do", "delete", "state", "pending", "rate", "10"},
		{"do", "delete", "state", "pending", "from", "2026-01-01"}, {"do", "delete", "state", "pending", "like", "x"},
	} {
		if got := page(other...); got.code != http.StatusBadRequest {
			t.Errorf("%v: %d", other, got.code)
		}
	}
	doubt := map[string]any{"doubt": map[string]any{"At": map[string]any{}}}
	for _, made := range []map[string]any{doubt, {"plan": true}} { // it would be asked for by a call that writes
		before := f.cli.HGetAll(f.Context(), "{dq:orders}:state").Val()
		token := f.forged(next, made)
		if got := f.get(address("plan", "q", "orders", "count", "1", "next", token, "do", "delete", "state",
			"pending")); got.code != http.StatusBadRequest {
			t.Errorf("%v: %d", made, got.code)
		}
		if after := f.cli.HGetAll(f.Context(), "{dq:orders}:state").Val(); !maps.Equal(before, after) {
			t.Errorf("%v: a GET has made %v of %v", made, after, before)
		}
	}
	if got := f.get(address("plan", "q", "orders", "count", "1", "next", "rubbish", "do", "delete", "state",
		"pending")); got.code != http.StatusBadRequest {
		t.Errorf("rubbish: %d", got.code)
	}
}

// A payload that is hidden cannot be found out by asking how many have this or that in it.
func TestHiddenPayloadsCannotBeGuessed(t *testing.T) {
	f := newFixture(t, Config{Authorize: allowed, Payload: func(string, *delayqueue.MessageStatus) string { return "hidden" }})
	id := f.sent("orders", "a secret", delayqueue.WithDelay(time.Hour), delayqueue.WithKey("k"))
	f.sent("orders", "another", delayqueue.WithDelay(time.Hour))
	guess := map[string]any{"of": map[string]any{"Contains": []byte("secret")}}
	pending := []delayqueue.State{delayqueue.StatePending}
	dry, next := f.forged(f.cutOff(pending, true), guess), f.forged(f.cutOff(pending, false), guess)
	for what, got := range map[string]reply{
		"filter":  f.get(address("messages", "q", "orders", "state", "pending", "contains", "secret")),
		"plan":    f.get(address("plan", "q", "orders", "do", "delete", "state", "pending", "count", "1", "contains", "secret")),
		"count":   f.get(address("plan", "q", "orders", "do", "delete", "state", "pending", "count", "1", "next", dry)),
		"of jobs": f.ask(http.MethodPost, "plan", form("q", "orders", "plan", next, "confirm", "orders")),
	} {
		if got.code != http.StatusForbidden && got.code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", what, got.code, got.body)
		}
	}
	f.is("orders", id, delayqueue.StatePending)
	for _, page := range []string{
		address("messages", "q", "orders", "state", "pending"), address("messages", "q", "orders", "text", "secret"),
		address("messages", "q", "orders", "text", id),
		address("message", "q", "orders", "id", id), address("message", "q", "orders", "key", "k", "as", "hex"),
		address("act", "q", "orders", "do", "run", "id", id),
	} {
		if got := f.get(page).body; strings.Contains(strings.ReplaceAll(got, `value="secret"`, ""), "secret") &&
			!strings.Contains(page, "text=secret") {
			t.Errorf("%s shows it", page)
		}
	}
}
