package web

import (
	"context"
	"errors"
	"fmt"
	"html"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

func TestGarbageIsGrouped(t *testing.T) {
	f := newFixture(t, Config{Authorize: allowed})
	n := 0
	q := delayqueue.NewQueue("orders", f.cli, nil).WithHandler(func(context.Context, *delayqueue.Message) error {
		n++
		if n%3 == 0 {
			return errors.Join(delayqueue.ErrSkipRetry, errors.New("no customer"))
		}
		return fmt.Errorf("order %d: timed out <b>: %w", n, delayqueue.ErrSkipRetry)
	})
	for range 9 {
		f.send("orders", "x")
	}
	done := q.StartConsume()
	m := delayqueue.NewMonitor("orders", f.cli)
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		c, err := m.Counts(f.Context())
		if err != nil || time.Now().After(end) {
			t.Fatal(c, err)
		}
		if c.Garbage == 9 {
			break
		}
	}
	q.StopConsume()
	<-done
	got := f.get("queue?q=orders").body
	f.sees(got, "order #: timed out &lt;b&gt;: skip retry", `<td class="num">6</td>`, `<td class="num">3</td>`)
	f.lacks(got, "timed out <b>")
	shown := map[int]bool{} // by a group's own link, just those of the group
	for _, to := range regexp.MustCompile(`href="(messages[^"]*like=[^"]*)"`).FindAllStringSubmatch(got, -1) {
		shown[strings.Count(f.get(html.UnescapeString(to[1])).body, `<th scope="row">`)] = true
	}
	if !shown[6] || !shown[3] || len(shown) != 2 {
		t.Errorf("%v", shown)
	}
	// An error of two lines goes through a form, which ends them its own way.
	two := delayqueue.FoldError(errors.Join(delayqueue.ErrSkipRetry, errors.New("no customer")).Error())
	_, body := f.counted(address("plan", "q", "orders", "state", "garbage", "do", "requeue", "count", "1", "like",
		strings.ReplaceAll(two, "\n", "\r\n")))
	f.sees(body, "3 messages, as they were at")
}
