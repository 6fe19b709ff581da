package web

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"html"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

func TestHeaders(t *testing.T) {
	f := newFixture(t, Config{})
	f.sent("orders", "x")
	for _, path := range []string{"", "queue?q=orders", "nothing", "live?page=x", "style.css", "script.js"} {
		got := f.get(path)
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "same-origin",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
		} {
			if got.header.Get(name) != want {
				t.Errorf("%q: %s: %q", path, name, got.header.Get(name))
			}
		}
		policy := got.header.Get("Content-Security-Policy")
		f.sees(policy, "default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "form-action 'self'",
			"base-uri 'none'")
		f.lacks(policy, "unsafe", "*", "data:")
		if keep := got.header.Get("Cache-Control"); !strings.HasSuffix(path, ".css") && !strings.HasSuffix(path, ".js") &&
			keep != "no-store" {
			t.Errorf("%q: Cache-Control: %q", path, keep)
		}
	}
}

// inline finds what the policy forbids.
var inline = regexp.MustCompile(`(?i)<script(>| [^s])|<style|\sstyle=|\son[a-z]+=|javascript:|https?://`)

// pagesOf are all pages that can be asked for without more than a queue.
func (f *fixture) pagesOf(queue string) (all []string) {
	for name, r := range f.page.routes {
		if r.load == nil {
			continue
		}
		if r.queue {
			name += "?q=" + url.QueryEscape(queue)
		}
		all = append(all, name)
	}
	return all
}

func TestPagesKeepThePolicy(t *testing.T) {
	f := newFixture(t, Config{Authorize: allowed})
	f.sent("orders", "x")
	for _, path := range f.pagesOf("orders") {
		if bad := inline.FindString(f.get(path).body); bad != "" {
			t.Errorf("%q has %q", path, bad)
		}
	}
}

func TestAssets(t *testing.T) {
	f := newFixture(t, Config{})
	board := f.get("").body
	for _, name := range []string{"style.css", "script.js", "icon.svg"} {
		address := regexp.MustCompile(`"(` + regexp.QuoteMeta(name) + `\?v=[0-9a-f]+)"`).FindStringSubmatch(board)
		if address == nil {
			t.Fatalf("the board has no %s", name)
		}
		got := f.get(address[1])
		f.sees(got.header.Get("Cache-Control"), "immutable")
		if tag := got.header.Get("ETag"); got.code != http.StatusOK || len(got.body) == 0 ||
			f.get(name, header("If-None-Match", tag)).code != http.StatusNotModified {
			t.Errorf("%s: %d, ETag %q", name, got.code, tag)
		}
		f.sees(f.get(name).header.Get("Cache-Control"), "no-cache")
	}
	f.wants(http.StatusMethodNotAllowed, f.ask(http.MethodPost, "style.css", "x=1"), "POST style.css")
}

// withTrap gives the page a form that must not be reached.
func (f *fixture) withTrap() (struck *int) {
	struck = new(int)
	f.page.routes["trap"] = &route{name: "trap", act: Delete, queue: true,
		post: func(context.Context, *request) (string, error) {
			*struck++
			return "./", nil
		}}
	return struck
}

func TestReadOnly(t *testing.T) {
	f := newFixture(t, Config{})
	f.sent("orders", "x")
	struck := f.withTrap()
	f.sees(f.wants(http.StatusForbidden, f.ask(http.MethodPost, "trap?q=orders", "x=1")), "This page is read-only")
	if *struck != 0 {
		t.Error("it is done")
	}
	for name, r := range f.page.routes { // of each form
		if r.post != nil {
			if got := f.ask(http.MethodPost, name+"?q=orders", "x=1"); got.code < 400 {
				t.Errorf("POST %s: %d", name, got.code)
			}
		}
	}
}

