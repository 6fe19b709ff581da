package script

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// TestScriptPauseSays: counts say who paused, why and since when, until the pause is over, or ended, or replaced.
func TestScriptPauseSays(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		r.do("HSET", r.Keys.State, "swept", "0") // there is such a queue
		said := func(what string, since, until time.Duration, by, why string) {
			r.t.Helper()
			got, err := r.Store.Counts(queuetest.CtxB)
			r.equal(what+": error", err, nil)
			want := QueueCounts{Paused: true, PausedSince: time.UnixMicro(rigBase).Add(since), PausedUntil: time.UnixMicro(rigBase).Add(until),
				PausedBy: by, PauseReason: why}
			r.equal(what, got.QueueCounts, want)
		}
		c := NewCaller()
		pause := func(until time.Duration, by, why string) {
			r.t.Helper()
			c.Next()
			for range 2 { // the reply of the first is lost
				r.equal("pause", r.Store.Pause(queuetest.CtxB, c, rigBase+until.Microseconds(), by, why), nil)
			}
		}
		pause(time.Hour, "ann", "card provider down\t 12")
		said("paused", 0, time.Hour, "ann", "card provider down  12")
		r.at(time.Minute)
		pause(2*time.Hour, "bob", "")
		said("goes on longer", 0, 2*time.Hour, "bob", "")
		r.do("HSET", r.Keys.State, "pause", rigBase+30*60e6) // by a program that says nothing
		got, err := r.Store.Counts(queuetest.CtxB)
		r.equal("another pause", got.QueueCounts, QueueCounts{Paused: true, PausedUntil: time.UnixMicro(rigBase).Add(30 * time.Minute)})
		r.equal("error", err, nil)
		pause(3*time.Hour, "", "why")
		said("begins anew", time.Minute, 3*time.Hour, "", "why")
		r.at(3*time.Hour + time.Second)
		pause(4*time.Hour, "ann", "")
		said("after it was over", 3*time.Hour+time.Second, 4*time.Hour, "ann", "")
		r.read()
		c.Next()
		r.equal("resume", r.Store.Pause(queuetest.CtxB, c, 0, "ann", ""), nil)
		got, err = r.Store.Counts(queuetest.CtxB)
		r.equal("resumed", got.QueueCounts, QueueCounts{})
		r.equal("error", err, nil)
		r.equal("field", r.Cli.HExists(queuetest.CtxB, r.Keys.State, "paused").Val(), false)
		r.read()
	})
}

// TestScriptPauseRubbish: whatever bytes the field `paused` holds, counts answer, and the next pause writes the field anew.
func TestScriptPauseRubbish(t *testing.T) {
	t.Parallel()
	onReal(t, func(r *rig) {
		r.do("HSET", r.Keys.State, "swept", "0") // there is such a queue
		until := strconv.FormatInt(rigBase+60e6, 10)
		for i, value := range append(rubbish, "5 "+until, "5 "+until+" \xff\x1b[31m\nwhy\nmore\x00", until+" "+until+" a\nb",
			"-5 "+until+" a\nb", "5 "+until+" "+strings.Repeat("x", 5000)) {
			c := newCall()
			r.equal("pause", r.Store.Pause(queuetest.CtxB, c, rigBase+60e6, "", ""), nil)
			r.do("HSET", r.Keys.State, "paused", value)
			got, err := r.Store.Counts(queuetest.CtxB)
			text := got.PausedBy + got.PauseReason
			if err != nil || !got.Paused || !utf8.ValidString(text) || strings.ContainsAny(text, "\x1b\n\x00") || len(text) > MaxBy+MaxWhy ||
				got.PausedSince.After(time.UnixMicro(r.now)) {
				r.t.Errorf("%d: %+v, %v", i, got.QueueCounts, err)
			}
			c.Next()
			r.equal("again", r.Store.Pause(queuetest.CtxB, c, rigBase+90e6, "ann", ""), nil)
			got, err = r.Store.Counts(queuetest.CtxB)
			if err != nil || got.PausedBy != "ann" || got.PausedSince.After(time.UnixMicro(r.now)) {
				r.t.Errorf("%d: paused again: %+v, %v", i, got.QueueCounts, err)
			}
			r.read()
		}
	})
}

// TestScriptPauseFor: a pause for a duration ends by the server's clock. A repeat of the call does not prolong it.
func TestScriptPauseFor(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		r.do("HSET", r.Keys.State, "swept", "0") // there is such a queue
		c := newCall()
		want := r.now + 9e6
		for range 3 {
			until, err := r.Store.PauseFor(queuetest.CtxB, c, 9e6, "ann", "why")
			r.equal("error", err, nil)
			r.equal("until", until, want)
			r.at(r.since(r.now) + time.Second)
		}
		n, err := r.Store.Counts(queuetest.CtxB)
		r.equal("error", err, nil)
		r.equal("paused until", n.PausedUntil.UnixMicro(), want)
		r.equal("by", n.PausedBy, "ann")
		c.Next()
		until, err := r.Store.PauseFor(queuetest.CtxB, c, math.MaxInt64/2, "", "")
		r.equal("error", err, nil)
		r.equal("at most", until, message.Forever)
	})
}
