package main

import (
	"fmt"
	"strings"
	"sync/atomic"
)

// payloadSize is the length of every payload.
const payloadSize = 100

const indexDigits = 8

var filler = strings.Repeat("x", payloadSize-indexDigits)

// payload of message i, from which indexOf reads i again.
func payload(i int) string { return fmt.Sprintf("%0*d", indexDigits, i) + filler }

// indexOf is which message a payload belongs to, -1 if to none.
func indexOf(payload string) int {
	if len(payload) != payloadSize {
		return -1
	}
	n := 0
	for i := range indexDigits {
		c := payload[i]
		if c < '0' || c > '9' {
			return -1
		}
		n = n*10 + int(c-'0')
	}
	return n
}

// payloads of messages 0 to n-1.
func payloads(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = payload(i)
	}
	return out
}

// A tally checks that each of n messages arrives, once.
type tally struct {
	seen    []atomic.Bool
	arrived atomic.Int64
	twice   atomic.Int64
	strange atomic.Int64
	all     chan struct{} // closed when each has arrived
}

func newTally(n int) *tally { return &tally{seen: make([]atomic.Bool, n), all: make(chan struct{})} }

// mark notes an arrival and returns the index of the message, -1 if that is none.
func (t *tally) mark(payload string) int {
	i := indexOf(payload)
	switch {
	case i < 0 || i >= len(t.seen):
		t.strange.Add(1)
		return -1
	case t.seen[i].Swap(true):
		t.twice.Add(1)
	case t.arrived.Add(1) == int64(len(t.seen)):
		close(t.all)
	}
	return i
}

// handle is mark, as a handler.
func (t *tally) handle(payload string, _ int) { t.mark(payload) }

// err says whether anything arrived more than once or not at all.
func (t *tally) err() error {
	missing := int64(len(t.seen)) - t.arrived.Load()
	if missing == 0 && t.twice.Load() == 0 && t.strange.Load() == 0 {
		return nil
	}
	return fmt.Errorf("of %d messages %d did not arrive, %d arrived more than once, and %d others came",
		len(t.seen), missing, t.twice.Load(), t.strange.Load())
}
