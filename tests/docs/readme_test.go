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
	measured := func(figure string) bool {
		return strings.Contains(all, "| "+figure+" |") || strings.Contains(all, "| "+figure+" ±")
	}
	for _, page := range []string{"README.md", "docs/README.zh-CN.md"} {
		_, section, _ := strings.Cut(queuetest.ReadText(t, page), "bench-light.svg)\n")
		section, _, _ = strings.Cut(section, "\n## ")
		var figures int
		for _, figure := range regexp.MustCompile(`\d[\d,.]*\d`).FindAllString(section, -1) {
			if figure == "50" || figure == "99" || figure == "100" { // p50, p99 and bytes
				continue
			}
			figures++
			if !measured(figure) {
				t.Errorf("%s: %s is not in docs/benchmarks.md", page, figure)
			}
		}
		if figures != 11 {
			t.Errorf("%s: %d figures", page, figures)
		}
	}
	for _, picture := range []string{"docs/bench-light.svg", "docs/bench-dark.svg"} {
		drawn := regexp.MustCompile(`>([\d,]+\d)<`).FindAllStringSubmatch(queuetest.ReadText(t, picture), -1)
		if len(drawn) < 12 {
			t.Errorf("%s: %d figures", picture, len(drawn))
		}
		for _, figure := range drawn {
			if !measured(figure[1]) {
				t.Errorf("%s: %s is not in docs/benchmarks.md", picture, figure[1])
			}
		}
	}
}
