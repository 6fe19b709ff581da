package delayqueue

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// ending fetches a delivery, the only one there is, and ends it as its consumer would; o.failures are one or none.
func (r *rig) ending(o outcome) settlement {
	r.t.Helper()
	got := r.fetch(newCaller(), 1)
	if len(got.tags) != 1 {
		r.t.Fatalf("fetched %q", got.tags)
	}
	o.d = decode(nil, &got, 3, time.Time{}, time.Time{})[0]
	o.failures += o.d.msg.Failures
	return o.settlement()
}

// failed is a failure of the delivery that comes next.
func (r *rig) failed(text string) settlement {
	return r.ending(outcome{kind: outcomeRetry, failures: 1, text: text})
}

// errorsOf are those of a message, the newest first, in words: delivery@instant!text.
func (r *rig) errorsOf(name string) string {
	r.t.Helper()
	m, err := r.store.look(ctxB, "id", idOf(name))
	if err != nil || m == nil {
		r.t.Fatalf("%v, %v", m, err)
	}
	var all []string
	for _, e := range m.LastErrors {
		text := e.Text
		if text == lostText {
			text = "lost"
		}
		all = append(all, fmt.Sprintf("%d@%v!%s", e.Delivery, r.since(e.At.UnixMicro()), text))
	}
	if len(all) > 0 && m.LastErrors[0].Text != m.LastError || len(all) == 0 && m.LastError != "" {
		r.t.Errorf("the last is %q", m.LastError)
	}
	return strings.Join(all, " ")
}

// TestScriptErrors: of what went wrong the last five are kept, whatever becomes of the message.
func TestScriptErrors(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"seven failures, each said twice": {func(r *rig) {
			r.put(msg("a", 0))
			for i := range 7 {
				r.at(time.Duration(i) * time.Second)
				s, c := r.failed(fmt.Sprint("e", i+1)), newCaller()
				r.equal("void", r.settle(c, s), []int(nil))
				before := r.errorsOf("a")
				r.at(r.since(r.now) + time.Millisecond)
				r.equal("void", r.settleAgain(c, s), []int(nil))
				r.equal("errors after a repeat", r.errorsOf("a"), before)
				r.equal("void", r.settle(newCaller(), s), []int{0})
				r.equal("errors after a late one", r.errorsOf("a"), before)
			}
			r.equal("errors", r.errorsOf("a"), "7@6s!e7 6@5s!e6 5@4s!e5 4@3s!e4 3@2s!e3")
		}, "retry 8:a@6s fail a=8/7/0@6s!e7 wake 6s"},
		"a failure, losses, poison, requeue": {func(r *rig) {
			r.put(msg("a", 0))
			r.done(r.failed("no"))
			lost := "1@0s!no"
			for n := 2; n <= 6; n++ {
				begun := r.since(r.now)
				r.take(fmt.Sprint(n, ":a"))
				r.tickTo(begun + 9*time.Second)
				r.at(begun + 11*time.Second)
				r.tick()
				text := "lost"
				if n == 4 {
					text = ErrPoison.Error()
					r.equal("in", r.steers("requeue", r.now, "a"), "garbage")
				}
				lost = fmt.Sprintf("%d@%v!%s ", n, r.since(r.now), text) + lost
				r.at(r.since(r.now) + 2*time.Second)
			}
			r.equal("errors", r.errorsOf("a"), strings.TrimSuffix(lost, " 1@0s!no"))
			r.equal("intercept", r.intercept(newCaller(), "id", idOf("a")), StateRetry)
			r.tick()
		}, ""},
		"what adds none": {func(r *rig) {
			r.put(msg("a", 0, keyed("k")))
			r.done(r.failed("no"))
			for _, o := range []outcome{{kind: outcomeReady}, {kind: outcomeRetry}, {kind: outcomeRetry},
				{kind: outcomeRetry, throttle: true},
				{kind: outcomeRetry, throttle: true, text: "no"}} {
				r.at(r.since(r.now) + time.Second)
				r.done(r.ending(o))
				r.equal("errors", r.errorsOf("a"), "1@0s!no")
			}
			r.equal("in", r.steers("at", r.now+1e6, "a"), "ready")
			b := msg("b", 0, keyed("k"))
			b.put = &putOptions{on: Replace}
			changed, err := r.store.send(ctxB, after(newCaller()), sendRequest{messages: []*sendMessage{b}})
			if err != nil || changed.answers[0].holder != idOf("a") {
				r.t.Errorf("%+v, %v", changed, err)
			}
			r.equal("errors", r.errorsOf("a"), "1@0s!no")
			r.at(10 * time.Second)
			r.done(r.ending(outcome{kind: outcomeGarbage, failures: 1, text: "never"}))
			r.equal("in", r.steers("requeue", r.now, "a"), "garbage")
			r.equal("errors", r.errorsOf("a"), "7@10s!never 1@0s!no")
		}, "retry 8:a@10s fail a=8/0/0@10s!never key k=a wake 10s"},
		"a reply without room": {func(r *rig) {
			r.put(msg("a", 0, sized(3000)), msg("b", 0, sized(3000)))
			c := newCaller()
			r.fetch(c, 2)
			r.done(ends(outcomeReady, "a", 1, 0, "no"), ends(outcomeReady, "b", 1, 0, "no"))
			r.fetch(c, 2)
			r.ask(c, fetchRequest{want: 2, bytes: 1})
			r.equal("errors", r.errorsOf("a")+", "+r.errorsOf("b"), "1@0s!no, 1@0s!no")
		}, "ready 3:b unack 2:a@10.000001s fail a=2/1/0@0s!no b=3/1/0@0s!no wake 0s"},
		"done": {func(r *rig) {
			r.put(msg("a", 0, retained(time.Minute)))
			r.done(r.failed("no"))
			r.done(r.ending(outcome{kind: outcomeAck, result: "yes"}))
			r.equal("errors", r.errorsOf("a"), "1@0s!no")
		}, "done a@1m0s result a=3 fail a=3/1/0@0s!no"},
		"as it was written before": {func(r *rig) {
			r.put(msg("a", 0))
			r.done(r.failed("no"))
			r.do("HSET", r.keys.fail, idOf("a"), fmt.Sprintf("2 1 0 %d 1 2 old", r.now))
			r.equal("errors", r.errorsOf("a"), fmt.Sprintf("0@%v!1 2 old", r.since(time.Time{}.UnixMicro())))
			r.take("2:a")
			r.tickTo(11 * time.Second)
			r.at(13 * time.Second)
			r.done(r.failed("new"))
			r.equal("errors", r.errorsOf("a"), fmt.Sprintf("3@13s!new 2@11s!lost 0@%v!1 2 old", r.since(time.Time{}.UnixMicro())))
		}, "retry 4:a@13s fail a=4/2/0@13s!new wake 13s"},
	})
}

