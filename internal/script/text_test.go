package script

import (
	"fmt"
	"io/fs"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/yuin/gopher-lua/ast"
	"github.com/yuin/gopher-lua/parse"
)

var (
	redisCall = regexp.MustCompile(`redis\.(\w+)\('(\w+)'(?:, *([^,()]+(?:\([^()]*\))?))?`)
	glued     = regexp.MustCompile(`(\w+)?\s*\.\.\s*(\w+)?`)
	luaNote   = regexp.MustCompile(` *--.*`)
	keysNote  = regexp.MustCompile(`-- KEYS: (?:.*,\n--       )*.*`)
)

// TestScriptText: every command has a literal KEYS[i] of a declared key, because a Cluster and some hosts want that. No instant
// becomes text by Lua's own rules, which keep 14 digits of 16.
func TestScriptText(t *testing.T) {
	for _, script := range everyScript {
		var keys []string
		for _, i := range script.keys {
			keys = append(keys, structures[i])
		}
		code := luaNote.ReplaceAllString(script.Text, "")
		calls := redisCall.FindAllStringSubmatch(code, -1)
		if len(calls) != strings.Count(code, "redis.") {
			t.Errorf("%s: %d calls for %d mentions of redis", script.name, len(calls), strings.Count(code, "redis."))
		}
		used := map[int]bool{}
		for _, call := range calls {
			if call[1] == "call" && call[2] == "TIME" {
				continue
			}
			i, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(call[3], "KEYS["), "]"))
			aside := err == nil && i >= 1 && i <= len(keys) &&
				slices.Contains([]string{"consumers", "history", "parts", "lanes", "waiting", "done"}, keys[i-1])
			undone := script.script == SingleScript // after a write that fails
			whosever := script.script == DropScript // it deletes somebody else's key with the others
			if call[1] != "call" && !(call[1] == "pcall" && (aside || undone || whosever)) || err != nil || i < 1 || i > len(keys) ||
				call[3] != fmt.Sprintf("KEYS[%d]", i) {
				t.Errorf("%s: %s: want redis.call (for Monitors, parts and a sweep of lanes, pcall) with KEYS[1] to KEYS[%d]",
					script.name, call[0], len(keys))
			}
			used[i] = true
		}
		if len(used) != len(keys) {
			t.Errorf("%s uses %d of its %d keys", script.name, len(used), len(keys))
		}
		note := strings.ReplaceAll(keysNote.FindString(luaFile(script.name)), ",\n--       ", ", ")
		if want := "-- KEYS: " + strings.Join(keys, ", "); note != want && script.script != ListScripts[stateWaiting] { // it has another order
			t.Errorf("%s: its comment says %q, want %q", script.name, note, want)
		}
		if strings.Contains(code, "tostring") {
			t.Errorf("%s uses tostring", script.name)
		}
		instants := []string{"now", "next", "due", "ends", "first", "leased", "furthest", "renewed", "upto", "till", "over", "inGrace",
			"graceOver", "pended", "retried", "oldest", "back", "lastCall", "heard"}
		for _, operands := range glued.FindAllStringSubmatch(code, -1) {
			for _, operand := range operands[1:] {
				if slices.Contains(instants, operand) {
					t.Errorf("%s: %q turns an instant into text", script.name, operands[0])
				}
			}
		}
	}
}

