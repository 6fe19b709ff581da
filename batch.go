package delayqueue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"
)

// This file attempts to send a batch until there is an answer, and knows of each message whether it may be stored.

// A batch is the messages of one script call. One goroutine sends it. It alone writes the fields but awaited, under
// batcher.mu, and may read them without. Whoever withdraws a call reads them and writes awaited, under batcher.mu.
type batch struct {
	items       []*batchItem
	bytes       int            // of items, when the batch was made up
	messages    []*sendMessage // of items, as the present attempt sends them
	permit      *writePermit   // of the last attempt; nil before the first
	maybeStored bool           // an attempt may have been carried out, nobody knows
	awaited     int            // messages whose calls are not withdrawn
	deserted    chan struct{}  // closes when awaited is 0; nil: nobody waits for that
	puts        bool           // put stores them, not send
	rest        *sendCall      // of which the other messages wait until this batch is done

	// Memory for a batch of one, in the same allocation.
	oneItem     [1]*batchItem
	oneMessage  [1]*sendMessage
	firstPermit writePermit
}

// most is how many messages fit.
func (b *batch) most() int {
	if b.puts {
		return maxPut
	}
	return maxBatch
}

// add moves as many messages of a call into the batch as fit, with batcher.mu held, and says how many that are.
func (b *batch) add(call *sendCall) (n int) {
	for ; n < len(call.items); n++ {
		m, count := call.items[n], len(b.items)+n
		if count == 0 {
			b.puts = m.put != nil
		} else if count == b.most() || b.bytes+len(m.text) > sendBytes || b.puts != (m.put != nil) {
			break
		}
		b.bytes += len(m.text)
		m.batch = b
	}
	if n > 0 {
		b.items = append(b.items, call.items[:n]...)
	}
	call.items = call.items[n:]
	return n
}

// withdraw notes that the call of one message is withdrawn, with batcher.mu held, and says what is known of that
// message: that it is not stored, or nothing.
func (b *batch) withdraw() Stored {
	stored := StoredNo
	if b.maybeStored || b.permit != nil && !b.permit.revoke() {
		stored = StoredUnknown
	}
	b.awaited--
	if b.awaited == 0 && b.deserted != nil {
		close(b.deserted)
	}
	return stored
}

// sendBatch makes attempts at a batch until there is an answer, or nobody waits for one. attempt is the number of the
// first of them, from 1.
func (b *batcher) sendBatch(c *caller, batch *batch, attempt int) {
	for begun := time.Now(); !b.attempt(context.Background(), c, batch); begun = time.Now() {
		b.waitToRetry(batch, backoff(attempt)-time.Since(begun))
		attempt++
	}
	b.resume(batch)
}

// resume lets the messages of a call wait that were to come after those in a batch, which is done.
func (b *batcher) resume(batch *batch) {
	if batch.rest == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if batch.rest.heldBack = false; len(batch.rest.items) > 0 {
		b.waiting = append(b.waiting, batch.rest)
	}
}

// waitToRetry waits d, or until all calls with messages in a batch are withdrawn.
func (b *batcher) waitToRetry(batch *batch, d time.Duration) {
	b.mu.Lock()
	if batch.awaited == 0 {
		b.mu.Unlock()
		return
	}
	batch.deserted = make(chan struct{})
	b.mu.Unlock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-batch.deserted:
	}
	b.mu.Lock()
	batch.deserted = nil
	b.mu.Unlock()
}

// attempt makes one attempt at a batch and says whether the batch is done. One that is refused for good is sent message
// by message before it returns. It lasts no longer than ctx.
func (b *batcher) attempt(ctx context.Context, c *caller, batch *batch) (done bool) {
	if !b.prepare(c, batch) {
		return true // all calls are withdrawn, with the errors of their contexts
	}
	begun := time.Now()
	reply, err := b.store.send(ctx, c, sendRequest{batch.messages, b.replicas, b.replicaTimeout})
	if err == nil || errors.Is(err, ErrNotReplicated) {
		if b.complete(batch, reply, err); len(batch.items) > 0 {
			return b.attempt(ctx, c, batch) // no retry: the call has done what one may
		}
		return true
	}
	b.noteFailure(batch, begun, err, !batch.permit.revoke() && !refusal(err))
	if stale(err) {
		*c = *newCaller()
		if !batch.maybeStored {
			return false
		}
	}
	if errors.Is(err, errRevoked) || errors.Is(err, errAllInUse) || transient(err) {
		return false
	}
	if len(batch.items) > 1 && !batch.maybeStored && !concernsAll(err) {
		// It may be the fault of one message.
		for _, m := range batch.items {
			b.sendBatch(c, b.batchOfOne(m), 1)
		}
		return true
	}
	b.complete(batch, reply, err)
	return true
}