func TestForms(t *testing.T) {
	f := newFixture(t, Config{Authorize: func(r *http.Request, do Action, queue string) (string, error) {
		switch {
		case r.Header.Get("X-User") == "":
			return "", errors.New("who are you?")
		case do == Delete && queue != "orders":
			return "", errors.New("not that one")
		}
		return r.Header.Get("X-User"), nil
	}})
	f.sent("orders", "x")
	f.sent("mails", "x")
	struck := f.withTrap()
	ann := header("X-User", "ann")
	for _, c := range []struct {
		what, method, path, form string
		edit                     []func(*http.Request)
		code, struck             int
	}{
		{"nobody", "POST", "trap?q=orders", "x=1", nil, 403, 0},
		{"ann", "POST", "trap?q=orders", "x=1", []func(*http.Request){ann}, 303, 1},
		{"queue in the form", "POST", "trap", "q=orders", []func(*http.Request){ann}, 303, 1},
		{"another queue", "POST", "trap?q=mails", "x=1", []func(*http.Request){ann}, 403, 0},
		{"the form's queue does not hide the query's", "POST", "trap?q=mails", "q=orders", []func(*http.Request){
			ann}, 403, 0},
		{"by GET", "GET", "trap?q=orders", "", []func(*http.Request){ann}, 405, 0},
		{"by HEAD", "HEAD", "trap?q=orders", "", []func(*http.Request){ann}, 405, 0},
		{"by PUT", "PUT", "trap?q=orders", "x=1", []func(*http.Request){ann}, 405, 0},
		{"from another site", "POST", "trap?q=orders", "x=1", []func(*http.Request){
			ann, header("Sec-Fetch-Site", "cross-site")}, 403, 0},
		{"from a neighbour", "POST", "trap?q=orders", "x=1", []func(*http.Request){
			ann, header("Sec-Fetch-Site", "same-site")}, 403, 0},
		{"from another origin", "POST", "trap?q=orders", "x=1", []func(*http.Request){
			ann, header("Origin", "https://evil.example")}, 403, 0},
		{"from nowhere", "POST", "trap?q=orders", "x=1", []func(*http.Request){ann, header("Origin", "null")}, 403, 0},
		{"from here", "POST", "trap?q=orders", "x=1", []func(*http.Request){ann, header("Sec-Fetch-Site", "same-origin")},
			303, 1},
		{"too large", "POST", "trap?q=orders", "x=" + strings.Repeat("x", formLimit), []func(*http.Request){ann}, 400, 0},
		{"no queue", "POST", "trap", "x=1", []func(*http.Request){ann}, 403, 0},
	} {
		*struck = 0
		got := f.ask(c.method, c.path, c.form, c.edit...)
		if got.code != c.code || *struck != c.struck {
			t.Errorf("%s: %d, %d times: %s", c.what, got.code, *struck, got.body)
		}
	}
	f.sees(f.get("").body, "who are you?")
	f.sees(f.get("", ann).body, ">orders<", ">mails<")
}

// Who may not look at a queue does not see that it is there, nor does anybody see one that is not named: on the
// board, by its page or a feed.
func TestBoardShowsWhatOneMaySee(t *testing.T) {
	for name, c := range map[string]struct {
		Config
		code int
	}{
		"refused": {Config{Authorize: func(_ *http.Request, _ Action, queue string) (string, error) {
			if queue == "secret" {
				return "", errors.New("no")
			}
			return "ann", nil
		}}, http.StatusForbidden},
		"not named": {Config{Queues: []string{"orders", "orders"}}, http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, c.Config)
			f.sent("orders", "x")
			f.sent("secret", "x")
			for _, text := range []string{f.get("").body, f.listen("live?page=").next().Parts["rows"]} {
				f.sees(text, ">orders<")
				f.lacks(text, "secret")
			}
			for _, page := range []string{"queue?q=secret", "live?page=queue&q=secret"} {
				f.wants(c.code, f.get(page), page)
			}
		})
	}
}

// hostile are names of queues that want to be more than that; a queue's name has no control characters.
var hostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onmouseover='alert(1)`, `javascript:alert(1)`,
	"\u202egnp.exe\u200b",
	`</table></main>`, `../../etc/passwd`, `..`, `a/b?c#d&e=f`, "<!-- ]]>", `%s%d%!`,
}

// fieldValues are what fields hold: it is sent back as it is.
var fieldValues = regexp.MustCompile(`\bvalue="[^"]*"`)

