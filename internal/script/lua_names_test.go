package script

import (
	"cmp"
	"io/fs"
	"os"
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

// luaTaken are the names that lines of a text take: those that are indented, or the others.
func luaTaken(text string, indented bool) (names []string) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, " ") == indented {
			for _, ref := range takenBy(line) {
				names = append(names, ref.name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
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

// TestLuaTakes: a script, and each part of a subject, takes exactly the names that its text uses and does not make. A
// subject takes exactly what its parts need of others. Something needs each part.
func TestLuaTakes(t *testing.T) {
	used := map[*luaPart]bool{}
	uses := func(text string) {
		for line := range strings.Lines(text) {
			for _, ref := range takenBy(line) {
				luaUses(ref, used)
			}
		}
	}
	for _, script := range everyScript {
		text := luaFile(script.name)
		free, _ := luaNames(t, script.name, text)
		taken := slices.Sorted(slices.Values(append(luaTaken(text, false), luaTaken(text, true)...)))
		if !slices.Equal(free, slices.Compact(taken)) {
			t.Errorf("%s takes %q, its text needs %q", script.name, taken, free)
		}
		uses(text)
	}
	needed := map[string][]string{} // by subject
	for ref, part := range luaParts {
		free, made := luaNames(t, ref.name, part.code)
		inside := luaTaken(part.code, true)
		if !slices.Equal(made, slices.Sorted(slices.Values(part.names))) {
			t.Errorf("%s has %q, its text makes %q", part.subject, part.names, made)
		}
		var needs []string
		for _, need := range part.needs() {
			needs = append(needs, need.name)
			if need.subject != part.subject {
				needed[part.subject] = append(needed[part.subject], need.name)
			}
		}
		all := slices.Sorted(slices.Values(append(inside, needs...)))
		if !slices.Equal(free, slices.Compact(all)) {
			t.Errorf("%s of %s needs %q, and takes %q", ref.name, part.subject, free, all)
		}
		if !used[part] {
			t.Errorf("%s: nothing takes %s", part.subject, ref.name)
		}
	}
	for _, part := range luaParts {
		needs := slices.Compact(slices.Sorted(slices.Values(needed[part.subject])))
		if taken := luaTaken(luaSubject(part.subject), false); !slices.Equal(taken, needs) {
			t.Errorf("%s takes %q, its parts need %q", part.subject, taken, needs)
		}
	}
}

// luaUses notes a part as used, with the parts that it needs.
func luaUses(ref luaRef, used map[*luaPart]bool) {
	part := luaParts[ref]
	if used[part] {
		return
	}
	used[part] = true
	for _, other := range part.needs() {
		luaUses(other, used)
	}
	for line := range strings.Lines(part.code) {
		for _, other := range takenBy(line) {
			luaUses(other, used)
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

// One function of a script may have so many registers, for its locals and what it computes: a server refuses more
// than 200 locals. A script may have so many bytes, because a server gets the whole text when it does not know the
// script. settle has all that may be sent with an ack.
const (
	mostRegisters   = 120
	mostBytes       = 40_000
	mostSettleBytes = 45_000
)

// TestScriptBounds: no script has outgrown its bounds. No text stands twice in one (luaWriter.take).
func TestScriptBounds(t *testing.T) {
	for _, script := range everyScript {
		_, compiled := readLua(t, script.name, script.Text)
		for _, function := range luaFunctions(compiled) {
			if n := int(function.NumUsedRegisters); n > mostRegisters {
				t.Errorf("%s has %d registers in one function, at most %d may be", script.name, n, mostRegisters)
			}
		}
		most := map[string]int{"settle": mostSettleBytes}[script.name]
		if n := len(script.Text); n > cmp.Or(most, mostBytes) {
			t.Errorf("%s has %d bytes, at most %d may be", script.name, n, cmp.Or(most, mostBytes))
		}
	}
}
