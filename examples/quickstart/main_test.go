package main

import (
	"bytes"
	"regexp"
	"testing"

	"github.com/go-delayqueue/delayqueue/internal/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func TestRun(t *testing.T) {
	t.Setenv("REDIS_ADDR", "")
	var out bytes.Buffer
	if err := run(&out); err != nil {
		t.Fatal(err)
	}
	arrived := regexp.MustCompile(`(?m)^message \d +due \S+ +\d+\.\d\d ms late$`).FindAllString(out.String(), -1)
	if len(arrived) != 5 {
		t.Errorf("%d arrivals, want 5, none early, in:\n%s", len(arrived), out.String())
	}
}
