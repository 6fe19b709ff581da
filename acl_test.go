package delayqueue

import (
	"flag"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// A role is a kind of user in docs/acl.md.
type role struct {
	name    string
	scripts []*script
	files   []string // others, by where their text stands
	beside  string   // commands outside scripts
	keys    string   // structures that those others and these commands touch
}

var (
	readScripts = append(slices.Collect(maps.Values(listScripts)), countsScript, lookScript, consumersScript, historyScript, forecastScript,
		sequencesScript, awaitScript, journalScript)
	changeScripts = []*script{steerScript, pauseScript, limitScript, dropScript, interceptScript, sendScript, singleScript, putScript,
		forgetScript, dropSequenceScript, passSequenceScript, noteScript}

	roles = []role{
		{"publisher", []*script{sendScript, singleScript, putScript, forgetScript, interceptScript, steerScript, awaitScript}, nil, "", ""},
		{"consumer", []*script{fetchScript, settleScript, extendScript, overrunScript}, nil, "bzpopmin", "wake"},
		{
			"scheduler", []*script{sendScript, singleScript, putScript, forgetScript, interceptScript, steerScript, countsScript,
				sequencesScript, passSequenceScript, noteScript, lookScript},
			[]string{"schedule/record.go"}, "", "schedules",
		},
		{"reader", readScripts, nil, "scan hscan subscribe unsubscribe ping", "schedules"}, // hscan: entries of schedules
		{
			"operator", slices.Concat(readScripts, changeScripts),
			[]string{"internal/check/pages.go", "internal/check/probe.go", "cmd/delayqueue/repair.lua"},
			"scan hscan subscribe unsubscribe ping publish type pttl zscan lrange zscore info", // those from type on for doctor
			strings.Join(structures[:], " "),
		},
	}
)

var (
	luaComment = regexp.MustCompile(`--.*`)
	luaCommand = regexp.MustCompile(`redis\.p?call\(\s*'(\w+)'`)
)

// needs are the commands that a role's scripts call, and those beside them.
func (r role) needs(t *testing.T) []string {
	need := append(strings.Fields(r.beside), "eval", "evalsha")
	var texts []string
	for _, sc := range r.scripts {
		texts = append(texts, sc.text)
	}
	for _, file := range r.files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	for _, text := range texts {
		text = luaComment.ReplaceAllString(text, "")
		found := luaCommand.FindAllStringSubmatch(text, -1)
		if calls := len(regexp.MustCompile(`redis\.p?call\(`).FindAllString(text, -1)); calls != len(found) || calls == 0 {
			t.Errorf("%s: %d calls in a script, of which %d name their command: ACL users are told by these names", r.name, calls, len(found))
		}
		for _, call := range found {
			need = append(need, strings.ToLower(call[1]))
		}
	}
	slices.Sort(need)
	return slices.Compact(need)
}

// touches are the structures that a role's scripts, and its commands beside them, touch. A command on another key is refused, within a
// script too; one on these is refused only if nothing of the role needs it.
func (r role) touches() (all []string) {
	for i, structure := range structures {
		if slices.Contains(strings.Fields(r.keys), structure) ||
			slices.ContainsFunc(r.scripts, func(sc *script) bool { return slices.Contains(sc.keys, i) }) {
			all = append(all, structure)
		}
	}
	return all
}

// patterns are the keys of a role as ACL SETUSER takes them.
func (r role) patterns() string {
	touched := r.touches()
	if len(touched) == len(structures) {
		return "~{dq:orders}:*"
	}
	return "~{dq:orders}:" + strings.Join(touched, " ~{dq:orders}:")
}

// documentedUsers are the lines of docs/acl.md that make users, by user, in order.
func documentedUsers(t *testing.T) map[string][]string {
	text, err := os.ReadFile("docs/acl.md")
	if err != nil {
		t.Fatal(err)
	}
	users := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) > 2 && words[0] == "ACL" && words[1] == "SETUSER" {
			users[words[2]] = append(users[words[2]], strings.TrimSpace(line))
		}
	}
	return users
}

// TestRolesAreDocumented: the line of each role allows what its scripts call, on the keys that they touch, and no more.
func TestRolesAreDocumented(t *testing.T) {
	t.Parallel()
	users := documentedUsers(t)
	for _, r := range roles {
		if len(users[r.name]) == 0 {
			t.Errorf("docs/acl.md has no line for %s", r.name)
			continue
		}
		var other, keys, has []string
		for word := range strings.FieldsSeq(users[r.name][0]) {
			if command, ok := strings.CutPrefix(word, "+"); ok {
				has = append(has, command)
			} else if strings.HasPrefix(word, "~") {
				keys = append(keys, word)
			} else {
				other = append(other, word)
			}
		}
		need := r.needs(t)
		right := strings.Join(other, " ") + " " + r.patterns() + " +" + strings.Join(need, " +")
		if *writeACL {
			rewrite(t, users[r.name][0], right)
			continue
		}
		if got := strings.Join(keys, " "); got != r.patterns() {
			t.Errorf("docs/acl.md: the keys of %s are %s, not %s (-acl.write writes them)", r.name, r.patterns(), got)
		}
		for _, command := range need {
			if !slices.Contains(has, command) {
				t.Errorf("docs/acl.md: %s lacks +%s (go test -run TestRolesAreDocumented . -acl.write writes it)", r.name, command)
			}
		}
		for _, command := range has {
			if !slices.Contains(need, command) {
				t.Errorf("docs/acl.md: %s needs no +%s (go test -run TestRolesAreDocumented . -acl.write takes it out)", r.name, command)
			}
		}
	}
}

var writeACL = flag.Bool("acl.write", false, "write into docs/acl.md what the scripts need")

// rewrite replaces a line of docs/acl.md.
func rewrite(t *testing.T, line, by string) {
	text, err := os.ReadFile("docs/acl.md")
	if err == nil {
		err = os.WriteFile("docs/acl.md", []byte(strings.Replace(string(text), line+"\n", by+"\n", 1)), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// setUser carries out a line of docs/acl.md.
func setUser(t *testing.T, admin *redis.Client, line string) {
	t.Helper()
	var args []any
	for word := range strings.FieldsSeq(line) {
		args = append(args, word)
	}
	if err := admin.Do(ctxB, args...).Err(); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
}

// TestACLPatterns: a name that holds the characters of patterns is escaped as Queues does it.
func TestACLPatterns(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client(t)
	name := `a*b?c[d]\e`
	line := documentedUsers(t)["publisher"][0]
	setUser(t, admin, strings.ReplaceAll(line, "orders", globEscape(name)))
	setUser(t, admin, "ACL SETUSER publisher resetchannels &{dq:"+globEscape(name)+"}:events +publish")
	cli := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "publisher", Password: "secret"})
	defer cli.Close()
	for queue, allowed := range map[string]bool{name: true, `axxb?c[d]\e`: false, `a*b?cd\e`: false, `a*bxc[d]\e`: false} {
		_, err := NewPublisher(queue, cli).Send(ctxB, "a")
		if (err == nil) != allowed {
			t.Errorf("queue %s: allowed %v, want %v: %v", queue, err == nil, allowed, err)
		}
		err = newStore(cli, "dq", queue).publish(noContextTimeout, nil)
		if (err == nil) != allowed {
			t.Errorf("events of queue %s: allowed %v, want %v: %v", queue, err == nil, allowed, err)
		}
	}
}
