package web

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"log/slog"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/go-delayqueue/delayqueue/schedule"
)

// consume starts a consumer until the end of the test.
func (f *fixture) consume(queue string, handle delayqueue.Handler) {
	q := delayqueue.NewQueue(queue, f.cli, nil).WithHandler(handle).WithLogger(slog.New(slog.DiscardHandler)).
		WithFetchInterval(20 * time.Millisecond)
	q.StartConsume()
	f.Cleanup(q.StopConsume)
}

func (f *fixture) monitor(queue string) *ops.Queue {
	return ops.Of(delayqueue.NewMonitor(queue, f.cli))
}

// sent puts a message into a queue and returns its id.
func (f *fixture) sent(queue, payload string, opts ...delayqueue.MsgOption) string {
	f.Helper()
	info, err := delayqueue.NewPublisher(queue, f.cli).
		Send(f.Context(), payload, append([]delayqueue.MsgOption{delayqueue.WithRetryCount(0)}, opts...)...)
	ok(f, err)
	return info.ID
}

// eventually waits.
func (f *fixture) eventually(what string, done func() bool) {
	f.Helper()
	testkit.Until(f, what, done)
}

// is waits until a message is in a state.
func (f *fixture) is(queue, id string, want delayqueue.State) {
	f.Helper()
	f.eventually(fmt.Sprintf("%s is %s", id, want), func() bool {
		m, err := f.monitor(queue).Get(f.Context(), id)
		return err == nil && m.State == want || want == delayqueue.StateGone && err != nil
	})
}

// address is that of a page with a query.
func address(page string, pairs ...any) string { return linkOf(page, nil, pairs...) }

