package web

import (
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/go-delayqueue/delayqueue"
)

// TestReaderIsEnough: a page that only reads runs on the reader's line of docs/acl.md, and Redis has nothing to complain about.
func TestReaderIsEnough(t *testing.T) {
	f := newFixture(t, Config{})
	f.send("orders", "x", delayqueue.WithDelay(time.Hour))
	text, err := os.ReadFile("../docs/acl.md")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^ACL SETUSER reader (.*)$`).FindStringSubmatch(string(text))
	if line == nil {
		t.Fatal("docs/acl.md has no reader")
	}
	args := []any{"ACL", "SETUSER", "reader"}
	for _, word := range strings.Fields(strings.ReplaceAll(line[1], "{dq:orders}", "{dq:*}")) {
		args = append(args, word)
	}
	args = append(args, "+client|setinfo", "+client|setname", "+info")
	if err := f.cli.Do(f.Context(), args...).Err(); err != nil {
		if !strings.Contains(err.Error(), "setinfo") {
			t.Fatal(err)
		}
		args = append(args[:len(args)-3], "+info") // a server that does not know it
		if err := f.cli.Do(f.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	reader := redis.NewClient(&redis.Options{Addr: f.server.Addr(), Username: "reader", Password: "secret", DisableIdentity: true})
	defer reader.Close()
	f.cli = reader
	f.serve(Config{})
	for _, path := range f.pagesOf("orders") {
		if r := f.page.routes[strings.TrimSuffix(path, "?q=orders")]; r.act != "" {
			continue // it asks before it does something
		}
		if got := f.get(path); got.code != http.StatusOK && got.code != http.StatusBadRequest && got.code != http.StatusNotFound {
			t.Errorf("%s: %d %s", path, got.code, got.body)
		} else if strings.Contains(got.body, "NOPERM") {
			t.Errorf("%s: %s", path, got.body)
		}
	}
	f.sees(f.get("").body, ">orders<", "<span>1</span>")
	f.sees(f.get("queue?q=orders").body, "1 in all")
	f.sees(f.get("health").body, "Version")
}
