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
// flat list), costs and keeps. Three things in a text stand for others:
//
//	-- from message: keyof, redue   these functions and constants of lua/lib/message.lua and what they need, but for what
//	                                is there already: a subject may be large at no cost to a script
//	-- step read, repeat            lua/<script>/read.lua, and so on
//	KEYS.pending                    the key of that name

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

// luaFile is a file of lua/ as it stands.
func luaFile(name string) string {
	text, err := os.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err)
	}
	return string(text)
}

var (
	luaTake  = regexp.MustCompile(`^ *-- from (\w+): (\w+(?:, \w+)*)\n`)
	luaSteps = regexp.MustCompile(`^ *-- step (\w+(?:, \w+)*)\n`)
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

// A luaPart is one statement of lua/lib/, or several that belong together.
type luaPart struct {
	subject string
	code    string   // without comments
	names   []string // that it makes
	needs   []string // other parts, by name
}

var luaParts = readParts()

// readParts reads all of them, by each name that they make. No two subjects have the same name.
func readParts() map[string]*luaPart {
	all := map[string]*luaPart{}
	files, err := os.ReadDir("lua/lib")
	if err != nil {
		panic(err)
	}
	for _, file := range files {
		subject := strings.TrimSuffix(file.Name(), ".lua")
		var parts []*luaPart
		var known []string // names that a part of this subject may need
		for line := range strings.Lines(luaFile("lib/" + subject)) {
			if take := luaTake.FindStringSubmatch(line); take != nil {
				known = append(known, strings.Split(take[2], ", ")...)
			} else if local := luaLocal.FindStringSubmatch(line); local != nil {
				parts = append(parts, &luaPart{subject: subject, names: strings.Split(local[1], ", ")})
				known = append(known, parts[len(parts)-1].names...)
			}
			if code := luaCode(line); code != "" {
				parts[len(parts)-1].code += code + "\n"
			}
		}
		for _, p := range parts {
			for _, name := range luaNamesIn(p.code) {
				if slices.Contains(known, name) && !slices.Contains(p.names, name) {
					p.needs = append(p.needs, name)
				}
			}
			for _, name := range p.names {
				if all[name] != nil {
					panic("two subjects of lua/lib have " + name)
				}
				all[name] = p
			}
		}
	}
	return all
}

// luaText is a script's text without comments. What a text takes within a block that is passed over costs a call
// nothing.
func luaText(script string) string {
	w := luaWriter{script: script, taken: map[string]int{}}
	w.file(script, 0)
	return w.String()
}

// A luaWriter puts one script together.
type luaWriter struct {
	strings.Builder
	script  string
	taken   map[string]int // what is there, and how far the block is indented in which it is
	deepest int            // no block in which anything is there is indented further
}

// file writes the lines of a file, which are indented by so much more than there.
func (w *luaWriter) file(name string, indent int) {
	for line := range strings.Lines(luaFile(name)) {
		at := indent + len(line) - len(strings.TrimLeft(line, " "))
		if code := luaCode(line); code != "" {
			if at < w.deepest {
				maps.DeleteFunc(w.taken, func(_ string, block int) bool { return block > at })
				w.deepest = at
			}
			w.WriteString(code + "\n")
		} else if take := luaTake.FindStringSubmatch(line); take != nil {
			for _, part := range strings.Split(take[2], ", ") {
				w.take(take[1], part, at)
			}
			w.deepest = max(w.deepest, at)
		} else if steps := luaSteps.FindStringSubmatch(line); steps != nil {
			for _, step := range strings.Split(steps[1], ", ") {
				w.file(w.script+"/"+step, at)
			}
		}
	}
}

// take writes a part, if it is not there, behind those that it needs.
func (w *luaWriter) take(subject, name string, at int) {
	if _, there := w.taken[name]; there {
		return
	}
	part := luaParts[name]
	if part == nil || part.subject != subject {
		panic("lua/lib/" + subject + ".lua has no " + name)
	}
	for _, other := range part.needs {
		w.take(luaParts[other].subject, other, at)
	}
	for _, made := range part.names {
		w.taken[made] = at
	}
	w.WriteString(part.code)
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
