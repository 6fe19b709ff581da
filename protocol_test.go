package delayqueue

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// These tests hold PROTOCOL.md against the code.

func readText(t *testing.T, files ...string) string {
	t.Helper()
	var all strings.Builder
	for _, pattern := range files {
		names, err := filepath.Glob(pattern)
		if err != nil || names == nil {
			t.Fatalf("%s: %v, %v", pattern, names, err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			all.Write(text)
		}
	}
	return all.String()
}

// protocolSection is what stands under a heading of PROTOCOL.md, up to the next one of the same rank.
func protocolSection(t *testing.T, heading string) string {
	t.Helper()
	rank, _, _ := strings.Cut(heading, " ")
	_, text, found := strings.Cut(readText(t, "PROTOCOL.md"), "\n"+heading+"\n")
	if !found {
		t.Fatalf("PROTOCOL.md has no %q", heading)
	}
	text, _, _ = strings.Cut(text, "\n"+rank+" ")
	return text
}

// firstColumn are the names that begin the rows of a section's tables.
func firstColumn(section string) []string {
	var names []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([\\w:]+)`").FindAllStringSubmatch(section, -1) {
		names = append(names, row[1])
	}
	return names
}

// luaWords are the texts of Lua code that are one lower-case word.
func luaWords(code string) []string {
	var words []string
	word := regexp.MustCompile(`^[a-z]+:?$`)
	for _, text := range regexp.MustCompile(`'([^'\n]*)'`).FindAllStringSubmatch(luaNote.ReplaceAllString(code, ""), -1) {
		if word.MatchString(text[1]) {
			words = append(words, text[1])
		}
	}
	slices.Sort(words)
	return slices.Compact(words)
}

// TestProtocolFields: each field of state stands in the table, for each word of the Lua is one, or one that a script
// takes or answers; and each row is a field that scripts and internal/check know.
func TestProtocolFields(t *testing.T) {
	fields := firstColumn(protocolSection(t, "## Fields of state"))
	scripts, checker := protocolSection(t, "## Scripts"), readText(t, "internal/check/breaches.go")
	words := luaWords(readText(t, "lua/*.lua"))
	for _, word := range words {
		// of wake, history, Lua
		spoken := strings.Contains(scripts, "'"+word+"'") || word == "w" || word == "d" || word == "number" || word == "table"
		if !spoken && !slices.Contains(fields, word) {
			t.Errorf("%q stands in lua/, and neither in the fields of state nor in the scripts of PROTOCOL.md", word)
		}
	}
	kinds := regexp.MustCompile(`KINDS = {[^}]*}`).FindString(readText(t, "lua/kinds.lua"))
	for _, kind := range luaWords(kinds) {
		if !slices.Contains(fields, kind) {
			t.Errorf("the count %q stands not in the fields of state", kind)
		}
	}
	for _, field := range fields {
		if !slices.Contains(words, field) {
			t.Errorf("PROTOCOL.md has the field %q, and no script has", field)
		}
		if !strings.Contains(checker, `"`+field+`"`) {
			t.Errorf("internal/check does not know the field %q", field)
		}
	}
}

func TestProtocolKeys(t *testing.T) {
	names := append(slices.Clone(structures[:]), "events")
	if rows := firstColumn(protocolSection(t, "## Keys")); !reflect.DeepEqual(rows, names) {
		t.Errorf("PROTOCOL.md has the keys %q, the code %q", rows, names)
	}
}

// TestProtocolScripts: each file of lua/ is named, and each script has its section with its keys and the invariants
// that its own text says it keeps.
func TestProtocolScripts(t *testing.T) {
	page := protocolSection(t, "## Scripts")
	files, _ := filepath.Glob("lua/*.lua")
	for _, file := range files {
		if !strings.Contains(page, filepath.Base(file)+"`") {
			t.Errorf("%s is not named", file)
		}
	}
	aside := regexp.MustCompile(`\([^)]*\)`)
	keepsNote := regexp.MustCompile(`-- Keeps: invariants? (\d[\d, andto]*) of PROTOCOL.md`)
	keysLine, code := regexp.MustCompile("(?m)^- KEYS: (.*)$"), regexp.MustCompile("`(\\w+)`")
	for _, script := range everyScript {
		section := protocolSection(t, "### "+script.name)
		var said, real []string
		if line := keysLine.FindStringSubmatch(section); line != nil {
			for _, name := range code.FindAllStringSubmatch(aside.ReplaceAllString(line[1], ""), -1) {
				said = append(said, name[1])
			}
		}
		for _, i := range script.keys {
			real = append(real, structures[i])
		}
		if !slices.Equal(said, real) {
			t.Errorf("%s: PROTOCOL.md has KEYS %q, the code %q", script.name, said, real)
		}
		if keeps := keepsNote.FindStringSubmatch(luaText(script.name)); keeps != nil {
			if said := "\n- Keeps: " + strings.ReplaceAll(keeps[1], " and ", ", "); !strings.Contains(section, said) {
				t.Errorf("%s: its comment says that it keeps %s, and PROTOCOL.md does not", script.name, keeps[1])
			}
		}
		for _, part := range []string{"\n- ARGV", "\n- Reply:", "\n- Cost:"} {
			if !strings.Contains(section, part) {
				t.Errorf("%s: PROTOCOL.md does not say %q", script.name, strings.TrimSpace(part))
			}
		}
	}
}

