package script

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
)

// numbered gives a message number n of a sequence.
func numbered(m *SendMessage, sequence string, n int64) *SendMessage {
	m.Put = &PutOptions{Sequence: sequence, Number: n}
	return m
}

// on gives a message a policy for a key that is taken. timed: the message says when it is due.
func on(c Conflict, timed bool, m *SendMessage) *SendMessage {
	m.Put = &PutOptions{On: c, Timed: timed}
	return m
}

// putOff is a message that may be put off for at most d.
func putOff(d time.Duration, c Conflict, m *SendMessage) *SendMessage {
	m.Put = &PutOptions{On: c, Timed: true, MaxWait: d}
	return m
}

// answers sends messages, and returns the answers in words.
func (r *rig) answers(c *Caller, ms ...*SendMessage) string {
	r.t.Helper()
	return r.inWords(r.send(c, ms...))
}

// inWords is a word for each message: `+<due>`, `=<holder>`, `~<id of the holder>@<due>`, `#<last number>`, or `!`.
func (r *rig) inWords(out SendReply) string {
	var words []string
	for _, a := range out.Answers {
		switch a.Kind {
		case AnswerStored:
			words = append(words, "+"+r.since(a.Due).String())
		case AnswerTaken:
			word := "=" + names(a.Holder)
			if a.Held {
				word = "=" + acked + names(a.Holder)
			}
			words = append(words, word)
		case AnswerKept:
			word := "~" + names(a.Holder)
			if a.Due > 0 {
				word += "@" + r.since(a.Due).String()
			}
			words = append(words, word)
		case AnswerStopped:
			words = append(words, "!")
		case AnswerPassed:
			words = append(words, fmt.Sprintf("#%d", a.Last))
		}
	}
	return strings.Join(words, " ")
}

// TestScriptPutSequence: a number is stored that is greater than the last one of its sequence, and no other.
func TestScriptPutSequence(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"all of int64": {func(r *rig) {
			last := int64(math.MinInt64)
			for i, n := range []int64{math.MinInt64, math.MinInt64 + 1, -1 << 53, -1<<53 + 1, -10, -9, -1, 0, 1, 9, 10, 1 << 53,
				1<<53 + 1,
				math.MaxInt64 - 1, math.MaxInt64} {
				name := fmt.Sprint("n", i)
				if n != math.MinInt64 {
					r.equal("the one before", r.answers(NewCaller(), numbered(msg("x"+name, 0), "s", last)), fmt.Sprintf("#%d", last))
				}
				r.equal("rising", r.answers(NewCaller(), numbered(msg(name, time.Second), "s", n)), "+1s")
				r.equal("again", r.answers(NewCaller(), numbered(msg("x"+name, 0), "s", n)), fmt.Sprintf("#%d", n))
				r.equal("cancel", r.cancel("id", queuetest.IDOf(name)), statePending)
				last = n
			}
		}, "sequence s=9223372036854775807 wake 1s"},
		"rubbish counts as none": {func(r *rig) {
			for i, value := range append(rubbish, "18446744073709551616", "99999999999999999999", "-0000000000000000001",
				"1.000000000000000000") {
				r.do("HSET", r.Keys.of("sequence"), "s", value)
				name := fmt.Sprint("n", i)
				r.equal(fmt.Sprintf("answer %q", value),
					r.answers(NewCaller(), numbered(msg(name, time.Second), "s", math.MinInt64)), "+1s")
				r.equal("cancel", r.cancel("id", queuetest.IDOf(name)), statePending)
			}
		}, "sequence s=-9223372036854775808 wake 1s"},
	})
}

