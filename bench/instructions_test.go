package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

func TestReadTotal(t *testing.T) {
	const head = "version: 1\npart: 2\n\nevents: Ir\nfn=(1) main\n12 30\n"
	for text, want := range map[string]float64{
		head + "\ntotals: 1234567890123\n": 1234567890.123,
		head:                               -1, // it ends early
		head + "\ntotals: many\n":          -1,
	} {
		n, err := readTotal(text)
		if (err == nil) != (want >= 0) || err == nil && n != want {
			t.Errorf("%q: %f, %v, want %f", text, n, err, want)
		}
	}
}

// A run alone shows what a call costs and what each of its messages costs, and a comparison has a line for each.
func TestInstructionsTable(t *testing.T) {
	res := &results{}
	r := res.row("settle, 100 acks", instructionsTable)
	r.Samples[nameLibrary] = []figures{{callCost: 651.2, eachCost: 6.512}}
	r.Samples["1a2b3c4"], r.Samples[thisTree] = []figures{{callCost: 620, eachCost: 6.2}}, r.Samples[nameLibrary]
	var b bytes.Buffer
	printTables(&b, tablesOf(res))
	if want := "settle, 100 acks  delayqueue     651       6.51\n"; !strings.HasSuffix(b.String(), want) {
		t.Errorf("printed:\n%s\nwant at the end:\n%s", b.String(), want)
	}
	d := duel{commit: "1a2b3c4"}
	want := []string{"settle, 100 acks", string(callCost), "620", "651", "1.050", "620..620", "651..651"}
	if got := d.table("", res).lines; len(got) != 2 || !slices.Equal(got[0], want) {
		t.Errorf("lines %q, want 2, and first %q", got, want)
	}
}
