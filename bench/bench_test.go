package main

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		in   []float64
		want float64
	}{
		{[]float64{3}, 3}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 2, 3}, 2.5},
	} {
		if got := median(c.in); got != c.want {
			t.Errorf("median(%v) = %v, want %v", c.in, got, c.want)
		}
	}
	if !math.IsNaN(median(nil)) {
		t.Error("the median of nothing is a number")
	}
}

func TestQuantile(t *testing.T) {
	sorted := []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	for q, want := range map[float64]float64{0: 1, 0.5: 5, 0.51: 6, 0.99: 10, 1: 10} {
		if got := quantile(sorted, q); got != want {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
}

func TestTally(t *testing.T) {
	for name, c := range map[string]struct {
		arrive []int
		ok     bool
	}{
		"each once": {[]int{2, 0, 1}, true},
		"one twice": {[]int{2, 0, 1, 1}, false},
		"one not":   {[]int{2, 0}, false},
		"a strange": {[]int{2, 0, 1, 7}, false},
	} {
		seen := newTally(3)
		for _, i := range c.arrive {
			seen.mark(payload(i))
		}
		if err := seen.err(); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	if i := indexOf(payload(1234567)); i != 1234567 {
		t.Errorf("index %d", i)
	}
	if i := indexOf("x" + payload(1)[1:]); i != -1 {
		t.Errorf("index %d of no payload", i)
	}
}

func TestCompare(t *testing.T) {
	then := ratios{"a": 1, "b": 2}
	for name, c := range map[string]struct {
		now   ratios
		worse bool // than recorded, rather than missing
		ok    bool
	}{
		"the same":       {ratios{"a": 1, "b": 2}, false, true},
		"better":         {ratios{"a": 0.2, "b": 1}, false, true},
		"a bit worse":    {ratios{"a": 1.5, "b": 3}, false, true},
		"much worse":     {ratios{"a": 1, "b": 3.01}, true, false},
		"not measured":   {ratios{"a": 1}, false, false},
		"never recorded": {ratios{"a": 1, "b": 2, "c": 1}, false, false},
	} {
		err := compare(then, c.now)
		if (err == nil) != c.ok || errors.Is(err, errWorse) != c.worse {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestImprove(t *testing.T) {
	best := ratios{}
	best.improve(ratios{"a": 2, "b": 1})
	best.improve(ratios{"a": 1, "b": 2})
	if best["a"] != 1 || best["b"] != 1 {
		t.Error(best)
	}
}

// sample results, of two systems in two rows.
func someResults() *results {
	res := &results{}
	for i, name := range []string{sendBatch, drain64} {
		r := res.row(name, throughputTable)
		for j, system := range systemNames {
			base := float64((i + 1) * 100_000 * (j + 1))
			r.Samples[system] = []figures{{rate: base, redisCPU: 4}, {rate: 3 * base, redisCPU: 2},
				{rate: 2 * base, redisCPU: 3}}
		}
	}
	r := res.row(memName, memoryTable)
	r.Samples[nameLibrary] = []figures{{bytesEach: 350}}
	r.Samples[nameFloor] = []figures{{bytesEach: 325}}
	late := res.row(lateName(1), latenessTable)
	late.Samples[nameLibrary] = []figures{{lateP50: 0.8, lateP99: 3, early: 0}}
	return res
}

func TestRatiosOf(t *testing.T) {
	got, err := ratiosOf(someResults())
	if err != nil {
		t.Fatal(err)
	}
	want := ratios{
		sendBatch + ": " + string(redisCPU): 1, sendBatch + ": s/message": 2,
		drain64 + ": " + string(redisCPU): 1, drain64 + ": s/message": 2,
		memName + ": " + string(bytesEach): 1.077,
	}
	if err := compare(want, got); err != nil {
		t.Error(err)
	}
	for name, v := range want {
		if got[name] != v {
			t.Errorf("%s is %v, want %v", name, got[name], v)
		}
	}
	if _, err := ratiosOf(&results{}); err == nil {
		t.Error("no results have ratios")
	}
}

func TestTargetsOf(t *testing.T) {
	reached := map[string]bool{}
	for _, line := range targetsOf(someResults(), targets()).lines {
		reached[line[0]] = line[3] == "reached"
	}
	for what, want := range map[string]bool{
		"send, batches of 500: x floor":        false,
		"drain, 64 workers: Redis CPU x floor": false,
		"lateness, 1 consumer: p50 ms":         true,
		"lateness, 1 consumer: p99 ms":         false,
		"memory: bytes a message":              true,
	} {
		if got, ok := reached[what]; !ok || got != want {
			t.Errorf("%s: reached %v, measured %v", what, got, ok)
		}
	}
	if _, ok := reached["idle: commands/s"]; ok {
		t.Error("a target was judged that was not measured")
	}
}

// A target beside the best of the others: the library's figure is no part of that best.
func TestTargetsBesideTheBest(t *testing.T) {
	res := &results{}
	row := res.row(drain64, peerThroughput)
	const what = "handle, 64 workers: messages/s x the best of the others"
	for _, c := range []struct {
		contender, says string
		rate            float64
	}{{nameLibrary, "", 900}, {nameAsynq, "9.00", 100}, {nameRiver, "9.00", 50}, {nameBullMQ, "4.50", 200}} {
		row.Samples[c.contender] = []figures{{rate: c.rate}}
		said := ""
		for _, line := range targetsOf(res, peerTargets()).lines {
			if line[0] == what {
				said = line[2]
			}
		}
		if said != c.says {
			t.Errorf("with %s: %q, want %q", c.contender, said, c.says)
		}
	}
}

func TestReport(t *testing.T) {
	res, path := someResults(), filepath.Join(t.TempDir(), "benchmarks.md")
	const beside, why = besideOthers + "\nOthers.\n", byHand + "\nReasons.\n"
	for _, kept := range []string{"", why} {
		if err := writeReport(path, about{machine: "here"}, res, tablesOf(res)); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(text), "| drain, 64 workers | delayqueue | 400,000 |") ||
			!strings.HasSuffix(string(text), kept) || kept != "" && !strings.HasPrefix(string(text), documentTitle+beside) ||
			strings.Contains(string(text), "old") {
			t.Errorf("%v\n%s", err, text)
		}
		if err := os.WriteFile(path, []byte("# An old title\n"+beside+againstBare+"\nold\n"+why), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var b bytes.Buffer
	printTables(&b, tablesOf(res))
	lines := strings.Split(b.String(), "\n")
	if len(lines) < 5 || len(lines[3]) != len(lines[4]) {
		t.Errorf("not aligned:\n%s", b.String())
	}
}

func TestFigure(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.01234: "0.0123", 0.5: "0.50", 12.34: "12.3", 123.4: "123",
		1234567: "1,234,567", -1234: "-1,234"} {
		if got := figure(v); got != want {
			t.Errorf("figure(%v) = %q, want %q", v, got, want)
		}
	}
}
