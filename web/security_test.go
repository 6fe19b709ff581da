package web

import (
	"context"
	"crypto/tls"
	"errors"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/go-delayqueue/delayqueue"
)

func TestHeaders(t *testing.T) {
	f := newFixture(t, Config{})
	f.send("orders", "x")
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
		f.sees(policy, "default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "form-action 'self'", "base-uri 'none'")
		f.lacks(policy, "unsafe", "*", "data:")
		if keep := got.header.Get("Cache-Control"); !strings.HasSuffix(path, ".css") && !strings.HasSuffix(path, ".js") && keep != "no-store" {
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
	f := newFixture(t, Config{Authorize: func(*http.Request, Action, string) (string, error) { return "ann", nil }})
	f.send("orders", "x")
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
	if got := f.ask(http.MethodPost, "style.css", "x=1"); got.code != http.StatusMethodNotAllowed {
		t.Errorf("POST style.css: %d", got.code)
	}
}

// withTrap gives the page a form that must not be reached.
func (f *fixture) withTrap() (struck *int) {
	struck = new(int)
	f.page.routes["trap"] = &route{name: "trap", act: Delete, queue: true, post: func(context.Context, *request) (string, error) {
		*struck++
		return "./", nil
	}}
	return struck
}

func TestReadOnly(t *testing.T) {
	f := newFixture(t, Config{})
	f.send("orders", "x")
	struck := f.withTrap()
	if got := f.ask(http.MethodPost, "trap?q=orders", "x=1"); got.code != http.StatusForbidden || *struck != 0 {
		t.Errorf("%d %s", got.code, got.body)
	}
	f.sees(f.ask(http.MethodPost, "trap?q=orders", "x=1").body, "This page is read-only")
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
	f.send("orders", "x")
	f.send("mails", "x")
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
		{"the form's queue does not hide the query's", "POST", "trap?q=mails", "q=orders", []func(*http.Request){ann}, 403, 0},
		{"by GET", "GET", "trap?q=orders", "", []func(*http.Request){ann}, 405, 0},
		{"by HEAD", "HEAD", "trap?q=orders", "", []func(*http.Request){ann}, 405, 0},
		{"by PUT", "PUT", "trap?q=orders", "x=1", []func(*http.Request){ann}, 405, 0},
		{"from another site", "POST", "trap?q=orders", "x=1", []func(*http.Request){ann, header("Sec-Fetch-Site", "cross-site")}, 403, 0},
		{"from a neighbour", "POST", "trap?q=orders", "x=1", []func(*http.Request){ann, header("Sec-Fetch-Site", "same-site")}, 403, 0},
		{"from another origin", "POST", "trap?q=orders", "x=1", []func(*http.Request){ann, header("Origin", "https://evil.example")}, 403, 0},
		{"from nowhere", "POST", "trap?q=orders", "x=1", []func(*http.Request){ann, header("Origin", "null")}, 403, 0},
		{"from here", "POST", "trap?q=orders", "x=1", []func(*http.Request){ann, header("Sec-Fetch-Site", "same-origin")}, 303, 1},
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

// Who may not look at a queue does not see that it is there.
func TestBoardShowsWhatOneMaySee(t *testing.T) {
	f := newFixture(t, Config{Authorize: func(_ *http.Request, _ Action, queue string) (string, error) {
		if queue == "secret" {
			return "", errors.New("no")
		}
		return "ann", nil
	}})
	f.send("orders", "x")
	f.send("secret", "x")
	got := f.get("")
	f.sees(got.body, ">orders<")
	f.lacks(got.body, "secret")
	if got := f.get("queue?q=secret"); got.code != http.StatusForbidden {
		t.Errorf("%d", got.code)
	}
	first := f.listen("live?page=").next()
	f.sees(first.Parts["rows"], ">orders<")
	f.lacks(first.Parts["rows"], "secret")
	if got := f.get("live?page=queue&q=secret"); got.code != http.StatusForbidden {
		t.Errorf("its feed: %d", got.code)
	}
}

func TestOnlyNamedQueues(t *testing.T) {
	f := newFixture(t, Config{Queues: []string{"orders", "orders"}})
	f.send("orders", "x")
	f.send("mails", "x")
	f.lacks(f.get("").body, "mails")
	if got := f.get("queue?q=mails"); got.code != http.StatusNotFound {
		t.Errorf("%d", got.code)
	}
}

// hostile are texts that want to be more than that.
var hostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onmouseover='alert(1)`, `javascript:alert(1)`, "\u202egnp.exe",
	"a\x00b\x1b[31mred", "\xff\xfe\x80",
	`{{.}}`, `</table></main>`, `../../etc/passwd`, `..`, `.`, `a/b?c#d&e=f`, "a b\nc", strings.Repeat("long", 5000),
	"<!--", "]]>", `%s%d%!`, "\u200b",
}

// fieldValues are what fields hold: it is sent back as it is.
var fieldValues = regexp.MustCompile(`\bvalue="[^"]*"`)

func TestHostileNamesStayText(t *testing.T) {
	f := newFixture(t, Config{})
	var names []string
	for _, text := range hostile {
		name := strings.Map(func(r rune) rune { // what a name may hold of it
			if strings.ContainsRune("{}", r) || unicode.IsControl(r) {
				return -1
			}
			return r
		}, strings.ToValidUTF8(text, ""))
		if name == "" {
			name = "."
		}
		names = append(names, name)
		if !f.page.known(name) { // the library refuses it
			continue
		}
		f.send(name, text, delayqueue.WithHeader("x", text))
	}
	board := f.get("").body
	f.lacks(board, "<script>", "<img src=x", "onmouseover='", `href="javascript`, "\u202e", "\x00", "\x1b",
		"\xff", "</table></main>", "\u200b")
	for _, name := range names {
		if !f.page.known(name) {
			continue
		}
		address := link("queue", url.Values{"q": {name}})
		if !strings.Contains(html.UnescapeString(board), `href="`+address+`"`) {
			t.Errorf("the board has no link to %.50q", name)
		}
		for _, page := range f.pagesOf(name) {
			got := f.get(page)
			if got.code == http.StatusInternalServerError {
				t.Errorf("%.80q: %d %s", page, got.code, f.log.String())
			}
			f.lacks(fieldValues.ReplaceAllString(got.body, ""), "<script>", "<img src=x", "onmouseover='", `href="javascript`, "\u202e", "\x00",
				"\x1b", "\xff", "</table></main>")
		}
	}
}

// Redis's address and password are nobody's business.
func TestErrorsHideRedis(t *testing.T) {
	f := newFixture(t, Config{Queues: []string{"orders"}})
	f.page.bounds.round, f.page.bounds.queue = usualBounds.round, usualBounds.queue
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
	if got := f.get(""); got.code != http.StatusInternalServerError {
		t.Errorf("%d %s", got.code, got.body)
	}
	f.sees(f.log.String(), "no user")
	if got := f.get("", header("X-User", "ann")); got.code != http.StatusOK {
		t.Errorf("%d %s", got.code, got.body)
	}
}

// The page works wherever it is mounted.
func TestMounts(t *testing.T) {
	f := newFixture(t, Config{})
	f.send("orders", "x")
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
		for _, found := range regexp.MustCompile(`(?:href|src|action|data-feed)="([^"]*)"`).FindAllStringSubmatch(w.Body.String(), -1) {
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
		"delayqueue: MOVED 866 10.1.2.3:6379":                                "MOVED 866 …",
		"redis: all sentinels are unreachable: dial tcp [fe80::1]:26379: no": "redis: all sentinels are unreachable: dial tcp …: no",
		"dial unix /run/redis/a.sock: permission denied":                     "dial unix …: permission denied",
		"redis-0.prod.internal:6379: LOADING":                                "…: LOADING",
		"not a time: 12 of 13":                                               "not a time: 12 of 13",
	} {
		if got := languages[0].trouble(errors.New(text)); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
	if got := languages[0].trouble(&tls.CertificateVerificationError{Err: errors.New("valid for redis.internal")}); strings.Contains(got,
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
			if got := f.get(page + url.QueryEscape(q)); got.code != http.StatusForbidden {
				t.Errorf("%s%s: %d", page, q, got.code)
			}
		}
	}
}
