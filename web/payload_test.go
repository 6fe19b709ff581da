package web

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// A page costs a bounded text, whatever a message holds.
func TestWhatAMessageHoldsIsBounded(t *testing.T) {
	f := newFixture(t, Config{})
	nested := strings.Repeat("[", 9000) + strings.Repeat("]", 9000)
	wide := "[" + strings.TrimSuffix(strings.Repeat(strings.Repeat("[", 90)+strings.Repeat("]", 90)+",", 1300), ",") + "]"
	for what, payload := range map[string]string{
		"nested":           nested,
		"nested, and wide": "[" + strings.TrimSuffix(strings.Repeat(nested+",", 12), ",") + "]",
		"less deep":        wide,
		"in a key":         `{"` + strings.Repeat("{", 9000) + `":` + nested + "}",
		"ends too early":   strings.Repeat("[1,", 80_000),
		"quotes":           "[" + strings.TrimSuffix(strings.Repeat(`"",`, 80_000), ",") + "]",
	} {
		if what != "ends too early" && !json.Valid([]byte(payload)) {
			t.Fatalf("%s is no JSON", what)
		}
		id := f.sent("orders", payload, delayqueue.WithDelay(time.Hour))
		for _, as := range []string{"", "json", "text"} {
			got := f.get(address("message", "q", "orders", "id", id, "as", as))
			if got.code != http.StatusOK || len(got.body) > 1<<20 {
				t.Errorf("%s as %q: %d, %d bytes", what, as, got.code, len(got.body))
			}
		}
	}
	small := f.sent("orders", `{"a":["]",1]}`, delayqueue.WithDelay(time.Hour))
	f.sees(f.get(address("message", "q", "orders", "id", small)).body, "{\n  &#34;a&#34;: [\n    &#34;]&#34;,\n    1\n  ]\n}")

	headers := []delayqueue.MsgOption{delayqueue.WithDelay(time.Hour)}
	for i := range 5000 {
		headers = append(headers, delayqueue.WithHeader(fmt.Sprint("header ", i), strings.Repeat("<", 400)))
	}
	many := f.sent("orders", "x", headers...)
	got := f.get(address("message", "q", "orders", "id", many))
	if len(got.body) > 1<<20 {
		t.Errorf("headers: %d bytes", len(got.body))
	}
	f.sees(got.body, "Others: 4,800.")

	result := f.sent("results", "x", delayqueue.WithRetention(time.Hour))
	f.consume("results", func(ctx context.Context, _ *delayqueue.Message) error {
		return delayqueue.SetResult(ctx, strings.Repeat("\x01", 1<<20))
	})
	f.is("results", result, delayqueue.StateDone)
	got = f.get(address("message", "q", "results", "id", result))
	if len(got.body) > 1<<20 {
		t.Errorf("result: %d bytes", len(got.body))
	}
	f.sees(got.body, "Bytes 0 to 65,536 of 1,048,576")
}

// fitsAsJSON knows, before anything is made, how large it would be.
func TestJSONIsMeasured(t *testing.T) {
	for _, text := range []string{`{}`, `[]`, `{"a":"\\\"[","b":[1,2,{"c":null}]}`, "[" + strings.Repeat("1,", 100_000) + "1]"} {
		laidOut, err := json.MarshalIndent(json.RawMessage(text), "", "  ")
		ok(t, err)
		if got := fitsAsJSON(text); got != (len(laidOut) < jsonShown) {
			t.Errorf("%.40s, %d bytes laid out: %v", text, len(laidOut), got)
		}
	}
}

func TestVisible(t *testing.T) {
	for text, want := range map[string]string{
		"a\tb\n": "a\tb\n", "a\u200bb": `a\u200bb`, "a\U000e0041b": `a\U000e0041b`, "a\xffb": `a\xffb`, "\x1b[2J": `\u001b[2J`,
	} {
		if got := visible(text); got != want {
			t.Errorf("visible(%q) is %q, want %q", text, got, want)
		}
	}
}
