package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
)

// drainers are the numbers of consumers beside which a stranger's PINGs are measured.
var drainers = []int{1, 12, 50}

func drainersName(consumers int) string { return fmt.Sprintf("PING beside %d consumers", consumers) }

// strangerBeside measures PINGs of a stranger while so many consumers drain a due backlog. Another stranger PINGs a second server,
// which is idle: what that one waits for is the machine's.
func strangerBeside(consumers, n int) func(t *trial) error {
	return func(t *trial) error {
		if err := t.warm(1); err != nil {
			return err
		}
		n := t.size(n, 0)
		if err := t.fill(n, func(i int) message { return message{payload: payload(i)} }); err != nil {
			return err
		}
		idle, err := redistest.Run()
		if err != nil {
			return err
		}
		defer idle.Close()
		ctx, cancel := context.WithCancel(t.ctx)
		busyMs, idleMs := strangeLater(ctx, t.net.addr), strangeLater(ctx, idle.Addr())
		begun, seen := time.Now(), newTally(n)
		stops := make(chan func(), consumers)
		for range consumers {
			stop, consumeErr := t.sys.consume(senders, func(p string) { seen.mark(p) })
			if err = consumeErr; err != nil {
				break
			}
			stops <- stop
		}
		if err == nil {
			err = t.await(seen)
		}
		took := time.Since(begun)
		cancel()
		busy, quiet := <-busyMs, <-idleMs
		for range len(stops) {
			(<-stops)()
		}
		if err := errors.Join(err, busy.err, quiet.err); err != nil {
			return err
		}
		t.report(t.what.name, t.what.kind, figures{
			rate: float64(n) / took.Seconds(), pingP50: quantile(busy.ms, 0.5), pingP99: quantile(busy.ms, 0.99),
			pingQuiet: quantile(quiet.ms, 0.99), pingBeyond: quantile(busy.ms, 0.99) - quantile(quiet.ms, 0.99),
		})
		return t.onlyLeft(0)
	}
}

type pings struct {
	ms  []float64
	err error
}

// strangeLater is strange in the background, until ctx ends.
func strangeLater(ctx context.Context, addr string) <-chan pings {
	got := make(chan pings, 1)
	go func() {
		ms, err := strange(ctx, addr, patience)
		got <- pings{ms, err}
	}()
	return got
}
