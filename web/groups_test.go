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

	"github.com/redis/go-redis/v9"

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

// What is wrong now is seen behind thousands of older errors: in the groups, and on the first page of garbage, which can be turned round.
func TestNewErrorsAreSeen(t *testing.T) {
	f := newFixture(t, Config{})
	f.send("orders", "x", delayqueue.WithDelay(time.Hour))
	old, dead := time.Now().Add(-time.Hour).UnixMicro(), make([]redis.Z, groupLook+250)
	records, texts := map[string]any{}, map[string]any{}
	for i := range dead {
		why := "card declined"
		if i >= groupLook+200 {
			why = "db down"
		}
		at, id := old+int64(i), fmt.Sprintf("01a2064a-88dc-7242-b397-%012d", i)
		dead[i] = redis.Z{Score: float64(at), Member: id}
		records[id], texts[id] = fmt.Sprint("2 1 0 ", at, " ", why), "x"
	}
	if err := errors.Join(f.cli.HSet(f.Context(), "{dq:orders}:msg", texts).Err(), f.cli.HSet(f.Context(), "{dq:orders}:fail", records).Err(),
		f.cli.ZAdd(f.Context(), "{dq:orders}:garbage", dead...).Err()); err != nil {
		t.Fatal(err)
	}
	f.sees(f.get("queue?q=orders").body, "db down", "card declined", "Looked at the newest 2,000 of 2,250.")
	page := f.get("messages?q=orders&state=garbage").body
	f.sees(page, "db down", "Latest first", `order=earliest`)
	f.lacks(page, "card declined")
	page = f.get("messages?q=orders&state=garbage&order=earliest").body
	f.sees(page, "card declined")
	f.lacks(page, "db down")
}
