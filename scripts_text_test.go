package delayqueue

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	redisCall = regexp.MustCompile(`redis\.(\w+)\('(\w+)'(?:, *([^,()]+(?:\([^()]*\))?))?`)
	luaNote   = regexp.MustCompile(`--[^\n]*`)
	glued     = regexp.MustCompile(`(\w+)?\s*\.\.\s*(\w+)?`)
	keysNote  = regexp.MustCompile(`-- KEYS: (?:.*,\n--       )*.*`)
)

// TestScriptText: every command's key is literally KEYS[i] of a key that is declared, as a
// Cluster and some hosts want; and no instant is turned into text by Lua's own rules, which
// keep 14 digits of 16.
func TestScriptText(t *testing.T) {
	for _, script := range everyScript {
		var keys []string
		for _, i := range script.keys {
			keys = append(keys, structures[i])
		}
		code := luaNote.ReplaceAllString(script.text, "")
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
			aside := err == nil && i >= 1 && i <= len(keys) && slices.Contains([]string{"consumers", "history", "parts"}, keys[i-1])
			undone := script.script == singleScript // after a write that fails
			whosever := script.script == dropScript // it deletes somebody else's key with the others
			if call[1] != "call" && !(call[1] == "pcall" && (aside || undone || whosever)) || err != nil || i < 1 || i > len(keys) ||
				call[3] != fmt.Sprintf("KEYS[%d]", i) {
				t.Errorf("%s: %s: want redis.call (for Monitors, and parts, pcall) with KEYS[1] to KEYS[%d]", script.name, call[0], len(keys))
			}
			used[i] = true
		}
		if len(used) != len(keys) {
			t.Errorf("%s uses %d of its %d keys", script.name, len(used), len(keys))
		}
		note := strings.ReplaceAll(keysNote.FindString(luaText(script.name)), ",\n--       ", ", ")
		if want := "-- KEYS: " + strings.Join(keys, ", "); note != want {
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
