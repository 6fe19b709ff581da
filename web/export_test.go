package web

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
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

// withHTTP is a server of the same pages.
func (f *fixture) withHTTP(version int) *httptest.Server {
	server := httptest.NewUnstartedServer(f.http.Config.Handler)
	f.Cleanup(server.Close)
	if version == 1 {
		server.Start()
		return server
	}
	server.EnableHTTP2 = true
	server.StartTLS()
	return server
}

// A file that a panic cut off is no whole file.
func TestExportThatPanics(t *testing.T) {
	calls := atomic.Int64{}
	f := newFixture(t, Config{Payload: func(string, *ops.MessageStatus) string {
		if calls.Add(1) == 3 {
			panic("on purpose")
		}
		return strings.Repeat("x", 10_000)
	}})
	f.batch("orders", "x", 4)
	for _, version := range []int{1, 2} {
		calls.Store(0)
		server := f.withHTTP(version)
		got, err := server.Client().Get(server.URL + "/queues/export?q=orders&state=pending&as=jsonl")
		if err == nil {
			if got.ProtoMajor != version {
				t.Errorf("it is %s, want HTTP/%d", got.Proto, version)
			}
			_, err = io.Copy(io.Discard, got.Body)
			got.Body.Close()
		}
		if err == nil {
			t.Errorf("HTTP/%d: the transfer ended as if the file were whole", version)
		}
	}
	f.eventually("the log says why", func() bool { return strings.Contains(f.log.String(), "on purpose") })
}

// A client that takes nothing of its file does not hold up Close.
func TestCloseEndsAStalledExport(t *testing.T) {
	for _, version := range []int{1, 2} {
		t.Run(fmt.Sprint("HTTP/", version), func(t *testing.T) {
			large, calls := strings.Repeat("x", 32<<20), atomic.Int64{} // no buffer takes it
			f := newFixture(t, Config{Payload: func(string, *ops.MessageStatus) string {
				calls.Add(1)
				return large
			}})
			f.batch("orders", "x", 1)
			server := f.withHTTP(version)
			got, err := server.Client().Get(server.URL + "/queues/export?q=orders&state=pending&as=jsonl")
			ok(t, err)
			defer got.Body.Close()
			f.eventually("the export has begun", func() bool { return calls.Load() > 0 })
			closed := make(chan struct{})
			go func() {
				defer close(closed)
				f.page.Close()
			}()
			select {
			case <-closed:
			case <-time.After(exportTake / 2):
				t.Error("Close waits for a client that takes nothing")
			}
		})
	}
}

// Nobody can take all exports, or all counts of errors, and no other site can begin a download.
func TestReadersOfOneVisitor(t *testing.T) {
	f := newFixture(t, Config{})
	f.batch("orders", "x", 1)
	const export = "export?q=orders&state=pending&as=csv"
	const me, other = "at 127.0.0.1", "at 127.0.0.2"
	for range theirReaders {
		ok(t, f.page.exports.enter(me))
	}
	f.sees(f.wants(http.StatusTooManyRequests, f.get(export)), "Two of yours run here already")
	f.sees(f.wants(http.StatusTooManyRequests, f.get(export+"&lang=zh")), "您已有两个在此运行")
	f.page.exports.leave(me)
	f.wants(http.StatusOK, f.get(export))
	f.wants(http.StatusForbidden, f.get(export, header("Sec-Fetch-Site", "cross-site")))
	f.wants(http.StatusOK, f.get(export, header("Sec-Fetch-Site", "same-origin")))
	for range mostReaders - 1 {
		ok(t, f.page.exports.enter(fmt.Sprint(other, f.page.exports.n)))
	}
	f.sees(f.wants(http.StatusServiceUnavailable, f.get(export)), "Four downloads run here already")
	f.eventually("errors are counted meanwhile", func() bool {
		return strings.Contains(f.get("errors?q=orders").body, "Counted from")
	})
	f.page.exports.leave(me)
	for i := range mostReaders - 1 {
		f.page.exports.leave(fmt.Sprint(other, i+1))
	}
	for range theirReaders {
		ok(t, f.page.readers.enter(me))
	}
	f.sees(f.get("errors?q=orders&state=retry").body, "The count is not complete: Two of yours run here already")
	for range theirReaders {
		f.page.readers.leave(me)
	}
	f.wants(http.StatusNotFound, f.get("errors?q=nobody"))
	for i := range keptErrors + 3 {
		f.wants(http.StatusOK, f.get(fmt.Sprint("errors?q=orders&error=", i)))
	}
	f.page.errorCounts.mu.Lock()
	defer f.page.errorCounts.mu.Unlock()
	if n := len(f.page.errorCounts.all); n != keptErrors {
		t.Errorf("%d counts are kept", n)
	}
}

// An export ends with the right to look.
func TestExportWithoutRight(t *testing.T) {
	calls := atomic.Int64{}
	f := newFixture(t, Config{Authorize: func(*http.Request, Action, string) (string, error) {
		if calls.Add(1) > 2 { // the request, and its first page
			return "", errReadOnly
		}
		return "", nil
	}})
	f.batch("orders", "x", searchPage+1)
	got, err := http.Get(f.http.URL + "/queues/export?q=orders&state=pending&as=csv")
	if err == nil {
		_, err = io.Copy(io.Discard, got.Body)
		got.Body.Close()
	}
	if err == nil {
		t.Error("it went on")
	}
}
