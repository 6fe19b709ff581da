package ops

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/check"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest"
	"github.com/go-delayqueue/delayqueue/internal/redistest/queuetest/face"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// This file has the countdowns of TestHistories. A batch is ten of twenty messages in a row, which count for a message that was sent before
// them: the sum of the batch. It also has the results that messages gather in groups.

const (
	batchKey   = "batch "   // begins the key of a sum
	resultsKey = "results " // begins the key of a group of results
	mostCount  = 9          // acks of a batch: one of its messages always fails
	tooMany    = 1000       // acks
)

// The kinds of batches, which take turns.
const (
	isCounted = iota // the sum waits for as many acks as there may be, for some seconds at most
	isLong           // the sum waits for more acks than there are, so it comes at its own instant
	isClosed         // the sum waits for more acks than there are, until the ack of the last message says how many there are
	batchKinds
)

// batchOf is the number of the batch of message n; false: the message is in none.
func batchOf(n int) (batch int, in bool) { return n / 20, n%20 < 10 }

func keyOf(batch int) string { return fmt.Sprint(batchKey, batch) }

// A sum is a message with a countdown.
type sum struct {
	id, key string
	closed  bool // its batch is of the kind isClosed
}

// opens sends the sum of a batch.
func (h *history) opens(f *face.Fixture, q *delayqueue.DelayQueue, batch int) {
	s := sum{key: keyOf(batch), closed: batch%batchKinds == isClosed}
	n, delay := tooMany, time.Hour
	switch batch % batchKinds {
	case isCounted:
		n, delay = mostCount, histLease/2+rand.N(4*histLease).Truncate(time.Millisecond)
	case isLong:
		delay = 3 * histLease
	}
	from := h.now()
	info, err := q.Send(queuetest.CtxB, "sum", delayqueue.WithKey(s.key), delayqueue.WithCountdown(n), delayqueue.WithDelay(delay),
		delayqueue.WithRetention(time.Hour))
	if err != nil {
		f.T.Error(err)
		return
	}
	s.id = info.ID
	h.sums = append(h.sums, s)
	h.add(s.id, from, h.now(), deed{what: didSend})
	h.addCount(s.id, from, h.now(), countDeed{what: didSend, n: n, at: info.Due.UnixMicro()})
}

// looks reads how many acks one of the last sums waits for.
func (h *history) looks(f *face.Fixture, m *Queue) {
	s := h.sums[max(0, len(h.sums)-1-rand.IntN(6))]
	from := h.now()
	status, err := m.Get(queuetest.CtxB, s.id)
	if err == nil {
		h.addCount(s.id, from, h.now(), countDeed{what: wasThere, n: status.CountdownLeft})
	} else if !errors.Is(err, delayqueue.ErrNotFound) {
		f.T.Error(err)
	}
}

// closes says how many acks there are, if message n is the last of a batch that waits for that.
func closes(ctx context.Context, n int) error {
	batch, in := batchOf(n)
	if !in || batch%batchKinds != isClosed || n%10 != 9 {
		return nil
	}
	return delayqueue.Then(ctx, "sum", delayqueue.WithKey(keyOf(batch), delayqueue.Replace), delayqueue.WithCountdown(mostCount-1))
}

// gathers keeps the result of message n in a group.
func gathers(ctx context.Context, n int) error {
	return delayqueue.Then(ctx, fmt.Sprint("result of ", n), delayqueue.WithKey(fmt.Sprint(resultsKey, n/20%2), delayqueue.Append),
		delayqueue.WithDelay(20*time.Millisecond), delayqueue.WithMaxWait(100*time.Millisecond), delayqueue.WithRetention(time.Hour))
}

// waitsInVain says whether a message is a sum that waits for acks which do not come, if all other messages are handled.
func (h *history) waitsInVain(s *check.State, id string) bool {
	return s.Missing[id] != 0 && slices.ContainsFunc(h.sums, func(one sum) bool { return one.closed && one.id == id })
}

// waitsStill is how many messages are still to be handled, but for those.
func (h *history) waitsStill(s *check.State) int {
	n := len(s.Pending) + len(s.Ready) + len(s.Unack) + len(s.Retry)
	for _, e := range s.Pending {
		if h.waitsInVain(s, e.ID) {
			n--
		}
	}
	return n
}

// endSums looks at sums that wait in vain, and takes them out.
func (h *history) endSums(f *face.Fixture) {
	q := f.Queue(nil)
	from := h.now()
	s := f.Check()
	to := h.now()
	for _, e := range s.Pending {
		h.addCount(e.ID, from, to, countDeed{what: wasThere, n: missingIn(s, e.ID)})
		from := h.now()
		result, err := q.Intercept(queuetest.CtxB, e.ID)
		f.Must(err)
		h.add(e.ID, from, h.now(), deed{what: didIntercept, state: script.StateWords[result.State]})
	}
}

