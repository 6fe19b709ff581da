package schedule

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/testkit"
)

var errDies = errors.New("it dies here")

// A tired queue is that of a process that dies, or sleeps until somebody wakes it, before one of the calls that take
// back what was sent ahead.
type tired struct {
	Queue
	left int // calls until then
	wake chan struct{}
}

func (q *tired) tire() error {
	if q.left--; q.left >= 0 {
		return nil
	}
	if q.wake == nil {
		return errDies
	}
	<-q.wake
	return nil
}

func (q *tired) InterceptKey(ctx context.Context, key string) (*delayqueue.InterceptResult, error) {
	if err := q.tire(); err != nil {
		return nil, err
	}
	return q.Queue.InterceptKey(ctx, key)
}

func (q *tired) RescheduleKey(ctx context.Context, key string, t time.Time) error {
	if err := q.tire(); err != nil {
		return err
	}
	return q.Queue.RescheduleKey(ctx, key, t)
}

// TestChangeThatStops: wherever whoever changes an entry dies or falls asleep, the others complete the change,
// several at once, and each instant makes one message: whether what was sent ahead was handed out meanwhile, or
// became due and was not.
func TestChangeThatStops(t *testing.T) {
	t.Parallel()
	for _, left := range []int{0, 1, 3, 5, 6, 8} {
		for _, sleeps := range []bool{false, true} {
			for _, consumed := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d calls, sleeps %v, consumed %v", left, sleeps, consumed), func(t *testing.T) {
					f := newFixture(t)
					f.stopChange(&tired{Queue: f.pub, left: left}, sleeps, consumed)
				})
			}
		}
	}
}

func (f *fixture) stopChange(q *tired, sleeps, consumed bool) {
	e := Entry{Name: "e", Every: time.Second, Payload: "as it was", CatchUp: 1000}
	f.must(f.s.Set(f.ctx(), e))
	from := f.now()
	var got *ledger
	if consumed {
		got = f.consume(nil)
	}
	f.looked(f.s, true)
	e.Payload = "as it is"
	if sleeps {
		q.wake = make(chan struct{})
	}
	changed := make(chan error, 1)
	go func() { changed <- New(q).Set(f.ctx(), e) }()
	f.until("it stops", func() bool { return f.rec("e").Open != 0 })
	if !sleeps {
		if err := <-changed; !errors.Is(err, errDies) {
			f.Fatal(err)
		}
	}
	f.run(f.replica(), f.replica(), f.replica())
	f.until("the others complete it", func() bool { return f.rec("e").Open == 0 })
	if sleeps {
		close(q.wake)
		f.must(<-changed)
	}
	if !consumed {
		got = f.consume(nil)
	}
	complete := f.now()
	f.until("two more instants", func() bool { return f.now() > complete+2 })
	f.judge(got, []Entry{e}, from)
	for _, msg := range got.messages() {
		if _, at := Of(msg); at.Unix() > complete && msg.Payload != e.Payload {
			f.Errorf("at %v ran one %s, and it was changed at %d", at, msg.Payload, complete)
		}
	}
}

// TestFence: where the sequence was is known to whoever comes later, also if something was sent while it was moved on.
func TestFence(t *testing.T) {
	f := newFixture(t)
	f.must(f.s.Set(f.ctx(), Entry{Name: "e", Every: time.Hour}))
	old := f.rec("e").Gen
	r := &record{Gen: old + 2, Old: old}
	for i, at := range []int64{100, 200, 200} {
		f.pass("e", old, at)
		if i == 1 {
			f.pass("e", old+1, 150) // another replica is between its two calls
			at = 150
		}
		for range 3 {
			sent, err := f.s.fence(f.ctx(), "e", r)
			f.must(err)
			if last, gen := f.lastOf("e"); i == 0 && sent != at || last < sent || gen != old+1 {
				t.Errorf("%d was sent, the sequence is at %d of %d; want %d", sent, last, gen, at)
			}
		}
	}
	f.pass("e", old+7, 5)
	if sent, err := f.s.fence(f.ctx(), "e", r); err != nil || sent != maxInstant {
		t.Errorf("of a sequence that was moved by hand: %d, %v", sent, err)
	}
}

