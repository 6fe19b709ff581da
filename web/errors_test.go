package web

import (
	"errors"
	"fmt"
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/redis/go-redis/v9"
)

// bury writes garbage, of which message i died i us after base.
func (f *fixture) bury(base time.Time, n int, why func(i int) string) {
	f.Helper()
	dead, records, texts := make([]redis.Z, n), map[string]any{}, map[string]any{}
	for i := range dead {
		at, id := base.UnixMicro()+int64(i), fmt.Sprintf("01a2064a-88dc-7242-b397-%012d", i)
		dead[i] = redis.Z{Score: float64(at), Member: id}
		records[id], texts[id] = fmt.Sprint("2 1 0 ", at, " ", why(i)), "x"
	}
	ok(f, errors.Join(f.cli.HSet(f.Context(), "{dq:orders}:msg", texts).Err(),
		f.cli.HSet(f.Context(), "{dq:orders}:fail", records).Err(),
		f.cli.ZAdd(f.Context(), "{dq:orders}:garbage", dead...).Err()))
}

// The page of errors counts all garbage, in steps. A group that stands behind thousands of newer errors is there, with
// its own messages and its own plan.
func TestErrorsOfAllGarbage(t *testing.T) {
	rights := []Action{Requeue}
	f := newFixture(t, Config{Authorize: only(&rights)})
	f.sent("orders", "x", delayqueue.WithDelay(time.Hour))
	f.bury(time.Now().Add(-2*time.Hour), 5000, func(i int) string {
		switch {
		case i < 300:
			return fmt.Sprintf("smtp 550 <b>%d", i)
		case i < 1500:
			return "no stock"
		}
		return "timed out"
	})
	f.lacks(f.get("queue?q=orders").body, "smtp")
	page := func(address string) (body string) {
		f.eventually("all errors are counted", func() bool {
			body = f.get(address).body
			return strings.Contains(body, "Looked at all, 5,000 messages")
		})
		return body
	}
	body := page("errors?q=orders")
	f.sees(body, "smtp 550 &lt;b&gt;#", "for example: smtp 550 &lt;b&gt;",
		`>300</td>`, `>1,200</td>`, `>3,500</td>`, "Counted from",
		"Show them", "Requeue them")
	f.lacks(body, "&lt;time", "goes on while", "<progress", "smaller ones")
	again := regexp.MustCompile(`href="(errors[^"]*again=[^"]*)"`).FindStringSubmatch(body)
	ok(t, f.cli.ZRemRangeByRank(f.Context(), "{dq:orders}:garbage", 300, 1499).Err())
	f.sees(f.get("errors?q=orders").body, ">1,200</td>") // what was counted
	f.eventually("it is counted again", func() bool {
		body = f.get(html.UnescapeString(again[1])).body
		return strings.Contains(body, "Looked at all, 3,800 messages")
	})
	f.lacks(body, "no stock")
	anew := func(what string, want int) {
		f.eventually(what, func() bool {
			return strings.Contains(f.get("errors?q=orders").body, fmt.Sprintf("Looked at all, 3,%d messages", want))
		})
	}
	ok(t, f.cli.ZRemRangeByRank(f.Context(), "{dq:orders}:garbage", 3799, -1).Err())
	f.page.errorCounts.mu.Lock()
	for _, one := range f.page.errorCounts.all {
		one.over = one.over.Add(-staleErrors)
	}
	f.page.errorCounts.mu.Unlock()
	for range mostReaders {
		ok(t, f.page.readers.enter(""))
	}
	f.sees(f.get("errors?q=orders").body, "Looked at all, 3,800 messages") // there is no room for another count
	for range mostReaders {
		f.page.readers.leave("")
	}
	anew("what was counted long ago is counted again", 799)
	ok(t, f.monitor("orders").Delete(f.Context(), fmt.Sprintf("01a2064a-88dc-7242-b397-%012d", 4000)))
	anew("after an act it is counted again", 798)
	plan := regexp.MustCompile(`href="(plan[^"]*smtp[^"]*)"`).FindStringSubmatch(body)
	_, body = f.counted(html.UnescapeString(plan[1]))
	f.sees(body, "300 messages, as they were at", "smtp 550 &lt;b&gt;#")
	rights = nil
	f.lacks(f.get("errors?q=orders").body, "Requeue them")
	f.eventually("all retries are counted", func() bool {
		return strings.Contains(f.get("errors?q=orders&state=retry").body, "Looked at 0 of 0")
	})
	for _, bad := range []string{"state=pending", "state=x", "text=a"} {
		f.wants(http.StatusBadRequest, f.get("errors?q=orders&"+bad), bad)
	}
}

