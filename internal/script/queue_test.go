package script

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// TestScriptRefusals: the code of a script's refusal is found wherever a server puts it in the error.
func TestScriptRefusals(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]struct {
		is   error
		says string
	}{
		"WRONGTYPE Operation against a key holding the wrong kind of value": {ErrWrongType, "belongs to another program"},
		"DQLAYOUT 2": {ErrUnknownLayout, "it is 2"},
		"DQPAST":     {errPast, "is over"},
		"DQSHARDS":   {ErrShardCount, "number of shards"},
		"DQNOQUEUE":  {ErrNoQueue, "has no key"},
	} {
		for _, before := range []string{"", "ERR ",
			"ERR Error running script (call to f_60d0): @user_script:68: @user_script: 68: "} {
			if got := refusedBy(queuetest.Answer(before + code)); !errors.Is(got, want.is) ||
				!strings.Contains(got.Error(), want.says) {
				t.Errorf("%q is %v", before+code, got)
			}
		}
	}
	if got := refusedBy(queuetest.Answer("READONLY x")); got != queuetest.Answer("READONLY x") {
		t.Errorf("another answer is %v", got)
	}
}

// TestWritePermit: a permit is either used or revoked.
func TestWritePermit(t *testing.T) {
	t.Parallel()
	for range 1000 {
		p := new(WritePermit)
		used := make(chan bool)
		use := func() error { return queuetest.Failure(p.MarshalBinary()) }
		go func() { used <- use() == nil }()
		revoked := p.Revoke()
		if <-used == revoked || p.Revoke() != revoked || (use() == nil) == revoked {
			t.Fatal("a revoked permit was used, or one was neither used nor revoked")
		}
	}
}

// TestScriptPauseSays: counts say who paused, why and since when, until the pause is over, or ended, or replaced.
func TestScriptPauseSays(t *testing.T) {
	onBoth(t, func(r *rig) {
		r.do("HSET", r.Keys.State, "swept", "0") // there is such a queue
		at := func(d time.Duration) time.Time { return time.UnixMicro(rigBase).Add(d) }
		c := NewCaller()
		for _, p := range []struct {
			now, until, since time.Duration
			by, why, said     string
		}{
			{0, time.Hour, 0, "ann", "card provider down\t 12", "card provider down  12"},
			{time.Minute, 2 * time.Hour, 0, "bob", "", ""}, // goes on longer
			{3*time.Hour + time.Second, 4 * time.Hour, 3*time.Hour + time.Second, "ann", "", ""},
		} {
			r.at(p.now)
			c.Next()
			for range 2 { // the reply of the first is lost
				r.equal("pause", r.Store.Pause(queuetest.CtxB, c, rigBase+p.until.Microseconds(), p.by, p.why), nil)
			}
			r.equal(p.now.String(), r.queueCounts(),
				QueueCounts{Paused: true, PausedSince: at(p.since), PausedUntil: at(p.until),
					PausedBy: p.by, PauseReason: p.said})
			r.read()
		}
		before := r.Cli.HGet(queuetest.CtxB, r.Keys.State, "pause").Val()
		r.do("HSET", r.Keys.State, "pause", rigBase+5*3600e6) // by a program that says nothing
		r.equal("another pause", r.queueCounts(), QueueCounts{Paused: true, PausedUntil: at(5 * time.Hour)})
		r.do("HSET", r.Keys.State, "pause", before)
		c.Next()
		r.equal("resume", r.Store.Pause(queuetest.CtxB, c, 0, "ann", ""), nil)
		r.equal("resumed", r.queueCounts(), QueueCounts{})
		r.equal("field", r.Cli.HExists(queuetest.CtxB, r.Keys.State, "paused").Val(), false)
		r.read()
	})
}

