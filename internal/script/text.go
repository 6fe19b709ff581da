package script

import (
	"crypto/sha1"
	"embed"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// This file puts the scripts together of the files in lua/. Each says what it does, takes, returns (a flat list), costs
// and keeps. Three things in a text stand for others:
//
//	-- from message: keyof, redue   these functions and constants of lua/lib/message.lua and what they need, but for what
//	                                is there already: a subject may be large at no cost to a script
//	-- step read, repeat            lua/<script>/read.lua, and so on
//	KEYS.pending                    the key of that name

//go:embed lua
var luaFiles embed.FS

var (
	SendScript      = loadScript("send")
	SingleScript    = loadScript("single")
	PutScript       = loadScript("put")
	ForgetScript    = loadScript("forget")
	FetchScript     = loadScript("fetch")
	SettleScript    = loadScript("settle")
	ExtendScript    = loadScript("extend")
	KeepScript      = loadScript("keep")
	InterceptScript = loadScript("intercept")
	CountsScript    = loadScript("counts")
	BalanceScript   = loadScript("balance")
	LookScript      = loadScript("look")
	SteerScript     = loadScript("steer")
	SetScript       = loadScript("set")
	DropScript      = loadScript("drop")
	ShardsScript    = loadScript("shards")
	ConsumersScript = loadScript("consumers")
	HistoryScript   = loadScript("history")
	ForecastScript  = loadScript("forecast")
	AwaitScript     = loadScript("await")
	NoteScript      = loadScript("note")
	JournalScript   = loadScript("journal")
	repairScript    = loadScript("repair")

	LanesScript     = loadScript("lanes")
	SequencesScript = loadScript("sequences")
	sequenceScript  = loadScript("sequence")
)

// plainSettle and plainPut are called without the keys of lanes, which come last, because each key costs the server about one percent of a call.
var plainSettle, plainPut = SettleScript.plain(), PutScript.plain()

// ScriptTexts are those of all scripts.
var ScriptTexts []string

// ListScripts are the script list for each structure that it can read, and held for unack. The texts of list are the same.
var ListScripts = func() map[string]*Script {
	all := map[string]*Script{stateUnack: loadScript("held")}
	for _, state := range StateWords[1:] {
		if state != stateUnack {
			all[state] = known(New(strings.ReplaceAll(luaText("list"), "KEYS.place", "KEYS."+state)))
		}
	}
	return all
}()

// A Script is a text as Redis gets it, and the keys that it takes.
type Script struct {
	Text, SHA string
	keys      []int // in keys.all, in the order of KEYS
}

func (sc *Script) plain() *Script {
	return &Script{Text: sc.Text, SHA: sc.SHA, keys: sc.keys[:len(sc.keys)-2]}
}

func loadScript(file string) *Script { return known(New(luaText(file))) }

// known notes the text of a script.
func known(sc *Script) *Script {
	ScriptTexts = append(ScriptTexts, sc.Text)
	return sc
}

// luaFile is a file of lua/ as it stands.
func luaFile(name string) string {
	text, err := luaFiles.ReadFile("lua/" + name + ".lua")
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
		for _, word := range strings.FieldsFunc(piece, func(r rune) bool { return strings.ContainsRune(" \n()[]{},;=~<>+-*/%^#", r) }) {
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
	files, err := luaFiles.ReadDir("lua/lib")
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
					panic("delayqueue: two subjects of lua/lib have " + name)
				}
				all[name] = p
			}
		}
	}
	return all
}

// luaText is a script's text without comments. What a text takes within a block that is passed over costs a call nothing.
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
		panic("delayqueue: lua/lib/" + subject + ".lua has no " + name)
	}
	for _, other := range part.needs {
		w.take(luaParts[other].subject, other, at)
	}
	for _, made := range part.names {
		w.taken[made] = at
	}
	w.WriteString(part.code)
}

// New numbers the keys that a text names, in the order of structures, and writes KEYS[i] for each name: some hosts
// look for that. It panics if no structure has such a name.
func New(text string) *Script {
	named := map[string]bool{}
	for _, found := range luaKey.FindAllString(text, -1) {
		named[found] = true
	}
	sc, numbers := &Script{}, map[string]string{}
	for i, structure := range structures {
		if named["KEYS."+structure] {
			sc.keys = append(sc.keys, i)
			numbers["KEYS."+structure] = fmt.Sprintf("KEYS[%d]", len(sc.keys))
		}
	}
	sc.Text = luaKey.ReplaceAllStringFunc(text, func(key string) string {
		if numbers[key] == "" {
			panic("delayqueue: a script names an unknown key: " + key)
		}
		return numbers[key]
	})
	sc.SHA = fmt.Sprintf("%x", sha1.Sum([]byte(sc.Text)))
	return sc
}
