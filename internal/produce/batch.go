package produce

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/event"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// This file makes attempts at a batch until one is answered, and knows of each message whether it may be stored.

// A batch is the messages of one script call. One goroutine sends it. All fields are written under Batcher.mu,
// only by that goroutine, which may read them without.
type batch struct {
	items       []*BatchItem
	bytes       int                   // of items, when the batch was made up
	messages    []*script.SendMessage // of items, as the present attempt sends them
	permit      *script.WritePermit   // of the last attempt; nil before the first
	maybeStored bool                  // an attempt may have been carried out
	puts        bool                  // put stores them, not send
	rest        *SendCall             // a call whose other messages wait until this batch is done; nil: none
	target      *target               // nil: Batcher.Store
	lastErr     error                 // of the last attempt, if that failed
	stuck       bool                  // it does not count as in flight: its target does not answer, and may have stored it
	refused     bool                  // by its target: the next attempt goes to another one
	refusals    int                   // of targets that answered that they do not store it

	// Memory for a batch of one, in the same allocation.
	oneItem     [1]*BatchItem
	oneMessage  [1]*script.SendMessage
	firstPermit script.WritePermit
}

// most is how many messages fit.
func (b *batch) most() int {
	if b.puts {
		return script.MaxPut
	}
	return script.MaxBatch
}

// add moves as many messages of a call into the batch as fit, with Batcher.mu held, and returns their number.
func (b *batch) add(call *SendCall) (n int) {
	for ; n < len(call.Items); n++ {
		m, count := call.Items[n], len(b.items)+n
		if count == 0 {
			b.puts = m.Put != nil
		} else if count == b.most() || b.bytes+len(m.Text) > sendBytes || b.puts != (m.Put != nil) {
			break
		}
		b.bytes += len(m.Text)
		m.batch = b
	}
	if n > 0 {
		b.items = append(b.items, call.Items[:n]...)
	}
	call.Items = call.Items[n:]
	return n
}

// withdraw notes that the call of one message is withdrawn, with Batcher.mu held. It returns StoredNo, or
// StoredUnknown.
func (b *batch) withdraw() stored {
	if b.maybeStored || b.permit != nil && !b.permit.Revoke() {
		return StoredUnknown
	}
	return StoredNo
}

// sendBatch makes attempts at a batch until one is answered, or nobody waits for an answer. A batch that nobody waits
// for ends when its next attempt is due. attempt is the number of the first, from 1.
func (b *Batcher) sendBatch(c *script.Caller, batch *batch, attempt int) {
	for begun := time.Now(); !b.attempt(context.Background(), c, batch); begun = time.Now() {
		link.Sleep(context.Background(), link.Backoff(attempt)-time.Since(begun))
		attempt++
	}
	b.finish(batch)
}

// finish puts the rest of a batch, which is done, back among the calls that wait.
func (b *Batcher) finish(batch *batch) {
	if batch.rest == nil && batch.target == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leave(batch)
	if batch.rest == nil {
		return
	}
	if batch.rest.heldBack = false; len(batch.rest.Items) > 0 {
		b.waiting = append(b.waiting, batch.rest)
	}
}

// attempt makes one attempt at a batch, and says whether the batch is done. If a batch is refused for good, attempt
// sends it message by message. attempt lasts no longer than ctx.
func (b *Batcher) attempt(ctx context.Context, c *script.Caller, batch *batch) (done bool) {
	if !b.prepare(c, batch) {
		return true // all calls are withdrawn, with the errors of their contexts
	}
	begun := time.Now()
	reply, err := b.storeOf(batch).Send(ctx, c,
		script.SendRequest{Messages: batch.messages, Replicas: b.Replicas, Timeout: b.ReplicaTimeout})
	if err == nil || errors.Is(err, link.ErrNotReplicated) {
		if b.complete(batch, reply, err); len(batch.items) > 0 {
			return b.attempt(ctx, c, batch) // no retry: the call has done what one may
		}
		return true
	}
	b.noteFailure(batch, begun, err, !batch.permit.Revoke() && !link.Refusal(err))
	if script.Stale(err) {
		*c = *script.NewCaller()
		if !batch.maybeStored {
			return false
		}
	}
	if errors.Is(err, link.ErrRevoked) || errors.Is(err, link.ErrAllInUse) || link.Transient(err) {
		return false
	}
	if b.goesElsewhere(batch, err) {
		return b.attempt(ctx, c, batch)
	}
	if len(batch.items) > 1 && !batch.maybeStored && !link.ConcernsAll(err) && !errors.Is(err, script.ErrShardCount) {
		// One message may be the reason.
		for _, m := range batch.items {
			b.sendBatch(c, b.batchOfOne(batch, m), 1)
		}
		return true
	}
	b.complete(batch, reply, b.storeOf(batch).InShard(err))
	return true
}

func (b *Batcher) storeOf(batch *batch) *script.Store {
	if batch.target != nil {
		return batch.target.store
	}
	return b.Store
}

