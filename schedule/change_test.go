package schedule

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
)

var errDies = errors.New("it dies here")

// A tired queue is that of a process that dies, or sleeps until somebody wakes it, before one of the calls that take back what
// was sent ahead.
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

// TestChangeThatStops: wherever whoever changes an entry dies or falls asleep, the others complete the change, several at once, and each
// instant makes one message: whether what was sent ahead was handed out meanwhile, or became due and was not.
func TestChangeThatStops(t *testing.T) {
	t.Parallel()
	for _, left := range []int{0, 1, 3, 5, 6, 8} {
		for _, sleeps := range []bool{false, true} {
			for _, consumed := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d calls, sleeps %v, consumed %v", left, sleeps, consumed), func(t *testing.T) {
					t.Parallel()
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
	before := &runner{Scheduler: f.s, entries: map[string]*entry{}}
	f.steps(before)
	f.must(before.sendDue(f.ctx()))

	e.Payload = "as it is"
	if sleeps {
		q.wake = make(chan struct{})
	}
	changed := make(chan error, 1)
	go func() { changed <- New(q).Set(f.ctx(), e) }()
	f.until("it stops", func() bool { return f.record().Open != 0 })
	if !sleeps {
		if err := <-changed; !errors.Is(err, errDies) {
			f.Fatal(err)
		}
	}
	f.run(f.replica(), f.replica(), f.replica())
	f.until("the others complete it", func() bool { return f.record().Open == 0 })
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

// record is the entry e as it is stored.
func (f *fixture) record() *record {
	f.Helper()
	text, err := f.s.table.read(f.ctx(), "e")
	f.must(err)
	r, err := readRecord(text)
	f.must(err)
	return r
}

// TestFence: where the sequence was is known to whoever comes later, also if something was sent while it was moved on.
func TestFence(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.must(f.s.Set(f.ctx(), Entry{Name: "e", Every: time.Hour}))
	old := f.record().Gen
	r := &record{Gen: old + 2, Old: old}
	pass := func(gen, instant int64) {
		_, err := f.mon.PassSequence(f.ctx(), "schedule/e", number(gen, instant))
		f.must(ignoreNew(err))
	}
	for i, at := range []int64{100, 200, 200} {
		pass(old, at)
		if i == 1 {
			pass(old+1, 150) // another replica is between its two calls
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
	pass(old+7, 5)
	if sent, err := f.s.fence(f.ctx(), "e", r); err != nil || sent != maxInstant {
		t.Errorf("of a sequence that was moved by hand: %d, %v", sent, err)
	}
}

// TestLateChange: a change that comes to the server so late that others have gone on sending ahead meanwhile is made anew.
func TestLateChange(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.must(f.s.Set(f.ctx(), Entry{Name: "e", Every: time.Hour}))
	text, err := f.s.table.read(f.ctx(), "e")
	f.must(err)
	now := f.now() * 1_000_000
	for until, want := range map[int64]bool{now - 1: false, now + int64(time.Hour/time.Microsecond): true} {
		if done, err := f.s.table.change(f.ctx(), "e", text, text+" ", until); done != want || err != nil {
			t.Errorf("until %d at %d: %v, %v", until, now, done, err)
		}
		if done, err := f.s.table.change(f.ctx(), "e", text+" ", text, noLimit); !done || err != nil {
			t.Error(done, err)
		}
	}
}

// TestSequenceMovedByHand: it is logged once, with what helps, and that helps.
func TestSequenceMovedByHand(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	got := f.consume(nil)
	f.must(f.s.Set(f.ctx(), Entry{Name: "e", Every: time.Second}))
	_, err := f.mon.PassSequence(f.ctx(), "schedule/e", number(f.record().Gen+100, 5))
	f.must(err)
	f.run(f.s)
	f.until("it is logged", func() bool { return strings.Contains(f.log.String(), "somebody has moved the sequence") })
	if n := len(got.payloads()); n != 0 {
		t.Errorf("%d ran", n)
	}
	f.must(f.s.Pause(f.ctx(), "e"))
	f.must(f.s.Resume(f.ctx(), "e"))
	f.until("it runs again", func() bool { return len(got.payloads()) > 2 })
	if n := strings.Count(f.log.String(), "somebody has moved the sequence"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, f.log)
	}
}
