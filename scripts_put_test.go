package delayqueue

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

// numbered makes a message number n of a sequence.
func numbered(m *sendMessage, sequence string, n int64) *sendMessage {
	m.put = &putOptions{sequence: sequence, number: n}
	return m
}

// behind makes a numbered message one that stands behind another number in its batch.
func behind(n int64, m *sendMessage) *sendMessage {
	m.put.behind, m.put.after = true, n
	return m
}

// on is a message that does this if its key is taken; timed: it says when it is due.
func on(c Conflict, timed bool, m *sendMessage) *sendMessage {
	m.put = &putOptions{on: c, timed: timed}
	return m
}

// putOff is a message that is put off for so long at most.
func putOff(d time.Duration, c Conflict, m *sendMessage) *sendMessage {
	m.put = &putOptions{on: c, timed: true, maxWait: d}
	return m
}

// answers are those of a put, in the words of putAnswers.
func (r *rig) answers(c *caller, ms ...*sendMessage) string {
	r.t.Helper()
	return r.inWords(r.send(c, ms...))
}

// inWords are `+<due>`, `=<holder>`, `~<id of the one that is there>@<due>` `#<last number>` or `!` of each message.
func (r *rig) inWords(out sendReply) string {
	var words []string
	for _, a := range out.answers {
		switch a.kind {
		case answerStored:
			words = append(words, "+"+r.since(a.due).String())
		case answerTaken:
			word := "=" + names(a.holder)
			if a.held {
				word = "=" + acked + names(a.holder)
			}
			words = append(words, word)
		case answerKept:
			word := "~" + names(a.holder)
			if a.due > 0 {
				word += "@" + r.since(a.due).String()
			}
			words = append(words, word)
		case answerStopped:
			words = append(words, "!")
		case answerPassed:
			words = append(words, fmt.Sprintf("#%d", a.last))
		}
	}
	return strings.Join(words, " ")
}

