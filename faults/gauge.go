package main

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// A gauge shows how slow the machine is during a trial, so that no verdict depends on the machine: it sets a timer and
// sends a PING to a server that nothing strikes, over and over. A bound on a time is widened by the longest delays in
// that time. A nil gauge widens nothing.
type gauge struct {
	mu     sync.Mutex
	delays []delay // in order of their instants
}

// A delay is how much longer than its pause a measurement took.
type delay struct {
	at   int64 // unix us, when it began
	took time.Duration
}

const (
	gaugePause = 20 * time.Millisecond // of the timer
	// steps is how many of the longest delays widen a bound, all together. To go on after an outage, or to take over from
	// another program, processes wait for each other about so often: they dial, ask for the server's role, load scripts
	// and fetch, and are scheduled each time.
	steps = 20
)

// startGauge measures until the trial ends.
func startGauge(t *trial) *gauge {
	g := &gauge{}
	cli := redistest.Start(t).Client(t)
	ctx, stop := context.WithCancel(t.ctx)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		g.measure(ctx, cli)
	}()
	t.Cleanup(func() {
		stop()
		<-stopped
	})
	return g
}

func (g *gauge) measure(ctx context.Context, cli *redis.Client) {
	for ctx.Err() == nil {
		begun := time.Now()
		select {
		case <-time.After(gaugePause):
		case <-ctx.Done():
		}
		_ = cli.Ping(ctx).Err() // a failure is a delay like any other
		g.note(delay{begun.UnixMicro(), max(time.Since(begun)-gaugePause, 0)})
	}
}

func (g *gauge) note(d delay) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.delays = append(g.delays, d)
}

// allowance is by how much a bound on a time is widened that began at an instant, in unix us.
func (g *gauge) allowance(from int64, took time.Duration) time.Duration {
	if g == nil {
		return 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	// The measurement before may reach into that time.
	i, _ := slices.BinarySearchFunc(g.delays, from, func(d delay, at int64) int { return cmp.Compare(d.at, at) })
	var seen []time.Duration
	for _, d := range g.delays[max(i-1, 0):] {
		if d.at > from+took.Microseconds() {
			break
		}
		seen = append(seen, d.took)
	}
	slices.Sort(seen)
	sum := time.Duration(0)
	for _, d := range seen[max(len(seen)-steps, 0):] {
		sum += d
	}
	return sum
}

// inTime wants something that began at an instant to have taken no longer than a bound, as widened.
func (v *verdict) inTime(g *gauge, from int64, took, most time.Duration, format string, args ...any) {
	if took <= most {
		return
	}
	more := g.allowance(from, took)
	v.allowed = max(v.allowed, min(took-most, more))
	if took > most+more {
		args = append(args, took, most, more)
		v.problem(format+": %v, want at most %v, and %v more because the machine was slow", args...)
	}
}

// tooSlowForLease says whether the machine was so slow in a run, or before the next one, that the lease may have ended
// though its consumer lived: as slow as half a lease.
func (ev *evidence) tooSlowForLease(prev, r run) bool {
	return ev.rules.lease > 0 && ev.gauge.allowance(prev.start.At, us(r.start.At-prev.start.At)) >= ev.rules.lease/2
}

// neighbours is how many messages show how far consumers are behind.
const neighbours = 10

// backlog is how far consumers were behind at an instant: the shortest lateness of the messages that were handed out
// for the first time just before. A message that comes back waits behind messages that were due earlier.
func (ev *evidence) backlog(at int64) time.Duration {
	if ev.firsts == nil {
		ev.firsts = []lateness{}
		due := map[string]int64{}
		for _, e := range ev.entries {
			if e.Kind == sent {
				due[e.ID] = e.Due
			}
		}
		for _, e := range ev.entries {
			if d := due[e.ID]; e.Kind == started && e.Delivery == 1 && d > 0 {
				ev.firsts = append(ev.firsts, lateness{e.At, max(us(ev.server(e.At)-d), 0)})
			}
		}
		slices.SortFunc(ev.firsts, func(a, b lateness) int { return cmp.Compare(a.at, b.at) })
	}
	i, _ := slices.BinarySearchFunc(ev.firsts, at, func(l lateness, at int64) int { return cmp.Compare(l.at, at) })
	if i < neighbours {
		return 0
	}
	return slices.MinFunc(ev.firsts[i-neighbours:i], func(a, b lateness) int { return cmp.Compare(a.by, b.by) }).by
}
