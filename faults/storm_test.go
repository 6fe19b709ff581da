package main

import (
	"slices"
	"testing"
	"time"
)

// TestStormVerdict: what the storm prints is a row of the table.
func TestStormVerdict(t *testing.T) {
	t.Parallel()
	v := stormVerdict([]byte(`{"Committed":20,"Handled":19,"Lost":1,"Early":2,"Twice":3,"Missing":-4,"Gap":1500000000,`+
		`"Healed":7,"Strikes":{"a":2,"b":3},"Findings":["one"]}`), "")
	want := []string{"5", "20", "19", "1", "2", "3", "-4", "1.50 s", "0.00 s"}
	if got := (row{&storms[0], v}).cells(); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if len(v.problems) != 1 || len(v.causes) != 1 || len(v.notes) != 1 || v.gap != 1500*time.Millisecond {
		t.Errorf("%+v", v)
	}
	if v := stormVerdict(nil, "it broke"); len(v.problems) != 1 {
		t.Errorf("%+v", v)
	}
}
