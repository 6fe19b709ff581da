package script

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// TestScriptLastChanceOfMany: a fetch hands out no message on its last chance, unless that is asked for alone. It
// reserves the first that it meets, and puts the others off to few instants, which are spread. So a consumer looks at
// them seldom, and gets one soon.
func TestScriptLastChanceOfMany(t *testing.T) {
	onReal(t, func(r *rig) {
		for _, prefix := range []string{"k", "l", "m"} {
			onLastChance(r, prefix, MaxBatch)
			r.at(r.since(r.now) + time.Microsecond)
		}
		r.at(2 * time.Second)
		c, at, reserved := NewCaller(), map[int64]int{}, map[string]bool{}
		for range 3 { // batches
			c.Next()
			got := r.ask(c, FetchRequest{Want: MaxBatch})
			r.equal("handed out", len(got.Tags), 0)
			reserved[got.Reserved] = true
		}
		for _, e := range r.read().Retry {
			if reserved[fmt.Sprint(e.Tag, " ", e.Score)] {
				r.equal("reserved for two leases", e.Score, r.now+2*r.with.Lease.Microseconds())
				continue
			}
			at[e.Score-r.now]++
			r.equal("in whole twentieths of a second", e.Score > r.now && e.Score < r.now+1_000_000 && e.Score%50_000 == 0, true)
		}
		r.equal("at instants", len(at) > 5, true)
		sendDue(r, "p", 5)
		for named := range reserved {
			tag, _, _ := strings.Cut(named, " ")
			r.equal("handed out alone", r.ask(newCall(), FetchRequest{Want: 1, Alone: named}).Tags, []string{tag})
			r.equal("handed out again", len(r.ask(newCall(), FetchRequest{Want: 1, Alone: named}).Tags), 0)
		}
	})
}

// TestScriptGraceAfterAnOutage: leases that ran out while nobody fetched are not lost before their consumers had time
// to renew them.
func TestScriptGraceAfterAnOutage(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"grace after an outage": {func(r *rig) {
			r.hand(msg("a", 0))
			r.at(16 * time.Second)
			r.put(msg("b", 0))
			c := newCall()
			r.askFirst(c, FetchRequest{Want: 1}) // the first of any consumer since 0 s
			r.equal("lost", r.tickOf(c).Lost, 0)
			r.expect("unack a@10s b@26s")
			r.tickTo(25 * time.Second)
			r.extend("b")
			r.tickTo(28500*time.Millisecond - time.Microsecond)
			r.expect("unack a@10s b@35s wake 28.5s")
			r.tickTo(28500 * time.Millisecond)
		}, "unack b@35s retry 2:a@28.5s~29s fail a=2/0/1@28.5s!lost wake 28.5s~29s"},
		"no grace within two thirds of a lease": {func(r *rig) {
			r.hand(msg("a", 0))
			r.at(4 * time.Second)
			r.tick()
			r.at(4*time.Second + r.with.Lease*2/3)
			r.equal("lost", r.fetch(NewCaller(), 0).Lost, 1)
		}, "retry 2:a@10.666666s~11.166666s fail a=2/0/1@10.666666s!lost wake 10.666666s~11.166666s"},
		"grace just beyond": {func(r *rig) {
			r.hand(msg("a", 0))
			r.at(4 * time.Second)
			r.tick()
			r.at(4*time.Second + r.with.Lease*2/3 + time.Microsecond)
			c := newCall()
			r.askFirst(c, FetchRequest{})
			r.equal("lost", r.tickOf(c).Lost, 0)
		}, "unack a@10s"},
	})
}

// ending fetches the only delivery there is, and returns its settlement.
func (r *rig) ending(kind OutcomeKind) Settlement {
	r.t.Helper()
	got := r.fetch(NewCaller(), 1)
	if len(got.Tags) != 1 {
		r.t.Fatalf("fetched %q", got.Tags)
	}
	return takenOf(got.FetchReply)[0].ends(kind)
}

// failed fetches the only delivery there is, and returns its failure.
func (r *rig) failed(text string) Settlement {
	return r.ending(OutcomeRetry).fails(text)
}

// errorsOf are the errors of a message, the newest first, in words: delivery@instant!text.
func (r *rig) errorsOf(name string) string {
	r.t.Helper()
	m := r.looks("id", queuetest.IDOf(name))
	var all []string
	kept := message.KeptErrors(m.Errors, message.MaxErrors)
	for _, e := range kept {
		text := e.Text
		if text == queuetest.LostText {
			text = "lost"
		}
		all = append(all, fmt.Sprintf("%d@%v!%s", e.Delivery, r.since(e.At.UnixMicro()), text))
	}
	if last := message.LastError(m.Errors); len(all) > 0 && kept[0].Text != last || len(all) == 0 && last != "" {
		r.t.Errorf("the last is %q", last)
	}
	return strings.Join(all, " ")
}

// TestScriptErrors: errors are kept when a message has no room in a reply. TestModel compares those of failures and
// losses.
func TestScriptErrors(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"a reply without room": {func(r *rig) {
			r.put(msg("a", 0, sized(3000)), msg("b", 0, sized(3000)))
			c := NewCaller()
			r.fetch(c, 2)
			r.done(ends(OutcomeReady, "a", 1, 0, "no"), ends(OutcomeReady, "b", 1, 0, "no"))
			r.fetch(c, 2)
			r.ask(c, FetchRequest{Want: 2, Bytes: 1})
			r.equal("errors", r.errorsOf("a")+", "+r.errorsOf("b"), "1@0s!no, 1@0s!no")
		}, "ready 3:b unack 2:a@10s fail a=2/1/0@0s!no b=3/1/0@0s!no wake 0s"},
	})
}

