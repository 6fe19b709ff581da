package browsertest

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

func setMedia(scheme string) chromedp.Action {
	return emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}})
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
		return [...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > width + 1).slice(0, 5).map(e => e.outerHTML.slice(0, 200))
	})()`); len(wide) > 0 {
		tb.Errorf("%s is wider than the window: %q", page, wide)
	}
}
