package schedule

import (
	"testing"
	"time"
)

// TestForgottenUnconfirmed: what too few replicas have is sent again before what comes after it, so a failover that forgets the
// first while the second is sent leaves out none.
func TestForgottenUnconfirmed(t *testing.T) {
	t.Parallel()
	f, _ := ownFixture(t)
	f.pub.WithReplicaAck(1, time.Millisecond)
	f.must(f.s.Set(f.ctx(), Entry{Name: "e", Every: time.Second, CatchUp: 1000}))
	r := &runner{Scheduler: f.s, entries: map[string]*entry{}}
	ahead := func() bool { // one is there that is sent ahead, and is not confirmed
		f.steps(r)
		f.sends(r)
		last, _ := f.lastOf("e")
		return r.entries["e"].resting == r.reading && r.entries["e"].next == last
	}
	f.until("one rests", ahead)
	first := r.entries["e"].next
	f.sends(r) // the same round, and the call could be under way while another server is promoted
	there := func() bool {
		_, err := f.mon.GetKey(f.ctx(), keyOf("e", r.entries["e"].Gen, first))
		return err == nil
	}
	if last, _ := f.lastOf("e"); last != first || !there() {
		t.Errorf("%d is not confirmed, and the sequence is at %d; there: %v", first, last, there())
	}

	// The other server has nothing of it.
	f.forget()
	f.until("one rests again", ahead)
	if !there() {
		t.Errorf("%d is left out", first)
	}
}

// TestNoReplicas: while no replica of the server confirms anything, each instant is sent all the same, once.
func TestNoReplicas(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.pub.WithReplicaAck(1, time.Millisecond)
	got := f.consume(nil)
	entries := []Entry{{Name: "each", Every: time.Second, CatchUp: 1000}, {Name: "third", Every: 3 * time.Second, CatchUp: 1000}}
	for _, e := range entries {
		f.must(f.s.Set(f.ctx(), e))
	}
	from := f.now()
	f.run(f.s)
	f.until("some have run", func() bool { return f.now() > from+6 })
	f.judge(got, entries, from)
}

// TestNoneAfterAnUnconfirmedOneBeforeALook: after a message that too few replicas have, due or not, none is sent for the entry until another
// look: the one that was sent may be forgotten meanwhile, with the server that took it.
func TestNoneAfterAnUnconfirmedOneBeforeALook(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.pub.WithReplicaAck(1, time.Millisecond)
	f.must(f.s.Set(f.ctx(), Entry{Name: "e", Every: time.Second, CatchUp: 1000}))
	for what, ahead := range map[string]time.Duration{"a moment ahead": 300 * time.Millisecond, "due": -time.Second, "missed": -20 * time.Second} {
		r := f.looked(f.s, false)
		e := r.entries["e"]
		before, instant := e.last, e.next
		r.reading.us = instant*1_000_000 - ahead.Microseconds()
		r.reading.at = r.reading.clock()
		if r.reading.now() >= instant*1_000_000 && ahead > 0 {
			continue // this machine has stood still
		}
		for range 3 {
			f.sends(r)
		}
		if last, _ := f.lastOf("e"); last <= before || last > instant {
			t.Errorf("%s: one was sent of %d, after %d, and the sequence is at %d", what, instant, before, last)
		}
	}
}
