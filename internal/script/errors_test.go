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

// ending fetches the only delivery there is, and returns its settlement.
func (r *rig) ending(kind OutcomeKind) Settlement {
	r.t.Helper()
	got := r.fetch(NewCaller(), 1)
	if len(got.Tags) != 1 {
		r.t.Fatalf("fetched %q", got.Tags)
	}
	return takenOf(got)[0].ends(kind)
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

// TestScriptErrors: the last five errors of a message are kept, whatever becomes of it.
func TestScriptErrors(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"a failure, losses, poison, requeue": {func(r *rig) {
			r.put(msg("a", 0))
			r.done(r.failed("no"))
			lost := "1@0s!no"
			for n := 2; n <= 6; n++ {
				begun := r.since(r.now)
				r.take(fmt.Sprint(n, ":a"))
				r.lapse(begun + 11*time.Second)
				text := "lost"
				if n == 4 {
					text = PoisonText
					r.equal("in", r.steers("requeue", r.now, "a"), "garbage")
				}
				lost = fmt.Sprintf("%d@%v!%s ", n, r.since(r.now), text) + lost
				r.at(r.since(r.now) + 2*time.Second)
			}
			r.equal("errors", r.errorsOf("a"), strings.TrimSuffix(lost, " 1@0s!no"))
			r.equal("intercept", r.intercept(NewCaller(), "id", queuetest.IDOf("a")), stateRetry)
			r.tick()
		}, ""},
		"a reply without room": {func(r *rig) {
			r.put(msg("a", 0, sized(3000)), msg("b", 0, sized(3000)))
			c := NewCaller()
			r.fetch(c, 2)
			r.done(ends(OutcomeReady, "a", 1, 0, "no"), ends(OutcomeReady, "b", 1, 0, "no"))
			r.fetch(c, 2)
			r.ask(c, FetchRequest{Want: 2, Bytes: 1})
			r.equal("errors", r.errorsOf("a")+", "+r.errorsOf("b"), "1@0s!no, 1@0s!no")
		}, "ready 3:b unack 2:a@10s fail a=2/1/0@0s!no b=3/1/0@0s!no wake 0s"},
		"as it was written before": {func(r *rig) {
			r.put(msg("a", 0))
			r.done(r.failed("no"))
			r.do("HSET", r.Keys.fail, queuetest.IDOf("a"), fmt.Sprintf("2 1 0 %d 1 2 old", r.now))
			r.equal("errors", r.errorsOf("a"), fmt.Sprintf("0@%v!1 2 old", r.since(time.Time{}.UnixMicro())))
			r.take("2:a")
			r.tickTo(11 * time.Second)
			r.at(13 * time.Second)
			r.done(r.failed("new"))
			r.equal("errors", r.errorsOf("a"), fmt.Sprintf("3@13s!new 2@11s!lost 0@%v!1 2 old", r.since(time.Time{}.UnixMicro())))
		}, "retry 4:a@13s fail a=4/2/0@13s!new wake 13s"},
	})
}

// TestScriptErrorsAreBounded: the newest error is kept as it is. The next failure cuts the errors before it.
func TestScriptErrorsAreBounded(t *testing.T) {
	t.Parallel()
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
		record, err := r.Cli.HGet(queuetest.CtxB, r.Keys.fail, queuetest.IDOf("a")).Result()
		if err != nil || len(record) > 2000 {
			r.t.Errorf("%d bytes, %v", len(record), err)
		}
		r.expect("retry 9:a@11s~11.5s fail a=9/7/1@11s!lost wake 11s~11.5s")
	})
}

// TestScriptErrorsOfAnotherProgram: a record of any bytes stops no script, and is read as far as it can be.
func TestScriptErrorsOfAnotherProgram(t *testing.T) {
	t.Parallel()
	rows := []string{"\x1e", "\x1e\x1e\x1e\x1e\x1e\x1e\x1e", "\x1ex", "\x1e1 2", "\x1e1 2 ", "\x1e-1 -2 x", "\x1e1 2 x\x1e",
		"a\x1eb", "\xff\x1e\xff\x00",
		strings.Repeat("\x1e1 1 x", 10), strings.Repeat("x", 5000), "\x1e1 1 " + strings.Repeat("\x80", 5000),
		"\x1e" + strings.Repeat("9", 40) + " 1 x"}
	onReal(t, func(r *rig) {
		r.put(msg("a", 0))
		for _, raw := range slices.Concat(rows, someRubbish(0)) {
			write := func(n int) { r.do("HSET", r.Keys.fail, queuetest.IDOf("a"), fmt.Sprintf("%d 0 0 5 %s", n, raw)) }
			newest := func(what, want string) {
				r.t.Helper()
				if m := r.looks("id", queuetest.IDOf("a")); message.LastError(m.Errors) != want || len(message.KeptErrors(m.Errors, message.MaxErrors)) > 5 || m.broken != nil {
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
			r.do("HSET", r.Keys.fail, queuetest.IDOf("a"), fmt.Sprintf("%d 0 0 5 %s", n+4, raw))
			got, err := r.Store.Await(queuetest.CtxB, []string{queuetest.IDOf("a")})
			if want := strings.TrimPrefix(message.LastError(raw), strings.Repeat("9", 40)+" 1 "); err != nil || got[0].Text != want {
				r.t.Fatalf("await of %q: %+v, %v; want %q", raw, got, err, want)
			}
			r.equal("requeue", r.steers("requeue", r.now, "a"), "garbage")
			newest("a requeue", message.LastError(raw))
		}
		r.equal("intercept", r.intercept(NewCaller(), "id", queuetest.IDOf("a")), stateRetry)
	})
}