// prepare makes a batch ready for its next attempt, and says whether anybody waits for it. While no attempt can have
// been carried out, each attempt is a new call, without the messages whose senders have left. From then on, each
// attempt repeats the same call.
func (b *Batcher) prepare(c *script.Caller, batch *batch) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !batch.maybeStored {
		batch.items = slices.DeleteFunc(batch.items, func(m *BatchItem) bool { return m.call == nil })
		if batch.target != nil {
			b.address(batch)
		}
		c.Next()
	}
	if !slices.ContainsFunc(batch.items, func(m *BatchItem) bool { return m.call != nil }) {
		return false
	}
	if batch.permit == nil {
		batch.permit = &batch.firstPermit
	} else {
		batch.permit = new(script.WritePermit) // an attempt that is late may still use the permit before
	}
	batch.permit.Call, c.Permit = c.N, batch.permit
	batch.messages = slices.Grow(batch.oneMessage[:0], len(batch.items))
	for _, m := range batch.items {
		batch.messages = append(batch.messages, &m.SendMessage)
	}
	return true
}

// goOn makes the messages that are left of a batch a new call, of which nothing is sent yet, with Batcher.mu held.
func (b *batch) goOn(left []*BatchItem) {
	b.items, b.maybeStored, b.permit = left, false, new(script.WritePermit)
}

// batchOfOne makes a batch of one message of a larger batch.
func (b *Batcher) batchOfOne(of *batch, m *BatchItem) *batch {
	b.mu.Lock()
	defer b.mu.Unlock()
	one := &batch{items: []*BatchItem{m}, target: of.target}
	m.batch = one
	if one.target != nil {
		one.target.inFlight++
	}
	return one
}

// noteFailure notes that an attempt failed, and whether it may have been carried out.
func (b *Batcher) noteFailure(batch *batch, begun time.Time, err error, maybeStored bool) {
	b.mu.Lock()
	if batch.maybeStored = batch.maybeStored || maybeStored; !batch.maybeStored {
		// The attempt has used its permit and was refused. An unused permit tells withdraw that nothing is stored.
		batch.permit = new(script.WritePermit)
	}
	b.lastErr = b.storeOf(batch).InShard(err)
	batch.lastErr = b.lastErr
	if batch.target != nil && link.Transient(err) {
		batch.refused = true
		b.missed(batch)
	}
	b.mu.Unlock()
	if link.Transient(err) {
		b.report(b.storeOf(batch), begun, err)
	}
}

// report notes for the log whether a store answers.
func (b *Batcher) report(store *script.Store, begun time.Time, err error) {
	b.logFound.Do(func() { b.outage.Log = b.Events.Logger().With(slog.String("queue", store.Queue)) })
	b.outage.Report("send", store.Shard, begun, err)
}

// complete gives each message of a batch its result. Messages without an answer in the reply stay in the batch.
func (b *Batcher) complete(batch *batch, reply script.SendReply, err error) {
	items := batch.items
	if reply.Answers != nil {
		items = items[:len(reply.Answers)]
	}
	soonest := int64(math.MaxInt64)
	answered := reply.Now != 0
	var sent, moved []string
	listIDs := answered && b.Events.On()
	if reply.Uneven != "" {
		b.unevenOnce.Do(func() {
			b.Events.Logger().Warn(
				"delayqueue: messages of a lane ask for different widths (WithLane): the smallest of those that have a turn holds",
				slog.String("queue", b.Store.Queue), slog.String("lane", reply.Uneven))
		})
	}
	b.mu.Lock()
	if answered {
		b.lastErr = nil
	}
	for i, m := range items {
		var answer script.SendAnswer
		if answered {
			answer = reply.Answer(i, &m.SendMessage)
		}
		if answered && answer.Due > 0 {
			soonest = min(soonest, answer.Due)
		}
		switch {
		case !listIDs:
		case answer.Kind == script.AnswerStored:
			sent = append(sent, m.ID)
		case answer.Kind == script.AnswerKept && m.Put.Moves():
			moved = append(moved, answer.Holder)
		}
		if m.call == nil {
			continue // its call is withdrawn
		}
		m.setResult(answer, answered, err)
		call := m.call
		m.call = nil // before its sender has it again
		if call.left--; call.left == 0 && call.done != nil {
			close(call.done)
		}
	}
	batch.goOn(batch.items[len(items):])
	b.mu.Unlock()
	if !answered {
		return
	}
	b.report(b.storeOf(batch), time.Time{}, nil)
	if b.drawForget() {
		go forgetCallers(b.storeOf(batch))
	}
	b.Events.Tell(event.CodeNew, len(sent), sent...)
	b.Events.Tell(event.CodeRescheduled, len(moved), moved...)
	if b.OnStored != nil && soonest < math.MaxInt64 {
		b.OnStored(time.Duration(soonest-reply.Now) * time.Microsecond)
	}
}

// setResult notes what became of a message when its batch was answered, or given up, with Batcher.mu held.
func (m *BatchItem) setResult(answer script.SendAnswer, answered bool, err error) {
	m.Answer, m.Err = answer, err
	switch {
	case answered && (answer.Kind == script.AnswerStored || answer.Kind == script.AnswerKept):
		m.Stored = StoredYes
	case !answered && m.batch.maybeStored:
		m.Stored = StoredUnknown
	default:
		m.Stored = StoredNo
	}
}
