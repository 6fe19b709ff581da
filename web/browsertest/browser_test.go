package browsertest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto"
	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
)

// startBrowser starts the Chromium of all tests. end ends it.
func startBrowser() (browser context.Context, end func(), err error) {
	path, err := exec.LookPath("chromium")
	if err != nil {
		return nil, nil, fmt.Errorf("there is no chromium in PATH; run `make test-web`, which installs it: %w", err)
	}
	dir, err := os.MkdirTemp("", "browsertest-")
	if err != nil {
		return nil, nil, err
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.UserDataDir(dir),
		chromedp.Flag("disable-gpu", true), chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("hide-scrollbars", true), chromedp.WSURLReadTimeout(10*testkit.Patience))
	if os.Getuid() == 0 {
		opts = append(opts, chromedp.NoSandbox) // it refuses to start otherwise
	}
	allocated, stop := chromedp.NewExecAllocator(context.Background(), opts...)
	browser, closed := chromedp.NewContext(allocated)
	end = func() {
		closed()
		stop()
		_ = os.RemoveAll(dir) // what is left behind harms nobody
	}
	if err := chromedp.Run(browser); err != nil {
		end()
		return nil, nil, err
	}
	return browser, end, nil
}

// A look is how a page is looked at.
type look struct {
	width    int64
	language string // of Accept-Language
	script   bool
	dark     bool
}

func (l look) name() string {
	words := []string{fmt.Sprint(l.width), l.language}
	if !l.script {
		words = append(words, "without script")
	}
	if l.dark {
		words = append(words, "dark")
	}
	return strings.Join(words, " ")
}

// A tab is one of the browser's, for one test. What the browser complains of fails the test.
type tab struct {
	*testing.T
	look
	ctx context.Context
	mu  sync.Mutex
	bad []string // what the browser complained of since it was last asked
}

// newTab opens one, without cookies, and closes it at the end of the test.
func newTab(t *testing.T, l look) *tab {
	t.Helper()
	own, closeTab := chromedp.NewContext(browser)
	ctx, cancel := context.WithTimeout(own, 10*testkit.Scaled(testkit.Patience))
	tb := &tab{T: t, look: l, ctx: ctx}
	t.Cleanup(func() {
		if t.Failed() {
			tb.keepPicture()
		}
		cancel()
		closeTab()
		for _, bad := range tb.complaints() {
			t.Errorf("the browser complained: %s", bad)
		}
	})
	chromedp.ListenTarget(own, tb.hear)
	scheme := "light"
	if l.dark {
		scheme = "dark"
	}
	tb.run(
		network.ClearBrowserCookies(),
		network.SetExtraHTTPHeaders(network.Headers{"Accept-Language": l.language}),
		chromedp.EmulateViewport(l.width, 900),
		setMedia(scheme), setScript(l.script),
	)
	return tb
}

// hear notes errors of scripts, what the policy of the page forbids, and what could not be loaded.
func (tb *tab) hear(event any) {
	bad := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		bad = e.ExceptionDetails.Error()
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.APITypeError || e.Type == runtime.APITypeWarning || e.Type == runtime.APITypeAssert {
			for _, arg := range e.Args {
				bad += fmt.Sprintf("console: %s %s ", arg.Value, arg.Description)
			}
		}
	case *cdplog.EventEntryAdded:
		if e.Entry.Level == cdplog.LevelError || e.Entry.Level == cdplog.LevelWarning ||
			e.Entry.Source == cdplog.SourceSecurity {
			bad = fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL)
		}
	}
	if bad != "" {
		tb.mu.Lock()
		tb.bad = append(tb.bad, bad)
		tb.mu.Unlock()
	}
}

func (tb *tab) complaints() []string {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	bad := tb.bad
	tb.bad = nil
	return bad
}

// expect takes away complaints with this text, which are meant, and says whether there were any.
func (tb *tab) expect(text string) (heard bool) {
	tb.mu.Lock()
	defer tb.mu.Unlock()
	var rest []string
	for _, bad := range tb.bad {
		if !strings.Contains(bad, text) {
			rest = append(rest, bad)
		}
	}
	heard = len(rest) < len(tb.bad)
	tb.bad = rest
	return heard
}

