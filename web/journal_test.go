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
		return strings.Contains(body, "&lt;b&gt;card provider down") && strings.Contains(body, id) && strings.Contains(body, "finished") && strings.Count(body, ">ann<") == 3
	})
}
