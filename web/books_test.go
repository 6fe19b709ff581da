package web

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// The page of a queue says whether anything was lost, and takes that for accepted once a person says so.
func TestBooks(t *testing.T) {
	f := newFixture(t, Config{Authorize: allowed})
	f.sent("orders", "a", delayqueue.WithDelay(time.Hour))
	gone := f.sent("orders", "b", delayqueue.WithDelay(time.Hour))
	page := func() string { return f.get("queue?q=orders").body }
	f.sees(page(), "They balance", "No loss is known.", `<th scope="row">sent</th><td class="num">2</td>`)
	f.lacks(page(), `action="books"`)
	f.sees(f.get("").body, "No loss is known. The books of each queue go back to "+
		time.Now().UTC().Format("2006-01-02"))

	noticed := time.Now().Add(-time.Hour).UnixMicro()
	for _, do := range [][]any{{"HSET", "{dq:orders}:state", "loss", fmt.Sprintf("%d %d 40661", noticed, noticed)},
		{"HDEL", "{dq:orders}:msg", gone}, {"ZREM", "{dq:orders}:pending", gone}} {
		ok(t, f.cli.Do(f.Context(), do...).Err())
	}
	f.eventually("a loss that is not in the journal is shown", func() bool {
		body := page()
		return strings.Contains(body, "<h3>Losses</h3>") && strings.Contains(body, "): at most 40,661 messages</li>") &&
			strings.Contains(body, "They do not balance") // the books are read apart
	})
	f.lacks(page(), "No loss is known.")
	f.listen("live?page=queue&q=orders").until(func(n news) bool { // the first may have what was read before
		books := n.Parts["books"]
		return strings.Contains(books, "They do not balance") && strings.Contains(books, "at most 40,661 messages")
	})
	f.eventually("the page says what was lost", func() bool {
		body := page()
		return strings.Contains(body, "messages were lost: at most 40,661") && strings.Contains(body, `action="books"`) &&
			strings.Contains(body, "They do not balance")
	})
	f.sees(f.get("").body, "Queues that have lost messages: 1.")
	f.sees(f.get("queue?q=orders&lang=zh").body, "账目不平衡", "有消息丢失：至多 40,661 条")

	got := f.ask(http.MethodPost, "books", form("q", "orders", "reason", "the flush of Tuesday"))
	body := f.get(got.header.Get("Location")).body
	f.sees(body, "It is accepted", "They balance")
	f.lacks(body, `action="books"`)
	f.eventually("it is accepted", func() bool {
		body := page()
		return !strings.Contains(body, `action="books"`) && !strings.Contains(body, "messages were lost: at most")
	})
	f.sees(page(), "They balance", "accepted: 40,661 messages", "the flush of Tuesday",
		`<th scope="row">written off</th><td class="num">1</td>`)
	f.wants(http.StatusBadRequest, f.get("journal?q=orders&from=2026-01-02&to=2026-01-01"))
	f.wants(http.StatusOK, f.get("journal?q=orders&from=2026-01-02"))
	f.sees(f.get("journal?q=orders").body, "accept balance", "lost since", "the flush of Tuesday", ">ann<")
}

// A queue that cannot be read has no books, and no word of shards.
func TestNoBooks(t *testing.T) {
	f := newFixture(t, Config{})
	f.sent("orders", "a", delayqueue.WithDelay(time.Hour))
	ok(t, f.cli.Set(f.Context(), "{dq:orders}:ready", "x", 0).Err())
	books, there := f.listen("live?page=queue&q=orders").next().Parts["books"]
	if !there || strings.Contains(books, "without all shards") {
		t.Errorf("%v %q", there, books)
	}
}
