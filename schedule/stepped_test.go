package schedule

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// ahead sends for the entry e as long as the server's clock is as much ahead as d, and then that is stepped back: until it has
// come there again, nothing more is sent.
func (f *fixture) ahead(d time.Duration) {
	f.Helper()
	n := 0
	f.until("something is sent ahead", func() bool { // it is due some seconds later, which a slow machine may miss
		r := f.looked(f.replica(), false)
		r.reading.us += d.Microseconds()
		f.sends(r)
		n = len(f.waiting())
		return n > 0
	})
	f.looked(f.replica(), true)
	if d >= time.Hour && len(f.waiting()) > n { // else it may have come there
		f.Errorf("%d wait, and %d did before the step", len(f.waiting()), n)
	}
}

// TestTakenBackAfterAStep: what was sent ahead before the server's clock was stepped back is taken back, too, and the entry begins anew.
func TestTakenBackAfterAStep(t *testing.T) {
	t.Parallel()
	for _, step := range []time.Duration{time.Minute, (aheadSeconds + slackSeconds) * time.Second, time.Hour, 24 * time.Hour} {
		t.Run(fmt.Sprint(step), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			e := Entry{Name: "e", Every: time.Second, Payload: "before"}
			for what, change := range map[string]func() error{
				"pause":  func() error { return f.s.Pause(f.ctx(), "e") },
				"remove": func() error { return f.s.Remove(f.ctx(), "e") },
				"set":    func() error { e := e; e.Payload = "after"; return f.s.Set(f.ctx(), e) },
			} {
				f.must(f.s.Set(f.ctx(), e))
				f.must(f.s.Resume(f.ctx(), "e"))
				f.ahead(step)
				f.must(change())
				if n := f.payloadsWaiting(); n["before"] > 0 {
					t.Errorf("%s: %v wait", what, n)
				}
			}
			f.must(f.s.Set(f.ctx(), e))
			f.must(f.s.Pause(f.ctx(), "e"))
			f.must(f.s.Resume(f.ctx(), "e"))
			got := f.consume(nil)
			f.run(f.replica())
			f.until("it runs", func() bool { n, _ := got.of("e"); return len(n) >= 2 })
		})
	}
}

// TestChangedAfterAFailover: what ran by a server whose clock was some seconds ahead does not run again for an entry that is changed then.
func TestChangedAfterAFailover(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	e := Entry{Name: "e", Every: time.Second, Payload: "before"}
	f.must(f.s.Set(f.ctx(), e))
	const step = 4 * time.Second
	f.ahead(step)
	due := f.waiting()
	ran := slices.Max(due) - aheadSeconds // by the clock that was ahead
	gen := f.rec("e").Gen
	for _, at := range due {
		if at <= ran {
			_, err := f.pub.InterceptKey(f.ctx(), keyOf("e", gen, at))
			f.must(err)
		}
	}
	e.Payload = "after"
	f.must(f.s.Set(f.ctx(), e))
	f.ahead(step)
	for _, at := range f.waiting() {
		if at <= ran {
			t.Errorf("%d waits, and has run: until %d all have", at, ran)
		}
	}
}
