package web

import (
	"encoding/csv"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/export"
	"github.com/go-delayqueue/delayqueue/ops"
)

// A list and a search are exported whole, over many pages, whatever texts are in them. Hidden payloads stay hidden.
func TestExport(t *testing.T) {
	f := newFixture(t, Config{})
	hostile := "=HYPERLINK(\"http://x\",\"a\")\n\xff,\"<b>\u202e"
	hour := delayqueue.WithDelay(time.Hour)
	f.batch("a/../b", "x", searchPage)
	f.sent("a/../b", hostile, hour, delayqueue.WithKey("@key"), delayqueue.WithHeader("h", "+1"))
	f.sent("a/../b", "-5", hour, delayqueue.WithHeader("h", "+11"))
	lines := func(got reply) (rows [][]string) {
		t.Helper()
		body := f.wants(http.StatusOK, got)
		if to := got.header.Get("Content-Disposition"); to != "attachment; filename=a____b.csv" {
			t.Errorf("disposition %s", to)
		}
		rows, err := csv.NewReader(strings.NewReader(body)).ReadAll()
		ok(t, err)
		return rows
	}
	in := []any{"q", "a/../b", "as", "csv"}
	all := lines(f.get(address("export", append(in, "state", "pending")...)))
	if len(all) != searchPage+3 || all[0][0] != "id" {
		t.Errorf("%d lines: %v", len(all), all[0])
	}
	one := lines(f.get(address("export", append(in, "header", "h=+1")...)))
	column := map[string]string{}
	for i, name := range one[0] {
		column[name] = one[1][i]
	}
	if len(one) != 2 || column["key"] != "'@key" || column["headers"] != `{"h":"+1"}` || column["payload"] != "" ||
		column["payload_base64"] == "" || column["state"] != "pending" {
		t.Errorf("%d lines: %v", len(one), column)
	}
	if none := lines(f.get(address("export", append(in, "text", "nowhere")...))); len(none) != 1 || none[0][0] != "id" {
		t.Errorf("without a message: %v", none)
	}
	if found := lines(f.get(address("export", append(in, "text", "-5", "state", "pending")...))); len(found) != 2 ||
		!strings.Contains(strings.Join(found[1], "|"), "|'-5|") {
		t.Errorf("%v", found)
	}
	body := f.wants(http.StatusOK, f.get(address("export", "q", "a/../b", "as", "jsonl", "key", "@key")))
	var m export.Message
	ok(t, json.Unmarshal([]byte(body), &m))
	if string(m.Base64) != hostile || m.Key != "@key" {
		t.Errorf("%+v", m)
	}
	f.sees(f.get(address("messages", "q", "a/../b", "state", "pending")).body, "export?as=csv")
	for _, bad := range []string{"as=x", "as=csv&state=x", "as=csv&from=x"} {
		f.wants(http.StatusBadRequest, f.get(address("export", "q", "a/../b")+"&"+bad), bad)
	}
	f.wants(http.StatusNotFound, f.get(address("export", "q", "nobody", "as", "csv")))
	f.serve(Config{Payload: func(string, *ops.MessageStatus) string { return "hidden" }})
	body = f.wants(http.StatusOK, f.get(address("export", append(in, "header", "h=+11")...)))
	f.sees(body, ",hidden,")
	f.lacks(body, "'-5") // -5 alone may be in an id
	f.wants(http.StatusForbidden, f.get(address("export", append(in, "contains", "-5")...)))
	f.serve(Config{Authorize: func(*http.Request, Action, string) (string, error) { return "", errReadOnly }})
	f.wants(http.StatusForbidden, f.get(address("export", append(in, "state", "pending")...)))
}
