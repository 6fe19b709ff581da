package docs

import (
	"regexp"
	"strings"
	"testing"

	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// TestFiguresOfTheReadme: the figures of the READMEs and of their pictures are those of docs/benchmarks.md.
func TestFiguresOfTheReadme(t *testing.T) {
	all := queuetest.ReadText(t, "docs/benchmarks.md")
	_, lateness, _ := strings.Cut(all, "\n### Lateness of messages due at random instants")
	lines := strings.Split(lateness[strings.Index(lateness, "\n|  |"):], "\n")
	cells := func(line string) (all []string) {
		for cell := range strings.SplitSeq(strings.Trim(line, "| "), "|") {
			figure, _, _ := strings.Cut(strings.TrimSpace(cell), " ±")
			all = append(all, figure)
		}
		return all
	}
	names, p50, p99 := cells(lines[1]), cells(lines[3])[1:], cells(lines[4])[1:]
	for page, and := range map[string]string{"README.md": " and ", "docs/README.zh-CN.md": " 和 "} {
		_, section, _ := strings.Cut(queuetest.ReadText(t, page), "bench-light.svg)\n")
		section, _, _ = strings.Cut(section, "\n## ")
		section = strings.ReplaceAll(section, "\n", " ")
		for i, name := range names {
			if want := name + " " + p50[i] + and + p99[i]; !strings.Contains(section, want) {
				t.Errorf("%s: no %q", page, want)
			}
		}
		if n := len(regexp.MustCompile(`\d[\d,.]*\d`+and).FindAllString(section, -1)); n != len(names)+1 { // with p50
			t.Errorf("%s: %d pairs of figures", page, n)
		}
	}
	for _, picture := range []string{"docs/bench-light.svg", "docs/bench-dark.svg"} {
		drawn := regexp.MustCompile(`>([\d,]+\d)<`).FindAllStringSubmatch(queuetest.ReadText(t, picture), -1)
		if len(drawn) < 12 {
			t.Errorf("%s: %d figures", picture, len(drawn))
		}
		for _, figure := range drawn {
			if !strings.Contains(all, "| "+figure[1]+" |") && !strings.Contains(all, "| "+figure[1]+" ±") {
				t.Errorf("%s: %s is not in docs/benchmarks.md", picture, figure[1])
			}
		}
	}
}
