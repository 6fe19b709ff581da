package script

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// limited is a test whose consumers ask for these limits.
func limited(l RateLimits, do func(r *rig)) func(r *rig) {
	return func(r *rig) {
		r.limits = l
		do(r)
	}
}

// tenPerSecond lets three go at once.
var tenPerSecond = RateLimits{Rate: 10, Per: time.Second, Burst: 3}

// six are messages that are due now.
func six() []*SendMessage {
	return []*SendMessage{msg("a", 0), msg("b", 0), msg("c", 0), msg("d", 0), msg("e", 0), msg("f", 0)}
}

// gives fetches for a new consumer, and wants these deliveries, and this instant of the next work.
func (r *rig) gives(want int, tags string, next time.Duration) {
	r.t.Helper()
	f := r.fetch(NewCaller(), want)
	r.equal("handed out", handed(f), tags)
	if f.Next == 0 {
		r.equal("next", time.Duration(0), next)
	} else {
		r.equal("next", r.since(int64(f.Next)), next)
	}
}

// TestScriptRate: as much is handed out as the rate allows, and the alarm stands at the instant at which the next message may
// go.
func TestScriptRate(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"a burst, then one each": {limited(tenPerSecond, func(r *rig) {
			r.put(six()...)
			r.gives(10, "a b c", 100*time.Millisecond)
			r.at(100*time.Millisecond - time.Microsecond)
			r.gives(10, "", 100*time.Millisecond)
			r.at(100 * time.Millisecond)
			r.gives(10, "d", 200*time.Millisecond)
			r.at(450 * time.Millisecond)
			r.gives(10, "e f", 0)
		}), "unack a@10s b@10s c@10s d@10.1s e@10.45s f@10.45s"},
		"one in a year": {limited(RateLimits{Rate: 1, Per: maxPer, Burst: maxRate}, func(r *rig) {
			r.put(six()...)
			r.gives(5, "a b c d e", 0)
		}), "pending f@0s unack a@10s b@10s c@10s d@10s e@10s wake 0s"},
	})
}

// TestScriptRateOfARepeat: a repeated fetch takes nothing from the rate.
func TestScriptRateOfARepeat(t *testing.T) {
	t.Parallel()
	onBoth(t, limited(tenPerSecond, func(r *rig) {
		r.put(six()...)
		c := NewCaller()
		r.equal("first", handed(r.fetch(c, 2)), "a b")
		tat := r.Cli.HGet(queuetest.CtxB, r.Keys.State, "tat").Val()
		for _, a := range []FetchRequest{{Want: 2}, {Want: 2, Bytes: 1}, {Probe: true}} {
			r.ask(c, a)
			r.equal("tat", r.Cli.HGet(queuetest.CtxB, r.Keys.State, "tat").Val(), tat)
		}
		r.gives(10, "2:b", 100*time.Millisecond) // it was given back, and counts again
		r.at(100 * time.Millisecond)
		r.gives(10, "c", 200*time.Millisecond)
		r.read()
	}))
}

// TestScriptManyThatAreOver: expired messages hold up others for one call per 500 messages or per megabyte.
func TestScriptManyThatAreOver(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ bytes, messages, most int }{"small": {10, 1200, 4}, "large": {100_000, 40, 7}} {
		t.Run(name, func(t *testing.T) {
			onReal(t, limited(RateLimits{Rate: 1, Per: time.Hour, Burst: 1}, func(r *rig) {
				var ms []*SendMessage
				for i := range c.messages {
					ms = append(ms, msg(fmt.Sprintf("m%04d", i), 0, sized(c.bytes), func(e *message.Envelope) { e.TTL = time.Second }))
				}
				r.put(ms...)
				r.at(2 * time.Second)
				r.put(msg("n", 0))
				calls, given := 0, 0
				for ; given < c.messages+1 && calls < 100; calls++ {
					given += len(r.fetch(NewCaller(), 1).Tags)
				}
				r.equal("handed out", given, c.messages+1)
				r.equal("calls are few", calls <= c.most, true)
				r.read()
			}))
		})
	}
}

// TestScriptRateOfCenturies: a rate holds also if a full burst takes centuries to come back.
func TestScriptRateOfCenturies(t *testing.T) {
	t.Parallel()
	onReal(t, limited(RateLimits{Rate: 1, Per: maxPer, Burst: 200}, func(r *rig) {
		sendDue(r, "m", 402)
		given := 0
		for range 3 {
			given += len(r.fetch(NewCaller(), 500).Tags)
		}
		r.equal("handed out", given, 200)
		r.at(maxPer)
		r.equal("a year later", len(r.fetch(NewCaller(), 500).Tags), 1)
		r.read()
	}))
}

// three bounds the concurrency.
var three = RateLimits{Concurrency: 3}

// TestScriptConcurrency: unack holds no more deliveries than there are places. A settlement that a fetch follows wakes nobody for
// the place that becomes free.
func TestScriptConcurrency(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"": {limited(three, func(r *rig) {
			r.put(six()...)
			r.gives(10, "a b c", 10*time.Second)
			r.do("DEL", r.Keys.Wake) // a consumer has it
			r.at(time.Second)
			by := newCall()
			call := newSettleCall(by, r.leased([]Settlement{ack("b"), ends(OutcomeRetry, "c", 1, 0, "x")}), "+")
			if _, err := call.read(r.Store.run(queuetest.CtxB, SettleScript, call.args)); err != nil {
				r.t.Fatal(err)
			}
			r.equal("woken", r.Cli.Exists(queuetest.CtxB, r.Keys.Wake).Val(), int64(0)) // the fetch sets the alarm
			r.gives(1, "d", 0)
		}), "pending e@0s f@0s unack a@10s d@11s retry 2:c@2s fail c=2/1/0@1s!x wake 0s"},
	})
}
