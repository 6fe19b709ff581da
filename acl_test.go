package delayqueue

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// TestLeastPrivilege: README's two ACL lines are enough, the first for a queue, both for a Monitor.
func TestLeastPrivilege(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var users [][]any
	for line := range bytes.Lines(readme) {
		if words := strings.Fields(string(line)); len(words) > 2 && words[0] == "ACL" && words[1] == "SETUSER" {
			args := make([]any, len(words))
			for i, word := range words {
				args[i] = word
			}
			users = append(users, args)
		}
	}
	if len(users) != 2 {
		t.Fatalf("README.md has %d ACL lines, want 2", len(users))
	}
	server := redistest.Start(t)
	admin := server.Client(t)
	allow := func(i int) {
		t.Helper()
		if err := admin.Do(ctxB, users[i]...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	allow(0)
	f := fixtureOn(t, redis.NewClient(&redis.Options{Addr: server.Addr()}))
	f.name = "orders"
	cli := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "app", Password: "secret"})
	defer cli.Close()
	works(t, f, cli)
	m := NewMonitor(f.name, cli)
	if _, err := m.Counts(ctxB); err == nil || !strings.Contains(err.Error(), "NOPERM") && !strings.Contains(err.Error(), "can't run this command") {
		t.Errorf("a Monitor without the second line: %v", err)
	}
	allow(1)
	ids := f.buried("a")
	for what, err := range map[string]error{
		"counts":    func() error { _, err := m.Counts(ctxB); return err }(),
		"get":       func() error { _, err := m.Get(ctxB, ids[0]); return err }(),
		"list":      func() error { _, err := m.List(ctxB, StateGarbage, Filter{}, ""); return err }(),
		"bulk":      func() error { _, err := m.BulkRescheduleBy(ctxB, Bulk{}, 1e9); return err }(),
		"consumers": func() error { _, err := m.Consumers(ctxB); return err }(),
		"history":   func() error { _, err := m.History(ctxB, Hourly, 1); return err }(),
		"requeue":   m.Requeue(ctxB, ids[0]),
		"pause":     m.Pause(ctxB),
		"listen": func() error {
			sub, err := m.ListenEvent(ctxB, func(Event) {})
			if err == nil {
				sub.Stop()
			}
			return err
		}(),
		"publish": newStore(cli, "dq", f.name).publish(context.Background(), []byte("[]")),
		"queues": func() (err error) {
			for _, err = range Queues(ctxB, cli) {
			}
			return err
		}(),
		"delete": m.DeleteQueue(ctxB, true),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}
