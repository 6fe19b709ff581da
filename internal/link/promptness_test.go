package link

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestSilenceTeachesNothing: however many attempts were in vain, the next one waits no longer for a connection, and no
// longer in all if none of them was written.
func TestSilenceTeachesNothing(t *testing.T) {
	producer := &Server{AttemptTimeout: AttemptTimeout}
	consumer := &Server{AttemptTimeout: AttemptTimeout, lease: 10 * time.Second}
	for name, s := range map[string]*Server{"producer": producer, "consumer": consumer} {
		p, e := new(promptness), Effort{Bytes: AttemptBytesPerSecond / 2}
		want := p.bounds(s, e)
		if want.first != AttemptTimeout || want.whole != AttemptTimeout*3/2 {
			t.Fatalf("%s: the first attempt has %+v", name, want)
		}
		for range 40 {
			p.inVain(p.bounds(s, e), false)
		}
		if got := p.bounds(s, e); got != want {
			t.Errorf("%s: after 40 attempts without a connection %+v, want %+v", name, got, want)
		}
		for range 40 {
			p.inVain(p.bounds(s, Effort{}), true)
		}
		if got := p.bounds(s, Effort{}); got.first != AttemptTimeout || got.whole != AttemptTimeout {
			t.Errorf("%s: after 40 small calls that were written in vain %+v", name, got)
		}
	}
}

// TestAnswersTeach: a late answer makes later attempts wait for the like, until an answer comes in time; a large call that
// was written in vain has more time for its bytes; and of a server that stood still the last attempt tells how it is.
func TestAnswersTeach(t *testing.T) { synctest.Test(t, testAnswersTeach) }

func testAnswersTeach(t *testing.T) {
	s, p, large := &Server{AttemptTimeout: AttemptTimeout}, new(promptness), Effort{Bytes: AttemptBytesPerSecond}
	ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
	p.inVain(p.bounds(s, large), true)
	if got := p.bounds(s, large).whole; got != AttemptTimeout+2*time.Second {
		t.Errorf("after a large call in vain %v", got)
	}
	together := p.bounds(s, large)
	p.inVain(together, true)
	p.inVain(together, true)
	if got := p.bounds(s, large).whole; got != AttemptTimeout+4*time.Second {
		t.Errorf("after two at a time %v", got)
	}
	p.answered(s, Effort{}, ago(3*time.Second))
	if got := p.bounds(s, Effort{}).first; got != 6*time.Second || !p.uneasy.Load() {
		t.Errorf("after an answer that took 3 s %v", got)
	}
	p.answered(s, Effort{}, ago(20*time.Second)) // of an attempt that began before
	if got := p.bounds(s, Effort{}).first; got != 6*time.Second {
		t.Errorf("after the answer to an earlier attempt %v", got)
	}
	p.answered(s, Effort{}, time.Now().Add(time.Hour))
	if got := p.bounds(s, Effort{}).whole; got != AttemptTimeout || p.uneasy.Load() {
		t.Errorf("after an answer in time %v", got)
	}
}

// TestSpeedOfALine: on a line of 0.3 MB/s a send of 4 MB has its time in the third attempt, whatever is answered beside it, and the
// next one in its first. A fast answer to a large call, or a while without one, ends that.
func TestSpeedOfALine(t *testing.T) { synctest.Test(t, testSpeedOfALine) }

func testSpeedOfALine(t *testing.T) {
	const took = 13 * time.Second
	s, p, large := &Server{AttemptTimeout: AttemptTimeout}, new(promptness), Effort{Bytes: 4 << 20}
	ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
	small := func() {
		p.answered(s, Effort{Bytes: 200}, time.Now())
		p.answered(s, Effort{Bytes: 1 << 20}, ago(time.Second)) // less than half of the bytes
	}
	slowly := func() time.Duration {
		t.Helper()
		for range 2 {
			b := p.bounds(s, large)
			if b.whole >= took {
				t.Errorf("an attempt has %v too early", b.whole)
			}
			small()
			p.inVain(b, true)
			small()
		}
		return p.bounds(s, large).whole
	}
	if got := slowly(); got < took {
		t.Errorf("the third attempt has %v, want %v", got, took)
	}
	if small := p.bounds(s, Effort{Bytes: 200}).whole; small > AttemptTimeout+50*time.Millisecond {
		t.Errorf("a small call has %v", small)
	}
	p.answered(s, large, ago(took))
	if got := p.bounds(s, large).whole; got < took || got > 2*took || p.uneasy.Load() {
		t.Errorf("the next one has %v", got)
	}
	p.answered(s, large, ago(60*time.Second)) // of an attempt that began before
	p.answered(s, large, ago(4*time.Second))
	first := AttemptTimeout + 4*time.Second
	if got := p.bounds(s, large).whole; got != first {
		t.Errorf("after a fast answer %v", got)
	}
	small()
	slowly()
	p.speed.forgotten = ago(1)
	if got := p.bounds(s, large).whole; got != first {
		t.Errorf("after a while %v", got)
	}
}

// TestFewAreListenedTo: three attempts of a server are listened to at most, and one of them ends soon.
func TestFewAreListenedTo(t *testing.T) { synctest.Test(t, testFewAreListenedTo) }

func testFewAreListenedTo(t *testing.T) {
	p := new(promptness)
	var lives []time.Duration
	var ends []func()
	put := 0
	listen := func() (time.Duration, func()) {
		a := &stray{put: func() { put++ }}
		defer p.leave(a)
		return p.listen(a, AttemptTimeout)
	}
	for range 5 {
		life, end := listen()
		lives, ends = append(lives, life), append(ends, end)
	}
	for i, want := range []time.Duration{strayLives[0], strayLives[1], strayLives[2], AttemptTimeout, AttemptTimeout} {
		if lives[i] != want {
			t.Errorf("attempt %d lives %v, want %v", i, lives[i], want)
		}
	}
	ends[2]()
	if life, _ := listen(); life != strayLives[2] {
		t.Errorf("when one has ended the next lives %v", life)
	}
	if p.answered(&Server{AttemptTimeout: AttemptTimeout}, Effort{}, time.Now()); put != len(strayLives) {
		t.Errorf("after an answer in time %d of them are given up for good, want all", put)
	}
}

// TestLateErrorSaysHowLongItTook: a dial that gives up at once is not said to have taken as long as an attempt may.
func TestLateErrorSaysHowLongItTook(t *testing.T) {
	err := late(context.DeadlineExceeded, nil, nil, 3*time.Millisecond)
	if timeout := new(timeoutError); !errors.As(err, &timeout) || timeout.limit != 3*time.Millisecond || !NoEffect(err) {
		t.Errorf("%v", err)
	}
}