// Whatever stands in names, messages and errors is text.
func TestHostileTextsStayText(t *testing.T) {
	f := newFixture(t, Config{Authorize: func(*http.Request, Action, string) (string, error) { return "<i>ann", nil }})
	const bad = "</pre><script>alert(1)</script><img src=x>\u202e\x00\x1b[31m\xff\xfe\"'{{.}}"
	var pages []string
	for _, queue := range hostile {
		id := f.sent(queue, bad, delayqueue.WithKey(bad), delayqueue.WithHeader(bad, bad), delayqueue.WithDelay(time.Hour))
		pages = append(append(pages, f.pagesOf(queue)...), address("message", "q", queue, "id", id))
	}
	const queue = "a/../<script>"
	f.consume(queue, func(context.Context, *delayqueue.Message) error { return errors.New(bad) })
	for i, payload := range []string{bad, bad + strings.Repeat("<b>", 1<<20/3), `{"a":"</script>` + "\u202e" + `"}`,
		strings.Repeat("[", 1000)} {
		id := f.sent(queue, payload, delayqueue.WithKey(fmt.Sprint(bad, i)))
		f.is(queue, id, delayqueue.StateGarbage)
		for _, as := range []string{"", "text", "hex", "json"} {
			pages = append(pages, address("message", "q", queue, "id", id, "as", as))
		}
		pages = append(pages, address("act", "q", queue, "do", "delete", "id", id))
	}
	pages = append(pages, "", address("messages", "q", queue, "text", "alert"),
		address("messages", "q", queue, "state", "garbage", "error", bad, "key", bad, "header", bad+"="+bad))
	for _, page := range pages {
		got := f.get(page)
		if got.code == http.StatusInternalServerError || len(got.body) > 1<<20 {
			t.Errorf("%.80q: %d, %d bytes; %s", page, got.code, len(got.body), f.log)
		}
		f.lacks(fieldValues.ReplaceAllString(strings.ReplaceAll(got.body, `<script src="script.js`, ""), ""), "<script",
			"<img src=x", "<b><b>",
			"<i>ann", "onmouseover='", `href="javascript`, "</pre><", "</table></main>", "\u202e", "\u200b", "\x00", "\x1b",
			"\xff")
	}
	board := html.UnescapeString(f.get("").body)
	for _, name := range hostile {
		f.sees(board, `href="`+link("queue", url.Values{"q": {name}})+`"`)
	}
}

// Redis's address and password are nobody's business.
func TestErrorsHideRedis(t *testing.T) {
	f := newFixture(t, Config{Queues: []string{"orders"}})
	f.page.bounds = hasty
	f.server.Stop()
	got := f.get("")
	f.sees(got.body, ">orders<", "Redis does not answer")
	f.lacks(got.body, f.server.Addr(), "127.0.0.1:")
	f.lacks(f.get("queue?q=orders").body, f.server.Addr(), "127.0.0.1:")
}

func TestPanicsAreContained(t *testing.T) {
	f := newFixture(t, Config{Authorize: func(r *http.Request, _ Action, _ string) (string, error) {
		if r.Header.Get("X-User") == "" {
			panic("no user")
		}
		return "ann", nil
	}})
	f.wants(http.StatusInternalServerError, f.get(""))
	f.sees(f.log.String(), "no user")
	f.wants(http.StatusOK, f.get("", header("X-User", "ann")))
}

// The page works wherever it is mounted.
func TestMounts(t *testing.T) {
	f := newFixture(t, Config{})
	f.sent("orders", "x")
	mux := http.NewServeMux()
	mux.Handle("/queues/", f.page)
	mux.Handle("/a/b/", http.StripPrefix("/a/b", f.page))
	mux.Handle("/c/", http.StripPrefix("/c/", f.page))
	mux.Handle("/bare", http.StripPrefix("/bare", f.page))
	mux.Handle("/t/{tenant}/", f.page)
	for path, code := range map[string]int{
		"/queues/": 200, "/queues": 307, "/a/b/": 200, "/a/b": 307, "/c/": 200, "/bare": 307, "/t/x/": 200,
		"/queues/queue?q=orders": 200, "/a/b/queue?q=orders": 200, "/c/queue?q=orders": 200, "/t/x/queue?q=orders": 200,
		"/queues/style.css": 200, "/c/style.css": 200, "/queues/nothing": 404,
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, path, nil)
		mux.ServeHTTP(w, r)
		if w.Code != code && !(code == 307 && w.Code == 301) {
			t.Errorf("%s: %d %s", path, w.Code, w.Header().Get("Location"))
		}
		if path == "/bare" && w.Header().Get("Location") != "bare/" {
			t.Errorf("%s leads to %q", path, w.Header().Get("Location"))
		}
		if code != 200 {
			continue
		}
		for _, found := range regexp.MustCompile(`(?:href|src|action|data-feed)="([^"]*)"`).FindAllStringSubmatch(
			w.Body.String(), -1) {
			if strings.HasPrefix(found[1], "/") || strings.Contains(found[1], "//") {
				t.Errorf("%s has the link %q, which is not relative", path, found[1])
			}
		}
	}
}

