package web

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/ops"
)

// A payload that is hidden cannot be found out by asking how many have this or that in it.
func TestHiddenPayloadsCannotBeGuessed(t *testing.T) {
	f := newFixture(t, Config{Authorize: allowed, Payload: func(string, *ops.MessageStatus) string { return "hidden" }})
	id := f.sent("orders", "a secret", delayqueue.WithDelay(time.Hour), delayqueue.WithKey("k"))
	f.sent("orders", "another", delayqueue.WithDelay(time.Hour))
	for what, got := range map[string]reply{
		"filter": f.get(address("messages", "q", "orders", "state", "pending", "contains", "secret")),
		"plan":   f.get(address("plan", "q", "orders", "do", "delete", "state", "pending", "count", "1", "contains", "secret")),
		"commit": f.ask(http.MethodPost, "plan", form("q", "orders", "do", "delete", "state", "pending", "contains", "secret",
			"before", fmt.Sprint(time.Now().UnixMicro()), "most", "9", "confirm", "orders")),
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
