package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Each round begins with another side, and the rounds of a scenario are spread over the run.
func TestTurns(t *testing.T) {
	var got []string
	broken := errors.New("broken")
	b := &bench{progress: &progress{out: io.Discard}}
	b.measure = func(_ context.Context, res *results, s scenario, system string) error {
		got = append(got, s.name+" "+system)
		res.row(s.name, s.kind)
		if len(got) == 7 {
			return broken
		}
		return nil
	}
	sides := []string{"old", "new"}
	res, err := b.run(t.Context(), []scenario{
		{name: "send", systems: sides, rounds: 3},
		{name: "memory", systems: sides, rounds: 1},
	})
	want := []string{"send old", "send new", "memory old", "memory new", "send new", "send old", "send old"}
	if !slices.Equal(got, want) {
		t.Errorf("measured %q, want %q", got, want)
	}
	if !errors.Is(err, broken) || len(res.rows) != 2 {
		t.Errorf("%v, and %d rows are left of what was measured", err, len(res.rows))
	}
}

func TestAgainstTable(t *testing.T) {
	res := &results{}
	for side, samples := range map[string][]figures{
		"1a2b3c4": {{rate: 100_000, early: 0, commands: 2}, {rate: 300_000, early: 0}, {rate: 200_000, early: 0}},
		thisTree:  {{rate: 100_000, early: 0}, {rate: 150_000, early: 3}, {rate: 50_000, early: 0}},
	} {
		for _, f := range samples { // each from a process of its own
			var out bytes.Buffer
			one := &results{}
			one.row(drain64, throughputTable).Samples[nameLibrary] = []figures{f}
			if err := json.NewEncoder(&out).Encode(one.rows); err != nil {
				t.Fatal(err)
			}
			if err := res.add(side, &out); err != nil {
				t.Fatal(err)
			}
		}
	}
	d := duel{commit: "1a2b3c4"}
	got := d.table("title", res)
	want := [][]string{ // commands were measured on one side
		{drain64, string(rate), "200,000", "100,000", "0.500", "100,000..300,000", "50,000..150,000"},
		{drain64, string(early), "0", "0", "", "0..0", "0..3.00"},
	}
	if !reflect.DeepEqual(got.lines, want) {
		t.Errorf("lines are %q, want %q", got.lines, want)
	}
	for _, line := range got.lines {
		if len(line) != len(got.head) {
			t.Errorf("%q under %q", line, got.head)
		}
	}
	if err := res.add(thisTree, strings.NewReader("no rows")); err == nil {
		t.Error("what is no JSON was added")
	}
}

func TestChosen(t *testing.T) {
	for name, c := range map[string]struct {
		flags options
		want  []string // nil: an error
	}{
		"short set":           {options{against: "HEAD", rounds: 1}, againstScenarios},
		"named":               {options{against: "HEAD", rounds: 1, only: "64 workers$|^memory"}, []string{drain64, memName}},
		"of this library":     {options{asJSON: true, rounds: 1, only: exactly(lateName(1))}, []string{lateName(1)}},
		"of all systems":      {options{rounds: 1, only: exactly(lateName(1))}, []string{lateName(1)}},
		"no such name":        {options{against: "HEAD", rounds: 1, only: "drian"}, nil},
		"no expression":       {options{rounds: 1, only: "("}, nil},
		"too few rounds":      {options{against: "HEAD"}, nil},
		"a name in the other": {options{rounds: 1, only: exactly("send")}, nil},
	} {
		chosen, err := c.flags.chosen()
		var got []string
		for _, s := range chosen {
			got = append(got, s.name)
		}
		if !slices.Equal(got, c.want) || (err == nil) != (c.want != nil) {
			t.Errorf("%s: %q, %v, want %q", name, got, err, c.want)
		}
	}
}
