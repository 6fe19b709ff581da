package web

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/ops"
)

// What Config.Payload hides is nowhere to be seen, and cannot be found out by searching for it, or by asking how many have this or that in it.
func TestHiddenPayloadsCannotBeGuessed(t *testing.T) {
	f := newFixture(t, Config{Authorize: allowed, Payload: func(queue string, _ *ops.MessageStatus) string { return queue + " has a secret" }})
	id := f.sent("orders", "card 4711", delayqueue.WithDelay(time.Hour), delayqueue.WithKey("k"))
	for _, page := range []string{
		address("messages", "q", "orders", "state", "pending"), address("messages", "q", "orders"), address("messages", "q", "orders", "text", id),
		address("message", "q", "orders", "id", id), address("message", "q", "orders", "key", "k", "as", "hex"),
		address("act", "q", "orders", "do", "run", "id", id),
	} {
		f.lacks(f.get(page).body, "card", "4711", "63 61 72 64")
	}
	f.sees(f.get(address("message", "q", "orders", "id", id)).body, "orders has a secret", "shows this text in place of the payload")
	guess := func(text string) string {
		body := f.get(address("messages", "q", "orders", "text", text)).body
		f.sees(body, "Payloads were not searched")
		return strings.ReplaceAll(body, text, "…")
	}
	if right, wrong := guess("4711"), guess("4712"); asOf.ReplaceAllString(right, "") != asOf.ReplaceAllString(wrong, "") {
		t.Errorf("a right guess tells:\n%s\nand a wrong one:\n%s", right, wrong)
	}
	for what, got := range map[string]reply{
		"filter": f.get(address("messages", "q", "orders", "state", "pending", "contains", "4711")),
		"plan":   f.get(address("plan", "q", "orders", "do", "delete", "state", "pending", "count", "1", "contains", "4711")),
		"commit": f.ask(http.MethodPost, "plan", form("q", "orders", "do", "delete", "state", "pending", "contains", "4711",
			"before", fmt.Sprint(time.Now().UnixMicro()), "most", "9", "confirm", "orders")),
	} {
		if got.code != http.StatusForbidden && got.code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", what, got.code, got.body)
		}
	}
	f.is("orders", id, delayqueue.StatePending)
}

// asOf is when a page was made.
var asOf = regexp.MustCompile(`(?s)<span id="asof">.*?</span>`)
