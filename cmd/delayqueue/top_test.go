package main

import (
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

func init() { scenarios["top"] = tellTop }

func tellTop(w *world) {
	w.refused(exitNotFound, "no queues under the prefix", "top")
	w.refused(exitUsage, "--interval", "top", "--interval", "0s")
	w.send("calm", "a", delayqueue.WithDelay(time.Hour))
	w.consumeNothing("calm")
	w.send("alone", "b")
	w.send("a-queue-with-quite-a-long-name", "c", delayqueue.WithDelay(time.Hour))
	w.must("pause", "a-queue-with-quite-a-long-name", "--reason", "the provider of cards is down, and nobody knows until when")

	out := w.must("top", "-n", "1s") // no terminal: once, without a control character
	order := []int{strings.Index(out, "alone"), strings.Index(out, "a-queue"), strings.Index(out, "calm")}
	if order[0] < 0 || order[0] > order[1] || order[1] > order[2] || strings.Contains(out, "\x1b") {
		w.Errorf("not the worst first, or coloured:\n%q", out)
	}
	w.contains(out, "VERDICT", "IN/S", "no consumers, ", "by ", "nobody knows until when", "fine", "0/")
	all := decode[topJSON](w, w.must("top", "--json", "-n", "1s"))
	if len(all) != 3 || all[0].Queue != "alone" || all[0].Level != "critical" || all[0].Code != "no consumers" || all[0].Waits != 1 ||
		all[0].In == nil || all[0].Behind <= 0 ||
		all[2].Verdict != "fine" || all[2].Workers == 0 || all[2].Failing != nil {
		w.Errorf("top --json: %+v", all)
	}
	if stats := decode[statsJSON](w, w.must("stats", "alone", "--json")); stats[0].Level != all[0].Level || stats[0].Code != all[0].Code {
		w.Errorf("stats --json: %+v", stats)
	}
	if d := decode[diagnosis](w, w.run("doctor", "alone", "--json").out); d[0].Code != "no consumers" {
		w.Errorf("doctor --json: %+v", d)
	}

	w.columns = 80
	t := w.terminal("top", "-n", "50ms")
	t.sees("every 50ms; Ctrl-C ends")
	w.must("resume", "a-queue-with-quite-a-long-name")
	w.send("calm", "d", delayqueue.WithDelay(time.Hour))
	t.sees("fine            ")
	for line := range strings.Lines(t.screen.String()) {
		if len([]rune(strings.TrimRight(line, " \n"))) > 80 {
			w.Errorf("wider than 80: %q", line)
		}
	}
	t.types(ctrlC)
	t.ends(0)
	t = w.terminal("top", "--once", "-n", "1s")
	t.ends(0)
	if strings.Contains(t.all(), altScreen) {
		w.Error("--once takes the whole screen")
	}
}