// TestScriptPauseRubbish: whatever bytes the field `paused` holds, counts answer, and the next pause writes the field
// anew.
func TestScriptPauseRubbish(t *testing.T) {
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
			if err != nil || !got.Paused || !utf8.ValidString(text) || strings.ContainsAny(text, "\x1b\n\x00") ||
				len(text) > MaxBy+MaxWhy ||
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
		n := r.counts()
		r.equal("paused until", []any{n.PausedUntil.UnixMicro(), n.PausedBy}, []any{want, "ann"})
		c.Next()
		until, err := r.Store.PauseFor(queuetest.CtxB, c, math.MaxInt64/2, "", "")
		r.equal("error", err, nil)
		r.equal("at most", until, message.Forever)
	})
}

// there are the structures of which the queue has a key.
func (r *rig) there() (names []string) {
	for i, key := range r.Keys.all {
		if r.Cli.Exists(queuetest.CtxB, key.(string)).Val() > 0 {
			names = append(names, structures[i])
		}
	}
	return names
}

// TestConsumersOfRubbish: entries from the future, as after a step of the clock, or with rubbish numbers are returned
// as they are. They go in time, and do not keep a queue from being deleted.
func TestConsumersOfRubbish(t *testing.T) {
	onReal(t, func(r *rig) {
		dead := map[string]string{
			"future": fmt.Sprintf("%d 10000000 {}", r.now+time.Hour.Microseconds()), "end of time": "9223372036854775807 1 {}",
			"before time": "-9223372036854775808 10000000 {}", "no lease": fmt.Sprintf("%d -1 {}", r.now-4e6),
			"infinite": "inf inf {}",
			"rubbish":  "x", "empty": "", "no JSON": fmt.Sprintf("%d 1 {", r.now-4e6),
		}
		for name, entry := range dead {
			r.do("HSET", r.Keys.of("consumers"), name, entry)
		}
		read := map[string]string{}
		entries, err := r.Store.Consumers(queuetest.CtxB)
		r.equal("error", err, nil)
		for _, e := range entries {
			r.equal("now", e.Now, r.now)
			read[e.ID] = e.Text
		}
		r.equal("entries", read, dead)
		c := NewCaller()
		for round := 0; r.Cli.HLen(queuetest.CtxB, r.Keys.of("consumers")).Val() > 1; round++ {
			if round > 1000 {
				r.t.Fatalf("they stay: %v", r.Cli.HGetAll(queuetest.CtxB, r.Keys.of("consumers")).Val())
			}
			r.at(time.Duration(round) * 5 * time.Second)
			c.Next()
			r.ask(c, FetchRequest{Presence: "{}"})
		}
		r.do("HDEL", r.Keys.of("consumers"), c.ID)
		for name, entry := range dead {
			r.do("HSET", r.Keys.of("consumers"), name, entry)
		}
		if found, err := r.Store.Drop(queuetest.CtxB, DropEmpty); found != (Holding{}) || err != nil {
			r.t.Errorf("drop: %+v, %v", found, err)
		}
		r.equal("left", r.there(), []string(nil))
	})
}

// TestConsumersExpire: without any consumer, the last entry is forgotten in a month.
func TestConsumersExpire(t *testing.T) {
	onBoth(t, func(r *rig) {
		c := newCall()
		r.ask(c, FetchRequest{Presence: "{}"})
		if ttl := r.Cli.TTL(queuetest.CtxB, r.Keys.of("consumers")).Val(); ttl < 30*24*time.Hour || ttl > 31*24*time.Hour {
			r.t.Errorf("consumers expire in %v", ttl)
		}
	})
}

// TestDropOfAnothersKeys: another program's key in the place of any structure is deleted with the queue, but for the
// journal.
func TestDropOfAnothersKeys(t *testing.T) {
	onBoth(t, func(r *rig) {
		for _, key := range r.Keys.all {
			r.do("SET", key, "somebody else's")
		}
		if found, err := r.Store.Drop(queuetest.CtxB, DropEmpty); found != (Holding{}) || err != nil {
			r.t.Errorf("drop: %+v, %v", found, err)
		}
		r.equal("left", r.there(), []string{"journal"})
		r.do("DEL", r.Keys.of("journal"))
	})
}
