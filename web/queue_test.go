package web

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

func TestQueuePage(t *testing.T) {
	f := newFixture(t, Config{})
	for i := range 5 {
		f.send("orders", fmt.Sprint(i), delayqueue.WithDelay(10*time.Minute))
	}
	f.send("orders", "later", delayqueue.WithDelay(50*time.Hour))
	got := f.get("queue?q=orders")
	if got.code != http.StatusOK {
		t.Fatalf("%d %s", got.code, got.body)
	}
	f.sees(got.body, "no consumers", "<b>6</b>", "The next hour, minute by minute", "5 in all, at most 5", "6 in all, at most 5",
		"The last 30 days", "Overdue: 0. Later than a week: 0.")
	if err := f.cli.HSet(f.Context(), "{dq:orders}:history", fmt.Sprint("d", time.Now().Unix()/86400), "9 9 9 0 0 0 0 4 10000 7000").
		Err(); err != nil {
		t.Fatal(err)
	}
	f.eventually("how late they were", func() bool {
		body := f.get("queue?q=orders").body
		return strings.Contains(body, "Late, on average") && strings.Contains(body, `<td class="num">2 s</td><td class="num">7 s</td>`)
	})
	f.lacks(got.body, "style=", "<style", "javascript:")
	if got := f.get("queue?q=nobody"); got.code != http.StatusNotFound {
		t.Errorf("a queue that is not there: %d", got.code)
	}
	for _, name := range []string{"", "{", "a%7Db"} {
		if got := f.get("queue?q=" + name); got.code != http.StatusNotFound {
			t.Errorf("no name at all %q: %d", name, got.code)
		}
	}
}
