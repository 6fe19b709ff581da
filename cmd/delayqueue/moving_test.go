package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The code on the pages about moving over is compiled; what another module would have to be there for says so.
func TestMovingPages(t *testing.T) {
	indent := regexp.MustCompile(`(?m)^\t+`)
	read := func(name string) string {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for page, source := range map[string]string{
		"../../docs/from-asynq.md":   "moving_asynq_test.go",
		"../../docs/from-hdt3213.md": "../../example_moving_test.go",
	} {
		compiled := indent.ReplaceAllString(read(source), "")
		blocks := strings.Split(read(page), "\n```go\n")
		if len(blocks) < 3 {
			t.Errorf("%s: %d blocks of code", page, len(blocks)-1)
		}
		for _, block := range blocks[1:] {
			code, _, _ := strings.Cut(block, "```")
			if !strings.HasPrefix(code, "// before\n") && !strings.Contains(compiled, indent.ReplaceAllString(code, "")) {
				t.Errorf("%s: not in %s:\n%s", page, source, code)
			}
		}
	}
}
