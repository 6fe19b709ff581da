package testkit

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestClock: a tick that comes late counts as one, and the slowness is that of the last ticks.
func TestClock(t *testing.T) {
	now, late := time.Now(), time.Duration(0)
	c := &clock{now: func() time.Time { return now }, sleep: func(d time.Duration) { now = now.Add(d + late) }}
	ticks := func(n int) {
		for range n {
			c.tick()
		}
	}
	wants := func(worked time.Duration, least, most float64) {
		t.Helper()
		if c.worked() != worked || c.slowness() < least || c.slowness() > most {
			t.Errorf("worked %v, want %v; slowness %.2f, want %v to %v", c.worked(), worked, c.slowness(), least, most)
		}
	}
	late = 3 * tick
	ticks(1)
	wants(tick, 4, 4)
	late = 0
	ticks(99)
	wants(time.Second, 1, 1)
	late = tick / 2
	ticks(100)
	wants(2*time.Second, 1, 1)
	late = 9 * tick
	ticks(200)
	wants(4*time.Second, 9, 10)
	beside := func() { now = now.Add(10 * tick) }
	c.beside.Store(&beside)
	ticks(200)
	wants(6*time.Second, 19, 20)
	c.beside.Store(nil)
	late = 0
	ticks(200)
	wants(8*time.Second, 1, 1)
}

// TestMachineTicks: the clock of this binary goes on.
func TestMachineTicks(t *testing.T) {
	begun := Worked()
	Until(t, "it ticks", func() bool { return Worked() > begun })
	called := make(chan struct{}, 1)
	Beside(func() {
		select {
		case called <- struct{}{}:
		default:
		}
	})
	Receive(t, "a part of the tick", called)
	Beside(nil)
	if Scaled(time.Hour) < time.Hour {
		t.Errorf("scaled to %v", Scaled(time.Hour))
	}
}

// impatient is a test that notes that it failed.
type impatient struct {
	testing.TB
	failed bool
}

func (f *impatient) Helper() {}

func (f *impatient) Fatalf(string, ...any) {
	f.failed = true
	panic(f)
}

// TestPatience: waits end by the clock of the machine, not by another.
func TestPatience(t *testing.T) {
	defer func(real func() *clock) { machine = real }(machine)
	for name, wait := range map[string]func(t testing.TB){
		"until":   func(t testing.TB) { Until(t, "it", func() bool { return false }) },
		"receive": func(t testing.TB) { Receive(t, "it", make(chan int)) },
	} {
		synctest.Test(t, func(t *testing.T) {
			c := &clock{now: time.Now, sleep: time.Sleep}
			machine = func() *clock { return c }
			ended, f := make(chan struct{}), &impatient{TB: t}
			go func() {
				defer close(ended)
				defer func() { _ = recover() }()
				wait(f)
			}()
			time.Sleep(2 * Patience)
			select {
			case <-ended:
				t.Errorf("%s: it ended while the machine stood still", name)
			default:
			}
			c.ticks.Add(int64(Patience/tick) + 1)
			if <-ended; !f.failed {
				t.Errorf("%s: it has not failed", name)
			}
		})
	}
}
