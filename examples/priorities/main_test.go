package main

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/go-delayqueue/delayqueue/internal/leaks"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
)

func TestMain(m *testing.M) { leaks.Main(m) }

var row = regexp.MustCompile(`(?m)(critical|normal|bulk) +weight \d  [█·]+ (\d+)  handled +(\d+)  left +(\d+)`)

func TestRun(t *testing.T) {
	t.Setenv("REDIS_ADDR", "")
	for _, strict := range []string{"-strict=false", "-strict"} {
		for _, length := range []string{"3s", "30s", "2m"} { // longer where the machine has other things to do
			handled, shown := handledIn(t, "-for", length, strict)
			if handled["critical"] > 0 && handled["normal"] > 0 && handled["bulk"] > 0 {
				break
			}
			if length == "2m" {
				t.Errorf("%s: something was not handled: %v:\n%s", strict, handled, shown)
			}
		}
	}
}

// handledIn runs the example and returns how much of each queue was handled, and what it showed.
func handledIn(t *testing.T, args ...string) (handled map[string]int, shown string) {
	t.Helper()
	var out, errs testkit.Buffer
	if code := run(t.Context(), args, &out, &errs); code != 0 {
		t.Fatalf("%v: exit %d, %s", args, code, errs.String())
	}
	handled = map[string]int{}
	for _, m := range row.FindAllStringSubmatch(out.String(), -1) {
		busy, _ := strconv.Atoi(m[2])
		if busy > workers || m[1] == "bulk" && busy > 6 {
			t.Errorf("%v: %s", args, m[0])
		}
		handled[m[1]], _ = strconv.Atoi(m[3])
	}
	return handled, out.String()
}

func TestBadArguments(t *testing.T) {
	for _, args := range [][]string{{"-for", "0s"}, {"-for", "soon"}, {"more"}} {
		var out, errs testkit.Buffer
		if code := run(t.Context(), args, &out, &errs); code != 2 || strings.TrimSpace(errs.String()) == "" {
			t.Errorf("%v: exit %d, %q", args, code, errs.String())
		}
	}
}
