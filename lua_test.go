package delayqueue

import (
	"slices"
	"strings"
	"testing"
)

// TestScriptKeysAreNumbered: in the order of structures, whatever the order in which the text names them.
func TestScriptKeysAreNumbered(t *testing.T) {
	sc := newScript("redis.call('HSET', KEYS.state, KEYS.key) redis.call('DEL', KEYS.pending, KEYS.state)")
	k := keysOf("dq", "q")
	got := sc.command("eval", sc.text, &k, []any{"a"})
	want := []any{"eval", "redis.call('HSET', KEYS[3], KEYS[2]) redis.call('DEL', KEYS[1], KEYS[3])", 3, k.pending, k.key, k.state, "a"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestScriptKeysAreKnown: a name that is no structure's, of which another may be the beginning, does not get as far as Redis.
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

// TestListScriptsShareAText: which structure is read is told by KEYS alone, so a server keeps one script; and one for
// done, which comes behind the other keys.
func TestListScriptsShareAText(t *testing.T) {
	for state, sc := range listScripts {
		at := 0
		if state == StateDone {
			at = len(sc.keys) - 1
		}
		if structures[sc.keys[at]] != stateNames[state] || state != StateDone && sc.text != listScripts[StatePending].text {
			t.Errorf("%s reads %s, with %s", state, structures[sc.keys[at]], sc.text)
		}
	}
}

// TestScriptParts: a part that is included stands where the line stood, and one that is not there panics.
func TestScriptParts(t *testing.T) {
	for _, script := range everyScript {
		text := luaText(script.name)
		if left := include.FindString(text); left != "" || script.name != "single" && strings.Count(text, "local function us(") != 1 {
			t.Errorf("%s: %q is left, or head is not there once", script.name, left)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a file that is not there: no panic")
		}
	}()
	luaText("nothing")
}
