package delayqueue

import (
	"slices"
	"testing"
	"time"
)

// TestSet: an item is in it once.
func TestSet(t *testing.T) {
	var s set[string]
	s.remove("a")
	s.add("a")
	s.add("b")
	s.add("a")
	if s.remove("b"); s.size() != 1 || !slices.Equal(s.all(), []string{"a"}) {
		t.Errorf("it has %v, size %d", s.all(), s.size())
	}
}

// TestSignal: it never blocks the sender, and many are one.
func TestSignal(t *testing.T) {
	s := newSignal()
	s.send()
	s.send()
	<-s
	select {
	case <-s:
		t.Error("it was received twice")
	default:
	}
}

// TestAtomicTime: it keeps what it was set to, and the zero value is the start of the process.
func TestAtomicTime(t *testing.T) {
	var at atomicTime
	now := time.Now()
	if at.age(now) != now.Sub(processStart) {
		t.Errorf("the zero value is %v ago", at.age(now))
	}
	at.set(now)
	if d := at.age(now.Add(time.Second)); d != time.Second {
		t.Errorf("it was %v before", d)
	}
	if d := at.age(now.Add(-time.Second)); d != -time.Second {
		t.Errorf("it is %v before", d)
	}
}

// TestMinuteCount: what comes within a minute is added up for the next log line.
func TestMinuteCount(t *testing.T) {
	var c minuteCount
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
		if got := c.add(step.n, start.Add(step.after)); got != step.want {
			t.Errorf("after %v: %d to log, want %d", step.after, got, step.want)
		}
	}
}
