package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
)

func init() {
	scenarios["lines go on"] = tellLinesGoOn
}

func someLines(n int) string {
	var lines strings.Builder
	for i := range n {
		fmt.Fprintln(&lines, "line", i+1)
	}
	return lines.String()
}

// What was interrupted says with which line to go on, and then each line was sent once.
func tellLinesGoOn(w *world) {
	const n = 2*batchLines + 200
	w.send("orders", "makes the queue", delayqueue.WithDelay(time.Hour))
	input, feed, err := os.Pipe()
	if err != nil {
		w.Fatal(err)
	}
	defer input.Close()
	defer feed.Close() // it stays open until then
	var out, errs bytes.Buffer
	cmd := w.command("send", "orders", "--lines", "--delay", "2h")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = input, &out, &errs
	if err := cmd.Start(); err != nil {
		w.Fatal(err)
	}
	if _, err := io.WriteString(feed, someLines(n)); err != nil {
		w.Fatal(err)
	}
	w.until("two batches are sent", func() bool { return w.counts("orders").Pending == 2*batchLines+1 })
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		w.Fatal(err)
	}
	_ = cmd.Wait() // its code is looked at here
	want := fmt.Sprintf("--from-line %d", 2*batchLines+1)
	if code := cmd.ProcessState.ExitCode(); code != exitInterrupted || out.String() != "sent 1,000 messages\n" ||
		!strings.Contains(errs.String(), want) ||
		!strings.Contains(errs.String(), "--delay 2h") {
		w.Errorf("%d %q %q, want %s", code, out.String(), errs.String(), want)
	}
	if r := w.runWith(someLines(n), "send", "orders", "--lines", "--delay", "2h", "--from-line", fmt.Sprint(2*batchLines+1),
		"--json"); r.code != 0 || r.out != "{\"sent\":200}\n" {
		w.Errorf("%+v", r)
	}
	seen := map[string]int{}
	for msg, err := range w.monitor("orders").All(w.Context(), delayqueue.StatePending, delayqueue.Filter{Contains: "line", Limit: 500}) {
		if err != nil {
			w.Fatal(err)
		}
		seen[msg.Payload]++
	}
	for i := range n {
		if k := seen[fmt.Sprint("line ", i+1)]; k != 1 {
			w.Fatalf("line %d was sent %d times", i+1, k)
		}
	}
	w.refused(exitUsage, "--from-line goes with --lines", "send", "orders", "x", "--from-line", "2")
	w.refused(exitUsage, "--from-line goes with --lines", "send", "orders", "--lines", "--from-line", "0")
	w.sound("orders")
}

// What Redis did not answer about is in doubt, as a whole.
func TestLinesInDoubt(t *testing.T) {
	s := redistest.Start(t)
	w := newWorld(t, "redis://"+s.Addr(), s.Client(t))
	p := w.publisher("orders")
	lines := numbered{first: 501, texts: []string{"a", "b", "c"}}
	var far sending
	if err := far.send(t.Context(), p, lines, nil); err != nil || far.sent != 3 || far.next != 504 || far.doubt != 0 {
		t.Errorf("%+v %v", far, err)
	}
	s.Pause()
	defer s.Resume()
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	lines.first = 504
	if err := far.send(interrupted, p, lines, nil); err == nil || far.sent != 3 || far.next != 504 || far.doubt != 3 {
		t.Errorf("%+v %v", far, err)
	}
}

// A line that cannot be a message is said, and those around it are sent.
func TestLineThatIsRefused(t *testing.T) {
	s := redistest.Start(t)
	w := newWorld(t, "redis://"+s.Addr(), s.Client(t))
	var far sending
	bad := []delayqueue.MsgOption{delayqueue.WithDelay(-1), delayqueue.WithRetryCount(-1)}
	err := far.send(t.Context(), w.publisher("orders"), numbered{first: 1, texts: []string{"a", "b"}}, bad)
	if err != nil || far.sent != 0 || far.next != 3 || len(far.refused) != 2 ||
		!strings.Contains(far.refused[1].Error(), "line 2 was not sent") {
		t.Errorf("%+v %v", far, err)
	}
}
