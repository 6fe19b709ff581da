package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestLeastPrivilege: the user of the trial may do what the documented publisher and consumer may, and wait for replicas.
func TestLeastPrivilege(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/acl.md")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"+wait"}
	for _, line := range regexp.MustCompile(`(?m)^ACL SETUSER (?:publisher|consumer) on .*$`).FindAllString(string(text), -1) {
		for _, word := range strings.Fields(line) {
			if strings.HasPrefix(word, "+") {
				want = append(want, word)
			}
		}
	}
	slices.Sort(want)
	want = slices.Compact(want)
	got := strings.Fields(leastPrivilege)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the user may\n%v, and the documented ones\n%v", got, want)
	}
}
