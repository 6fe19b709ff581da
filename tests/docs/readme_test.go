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
	row := regexp.MustCompile(`(?m)^\| (?:delayqueue|asynq|BullMQ|beanstalkd|River) \|(.*)$`)
	for _, page := range []string{"README.md", "docs/README.zh-CN.md"} {
		rows := row.FindAllStringSubmatch(queuetest.ReadText(t, page), -1)
		if len(rows) != 5 {
			t.Fatalf("%s: %d rows of figures", page, len(rows))
		}
		for _, r := range rows {
			for _, figure := range regexp.MustCompile(`[\d,.]+\d`).FindAllString(r[1], -1) {
				if !strings.Contains(all, "| "+figure+" |") {
					t.Errorf("%s: %s is not in docs/benchmarks.md", page, figure)
				}
			}
		}
	}
	for _, picture := range []string{"docs/bench-light.svg", "docs/bench-dark.svg"} {
		drawn := regexp.MustCompile(`>([\d,]+\d)<`).FindAllStringSubmatch(queuetest.ReadText(t, picture), -1)
		if len(drawn) < 12 {
			t.Errorf("%s: %d figures", picture, len(drawn))
		}
		for _, figure := range drawn {
			if !strings.Contains(all, "| "+figure[1]+" |") {
				t.Errorf("%s: %s is not in docs/benchmarks.md", picture, figure[1])
			}
		}
	}
}
