package web

import (
	"context"
	"errors"
	"fmt"
	"html"
	"math"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/health"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/go-delayqueue/delayqueue/schedule"
)

func TestQueuePage(t *testing.T) {
	f := newFixture(t, Config{})
	hour := time.Now().UTC().Truncate(time.Hour)
	if rest := time.Until(hour.Add(time.Hour)); rest < 20*time.Second { // it is not to end meanwhile
		time.Sleep(rest)
		hour = hour.Add(time.Hour)
	}
	for i := range 5 {
		f.sent("orders", fmt.Sprint(i), delayqueue.WithDelay(10*time.Minute))
	}
	f.sent("orders", "later", delayqueue.WithDelay(50*time.Hour))
	body := f.wants(http.StatusOK, f.get("queue?q=orders"))
	f.sees(body, "no consumers", "<b>6</b>", "The next hour, minute by minute", "5 in all, at most 5",
		"6 in all, at most 5",
		"Overdue: 0. Later than a week: 0.")
	for _, start := range []time.Time{hour.Add(-time.Hour), hour.Add(-23 * time.Hour),
		hour.Truncate(24 * time.Hour).Add(-29 * 24 * time.Hour)} {
		f.sees(body, `<th scope="row">since `+languages[0].clock(start)+`</th>
      <td class="num" data-label="Sent">6</td>`)
	}
	f.sees(f.get("").body, "Failing and new garbage: since "+hour.Add(-time.Hour).Format("15:04")+" UTC.")
	f.lacks(body, `<a class="button" href="errors`)
	day := fmt.Sprint("d", time.Now().Unix()/86400)
	ok(t, f.cli.HSet(f.Context(), "{dq:orders}:history", day, "9 9 9 0 0 0 0 4 10000 7000").Err())
	f.serve(Config{})
	f.sees(f.get("queue?q=orders").body, "Late, on average",
		`average">2 s</td><td class="num" data-label="Late, at most">7 s</td>`)
	f.lacks(body, "style=", "<style", "javascript:")
	f.wants(http.StatusNotFound, f.get("queue?q=nobody"), "a queue that is not there")
	for _, name := range []string{"", "{", "a%7Db"} {
		f.wants(http.StatusNotFound, f.get("queue?q="+name), name)
	}
}

// TestAllFindings: the page of a queue says all that is wrong, and the board the worst of it.
func TestAllFindings(t *testing.T) {
	f := newFixture(t, Config{Queues: []string{"orders"}, HungAfter: time.Millisecond})
	s := schedule.New(delayqueue.NewPublisher("orders", f.cli))
	ok(t, s.Set(f.Context(), schedule.Entry{Name: "<report>", Every: time.Hour, Payload: "x"}))
	end := make(chan struct{})
	f.consume("orders", func(context.Context, *delayqueue.Message) error { <-end; return nil })
	defer close(end)
	f.is("orders", f.sent("orders", "x"), delayqueue.StateUnack)
	f.eventually("the page says both", func() bool {
		body := f.get("queue?q=orders").body
		return strings.Contains(body, "schedules that are not sent: 1 (&lt;report&gt;: no process runs it)") &&
			strings.Contains(body, "handlers that run for more than")
	})
	for _, page := range []string{"", "queue?q=orders"} {
		f.sees(f.get(page).body, `<a href="schedules?q=orders">schedules that are not sent: 1`)
	}
	f.sees(f.get("queue?q=orders").body, `<a href="consumers?q=orders">handlers that run`)
	look := health.Look{Name: "a b", Lane: &ops.Lane{Name: "customer-42"}, Stuck: []health.Countdown{{ID: "0b1f"}}}
	for code, want := range map[health.Code]string{health.Lane: "lanes?lane=customer-42&q=a+b",
		health.Incomplete: "message?id=0b1f&q=a+b", health.Paused: ""} {
		if got := languages[0].verdict(&look, health.Verdict{Code: code}).Link; got != want {
			t.Errorf("%s: %q", code, got)
		}
	}
	f.sees(f.get("queue?q=orders&lang=zh").body, "没有进程在运行它", "个工作协程")
}

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
		f.sent("orders", "x")
	}
	done := q.StartConsume()
	f.eventually("all have failed", func() bool {
		c, err := f.monitor("orders").Counts(f.Context())
		return err == nil && c.Garbage == 9
	})
	q.StopConsume()
	<-done
	f.sees(f.get("queue?q=orders").body, `<a class="button" href="errors?q=orders">Errors</a>`)
	got := ""
	f.eventually("all are counted", func() bool {
		got = f.get("errors?q=orders").body
		return strings.Contains(got, "Looked at all, 9 messages")
	})
	f.sees(got, "order #: timed out &lt;b&gt;: skip retry", `data-label="In the last hour">6</td>`,
		`data-label="In the last hour">3</td>`)
	f.lacks(got, "timed out <b>")
	shown := map[int]bool{} // by a group's own link, just those of the group
	for _, to := range regexp.MustCompile(`href="(messages[^"]*like=[^"]*)"`).FindAllStringSubmatch(got, -1) {
		shown[strings.Count(f.get(html.UnescapeString(to[1])).body, `<th scope="row">`)] = true
	}
	if !shown[6] || !shown[3] || len(shown) != 2 {
		t.Errorf("%v", shown)
	}
	// An error of two lines goes through a form, which ends them its own way.
	two := ops.FoldError(errors.Join(delayqueue.ErrSkipRetry, errors.New("no customer")).Error())
	_, body := f.counted(address("plan", "q", "orders", "state", "garbage", "do", "requeue", "like",
		strings.ReplaceAll(two, "\n", "\r\n")))
	f.sees(body, "3 messages, as they were at")
}