// A search by a header goes through all states, and a plan for what it finds changes just the messages that were
// counted in each state.
func TestPlanOverStates(t *testing.T) {
	f := newFixture(t, Config{Authorize: allowed})
	ship, hour := delayqueue.WithHeader("type", "ship"), delayqueue.WithDelay(time.Hour)
	f.sent("orders", "dead", ship)
	f.sent("orders", "dead too", delayqueue.WithHeader("type", "shipping"))
	f.consumeGarbage("orders", 2)
	for range 3 {
		f.sent("orders", "later", ship, hour)
	}
	f.sent("orders", "waits", ship, delayqueue.WithLane("a"), hour)
	waits := f.sent("orders", "waits", ship, delayqueue.WithLane("a"), hour)
	ready := f.sent("orders", "now", ship)
	other := f.sent("orders", "other", hour, delayqueue.WithHeader("type", "shipping"))
	all := []any{"q", "orders", "header", "type=ship"}
	body := f.get(address("messages", all...)).body
	same := regexp.MustCompile(`<a href="(messages\?header=type%3Dship&amp;q=orders)"`)
	for _, page := range []string{address("message", "q", "orders", "id", waits), "messages?q=orders&state=waiting",
		address("act", "q", "orders", "do", "run", "id", waits)} { // each header leads to this list
		if to := same.FindStringSubmatch(f.get(page).body); to == nil ||
			strings.Count(f.get(html.UnescapeString(to[1])).body, `<th scope="row">`) != 7 {
			t.Errorf("%s: its header is no link to that list: %q", page, to)
		}
	}
	f.sees(body, "Looked at all, 9 messages", "Count by state", "All that match:", "garbage", "later")
	if n := strings.Count(body, `<th scope="row">`); n != 7 {
		t.Errorf("%d are found", n)
	}
	_, body = f.counted(address("plan", append(all, "do", "count")...))
	f.sees(body, "7 messages, as they were at", "pending <b>4</b>", "ready <b>1</b>", "waiting <b>1</b>",
		"garbage <b>1</b>")
	f.lacks(body, "<button", "Type the queue")
	_, body = f.counted(address("plan", append(all, "do", "cancel")...))
	f.sees(body, "6 messages, as they were at", "pending, ready, waiting, retry, being handled")
	counted, body := f.counted(address("plan", append(all, "do", "postpone", "by", "24h0m0s")...))
	f.sees(body, "6 messages, as they were at", "pending <b>4</b>", "ready <b>1</b>", "pending, ready, waiting",
		"type=ship", "later")
	late := f.sent("orders", "came later", ship, hour)
	f.sees(f.finish(counted), "finished: 6 done")
	m := f.monitor("orders")
	for id, want := range map[string]bool{waits: true, ready: true, other: false, late: false} {
		got, err := m.Get(f.Context(), id)
		ok(t, err)
		if postponed := time.Until(got.At) > 20*time.Hour; postponed != want {
			t.Errorf("%s: postponed %v: %+v", got.Payload, postponed, got)
		}
	}
	f.wants(http.StatusBadRequest, f.get(address("plan", "q", "orders", "do", "run")), "no state, no field")
	f.wants(http.StatusBadRequest, f.ask(http.MethodPost, "act", form("q", "orders", "do", "count", "id", late)), "no act")
	f.serve(Config{})
	_, body = f.counted(address("plan", append(all, "do", "count")...))
	f.sees(body, "8 messages, as they were at")
}

// The form for some messages means all states, unless a list of some in one state is shown. Such a list names its
// state, and offers to look in all of them. Nothing is offered to be done to all if none match.
func TestStateOfAFilter(t *testing.T) {
	f := newFixture(t, Config{Authorize: allowed})
	f.sent("orders", "later", delayqueue.WithDelay(time.Hour))
	ready := f.sent("orders", "now", delayqueue.WithKey("k"))
	pending := []any{"q", "orders", "state", "pending"}
	body := f.get(address("messages", pending...)).body
	f.sees(body, `<option value="pending">`, "All of them:", "later")
	f.lacks(body, "only in the state")
	for _, by := range []string{"key", "text"} {
		body = f.get(address("messages", append(pending, by, "k")...)).body
		f.sees(body, `<option value="pending" selected>`, "There are none.",
			"Looked at all, 1 message, only in the state pending")
		f.lacks(body, "All that match:")
		all := regexp.MustCompile(`only in the state pending \(<a href="([^"]+)">all states`).FindStringSubmatch(body)
		f.sees(f.get(html.UnescapeString(all[1])).body, ready, "Looked at ")
	}
	f.sees(f.get(address("messages", "q", "orders", "state", "garbage", "key", "k")).body,
		"Looked at all, 0 messages, only in the state garbage")
	body = f.get(address("messages", "q", "orders", "key", "nobody")).body
	f.sees(body, "Looked at all, 2 messages.")
	f.lacks(body, "All that match:", "Count by state")
	f.sees(f.get(address("messages", append(pending, "contains", "later")...)).body, "All that match:")
}

// consumeGarbage makes garbage of all that is due, which are so many messages.
func (f *fixture) consumeGarbage(queue string, n int64) {
	f.Helper()
	q := delayqueue.NewQueue(queue, f.cli, func(string) bool { return false })
	done := q.StartConsume()
	f.eventually("all are garbage", func() bool {
		c, err := f.monitor(queue).Counts(f.Context())
		return err == nil && c.Garbage == n
	})
	q.StopConsume()
	<-done
}
