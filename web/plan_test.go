package web

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/ops"
)

var (
	onwards     = regexp.MustCompile(`(?s)<form action="plan" data-onwards>.*?</form>`)
	committing  = regexp.MustCompile(`(?s)<form method="post" action="plan" class="ask">.*?</form>`)
	hiddenField = regexp.MustCompile(`<input type="hidden" name="([^"]+)" value="([^"]*)">`)
)

// fieldsOf are the hidden fields of a form of a page, "" if the page has none.
func fieldsOf(kind *regexp.Regexp, page string) string {
	var pairs []string
	for _, field := range hiddenField.FindAllStringSubmatch(kind.FindString(page), -1) {
		pairs = append(pairs, field[1], html.UnescapeString(field[2]))
	}
	return form(pairs...)
}

// counted counts to the end, and returns the fields of the form that begins the job.
func (f *fixture) counted(page string) (fields, body string) {
	f.Helper()
	for range 1000 {
		got := f.get(page)
		if got.code != http.StatusOK {
			f.Fatalf("%s: %d %s", page, got.code, got.body)
		}
		more := fieldsOf(onwards, got.body)
		if more == "" {
			return fieldsOf(committing, got.body), got.body
		}
		page = "plan?" + more
	}
	f.Fatal("it counts for ever")
	return "", ""
}

// finish begins what was counted, and waits until the job has ended.
func (f *fixture) finish(counted string, more ...string) (page string) {
	f.Helper()
	return f.ended(f.begin(counted, more...))
}

// begin returns the address of the job.
func (f *fixture) begin(counted string, more ...string) string {
	f.Helper()
	got := f.ask(http.MethodPost, "plan", counted+"&"+form(more...))
	if to := got.header.Get("Location"); got.code == http.StatusSeeOther && strings.HasPrefix(to, "job?") {
		return to
	}
	f.Fatalf("%d %s %s", got.code, got.header.Get("Location"), got.body)
	return ""
}

// ended waits for the end of a job.
func (f *fixture) ended(job string) (page string) {
	f.Helper()
	f.eventually("the end of the job", func() bool {
		got := f.get(job)
		page = got.body
		return got.code == http.StatusOK && !strings.Contains(page, "running")
	})
	return page
}

// What matches is counted, shown, and done; what came after the count is left alone.
func TestPlan(t *testing.T) {
	f := newFixture(t, Config{Authorize: allowed})
	for i := range 30 {
		f.sent("orders", fmt.Sprint("old ", i%2, " ", i), delayqueue.WithDelay(time.Hour))
	}
	f.sent("mails", "x")
	f.sees(f.get(address("messages", "q", "orders", "state", "pending", "contains", "old 1")).body, "All that match:",
		`href="plan?`)
	counted, body := f.counted(address("plan", "q", "orders", "state", "pending", "contains", "old 1", "do", "cancel"))
	f.sees(body, "15 messages, as they were at", "Type the queue")
	if n := strings.Count(body, "<li><a href=\"message?"); n != sampled {
		t.Errorf("%d are shown", n)
	}
	if strings.Index(body, "<form method=\"post\"") > strings.Index(body, "<ul class=\"sample\"") {
		t.Error("the form stands below the samples")
	}
	f.sees(f.get(address("plan", "q", "orders", "state", "pending", "do", "postpone")).body, "It counts from when each",
		"First they are counted")
	later := f.sent("orders", "old 1 later", delayqueue.WithDelay(time.Hour))
	f.wants(http.StatusUnprocessableEntity, f.ask(http.MethodPost, "plan", counted+"&confirm=order"),
		"without the queue's name")
	if got := f.get("plan?" + counted + "&confirm=orders"); got.code != http.StatusOK || f.pending() != 31 {
		t.Errorf("by GET: %d, %d are left", got.code, f.pending())
	}
	f.sees(f.finish(counted, "confirm", "orders"), "finished: 15 done")
	f.is("orders", later, delayqueue.StatePending)
	f.sees(f.finish(counted, "confirm", "orders"), "finished: 0 done") // the same form once more
	f.is("orders", later, delayqueue.StatePending)
	if n := f.pending(); n != 16 {
		t.Errorf("%d are left", n)
	}
	counted, _ = f.counted(address("plan", "q", "orders", "state", "pending", "do", "postpone", "by", "24h0m0s"))
	f.sees(f.finish(counted), "finished: 16 done")
	f.sees(f.wants(http.StatusConflict, f.ask(http.MethodPost, "plan", counted), "the same form once more"),
		"begun before")
	if m, err := f.monitor("orders").Get(f.Context(), later); err != nil || time.Until(m.At) < 24*time.Hour {
		t.Errorf("%v %v", m, err)
	}
	_, body = f.counted(address("plan", "q", "orders", "state", "garbage", "do", "requeue"))
	f.sees(body, "0 messages, as they were at")
}

