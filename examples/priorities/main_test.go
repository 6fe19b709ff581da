package main

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/go-delayqueue/delayqueue/examples/internal/exampletest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var row = regexp.MustCompile(`(?m)(critical|normal|bulk) +weight \d  [█·]+ (\d+)  handled +(\d+)  left +(\d+)`)

func TestRun(t *testing.T) {
	for _, args := range [][]string{{"-for", "3s"}, {"-for", "3s", "-strict"}} {
		t.Setenv("REDIS_ADDR", "")
		var out, errs exampletest.Buffer
		if code := run(t.Context(), args, &out, &errs); code != 0 {
			t.Fatalf("%v: exit %d, %s", args, code, errs.String())
		}
		handled := map[string]int{}
		for _, m := range row.FindAllStringSubmatch(out.String(), -1) {
			busy, _ := strconv.Atoi(m[2])
			if busy > workers || m[1] == "bulk" && busy > 6 {
				t.Errorf("%v: %s", args, m[0])
			}
			handled[m[1]], _ = strconv.Atoi(m[3])
		}
		for _, c := range []string{"critical", "normal", "bulk"} {
			if handled[c] == 0 {
				t.Errorf("%v: nothing of %s was handled:\n%s", args, c, out.String())
			}
		}
	}
}

func TestBadArguments(t *testing.T) {
	for _, args := range [][]string{{"-for", "0s"}, {"-for", "soon"}, {"more"}} {
		var out, errs exampletest.Buffer
		if code := run(t.Context(), args, &out, &errs); code != 2 || strings.TrimSpace(errs.String()) == "" {
			t.Errorf("%v: exit %d, %q", args, code, errs.String())
		}
	}
}
