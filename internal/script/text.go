package script

import (
	"crypto/sha1"
	"embed"
	"fmt"
	"slices"
	"strings"
)

// assembled has the scripts as Redis gets them. TestAssembled makes them of lua/.
//
//go:embed assembled
var assembled embed.FS

var (
	SendScript      = loadScript("send")
	SingleScript    = loadScript("single")
	PutScript       = loadScript("put")
	ForgetScript    = loadScript("forget")
	FetchScript     = loadScript("fetch")
	TickScript      = loadScript("tick")
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

// plainSettle and plainPut are called without the keys of lanes, which come last, because each key costs the server
// about one percent of a call.
var plainSettle, plainPut = SettleScript.plain(), PutScript.plain()

// ScriptTexts are those of all scripts.
var ScriptTexts []string

// ListScripts are the script list for each structure that it can read, and held for unack. list has one text, which
// calls the structure place.
var ListScripts = func() map[string]*Script {
	all := map[string]*Script{stateUnack: loadScript("held")}
	keys, text := readScript("list")
	for _, state := range StateWords[1:] {
		if state != stateUnack {
			all[state] = New(strings.Replace(keys, "place", state, 1), text)
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

func loadScript(name string) *Script { return New(readScript(name)) }

// readScript reads a file of assembled/, and the names of its keys.
func readScript(name string) (keys, text string) {
	file, err := assembled.ReadFile("assembled/" + name + ".lua")
	if err != nil {
		panic(err)
	}
	text = string(file)
	ScriptTexts = append(ScriptTexts, text)
	line, _, _ := strings.Cut(text, "\n")
	return strings.TrimPrefix(line, keysLine), text
}

// keysLine begins the first line of a text, which names its keys in the order of KEYS.
const keysLine = "-- KEYS: "

// New makes a script of the names of its keys ("": it has none) and a text.
func New(keys, text string) *Script {
	sc := &Script{Text: text, SHA: fmt.Sprintf("%x", sha1.Sum([]byte(text)))}
	if keys == "" {
		return sc
	}
	for name := range strings.SplitSeq(keys, ", ") {
		i := slices.Index(structures[:], name)
		if i < 0 {
			panic("delayqueue: a script names an unknown key: " + name)
		}
		sc.keys = append(sc.keys, i)
	}
	return sc
}
