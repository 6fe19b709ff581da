package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

// program is what the handlers and the main loop share.
type program struct {
	queue    *delayqueue.DelayQueue
	monitor  *delayqueue.Monitor
	embedded bool
	started  time.Time

	mu                      sync.Mutex // guards what follows
	out, errs               io.Writer
	list                    map[string]*entry // by message id
	fired, retried, overdue int
	bad                     int // lines that were not scheduled
	worst                   time.Duration
}

// An entry is a reminder that this process scheduled or had in its hands.
type entry struct {
	text  string
	due   time.Time // of its next delivery; zero if another process knows
	fired bool
}

// entry finds or makes one: a handler can be faster than the return of Send.
func (p *program) entry(id string) *entry {
	e := p.list[id]
	if e == nil {
		e = &entry{}
		p.list[id] = e
	}
	return e
}

// work schedules all lines and returns when everything has fired, or when ctx ends.
func (p *program) work(ctx context.Context, in io.Reader) {
	lines := make(chan string)
	var broken error
	go func() {
		defer close(lines)
		scanner := bufio.NewScanner(in)
		scanner.Buffer(nil, 1<<20)
		for scanner.Scan() {
			select {
			case lines <- scanner.Text():
			case <-ctx.Done():
				return
			}
		}
		broken = scanner.Err()
	}()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	busy := time.Now() // when there was last something to do
	for n := 1; ; {
		select {
		case <-ctx.Done():
			return
		case line, ok := <-lines:
			if !ok {
				lines = nil
				if broken != nil {
					p.complain("line %d: %v", n, broken)
				}
				continue
			}
			p.schedule(ctx, n, line)
			n++
		case <-tick.C:
			if lines != nil || !p.empty(ctx) {
				busy = time.Now()
			} else if p.embedded && len(p.waiting()) == 0 || time.Since(busy) > settleTime {
				return
			}
		}
	}
}

// schedule puts one line into the queue.
func (p *program) schedule(ctx context.Context, n int, line string) {
	line = strings.TrimSpace(strings.TrimPrefix(line, "\ufeff"))
	if line == "" || line[0] == '#' {
		return
	}
	r, err := parse(line, time.Now())
	if err != nil {
		p.complain("line %d: %v; %s", n, err, hint)
		return
	}
	when, in := delayqueue.WithDelay(r.delay), r.delay
	if !r.at.IsZero() {
		when, in = delayqueue.WithSchedule(r.at), time.Until(r.at).Round(time.Second)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	info, err := p.queue.Send(ctx, r.text, when)
	if err != nil {
		p.complain("line %d: %v", n, err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.entry(info.ID)
	if e.text = r.text; e.due.IsZero() {
		e.due = info.Due
	}
	p.print("scheduled", info.Due, "in "+in.String(), r.text)
}

// fire is the handler.
func (p *program) fire(_ context.Context, msg *delayqueue.Message) error {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.entry(msg.ID)
	due := msg.Due
	if msg.Failures > 0 {
		due = e.due // Message.Due stays that of the first delivery
	}
	var late string
	switch d := now.Sub(due); {
	case due.IsZero():
		late = "late by ?" // it failed in another process
	case due.Before(p.started):
		p.overdue++ // nobody was there to hear it
		late = "late by " + d.Round(time.Second).String()
	default:
		p.worst = max(p.worst, d)
		late = fmt.Sprintf("%6.2f ms late", d.Seconds()*1000)
	}
	if strings.HasPrefix(msg.Payload, "!flaky") && msg.Failures == 0 {
		p.retried++
		p.print("failed", due, late, fmt.Sprintf("%s (again in %v)", msg.Payload, retryDelay))
		e.text, e.due = msg.Payload, time.Now().Add(retryDelay)
		return errors.New("fails once, as its text asks")
	}
	p.fired++
	e.fired = true
	p.print("fired", due, late, msg.Payload)
	return nil
}

// empty asks in the order in which reminders move on, so none slips past it.
func (p *program) empty(ctx context.Context) bool {
	for _, count := range []func(context.Context) (int64, error){
		p.monitor.GetPendingCount, p.monitor.GetReadyCount, p.monitor.GetProcessingCount,
	} {
		if n, err := count(ctx); err != nil || n > 0 {
			return false
		}
	}
	return true
}

// waiting lists what this process knows of and has not seen fire, soonest first.
func (p *program) waiting() []*entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	var es []*entry
	for _, e := range p.list {
		if !e.fired {
			es = append(es, e)
		}
	}
	slices.SortFunc(es, func(a, b *entry) int { return a.due.Compare(b.due) })
	return es
}

// report says at the end what happened and what still waits.
func (p *program) report(interrupted bool) int {
	waiting := p.waiting()
	p.mu.Lock()
	defer p.mu.Unlock()
	if interrupted {
		fmt.Fprintln(p.out, "stopped")
		for _, e := range waiting {
			// One that is past may have fired in another process.
			if left := time.Until(e.due); left > 0 {
				p.print("waits", e.due, "in "+left.Round(10*time.Millisecond).String(), e.text)
			}
		}
		p.sayWhereItWaits()
	}
	fmt.Fprintf(p.out, "%d fired, %d retried, worst lateness %.2f ms", p.fired, p.retried, p.worst.Seconds()*1000)
	if p.overdue > 0 {
		fmt.Fprintf(p.out, "; %d due before the start", p.overdue)
	}
	if n := len(waiting); n > 0 && !interrupted {
		fmt.Fprintf(p.out, "; %d did not come to this process", n)
	}
	fmt.Fprintln(p.out)
	if p.bad > 0 {
		fmt.Fprintf(p.errs, "reminders: lines not scheduled: %d\n", p.bad)
		return 1
	}
	return 0
}

// sayWhereItWaits is for the user who wants to go on later; p.mu is held.
func (p *program) sayWhereItWaits() {
	if p.embedded {
		fmt.Fprintln(p.out, "what waits ends with the embedded Redis")
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	pending, err := p.monitor.GetPendingCount(ctx)
	if err != nil {
		fmt.Fprintln(p.errs, "reminders: what waits is in Redis, which does not answer:", err)
		return
	}
	fmt.Fprintf(p.out, "%d wait in Redis, besides retries; the next run goes on with all of them\n", pending)
}

// print writes one aligned line; p.mu is held.
func (p *program) print(what string, due time.Time, detail, text string) {
	at := "?"
	if now := time.Now(); due.Format(time.DateOnly) == now.Format(time.DateOnly) {
		at = due.Format("15:04:05.000")
	} else if !due.IsZero() {
		at = due.Format("Jan _2 15:04")
	}
	fmt.Fprintf(p.out, "%-9s  %-12s  %-14s  %s\n", what, at, detail, text)
}

func (p *program) complain(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bad++
	fmt.Fprintf(p.errs, "reminders: "+format+"\n", args...)
}