// prepare makes a batch ready for its next attempt, and says whether anybody waits for it. While no attempt can have
// been carried out, each is a new call, without the messages whose calls are withdrawn. From then on each repeats
// the same call.
func (b *batcher) prepare(c *caller, batch *batch) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !batch.maybeStored {
		batch.items = slices.DeleteFunc(batch.items, func(m *batchItem) bool { return m.call == nil })
		c.next()
	}
	if batch.awaited == 0 || len(batch.items) == 0 {
		return false
	}
	if batch.permit == nil {
		batch.permit = &batch.firstPermit
	} else {
		batch.permit = new(writePermit) // an attempt that was late may use the one before
	}
	batch.permit.call, c.permit = c.n, batch.permit
	batch.messages = slices.Grow(batch.oneMessage[:0], len(batch.items))
	for _, m := range batch.items {
		batch.messages = append(batch.messages, &m.sendMessage)
	}
	return true
}

// goOn makes what is left of a batch a call of its own, of which nothing is sent yet, with batcher.mu held.
func (b *batch) goOn(left []*batchItem) {
	b.items, b.awaited, b.maybeStored = left, 0, false
	for _, m := range left {
		if m.call != nil {
			b.awaited++
		}
	}
	b.permit = new(writePermit)
}

// batchOfOne makes a batch of one message of another.
func (b *batcher) batchOfOne(m *batchItem) *batch {
	b.mu.Lock()
	defer b.mu.Unlock()
	one := &batch{items: []*batchItem{m}}
	if m.call != nil {
		one.awaited = 1
	}
	m.batch = one
	return one
}

// noteFailure notes that an attempt failed, and whether it may have been carried out.
func (b *batcher) noteFailure(batch *batch, begun time.Time, err error, maybeStored bool) {
	b.mu.Lock()
	if batch.maybeStored = batch.maybeStored || maybeStored; !batch.maybeStored {
		// The attempt used its permit and was refused; an unused one tells withdraw that nothing is stored.
		batch.permit = new(writePermit)
	}
	b.lastErr = err
	noted := b.outageNow()
	b.mu.Unlock()
	if transient(err) {
		noted.report("send", begun, err)
	}
}

// outageNow is where outages are noted, with mu held.
func (b *batcher) outageNow() *outage {
	if b.outage == nil {
		b.outage = &outage{log: b.events.logger().With(slog.String("queue", b.store.queue))}
	}
	return b.outage
}

// complete gives each message of a batch its result. Those that the reply says nothing of stay in the batch.
func (b *batcher) complete(batch *batch, reply sendReply, err error) {
	items := batch.items
	if reply.answers != nil {
		items = items[:len(reply.answers)]
	}
	soonest := int64(math.MaxInt64)
	answered := reply.now != 0
	var sent, moved []string
	listIDs := answered && b.events.on()
	b.mu.Lock()
	noted := b.outageNow()
	if answered {
		b.lastErr = nil
	}
	for i, m := range items {
		var answer sendAnswer
		if answered {
			answer = reply.answer(i, &m.sendMessage)
		}
		if answered && answer.due > 0 {
			soonest = min(soonest, answer.due)
		}
		switch {
		case !listIDs:
		case answer.kind == answerStored:
			sent = append(sent, m.id)
		case answer.kind == answerKept && m.put.moves():
			moved = append(moved, answer.holder)
		}
		if m.call == nil {
			continue // its call is withdrawn
		}
		b.setResult(m, answer, answered, err)
		m.call.left--
		if m.call.left == 0 && m.call.done != nil {
			close(m.call.done)
		}
		m.call = nil
	}
	batch.goOn(batch.items[len(items):])
	b.mu.Unlock()
	if !answered {
		return
	}
	noted.report("send", time.Time{}, nil)
	b.events.tell(NewMessageEvent, len(sent), sent...)
	b.events.tell(RescheduledEvent, len(moved), moved...)
	if b.onStored != nil && soonest < math.MaxInt64 {
		b.onStored(time.Duration(soonest-reply.now) * time.Microsecond)
	}
}

// setResult says what became of a message whose batch was answered, or will not be, with mu held.
func (b *batcher) setResult(m *batchItem, answer sendAnswer, answered bool, err error) {
	m.err = err
	switch {
	case !answered && m.batch.maybeStored:
		m.stored = StoredUnknown
	case !answered:
		m.stored = StoredNo
	case answer.kind == answerTaken:
		m.stored, m.err = StoredNo, refusedFor(&DuplicateKeyError{Queue: b.store.queue, Key: m.key, ID: answer.holder, Held: answer.held}, err)
	case answer.kind == answerPassed:
		m.stored = StoredNo
		m.err = refusedFor(&SequenceError{Queue: b.store.queue, Name: m.put.sequence, N: m.put.number, Last: answer.last}, err)
	case answer.kind == answerStopped:
		m.stored = StoredNo
		m.err = &SequenceStoppedError{Queue: b.store.queue, Name: m.put.sequence, N: m.put.number, At: m.put.after}
	case answer.kind == answerKept:
		m.stored, m.holder, m.due = StoredYes, answer.holder, instantTime(answer.due)
	default:
		m.stored, m.due = StoredYes, time.UnixMicro(answer.due)
	}
}

// refusedFor is the error of a message that was refused for one that is there. replicated is nil, or says that too few
// replicas have what the call read: a failover may forget that one, and the refused one is nowhere then.
func refusedFor(refusal, replicated error) error {
	if replicated == nil {
		return refusal
	}
	return fmt.Errorf("%w (of what is there: %w)", refusal, replicated)
}