// An error of Redis itself names the server, too.
func TestRefusalsHideRedis(t *testing.T) {
	f := newFixture(t, Config{})
	ok(t, f.cli.Do(f.Context(), "ACL", "SETUSER", "default", "-scan").Err())
	got := f.get("").body
	f.sees(got, "NOPERM", "may be incomplete")
	f.lacks(got, f.server.Addr(), "127.0.0.1", "localhost:")
	for text, want := range map[string]string{
		"delayqueue: MOVED 866 10.1.2.3:6379": "MOVED 866 …",
		"redis: all sentinels are unreachable: dial tcp [fe80::1]:26379: no": "redis: all sentinels are unreachable: dial " +
			"tcp …: no",
		"dial unix /run/redis/a.sock: permission denied": "dial unix …: permission denied",
		"redis-0.prod.internal:6379: LOADING":            "…: LOADING",
		"not a time: 12 of 13":                           "not a time: 12 of 13",
	} {
		if got := languages[0].trouble(errors.New(text)); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
	if got := languages[0].trouble(
		&tls.CertificateVerificationError{Err: errors.New("valid for redis.internal")}); strings.Contains(got,
		"internal") {
		t.Error(got)
	}
}

// Who may look at nothing does not learn which queues there are.
func TestNamesAreNobodysBusiness(t *testing.T) {
	f := newFixture(t, Config{Queues: []string{"orders"},
		Authorize: func(*http.Request, Action, string) (string, error) { return "", errors.New("no") }})
	for _, q := range []string{"orders", "mails", "", "{}"} {
		for _, page := range []string{"queue?q=", "live?page=queue&q="} {
			f.wants(http.StatusForbidden, f.get(page+url.QueryEscape(q)), page, q)
		}
	}
}

func TestServeRefusesOtherMachines(t *testing.T) {
	f := newFixture(t, Config{})
	open, err := net.Listen("tcp", "0.0.0.0:0")
	ok(t, err)
	defer open.Close()
	if err := f.page.Serve(f.Context(), open); !errors.Is(err, ErrNotLoopback) {
		t.Errorf("%v", err)
	}
	may := New(f.cli, Config{Authorize: allowed})
	ctx, cancel := context.WithCancel(f.Context())
	cancel()
	if err := may.Serve(ctx, open); err != nil {
		t.Error(err)
	}
}

// Another name that leads here is another site's, unless it is one of the page's.
func TestHosts(t *testing.T) {
	open, named, both := &Handler{}, &Handler{cfg: Config{Hosts: []string{"Queues.example"}}}, []bool{true, false}
	for _, c := range []struct {
		host          string
		page          *Handler
		here, outside bool
	}{
		{"127.0.0.1:80", open, true, true}, {"[::1]:80", open, true, true}, {"[::1]", open, true, true},
		{"localhost", open, true, true},
		{"LOCALHOST.:80", open, true, true},
		{"10.0.0.1", open, false, true}, {"[fd00::1]:80", open, false, true}, {"queues.example:80", open, false, false},
		{"", open, false, false},
		{"queues.example", named, true, true}, {"queues.example.:80", named, true, true},
		{"evil.example", named, false, false},
		{"queues.example.evil", named, false, false},
	} {
		for _, loopback := range both {
			if got, want := c.page.answers(c.host, loopback), loopback && c.here || !loopback && c.outside; got != want {
				t.Errorf("%q, at loopback %v: %v", c.host, loopback, got)
			}
		}
	}
}

func TestServe(t *testing.T) {
	f := newFixture(t, Config{})
	f.sent("orders", "x")
	page := New(f.cli, Config{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	ctx, cancel := context.WithCancel(f.T.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- page.Serve(ctx, l) }()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	for host, code := range map[string]int{"": 200, "localhost:1": 200, "evil.example": 421} {
		r, err := http.NewRequestWithContext(f.Context(), http.MethodGet, "http://"+l.Addr().String()+"/", nil)
		ok(t, err)
		r.Host = host
		got, err := transport.RoundTrip(r)
		ok(t, err)
		got.Body.Close()
		if got.StatusCode != code {
			t.Errorf("host %q: %d", host, got.StatusCode)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
