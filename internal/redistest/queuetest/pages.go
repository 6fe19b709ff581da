package queuetest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// File is the path of a file of the repository, whichever package is tested.
func File(t testing.TB, name string) string {
	t.Helper()
	dir, err := os.Getwd()
	Must(t, err)
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return filepath.Join(dir, name)
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.work above the test's folder")
		}
	}
}

// ReadText is the text of files of the repository, which patterns name.
func ReadText(t *testing.T, files ...string) string {
	t.Helper()
	var all strings.Builder
	for _, pattern := range files {
		names, err := filepath.Glob(File(t, pattern))
		if err != nil || names == nil {
			t.Fatalf("%s: %v, %v", pattern, names, err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			Must(t, err)
			all.Write(text)
		}
	}
	return all.String()
}

// RedisSection is what stands under a heading of docs/redis.md, up to the next one of the same rank.
func RedisSection(t *testing.T, heading string) string {
	t.Helper()
	rank, _, _ := strings.Cut(heading, " ")
	_, text, found := strings.Cut(ReadText(t, "docs/redis.md"), "\n"+heading+"\n")
	if !found {
		t.Fatalf("docs/redis.md has no %q", heading)
	}
	text, _, _ = strings.Cut(text, "\n"+rank+" ")
	return text
}

// RedisExample is a block of docs/redis.md, by its kind.
func RedisExample(t *testing.T, kind string) string {
	t.Helper()
	_, text, found := strings.Cut(ReadText(t, "docs/redis.md"), "\n```"+kind+"\n")
	if !found {
		t.Fatalf("docs/redis.md has no example %q", kind)
	}
	text, _, _ = strings.Cut(text, "\n```")
	return text
}

// DocumentedUsers are the lines of docs/acl.md that make users, by user, in order.
func DocumentedUsers(t *testing.T) map[string][]string {
	users := map[string][]string{}
	for line := range strings.Lines(ReadText(t, "docs/acl.md")) {
		if words := strings.Fields(line); len(words) > 2 && words[0] == "ACL" && words[1] == "SETUSER" {
			users[words[2]] = append(users[words[2]], strings.TrimSpace(line))
		}
	}
	return users
}

// SetUser carries out a line of docs/acl.md.
func SetUser(t *testing.T, admin *redis.Client, line string) {
	t.Helper()
	var args []any
	for word := range strings.FieldsSeq(line) {
		args = append(args, word)
	}
	if err := admin.Do(CtxB, args...).Err(); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
}

// SetUsers makes the users of docs/acl.md. A server by itself knows no command of a Cluster.
func SetUsers(t *testing.T, admin *redis.Client, cluster bool) {
	t.Helper()
	for _, lines := range DocumentedUsers(t) {
		for _, line := range lines {
			if cluster || !strings.Contains(line, "+cluster|") {
				SetUser(t, admin, line)
			}
		}
	}
}

// Refusals is what a server's ACL LOG holds: user, what it did not get, and where. That go-redis tells a server
// about itself (CLIENT) with each connection is not needed, as docs/acl.md says.
func Refusals(t *testing.T, admin *redis.Client) (all []string) {
	t.Helper()
	entries, err := admin.ACLLog(CtxB, 100).Result()
	Must(t, err)
	for _, e := range entries {
		if e.Object != "client" && !strings.HasPrefix(e.Object, "client|") {
			all = append(all, fmt.Sprintf("%s: %s %s, %s", e.Username, e.Reason, e.Object, e.Context))
		}
	}
	return all
}

// RefusedByACL says whether an error is the refusal of an ACL.
func RefusedByACL(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "NOPERM") || strings.Contains(err.Error(), "ACL failure") ||
		strings.Contains(err.Error(), "can't run this command") || strings.Contains(err.Error(), "can't access"))
}

// RoleClients are a client for each role of docs/acl.md, and one for whoever may do everything.
func RoleClients(t *testing.T) (admin *redis.Client, all map[string]*redis.Client) {
	server := redistest.Start(t)
	admin, all = server.Client(t), map[string]*redis.Client{}
	for name, lines := range DocumentedUsers(t) {
		SetUser(t, admin, lines[0])
		cli := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: name, Password: "secret", DisableIdentity: true})
		t.Cleanup(func() { _ = cli.Close() })
		all[name] = cli
	}
	return admin, all
}
