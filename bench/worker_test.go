package main

import (
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
)

// TestWorker: a worker carries out each kind of order, says what it cannot do, and ends with its input.
func TestWorker(t *testing.T) {
	server := redistest.Start(t)
	sys := openLibraryWhole(&network{addr: server.Addr()})
	defer sys.close()
	in, orders := io.Pipe()
	answers, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- beWorker(t.Context(), sys, in, out) }()
	give, take := json.NewEncoder(orders), json.NewDecoder(answers)
	do := func(o order) (a answer) {
		t.Helper()
		if err := give.Encode(o); err != nil {
			t.Fatal(err)
		}
		if err := take.Decode(&a); err != nil || a.Error != "" && o.Do != "dance" {
			t.Fatal(err, a.Error)
		}
		return a
	}
	if a := do(order{Do: "fill", N: 700, Due: dueNow}); a.N != 700 {
		t.Errorf("filled: %+v", a)
	}
	if a := do(order{Do: "drain", N: 700, Workers: 4, Patience: 30}); a.N != 700 || a.Twice != 0 || a.Seconds <= 0 {
		t.Errorf("drained: %+v", a)
	}
	single := do(order{Do: "send", N: 30, Callers: 3, Due: dueHour})
	batches := do(order{Do: "send", N: 600, Due: dueDay})
	if single.N != 30 || batches.N != 1000 {
		t.Errorf("sent %d singly, and %d in batches", single.N, batches.N)
	}
	if a := do(order{Do: "send", Callers: 1, Seconds: 0.05, Due: dueHour}); a.N == 0 || a.Seconds < 0.05 {
		t.Errorf("sent for a while: %+v", a)
	} else if left := do(order{Do: "left"}); left.N != a.N+1030 {
		t.Errorf("left: %d", left.N)
	}
	late := do(order{Do: "late", N: 20, Workers: 4, Ahead: 1, Seconds: 0.2, Patience: 30})
	if late.N != 20 || slices.Min(late.Ms) < 0 {
		t.Errorf("late: %+v", late)
	}
	if err := sys.send(t.Context(), message{payload: payload(0)}); err != nil {
		t.Fatal(err)
	}
	do(order{Do: "begin", N: 1, Workers: 1})
	held := do(order{Do: "await", Patience: 30})
	if ago := float64(time.Now().UnixMilli()) - held.Ms[0]; held.N != 1 || held.Charged != 0 || math.Abs(ago) > 60_000 {
		t.Errorf("held: %+v", held)
	}
	for i := range 3 {
		if err := sys.send(t.Context(), message{payload: payload(i)}); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "note")
	do(order{Do: "begin", N: 3, Workers: 3, Takes: 1, Note: path, Hold: true, Patience: 30})
	h := handled{files: []*note{{path: path}, {path: path}}, messages: map[int]int{}}
	if err := h.await(6, 30); err != nil {
		t.Error(err)
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	// A line that is not there as a whole is not read.
	for _, text := range []string{"", "0000", "0001 17", "00000000000\n"} {
		if _, err := file.WriteString(text); err != nil {
			t.Fatal(err)
		}
		want := 6
		if strings.HasSuffix(text, "\n") {
			want = 8
		}
		if err := h.read(); err != nil || len(h.messages) != 3 || h.times != want {
			t.Errorf("noted: %+v, %v", h, err)
		}
	}
	if ago := float64(time.Now().UnixMilli()) - h.last; file.Close() != nil || math.Abs(ago) > 60_000 {
		t.Errorf("the last one was handled %v ms ago", ago)
	}
	if a := do(order{Do: "dance"}); !strings.Contains(a.Error, "dance") {
		t.Errorf("an unknown order: %+v", a)
	}
	if err := orders.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestCPUOf: what a process uses is noticed, and one that is not there is an error.
func TestCPUOf(t *testing.T) {
	server := redistest.Start(t)
	if _, err := cpuOf(1 << 30); err == nil {
		t.Error("a process that is not there has used CPU time")
	}
	begun, err := cpuOf(server.Pid())
	if err != nil {
		t.Fatal(err)
	}
	cli := server.Client(t)
	for range 200 {
		if err := cli.Eval(t.Context(), "for i = 1, 100000 do end return 1", nil).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if used, err := cpuOf(server.Pid()); err != nil || used-begun < 20*time.Millisecond {
		t.Errorf("it used %v: %v", used-begun, err)
	}
}

// TestRiverOptions: what is due at once needs no look of River's scheduler.
func TestRiverOptions(t *testing.T) {
	if o := riverOptions(dueNow.message(0)); o != nil {
		t.Errorf("due at once: %+v", o)
	}
	begun := time.Now()
	for _, d := range []due{dueSoon, dueHour, dueDay} {
		if o := riverOptions(d.message(0)); o == nil || o.ScheduledAt.Before(begun.Add(2*time.Second)) {
			t.Errorf("%s: %+v", d, o)
		}
	}
}

// TestPeerCells: how a cell shows the samples of all rounds.
func TestPeerCells(t *testing.T) {
	for want, got := range map[string]string{
		"200 ±25 %":       withSpread([]float64{150, 250, 200}),
		"1,234":           withSpread([]float64{1234}),
		"0":               withSpread([]float64{0, 1, 0}),
		"10.0 – 12.0":     span([]float64{12, 10, 11}),
		"100":             span([]float64{100, 100}),
		"<0.0167":         share([]float64{0.01, 0, 3}),
		"not seen":        span([]float64{math.NaN(), math.NaN()}),
		"over 200":        span([]float64{math.Inf(1), math.NaN(), math.Inf(1)}),
		"9.00 – over 200": span([]float64{math.Inf(1), 9}),
		"3.00":            share([]float64{3}),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestAlwaysStrict: a contender whose only setting is its strictest has those figures in both tables.
func TestAlwaysStrict(t *testing.T) {
	r, _ := somePeers()
	r.res.row(send1+strictSuffix, peerThroughput).Samples[nameLibrary] = []figures{{rate: 5}}
	var cells []string
	for _, table := range r.tables() {
		if table.title == titleStrict {
			cells = table.lines[0]
		}
	}
	river, _ := r.res.of(send1, nameRiver, rate)
	want := []string{"send, one at a time: messages/s", "5.00", "none", "none", "none", figure(river)}
	if !slices.Equal(cells, want) {
		t.Errorf("%q, want %q", cells, want)
	}
}
