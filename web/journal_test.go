package web

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// What was done by the page is in the journal, with who and why.
func TestJournal(t *testing.T) {
	f := newFixture(t, Config{Authorize: allowed})
	id := f.sent("orders", "a", delayqueue.WithDelay(time.Hour))
	f.sees(f.get(address("journal", "q", "orders")).body, "Nobody has done anything")
	f.ask(http.MethodPost, "pause", form("q", "orders", "do", "pause", "for", "0s", "reason", "<b>card provider down"))
	f.ask(http.MethodPost, "act", form("q", "orders", "do", "run", "id", id))
	plan, _ := f.counted(address("plan", "q", "orders", "state", "ready", "do", "delete", "count", "1"))
	f.finish(plan, "confirm", "orders")
	f.eventually("all three", func() bool {
		body := f.get(address("journal", "q", "orders")).body
		return strings.Contains(body, "&lt;b&gt;card provider down") && strings.Contains(body, id) && strings.Contains(body, "finished") &&
			strings.Count(body, ">ann<") == 3
	})
}

// What was looked for in payloads that the service hides is not told by the journal either.
func TestJournalHidesPayloads(t *testing.T) {
	f := newFixture(t, Config{Payload: func(string, *delayqueue.MessageStatus) string { return "hidden" }})
	f.sent("orders", `my "secret" card`, delayqueue.WithDelay(time.Hour), delayqueue.WithKey("k"))
	b := delayqueue.Bulk{States: []delayqueue.State{delayqueue.StatePending}}
	b.Contains, b.Key = `my "secret" card`, "k"
	if _, err := f.monitor("orders").BulkRunNow(f.Context(), b); err != nil {
		t.Fatal(err)
	}
	got := f.get(address("journal", "q", "orders")).body
	f.sees(got, "payload …", "what is pending", "key &#34;k&#34;", "finished")
	f.lacks(got, "secret", "card")
	for _, page := range []string{"journal", "messages"} {
		if got := f.get(address(page, "q", "orders", "state", "pending", "cursor", "rubbish")); got.code != http.StatusBadRequest {
			t.Errorf("%s: %d", page, got.code)
		}
	}
}