// TestScriptErrorsAreBounded: the newest is kept as it is, and those before it are cut when the next failure comes.
func TestScriptErrorsAreBounded(t *testing.T) {
	t.Parallel()
	onBoth(t, func(r *rig) {
		long := strings.Repeat("語", maxErrorText/3)
		r.put(msg("a", 0))
		for range 7 {
			r.done(r.failed(long))
		}
		r.take("8:a")
		r.tickTo(11 * time.Second)
		m, err := r.store.look(ctxB, "id", idOf("a"))
		if err != nil {
			r.t.Fatal(err)
		}
		var got []int
		for _, e := range m.LastErrors {
			got = append(got, len(e.Text))
			if e.Text != lostText && !strings.HasPrefix(long, e.Text) {
				r.t.Errorf("%q", e.Text)
			}
		}
		r.equal("bytes", got, []int{len(lostText), len(long), 198, 198, 198})
		record, err := r.cli.HGet(ctxB, r.keys.fail, idOf("a")).Result()
		if err != nil || len(record) > 2000 {
			r.t.Errorf("%d bytes, %v", len(record), err)
		}
		r.expect("retry 9:a@11s~11.5s fail a=9/7/1@11s!lost wake 11s~11.5s")
	})
}

// TestScriptErrorsOfAnotherProgram: a record of any bytes stops no script, and is read as far as it says something.
func TestScriptErrorsOfAnotherProgram(t *testing.T) {
	t.Parallel()
	rows := []string{"\x1e", "\x1e\x1e\x1e\x1e\x1e\x1e\x1e", "\x1ex", "\x1e1 2", "\x1e1 2 ", "\x1e-1 -2 x", "\x1e1 2 x\x1e",
		"a\x1eb", "\xff\x1e\xff\x00",
		strings.Repeat("\x1e1 1 x", 10), strings.Repeat("x", 5000), "\x1e1 1 " + strings.Repeat("\x80", 5000),
		"\x1e" + strings.Repeat("9", 40) + " 1 x"}
	onBoth(t, func(r *rig) {
		r.put(msg("a", 0))
		for _, raw := range slices.Concat(rows, rubbish) {
			write := func(n int) { r.do("HSET", r.keys.fail, idOf("a"), fmt.Sprintf("%d 0 0 5 %s", n, raw)) }
			newest := func(what, want string) {
				r.t.Helper()
				m, err := r.store.look(ctxB, "id", idOf("a"))
				if err != nil || m.LastError != want || len(m.LastErrors) > 5 || m.Broken != nil {
					r.t.Fatalf("%s behind %q: %+v, %v", what, raw, m, err)
				}
			}
			tag := func() int {
				got := r.fetch(newCaller(), 1)
				if len(got.tags) != 1 {
					r.t.Fatalf("%q: fetched %q", raw, got.tags)
				}
				_, n := splitTag(got.tags[0])
				return n
			}
			n := tag()
			write(n)
			begun := r.since(r.now)
			r.tickTo(begun + 9*time.Second)
			r.at(begun + 11*time.Second)
			r.tick()
			newest("a loss", lostText)
			write(n + 1)
			r.at(begun + 13*time.Second)
			r.done(r.failed("no"))
			newest("a failure", "no")
			write(n + 2)
			r.done(r.ending(outcome{kind: outcomeReady}))
			newest("a release", lastError(raw))
			r.done(r.ending(outcome{kind: outcomeGarbage, text: "no"}))
			r.do("HSET", r.keys.fail, idOf("a"), fmt.Sprintf("%d 0 0 5 %s", n+4, raw))
			got, err := r.store.await(ctxB, []string{idOf("a")})
			if want := strings.TrimPrefix(lastError(raw), strings.Repeat("9", 40)+" 1 "); err != nil || got[0].Err != want {
				r.t.Fatalf("await of %q: %+v, %v; want %q", raw, got, err, want)
			}
			r.equal("requeue", r.steers("requeue", r.now, "a"), "garbage")
			newest("a requeue", lastError(raw))
		}
		r.equal("intercept", r.intercept(newCaller(), "id", idOf("a")), StateRetry)
	})
}