// TestLateChange: a change that comes to the server so late that others have gone on sending ahead meanwhile is made
// anew.
func TestLateChange(t *testing.T) {
	f := newFixture(t)
	f.must(f.s.Set(f.ctx(), Entry{Name: "e", Every: time.Hour}))
	text, _ := f.stored("e")
	now := f.now() * 1_000_000
	for until, want := range map[int64]bool{now - 1: false, now + int64(time.Hour/time.Microsecond): true} {
		if done, err := f.s.table.change(f.ctx(), "e", text, text+" ", until, false); done != want || err != nil {
			t.Errorf("until %d at %d: %v, %v", until, now, done, err)
		}
		f.changes("e", text+" ", text)
	}
}

// TestSequenceIsPast: an entry whose sequence is at a later generation, since a failover has forgotten a change of the
// entry or somebody has moved the sequence, goes on after the instant of the sequence, and each instant makes one
// message, however many replicas see that.
func TestSequenceIsPast(t *testing.T) {
	t.Parallel()
	e := Entry{Name: "e", Every: time.Second, CatchUp: 1000}
	for what, move := range map[string]func(f *fixture){
		"moved by hand": func(f *fixture) { f.pass("e", f.rec("e").Gen+100, f.now()) },
		"a change is forgotten": func(f *fixture) {
			before, _ := f.stored("e")
			f.looked(f.replica(), true)
			changed := e
			changed.Payload = "changed"
			f.must(f.s.Set(f.ctx(), changed))
			f.looked(f.replica(), true)
			after, _ := f.stored("e")
			f.changes("e", after, before)
		},
	} {
		t.Run(what, func(t *testing.T) {
			f := newFixture(t)
			got := f.consume(nil)
			f.must(f.s.Set(f.ctx(), e))
			from := f.now()
			move(f)
			gen := f.rec("e").Gen
			f.run(f.s, f.replica())
			f.until("it goes on", func() bool {
				n, of := f.lastOf("e")
				return of > gen+2 && n > from+8 && f.rec("e").Gen == of
			})
			f.judge(got, []Entry{e}, f.rec("e").Since)
			if n := f.log.Count("the sequence of an entry has gone on without it"); n < 1 || n > 2 ||
				f.status("e").Trouble != nil {
				t.Errorf("logged %d times, %v", n, f.status("e").Trouble)
			}
		})
	}
}

// TestWhatIsDueStays: what is due already when an entry is paused, changed or removed runs, as it was.
func TestWhatIsDueStays(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(f *fixture) error{
		"paused":  func(f *fixture) error { return f.s.Pause(f.ctx(), "e") },
		"removed": func(f *fixture) error { return f.s.Remove(f.ctx(), "e") },
		"changed": func(f *fixture) error {
			return f.s.Set(f.ctx(), Entry{Name: "e", Cron: "0 0 1 1 *", Payload: "as it is"})
		},
	} {
		t.Run(what, func(t *testing.T) {
			f := newFixture(t)
			f.must(f.s.Set(f.ctx(), Entry{Name: "e", Every: time.Second, Payload: "as it was"}))
			r := f.looked(f.s, true)
			first := r.entries["e"].last - aheadSeconds + 1
			f.until("the first is due", func() bool { return f.now() > first })
			f.must(change(f))
			to := f.now()
			got := f.consume(nil)
			f.until("it runs", func() bool { n, _ := got.of("e"); return n[first] == 1 })
			f.until("all that was due has run", func() bool {
				c, err := f.mon.Counts(f.ctx())
				return err == nil && c.Ready+c.Unack == 0
			})
			for _, msg := range got.messages() {
				if _, at := Of(msg); at.Unix() > to || msg.Payload != "as it was" {
					t.Errorf("until %d: at %v ran one %s", to, at, msg.Payload)
				}
			}
		})
	}
}