// TestScriptKeysAreNumbered: keys are numbered in the order of structures, whatever the order in which the text names them.
func TestScriptKeysAreNumbered(t *testing.T) {
	sc := newScript("redis.call('HSET', KEYS.state, KEYS.key) redis.call('DEL', KEYS.pending, KEYS.state)")
	k := keysOf("dq", "q")
	got := sc.command("eval", sc.Text, &k, []any{"a"})
	want := []any{"eval", "redis.call('HSET', KEYS[3], KEYS[2]) redis.call('DEL', KEYS[1], KEYS[3])", 3, k.pending, k.key, k.State, "a"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestScriptKeysAreKnown: a name that is no structure's panics, also if it begins like one.
func TestScriptKeysAreKnown(t *testing.T) {
	for _, name := range []string{"KEYS.keys", "KEYS.pend", "KEYS.events", "KEYS.Pending"} {
		func() {
			defer func() {
				if said, _ := recover().(string); !strings.HasSuffix(said, name) {
					t.Errorf("%s: %q", name, said)
				}
			}()
			newScript("redis.call('DEL', KEYS.pending, " + name + ")")
		}()
	}
}

// TestListScriptsShareAText: KEYS alone tell which structure a list reads, so a server keeps one script for all but done, waiting and
// unack.
func TestListScriptsShareAText(t *testing.T) {
	for state, sc := range ListScripts {
		if state == stateUnack {
			if sc.Text != newScript(luaText("held")).Text {
				t.Errorf("what is held is read with %s", sc.Text)
			}
			continue
		}
		at := 0
		switch state {
		case StateDone:
			at = len(sc.keys) - 2 // before parts
		case stateWaiting:
			at = len(sc.keys) - 1
		}
		if structures[sc.keys[at]] != state || at == 0 && sc.Text != ListScripts[statePending].Text {
			t.Errorf("%s reads %s, with %s", state, structures[sc.keys[at]], sc.Text)
		}
	}
}

// TestScriptOfALargeCall: a large call goes with the text of its script at once. If it went by the hash, and the server did not
// know that, all bytes would have to be sent again.
func TestScriptOfALargeCall(t *testing.T) {
	for size, want := range map[int][]string{100: {"evalsha", "eval"}, link.AttemptBytesPerSecond: {"eval"}} {
		var got []string
		keys := keysOf("dq", "q")
		err := SendScript.evaluate(&keys, []any{strings.Repeat("x", size)}, func(command []any) error {
			if got = append(got, command[0].(string)); command[0] == "evalsha" {
				return queuetest.Answer("NOSCRIPT No matching script.")
			}
			return nil
		})
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%d bytes: %v, %v", size, got, err)
		}
	}
}

// These tests hold what the files of lua/ say that they take and give against their text.

// luaScope is a block of Lua, with the names that it makes.
type luaScope struct {
	outer *luaScope
	names map[string]bool
	free  map[string]bool // of the whole text: names that it does not make
}

func (s *luaScope) within() *luaScope {
	return &luaScope{outer: s, names: map[string]bool{}, free: s.free}
}

func (s *luaScope) make(names ...string) {
	for _, name := range names {
		s.names[name] = true
	}
}

func (s *luaScope) use(name string) {
	for block := s; block != nil; block = block.outer {
		if block.names[name] {
			return
		}
	}
	s.free[name] = true
}

// read follows a piece of syntax. Nearly all pieces have others as their fields, and only some make names.
func (s *luaScope) read(piece any) {
	switch p := piece.(type) {
	case nil:
	case *ast.IdentExpr:
		s.use(p.Value)
	case *ast.LocalAssignStmt:
		if len(p.Exprs) == 1 {
			if _, function := p.Exprs[0].(*ast.FunctionExpr); function {
				s.make(p.Names...) // it may call itself
			}
		}
		s.read(p.Exprs)
		s.make(p.Names...)
	case *ast.FunctionExpr:
		in := s.within()
		in.make(p.ParList.Names...)
		in.read(p.Stmts)
	case *ast.NumberForStmt:
		s.read([]ast.Expr{p.Init, p.Limit, p.Step})
		in := s.within()
		in.make(p.Name)
		in.read(p.Stmts)
	case *ast.GenericForStmt:
		s.read(p.Exprs)
		in := s.within()
		in.make(p.Names...)
		in.read(p.Stmts)
	case *ast.RepeatStmt:
		in := s.within()
		in.read(p.Stmts)
		in.read(p.Condition)
	case *ast.IfStmt:
		s.read(p.Condition)
		s.within().read(p.Then)
		s.within().read(p.Else)
	case *ast.WhileStmt:
		s.read(p.Condition)
		s.within().read(p.Stmts)
	case *ast.DoBlockStmt:
		s.within().read(p.Stmts)
	default:
		v := reflect.Indirect(reflect.ValueOf(piece))
		switch v.Kind() {
		case reflect.Slice:
			for i := range v.Len() {
				s.read(v.Index(i).Interface())
			}
		case reflect.Struct:
			for i := range v.NumField() {
				if f := v.Field(i); f.CanInterface() && (f.Kind() == reflect.Interface || f.Kind() == reflect.Slice || f.Kind() == reflect.Pointer) && !f.IsNil() {
					s.read(f.Interface())
				}
			}
		}
	}
}

// luaNames are the names that a text uses and does not make, and those that it makes for the text behind it. Names of Lua and
// Redis are left out.
func luaNames(t *testing.T, file, text string) (free, made []string) {
	t.Helper()
	statements, err := parse.Parse(strings.NewReader(text), file)
	queuetest.Must(t, err)
	s := &luaScope{names: map[string]bool{}, free: map[string]bool{}}
	s.read(statements)
	for _, own := range []string{"KEYS", "ARGV", "redis", "math", "string", "table", "ipairs", "pairs", "unpack", "tonumber", "type"} {
		delete(s.free, own)
	}
	return slices.Sorted(maps.Keys(s.free)), slices.Sorted(maps.Keys(s.names))
}

// luaTaken are the names that a file takes from subjects.
func luaTaken(text string) (names []string) {
	for line := range strings.Lines(text) {
		if take := luaTake.FindStringSubmatch(line); take != nil {
			names = append(names, strings.Split(take[2], ", ")...)
		}
	}
	return names
}

// luaList is the list behind a word in the head of a file.
func luaList(text, word string) []string {
	list := regexp.MustCompile(`(?m)^-- ` + word + `: ((?:.*,\n--  +)*.*)$`).FindStringSubmatch(text)
	if list == nil {
		return nil
	}
	return regexp.MustCompile(`\w+`).FindAllString(list[1], -1)
}

func luaFileNames(t *testing.T) (names []string) {
	t.Helper()
	err := fs.WalkDir(luaFiles, "lua", func(file string, d fs.DirEntry, err error) error {
		if name, is := strings.CutSuffix(file, ".lua"); is {
			names = append(names, strings.TrimPrefix(name, "lua/"))
		}
		return err
	})
	queuetest.Must(t, err)
	return names
}

// TestLuaTakesAndGives: each file takes and gives the names that its head says. A name that a step does not make is of Lua or a
// subject, given by a step before, or made by the script's own file.
func TestLuaTakesAndGives(t *testing.T) {
	used := map[string]bool{} // names of subjects
	for _, script := range everyScript {
		text := luaFile(script.name)
		free, _ := luaNames(t, script.name, text)
		free = luaWithout(t, script.name, free, luaTaken(text), used)
		var gives, wanted []string
		for line := range strings.Lines(text) {
			found := luaSteps.FindStringSubmatch(line)
			if found == nil {
				continue
			}
			for _, step := range strings.Split(found[1], ", ") {
				name := script.name + "/" + step
				body := luaFile(name)
				uses, makes := luaNames(t, name, body)
				uses = luaWithout(t, name, uses, luaTaken(body), used)
				takes, mine := luaList(body, "takes"), luaList(body, "gives")
				if !slices.Equal(slices.Sorted(slices.Values(takes)), uses) {
					t.Errorf("%s takes %q, and says %q", name, uses, takes)
				}
				for _, take := range takes {
					if !slices.Contains(gives, take) && !regexp.MustCompile(`(?m)^ *local [\w\s,]*\b`+take+`\b`).MatchString(text) {
						t.Errorf("%s takes %s, which neither %s nor a step gives", name, take, script.name)
					}
				}
				for _, give := range mine {
					if !slices.Contains(makes, give) {
						t.Errorf("%s does not make %s, which it gives", name, give)
					}
				}
				gives, wanted = append(gives, mine...), append(wanted, takes...)
			}
		}
		for _, name := range free {
			if !slices.Contains(gives, name) {
				t.Errorf("%s: nothing makes %s", script.name, name)
			}
		}
		for _, give := range gives {
			if !slices.Contains(wanted, give) && !slices.Contains(free, give) {
				t.Errorf("%s: nothing takes %s, which a step gives", script.name, give)
			}
		}
	}
	for name, part := range luaParts {
		if !slices.ContainsFunc(part.names, func(n string) bool { return used[n] }) {
			t.Errorf("lua/lib/%s.lua: nothing takes %s", part.subject, name)
		}
	}
}

// luaWithout removes the names that a file takes from subjects. The file must use each of them.
func luaWithout(t *testing.T, file string, names, taken []string, used map[string]bool) []string {
	t.Helper()
	for _, name := range taken {
		if !slices.Contains(names, name) {
			t.Errorf("%s takes %s of a subject, and does not use it", file, name)
		}
		luaUses(name, used)
	}
	return slices.DeleteFunc(names, func(n string) bool { return slices.Contains(taken, n) })
}

// luaUses notes a part as used, with the parts that it needs.
func luaUses(name string, used map[string]bool) {
	if !used[name] {
		used[name] = true
		for _, other := range luaParts[name].needs {
			luaUses(other, used)
		}
	}
}

// TestLuaSubjects: a part needs exactly the names that its text uses and does not make. A subject takes exactly what its parts
// need of other subjects.
func TestLuaSubjects(t *testing.T) {
	takes := map[string][]string{}
	for name, part := range luaParts {
		free, made := luaNames(t, name, part.code)
		needs := slices.Compact(slices.Sorted(slices.Values(part.needs)))
		if !slices.Equal(free, needs) || !slices.Equal(made, slices.Sorted(slices.Values(part.names))) {
			t.Errorf("%s needs %q and makes %q, its text %q and %q", name, needs, part.names, free, made)
		}
		for _, other := range needs {
			if luaParts[other].subject != part.subject {
				takes[part.subject] = append(takes[part.subject], other)
			}
		}
	}
	for _, name := range luaFileNames(t) {
		if subject, is := strings.CutPrefix(name, "lib/"); is {
			needs := slices.Compact(slices.Sorted(slices.Values(takes[subject])))
			if taken := slices.Sorted(slices.Values(luaTaken(luaFile(name)))); !slices.Equal(taken, needs) {
				t.Errorf("%s takes %q, its parts need %q", name, taken, needs)
			}
		}
	}
}

// TestLuaTexts: a script makes all names that it uses, and has the same text each time, without comments. A file has at most
// 120 lines.
func TestLuaTexts(t *testing.T) {
	for _, script := range everyScript {
		text := luaText(script.name)
		if free, _ := luaNames(t, script.name, text); len(free) > 0 {
			t.Errorf("%s: nothing makes %q", script.name, free)
		}
		if strings.Contains(text, "--") || text != luaText(script.name) {
			t.Errorf("%s has comments, or another text each time", script.name)
		}
	}
	for _, name := range luaFileNames(t) {
		text := luaFile(name)
		for line := range strings.Lines(text) {
			if code, _, note := strings.Cut(line, "--"); note && strings.Count(code, "'")%2 == 1 {
				t.Errorf("%s: a text with -- would be cut: %s", name, line)
			}
		}
		if n := strings.Count(text, "\n"); n > 120 {
			t.Errorf("%s has %d lines", name, n)
		}
	}
	defer func() {
		if said, _ := recover().(string); !strings.HasSuffix(said, "lua/lib/time.lua has no keyof") {
			t.Errorf("keyof of time: %q", said)
		}
	}()
	(&luaWriter{taken: map[string]int{}}).take("time", "keyof", 0)
}
