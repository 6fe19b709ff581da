package script

import (
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/ast"
	"github.com/yuin/gopher-lua/parse"
)

// These tests hold what the files of lua/ say that they take and give against their text.

// readLua parses a text and compiles it.
func readLua(t *testing.T, file, text string) ([]ast.Stmt, *lua.FunctionProto) {
	t.Helper()
	statements, err := parse.Parse(strings.NewReader(text), file)
	queuetest.Must(t, err)
	compiled, err := lua.Compile(statements, file)
	queuetest.Must(t, err)
	return statements, compiled
}

// luaFunctions are all functions of a compiled text, of which the text itself is one.
func luaFunctions(p *lua.FunctionProto) []*lua.FunctionProto {
	all := []*lua.FunctionProto{p}
	for _, inner := range p.FunctionPrototypes {
		all = append(all, luaFunctions(inner)...)
	}
	return all
}

// luaNames are the names that a text uses and does not make, and those that it makes for the text behind it. Names of
// Lua and Redis are left out.
func luaNames(t *testing.T, file, text string) (free, made []string) {
	t.Helper()
	statements, compiled := readLua(t, file, text)
	for _, function := range luaFunctions(compiled) {
		for _, code := range function.Code {
			if op := int(code >> 26); op == lua.OP_GETGLOBAL || op == lua.OP_SETGLOBAL {
				free = append(free, function.Constants[code&(1<<18-1)].String())
			}
		}
	}
	for _, statement := range statements {
		if local, is := statement.(*ast.LocalAssignStmt); is {
			made = append(made, local.Names...)
		}
	}
	own := []string{"KEYS", "ARGV", "redis", "math", "string", "table", "ipairs", "pairs", "unpack", "tonumber", "type"}
	free = slices.DeleteFunc(free, func(name string) bool { return slices.Contains(own, name) })
	slices.Sort(free)
	slices.Sort(made)
	return slices.Compact(free), slices.Compact(made)
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
	err := fs.WalkDir(os.DirFS("."), "lua", func(file string, d fs.DirEntry, err error) error {
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

// TestLuaTexts: a script makes all names that it uses, and has the same text each time, without comments.
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
		for line := range strings.Lines(luaFile(name)) {
			if code, _, note := strings.Cut(line, "--"); note && strings.Count(code, "'")%2 == 1 {
				t.Errorf("%s: a text with -- would be cut: %s", name, line)
			}
		}
	}
}

// scriptBounds are how many registers one function of a script may have, for its locals and what it computes, and how many
// bytes the script may have: what is there now. A server refuses more than 200 locals, and gets the whole text when it does
// not know the script.
var scriptBounds = map[string]struct{ registers, bytes int }{
	"fetch": {183, 64274}, "settle": {119, 80818}, "put": {114, 28874}, "steer": {99, 26124}, "intercept": {76, 17824},
	"repair": {61, 21098}, "": {60, 6519}, // "": any other
}

// TestScriptBounds: no script has outgrown its bounds. A change that raises one says why.
func TestScriptBounds(t *testing.T) {
	for _, script := range everyScript {
		most, own := scriptBounds[script.name]
		if !own {
			most = scriptBounds[""]
		}
		_, compiled := readLua(t, script.name, script.Text)
		for _, function := range luaFunctions(compiled) {
			if n := int(function.NumUsedRegisters); n > most.registers {
				t.Errorf("%s has %d registers, at most %d may be: a server refuses more than 200 locals",
					script.name, n, most.registers)
			}
		}
		if n := len(script.Text); n > most.bytes {
			t.Errorf("%s has %d bytes, at most %d may be: each server has to read and keep them", script.name, n, most.bytes)
		}
	}
}