// TestDue: what is sent when. Nothing is missed until five seconds after its instant, and what skips is sent at it.
func TestDue(t *testing.T) {
	t.Parallel()
	const at = 3_600_000
	none := int64(0)
	for name, c := range map[string]struct {
		overlap Overlap
		catchUp int
		now     int64
		want    int64
	}{
		"five seconds ahead":     {Allow, 1, at - 5, at},
		"further ahead":          {Allow, 1, at - 6, none},
		"five seconds late":      {Allow, NoCatchUp, at + 5, at},
		"missed":                 {Allow, NoCatchUp, at + 6, none},
		"missed, and caught up":  {Allow, 1, at + 6, at},
		"one skips, ahead":       {Skip, 1, at - 1, none},
		"one skips, at its time": {Skip, 1, at, at},
		"one skips, late":        {Skip, NoCatchUp, at + 5, at},
		"the latest of three":    {Allow, 1, at + 2*3600 + 6, at + 2*3600},
		"two of three":           {Allow, 2, at + 2*3600 + 6, at + 3600},
		// The first of several would keep out those after it.
		"one skips, the latest of three": {Skip, 5, at + 2*3600 + 6, at + 2*3600},
	} {
		e := &entry{name: "e", record: record{plan: plan{times: times{Every: 3600}, CatchUp: c.catchUp, Overlap: c.overlap}},
			when: everyTiming{3600, 0}}
		e.settled(at - 3600)
		clock := func() time.Time { return time.Unix(0, 0) }
		p := &part{entries: []*entry{e}, reading: &reading{us: c.now * 1_000_000, at: clock(), clock: clock}}
		due := p.due()
		if got := len(due) == 1; got != (c.want != none) || got && due[0].next != c.want {
			t.Errorf("%s: %d, want %d", name, e.next, c.want)
		}
	}
}

// setting changes an entry on a line that holds the reply of the first step: until release, the change is stored,
// and open. Its client asks again after a second without an answer, so the replies to that are held, too.
func (f *fixture) setting(e Entry) (release func() error) {
	f.Helper()
	wire, far := f.wired(shared, testkit.Scaled(queuetest.Patience))
	stored, stop, ended := make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	var lets []func()
	go func() {
		defer close(ended)
		for {
			struck, let := wire.HoldReply(func(cmd []string) bool { return len(cmd) > 1 && cmd[1] == changeScript.SHA })
			lets = append(lets, let)
			select {
			case <-struck:
			case <-stop:
				return
			}
			select {
			case stored <- struct{}{}:
			default: // it is known
			}
		}
	}()
	set := make(chan error, 1)
	go func() { set <- far.Set(f.ctx(), e) }()
	select {
	case <-stored:
	case err := <-set:
		f.Fatalf("Set ended: %v", err)
	}
	return func() error {
		close(stop)
		<-ended
		for _, let := range lets {
			let()
		}
		return <-set
	}
}

// TestChangedAtAnInstantThatSkips: what a replica that has not heard of a change sends while that is stored is not
// sent once more for the entry as it is then.
func TestChangedAtAnInstantThatSkips(t *testing.T) {
	f := newFixture(t)
	got := f.consume(nil)
	e := Entry{Name: "e", Every: time.Second, Overlap: Skip, CatchUp: 1000, Payload: "before"}
	f.must(f.s.Set(f.ctx(), e))
	stale := f.looked(f.replica(), false)
	e.Payload = "after"
	release := f.setting(e)
	begun := f.now()
	f.until("an instant has come since, and was sent for the entry as it was", func() bool {
		f.sends(stale)
		n, _ := got.of("e")
		for at := range n {
			if at > begun {
				return true
			}
		}
		return false
	})
	f.must(release())
	f.run(f.replica())
	f.until("it runs as it is", func() bool {
		payloads := got.payloads()
		return payloads[len(payloads)-1] == "after"
	})
	instants, most := got.of("e")
	if most != 1 {
		t.Errorf("messages for each instant, changed at %d: %v", begun, instants)
	}
}
