package script

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// This file puts the scripts of assembled/ together of the files in lua/. Each says what it does, takes, returns (a
// flat list), costs and keeps. Two things in a text stand for others:
//
//	-- from message: keyof, redue   these functions and constants of lua/lib/message.lua (settle/scan:
//	                                lua/settle/scan.lua) and what they need, but for what is there already. Within
//	                                a function they are made when it runs, so that a call which does not need them
//	                                pays nothing
//	KEYS.pending                    the key of that name
//
// No part stands twice in a script. If two functions need it, the line stands before both. A part is written behind
// what it needs, in the order in which its subject takes that.

var assemble = flag.Bool("assemble", false, "write assembled/ anew")

// TestAssembled: assembled/ has each script as lua/ has it, and nothing else. A new script begins there as an empty
// file.
func TestAssembled(t *testing.T) {
	want := map[string]string{}
	for _, name := range luaScripts(t) {
		_, want[name+".lua"] = numberedKeys(luaText(name))
	}
	if *assemble {
		queuetest.Must(t, os.RemoveAll("assembled"))
		queuetest.Must(t, os.Mkdir("assembled", 0o755))
		for name, text := range want {
			queuetest.Must(t, os.WriteFile("assembled/"+name, []byte(text), 0o644))
		}
		return
	}
	files, err := assembled.ReadDir("assembled")
	queuetest.Must(t, err)
	for _, file := range files {
		if _, is := want[file.Name()]; !is {
			t.Errorf("assembled/%s has no source in lua/", file.Name())
		}
	}
	for name, text := range want {
		if got, err := assembled.ReadFile("assembled/" + name); err != nil || string(got) != text {
			t.Errorf("assembled/%s is not what lua/ says (%v): "+
				"go test ./internal/script -run TestAssembled -assemble", name, err)
		}
	}
}

// luaScripts are the files of lua/ itself.
func luaScripts(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("lua/*.lua")
	queuetest.Must(t, err)
	for _, file := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(file), ".lua"))
	}
	return names
}

// luaFile is a script, or a subject, as it stands.
func luaFile(script string) string { return readFile("lua/" + script + ".lua") }

func luaSubject(name string) string {
	if !strings.Contains(name, "/") {
		name = "lib/" + name
	}
	return readFile("lua/" + name + ".lua")
}

func readFile(name string) string {
	text, err := os.ReadFile(name)
	if err != nil {
		panic(err)
	}
	return string(text)
}

var (
	luaTake  = regexp.MustCompile(`^ *-- from ([\w/]+): (\w+(?:, \w+)*)\n`)
	luaKey   = regexp.MustCompile(`KEYS\.[a-zA-Z]*`)
	luaLocal = regexp.MustCompile(`^local (?:function )?(\w+(?:, \w+)*)`)
)

// luaCode is a line without its comment. No string of these files has "--".
func luaCode(line string) string {
	code, _, _ := strings.Cut(line, "--")
	return strings.TrimSpace(code)
}

// luaNamesIn are the names that a code has outside of strings, in their order: of a.b and a:b it is a.
func luaNamesIn(code string) (names []string) {
	for i, piece := range strings.Split(code, "'") {
		if i%2 == 1 { // a string
			continue
		}
		for _, word := range strings.FieldsFunc(piece, func(r rune) bool {
			return strings.ContainsRune(" \n()[]{},;=~<>+-*/%^#", r)
		}) {
			name, _, _ := strings.Cut(strings.ReplaceAll(word, ":", "."), ".")
			names = append(names, name)
		}
	}
	return names
}

// A luaPart is one statement of a subject, or several that belong together.
type luaPart struct {
	subject string
	code    string   // without comments, but with its own lines of "from"
	names   []string // that it makes
	takes   []luaRef // what it may need: of its subject, and what that takes
}

// A luaRef names a part.
type luaRef struct{ subject, name string }

// takenBy are what a line takes, nil if it does not.
func takenBy(line string) (refs []luaRef) {
	if take := luaTake.FindStringSubmatch(line); take != nil {
		for name := range strings.SplitSeq(take[2], ", ") {
			refs = append(refs, luaRef{take[1], name})
		}
	}
	return refs
}

var luaParts = readParts()