// A selection takes what it names, or what contains it if that was chosen. Each confirmation shows whose messages
// they are.
func TestSelectionIsExact(t *testing.T) {
	f := newFixture(t, Config{Authorize: allowed})
	const customers = 500
	batch := make([]delayqueue.Outgoing, customers)
	for i := range batch {
		batch[i] = delayqueue.Outgoing{Payload: fmt.Sprint("work of ", i),
			Options: []delayqueue.MsgOption{delayqueue.WithDelay(time.Hour), delayqueue.WithHeader("customer", fmt.Sprint(i))}}
	}
	ok(t, errOf(delayqueue.NewPublisher("orders", f.cli).SendBatch(f.Context(), batch)))
	all := []any{"q", "orders", "state", "pending", "header", "customer=77"}
	_, body := f.counted(address("plan", append(all, "do", "cancel")...))
	f.sees(body, "1 message, as they were at", "customer=77", "work of 77", "Header (name=text)")
	_, body = f.counted(address("plan", append(all, "do", "cancel", "headerhow", "contains")...))
	f.sees(body, "5 messages, as they were at", "customer=477", "work of 477", "Header contains")
	part := f.get(address("messages", append(all, "headerhow", "contains")...)).body
	f.sees(part, `value="contains" selected`, `headerhow=contains`)
	f.sees(f.get(address("messages", "q", "orders", "state", "pending", "errorhow", "contains")).body, "All of them:")
	id := regexp.MustCompile(`id=([-0-9a-f]{36})`).FindStringSubmatch(part)[1]
	f.sees(f.get(address("act", "q", "orders", "do", "cancel", "id", id)).body, "customer=77", "work of 77")
}

// What is past its deadline is passed over before and after the count, unless its deadline is lifted.
func TestPlanAnew(t *testing.T) {
	f := newFixture(t, Config{Authorize: allowed})
	id := f.sent("orders", "a", delayqueue.WithDelay(time.Hour), delayqueue.WithDeadline(time.Now().Add(2*time.Hour)))
	plan := []any{"q", "orders", "state", "pending", "do", "postpone", "by", "24h0m0s"}
	body := f.get(address("plan", plan...)).body
	f.sees(body, "0 messages, as they were at", "1 passed over: it is past its deadline by then")
	lifted := regexp.MustCompile(`href="(plan[^"]*)">Lift the deadline`).FindStringSubmatch(body)
	if lifted == nil {
		t.Fatal(body)
	}
	single := form("q", "orders", "do", "postpone", "by", "24h0m0s", "id", id)
	f.wants(http.StatusConflict, f.ask(http.MethodPost, "act", single), "past its deadline")
	counted, body := f.counted(html.UnescapeString(lifted[1]))
	f.sees(body, "1 message, as they were at", "are lifted")
	f.sees(f.finish(counted), "finished: 1 done")
	f.wants(http.StatusSeeOther, f.ask(http.MethodPost, "act", single+"&anew=1"), "without a deadline")
}

// A form that is sent twice at once shifts messages once.
func TestPlanTwiceAtOnce(t *testing.T) {
	f := newFixture(t, Config{Authorize: allowed})
	id := f.sent("orders", "x", delayqueue.WithDelay(time.Hour))
	counted, _ := f.counted(address("plan", "q", "orders", "state", "pending", "do", "postpone", "by", "24h0m0s"))
	var forms sync.WaitGroup
	var begun, refused atomic.Int32
	for range 4 {
		forms.Go(func() {
			switch got := f.ask(http.MethodPost, "plan", counted); got.code {
			case http.StatusSeeOther:
				begun.Add(1)
			case http.StatusConflict:
				refused.Add(1)
			}
		})
	}
	forms.Wait()
	m, err := f.monitor("orders").Get(f.Context(), id)
	if err != nil || begun.Load() != 1 || refused.Load() != 3 || time.Until(m.At) > 26*time.Hour {
		t.Errorf("%d begun, %d refused: %+v, %v", begun.Load(), refused.Load(), m, err)
	}
}

