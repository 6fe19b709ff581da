package schedule

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/ops"
)

// A steppedServer is one whose clock a test sets, with a replica of a scheduler that it moves step by step.
type steppedServer struct {
	*fixture
	mini  *miniredis.Miniredis
	r     *runner
	wall  time.Time // of the server
	local time.Time // of the process, which goes evenly
}

var steppedStart = time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)

func newSteppedServer(t *testing.T) *steppedServer {
	t.Parallel()
	mini := miniredis.RunT(t)
	cli := queuetest.RedisClient(t, mini.Addr())
	s := &steppedServer{fixture: fixtureOn(t, cli), mini: mini, wall: steppedStart, local: time.Unix(1_000_000, 0)}
	s.s.table.clock = func() time.Time { return s.local }
	s.r = newRunner(s.s)
	mini.SetTime(s.wall)
	return s
}

// step sets the clock of the server.
func (s *steppedServer) step(d time.Duration) {
	s.wall = s.wall.Add(d)
	s.mini.SetTime(s.wall)
}

// runs lets the replica look and send for so many seconds, one after the other.
func (s *steppedServer) runs(seconds int) {
	s.Helper()
	for range seconds {
		s.step(time.Second)
		s.local = s.local.Add(time.Second)
		s.steps(s.r)
		s.sends(s.r)
	}
}

// sent counts the messages that are there of each entry and instant; all wait, for nobody consumes, or have been
// taken by consume.
func (s *steppedServer) sent() map[string]map[int64]int {
	s.Helper()
	all := map[string]map[int64]int{}
	for _, state := range []delayqueue.State{delayqueue.StatePending, delayqueue.StateReady, delayqueue.StateWaiting} {
		for msg, err := range s.mon.All(s.ctx(), state, ops.Filter{}) {
			s.must(err)
			name, at := Of(&msg.Message)
			if all[name] == nil {
				all[name] = map[int64]int{}
			}
			all[name][at.Unix()]++
		}
	}
	return all
}

// TestClockWrongForAMoment: a clock that is wrong for three seconds, by a century, by two hours, or behind, stops no
// entry for longer than a minute, and makes no instant twice. Meanwhile the log and Status say what the entries wait
// for.
func TestClockWrongForAMoment(t *testing.T) {
	t.Parallel()
	for what, by := range map[string]time.Duration{"a century": 100 * 365 * 24 * time.Hour, "two hours": 2 * time.Hour,
		"behind": -time.Hour} {
		t.Run(what, func(t *testing.T) {
			s := newSteppedServer(t)
			s.must(s.s.Set(s.ctx(), Entry{Name: "pulse", Every: time.Second, CatchUp: 40}))
			s.must(s.s.Set(s.ctx(), Entry{Name: "hourly", Cron: "0 * * * *"}))
			s.must(s.s.Set(s.ctx(), Entry{Name: "daily", Cron: "5 8 * * *"}))
			s.must(s.s.Set(s.ctx(), Entry{Name: "skips", Every: 2 * time.Second, Overlap: Skip}))
			lane := delayqueue.WithLane("l")
			_, err := s.pub.Send(s.ctx(), "has the turn", lane)
			s.must(err)
			s.must(s.s.Set(s.ctx(),
				Entry{Name: "waits", Every: 2 * time.Second, Overlap: Skip, Options: []delayqueue.MsgOption{lane}}))
			s.runs(10)
			s.takeSkipped()
			s.step(by)
			s.runs(3)
			s.step(-by)
			s.runs(2)
			if far := by > 0; far {
				if one := s.status("pulse"); !errors.Is(one.Trouble, ErrFar) || one.Next.IsZero() ||
					one.Next.After(s.wall.Add(time.Minute)) {
					t.Errorf("Status: %v, next %v", one.Trouble, one.Next)
				}
				s.log.Says(t, 1, "lies too far ahead")
			}
			s.runs(55)
			healed := s.wall.Unix()
			for range 40 {
				s.runs(1)
				s.takeSkipped()
			}
			sent := s.sent()
			for at := healed - 20; at < healed+40; at++ {
				if sent["pulse"][at] != 1 {
					t.Errorf("%d, %d s after the clock was right again, has %d messages", at, at-healed+57, sent["pulse"][at])
				}
			}
			for name, instants := range sent {
				for at, n := range instants {
					if n > 1 {
						t.Errorf("%s: %d has %d messages", name, at, n)
					}
					if at > s.wall.Unix()+farSeconds && name != "daily" && name != "hourly" {
						t.Errorf("%s: what was sent for %v is there still", name, time.Unix(at, 0))
					}
				}
			}
			for _, name := range []string{"pulse", "hourly", "daily", "skips", "waits"} {
				one := s.status(name)
				if one.Trouble != nil || !one.Overdue.IsZero() || one.Skipped.Missed > 1000 || one.Next.Before(s.wall) {
					t.Errorf("%+v", one)
				}
			}
			for _, name := range skipping {
				if last := s.status(name).Last; last.Before(s.wall.Add(-3*time.Second)) ||
					last.After(s.wall.Add(farSeconds*time.Second)) {
					t.Errorf("%s: the last is %v, now is %v", name, last, s.wall)
				}
			}
			s.wall = time.Date(2026, 11, 23, 8, 4, 50, 0, time.UTC)
			s.runs(20)
			if sent := s.sent()["daily"]; sent[steppedStart.Unix()+300] != 1 {
				t.Errorf("the day has no message: %v", sent)
			}
		})
	}
}

