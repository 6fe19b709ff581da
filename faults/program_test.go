package main

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// TestManners: every way of handling occurs among as many payloads as a trial has.
func TestManners(t *testing.T) {
	t.Parallel()
	seen := map[manner]int{}
	for i := range usual.Messages / usual.Producers {
		seen[manners(fmt.Sprintf("producer1-%06d", i))]++
	}
	for _, m := range []manner{{}, {slow: true}, {failures: 1}, {failures: 2}, {failures: retries + 1}, {givesUp: true}} {
		if seen[m] == 0 {
			t.Errorf("no payload is treated as %+v", m)
		}
	}
}

// TestStepIsPatient: while nothing is answered each send of a step tries as long as a send may, also those that
// follow upon one that failed: a send that fails at once would look like one that began after the outage and failed.
func TestStepIsPatient(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	defer silent.Close()
	cli := reach{Addrs: []string{silent.Addr().String()}}.client()
	defer cli.Close()
	dir := t.TempDir()
	book, err := openLedger(dir, producer)
	ok(t, err)
	defer book.file.Close()
	o := order{Load: load{Patience: 100 * time.Millisecond, MaxDelay: time.Second}}
	sendStep(t.Context(), delayqueue.NewQueue(queue, cli, nil), book, o, 0)    // as a batch
	sendStep(t.Context(), delayqueue.NewQueue(queue, cli, nil), book, o, step) // one after the other
	b := &books{dir: dir}
	ok(t, b.catchUp())
	for _, e := range b.all() {
		if e.Kind != refused || us(e.Took) < o.Load.Patience {
			t.Errorf("%s: %s after %v: %s", e.Payload, e.Kind, us(e.Took), e.Word)
		}
	}
	if n := len(b.all()); n != 2*step {
		t.Errorf("%d sends, want %d", n, 2*step)
	}
}
