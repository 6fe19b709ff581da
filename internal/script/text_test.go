package script

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
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
