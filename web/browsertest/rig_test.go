package browsertest

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// What these tests rely on: a tab hears what the browser complains of, with and without script, and forms can be sent.
func TestTabHears(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'none'; img-src 'self'; form-action 'self'")
		if r.Method == http.MethodPost {
			http.Redirect(w, r, "/done", http.StatusSeeOther)
			return
		}
		_, _ = w.Write([]byte(`<!doctype html><html lang="en"><title>x</title><link rel="icon" href="data:,"><main><h1>` +
			r.URL.Path + r.FormValue("a") +
			// nobody waits if it fails
			`</h1><form method="post"><label>a <input name="a"></label><button>go</button></form></main><script>alert(1)</script>`))
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
