package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestLeastPrivilege: the documented user may do what the scripts do, and no more.
func TestLeastPrivilege(t *testing.T) {
	t.Parallel()
	want := []string{"+eval", "+evalsha", "+bzpopmin", "+wait"} // what Go calls
	for _, script := range []string{"head", "call", "send", "fetch", "settle", "extend", "intercept"} {
		text, err := os.ReadFile("../lua/" + script + ".lua")
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