// TestKinds: two consumers handle three kinds and more, of which one fails.
func TestKinds(t *testing.T) {
	f := newFixture(t, Config{})
	for range 2 {
		q := delayqueue.NewQueue("orders", f.cli, nil).WithHandler(func(_ context.Context, msg *delayqueue.Message) error {
			if kind := msg.Headers["type"]; kind == "ship" || kind == "<b>\xff" {
				return delayqueue.ErrSkipRetry
			}
			return nil
		}).WithKindHeader("type")
		q.StartConsume()
		t.Cleanup(q.StopConsume)
	}
	for _, kind := range []string{"ship", "ship", "ship", "shipping", "mail", "mail", "<b>\xff"} {
		f.sent("orders", "x", delayqueue.WithHeader("type", kind))
	}
	for i := range 20 { // the last kinds have no row
		f.sent("orders", "x", delayqueue.WithHeader("type", fmt.Sprint("z", 10+i)))
	}
	body := ""
	f.eventually("all is counted", func() bool {
		body = f.get("queue?q=orders").body
		return strings.Contains(body, "Other kinds: 4 handled, 0 failed.") && strings.Contains(body, `<td class="num">3</td>`)
	})
	rows := regexp.MustCompile(`<bdi>([^<]*)</bdi></th>\s*<td class="num">(\d+)</td><td class="num">(\d+)</td>`+
		`<td class="num">(\S*)</td>`).FindAllStringSubmatch(body, -1)
	for i, want := range []string{"ship 3 3 100%", "&lt;b&gt;\uFFFD 1 1 100%", "mail 2 0 0%", "shipping 1 0 0%",
		"z10 1 0 0%"} {
		if got := strings.Join(rows[i][1:], " "); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	links := regexp.MustCompile(`href="(messages[^"]*header=[^"]*)"`).FindAllStringSubmatch(body, -1)
	if len(links) != 1 || strings.Count(f.get(html.UnescapeString(links[0][1])).body, `<th scope="row">`) != 3 {
		t.Errorf("%q", links)
	}
	f.sees(f.get("queue?q=orders&lang=zh").body, "按类型")
}

// What is wrong now is seen behind older errors on the first page of garbage, which can be turned round.
func TestNewErrorsAreSeen(t *testing.T) {
	f := newFixture(t, Config{})
	f.sent("orders", "x", delayqueue.WithDelay(time.Hour))
	f.bury(time.Now().Add(-time.Hour), 250, func(i int) string {
		if i >= 200 {
			return "db down"
		}
		return "card declined"
	})
	page := f.get("messages?q=orders&state=garbage").body
	f.sees(page, "db down", "Latest first", `order=earliest`)
	f.lacks(page, "card declined")
	page = f.get("messages?q=orders&state=garbage&order=earliest").body
	f.sees(page, "card declined")
	f.lacks(page, "db down")
}

// What was looked for in payloads that the service hides is not told by the journal either.
func TestJournalHidesPayloads(t *testing.T) {
	f := newFixture(t, Config{Payload: func(string, *ops.MessageStatus) string { return "hidden" }})
	f.sent("orders", `my "secret" card`, delayqueue.WithDelay(time.Hour), delayqueue.WithKey("k"))
	b := ops.Bulk{States: []delayqueue.State{delayqueue.StatePending}}
	b.Contains, b.Key = `my "secret" card`, "k"
	ok(t, errOf(f.monitor("orders").BulkRunNow(f.Context(), b)))
	got := f.get(address("journal", "q", "orders")).body
	f.sees(got, "payload …", "what is pending", "key &#34;k&#34;", "finished")
	f.lacks(got, "secret", "card")
	for _, page := range []string{"journal", "messages"} {
		f.wants(http.StatusBadRequest, f.get(address(page, "q", "orders", "state", "pending", "cursor", "rubbish")), page)
	}
}

// A schedule whose sequence has gone on without it stands first, and the page says whether it begins anew, and what to
// do if not.
func TestSchedulesThatMoved(t *testing.T) {
	f := newFixture(t, Config{})
	s := schedule.New(delayqueue.NewPublisher("reports", f.cli))
	names := []string{"a", "moved", "z'end"}
	for _, name := range names {
		ok(t, s.Set(f.Context(), schedule.Entry{Name: name, Every: time.Hour, Payload: "x"}))
	}
	ok(t, f.cli.HSet(f.Context(), "{dq:reports}:schedules", "\x00looked", time.Now().Unix()+600).Err())
	for name, to := range map[string]int64{"moved": 1 << 40, "z'end": math.MaxInt64} {
		_, err := f.monitor("reports").PassSequence(f.Context(), "schedule/"+name, to)
		if !errors.Is(err, delayqueue.ErrNotFound) { // it had sent nothing
			ok(t, err)
		}
	}
	body := f.get("schedules?q=reports").body
	moved, end, fine := strings.Index(body, "by a failover or by hand. The schedule begins anew within seconds"),
		strings.Index(body, "The schedule does not begin anew by itself"), strings.Index(body, "Next instants")
	if moved < 0 || end < moved || fine < end {
		t.Errorf("%d, %d, %d", moved, end, fine)
	}
	f.sees(body[end:fine], `<a href="journal?q=reports">`, html.EscapeString(`delayqueue schedule show 'reports' 'z'\''end'
delayqueue schedule rm 'reports' 'z'\''end'
delayqueue sequences 'reports' 'schedule/z'\''end' --drop
delayqueue schedule set 'reports' 'z'\''end' …`))
	f.lacks(body[:end], "delayqueue schedule rm")
}