// TestScriptPutSequence: a number is stored that is greater than the last one of its sequence, and no other.
func TestScriptPutSequence(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"rising": {func(r *rig) {
			r.equal("answers", r.answers(newCaller(), numbered(msg("a", time.Second), "s", 1), numbered(msgAt("b", -time.Hour), "s", 2),
				numbered(msg("c", 0), "s", 7)), "+1s +0s +0s")
		}, "pending b@0s c@0s a@1s sequence s=7 wake 0s"},
		"passed": {func(r *rig) {
			r.equal("answers", r.answers(newCaller(), numbered(msg("a", time.Second), "s", 5)), "+1s")
			r.equal("answers", r.answers(newCaller(), numbered(msg("b", 0), "s", 5), numbered(msg("c", 0), "s", 4),
				numbered(msg("d", 2*time.Second), "s", 6)), "#5 #5 +2s")
		}, "pending a@1s d@2s sequence s=6 wake 1s"},
		"behind one that is refused": {func(r *rig) {
			r.put(msg("k", time.Hour, keyed("k")))
			s := func(name string, n int64, rest ...func(*envelope)) *sendMessage {
				return numbered(msg(name, time.Hour, rest...), "s", n)
			}
			c := newCaller()
			batch := []*sendMessage{s("a", 1), behind(1, s("b", 2, keyed("k"))), behind(2, s("c", 3)), behind(3, s("d", 5)),
				numbered(msg("t", time.Hour), "t", 3)}
			first := r.send(c, batch...)
			r.equal("answers", r.inWords(first), "+1h0m0s =k ! ! +1h0m0s")
			r.equal("a repeat", r.sendAgain(c, batch...), first)
			r.equal("in the next call", r.answers(newCaller(), behind(5, s("e", 6))), "!")
			r.equal("cancel", r.cancel("key", "k"), StatePending)
			r.equal("another call", r.answers(newCaller(), batch...), "#1 +1h0m0s +1h0m0s +1h0m0s #3")
			r.equal("what was reached before", r.answers(newCaller(), behind(4, s("f", 8)), behind(9, s("g", 10))), "+1h0m0s !")
			r.equal("no number yet", r.answers(newCaller(), behind(math.MinInt64, numbered(msg("h", 0), "u", 0))), "!")
			r.do("HSET", r.keys.sequence, "s", "rubbish")
			r.equal("rubbish", r.answers(newCaller(), behind(4, s("i", 9)), s("j", 1), behind(1, s("l", 2))), "! +1h0m0s +1h0m0s")
		}, "pending a@1h0m0s b@1h0m0s c@1h0m0s d@1h0m0s f@1h0m0s j@1h0m0s l@1h0m0s t@1h0m0s key k=b sequence s=2 t=3 wake 1h0m0s"},
		"all of int64": {func(r *rig) {
			last := int64(math.MinInt64)
			for i, n := range []int64{math.MinInt64, math.MinInt64 + 1, -1 << 53, -1<<53 + 1, -10, -9, -1, 0, 1, 9, 10, 1 << 53, 1<<53 + 1,
				math.MaxInt64 - 1, math.MaxInt64} {
				name := fmt.Sprint("n", i)
				if n != math.MinInt64 {
					r.equal("the one before", r.answers(newCaller(), numbered(msg("x"+name, 0), "s", last)), fmt.Sprintf("#%d", last))
				}
				r.equal("rising", r.answers(newCaller(), numbered(msg(name, time.Second), "s", n)), "+1s")
				r.equal("again", r.answers(newCaller(), numbered(msg("x"+name, 0), "s", n)), fmt.Sprintf("#%d", n))
				r.equal("cancel", r.cancel("id", idOf(name)), StatePending)
				last = n
			}
		}, "sequence s=9223372036854775807 wake 1s"},
		"each name has its own": {func(r *rig) {
			r.equal("answers", r.answers(newCaller(), numbered(msg("a", 0), "s", 5), numbered(msg("b", 0), "t", 1),
				numbered(msg("c", 0), "\x00 =#", 1)), "+0s +0s +0s")
			r.equal("answers", r.answers(newCaller(), numbered(msg("d", 0), "t", 1), numbered(msg("e", 0), "\x00 =#", 1)), "#1 #1")
		}, "pending a@0s b@0s c@0s sequence \x00 =#=1 s=5 t=1 wake 0s"},
		"a key that is taken": {func(r *rig) {
			r.put(msg("a", time.Second, keyed("k")))
			r.equal("answers", r.answers(newCaller(), numbered(msg("b", 0, keyed("k")), "s", 1), numbered(msg("c", 0, keyed("l")), "s", 2),
				numbered(msg("d", 0, keyed("l")), "s", 3)), "=a +0s =c")
		}, "pending c@0s a@1s key k=a l=c sequence s=2 wake 0s"},
		"passed, and its key is taken": {func(r *rig) {
			r.answers(newCaller(), numbered(msg("a", time.Second, keyed("k")), "s", 1))
			r.equal("answers", r.answers(newCaller(), numbered(msg("b", 0, keyed("k")), "s", 1)), "#1")
		}, "pending a@1s key k=a sequence s=1 wake 1s"},
		"long after the message": {func(r *rig) {
			r.answers(newCaller(), numbered(msg("a", 0), "s", 1))
			r.take("a")
			r.done(ack("a"))
			r.at(1000 * time.Hour)
			r.equal("answers", r.answers(newCaller(), numbered(msg("b", 0), "s", 1)), "#1")
		}, "sequence s=1"},
		"rubbish counts as none": {func(r *rig) {
			for i, value := range append(rubbish, "18446744073709551616", "99999999999999999999", "-0000000000000000001", "1.000000000000000000") {
				r.do("HSET", r.keys.sequence, "s", value)
				name := fmt.Sprint("n", i)
				r.equal(fmt.Sprintf("answer %q", value), r.answers(newCaller(), numbered(msg(name, time.Second), "s", math.MinInt64)), "+1s")
				r.equal("cancel", r.cancel("id", idOf(name)), StatePending)
			}
		}, "sequence s=-9223372036854775808 wake 1s"},
	})
}