// TestProtocolExamples: the records that PROTOCOL.md shows are read, and written, as they stand there.
func TestProtocolExamples(t *testing.T) {
	example := func(kind string) string {
		_, text, _ := strings.Cut(readText(t, "PROTOCOL.md"), "\n```"+kind+"\n")
		text, _, _ = strings.Cut(text, "\n```")
		return text
	}
	inHex := func(kind string) string {
		var bytes []byte
		for line := range strings.Lines(example(kind)) {
			digits, _, _ := strings.Cut(line, "  ")
			part, err := hex.DecodeString(strings.ReplaceAll(strings.TrimSpace(digits), " ", ""))
			if err != nil {
				t.Fatal(err)
			}
			bytes = append(bytes, part...)
		}
		return string(bytes)
	}
	bytes := inHex("envelope")
	want := envelope{due: 1790000000000000, key: "order-42", retries: 3, ttl: 10 * time.Minute,
		headers: map[string]string{"trace": "7f3a"}, payload: "close"}
	if e, err := decodeEnvelope(bytes); err != nil || !reflect.DeepEqual(e, want) {
		t.Errorf("the envelope is %+v, %v", e, err)
	}
	if text := want.encode(when{us: want.due, absolute: true}); text != bytes {
		t.Errorf("the envelope is %x here, %x there", text, bytes)
	}
	if text, fields := want.inFields(nil), inHex("fields"); text != fields {
		t.Errorf("in fields it is %x here, %x there", text, fields)
	}
	r, err := parseFail(strings.ReplaceAll(example("fail"), "␞", errorMark))
	errors := []KeptError{{time.UnixMicro(1790000061250000), 2, "charge: the bank said no"},
		{time.UnixMicro(1790000001000000), 1, "charge: no answer"}}
	if all := keptErrors(r.errors, 5); err != nil || r != (failRecord{3, 2, 0, 1790000061250000, r.errors, false}) ||
		!reflect.DeepEqual(all, errors) {
		t.Errorf("the fail record is %+v, %+v, %v", r, all, err)
	}
	if c, alive := consumerOf("c", example("consumer"), 1790000000000000); !alive || c.Host != "web-3" || len(c.Handling) != 1 {
		t.Errorf("the consumer is %+v, %v", c, alive)
	}
	for line := range strings.Lines(example("history")) {
		if _, counts, _ := strings.Cut(line, " "); tallyOf(counts).Garbage == 0 {
			t.Errorf("the history is %+v", tallyOf(counts))
		}
	}
	codes := protocolSection(t, "## Events")
	for code := NewMessageEvent; code <= SupersededEvent; code++ {
		if !strings.Contains(codes, fmt.Sprintf("| %d |", code)) {
			t.Errorf("the event %d (%v) is missing", code, code)
		}
	}
	var events []Event
	if err := json.Unmarshal([]byte(example("events")), &events); err != nil || len(events) != 1 || events[0].Code != AckEvent {
		t.Errorf("the events are %+v, %v", events, err)
	}
}

