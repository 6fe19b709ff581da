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

var (
	onwards     = regexp.MustCompile(`(?s)<form method="post" action="plan" data-onwards>.*?</form>`)
	hiddenField = regexp.MustCompile(`<input type="hidden" name="([^"]+)" value="([^"]*)">`)
	planField   = regexp.MustCompile(`name="plan" value="([^"]+)"`)
)

// onwardsOf is the form that goes on with counting, "" if a page has none.
func onwardsOf(page string) string {
	var pairs []string
	for _, field := range hiddenField.FindAllStringSubmatch(onwards.FindString(page), -1) {
		pairs = append(pairs, field[1], html.UnescapeString(field[2]))
	}
	return form(pairs...)
}

// counted counts until the plan is there.
func (f *fixture) counted(page string) (plan, body string) {
	f.Helper()
	got := f.get(page)
	for range 1000 {
		if got.code != http.StatusOK {
			f.Fatalf("%s: %d %s", page, got.code, got.body)
		}
		if more := onwardsOf(got.body); more != "" {
			got = f.ask(http.MethodPost, "plan", more)
			continue
		}
		if plan := planField.FindStringSubmatch(got.body); plan != nil {
			return plan[1], got.body
		}
		return "", got.body
	}
	f.Fatal("it counts for ever")
	return "", ""
}

// finish begins what was counted, and waits until the job has ended.
func (f *fixture) finish(plan string, more ...string) (page string) {
	f.Helper()
	return f.ended(f.begin(plan, more...))
}

// begin returns the address of the job.
func (f *fixture) begin(plan string, more ...string) string {
	f.Helper()
	got := f.ask(http.MethodPost, "plan", form(append([]string{"q", "orders", "plan", plan}, more...)...))
	if to := got.header.Get("Location"); got.code == http.StatusSeeOther && strings.HasPrefix(to, "job?") {
		return to
	}
	f.Fatalf("%d %s %s", got.code, got.header.Get("Location"), got.body)
	return ""
}

// ended waits for the end of a job.
func (f *fixture) ended(job string) (page string) {
	f.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		got := f.get(job)
		if page = got.body; got.code == http.StatusOK && !strings.Contains(page, "running") {
			return page
		}
	}
	f.Fatalf("it goes on for ever: %s", page)
	return ""
}

// What matches is counted, shown, and done; what came after the count is left alone.
func TestPlan(t *testing.T) {
	f := newFixture(t, Config{Authorize: allowed})
	for i := range 30 {
		f.sent("orders", fmt.Sprint("old ", i%2, " ", i), delayqueue.WithDelay(time.Hour))
	}
	f.send("mails", "x")
	f.sees(f.get(address("messages", "q", "orders", "state", "pending", "contains", "old 1")).body, "All that match:", `href="plan?`)
	f.sees(f.get(address("plan", "q", "orders", "state", "pending", "contains", "old 1", "do", "delete")).body, "First they are counted")
	plan, body := f.counted(address("plan", "q", "orders", "state", "pending", "contains", "old 1", "do", "delete", "count", "1"))
	f.sees(body, "15 messages, as they were at", "Type the queue")
	if n := strings.Count(body, "<li><a href=\"message?"); n != sampled {
		t.Errorf("%d are shown", n)
	}
	later := f.sent("orders", "old 1 later", delayqueue.WithDelay(time.Hour))
	if got := f.ask(http.MethodPost, "plan", form("q", "orders", "plan", plan, "confirm",
		"order")); got.code != http.StatusUnprocessableEntity {
		t.Errorf("without the queue's name: %d", got.code)
	}
	if got := f.get("plan?" + form("q", "orders", "plan", plan, "confirm", "orders")); got.code != http.StatusBadRequest {
		t.Errorf("by GET: %d", got.code)
	}
	f.sees(f.finish(plan, "confirm", "orders"), "finished: 15 done")
	f.is("orders", later, delayqueue.StatePending)
	if got := f.ask(http.MethodPost, "plan", form("q", "orders", "plan", plan, "confirm", "orders")); got.code != http.StatusConflict ||
		!strings.Contains(got.body, "somebody has begun it") {
		t.Errorf("begun twice: %d %s", got.code, got.body)
	}
	if c, err := f.monitor("orders").Counts(f.Context()); err != nil || c.Pending != 16 {
		t.Errorf("%+v %v", c, err)
	}
	for _, bad := range []string{form("q", "orders", "plan", "x"), form("q", "orders"), form("q", "mails", "plan", plan, "confirm", "mails")} {
		if got := f.ask(http.MethodPost, "plan", bad); got.code != http.StatusBadRequest {
			t.Errorf("%.60s: %d", bad, got.code)
		}
	}
	plan, _ = f.counted(address("plan", "q", "orders", "state", "pending", "do", "postpone", "by", "24h0m0s", "count", "1"))
	f.sees(f.finish(plan), "finished: 16 done")
	if m, err := f.monitor("orders").Get(f.Context(), later); err != nil || time.Until(m.At) < 24*time.Hour {
		t.Errorf("%v %v", m, err)
	}
	_, body = f.counted(address("plan", "q", "orders", "state", "garbage", "do", "requeue", "count", "1"))
	f.sees(body, "0 messages, as they were at")
}

func TestPlanIsRefused(t *testing.T) {
	may := true
	f := newFixture(t, Config{Authorize: func(_ *http.Request, do Action, _ string) (string, error) {
		if do == Look || may {
			return "ann", nil
		}
		return "", fmt.Errorf("not you")
	}})
	id := f.sent("orders", "a", delayqueue.WithDelay(time.Hour))
	plan, _ := f.counted(address("plan", "q", "orders", "state", "pending", "do", "delete", "count", "1"))
	may = false
	for name, got := range map[string]reply{
		"counting": f.get(address("plan", "q", "orders", "state", "pending", "do", "delete", "count", "1")),
		"doing":    f.ask(http.MethodPost, "plan", form("q", "orders", "plan", plan, "confirm", "orders")),
	} {
		if got.code != http.StatusForbidden {
			t.Errorf("%s: %d", name, got.code)
		}
	}
	f.is("orders", id, delayqueue.StatePending)
}
