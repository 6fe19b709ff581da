package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestLeastPrivilege: the documented user may do what the scripts do, and no more.
func TestLeastPrivilege(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("../lua/*.lua")
	if err != nil || len(paths) == 0 {
		t.Fatalf("%d scripts: %v", len(paths), err)
	}
	want := []string{"+eval", "+evalsha", "+bzpopmin", "+wait"} // what Go calls
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, call := range regexp.MustCompile(`redis\.p?call\('(\w+)'`).FindAllStringSubmatch(string(text), -1) {
			want = append(want, "+"+strings.ToLower(call[1]))
		}
	}
	if readme, err := os.ReadFile("../README.md"); err != nil || !strings.Contains(string(readme), leastPrivilege+"\n") {
		t.Errorf("README.md tells another user, %v", err)
	}
	slices.Sort(want)
	want = slices.Compact(want)
	got := strings.Fields(leastPrivilege)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the user may\n%v, and the scripts need\n%v", got, want)
	}
}
