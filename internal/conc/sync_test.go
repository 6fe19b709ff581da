package conc

import (
	"testing"
	"time"
)

// TestSignal: it never blocks the sender, and many are one.
func TestSignal(t *testing.T) {
	s := NewSignal()
	s.Send()
	s.Send()
	<-s
	select {
	case <-s:
		t.Error("it was received twice")
	default:
	}
}

// TestAtomicTime: it keeps what it was set to, and the zero value is the start of the process.
func TestAtomicTime(t *testing.T) {
	var at AtomicTime
	now := time.Now()
	if at.Age(now) != now.Sub(processStart) {
		t.Errorf("the zero value is %v ago", at.Age(now))
	}
	at.Set(now)
	if d := at.Age(now.Add(time.Second)); d != time.Second {
		t.Errorf("it was %v before", d)
	}
	if d := at.Age(now.Add(-time.Second)); d != -time.Second {
		t.Errorf("it is %v before", d)
	}
}

// TestMinuteCount: what comes within a minute is added up for the next log line.
func TestMinuteCount(t *testing.T) {
	var c MinuteCount
	start := time.Now()
	for _, step := range []struct {
		after time.Duration
		n     int
		want  int
	}{
		{0, 0, 0}, {0, 3, 3}, {time.Second, 2, 0}, {59 * time.Second, 4, 0}, {time.Minute, 0, 6},
		{61 * time.Second, 1, 0}, {3 * time.Minute, 0, 1},
		{9 * time.Minute, 0, 0},
	} {
		if got := c.Add(step.n, start.Add(step.after)); got != step.want {
			t.Errorf("after %v: %d to log, want %d", step.after, got, step.want)
		}
	}
}