// TestScriptSequenceWithoutMessages: a sequence is dropped, and passes numbers of which there is no message.
func TestScriptSequenceWithoutMessages(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"dropped": {func(r *rig) {
			r.answers(newCaller(), numbered(msg("a", time.Second), "s", 5))
			drop := func(c *caller) bool {
				found, err := r.store.dropSequence(ctxB, c, "s")
				if err != nil {
					r.t.Error(err)
				}
				return found
			}
			c := newCaller()
			c.next()
			r.equal("dropped", drop(c), true)
			r.answers(newCaller(), numbered(msg("b", time.Second), "s", 1))
			r.equal("the repeat", drop(c), true)
			c.next()
			older := older(c)
			r.equal("dropped", drop(c), true)
			_, err := r.store.dropSequence(ctxB, older, "s")
			r.tooLate(err)
			c.next()
			r.equal("dropped", drop(c), false)
		}, "pending a@1s b@1s wake 1s"},
		"passed without a message": {func(r *rig) {
			c := newCaller()
			pass := func(n int64, want any) {
				c.next()
				for range 2 { // the reply is lost
					before, was, err := r.store.passSequence(ctxB, c, "s", n)
					r.equal("error", err, nil)
					var got any
					if was {
						got = before
					}
					r.equal(fmt.Sprint("before ", n), got, want)
				}
			}
			pass(math.MinInt64, nil)
			pass(5, int64(math.MinInt64))
			pass(4, int64(5))
			r.equal("answers", r.answers(newCaller(), numbered(msg("a", time.Second), "s", 5)), "#5")
			r.equal("answers", r.answers(newCaller(), numbered(msg("a", time.Second), "s", 6)), "+1s")
			pass(5, int64(6))
			older := older(c)
			pass(5, int64(6))
			_, _, err := r.store.passSequence(ctxB, older, "s", 9)
			r.tooLate(err)
			for _, value := range append(rubbish, "18446744073709551616") {
				r.do("HSET", r.keys.sequence, "s", value)
				pass(-1, nil)
			}
		}, "pending a@1s sequence s=-1 wake 1s"},
	})
}

// TestScriptPutRepeated: a call that comes again says the same and changes nothing; an older one is refused.
func TestScriptPutRepeated(t *testing.T) {
	runScripts(t, map[string]scriptCase{"": {func(r *rig) {
		r.put(msg("old", time.Hour, keyed("k")))
		c := newCaller()
		batch := []*sendMessage{numbered(msg("a", time.Second), "s", 1), numbered(msg("b", 0, keyed("k")), "s", 2),
			numbered(msg("c", 0), "t", -3)}
		first := r.send(c, batch...)
		r.equal("answers", r.inWords(first), "+1s =old +0s")
		r.equal("another call", r.answers(newCaller(), numbered(msg("d", 0), "s", 1)), "#1")
		for range 3 {
			r.at(r.since(r.now) + 10*time.Second)
			r.equal("the repeat", r.sendAgain(c, batch...), first)
		}
		c.next()
		before := r.contents()
		if _, err := r.store.send(ctxB, older(older(c)), sendRequest{messages: batch}); err == nil || !strings.Contains(err.Error(), "DQSTALE") {
			r.t.Errorf("an older call: %v", err)
		}
		r.equal("contents", r.contents(), before)
	}, "pending c@0s a@1s old@1h0m0s key k=old sequence s=1 t=-3 wake 0s"}})
}

