package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// somePeers has figures of all that is drawn, but of no batches of asynq.
func somePeers() (r *peersRun, shown []string) {
	r = &peersRun{res: &results{}, only: regexp.MustCompile(""), late: map[string][]float64{}}
	for i, one := range r.measured() {
		name := one.name
		at := func(row string, k kind, f figures) {
			r.res.row(row, k).Samples[name] = []figures{f}
		}
		for j, row := range []string{send1, send64, sendBatch, drain64} {
			if name == nameAsynq && row == sendBatch {
				continue
			}
			v := float64(10_000*j + 100*i + 1234)
			at(row, peerThroughput, figures{rate: v, serverCPU: 1, clientCPU: 2})
			shown = append(shown, figure(v))
		}
		for _, level := range r.peerLevels() {
			for _, what := range []string{"send", "drain"} {
				at(backlogName(what, level), peerBacklog, figures{serverCPU: float64(i + 1)})
			}
			at(backlogName("memory", level), peerBacklog, figures{bytesEach: 100})
		}
		for ms := range 1000 {
			r.late[name] = append(r.late[name], float64(ms-i)) // some are early
		}
	}
	return r, shown
}

// TestDraw: each picture has the name of each contender in both looks, and the first one each figure.
func TestDraw(t *testing.T) {
	r, shown := somePeers()
	folder := t.TempDir()
	for _, p := range r.pictures() {
		if err := p.write(folder); err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, c := range r.measured() {
			want = append(want, c.name)
		}
		if p.name == "bench" {
			want = append(append(want, shown...), "none", "handled by 64 workers", "sent one at a time")
		}
		for _, look := range looks {
			svg, err := os.ReadFile(filepath.Join(folder, p.name+"-"+look.name+".svg"))
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range want {
				if !strings.Contains(string(svg), ">"+text+"<") {
					t.Errorf("%s, %s: no %q", p.name, look.name, text)
				}
			}
			if !strings.Contains(p.markdown(), p.name+"-"+look.name+".svg") {
				t.Errorf("not shown: %s", p.markdown())
			}
		}
	}
}