func (tb *tab) run(actions ...chromedp.Action) {
	tb.Helper()
	if err := chromedp.Run(tb.ctx, actions...); err != nil {
		tb.Fatal(err)
	}
}

// open goes to an address and returns when the page is there, and says this. It asks again for a page that does not:
// where this machine was too slow, it says that Redis has not answered, and without script it does not change.
func (tb *tab) open(url string, texts ...string) {
	tb.Helper()
	for begun := testkit.Worked(); ; {
		answer, err := chromedp.RunResponse(tb.ctx, chromedp.Navigate(url))
		if err != nil {
			tb.Fatalf("%s: %v", url, err)
		}
		main, err := tb.peek("main")
		missing := slices.DeleteFunc(slices.Clone(texts), func(text string) bool {
			return err == nil && strings.Contains(main, text)
		})
		if answer.Status == 200 && len(missing) == 0 {
			return
		}
		if answer.Status != 200 && answer.Status <= 500 ||
			testkit.Worked()-begun > testkit.Patience { // 500 is of a page that panics
			tb.Fatalf("%s: status %d, without %q:\n%.3000s", url, answer.Status, missing, tb.text("body"))
		}
		time.Sleep(time.Second)
		tb.expect("a status of 50") // it is no complaint about the page; the browser may say so later than it has the page
	}
}

// js evaluates an expression of the page's; it works where the page's own scripts are off.
func js[T any](tb *tab, expression string) (value T) {
	tb.Helper()
	tb.run(chromedp.Evaluate(expression, &value))
	return value
}

// text is what a reader sees of the first element, "" if there is none.
func (tb *tab) text(selector string) string {
	tb.Helper()
	text, _ := tb.peek(selector)
	return text
}

// peek fails, without an end of the test, while one page gives way to the next.
func (tb *tab) peek(selector string) (text string, err error) {
	err = chromedp.Run(tb.ctx,
		chromedp.Evaluate(fmt.Sprintf(`(e => e ? e.innerText : "")(document.querySelector(%q))`, selector), &text))
	return text, err
}

// until waits.
func (tb *tab) until(what string, done func() bool) {
	tb.Helper()
	for begun := testkit.Worked(); !done(); time.Sleep(20 * time.Millisecond) {
		if testkit.Worked()-begun > testkit.Patience || tb.ctx.Err() != nil {
			tb.Fatalf("not seen: %s; the page says:\n%.3000s", what, tb.text("body"))
		}
	}
}

// sees waits until the element says this.
func (tb *tab) sees(selector, text string) {
	tb.Helper()
	tb.until(fmt.Sprintf("%q in %s", text, selector), func() bool {
		now, err := tb.peek(selector)
		return err == nil && strings.Contains(now, text)
	})
}

// click clicks the first element, as a person does: it must be there and be seen.
func (tb *tab) click(selector string) {
	tb.Helper()
	tb.soon("click "+selector, chromedp.Click(selector, chromedp.ByQuery, chromedp.NodeVisible))
}

// fill writes into a field, in place of what it holds.
func (tb *tab) fill(selector, text string) {
	tb.Helper()
	tb.soon("fill "+selector, chromedp.WaitVisible(selector, chromedp.ByQuery),
		chromedp.Evaluate(fmt.Sprintf(`document.querySelector(%q).value = ""`, selector), nil),
		chromedp.SendKeys(selector, text, chromedp.ByQuery))
}

// soon does what waits for an element.
func (tb *tab) soon(what string, actions ...chromedp.Action) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.ctx, testkit.Scaled(testkit.Patience))
	defer cancel()
	err := chromedp.Run(ctx, actions...)
	for gone := (*cdproto.Error)(nil); errors.As(err, &gone) &&
		ctx.Err() == nil; { // the element was replaced before it was reached
		time.Sleep(20 * time.Millisecond)
		err = chromedp.Run(ctx, actions...)
	}
	if err != nil {
		tb.Fatalf("%s: %v; the page says:\n%.3000s", what, err, tb.text("body"))
	}
}

