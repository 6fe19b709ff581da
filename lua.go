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

// This file puts the scripts together of the files in lua/. A script calls its keys by their names, so that
// scripts can share parts. Each file's own text says what it does, takes, returns (a flat list), costs and keeps.

//go:embed lua/*.lua
var luaFiles embed.FS

var (
	sendScript   = loadScript("head", "call", "send")
	singleScript = loadScript("single")
	forgetScript = loadScript("head", "callers", "forget")
	fetchScript  = loadScript("head", "call", "callers", "settings", "tally", "fetch", "fetch_leases", "fetch_garbage", "fetch_choose",
		"fetch_give", "fetch_alarm", "fetch_sweep")
	settleScript    = loadScript("head", "call", "settings", "settle")
	extendScript    = loadScript("head", "settings", "extend")
	interceptScript = loadScript("head", "call", "intercept")
	countsScript    = loadScript("head", "counts")
	lookScript      = loadScript("head", "look")
	steerScript     = loadScript("head", "call", "steer")
	pauseScript     = loadScript("head", "call", "pause")
	dropScript      = loadScript("head", "drop")
	consumersScript = loadScript("head", "consumers")
	historyScript   = loadScript("head", "tally", "history")
)

// listScripts are the script list for each structure that it can read. Their texts are the same.
var listScripts = map[State]*script{
	StatePending: listScript("pending"), StateReady: listScript("ready"), StateUnack: listScript("unack"),
	StateRetry: listScript("retry"), StateGarbage: listScript("garbage"),
}

func listScript(structure string) *script {
	return newScript(strings.ReplaceAll(luaText("head", "list"), "KEYS.place", "KEYS."+structure))
}

// A script is a text as Redis gets it, and the keys that it takes.
type script struct {
	text, sha string
	keys      []int // in keys.all, in the order of KEYS
}

func luaText(files ...string) string {
	var texts []string
	for _, file := range files {
		text, err := luaFiles.ReadFile("lua/" + file + ".lua")
		if err != nil {
			panic(err)
		}
		texts = append(texts, string(text))
	}
	return strings.Join(texts, "\n")
}

func loadScript(files ...string) *script { return newScript(luaText(files...)) }

var keyName = regexp.MustCompile(`KEYS\.\w+`)

// newScript numbers the keys that a text names, in the order of structures, and writes KEYS[i] for each name: some hosts look for
// that. It panics if no structure has such a name.
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