func TestPlanIsRefused(t *testing.T) {
	f := newFixture(t, Config{Authorize: allowed})
	id := f.sent("orders", "a", delayqueue.WithDelay(time.Hour))
	counted, _ := f.counted(address("plan", "q", "orders", "state", "pending", "do", "cancel"))
	for _, bad := range [][]string{{"before", ""}, {"before", "-5"}, {"before", "x"}, {"most", "0"}, {"most", "-1"},
		{"most", ""},
		{"do", "x"}, {"do", "count"}, {"state", "x"}, {"state", ""}, {"text", "a"}, {"do", "postpone"},
		{"do", "delete"}, {"state", "done"}} {
		fields, err := url.ParseQuery(counted + "&confirm=orders")
		ok(t, err)
		fields.Set(bad[0], bad[1])
		f.wants(http.StatusBadRequest, f.ask(http.MethodPost, "plan", fields.Encode()), bad)
	}
	f.is("orders", id, delayqueue.StatePending)
}

// No more are touched than the form says that were counted, and none that came later, whoever made it up.
func TestPlanIsBounded(t *testing.T) {
	f := newFixture(t, Config{Authorize: allowed})
	first := time.Now()
	f.batch("orders", "x", 5)
	fields := func(before time.Time, most string) string {
		return form("q", "orders", "state", "pending", "do", "cancel", "before", fmt.Sprint(before.UnixMicro()), "most", most,
			"confirm", "orders")
	}
	f.sees(f.finish(fields(first.Add(-time.Minute), "5")), "finished: 0 done")
	f.sees(f.finish(fields(time.Now(), "2")), "finished: 2 done")
	if n := f.pending(); n != 3 {
		t.Errorf("%d are left", n)
	}
}

var links = regexp.MustCompile(`(?:href|action|content)="([^"]*)"`)

// A count that goes on page by page has short addresses, shows the first ten, and is of what the page says that it
// counts.
func TestLongCount(t *testing.T) {
	rights := []Action{Cancel}
	f := newFixture(t, Config{Authorize: only(&rights)})
	f.batch("orders", "some ", 900)
	f.page.spend = 0 // one step a page
	page := address("plan", "q", "orders", "state", "pending", "contains", "some", "do", "cancel", "rate", "1000")
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
	for _, other := range [][2]string{{"do", "run"}, {"state", "garbage"}, {"contains", "b"}, {"key", "k"},
		{"header", "x=y"}, {"rate", "10"},
		{"from", "2026-01-01"}, {"like", "x"}, {"next", "rubbish"}} {
		fields, err := url.ParseQuery(first)
		ok(t, err)
		fields.Set(other[0], other[1])
		if got := f.get("plan?" + fields.Encode()); got.code != http.StatusBadRequest && got.code != http.StatusForbidden {
			t.Errorf("goes on with %q: %d", other, got.code)
		}
	}
	rights = nil
	f.wants(http.StatusForbidden, f.get("plan?"+first), "a user without the right counts")
	f.serve(Config{})
	f.wants(http.StatusForbidden, f.get("plan?"+first), "on a page that is read-only")
	if n := f.pending(); n != 900 {
		t.Errorf("counting has left %d", n)
	}
}

// What Config.Payload hides is nowhere to be seen, and cannot be found out by searching for it, or by asking how
// many have this or that in it.
func TestHiddenPayloadsCannotBeGuessed(t *testing.T) {
	f := newFixture(t, Config{Authorize: allowed, Payload: func(queue string, _ *ops.MessageStatus) string {
		return queue + " has a secret"
	}})
	id := f.sent("orders", "card 4711", delayqueue.WithDelay(time.Hour), delayqueue.WithKey("k"))
	for _, page := range []string{
		address("messages", "q", "orders", "state", "pending"), address("messages", "q", "orders"),
		address("messages", "q", "orders", "text", id),
		address("message", "q", "orders", "id", id), address("message", "q", "orders", "key", "k", "as", "hex"),
		address("act", "q", "orders", "do", "run", "id", id),
	} {
		f.lacks(f.get(page).body, "card", "4711", "63 61 72 64")
	}
	f.sees(f.get(address("message", "q", "orders", "id", id)).body, "orders has a secret",
		"shows this text in place of the payload")
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
		"plan":   f.get(address("plan", "q", "orders", "do", "cancel", "state", "pending", "contains", "4711")),
		"commit": f.ask(http.MethodPost, "plan", form("q", "orders", "do", "cancel", "state", "pending", "contains", "4711",
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
