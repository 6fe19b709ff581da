package testkit

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// This file has a clock by which tests are patient. It ticks each 10 ms on a machine that is idle, and a tick that
// comes late counts as one. So on a machine that is busy it is slow, and as long as the machine stands still it
// stands still too: a minute by this clock is a minute of a machine that works.

const (
	// tick is how often the clock ticks on a machine that is idle.
	tick = 10 * time.Millisecond
	// tickRounds is how much is computed in a tick: a tenth of a millisecond, because a goroutine that only sleeps is
	// hardly ever put off.
	tickRounds = 100_000
	// recentTicks is over how many ticks Slowness is the mean.
	recentTicks = 32
)

// A clock counts ticks.
type clock struct {
	ticks  atomic.Int64
	recent atomic.Int64           // how long a tick takes, in ns: a moving mean
	beside atomic.Pointer[func()] // called in each tick; nil: nothing
	now    func() time.Time
	sleep  func(time.Duration)
}

// machine ticks in each test binary, from its start to its end. In a program it begins with the first question, because
// the bench measures what its own process uses.
var machine = sync.OnceValue(startClock)

func init() {
	if testing.Testing() {
		machine()
	}
}

func startClock() *clock {
	c := &clock{now: time.Now, sleep: time.Sleep}
	go c.run()
	return c
}

// run ticks for ever. Package leaks knows it by its name.
func (c *clock) run() {
	for {
		c.tick()
	}
}

func (c *clock) tick() {
	begun := c.now()
	c.sleep(tick)
	compute(tickRounds)
	if f := c.beside.Load(); f != nil {
		(*f)()
	}
	n, before := min(c.ticks.Add(1), recentTicks), c.recent.Load()
	c.recent.Store(before + (int64(c.now().Sub(begun))-before)/n)
}

// computed keeps compute from being left out.
var computed atomic.Uint64

func compute(rounds int) {
	n := uint64(1)
	for range rounds {
		n = n*6364136223846793005 + 1442695040888963407
	}
	computed.Store(n)
}

func (c *clock) worked() time.Duration { return time.Duration(c.ticks.Load()) * tick }

// slowness is 1 if a tick takes less than twice its time: it is never quite on time.
func (c *clock) slowness() float64 {
	if recent := time.Duration(c.recent.Load()); recent >= 2*tick {
		return float64(recent) / float64(tick)
	}
	return 1
}

// Worked is for how long the machine has worked since this test binary began, or since a program asked first. The
// difference of two is what a test compares with a bound, because it does not grow with what else the machine does.
func Worked() time.Duration { return machine().worked() }

// Slowness is how many times longer than on an idle machine a tick takes at present, at least 1.
func Slowness() float64 { return machine().slowness() }

// Scaled is how long what takes d on an idle machine may take on this one, as it is now: for timeouts, which somebody
// else's clock measures.
func Scaled(d time.Duration) time.Duration { return time.Duration(float64(d) * Slowness()) }

// Beside makes f a part of each tick: a PING of the server that tests share, so that a busy server slows the clock
// down too. nil ends that. f must return, and may be under way once more when Beside has returned.
func Beside(f func()) {
	if f == nil {
		machine().beside.Store(nil)
		return
	}
	machine().beside.Store(&f)
}