// skipping are entries that skip. The messages of one wait in a lane.
var skipping = []string{"skips", "waits"}

// takeSkipped takes the messages of the entries that skip, as a consumer would.
func (s *steppedServer) takeSkipped() {
	s.Helper()
	for _, name := range skipping {
		msg, err := s.mon.GetKey(s.ctx(), sequenceOf(name))
		if errors.Is(err, delayqueue.ErrNotFound) {
			continue
		}
		s.must(err)
		if !msg.Due.After(s.wall) {
			_, err = s.pub.InterceptKey(s.ctx(), sequenceOf(name))
			s.must(err)
		}
	}
}

// TestSetWhileTheClockIsAhead: an entry that was set then begins, by itself, and at once if it is set again.
func TestSetWhileTheClockIsAhead(t *testing.T) {
	s := newSteppedServer(t)
	const century = 100 * 365 * 24 * time.Hour
	s.step(century)
	for _, name := range []string{"late", "again"} {
		s.must(s.s.Set(s.ctx(), Entry{Name: name, Every: time.Second}))
	}
	s.step(-century)
	s.must(s.s.Set(s.ctx(), Entry{Name: "again", Every: time.Second}))
	if next := s.status("again").Next; next.After(s.wall.Add(2 * time.Second)) {
		t.Errorf("the next is %v", next)
	}
	s.runs(8)
	if n := len(s.sent()["again"]); n < 5 {
		t.Errorf("set again, and %d were sent", n)
	}
	s.runs(50)
	for _, name := range []string{"late", "again"} {
		if last := s.status(name).Last; last.Before(s.wall) {
			t.Errorf("%s: the last is %v, now is %v", name, last, s.wall)
		}
	}
}

// TestClockStepped: a clock that is set back for good by a minute at most is waited for: no instant makes two messages.
func TestClockStepped(t *testing.T) {
	s := newSteppedServer(t)
	s.must(s.s.Set(s.ctx(), Entry{Name: "pulse", Every: time.Second, CatchUp: 1000}))
	from := s.wall.Unix()
	s.runs(60)
	s.step(-50 * time.Second)
	s.runs(60)
	s.step(2 * time.Minute)
	s.runs(30)
	sent := s.sent()["pulse"]
	for at := from + 1; at < s.wall.Unix(); at++ {
		if sent[at] != 1 {
			t.Errorf("%d has %d messages", at-from, sent[at])
		}
	}
}

// ahead sends for the entry e as long as the server's clock is as much ahead as d, and then that is stepped back:
// until it has come there again, nothing more is sent.
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

// TestTakenBackAfterAStep: what was sent ahead before the server's clock was stepped back is taken back, too, and
// the entry begins anew.
func TestTakenBackAfterAStep(t *testing.T) {
	t.Parallel()
	for _, step := range []time.Duration{time.Minute, (aheadSeconds + slackSeconds) * time.Second, time.Hour,
		24 * time.Hour} {
		t.Run(fmt.Sprint(step), func(t *testing.T) {
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

// TestChangedAfterAFailover: what ran by a server whose clock was some seconds ahead does not run again for an entry
// that is changed then.
func TestChangedAfterAFailover(t *testing.T) {
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
			f.must(queuetest.Failure(f.pub.InterceptKey(f.ctx(), keyOf("e", gen, at))))
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
