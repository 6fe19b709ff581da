package browsertest

import (
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

var (
	jobDone  = regexp.MustCompile(`([0-9,]+) done; looked at`)
	lookedAt = regexp.MustCompile(`Looked at ([0-9,]+) of`)
	looked   = regexp.MustCompile(`looked at ([0-9,]+) of`)
)

// number is the first that a text has of a pattern, -1 if it has none.
func (tb *tab) number(pattern *regexp.Regexp) int {
	text, _ := tb.peek("main") // while one page gives way to the next there is none
	found := pattern.FindStringSubmatch(text)
	if found == nil {
		return -1
	}
	n, err := strconv.Atoi(strings.ReplaceAll(found[1], ",", ""))
	if err != nil {
		return -1
	}
	return n
}

// News that comes while the mouse or a key is down replaces nothing before it is up, because the browser would drop
// the click. But it waits for three seconds at most. The test gives the news to the page's own function, and says
// how long ago the press was.
func TestClickBesideNews(t *testing.T) {
	tb := newTab(t, look{width: 1600, language: "en", script: true})
	tb.open(shop.url + "queue?q=invoices")
	news := func(what string, pressedFor int, waits bool) {
		t.Helper()
		if js[bool](tb, fmt.Sprintf(`(() => {
			if (pressed > 0) pressed = performance.now() - %d;
			const parts = {};
			for (const id of ["standing", "past"]) parts[id] = document.getElementById(id).innerHTML;
			news({data: JSON.stringify({parts})});
			return held.length > 0;
		})()`, pressedFor)) != waits {
			t.Errorf("%s: does the news wait? %v, want %v", what, !waits, waits)
		}
	}
	mouse := func(e input.MouseType, x, y float64) {
		t.Helper()
		tb.run(chromedp.MouseEvent(e, x, y, chromedp.ButtonLeft, chromedp.ClickCount(1)))
	}
	key := func(e input.KeyType) {
		t.Helper()
		tb.run(input.DispatchKeyEvent(e).WithKey(" ").WithCode("Space").WithText(" ").WithWindowsVirtualKeyCode(' '))
	}
	news("nothing is pressed", 0, false)

	const table = `document.querySelector("#past summary")`
	tb.run(chromedp.Evaluate(table+".focus()", nil))
	key(input.KeyDown)
	news("a key is down", 0, true)
	key(input.KeyUp)
	tb.until("the news after the key", func() bool { return js[bool](tb, "held.length === 0") })
	tb.until("what the key opens", func() bool { return js[bool](tb, table+".parentElement.open") })

	mouse(input.MousePressed, 1, 1)
	news("the mouse has been down for long", 3001, false)
	mouse(input.MouseReleased, 1, 1)

	tb.run(chromedp.Evaluate(
		`for (const what of ["down", "up", "down"]) document.dispatchEvent(new Event("pointer" + what)); 0`, nil))
	news("it is pressed again at once", 0, true)
	if after := js[int](tb, `(() => {
		const timer = window.setTimeout;
		let after = 0;
		window.setTimeout = (call, ms) => timer(call, after = ms);
		document.dispatchEvent(new Event("pointerup"));
		window.setTimeout = timer;
		return after;
	})()`); after < 100 || after > 1000 {
		t.Errorf("news come %d ms after the release: a touch is a click only then", after)
	}
	tb.until("the news after both", func() bool { return js[bool](tb, "held.length === 0") })

	at := js[[]float64](tb,
		`(scrollTo(0, 0), e => [e.x + e.width/2, e.y + e.height/2])(`+
			`document.querySelector('.doings a[href^="limits"]').getBoundingClientRect())`)
	mouse(input.MousePressed, at[0], at[1])
	news("the mouse is down", 0, true)
	mouse(input.MouseReleased, at[0], at[1])
	tb.sees("h1", "Limits")
}

// The page of a job that takes minutes shows how far it is and that somebody else has stopped it, without being
// asked for again.
func TestJobIsFollowed(t *testing.T) {
	tb := newTab(t, look{width: 1600, language: "en", script: true})
	mark := fmt.Sprint("slow-", time.Now().UnixNano())
	if err := shop.batch("invoices", 400, func(int) delayqueue.Outgoing {
		return delayqueue.Outgoing{Payload: mark, Options: []delayqueue.MsgOption{delayqueue.WithDelay(time.Hour)}}
	}); err != nil {
		t.Fatal(err)
	}
	tb.open(shop.url + "plan?q=invoices&state=pending&do=postpone&by=1h0m0s&rate=1&contains=" +
		url.QueryEscape(mark))
	tb.sees("main", "400 messages, as they were at")
	tb.click(".ask button")
	tb.sees("main", "running")
	here, err := url.Parse(js[string](tb, "window.isThisPage = true, location.href"))
	ok(t, err)
	stop := func() error {
		return shop.monitor("invoices").StopBulk(queuetest.Within(t, queuetest.Patience), here.Query().Get("id"))
	}
	defer func() { _ = stop() }() // of a test that has failed
	first := tb.number(jobDone)
	tb.until("how it goes on", func() bool { return tb.number(jobDone) > first+1 })
	ok(t, stop())
	tb.sees("main", "stopped")
	if !js[bool](tb, "window.isThisPage === true") {
		t.Error("it was loaded again")
	}
}

// A count of tens of thousands, of which a page shows what it has come to in a second, goes on by itself, and
// without script by a button.
func TestCountGoesOn(t *testing.T) {
	for _, script := range []bool{true, false} {
		l := look{width: 1600, language: "en", script: script}
		t.Run(l.name(), func(t *testing.T) {
			tb := newTab(t, l)
			soon := time.Now().Add(30 * time.Minute).UTC().Format("2006-01-02T15:04")
			tb.open(shop.url + "plan?q=orders&state=pending&do=cancel&contains=nobody+has+this&to=" + url.QueryEscape(soon))
			first := -1
			over := func() bool { // on a fast machine with the first page
				text, _ := tb.peek("main")
				return strings.Contains(text, "0 messages, as they were at")
			}
			tb.until("some of it", func() bool {
				first = tb.number(looked)
				return first >= 0 || over()
			})
			if first >= 0 && !script {
				tb.click("form[data-onwards] button")
			}
			tb.until("more of it", func() bool { return tb.number(looked) > first || over() })
		})
	}
}

// A search goes on by itself, until somebody stops it, and then from there; without script by its link.
func TestSearchGoesOn(t *testing.T) {
	for _, script := range []bool{true, false} {
		l := look{width: 1600, language: "en", script: script}
		t.Run(l.name(), func(t *testing.T) {
			tb := newTab(t, l)
			at := func() int { return tb.number(lookedAt) }
			tb.open(shop.url + "messages?q=orders&text=nobody+has+this")
			first := at()
			if !script {
				tb.click("#more a")
				tb.until("more of it", func() bool { return at() > first })
				return
			}
			tb.until("more of it, twice", func() bool { return at() > 2*first && first > 0 })
			tb.click("#more button")
			tb.until("that it has stopped", func() bool { return js[bool](tb, `!document.querySelector("#more button")`) })
			stopped := at()
			tb.click("#more a")
			tb.until("that it goes on from there", func() bool { return at() > stopped })
		})
	}
}

// A list offers what can be done to all that match, until all was looked at and none matches.
func TestNothingMatches(t *testing.T) {
	tb := newTab(t, look{width: 1600, language: "en", script: true})
	soon := time.Now().Add(30 * time.Minute).UTC().Format("2006-01-02T15:04")
	tb.open(shop.url + "messages?q=orders&state=pending&contains=nobody+has+this&to=" + url.QueryEscape(soon))
	tb.sees("#more", "Looked at all")
	tb.until("no offer", func() bool { return js[bool](tb, `!document.querySelector("p.all")`) })
}

// What is found is added to the page, until it is full.
func TestSearchFillsAPage(t *testing.T) {
	tb := newTab(t, look{width: 1600, language: "en", script: true})
	tb.open(shop.url + "messages?q=orders&state=pending&contains=c-55%22")
	rows := func() int { return js[int](tb, `document.querySelectorAll("#list tbody tr").length`) }
	tb.until("a full page", func() bool { return rows() >= 50 })
	if ids := js[int](tb,
		`new Set([...document.querySelectorAll("#list input[name=id]")].map((i) => i.value)).size`); ids != rows() {
		t.Errorf("%d rows of %d messages", rows(), ids)
	}
	tb.sees("#more", "go on")
}

// The first page that a browser gets is already in its zone, by all that it shows.
func TestZoneOfTheReader(t *testing.T) {
	tb := newTab(t, look{width: 1600, language: "en", script: true})
	tb.run(emulation.SetTimezoneOverride("Asia/Shanghai"))
	tb.open(shop.url + "messages?q=orders&state=garbage")
	tb.sees("footer", "Asia/Shanghai")
	shown := js[string](tb, `document.querySelector("td time").textContent`)
	if want := js[string](tb,
		`new Date(document.querySelector("td time").dateTime).toLocaleTimeString("en-GB")`); !strings.HasSuffix(shown, want) {
		t.Errorf("it shows %q for %s", shown, want)
	}
	if fields := js[string](tb, `document.querySelector(".filters").textContent`); !strings.Contains(fields,
		"From (Asia/Shanghai)") {
		t.Errorf("the fields are %q", fields)
	}
}