func TestMessagePage(t *testing.T) {
	f := newFixture(t, Config{})
	id := f.sent("orders", `{"order":1}`, delayqueue.WithKey("k-1"), delayqueue.WithDelay(time.Hour),
		delayqueue.WithMsgTTL(time.Minute),
		delayqueue.WithHeader("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
		delayqueue.WithHeader("region", "eu"))
	got := f.get(address("message", "q", "orders", "id", id))
	f.sees(got.body, id, "k-1", "&#34;order&#34;: 1", "region", "place here", "May wait, once due", "1 min",
		"Due for the first time")
	f.lacks(got.body, "<form method=\"post\"", "Actions")
	f.sees(f.get(address("message", "q", "orders", "key", "k-1")).body, id)
	f.sees(f.get(address("message", "q", "orders", "id", id, "as", "hex")).body, "7b 22 6f 72")
	for _, gone := range []string{"x", "01890000-0000-7000-8000-000000000000"} {
		f.wants(http.StatusNotFound, f.get(address("message", "q", "orders", "id", gone)), gone)
	}
}

func TestMessageInHand(t *testing.T) {
	f := newFixture(t, Config{})
	free := make(chan struct{})
	f.consume("orders", func(context.Context, *delayqueue.Message) error {
		<-free
		return fmt.Errorf("no luck")
	})
	id := f.sent("orders", "x")
	f.eventually("its handler", func() bool {
		return strings.Contains(f.get(address("message", "q", "orders", "id", id)).body, "Handled by process")
	})
	f.eventually("what the consumer does", func() bool {
		return strings.Contains(f.get(address("consumers", "q", "orders")).body, id)
	})
	close(free)
	f.is("orders", id, delayqueue.StateGarbage)
	f.sees(f.get(address("message", "q", "orders", "id", id)).body, "no luck", "Given up on")
	f.sees(f.get(address("messages", "q", "orders", "state", "garbage", "error", "luck", "errorhow", "contains")).body, id,
		"no luck")
	f.lacks(f.get(address("messages", "q", "orders", "state", "garbage", "error", "luck")).body, id)
}

// The last five errors of a message, each with its delivery and its instant, stay text in both languages, whatever
// hides payloads.
func TestErrorsOfMessage(t *testing.T) {
	f := newFixture(t, Config{Payload: func(string, *ops.MessageStatus) string { return "hidden" }})
	f.consume("orders", func(_ context.Context, m *delayqueue.Message) error {
		return delayqueue.RetryAfter(time.Millisecond, fmt.Errorf("try %d:\n<script>\u202e\xff", m.Failures+1))
	})
	id := f.sent("orders", "x", delayqueue.WithRetryCount(6))
	f.is("orders", id, delayqueue.StateGarbage)
	m, err := f.monitor("orders").Get(f.Context(), id)
	if err != nil || len(m.LastErrors) != 5 {
		f.Fatalf("%+v, %v", m, err)
	}
	body, zh := f.get(address("message", "q", "orders", "id", id)).body,
		f.get(address("message", "q", "orders", "id", id, "lang", "zh")).body
	f.sees(body, "Last errors", "try 7:\n&lt;script&gt;\\u202e\uFFFD", "Given up on")
	f.lacks(body, "try 2:", "<script>", "A delivery ended")
	f.sees(zh, "最近的错误")
	for _, e := range m.LastErrors {
		f.sees(body, fmt.Sprintf("Delivery %d <time", e.Delivery), fmt.Sprintf("Delivery %d went wrong", e.Delivery))
		f.sees(zh, fmt.Sprintf("第 %d 次派发 <time", e.Delivery), fmt.Sprintf("第 %d 次派发出错", e.Delivery))
	}
}

// A message that waits says how many acks are missing, and one whose ack counts for which key, in both languages.
// Jobs delete both whole.
func TestCountdownPage(t *testing.T) {
	f := newFixture(t, Config{Authorize: allowed})
	const key = "\u202e<script>&q=mails"
	hour := delayqueue.WithDelay(time.Hour)
	total := f.sent("orders", "total", delayqueue.WithKey(key), hour, delayqueue.WithCountdown(1500))
	row := f.sent("orders", "row", hour, delayqueue.WithCounts(key))
	page := func(id string, more ...any) string {
		return f.get(address("message", append([]any{"q", "orders", "id", id}, more...)...)).body
	}
	f.sees(page(total), "<dt>Acks</dt><dd>0 of 1,500 have come, 1,500 are missing</dd>")
	f.sees(page(total, "lang", "zh"), "<dt>确认</dt><dd>0 / 1,500 已到，还缺 1,500</dd>")
	f.lacks(page(total), "Its ack counts")
	count := regexp.MustCompile(`<a href="([^"]+)">The messages that count for it`).FindStringSubmatch(page(total))
	if count == nil {
		t.Fatalf("no link to the messages that count:\n%s", page(total))
	}
	f.eventually("both are found", func() bool { // a page of a search has seconds
		body := f.get(html.UnescapeString(count[1])).body
		return strings.Contains(body, total) && strings.Contains(body, row) && strings.Contains(body, "its ack counts for it")
	})
	for _, body := range []string{page(row), page(row, "lang", "zh")} {
		f.sees(body, `<code class="foreign">\u202e&lt;script&gt;&amp;q=mails</code></a>`)
		f.lacks(body, "<script>", "\u202e", "<dt>Acks", "<dt>确认")
		to := regexp.MustCompile(`(?:Its ack counts for the key|其确认计入键) <a href="([^"]+)"`).FindStringSubmatch(body)
		if to == nil {
			t.Fatalf("no link to the message that waits:\n%s", body)
		}
		f.sees(f.get(html.UnescapeString(to[1])).body, `<h1 class="name"><code>`+total)
	}

	counted, _ := f.counted(address("plan", "q", "orders", "do", "run", "state", "pending", "contains", "row"))
	f.sees(f.finish(counted), "finished")
	f.consume("orders", func(context.Context, *delayqueue.Message) error { return nil })
	f.is("orders", row, delayqueue.StateGone)
	f.sees(page(total), "1 of 1,500 have come, 1,499 are missing")
	f.sees(f.get(address("messages", "q", "orders", "text", key[3:])).body, total)
	f.batch("orders", "more ", 3)
	counted, _ = f.counted(address("plan", "q", "orders", "do", "cancel", "state", "pending"))
	f.sees(f.finish(counted, "confirm", "orders"), "finished")
	if s := check.Assert(t, f.cli, "dq", "orders"); len(s.Messages) != 0 || len(s.Missing) != 0 {
		t.Errorf("what is left:\n%s", s.Dump())
	}
}

// nextPage is where a page says that the list goes on, "" if it does not.
func nextPage(body string) string {
	to := regexp.MustCompile(`<a href="([^"]+)" rel="next">`).FindStringSubmatch(body)
	if to == nil {
		return ""
	}
	return html.UnescapeString(to[1])
}

// An id and a key are found at once. For other texts a page spends its time, and the next one goes on from there.
func TestSearch(t *testing.T) {
	f := newFixture(t, Config{})
	id := f.sent("orders", "the needle", delayqueue.WithKey("k-needle"), delayqueue.WithHeader("h", "v-needle"),
		delayqueue.WithDelay(30*time.Hour))
	f.batch("orders", "hay ", 3*searchPage)
	f.page.spend = 0 // a step
	for text, in := range map[string]string{id: "its id", "k-needle": "its key", "v-needle": "its header h",
		"h=v-needle": "its header h", "the needle": "its payload"} {
		pages, body := 1, f.get(address("messages", "q", "orders", "text", text)).body
		for ; !strings.Contains(body, id); pages++ {
			onwards := nextPage(body)
			if onwards == "" {
				t.Fatalf("it ends without a find:\n%s", body)
			}
			body = f.get(onwards).body
		}
		f.sees(body, in)
		if atOnce := in == "its id" || in == "its key"; atOnce != (pages == 1) || atOnce &&
			strings.Contains(body, "data-stop=") {
			t.Errorf("%s is found on page %d", in, pages)
		}
	}
	for _, cursor := range []string{"x", "9.0.", "0.x.", "-1.0."} {
		f.wants(http.StatusBadRequest, f.get(address("messages", "q", "orders", "text", "x", "cursor", cursor)), cursor)
	}
}

// A search, and a list of some, tells the script that it goes on, how far it is of how many, and when it ends; each
// part goes on from the one before.
func TestSearchGoesOn(t *testing.T) {
	f := newFixture(t, Config{})
	f.batch("orders", "x", 1501)
	f.page.spend = 0
	of := regexp.MustCompile(`Looked at (?:all, (1,501) messages|([0-9,]+) of 1,501)`)
	for _, page := range []string{address("messages", "q", "orders", "state", "pending", "contains", "nobody"),
		address("messages", "q", "orders", "text", "nobody")} {
		parts, before := 0, -1
		for ; page != ""; parts++ {
			body := f.get(page).body
			looked := of.FindStringSubmatch(body)
			if looked == nil {
				t.Fatalf("%s: %s", page, body)
			}
			now, _ := strconv.Atoi(strings.ReplaceAll(looked[1]+looked[2], ",", ""))
			if now <= before {
				t.Errorf("%s: looked at %d, before at %d", page, now, before)
			}
			before, page = now, nextPage(body)
			if all := looked[1] != ""; all == (page != "") {
				t.Errorf("after %d: says that all were looked at: %t", now, all)
			}
			if goesOn := page != ""; goesOn != strings.Contains(body, "data-stop=") ||
				goesOn != strings.Contains(body, "<progress") {
				t.Errorf("after %d: it does not say whether it goes on: %s", now, body)
			}
		}
		if before != 1501 || parts < 2 {
			t.Errorf("looked at %d in %d parts", before, parts)
		}
	}
	f.lacks(f.get("messages?q=orders&state=pending").body, "data-stop=", "Looked at")
}

// Pages by cursor meet each message once, and show some at a time.
func TestPagesOfMessages(t *testing.T) {
	f := newFixture(t, Config{})
	const many = 2*pageRows + 20
	f.batch("orders", "x", many)
	ids, met := regexp.MustCompile(`<code>([0-9a-f-]{36})</code>`), map[string]bool{}
	for page := address("messages", "q", "orders", "state", "pending"); page != ""; {
		body := f.get(page).body
		found := ids.FindAllStringSubmatch(body, -1)
		if len(found) > pageRows || len(found) == 0 {
			t.Fatalf("%s shows %d", page, len(found))
		}
		for _, id := range found {
			if met[id[1]] {
				t.Errorf("%s is there twice", id[1])
			}
			met[id[1]] = true
		}
		page = nextPage(body)
	}
	if len(met) != many {
		t.Errorf("met %d of %d", len(met), many)
	}
}

func TestSchedulesPage(t *testing.T) {
	f := newFixture(t, Config{})
	f.sent("reports", "x", delayqueue.WithDelay(time.Hour))
	f.sees(f.get(address("schedules", "q", "reports")).body, "has no schedules")
	s := schedule.New(delayqueue.NewPublisher("reports", f.cli))
	for _, e := range []schedule.Entry{
		{Name: "<b>nightly", Cron: "30 3 * * *", Zone: "Europe/Berlin", Payload: "x"},
		{Name: "pulse", Every: time.Hour, Payload: "x", Overlap: schedule.Skip},
	} {
		ok(t, s.Set(f.Context(), e))
	}
	ok(t, f.cli.HSet(f.Context(), "{dq:reports}:schedules", "\x00skipped/pulse", "1234 5 1").Err())
	const looked = "\x00looked" // a replica that runs the schedules would write this
	ok(t, f.cli.HSet(f.Context(), "{dq:reports}:schedules", looked, time.Now().Unix()+600).Err())
	f.serve(Config{})
	body := f.get(address("schedules", "q", "reports")).body
	f.sees(body, "&lt;b&gt;nightly", "Europe/Berlin", "this instant is skipped", "1,234: the last message still lived",
		"5: nobody ran them")
	if n := strings.Count(body, "<li><time"); n != 2*nextInstants {
		t.Errorf("%d instants", n)
	}
	f.lacks(body, "schedule?", "Overdue since") // who may only look has no buttons
}

// A schedule that is not sent says why and since when, and an operator pauses, resumes and runs it.
func TestSchedulesAreSteered(t *testing.T) {
	var rights []Action
	f := newFixture(t, Config{Authorize: only(&rights)})
	s := schedule.New(delayqueue.NewPublisher("reports", f.cli))
	ok(t, s.Set(f.Context(), schedule.Entry{Name: "<pulse>", Every: time.Hour, Payload: "beat", Overlap: schedule.Skip}))
	const entry = `{"gen":1,"since":1700000000,"every":3600}`
	ok(t, f.cli.HSet(f.Context(), "{dq:reports}:schedules", "late", entry).Err())
	page := address("schedules", "q", "reports")
	f.lacks(f.get(page).body, "do=pause", "do=run", "do=resume")
	rights = []Action{Pause, RunNow}
	body := f.get(page).body
	f.sees(body, "No replica runs", "Overdue since", "2023-11-14 23:00:00", "do=pause", "do=run")
	f.lacks(body, "Next instants", "do=resume")

	name := form("q", "reports", "name", "<pulse>")
	f.sees(f.get("schedule?do=run&"+name).body, "Run now", "&lt;pulse&gt;", `name="reason"`)
	f.sees(f.did("schedule", name+"&do=pause&reason=month+end"), "The schedule is paused", "it is paused", "month end",
		"by ann", "do=resume")
	f.sees(f.did("schedule", name+"&do=run"), "A message of the schedule was sent")
	f.sees(f.get(address("messages", "q", "reports", "text", "beat")).body, "ready")
	f.sees(f.wants(http.StatusConflict, f.ask(http.MethodPost, "schedule", name+"&do=run")), "still lives")
	f.sees(f.did("schedule", name+"&do=resume"), "The schedule goes on")
	f.wants(http.StatusNotFound, f.ask(http.MethodPost, "schedule", "q=reports&name=none&do=pause"))
	f.wants(http.StatusBadRequest, f.ask(http.MethodPost, "schedule", name+"&do=remove"))
	f.eventually("the journal has all of it", func() bool {
		journal := f.get("journal?q=reports").body
		return strings.Contains(journal, "pause schedule") && strings.Contains(journal, "month end") &&
			strings.Contains(journal, "run schedule") && strings.Contains(journal, "resume schedule")
	})
}

// Of many schedules, or long ones, the page shows some, and cuts.
func TestSchedulesAreBounded(t *testing.T) {
	f := newFixture(t, Config{})
	f.sent("reports", "x", delayqueue.WithDelay(time.Hour))
	entries := map[string]any{}
	for i := range rowsSchedules + 7 {
		entries[fmt.Sprintf("entry %03d", i)] = `{"gen":1,"since":1700000000,"cron":"0 9 * * *"}`
	}
	entries["entry 000"] = `{"gen":1,"since":1700000000,"cron":"` + strings.Repeat("1,", 100_000) + `1 * * * *"}`
	ok(t, f.cli.HSet(f.Context(), "{dq:reports}:schedules", entries).Err())
	got := f.get(address("schedules", "q", "reports"))
	f.sees(got.body, "Others: 7.", "entry 000", "entry 299")
	f.lacks(got.body, "entry 300", strings.Repeat("1,", 500))
	if n := strings.Count(got.body, "<li><time"); n > mostSchedules*nextInstants+rowsSchedules || len(got.body) > 1<<20 {
		t.Errorf("%d instants, %d bytes", n, len(got.body))
	}
}

// A page reads no message that is larger than it may show.
func TestLargeMessageIsNotRead(t *testing.T) {
	f := newFixture(t, Config{})
	id := f.sent("orders", strings.Repeat("x", maxRead+1), delayqueue.WithDelay(time.Hour))
	f.sees(f.get(address("message", "q", "orders", "id", id)).body, "too large for this page", id)
	f.sees(f.get(address("messages", "q", "orders", "state", "pending")).body, "too large to be read here", id)
}

// What is looked for fits into an address that proxies pass on; else a sentence says so.
func TestLongSelectionIsRefused(t *testing.T) {
	f := newFixture(t, Config{Authorize: allowed})
	f.sent("orders", "a", delayqueue.WithDelay(time.Hour))
	for _, name := range []string{"key", "contains", "error", "like", "header", "text"} {
		for _, page := range []string{"messages", "plan"} {
			got := f.get(address(page, "q", "orders", "state", "pending", "do", "run", name, strings.Repeat("x", 5000)))
			f.sees(f.wants(http.StatusBadRequest, got, name, page), "too long for an address")
			if got := f.get(address(page, "q", "orders", "state", "pending", "do", "run", name,
				strings.Repeat("é", 500))); got.code != http.StatusOK && name != "text" {
				t.Errorf("%s of %s: %d", name, page, got.code)
			}
		}
	}
}

// A page costs a bounded text, whatever a message holds.
func TestWhatAMessageHoldsIsBounded(t *testing.T) {
	f := newFixture(t, Config{})
	nested := strings.Repeat("[", 9000) + strings.Repeat("]", 9000)
	wide := "[" + strings.TrimSuffix(strings.Repeat(strings.Repeat("[", 90)+strings.Repeat("]", 90)+",", 1300), ",") + "]"
	for what, payload := range map[string]string{
		"nested":           nested,
		"nested, and wide": "[" + strings.TrimSuffix(strings.Repeat(nested+",", 12), ",") + "]",
		"less deep":        wide,
		"in a key":         `{"` + strings.Repeat("{", 9000) + `":` + nested + "}",
		"ends too early":   strings.Repeat("[1,", 80_000),
		"quotes":           "[" + strings.TrimSuffix(strings.Repeat(`"",`, 80_000), ",") + "]",
	} {
		if what != "ends too early" && !json.Valid([]byte(payload)) {
			t.Fatalf("%s is no JSON", what)
		}
		id := f.sent("orders", payload, delayqueue.WithDelay(time.Hour))
		for _, as := range []string{"", "json", "text"} {
			got := f.get(address("message", "q", "orders", "id", id, "as", as))
			if got.code != http.StatusOK || len(got.body) > 1<<20 {
				t.Errorf("%s as %q: %d, %d bytes", what, as, got.code, len(got.body))
			}
		}
	}
	small := f.sent("orders", `{"a":["]",1]}`, delayqueue.WithDelay(time.Hour))
	f.sees(f.get(address("message", "q", "orders", "id", small)).body,
		"{\n  &#34;a&#34;: [\n    &#34;]&#34;,\n    1\n  ]\n}")

	headers := []delayqueue.MsgOption{delayqueue.WithDelay(time.Hour)}
	for i := range 5000 {
		headers = append(headers, delayqueue.WithHeader(fmt.Sprint("header ", i), strings.Repeat("<", 400)))
	}
	many := f.sent("orders", "x", headers...)
	got := f.get(address("message", "q", "orders", "id", many))
	if len(got.body) > 1<<20 {
		t.Errorf("headers: %d bytes", len(got.body))
	}
	f.sees(got.body, "Others: 4,800.")

	result := f.sent("results", "x", delayqueue.WithRetention(time.Hour))
	f.consume("results", func(ctx context.Context, _ *delayqueue.Message) error {
		return delayqueue.SetResult(ctx, strings.Repeat("\x01", 1<<20))
	})
	f.is("results", result, delayqueue.StateDone)
	got = f.get(address("message", "q", "results", "id", result))
	if len(got.body) > 1<<20 {
		t.Errorf("result: %d bytes", len(got.body))
	}
	f.sees(got.body, "Bytes 0 to 65,536 of 1,048,576")
}

// fitsAsJSON knows, before anything is made, how large it would be.
func TestJSONIsMeasured(t *testing.T) {
	for _, text := range []string{`{}`, `[]`, `{"a":"\\\"[","b":[1,2,{"c":null}]}`, "[" + strings.Repeat("1,", 100_000) +
		"1]"} {
		laidOut, err := json.MarshalIndent(json.RawMessage(text), "", "  ")
		ok(t, err)
		if got := fitsAsJSON(text); got != (len(laidOut) < jsonShown) {
			t.Errorf("%.40s, %d bytes laid out: %v", text, len(laidOut), got)
		}
	}
}

func TestVisible(t *testing.T) {
	for text, want := range map[string]string{
		"a\tb\n": "a\tb\n", "a\u200bb": `a\u200bb`, "a\U000e0041b": `a\U000e0041b`, "a\xffb": `a\xffb`,
		"\x1b[2J": `\u001b[2J`,
	} {
		if got := visible(text); got != want {
			t.Errorf("visible(%q) is %q, want %q", text, got, want)
		}
	}
}
