package main

import (
	"bytes"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// loadOf reads a command line.
func loadOf(t *testing.T, line string) load {
	t.Helper()
	l, _, err := parseLoad(strings.Fields(line), io.Discard)
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return l
}

func TestScalePlan(t *testing.T) {
	for _, c := range []struct {
		line                               string
		nodes, byMemory, byCPU, shards     int
		gbNode, percentCPU                 float64
		consumers, workers, connectionNode int
		missing                            []string // how each begins
	}{
		{ // all defaults: one node, and room for a second
			"", 1, 1, 1, 2, 0.543, 21.3, 1, 17, 74, []string{"failover: the gap", "failover: fewer"},
		},
		{ // a billion, and a million a second
			"-nodes 32 -rate 1e6 -pending 1e9 -memory 24 -node-timeout 3s", 32, 23, 36, 64, 17.0, 66.7, 9, 186, 666,
			[]string{"CPU: 36"},
		},
		{ // by memory
			"-rate 1000 -pending 1e9 -memory 16 -node-timeout 3s", 34, 34, 1, 34, 15.97, 0.0711, 1, 2, 70, nil,
		},
		{ // by CPU: 6.10 and 3.42 us
			"-rate 1e6 -soon -node-timeout 3s", 16, 1, 16, 32, 0.0339, 59.5, 9, 186, 666, nil,
		},
		{ // 7.76 and 3.42 us
			"-rate 1e6 -soon -singly -node-timeout 3s", 19, 1, 19, 38, 0.0286, 58.8, 9, 186, 666, nil,
		},
		{ // 12 and 18 share 36
			"-nodes 12 -largest 18 -node-timeout 3s", 12, 1, 1, 36, 0.0452, 1.78, 1, 17, 78, nil,
		},
		{ // no common multiple up to 64: at least as many
			"-nodes 7 -largest 10 -node-timeout 3s", 7, 1, 1, 14, 0.0776, 3.05, 1, 17, 74, nil,
		},
		{"-nodes 24 -largest 64 -node-timeout 3s", 24, 1, 1, 48, 0.0226, 0.889, 1, 17, 74,
			[]string{"shards: no multiple of 24"}},
		{ // clients that are too few, far away
			"-nodes 8 -largest 8 -soon -rate 4e5 -consumers 2 -senders 150 -workers 10 -replicas 0", 8, 1, 7, 8, 0.0679, 47.6,
			2, 10, 9760, []string{"consumers:", "workers: 400", "replicas:"},
		},
		{"-nodes 3 -senders 160 -node-timeout 3s", 3, 1, 1, 6, 0.181, 7.11, 1, 17, 10_409, []string{"connections:"}},
	} {
		p, err := planFor(loadOf(t, c.line))
		if err != nil {
			t.Errorf("%s: %v", c.line, err)
			continue
		}
		for _, v := range []struct {
			what      string
			got, want int
		}{
			{"nodes", p.nodes, c.nodes}, {"by memory", p.byMemory, c.byMemory}, {"by CPU", p.byCPU, c.byCPU},
			{"shards", p.shards, c.shards},
			{"consumers", p.consumers, c.consumers}, {"workers", p.workers, c.workers},
			{"connections of a node", p.connNode, c.connectionNode},
		} {
			if v.got != v.want {
				t.Errorf("%s: %s: %d, want %d", c.line, v.what, v.got, v.want)
			}
		}
		if !near(p.memNode/1e9, c.gbNode, 0.01) || !near(100*p.cpuNode, c.percentCPU, 0.01*max(1, 1/c.percentCPU)) {
			t.Errorf("%s: %.3g GB and %.3g %% of a node, want %v and %v", c.line, p.memNode/1e9, 100*p.cpuNode, c.gbNode,
				c.percentCPU)
		}
		if len(p.missing) != len(c.missing) {
			t.Errorf("%s: missing %q, want %q", c.line, p.missing, c.missing)
			continue
		}
		for i, m := range p.missing {
			if !strings.HasPrefix(m, c.missing[i]) {
				t.Errorf("%s: missing %q, want %q", c.line, m, c.missing[i])
			}
		}
	}
}

// near reports whether v is no farther from want than this part of it.
func near(v, want, part float64) bool { return math.Abs(v-want) <= part*math.Abs(want) }

func TestScaleShards(t *testing.T) {
	p, err := planFor(loadOf(t, "-nodes 6 -largest 12"))
	if err != nil {
		t.Fatal(err)
	}
	if p.shards != 12 || !slices.Equal(p.evenly, []int{1, 2, 3, 4, 6, 12}) {
		t.Errorf("%d shards, even over %v", p.shards, p.evenly)
	}
}

func TestScaleFailover(t *testing.T) {
	p, err := planFor(loadOf(t, "-nodes 10 -rate 100000 -soon -singly -node-timeout 2s"))
	if err != nil {
		t.Fatal(err)
	}
	// 10,000 messages a second, each 11.2 us: 88.8 % of the time is left for 79,200 of 3.42 us.
	if p.gap != 7920*time.Millisecond || !near(p.waiting, 79_200, 0.001) || !near(p.catchUp.Seconds(), 0.3050, 0.01) {
		t.Errorf("%v, %v messages, %v", p.gap, p.waiting, p.catchUp)
	}
	if p, err = planFor(loadOf(t, "-nodes 1 -rate 100000")); err != nil || p.catchUp != 0 {
		t.Errorf("a node that is too busy catches up in %v: %v", p.catchUp, err)
	}
}

// Larger payloads cost what was measured (docs/benchmarks.md, "Larger payloads").
func TestScalePayloads(t *testing.T) {
	for size, want := range map[string]float64{"100": 363, "1000": 1514, "4000": 4330} {
		p, err := planFor(loadOf(t, "-size "+size))
		if err != nil || !near(p.bytes, want, 0.005) {
			t.Errorf("%s bytes: %v in memory, want %v: %v", size, p.bytes, want, err)
		}
	}
	small, err := planFor(loadOf(t, "-soon"))
	if err != nil {
		t.Fatal(err)
	}
	large, err := planFor(loadOf(t, "-soon -size 4000"))
	if err != nil {
		t.Fatal(err)
	}
	if d := large.cpuSend - small.cpuSend; d < 18 || d > 21 {
		t.Errorf("a send of 4,000 bytes costs %.1f us more", d)
	}
	if d := large.cpuHandle - small.cpuHandle; d < 11 || d > 16 {
		t.Errorf("handling 4,000 bytes costs %.1f us more", d)
	}
}

func TestScaleBadInput(t *testing.T) {
	for line, want := range map[string]string{
		"-size 0":                           "-size is 0",
		"-rate 0":                           "-rate is 0",
		"-rate NaN":                         "-rate is NaN",
		"-rate many":                        `"many"`,
		"-pending -1":                       "-pending is -1",
		"-pending +Inf":                     "-pending is +Inf",
		"-nodes 65":                         "-nodes is 65",
		"-nodes 8 -largest 4":               "-largest is 4",
		"-largest 65":                       "-largest is 65",
		"-memory 0":                         "-memory is 0",
		"-margin 300":                       "-margin is 300",
		"-utilisation 0":                    "-utilisation is 0",
		"-replicas -1":                      "-replicas is -1",
		"-consumers -1":                     "-consumers is -1",
		"-senders -1":                       "-senders is -1",
		"-cores 0":                          "-cores is 0",
		"-handler -1s":                      "-handler is -1s",
		"-workers -1":                       "-workers is -1",
		"-node-timeout 0":                   "-node-timeout is 0s",
		"-nods 3":                           "-nods",
		"32":                                `"32" is not a flag`,
		"-rate 1e7":                         "356 nodes are needed (memory: 1, CPU: 356)",
		"-pending 1e11":                     "at most 64 shards",
		"-pending 1e9 -memory 8 -largest 8": "at most 64 shards",
		"-pending 5e8 -largest 8":           "-largest is 8, and 17 nodes are needed",
	} {
		l, _, err := parseLoad(strings.Fields(line), io.Discard)
		if err == nil {
			_, err = planFor(l)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}

// The page shows what the program prints.
func TestScalePage(t *testing.T) {
	page, err := os.ReadFile("../docs/scaling.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for _, block := range strings.Split(string(page), "```")[1:] {
		command, output, _ := strings.Cut(strings.TrimPrefix(block, "\n"), "\n")
		args, ok := strings.CutPrefix(command, "$ go run . scale ")
		if !ok {
			continue
		}
		shown++
		p, err := planFor(loadOf(t, args))
		if err != nil {
			t.Errorf("%s: %v", args, err)
			continue
		}
		var b bytes.Buffer
		if err := printPlan(&b, p); err != nil || b.String() != output {
			t.Errorf("docs/scaling.md shows\n%s\nand %s prints\n%s%v", output, args, b.String(), err)
		}
	}
	if shown == 0 {
		t.Error("docs/scaling.md shows no output")
	}
}

// The figures are near those of the page that they are from: make bench writes it anew.
func TestScaleFigures(t *testing.T) {
	page, err := os.ReadFile("../docs/benchmarks.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range measuredFigures {
		got, err := f.inPage(string(page))
		if err != nil || !near(f.value, got, 0.25) {
			t.Errorf("%s: %v here, and %v in docs/benchmarks.md: %v", f.what, f.value, got, err)
		}
	}
	var b bytes.Buffer
	if err := printFigures(&b); err != nil || strings.Count(b.String(), "\n") != 1+len(measuredFigures) {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// inPage is what the page has for a figure: of this library, if the table has several systems.
func (f measuredFigure) inPage(page string) (float64, error) {
	_, section, _ := strings.Cut(page, "# "+f.table+"\n")
	section, _, _ = strings.Cut(section, "\n#")
	column := -1
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if i := slices.Index(cells, f.head); i >= 0 {
			column = i
		}
		if cells[0] == f.row && column >= 0 && column < len(cells) {
			return strconv.ParseFloat(strings.ReplaceAll(cells[column], ",", ""), 64)
		}
	}
	return 0, os.ErrNotExist
}