// TestProtocolReferences: files, functions, tests and headings that PROTOCOL.md names are there.
func TestProtocolReferences(t *testing.T) {
	page := readText(t, "PROTOCOL.md")
	for _, name := range regexp.MustCompile("[`(]([\\w/]+\\.(?:go|lua|md))[`)]").FindAllStringSubmatch(page, -1) {
		there := func(folder string) bool { _, err := os.Stat(filepath.Join(folder, name[1])); return err == nil }
		if !slices.ContainsFunc([]string{".", "lua", "internal/check"}, there) {
			t.Errorf("there is no file %s", name[1])
		}
	}
	tests := readText(t, "*_test.go")
	for _, name := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(page, -1) {
		if !strings.Contains(tests, "func "+name[1]+"(") {
			t.Errorf("there is no %s", name[1])
		}
	}
	for _, name := range regexp.MustCompile("`(\\w+)`\\s+(?:in\\s+|\\()`([\\w/]+\\.go)`").FindAllStringSubmatch(page, -1) {
		if !regexp.MustCompile(`(?m)^func (\(.*\) )?` + name[1] + `\(`).MatchString(readText(t, name[2])) {
			t.Errorf("%s has no function %s", name[2], name[1])
		}
	}
	for _, anchor := range regexp.MustCompile(`\]\(#([^)]+)\)`).FindAllStringSubmatch(page, -1) {
		if !regexp.MustCompile(`(?im)^#+ ` + strings.ReplaceAll(anchor[1], "-", " ") + `$`).MatchString(page) {
			t.Errorf("there is no heading #%s", anchor[1])
		}
	}
}

// TestProtocolInvariants: each kind of breach stands under an invariant, and what is named there as a check is one.
func TestProtocolInvariants(t *testing.T) {
	section := strings.Join(strings.Fields(protocolSection(t, "## Invariants")), " ")
	for _, kind := range regexp.MustCompile(`Kind = "([^"]+)"`).FindAllStringSubmatch(readText(t, "internal/check/finding.go"), -1) {
		if !strings.Contains(section, kind[1]) {
			t.Errorf("no invariant names the breach %q", kind[1])
		}
	}
	code := readText(t, "internal/check/*.go", "*_test.go")
	for _, part := range strings.Split(section, "Check: ")[1:] {
		part, _, _ = strings.Cut(part, ". ")
		for _, name := range regexp.MustCompile("`(\\w+)` \\(|`(Test\\w+)`").FindAllStringSubmatch(part, -1) {
			if name := name[1] + name[2]; !strings.Contains(code, " "+name+"(") {
				t.Errorf("there is no check %q", name)
			}
		}
	}
}

// TestAnotherProgramSends: what PROTOCOL.md says is enough to send.
func TestAnotherProgramSends(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		const caller, envelope = "4f0c1d2e3a4b5c6d7e8f90a1b2c3d4e5", "\x00\x00\x00\x03close"
		key := func(name string) string { return "{dq:" + r.name + "}:" + name }
		id := idOf("a")
		eval := func(text string, keys []string, args ...any) any {
			r.t.Helper()
			reply, err := r.cli.Eval(context.Background(), text, keys, args...).Result()
			if err != nil {
				r.t.Fatal(err)
			}
			return reply
		}
		single := func() any {
			keys := []string{key("pending"), key("msg"), key("wake"), key("state")}
			return eval(singleScript.text, keys, caller, 1, 900000000, id, envelope)
		}
		r.equal("reply", single(), r.now)
		r.equal("reply to a repeat", single(), int64(0))
		again := eval(sendScript.text, []string{key("pending"), key("msg"), key("key"), key("wake"), key("state"), key("held")},
			caller, 1, "", 900000000, 1, 1, id, envelope)
		r.equal("reply of send", again, []any{strconv.FormatInt(r.now, 10), ""})
		r.equal("pending", len(r.read().Pending), 1)
		r.at(15 * time.Minute)
		got := r.fetch(newCaller(), 10)
		e, err := decodeEnvelope(strings.Join(got.envelopes, ""))
		if err != nil || e.payload != "close" || e.retries != 3 {
			r.t.Errorf("handed out %+v, %v", e, err)
		}
		r.read()
	})
}

// TestRecipes: the code in pages of docs stands so in Examples and tests.
func TestRecipes(t *testing.T) {
	indent := regexp.MustCompile(`(?m)^\t+`)
	for page, files := range map[string][]string{
		"docs/recipes.md": {"example_recipes_test.go", "example_services_test.go", "typed/example_recipes_test.go", "schedule/example_test.go",
			"metrics/otelqueue/example_test.go"},
		"docs/testing.md": {"delayqueuetest/docs_test.go", "delayqueuetest/service_test.go"},
	} {
		var compiled string
		for _, file := range files {
			compiled += readText(t, file)
		}
		compiled = indent.ReplaceAllString(compiled, "")
		blocks := strings.Split(readText(t, page), "\n```go\n")
		for _, block := range blocks[1:] {
			code, _, _ := strings.Cut(block, "```")
			if !strings.Contains(compiled, indent.ReplaceAllString(code, "")) {
				t.Errorf("%s: none of %q has\n%s", page, files, code)
			}
		}
		if len(blocks) < 2 {
			t.Errorf("%s has none", page)
		}
	}
}