// missingIn is how many acks a message waits for; -1 if that is not known.
func missingIn(s *check.State, id string) int {
	if n, known := s.Missing[id]; known {
		return int(n)
	}
	return -1
}

// addCount adds a deed to a countdown.
func (h *history) addCount(id string, from, to int64, d countDeed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts[id] = append(h.counts[id], porcupine.Operation{Input: d, Call: from, Return: to})
}

// tellCounts makes deeds of what the outcomes of a settle mean to countdowns. A void outcome means nothing.
func (h *history) tellCounts(c *recorded) {
	steps, void := map[string][]countStep{}, c.void()
	for i, o := range c.outcomes() {
		if void[i] {
			if o.counts != "" {
				h.voided++
			}
			continue
		}
		id, _ := message.SplitTag(o.tag)
		for _, s := range h.sums {
			if s.id == id && (o.kind == script.OutcomeAck || o.kind == script.OutcomeDone || o.kind == script.OutcomeGarbage) {
				steps[id] = append(steps[id], countStep{ends: true})
			}
			for _, m := range o.followers {
				if m.key == s.key && (c.reply == nil || strings.HasPrefix(m.answer, "~")) {
					steps[s.id] = append(steps[s.id], countStep{n: m.countdown})
				}
			}
			if s.key == o.counts {
				steps[s.id] = append(steps[s.id], countStep{})
			}
		}
	}
	for id, some := range steps {
		h.addCount(id, c.first, c.last, countDeed{what: map[bool]what{true: didSettle, false: mayHaveSettled}[c.reply != nil], steps: some})
	}
}

// judgeCounts wants what was seen of each countdown to be possible, and everything to have been seen of some. s is the queue in the end.
func (h *history) judgeCounts(f *face.Fixture, s *check.State, end int64) {
	f.T.Helper()
	seen := map[string]int{}
	for _, one := range h.sums {
		where := s.Where(one.id)
		if where == isDead { // when is not known
			h.addCount(one.id, h.began.UnixMicro(), end, countDeed{what: mayHaveSettled, steps: []countStep{{ends: true}}})
		}
		if where != isGone {
			h.addCount(one.id, end+1, end+1, countDeed{what: wasThere, n: missingIn(s, one.id)})
		}
		ops := h.counts[one.id]
		for _, op := range ops {
			d := op.Input.(countDeed)
			seen[d.kind()]++
		}
		if !porcupine.CheckOperations(countdowns, ops) {
			f.T.Errorf("the countdown of %s, message %s, cannot have been like this:%s", one.key, one.id, h.describe(ops))
		}
	}
	f.T.Log(seen, len(h.sums), "sums,", h.voided, "acks that would count were void")
	for _, kind := range []string{string(didSend), string(didSettle), string(wasThere), allCounted, someMissing, cameAgain} {
		if seen[kind] == 0 {
			f.T.Errorf("no message with a countdown was %s", kind)
		}
	}
}

// judgeResults wants the result of each ack to be in one group, once, and no other result to be in any. s is the queue in the end.
func (h *history) judgeResults(f *face.Fixture, s *check.State) {
	f.T.Helper()
	m, times := Of(delayqueue.NewMonitor(f.Name, f.Cli)), map[string]int{}
	groups := 0
	for _, id := range slices.Sorted(maps.Keys(s.Messages)) {
		if s.Messages[id].Parts > 0 {
			groups++
			for _, part := range statusInQueue(f, m, id).Parts {
				times[part]++
			}
		}
	}
	acked := map[string]bool{} // false: perhaps
	for _, c := range h.calls {
		if c.name != "settle" {
			continue
		}
		void := c.void()
		for i, o := range c.outcomes() {
			for _, m := range o.followers {
				if m.word == "append" && !void[i] {
					acked[m.payload] = acked[m.payload] || c.reply != nil
				}
			}
		}
	}
	for part, n := range times {
		if _, may := acked[part]; n > 1 || !may {
			f.T.Errorf("the %s is in groups %d times, and its ack may have counted: %v", part, n, may)
		}
	}
	for part, sure := range acked {
		if sure && times[part] == 0 {
			f.T.Errorf("the %s is in no group", part)
		}
	}
	f.T.Log(len(times), "results in", groups, "groups")
	if groups == len(times) {
		f.T.Error("no group has two results")
	}
}