// TestScriptPutState: a put takes part in all that a send does: it arms, counts, and notes what is long.
func TestScriptPutState(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"arms what is sooner": {func(r *rig) {
			r.put(msg("a", 5*time.Second))
			r.do("ZREM", r.keys.wake, "w")
			r.answers(newCaller(), numbered(msg("b", 5*time.Second), "s", 1))
			r.equal("wake", r.cli.Exists(ctxB, r.keys.wake).Val(), int64(0))
			r.answers(newCaller(), numbered(msg("c", 6*time.Second), "s", 2), numbered(msg("d", 4*time.Second), "s", 3))
		}, "pending d@4s a@5s b@5s c@6s sequence s=3 wake 4s"},
		"not before the end of a pause": {func(r *rig) {
			r.do("HSET", r.keys.state, "sent", "0") // there is such a queue
			c := newCaller()
			c.next()
			if err := r.store.pause(ctxB, c, r.now+9e6, onBehalf{}); err != nil {
				r.t.Fatal(err)
			}
			r.answers(newCaller(), numbered(msg("a", time.Second), "s", 1))
		}, "pending a@1s sequence s=1 wake 9s"},
		"nothing is stored": {func(r *rig) {
			r.answers(newCaller(), numbered(msg("a", time.Second), "s", 1))
			r.answers(newCaller(), numbered(msg("b", 0, sized(3000)), "s", 1))
			s := r.read()
			r.equal("big, sent", []string{s.Fields["big"], s.Fields["sent"]}, []string{"", "1"})
		}, "pending a@1s sequence s=1 wake 1s"},
		"big, sent": {func(r *rig) {
			long := numbered(msg("a", time.Second, sized(3000)), "s", 1)
			r.answers(newCaller(), long, numbered(msg("b", time.Second), "s", 2), numbered(msg("c", 0), "s", 2))
			s := r.read()
			r.equal("big, sent", []string{s.Fields["big"], s.Fields["sent"]}, []string{fmt.Sprint(len(long.text) + envelopeHead), "2"})
		}, "pending a@1s b@1s sequence s=2 wake 1s"},
		"of version 2": {func(r *rig) {
			e := envelope{payload: "a", retries: 3, due: rigBase + 1e6}
			m := numbered(msgAt("a", time.Second), "s", 1)
			m.text = e.inFields(nil)
			after := numbered(msg("b", time.Second), "s", 2)
			after.version, after.text = 2, e.inFields(nil)[envelopeHead:]
			r.equal("answers", r.answers(newCaller(), m, after), "+1s +1s")
			s := r.read()
			r.equal("versions", []byte{s.Messages[idOf("a")].Version, s.Messages[idOf("b")].Version}, []byte{2, 2})
		}, "pending a@1s b@1s sequence s=2 wake 1s"},
	})
}

// TestScriptSequences: all names come, on pages, and one by itself.
func TestScriptSequences(t *testing.T) {
	runScripts(t, map[string]scriptCase{"": {func(r *rig) {
		const n = 1000
		for i := range n {
			r.do("HSET", r.keys.sequence, fmt.Sprint("s", i), sequenceDigits(int64(i-10)))
		}
		r.do("HSET", r.keys.sequence, "rubbish", "x")
		seen, pages := map[string]int64{}, 0
		for cursor := "0"; pages == 0 || cursor != "0"; pages++ {
			got, err := r.store.sequences(ctxB, "", cursor)
			if err != nil {
				r.t.Fatal(err)
			}
			cursor = got.cursor
			for _, q := range got.found {
				seen[q.Name] = q.Last
			}
		}
		r.equal("names", len(seen), n)
		r.equal("the last of one", seen["s3"], int64(-7))
		for name, found := range map[string]int{"s999": 1, "s1000": 0, "rubbish": 0} {
			got, err := r.store.sequences(ctxB, name, "0")
			r.equal(name, []any{len(got.found), got.cursor, err}, []any{found, "0", nil})
		}
		r.do("DEL", r.keys.sequence)
	}, ""}})
}
