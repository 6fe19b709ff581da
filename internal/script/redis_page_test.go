package script

import (
	"context"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/redis/go-redis/v9"
)

// firstColumn lists the names that begin the rows of a section's tables.
func firstColumn(section string) []string {
	var names []string
	for _, row := range regexp.MustCompile("(?m)^\\| ((?:`[\\w:]+` )+)").FindAllStringSubmatch(section, -1) {
		for name := range strings.FieldsSeq(row[1]) {
			names = append(names, strings.Trim(name, "`"))
		}
	}
	return names
}

// luaWords lists the texts in Lua code that are one lower-case word.
func luaWords(code string) []string {
	var words []string
	word := regexp.MustCompile(`^[a-z]+(:[a-z]*)?$`)
	for _, text := range regexp.MustCompile(`'([^'\n]*)'`).FindAllStringSubmatch(luaNote.ReplaceAllString(code, ""), -1) {
		if word.MatchString(text[1]) {
			words = append(words, text[1])
		}
	}
	slices.Sort(words)
	return slices.Compact(words)
}

// TestRedisPageFields: docs/redis.md has each field of state. Each word in the Lua is such a field, or a word that a
// comment of the Lua explains. Scripts and internal/check know each field of the page.
func TestRedisPageFields(t *testing.T) {
	fields := firstColumn(queuetest.RedisSection(t, "## Fields of state"))
	keys, checker, lua := queuetest.RedisSection(t, "## Keys"), queuetest.ReadText(t, "internal/check/breaches.go"),
		queuetest.ReadText(t, "internal/script/lua/*.lua", "internal/script/lua/*/*.lua")
	words, notes := luaWords(lua), strings.Join(luaNote.FindAllString(lua, -1), "\n")
	for _, word := range words {
		// of wake, history, Lua
		spoken := strings.Contains(notes, "'"+word+"'") || strings.Contains(keys, "`"+word+"`") || word == "w" ||
			word == "d" || word == "number" || word == "table"
		if !spoken && !slices.Contains(fields, word) {
			t.Errorf("%q stands in lua/, and neither in the fields of state and the keys of docs/redis.md nor in a comment "+
				"of lua/", word)
		}
	}
	kinds := regexp.MustCompile(`KINDS = {[^}]*}`).FindString(queuetest.ReadText(t, "internal/script/lua/lib/history.lua"))
	for _, kind := range luaWords(kinds) {
		if !slices.Contains(fields, kind) {
			t.Errorf("the count %q stands not in the fields of state", kind)
		}
	}
	for _, field := range fields {
		if !slices.Contains(words, field) {
			t.Errorf("docs/redis.md has the field %q, and no script has", field)
		}
		if !strings.Contains(checker, `"`+field+`"`) {
			t.Errorf("internal/check does not know the field %q", field)
		}
	}
}

// TestRedisPageKeys: docs/redis.md has the keys in the order of the code.
func TestRedisPageKeys(t *testing.T) {
	section := queuetest.RedisSection(t, "## Keys")
	names := append(slices.Clone(structures[:]), "events", "outbox")
	if rows := firstColumn(section); !reflect.DeepEqual(rows, names) {
		t.Errorf("docs/redis.md has the keys %q, the code %q", rows, names)
	}
}

// TestScriptHeads: the first lines of each script are its reference.
func TestScriptHeads(t *testing.T) {
	for _, script := range everyScript {
		for _, part := range []string{"\n-- Returns ", "\n-- Cost: "} {
			if !strings.Contains(luaFile(script.name), part) {
				t.Errorf("%s: its comment does not say %q", script.name, strings.TrimSpace(part))
			}
		}
	}
}

// TestRedisPageHistory: the history that docs/redis.md shows can be read.
func TestRedisPageHistory(t *testing.T) {
	for line := range strings.Lines(queuetest.RedisExample(t, "history")) {
		if _, counts, _ := strings.Cut(line, " "); spanCountsOf(counts).Garbage == 0 {
			t.Errorf("the history is %+v", spanCountsOf(counts))
		}
	}
}

