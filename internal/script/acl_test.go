package script

import (
	"flag"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// A role is a kind of user in docs/acl.md.
type role struct {
	name    string
	scripts []*Script
	files   []string // others, by where their text stands
	beside  string   // commands outside scripts
	keys    string   // structures that those others and these commands touch
}

var (
	readScripts = append(slices.Collect(maps.Values(ListScripts)), CountsScript, BalanceScript, LookScript,
		ConsumersScript, HistoryScript, ForecastScript,
		LanesScript, SequencesScript, AwaitScript, JournalScript)
	changeScripts = []*Script{SteerScript, SetScript, DropScript, InterceptScript, SendScript, SingleScript, PutScript,
		ForgetScript, sequenceScript, NoteScript, repairScript, ShardsScript}

	roles = []role{
		{"publisher", []*Script{SendScript, SingleScript, PutScript, ForgetScript, InterceptScript, SteerScript, AwaitScript,
			ShardsScript}, nil, "", ""},
		{"consumer", []*Script{FetchScript, TickScript, SettleScript, ExtendScript, ShardsScript, SetScript}, nil,
			"bzpopmin hmget hget",
			"wake msg state"},
		{
			"scheduler", []*Script{SendScript, SingleScript, PutScript, ForgetScript, InterceptScript, SteerScript, CountsScript,
				SequencesScript, sequenceScript, NoteScript, LookScript},
			[]string{"schedule/record.go"}, "", "schedules",
		},
		{"reader", readScripts, nil, "scan hscan subscribe unsubscribe ping", "schedules"}, // hscan: entries of schedules
		{
			"operator", slices.Concat(readScripts, changeScripts),
			[]string{"internal/check/pages.go", "internal/check/probe.go"},
			"scan hscan subscribe unsubscribe ping publish type pttl zscan lrange zscore info", // those from type on for doctor
			strings.Join(structures[:], " "),
		},
	}
)

var (
	luaComment = regexp.MustCompile(`--.*`)
	luaCommand = regexp.MustCompile(`redis\.p?call\(\s*'(\w+)'`)
)

// needs lists the commands that a role's scripts call, and the commands of the role outside scripts.
func (r role) needs(t *testing.T) []string {
	need := append(strings.Fields(r.beside), "eval", "evalsha")
	var texts []string
	for _, sc := range r.scripts {
		texts = append(texts, sc.Text)
	}
	for _, file := range r.files {
		text, err := os.ReadFile(queuetest.File(t, file))
		queuetest.Must(t, err)
		texts = append(texts, string(text))
	}
	for _, text := range texts {
		text = luaComment.ReplaceAllString(text, "")
		found := luaCommand.FindAllStringSubmatch(text, -1)
		if calls := len(regexp.MustCompile(`redis\.p?call\(`).FindAllString(text, -1)); calls != len(found) || calls == 0 {
			t.Errorf("%s: %d calls in a script, of which %d name their command: ACL users are told by these names", r.name,
				calls, len(found))
		}
		for _, call := range found {
			need = append(need, strings.ToLower(call[1]))
		}
	}
	slices.Sort(need)
	return slices.Compact(need)
}

// touches lists the structures that a role's scripts and its other commands touch. Within a script too, Redis refuses
// a command on any other key. A command on one of these is refused only if nothing of the role needs it.
func (r role) touches() (all []string) {
	for i, structure := range structures {
		if slices.Contains(strings.Fields(r.keys), structure) ||
			slices.ContainsFunc(r.scripts, func(sc *Script) bool { return slices.Contains(sc.keys, i) }) {
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

// TestRolesAreDocumented: the line of each role allows what its scripts call, on the keys that they touch, and no
// more. So Redis refuses each other command, key and channel.
func TestRolesAreDocumented(t *testing.T) {
	t.Parallel()
	users := queuetest.DocumentedUsers(t)
	for _, r := range roles {
		if len(users[r.name]) == 0 {
			t.Errorf("docs/acl.md has no line for %s", r.name)
			continue
		}
		line, want := users[r.name][0], "ACL SETUSER "+r.name+" on >secret resetchannels "
		if slices.Contains(strings.Fields(r.beside), "subscribe") {
			want += "&{dq:orders}:events "
		}
		want += r.patterns() + " +" + strings.Join(r.needs(t), " +")
		if *writeACL {
			rewrite(t, line, want)
		} else if line != want {
			t.Errorf("docs/acl.md: the line of %s should be (go test -run TestRolesAreDocumented ./internal/script "+
				"-acl.write)\n%s\nand is\n%s",
				r.name, want, line)
		}
	}
}

var writeACL = flag.Bool("acl.write", false, "write into docs/acl.md what the scripts need")

// rewrite replaces a line of docs/acl.md.
func rewrite(t *testing.T, line, by string) {
	page := queuetest.File(t, "docs/acl.md")
	text, err := os.ReadFile(page)
	if err == nil {
		err = os.WriteFile(page, []byte(strings.Replace(string(text), line+"\n", by+"\n", 1)), 0o644)
	}
	queuetest.Must(t, err)
}