// TestScriptSequenceWithoutMessages: a sequence is dropped, and passes numbers of which there is no message.
func TestScriptSequenceWithoutMessages(t *testing.T) {
	runScripts(t, map[string]scriptCase{
		"dropped": {func(r *rig) {
			r.answers(NewCaller(), numbered(msg("a", time.Second), "s", 5))
			drop := func(c *Caller) bool {
				found, err := r.Store.DropSequence(queuetest.CtxB, c, "s")
				queuetest.Must(r.t, err)
				return found
			}
			c := newCall()
			r.equal("dropped", drop(c), true)
			r.answers(NewCaller(), numbered(msg("b", time.Second), "s", 1))
			r.equal("the repeat", drop(c), true)
			c.Next()
			older := older(c)
			r.equal("dropped", drop(c), true)
			_, err := r.Store.DropSequence(queuetest.CtxB, older, "s")
			r.tooLate(err)
			c.Next()
			r.equal("dropped", drop(c), false)
		}, "pending a@1s b@1s wake 1s"},
		"passed without a message": {func(r *rig) {
			c := NewCaller()
			pass := func(n int64, want any) {
				c.Next()
				for range 2 { // the reply is lost
					before, was, err := r.Store.PassSequence(queuetest.CtxB, c, "s", n)
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
			r.equal("answers", r.answers(NewCaller(), numbered(msg("a", time.Second), "s", 5)), "#5")
			r.equal("answers", r.answers(NewCaller(), numbered(msg("a", time.Second), "s", 6)), "+1s")
			pass(5, int64(6))
			older := older(c)
			pass(5, int64(6))
			_, _, err := r.Store.PassSequence(queuetest.CtxB, older, "s", 9)
			r.tooLate(err)
			for _, value := range append(rubbish, "18446744073709551616") {
				r.do("HSET", r.Keys.of("sequence"), "s", value)
				pass(-1, nil)
			}
		}, "pending a@1s sequence s=-1 wake 1s"},
	})
}

// TestScriptSequences: all names come, on pages, and one by itself.
func TestScriptSequences(t *testing.T) {
	runScripts(t, map[string]scriptCase{"": {func(r *rig) {
		const n = 1000
		set := []any{"HSET", r.Keys.of("sequence"), "rubbish", "x"}
		for i := range n {
			set = append(set, fmt.Sprint("s", i), message.SequenceDigits(int64(i-10)))
		}
		r.do(set...)
		seen, pages := map[string]int64{}, 0
		for cursor := "0"; pages == 0 || cursor != "0"; pages++ {
			got, err := r.Store.Sequences(queuetest.CtxB, "", cursor)
			queuetest.Must(r.t, err)
			cursor = got.Cursor
			for _, q := range got.Found {
				seen[q.Name] = q.Last
			}
		}
		r.equal("names", len(seen), n)
		r.equal("the last of one", seen["s3"], int64(-7))
		for name, found := range map[string]int{"s999": 1, "s1000": 0, "rubbish": 0} {
			got, err := r.Store.Sequences(queuetest.CtxB, name, "0")
			r.equal(name, []any{len(got.Found), got.Cursor, err}, []any{found, "0", nil})
		}
		r.do("DEL", r.Keys.of("sequence"))
	}, ""}})
}

// holders makes n messages of so many bytes that have the keys k0, k1, …
func (r *rig) holders(n, size int) {
	r.t.Helper()
	for i := range n {
		r.put(msg(fmt.Sprint("h", i), time.Hour, keyed(fmt.Sprint("k", i)), sized(size)))
	}
}

// groups makes n groups of so many parts that have the keys k0, k1, …
func (r *rig) fullGroups(n, parts int) {
	r.t.Helper()
	for i := range n {
		for first := 0; first < parts; first += MaxPut {
			var all []*SendMessage
			for j := range min(MaxPut, parts-first) {
				all = append(all, part(fmt.Sprintf("g%d.%d", i, first+j), time.Hour, 0, keyed(fmt.Sprint("k", i))))
			}
			r.send(NewCaller(), all...)
		}
	}
}

// ontoKeys makes n messages of one byte for the keys k0, k1, …
func ontoKeys(on Conflict, n int) []*SendMessage {
	return many(n, func(i int) *SendMessage {
		m := msg(fmt.Sprint("m", i), 2*time.Hour, keyed(fmt.Sprint("k", i)), func(e *message.Envelope) { e.Payload = "x" })
		m.Put = &PutOptions{On: on, Timed: true}
		return m
	})
}

// TestScriptPutIsBoundedByWhatItReads: a call ends before it has read more than half a megabyte of those that have
// the keys, or deleted the parts of more groups than that, and says of the others nothing; what is kept it does not
// read.
func TestScriptPutIsBoundedByWhatItReads(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		build func(r *rig)
		on    Conflict
		want  int
	}{
		"short ones":          {func(r *rig) { r.holders(MaxPut, 10) }, ConflictReschedule, MaxPut},
		"of 100 KB":           {func(r *rig) { r.holders(7, 100<<10) }, ConflictReschedule, 5},
		"of 100 KB, replaced": {func(r *rig) { r.holders(7, 100<<10) }, ConflictReplace, 5},
		"of 1 MB":             {func(r *rig) { r.holders(3, 1<<20) }, ConflictReschedule, 1},
		"of 1 MB, kept":       {func(r *rig) { r.holders(3, 1<<20) }, ConflictKeep, 3},
		"a short one before": {func(r *rig) { r.holders(1, 10); r.put(msg("h1", time.Hour, keyed("k1"), sized(1<<20))) },
			ConflictReschedule, 1},
		"full groups": {func(r *rig) { r.fullGroups(4, 999) }, ConflictReplace, 2},
	} {
		subtest(t, name, onReal, func(r *rig) {
			c.build(r)
			n := int(r.Cli.HLen(queuetest.CtxB, r.Keys.of("key")).Val())
			by, batch := NewCaller(), ontoKeys(c.on, n)
			for len(batch) > 0 {
				out := r.send(by, batch...)
				r.equal("answers", len(out.Answers), min(c.want, len(batch)))
				before := r.inWords(out)
				r.equal("the same again", r.inWords(r.sendAgain(by, batch...)), before)
				r.equal("kept", strings.Count(before, "~"), len(out.Answers))
				batch = batch[len(out.Answers):]
			}
			r.read()
		})
	}
}