// keepPicture is for who looks at a test that failed.
func (tb *tab) keepPicture() {
	var png []byte
	if err := chromedp.Run(tb.ctx, chromedp.FullScreenshot(&png, 100)); err != nil {
		tb.Logf("no picture: %v", err)
		return
	}
	file := filepath.Join(os.TempDir(), strings.NewReplacer("/", "_", " ", "_").Replace(tb.Name())+".png")
	if err := os.WriteFile(file, png, 0o600); err == nil {
		tb.Logf("picture: %s", file)
	}
}

func setMedia(scheme string) chromedp.Action {
	return emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme",
		Value: scheme}})
}

func setScript(on bool) chromedp.Action { return emulation.SetScriptExecutionDisabled(!on) }

// axeScript is axe-core, which finds what shuts people out.
var axeScript = sync.OnceValues(func() (string, error) {
	fetch := exec.Command("../../.ci/install-axe")
	fetch.Stderr = os.Stderr
	path, err := fetch.Output()
	if err != nil {
		return "", fmt.Errorf(".ci/install-axe: %w", err)
	}
	script, err := os.ReadFile(strings.TrimSpace(string(path)))
	return string(script), err
})

type axeFinding struct {
	ID, Impact, Help string
	Nodes            []struct {
		HTML, FailureSummary string
		Target               []any
	}
}

// accessible fails the test for what axe-core finds serious or critical in the page as it stands.
func (tb *tab) accessible(page string) {
	tb.Helper()
	script, err := axeScript()
	if err != nil {
		tb.Fatal(err)
	}
	if !tb.script { // the page's own scripts are off; axe-core needs timers
		tb.run(setScript(true))
		defer tb.run(setScript(false))
	}
	var found []axeFinding
	await := func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }
	tb.run(
		chromedp.Evaluate(script+";true", nil),
		chromedp.Evaluate(`axe.run(document, {resultTypes: ["violations"]}).then(r => r.violations.map(v => ({
			ID: v.id, Impact: v.impact, Help: v.help,
			Nodes: v.nodes.map(n => ({HTML: n.html, FailureSummary: n.failureSummary, Target: n.target}))})))`, &found, await),
	)
	for _, f := range found {
		if f.Impact != "serious" && f.Impact != "critical" && f.ID != "landmark-unique" {
			tb.Logf("%s: axe: %s: %s: %s", page, f.Impact, f.ID, f.Help)
			continue
		}
		for _, n := range f.Nodes[:min(len(f.Nodes), 3)] {
			tb.Errorf("%s: axe: %s: %s: %s: %v: %.300s: %s", page, f.Impact, f.ID, f.Help, n.Target, n.HTML, n.FailureSummary)
		}
	}
}

// fits fails the test if the page has to be moved sideways, and names the elements that stick out.
func (tb *tab) fits(page string) {
	tb.Helper()
	if wide := js[[]string](tb, `(() => {
		const width = document.documentElement.clientWidth
		if (document.documentElement.scrollWidth <= width) return []
		return [...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > width + 1)
			.slice(0, 5).map(e => e.outerHTML.slice(0, 200))
	})()`); len(wide) > 0 {
		tb.Errorf("%s is wider than the window: %q", page, wide)
	}
}

// What these tests rely on: a tab hears what the browser complains of, with and without script, and forms can be sent.
func TestTabHears(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'none'; img-src 'self'; form-action 'self'")
		if r.Method == http.MethodPost {
			http.Redirect(w, r, "/done", http.StatusSeeOther)
			return
		}
		_, _ = w.Write([]byte(`<!doctype html><html lang="en"><title>x</title><link rel="icon" href="data:,"><main><h1>` +
			r.URL.Path + r.FormValue("a") + // nobody waits if it fails
			`</h1><form method="post"><label>a <input name="a"></label><button>go</button></form></main>` +
			`<script>alert(1)</script>`))
	}))
	defer server.Close()
	for _, script := range []bool{true, false} {
		tb := newTab(t, look{width: 400, language: "en", script: script})
		tb.open(server.URL)
		tb.fill("input", "hello")
		if got := js[string](tb, `document.querySelector("input").value`); got != "hello" {
			t.Errorf("the field holds %q", got)
		}
		tb.click("button")
		tb.sees("h1", "/done")
		tb.accessible("/")
		if script {
			tb.until("a complaint about the script", func() bool { return tb.expect("inline script") })
		}
		tb.expect("data:,")
	}
}
