//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

const (
	// sendLimit is how long a send may take. A send without a limit goes on until Redis has answered.
	sendLimit = 20 * time.Second
	// sendsAtOnce bounds the sends under way, because they would fill the memory if Redis were slower than the rate.
	sendsAtOnce = 1000
)

// traffic is the messages. The payload of a message is its number.
type traffic struct {
	phase atomic.Int32

	mu       sync.Mutex // guards what follows
	accepted []bool     // by the numbers of messages: sent without an error
	times    []int      // by the numbers of messages: how often it was handled
	tallies  [3]tally   // of each phase
	total    tally
	failure  error         // the first of a send
	lateness time.Duration // the largest since the last look
}

// A tally is what happened in some time.
type tally struct {
	sent, failed, handled int
	slowest               time.Duration // of the sends
	latest                time.Duration // how late a message was handled at most
}

// send sends at a rate until ctx ends, and waits for all sends.
func (t *traffic) send(ctx context.Context, queue *delayqueue.DelayQueue, rate int) {
	var wait sync.WaitGroup
	defer wait.Wait()
	underWay := make(chan struct{}, sendsAtOnce)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	begun, next := time.Now(), 0
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for ; next < int(time.Since(begun).Seconds()*float64(rate)); next++ {
			select {
			case underWay <- struct{}{}:
			case <-ctx.Done():
			}
			if ctx.Err() != nil {
				return
			}
			n := next
			wait.Go(func() {
				t.sendOne(queue, n)
				<-underWay
			})
		}
	}
}

func (t *traffic) sendOne(queue *delayqueue.DelayQueue, n int) {
	ctx, cancel := context.WithTimeout(context.Background(), sendLimit)
	defer cancel()
	begun, phase := time.Now(), t.phase.Load()
	_, err := queue.Send(ctx, strconv.Itoa(n), delayqueue.WithDelay(delay))
	t.mu.Lock()
	defer t.mu.Unlock()
	t.grow(n)
	t.accepted[n] = err == nil
	for _, to := range []*tally{&t.tallies[phase], &t.total} {
		to.slowest = max(to.slowest, time.Since(begun))
		if to.sent++; err != nil {
			to.failed++
		}
	}
	if t.failure == nil {
		t.failure = err
	}
}

func (t *traffic) handle(_ context.Context, msg *delayqueue.Message) error {
	late := time.Since(msg.Due)
	n, err := strconv.Atoi(msg.Payload)
	if err != nil {
		return errors.Join(delayqueue.ErrSkipRetry, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.grow(n)
	t.times[n]++
	for _, to := range []*tally{&t.tallies[t.phase.Load()], &t.total} {
		to.handled++
		to.latest = max(to.latest, late)
	}
	t.lateness = max(t.lateness, late)
	return nil
}

// grow makes room for message n. The caller holds the lock.
func (t *traffic) grow(n int) {
	for len(t.times) <= n {
		t.times, t.accepted = append(t.times, 0), append(t.accepted, false)
	}
}

// look returns what has happened so far, and the largest lateness since the last look.
func (t *traffic) look() (tally, time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	late := t.lateness
	t.lateness = 0
	return t.total, late
}

// count says how many messages were accepted and have not been handled, and how many were handled more than once.
func (t *traffic) count() (missing, twice int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for n, times := range t.times {
		if t.accepted[n] && times == 0 {
			missing++
		}
		if times > 1 {
			twice++
		}
	}
	return missing, twice
}

// over says whether all messages that were accepted have been handled.
func (t *traffic) over() bool {
	missing, _ := t.count()
	return missing == 0
}

func (t *traffic) summary(interrupted bool) string {
	missing, twice := t.count()
	t.mu.Lock()
	defer t.mu.Unlock()
	var b strings.Builder
	fate := "lost"
	if interrupted {
		fate = "not handled yet"
	}
	fmt.Fprintf(&b, "\nsent %d, errors of sends %d, %s %d, handled twice %d\n", t.total.sent, t.total.failed, fate,
		missing, twice)
	if t.failure != nil {
		fmt.Fprintln(&b, "the first error:", t.failure)
	}
	fmt.Fprintf(&b, "\n%-15s%14s%14s%14s\n", "", "before", "a node dead", "after")
	row := func(name string, cell func(tally) any) {
		fmt.Fprintf(&b, "%-15s%14v%14v%14v\n", name, cell(t.tallies[before]), cell(t.tallies[down]), cell(t.tallies[after]))
	}
	row("sent", func(at tally) any { return at.sent })
	row("errors of sends", func(at tally) any { return at.failed })
	row("slowest send", func(at tally) any { return ms(at.slowest) })
	row("handled", func(at tally) any { return at.handled })
	row("worst lateness", func(at tally) any { return ms(at.latest) })
	return b.String()
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000) }