// readParts reads the parts of all subjects: the files in the folders of lua/.
func readParts() map[luaRef]*luaPart {
	all := map[luaRef]*luaPart{}
	files, err := filepath.Glob("lua/*/*.lua")
	if err != nil {
		panic(err)
	}
	for _, file := range files {
		subject := strings.TrimPrefix(strings.TrimSuffix(strings.TrimPrefix(file, "lua/"), ".lua"), "lib/")
		var known []luaRef
		var part *luaPart
		for line := range strings.Lines(luaSubject(subject)) {
			refs, code := takenBy(line), luaCode(line)
			if local := luaLocal.FindStringSubmatch(line); local != nil {
				part = &luaPart{subject: subject, names: strings.Split(local[1], ", "), takes: slices.Clone(known)}
				for _, name := range part.names {
					known = append(known, luaRef{subject, name})
					all[luaRef{subject, name}] = part
				}
			} else if refs != nil && !strings.HasPrefix(line, " ") {
				known = append(known, refs...)
				continue
			}
			if code != "" || refs != nil {
				part.code += line
			}
		}
	}
	return all
}

// needs are the parts that a part needs where it stands, in the order in which its subject takes them.
func (p *luaPart) needs() (needs []luaRef) {
	used := luaNamesIn(luaCodes(p.code))
	for _, ref := range p.takes {
		if slices.Contains(used, ref.name) && !slices.Contains(p.names, ref.name) && !slices.Contains(needs, ref) {
			needs = append(needs, ref)
		}
	}
	return needs
}

// luaCodes is a text without comments.
func luaCodes(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		if code := luaCode(line); code != "" {
			out.WriteString(code + "\n")
		}
	}
	return out.String()
}

// luaText is a script's text without comments.
func luaText(script string) string {
	w := luaWriter{script: script, there: map[string]*luaPart{}, at: map[string]int{}, written: map[*luaPart]bool{}}
	w.write(luaFile(script), 0)
	return w.String()
}

// A luaWriter puts one script together.
type luaWriter struct {
	strings.Builder
	script  string
	there   map[string]*luaPart // by the names that can be used here
	at      map[string]int      // how far the block is indented in which they are
	written map[*luaPart]bool
}

// write writes lines, which are indented by so much more than they are.
func (w *luaWriter) write(text string, indent int) {
	for line := range strings.Lines(text) {
		at := indent + len(line) - len(strings.TrimLeft(line, " "))
		if code := luaCode(line); code != "" {
			maps.DeleteFunc(w.there, func(name string, _ *luaPart) bool { return w.at[name] > at })
			w.WriteString(code + "\n")
		}
		for _, ref := range takenBy(line) {
			w.take(ref, at)
		}
	}
}

// take writes a part, if it is not there, behind those that it needs.
func (w *luaWriter) take(ref luaRef, at int) {
	part := luaParts[ref]
	if part == nil {
		panic(fmt.Sprintf("lua/ has no %s: %s", ref.subject, ref.name))
	}
	if other := w.there[ref.name]; other == part {
		return
	} else if other != nil || w.written[part] {
		panic(fmt.Sprintf("%s would have %s twice: %s takes it before what needs it", w.script, ref.name, ref.subject))
	}
	for _, need := range part.needs() {
		w.take(need, at)
	}
	w.written[part] = true
	w.write(part.code, at)
	for _, made := range part.names {
		w.there[made], w.at[made] = part, at
	}
}

// numberedKeys are the keys that a text names, place first and the others in the order of structures, and the text with
// KEYS[i] for each, because some hosts look for that. Its first line names the keys.
func numberedKeys(text string) (keys, numbered string) {
	named := map[string]bool{}
	for _, found := range luaKey.FindAllString(text, -1) {
		named[found] = true
	}
	var all []string
	numbers := map[string]string{}
	for _, structure := range append([]string{"place"}, structures[:]...) {
		if named["KEYS."+structure] {
			all = append(all, structure)
			numbers["KEYS."+structure] = fmt.Sprintf("KEYS[%d]", len(all))
		}
	}
	text = luaKey.ReplaceAllStringFunc(text, func(key string) string {
		if numbers[key] == "" {
			panic("a script names an unknown key: " + key)
		}
		return numbers[key]
	})
	keys = strings.Join(all, ", ")
	return keys, keysLine + keys + "\n" + text
}
