package web

import (
	"strings"
	"testing"

	"github.com/go-delayqueue/delayqueue/ops"
)

// A header has a link only if a selection reads the same from it. Of many headers only the first are read.
func TestHeaderLinks(t *testing.T) {
	t.Parallel()
	r := &request{Queue: "orders"}
	for name, value := range map[string]string{"customer": "77", "empty": "", "a b": "x=\n\xff y"} {
		m := &ops.MessageStatus{}
		m.Headers = map[string]string{name: value}
		if got := r.headersOf(m, 100); len(got) != 1 || !strings.HasPrefix(got[0].Link, "messages?header=") {
			t.Errorf("%q: %q: %+v", name, value, got)
		}
	}
	for name, value := range map[string]string{"a=b": "1", " a": "1", "a": "1 ", "long": strings.Repeat("x", 2000)} {
		m := &ops.MessageStatus{}
		m.Headers = map[string]string{name: value}
		if got := r.headersOf(m, 100); len(got) != 1 || got[0].Link != "" || len(got[0].Value) > 110 {
			t.Errorf("%q: %.20q: %+v", name, value, got)
		}
	}
	m := &ops.MessageStatus{}
	m.Headers = map[string]string{"a": "1234567", "b": "1234567", "c": ""}
	if got := r.headersOf(m, 10); len(got) != 2 || got[1].Value != "1…" || got[1].Link == "" {
		t.Errorf("%+v", got)
	}
}
