package web

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
)

var links = regexp.MustCompile(`(?:href|action|content)="([^"]*)"`)

// A count that goes on page by page has short addresses, shows the first ten, and is of what the page says that it counts.
func TestLongCount(t *testing.T) {
	rights := []Action{Delete}
	f := newFixture(t, Config{Authorize: only(&rights)})
	f.batch("orders", "some ", 900)
	f.page.spend = 0 // one step a page
	page := address("plan", "q", "orders", "state", "pending", "contains", "some", "do", "delete", "rate", "1000", "count", "1")
	got, pages, first := f.get(page), 0, ""
	for ; got.code == http.StatusOK; pages++ {
		for _, link := range links.FindAllStringSubmatch(got.body, -1) {
			if address := html.UnescapeString(link[1]); len(address) > longestLink {
				t.Errorf("page %d has an address of %d bytes", pages, len(address))
			}
		}
		more := fieldsOf(onwards, got.body)
		if more == "" {
			break
		}
		if len(more) > longestLink {
			t.Errorf("page %d goes on with %d bytes", pages, len(more))
		}
		if first == "" {
			first = more
		}
		f.sees(got.body, "Counted ", `hreflang="zh"`, "contains=some")
		got = f.get("plan?" + more)
	}
	if fieldsOf(committing, got.body) == "" || pages < 2 {
		t.Fatalf("after %d pages: %d %s", pages, got.code, got.body)
	}
	f.sees(got.body, "900 messages, as they were at", "Type the queue")
	if shown := strings.Count(got.body, "<li><a href=\"message?"); shown != sampled {
		t.Errorf("%d are shown", shown)
	}
	for _, other := range [][2]string{{"do", "run"}, {"state", "garbage"}, {"contains", "b"}, {"key", "k"}, {"header", "x=y"}, {"rate", "10"},
		{"from", "2026-01-01"}, {"like", "x"}, {"next", "rubbish"}} {
		fields, err := url.ParseQuery(first)
		ok(t, err)
		fields.Set(other[0], other[1])
		if got := f.get("plan?" + fields.Encode()); got.code != http.StatusBadRequest && got.code != http.StatusForbidden {
			t.Errorf("goes on with %q: %d", other, got.code)
		}
	}
	rights = nil
	if got := f.get("plan?" + first); got.code != http.StatusForbidden {
		t.Errorf("a user without the right counts: %d", got.code)
	}
	f.serve(Config{})
	if got := f.get("plan?" + first); got.code != http.StatusForbidden {
		t.Errorf("on a page that is read-only: %d", got.code)
	}
	if n := f.pending(); n != 900 {
		t.Errorf("counting has left %d", n)
	}
}
