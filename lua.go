package delayqueue

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// This file puts the scripts together of the files in lua/. A line "-- include arm" stands for the part arm.lua, and
// KEYS.pending for the key of that name. Each script's own text says what it does, takes, returns (a flat list),
// costs and keeps.

//go:embed lua/*.lua
var luaFiles embed.FS

var (
	sendScript      = loadScript("send")
	singleScript    = loadScript("single")
	putScript       = loadScript("put")
	forgetScript    = loadScript("forget")
	fetchScript     = loadScript("fetch")
	settleScript    = loadScript("settle")
	extendScript    = loadScript("extend")
	overrunScript   = loadScript("overrun")
	interceptScript = loadScript("intercept")
	countsScript    = loadScript("counts")
	lookScript      = loadScript("look")
	steerScript     = loadScript("steer")
	pauseScript     = loadScript("pause")
	limitScript     = loadScript("limit")
	dropScript      = loadScript("drop")
	consumersScript = loadScript("consumers")
	historyScript   = loadScript("history")
	forecastScript  = loadScript("forecast")
	awaitScript     = loadScript("await")
	noteScript      = loadScript("note")
	journalScript   = loadScript("journal")

	sequencesScript    = loadScript("sequences")
	dropSequenceScript = loadScript("dropsequence")
	passSequenceScript = loadScript("passsequence")
)

// listScripts are the script list for each structure that it can read. Their texts are the same.
var listScripts = func() map[State]*script {
	all := map[State]*script{}
	for state := StatePending; state <= StateDone; state++ {
		all[state] = newScript(strings.ReplaceAll(luaText("list"), "KEYS.place", "KEYS."+stateNames[state]))
	}
	return all
}()

// A script is a text as Redis gets it, and the keys that it takes.
type script struct {
	text, sha string
	keys      []int // in keys.all, in the order of KEYS
}

func loadScript(file string) *script { return newScript(luaText(file)) }

var include = regexp.MustCompile(`(?m)^ *-- include (\w+(?:, \w+)*)$`)

// luaText is a file's text with each part that it includes, where it includes it: what a part defines in a
// block that is passed over costs a call nothing.
func luaText(file string) string {
	text, err := luaFiles.ReadFile("lua/" + file + ".lua")
	if err != nil {
		panic(err)
	}
	return include.ReplaceAllStringFunc(string(text), func(line string) string {
		var parts []string
		for _, part := range strings.Split(include.FindStringSubmatch(line)[1], ", ") {
			parts = append(parts, luaText(part))
		}
		return strings.Join(parts, "")
	})
}

var keyName = regexp.MustCompile(`KEYS\.\w+`)

// newScript numbers the keys that a text names, in the order of structures, and writes KEYS[i] for each name: some hosts
// look for that. It panics if no structure has such a name.
func newScript(text string) *script {
	sc := &script{}
	named, numbers := keyName.FindAllString(text, -1), map[string]string{}
	for i, structure := range structures {
		if slices.Contains(named, "KEYS."+structure) {
			sc.keys = append(sc.keys, i)
			numbers["KEYS."+structure] = fmt.Sprintf("KEYS[%d]", len(sc.keys))
		}
	}
	sc.text = keyName.ReplaceAllStringFunc(text, func(name string) string {
		number, known := numbers[name]
		if !known {
			panic("delayqueue: a script names an unknown key: " + name)
		}
		return number
	})
	sum := sha1.Sum([]byte(sc.text))
	sc.sha = hex.EncodeToString(sum[:])
	return sc
}
