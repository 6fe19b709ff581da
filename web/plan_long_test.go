package web

import (
	"fmt"
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

var links = regexp.MustCompile(`(?:href|action|content)="([^"]*)"`)

// A count of a thousand, which knows each of them, goes on by a form, so no address is too long; and whoever sends that form may do no
// more than count.
func TestLongCount(t *testing.T) {
	may := true
	f := newFixture(t, Config{Authorize: func(_ *http.Request, do Action, _ string) (string, error) {
		if do == Look || do == Delete && may {
			return "ann", nil
		}
		return "", fmt.Errorf("not you")
	}})
	const n = 900
	batch := make([]delayqueue.Outgoing, n)
	for i := range batch {
		batch[i] = delayqueue.Outgoing{Payload: fmt.Sprint("some ", i), Options: []delayqueue.MsgOption{delayqueue.WithDelay(time.Hour)}}
	}
	if _, err := delayqueue.NewPublisher("orders", f.cli).SendBatch(f.Context(), batch); err != nil {
		t.Fatal(err)
	}
	f.page.spend = 0 // one step a page
	got := f.get(address("plan", "q", "orders", "state", "pending", "contains", "some", "do", "delete", "rate", "1000", "count", "1"))
	pages, longest, first := 0, 0, ""
	for ; got.code == http.StatusOK; pages++ {
		for _, link := range links.FindAllStringSubmatch(got.body, -1) {
			if address := html.UnescapeString(link[1]); len(address) > longestLink {
				t.Errorf("page %d has an address of %d bytes", pages, len(address))
			}
		}
		more := onwardsOf(got.body)
		if more == "" {
			break
		}
		if longest = max(longest, len(more)); first == "" {
			first = more
		}
		f.sees(got.body, "Counted ", `hreflang="zh"`, "contains=some")
		got = f.ask(http.MethodPost, "plan", more)
	}
	if plan := planField.FindStringSubmatch(got.body); plan == nil || pages < 2 || longest < 8<<10 {
		t.Fatalf("after %d pages, the longest form of %d bytes: %d %s", pages, longest, got.code, got.body)
	}
	f.sees(got.body, "900 messages, as they were at", "Type the queue")
	if shown := strings.Count(got.body, "<li><a href=\"message?"); shown != sampled {
		t.Errorf("%d are shown", shown)
	}
	if got := f.ask(http.MethodPost, "plan", first, header("Sec-Fetch-Site", "cross-site")); got.code != http.StatusForbidden {
		t.Errorf("from another site: %d", got.code)
	}
	for _, more := range []string{"&do=run", "&plan=" + planField.FindStringSubmatch(got.body)[1] + "&confirm=orders"} {
		f.ask(http.MethodPost, "plan", first+more)
		if n := f.pending(); n != 900 {
			t.Errorf("counting with %.10s has left %d", more, n)
		}
	}
	may = false
	if got := f.ask(http.MethodPost, "plan", first); got.code != http.StatusForbidden {
		t.Errorf("who may not do it may count: %d", got.code)
	}
	f.serve(Config{})
	if got := f.ask(http.MethodPost, "plan", first); got.code != http.StatusForbidden {
		t.Errorf("on a page that is read-only: %d", got.code)
	}
}
