package docs

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

var (
	codeSpan  = regexp.MustCompile("`[^`\n]+`")
	goComment = regexp.MustCompile(`(?m)\s*//.*$`)
)

// shapeOf is what a page and its translation have in common: headings by their level, code without comments, tables by
// their columns, and the names in each row and in the text under each heading.
func shapeOf(page string) (shape []string) {
	var fence, code string
	var text strings.Builder
	names := func(s string) string { // in any order, for sentences have another in another language
		all := codeSpan.FindAllString(s, -1)
		slices.Sort(all)
		return strings.Join(slices.Compact(all), " ")
	}
	endOfText := func() {
		shape = append(shape, "names: "+names(text.String()))
		text.Reset()
	}
	for line := range strings.Lines(page) {
		switch {
		case fence != "" && strings.HasPrefix(line, "```"):
			if fence == "```go\n" {
				code = goComment.ReplaceAllString(code, "")
			}
			shape = append(shape, "code:\n"+code)
			fence, code = "", ""
		case fence != "":
			code += line
		case strings.HasPrefix(line, "```"):
			fence = line
		case strings.HasPrefix(line, "#"):
			endOfText()
			level, _, _ := strings.Cut(line, " ")
			shape = append(shape, "heading: "+level)
		case strings.HasPrefix(line, "|"):
			shape = append(shape, fmt.Sprintf("row of %d: %s", strings.Count(line, "|"), names(line)))
		default:
			text.WriteString(line)
		}
	}
	endOfText()
	return shape
}

// TestTranslations: who changes a page changes its translation.
func TestTranslations(t *testing.T) {
	pages, err := filepath.Glob(queuetest.File(t, "docs/*.zh-CN.md"))
	if err != nil || len(pages) < 2 {
		t.Fatalf("there are %q, %v", pages, err)
	}
	for _, page := range pages {
		name := "docs/" + filepath.Base(page)
		english := strings.TrimSuffix(name, ".zh-CN.md") + ".md"
		if filepath.Base(english) == "README.md" {
			english = "README.md"
		}
		want, got := shapeOf(queuetest.ReadText(t, english)), shapeOf(queuetest.ReadText(t, name))
		for i := range max(len(want), len(got)) {
			if i >= len(want) || i >= len(got) || want[i] != got[i] {
				t.Errorf("%s differs from %s here:\n%s\nand\n%s", name, english,
					strings.Join(got[min(i, len(got)):min(i+1, len(got))], ""),
					strings.Join(want[min(i, len(want)):min(i+1, len(want))], ""))
				break
			}
		}
	}
}
