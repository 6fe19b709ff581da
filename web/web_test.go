package web

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/health"
	"github.com/go-delayqueue/delayqueue/internal/leaks"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
	"github.com/go-delayqueue/delayqueue/ops"
	"github.com/redis/go-redis/v9"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil { // they mostly wait
		panic(err)
	}
	leaks.Main(m)
}

// Bounds of tests: patient ones make a slow machine no outage, and rounds come quickly, because tests wait for them.
// Hasty ones are for an outage, which they tell as users see it.
var (
	patient = bounds{request: time.Hour, round: time.Hour, queue: time.Hour, find: time.Hour, begin: time.Hour,
		interval: 200 * time.Millisecond, linger: 3 * time.Second}
	hasty = bounds{request: time.Hour, round: 5 * time.Second, queue: 2 * time.Second, find: time.Hour, begin: time.Hour,
		interval: 2 * time.Second, linger: 3 * time.Second}
)

// A fixture is a page on a server of its own.
type fixture struct {
	*testing.T
	server *redistest.Server
	cli    redis.UniversalClient
	page   *Handler
	http   *httptest.Server
	log    *testkit.Buffer
}

func newFixture(t *testing.T, c Config) *fixture {
	t.Helper()
	t.Parallel()
	f := &fixture{T: t, server: redistest.Start(t), log: &testkit.Buffer{}}
	f.cli = f.server.Client(t)
	f.serve(c)
	return f
}

// Context has an end, until which a Monitor's read is tried: without one it is given up on after two seconds.
func (f *fixture) Context() context.Context { return queuetest.Within(f, queuetest.Patience) }

// serve mounts a page of its own at /queues/, with an empty cache.
func (f *fixture) serve(c Config) {
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(f.log, nil))
	}
	f.page = New(f.cli, c)
	f.page.bounds = patient
	mux := http.NewServeMux()
	mux.Handle("/queues/", f.page)
	f.http = httptest.NewServer(mux)
	f.Cleanup(f.http.Close)
	f.Cleanup(f.page.Close)
}

// batch puts n messages into a queue, with numbers behind the payload, that are due in an hour.
func (f *fixture) batch(queue, payload string, n int) {
	f.Helper()
	all := make([]delayqueue.Outgoing, n)
	for i := range all {
		all[i] = delayqueue.Outgoing{Payload: fmt.Sprint(payload, i),
			Options: []delayqueue.MsgOption{delayqueue.WithDelay(time.Hour)}}
	}
	ok(f, errOf(delayqueue.NewPublisher(queue, f.cli).SendBatch(f.Context(), all)))
}

// A reply is a page as it came.
type reply struct {
	code   int
	header http.Header
	body   string
}