// TestAnotherProgramSends: a program can send with what docs/sending.md says.
func TestAnotherProgramSends(t *testing.T) {
	onBoth(t, func(r *rig) {
		const caller, envelope = "4f0c1d2e3a4b5c6d7e8f90a1b2c3d4e5", "\x00\x00\x00\x03close"
		key := func(name string) string { return "{dq:" + r.name + "}:" + name }
		id := queuetest.IDOf("a")
		eval := func(text string, keys []string, args ...any) any {
			r.t.Helper()
			reply, err := r.Cli.Eval(queuetest.CtxB, text, keys, args...).Result()
			queuetest.Must(r.t, err)
			return reply
		}
		single := func() any {
			keys := []string{key("pending"), key("msg"), key("wake"), key("state")}
			return eval(SingleScript.Text, keys, caller, 1, 900000000, id, envelope)
		}
		r.equal("reply in a new queue", single(), int64(0))
		r.put(msg("b", time.Hour))
		r.equal("reply", single(), r.now)
		r.equal("reply to a repeat", single(), int64(0))
		again := eval(SendScript.Text, []string{key("pending"), key("msg"), key("key"), key("wake"), key("state"),
			key("holds")},
			caller, 1, 1, 900000000, 1, 1, id, envelope)
		r.equal("reply of send", again, []any{strconv.FormatInt(r.now, 10), ""})
		r.equal("pending", len(r.read().Pending), 2)
		r.at(15 * time.Minute)
		got := r.fetch(NewCaller(), 10)
		e, err := message.DecodeEnvelope(strings.Join(got.Envelopes, ""))
		if err != nil || e.Payload != "close" || e.Retries != 3 {
			r.t.Errorf("handed out %+v, %v", e, err)
		}
		r.read()
	})
}

var (
	redisCall = regexp.MustCompile(`redis\.(\w+)\('(\w+)'(?:, *([^,()]+(?:\([^()]*\))?))?`)
	glued     = regexp.MustCompile(`(\w+)?\s*\.\.\s*(\w+)?`)
	luaNote   = regexp.MustCompile(` *--.*`)
	keysNote  = regexp.MustCompile(`-- KEYS: (?:.*,\n--       )*.*`)
)

// TestScriptText: every command has a literal KEYS[i] of a declared key, because a Cluster and some hosts want that.
// No instant becomes text by Lua's own rules, which keep 14 digits of 16.
func TestScriptText(t *testing.T) {
	for _, script := range everyScript {
		var keys []string
		for _, i := range script.keys {
			keys = append(keys, structures[i])
		}
		code := strings.ReplaceAll(luaNote.ReplaceAllString(script.Text, ""), "redis.sha1hex",
			"sha1hex") // which is no command
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
			undone := script.Script == SingleScript // after a write that fails
			whosever := script.Script == DropScript // it deletes somebody else's key with the others
			if call[1] != "call" && !(call[1] == "pcall" && (aside || undone || whosever)) || err != nil || i < 1 ||
				i > len(keys) ||
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
		if want := "-- KEYS: " + strings.Join(keys, ", "); note != want &&
			script.Script != ListScripts[stateWaiting] { // it has another order
			t.Errorf("%s: its comment says %q, want %q", script.name, note, want)
		}
		if strings.Contains(code, "tostring") {
			t.Errorf("%s uses tostring", script.name)
		}
		instants := []string{"now", "next", "due", "ends", "first", "leased", "furthest", "renewed", "upto", "till", "over",
			"inGrace",
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

// TestScriptOfALargeCall: a large call goes with the text of its script at once. If it went by the hash, and the
// server did not know that, all bytes would have to be sent again.
func TestScriptOfALargeCall(t *testing.T) {
	f := queuetest.NewBase(t)
	cli := f.Client()
	var got []string
	notes := func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if strings.HasPrefix(cmd.Name(), "eval") {
			got = append(got, cmd.Name())
		}
		return next(ctx, cmd)
	}
	t.Cleanup(link.Interpose(cli, queuetest.CommandHook(notes)))
	s := NewStore(cli, "dq", f.Name)
	s.AttemptTimeout = queuetest.Patience
	for size, want := range map[int][]string{100: {"evalsha", "eval"}, link.AttemptBytesPerSecond: {"eval"}} {
		got = nil
		unknown := New("state", fmt.Sprintf("return '%d %d'", time.Now().UnixNano(), size))
		if _, err := s.Eval(queuetest.CtxB, unknown, 0, strings.Repeat("x", size)); err != nil || !slices.Equal(got, want) {
			t.Errorf("%d bytes: %v, %v", size, got, err)
		}
	}
}

// These tests hold what the files of lua/ say that they take and give against their text.