// TestScriptErrorsAreBounded: the newest error is kept as it is. The next failure cuts the errors before it.
func TestScriptErrorsAreBounded(t *testing.T) {
	onReal(t, func(r *rig) {
		long := strings.Repeat("語", message.MaxErrorText/3)
		r.put(msg("a", 0))
		for range 7 {
			r.done(r.failed(long))
		}
		r.take("8:a")
		r.tickTo(11 * time.Second)
		var got []int
		for _, e := range message.KeptErrors(r.looks("id", queuetest.IDOf("a")).Errors, message.MaxErrors) {
			got = append(got, len(e.Text))
			if e.Text != queuetest.LostText && !strings.HasPrefix(long, e.Text) {
				r.t.Errorf("%q", e.Text)
			}
		}
		r.equal("bytes", got, []int{len(queuetest.LostText), len(long), 198, 198, 198})
		record, err := r.Cli.HGet(queuetest.CtxB, r.Keys.of("fail"), queuetest.IDOf("a")).Result()
		if err != nil || len(record) > 2000 {
			r.t.Errorf("%d bytes, %v", len(record), err)
		}
		r.expect("retry 9:a@11s~11.5s fail a=9/7/1@11s!lost wake 11s~11.5s")
	})
}

// TestScriptErrorsOfAnotherProgram: a record of any bytes stops no script, and is read as far as it can be.
func TestScriptErrorsOfAnotherProgram(t *testing.T) {
	t.Parallel()
	rows := []string{"\x1e", "\x1e\x1e\x1e\x1e\x1e\x1e\x1e", "\x1ex", "\x1e1 2", "\x1e1 2 ", "\x1e-1 -2 x",
		"\x1e1 2 x\x1e",
		"a\x1eb", "\xff\x1e\xff\x00",
		strings.Repeat("\x1e1 1 x", 10), strings.Repeat("x", 5000), "\x1e1 1 " + strings.Repeat("\x80", 5000),
		"\x1e" + strings.Repeat("9", 40) + " 1 x"}
	onReal(t, func(r *rig) {
		r.put(msg("a", 0))
		for _, raw := range slices.Concat(rows, someRubbish(0)) {
			write := func(n int) { r.do("HSET", r.Keys.of("fail"), queuetest.IDOf("a"), fmt.Sprintf("%d 0 0 5 %s", n, raw)) }
			newest := func(what, want string) {
				r.t.Helper()
				if m := r.looks("id", queuetest.IDOf("a")); message.LastError(m.Errors) != want ||
					len(message.KeptErrors(m.Errors, message.MaxErrors)) > 5 || m.broken != nil {
					r.t.Fatalf("%s behind %q: %+v", what, raw, m)
				}
			}
			tag := func() int {
				got := r.fetch(NewCaller(), 1)
				if len(got.Tags) != 1 {
					r.t.Fatalf("%q: fetched %q", raw, got.Tags)
				}
				_, n := message.SplitTag(got.Tags[0])
				return n
			}
			n := tag()
			write(n)
			begun := r.since(r.now)
			r.lapse(begun + 11*time.Second)
			newest("a loss", queuetest.LostText)
			write(n + 1)
			r.at(begun + 13*time.Second)
			r.done(r.failed("no"))
			newest("a failure", "no")
			write(n + 2)
			r.done(r.ending(OutcomeReady))
			newest("a release", message.LastError(raw))
			s := r.ending(OutcomeGarbage)
			s.Text = "no"
			r.done(s)
			r.do("HSET", r.Keys.of("fail"), queuetest.IDOf("a"), fmt.Sprintf("%d 0 0 5 %s", n+4, raw))
			got, err := r.Store.Await(queuetest.CtxB, []string{queuetest.IDOf("a")})
			if want := strings.TrimPrefix(message.LastError(raw), strings.Repeat("9", 40)+" 1 "); err != nil ||
				got[0].Text != want {
				r.t.Fatalf("await of %q: %+v, %v; want %q", raw, got, err, want)
			}
			r.equal("requeue", r.steers("requeue", r.now, "a"), "garbage")
			newest("a requeue", message.LastError(raw))
		}
		r.equal("intercept", r.intercept(NewCaller(), "id", queuetest.IDOf("a")), stateRetry)
	})
}

// TestScriptTickHeldUp: a tick that an outage has held up takes nothing back before a fetch has given leases a grace.
func TestScriptTickHeldUp(t *testing.T) {
	onBoth(t, func(r *rig) {
		r.hand(msg("a", 0))
		c := newCall()
		r.askFirst(c, FetchRequest{})
		r.at(16 * time.Second)
		r.equal("lost", r.tickOf(c).Lost, 0)
		r.askFirst(after(c), FetchRequest{}) // which gives a grace
		r.equal("lost", r.tickOf(c).Lost, 0)
		r.expect("unack a@10s")
	})
}

// TestScriptTickNeverComes: if the consumer that is to tick for a lease that is over does not, another is woken a
// second later.
func TestScriptTickNeverComes(t *testing.T) {
	onBoth(t, func(r *rig) {
		r.hand(msg("a", 0))
		r.at(9 * time.Second)
		r.askFirst(newCall(), FetchRequest{})
		r.at(11 * time.Second)
		f := r.askFirst(newCall(), FetchRequest{})
		r.equal("tick, next", []any{f.Tick, r.since(int64(f.Next))}, []any{true, 12 * time.Second})
		r.expect("unack a@10s wake 12s")
		r.at(12 * time.Second)
		other := newCall()
		r.equal("tick", r.askFirst(other, FetchRequest{}).Tick, true)
		r.equal("lost", r.tickOf(other).Lost, 1)
	})
}