// ask asks for a page below /queues/; edit may change the request.
func (f *fixture) ask(method, path, form string, edit ...func(*http.Request)) reply {
	f.Helper()
	r, err := http.NewRequestWithContext(f.Context(), method, f.http.URL+"/queues/"+path, strings.NewReader(form))
	ok(f, err)
	if form != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, e := range edit {
		e(r)
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	got, err := transport.RoundTrip(r) // follows no redirect
	ok(f, err)
	defer got.Body.Close()
	body, err := io.ReadAll(got.Body)
	ok(f, err)
	return reply{got.StatusCode, got.Header, string(body)}
}

func (f *fixture) get(path string, edit ...func(*http.Request)) reply {
	f.Helper()
	return f.ask(http.MethodGet, path, "", edit...)
}

// did sends a form, and returns the page that it leads to.
func (f *fixture) did(page, form string) string {
	f.Helper()
	got := f.ask(http.MethodPost, page, form)
	f.wants(http.StatusSeeOther, got, page, form)
	return f.get(got.header.Get("Location")).body
}

// wants fails unless a reply has this code, and returns what it says.
func (f *fixture) wants(code int, got reply, what ...any) (body string) {
	f.Helper()
	if got.code != code {
		f.Errorf("%.80q: %d, want %d: %s", what, got.code, code, got.body)
	}
	return got.body
}

// sees fails unless all texts are there.
func (f *fixture) sees(in string, texts ...string) {
	f.Helper()
	testkit.Has(f, in, texts...)
}

func (f *fixture) lacks(in string, texts ...string) {
	f.Helper()
	for _, text := range texts {
		if strings.Contains(in, text) {
			f.Errorf("there is %q in:\n%s", text, in)
		}
	}
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func TestBoard(t *testing.T) {
	f := newFixture(t, Config{})
	for i := range 3 {
		f.sent("orders", fmt.Sprint(i), delayqueue.WithDelay(time.Hour))
	}
	f.sent("mails", "x")
	ok(t, f.cli.Set(f.Context(), "{dq:bad}:pending", "x", 0).Err())
	ok(t, f.cli.HSet(f.Context(), "{dq:bad}:state", "x", "1").Err())
	body := f.wants(http.StatusOK, f.get(""))
	f.sees(body, ">orders<", "<span>3</span>", ">mails<", "no consumers", ">bad<", "cannot be read", "WRONGTYPE")
	bad, mails, orders := strings.Index(body, ">bad<"), strings.Index(body, ">mails<"), strings.Index(body, ">orders<")
	if bad > mails || mails > orders {
		t.Error("not the worst first")
	}
	f.sees(f.get("", header("Accept-Language", "fr, zh-CN;q=0.9, en;q=0.3")).body, "没有消费者", `lang="zh"`)
}

func TestVerdictOfAPause(t *testing.T) {
	f := newFixture(t, Config{Queues: []string{"orders"}})
	f.sent("orders", "x")
	m := ops.Of(delayqueue.NewMonitor("orders", f.cli)).WithOperator("ann").WithReason("card <provider> down")
	until := time.Now().Add(48 * time.Hour)
	ok(t, m.PauseUntil(f.Context(), until))
	f.sees(f.get("queue?q=orders").body, "paused until "+until.UTC().Format("2006-01-02"), "card &lt;provider&gt; down")
}

// ok ends a test with an error.
func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// errOf is the error of a call whose result does not matter.
func errOf(_ any, err error) error { return err }

func TestHealth(t *testing.T) {
	f := newFixture(t, Config{})
	got := f.get("health")
	f.sees(got.body, "Redis is well", "Server 1", "noeviction", "snapshots", "If this machine is lost")
	f.sees(f.get("health?lang=zh").body, "Redis 正常", "淘汰策略")
	f.sees(f.listen("live?page=health").next().Parts["servers"], "Redis is well")
}

// A user who may not ask is told so, and the page is there.
func TestHealthWithoutInfo(t *testing.T) {
	f := newFixture(t, Config{})
	ok(t, f.cli.Do(f.Context(), "ACL", "SETUSER", "default", "-info").Err())
	f.sees(f.get("health").body, "info lets it")
}

// TestReaderIsEnough: a page that only reads runs on the reader's line of docs/acl.md, and Redis has nothing to
// complain about.
func TestReaderIsEnough(t *testing.T) {
	f := newFixture(t, Config{})
	f.sent("orders", "x", delayqueue.WithDelay(time.Hour))
	// The page Health asks for INFO, too.
	line := strings.ReplaceAll(queuetest.DocumentedUsers(t)["reader"][0], "{dq:orders}", "{dq:*}") + " +info"
	queuetest.SetUser(t, f.server.Client(t), line)
	reader := queuetest.ClientWith(t, &redis.Options{Addr: f.server.Addr(), Username: "reader", Password: "secret",
		DisableIdentity: true})
	f.cli = reader
	f.serve(Config{})
	for _, path := range f.pagesOf("orders") {
		if r := f.page.routes[strings.TrimSuffix(path, "?q=orders")]; r.act != "" {
			continue // it asks before it does something
		}
		if got := f.get(path); got.code != http.StatusOK && got.code != http.StatusBadRequest &&
			got.code != http.StatusNotFound {
			t.Errorf("%s: %d %s", path, got.code, got.body)
		} else if strings.Contains(got.body, "NOPERM") {
			t.Errorf("%s: %s", path, got.body)
		}
	}
	f.sees(f.get("").body, ">orders<", "<span>1</span>")
	f.sees(f.get("queue?q=orders").body, "1 in all")
	f.sees(f.get("health").body, "Version")
}

// A form acts on its queue alone: for one that is not there it makes none, and names that a browser would not send
// back as they are have no pages.
func TestFormsActOnTheirQueueAlone(t *testing.T) {
	f := newFixture(t, Config{Authorize: allowed})
	f.sent("orders", "x")
	for _, c := range []struct{ page, form string }{
		{"pause", "do=pause&for=15m0s"}, {"pause", "do=resume"}, {"limits", "do=set&rate=5&per=1s"}, {"limits", "do=clear"},
		{"act", "do=run&id=01a2064a-88dc-7242-b397-44842642a400"},
	} {
		for _, name := range []string{"orderz", "h%EF%BF%BD", "h%FF", "h%00", "cr%0D%0Ax"} {
			got := f.ask(http.MethodPost, c.page, c.form+"&q="+name)
			if got.code != http.StatusNotFound && got.code != http.StatusForbidden {
				t.Errorf("%s of %s: %d %s", c.page, name, got.code, got.header.Get("Location"))
			}
		}
	}
	keys, err := f.cli.Keys(f.Context(), "*").Result()
	for _, key := range keys {
		if !strings.HasPrefix(key, "{dq:orders}:") {
			t.Errorf("there is %q", key)
		}
	}
	if err != nil || len(keys) == 0 {
		t.Error(keys, err)
	}
	for _, name := range []string{"h%FF", "h%00", "cr%0D%0Ax"} {
		for _, page := range []string{"pause", "limits", "act", "plan"} {
			f.wants(http.StatusNotFound, f.get(page+"?do=run&state=pending&id=x&q="+name), page, name)
		}
	}
}

// Before something is done to all, the page says by how much and how fast.
func TestPlanSaysHow(t *testing.T) {
	f := newFixture(t, Config{Authorize: allowed})
	f.batch("orders", "x", 25)
	_, body := f.counted(address("plan", "q", "orders", "state", "pending", "do", "postpone", "by", "168h0m0s", "rate",
		"10"))
	f.sees(body, "By how much</span> <code class=\"foreign\">7 d, from the instant at which each is due<",
		`<option value="10" selected>`, "pause the queue first", "Postpone by 7 d: 25 messages</button>")
	_, body = f.counted(address("plan", "q", "orders", "state", "pending", "do", "cancel"))
	f.sees(body, `<option value="0" selected>as fast as it goes`, "Cancel: 25 messages</button>")
	f.lacks(body, "By how much")
}

// The board says how many queues its verdict is about, and finds one by name.
func TestBoardFindsQueues(t *testing.T) {
	f := newFixture(t, Config{})
	for i := range 3 {
		f.sent(fmt.Sprint("Orders ", i), "x", delayqueue.WithDelay(time.Minute))
	}
	f.sent("mails", "x", delayqueue.WithDelay(time.Minute))
	all := f.get("").body
	f.sees(all, "of 4</h1>", ">mails<", ">Orders 1<")
	some := f.get("?name=orders").body
	f.sees(some, ">Orders 0<", ">Orders 2<", `value="orders"`, "of 4</h1>")
	f.lacks(some, ">mails<")
	f.sees(f.get("?name=nothing").body, "There is no such queue")
	// None is known yet, because no look has ended.
	f.serve(Config{})
	f.page.bounds.find = time.Nanosecond
	f.page.poller.looking = make(chan finding)
	f.sees(f.get("").body, "Queues may be missing", "The list of queues may be incomplete")
	some = f.get("?name=nothing").body
	f.sees(some, "Whether there is such a queue is not known")
	f.lacks(some, "There is no such queue")
	// One that is not among those that are shown.
	f.serve(Config{})
	f.page.poller.found = finding{names: []string{"mails"}, hidden: true, again: time.Now().Add(time.Hour)}
	some = f.get("").body
	f.sees(some, "There are more queues than are shown", ">mails<")
	f.lacks(some, "All is well. ", ">Orders 1<")
	f.sees(f.get("?name=Orders+1").body, ">Orders 1<")
	f.wants(http.StatusOK, f.get("?name="+strings.Repeat("x", 9000)))
}

// With more queues than are shown nothing is simply well. Queues that may be missing are not of the number that is
// said.
func TestVerdictOfSomeQueues(t *testing.T) {
	for hidden, want := range map[bool]string{false: "All is well. Queues: 1",
		true: "All is well with the 1 queues that are shown"} {
		b := &board{snapshot: &snapshot{Hidden: hidden}, Rows: []row{{Look: new(health.Look)}}}
		if b.judge(languages[0]); b.Words != want || (b.Level == 0) == hidden {
			t.Errorf("%v: %q, %v", hidden, b.Words, b.Level)
		}
	}
	b := &board{snapshot: &snapshot{Trouble: errClosed}, Rows: []row{{Look: new(health.Look),
		Verdict: verdict{Level: health.Warning}}}}
	if b.judge(languages[0]); b.Words != "Queues to look at: 1 of 1. More queues may be missing" {
		t.Error(b.Words)
	}
}
