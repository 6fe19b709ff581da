package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDraw: both looks have the name of each system, each row and each figure; a row that was not measured is an error.
func TestDraw(t *testing.T) {
	res, folder := &results{}, t.TempDir()
	want := []string{nameLibrary, nameAsynq, "bare commands"}
	for i, d := range drawn {
		r := res.row(d.row, throughputTable)
		want = append(want, d.label)
		for k, system := range []string{nameLibrary, nameAsynq, nameFloor} {
			v := float64(1000*i + 100*k + 1234)
			r.Samples[system] = []figures{{rate: v}}
			want = append(want, figure(v))
		}
	}
	if err := drawThroughput(folder, res); err != nil {
		t.Fatal(err)
	}
	for _, look := range looks {
		svg, err := os.ReadFile(filepath.Join(folder, "bench-"+look.name+".svg"))
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range want {
			if !strings.Contains(string(svg), ">"+text+"<") {
				t.Errorf("%s: no %q", look.name, text)
			}
		}
	}
	res.rows = res.rows[1:]
	if err := drawThroughput(folder, res); err == nil || !strings.Contains(err.Error(), drawn[0].row) {
		t.Errorf("a row is missing: %v", err)
	}
}
