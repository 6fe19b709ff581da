package delayqueue

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// TestOneLine: what people say is kept as one line of valid text, however long it is and whatever it holds.
func TestOneLine(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "ann": "ann", " a\nb\r\tc\x00 ": "a b  c", "\xffa": "\uFFFDa", "12345678": "12345678", "123456789": "12345678",
		"1234567é": "1234567", "a\u2028b\u0085c": "a b c", strings.Repeat("x", 1000): "xxxxxxxx", "\n\n\n\n\n\n\n\n\n\n": "",
	} {
		if got := oneLine(text, 8); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	m := (&Monitor{}).WithOperator(strings.Repeat("é", 500)).WithReason(strings.Repeat("世", 1000))
	if by, why := m.who.by, m.who.why; len(by) > maxBy || len(by) < maxBy-3 || len(why) > maxWhy ||
		len(why) < maxWhy-3 || !utf8.ValidString(by+why) {
		t.Errorf("%d bytes by whom, %d why", len(by), len(why))
	}
}

// TestScriptPauseSays: counts say who paused, why and since when, until the pause is over, ended or another one.
func TestScriptPauseSays(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		r.do("HSET", r.keys.state, "sent", "0") // there is such a queue
		said := func(what string, since, until time.Duration, by, why string) {
			r.t.Helper()
			got, err := r.store.counts(ctxB)
			r.equal(what+": error", err, nil)
			want := Counts{Paused: true, PausedSince: time.UnixMicro(rigBase).Add(since), PausedUntil: time.UnixMicro(rigBase).Add(until),
				PausedBy: by, PauseReason: why}
			r.equal(what, got.Counts, want)
		}
		c := newCaller()
		pause := func(until time.Duration, by, why string) {
			r.t.Helper()
			c.next()
			for range 2 { // the reply of the first is lost
				r.equal("pause", r.store.pause(ctxB, c, rigBase+until.Microseconds(), onBehalf{by, why}), nil)
			}
		}
		pause(time.Hour, "ann", "card provider down\t 12")
		said("paused", 0, time.Hour, "ann", "card provider down  12")
		r.at(time.Minute)
		pause(2*time.Hour, "bob", "")
		said("goes on longer", 0, 2*time.Hour, "bob", "")
		r.do("HSET", r.keys.state, "pause", rigBase+30*60e6) // by a program that says nothing
		got, err := r.store.counts(ctxB)
		r.equal("another pause", got.Counts, Counts{Paused: true, PausedUntil: time.UnixMicro(rigBase).Add(30 * time.Minute)})
		r.equal("error", err, nil)
		pause(3*time.Hour, "", "why")
		said("begins anew", time.Minute, 3*time.Hour, "", "why")
		r.at(3*time.Hour + time.Second)
		pause(4*time.Hour, "ann", "")
		said("after it was over", 3*time.Hour+time.Second, 4*time.Hour, "ann", "")
		r.read()
		c.next()
		r.equal("resume", r.store.pause(ctxB, c, 0, onBehalf{"ann", ""}), nil)
		got, err = r.store.counts(ctxB)
		r.equal("resumed", got.Counts, Counts{})
		r.equal("error", err, nil)
		r.equal("field", r.cli.HExists(ctxB, r.keys.state, "paused").Val(), false)
		r.read()
	})
}

// TestScriptPauseRubbish: whatever stands in the field, counts answer, a pause is made, and its field is good again.
func TestScriptPauseRubbish(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		r.do("HSET", r.keys.state, "sent", "0") // there is such a queue
		until := strconv.FormatInt(rigBase+60e6, 10)
		for i, value := range append(rubbish, "5 "+until, "5 "+until+" \xff\x1b[31m\nwhy\nmore\x00", until+" "+until+" a\nb",
			"-5 "+until+" a\nb", "5 "+until+" "+strings.Repeat("x", 5000)) {
			c := newCaller()
			c.next()
			r.equal("pause", r.store.pause(ctxB, c, rigBase+60e6, onBehalf{}), nil)
			r.do("HSET", r.keys.state, "paused", value)
			got, err := r.store.counts(ctxB)
			text := got.PausedBy + got.PauseReason
			if err != nil || !got.Paused || !utf8.ValidString(text) || strings.ContainsAny(text, "\x1b\n\x00") || len(text) > maxBy+maxWhy ||
				got.PausedSince.After(time.UnixMicro(r.now)) {
				r.t.Errorf("%d: %+v, %v", i, got.Counts, err)
			}
			c.next()
			r.equal("again", r.store.pause(ctxB, c, rigBase+90e6, onBehalf{"ann", ""}), nil)
			got, err = r.store.counts(ctxB)
			if err != nil || got.PausedBy != "ann" || got.PausedSince.After(time.UnixMicro(r.now)) {
				r.t.Errorf("%d: paused again: %+v, %v", i, got.Counts, err)
			}
			r.read()
		}
	})
}

// TestPauseReason: a Monitor's pause says on whose behalf it was made.
func TestPauseReason(t *testing.T) {
	onSharedServer(t, func(f *fixture, m *Monitor) {
		begun := time.Now().Add(-time.Minute)
		f.send(f.queue(nil), "x", inAnHour)
		f.must(m.WithOperator("ann\n").WithReason("deploy").PauseUntil(ctxB, time.Now().Add(time.Hour)))
		n, err := m.Counts(ctxB)
		if err != nil || n.PausedBy != "ann" || n.PauseReason != "deploy" || n.PausedSince.Before(begun) || n.PausedUntil.IsZero() {
			f.t.Errorf("%+v, %v", n, err)
		}
		f.must(m.Resume(ctxB))
		if n, err := m.Counts(ctxB); err != nil || n.Paused || n.PausedBy != "" || n.PauseReason != "" || !n.PausedSince.IsZero() {
			f.t.Errorf("resumed: %+v, %v", n, err)
		}
	})
}

// TestPauseFor: a pause of so long ends by the server's clock, whatever that of its caller, and once, however often it is sent.
func TestPauseFor(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		r.do("HSET", r.keys.state, "sent", "0") // there is such a queue
		c := newCaller()
		c.next()
		want := r.now + 9e6
		for range 3 {
			until, err := r.store.pauseFor(ctxB, c, 9e6, onBehalf{"ann", "why"})
			r.equal("error", err, nil)
			r.equal("until", until, want)
			r.at(r.since(r.now) + time.Second)
		}
		n, err := r.store.counts(ctxB)
		r.equal("error", err, nil)
		r.equal("paused until", n.PausedUntil.UnixMicro(), want)
		r.equal("by", n.PausedBy, "ann")
		c.next()
		until, err := r.store.pauseFor(ctxB, c, math.MaxInt64/2, onBehalf{})
		r.equal("error", err, nil)
		r.equal("at most", until, forever)
	})
	f := newFixture(t)
	m := NewMonitor(f.name, f.cli)
	f.send(f.queue(nil), "a", inAnHour)
	for _, bad := range []time.Duration{0, -time.Second, 30, maxDelay + 1} {
		if err := m.PauseFor(ctxB, bad); !errors.Is(err, ErrBadOption) {
			t.Errorf("for %d: %v", bad, err)
		}
	}
	f.must(m.PauseFor(ctxB, time.Hour))
	n, err := m.Counts(ctxB)
	f.must(err)
	if all := f.journal(m); !n.Paused || len(all) != 1 || all[0].Detail != "until "+instantText(n.PausedUntil) {
		t.Errorf("%+v, %+v", n, all)
	}
	f.must(m.Resume(ctxB))
}
