package delayqueue

import (
	"cmp"
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// This file gathers the messages of concurrent sends into batches; batch.go sends a batch. While fewer than maxInFlight
// batches are in flight, a send flushes at once, in its own goroutine if its context cannot end before an attempt does.
// Messages that come later wait for the next batch.

// A batcher brings the messages of one queue or publisher to Redis. It is safe for concurrent use.
type batcher struct {
	// Set before the first send, and only read afterwards.
	store          *store
	events         *events
	replicas       int // that confirm each batch
	replicaTimeout time.Duration
	onStored       func(soonest time.Duration) // is told how soon stored messages are due; nil: nobody asks
	forgetOdds     int                         // after one batch in so many old callers are forgotten; 0: never

	begun atomic.Bool // an attempt has been made

	mu           sync.Mutex  // guards the fields below, and those of calls, items and batches that say so
	waiting      []*sendCall // in turn; some may be withdrawn
	withdrawn    int         // how many of those, at least
	waitingBytes int         // of the calls that wait and are not withdrawn
	inFlight     int         // batches, or goroutines that flush
	lastErr      error       // of the last attempt, if that failed
	outage       *outage     // nil before the first answer
}

const (
	// maxInFlight is how many batches are in flight at a time: one is on the wire while the next is made up.
	maxInFlight = 2
	// sendBytes is where a batch stops growing: Redis does nothing else while it copies a batch into a script and
	// out again. A larger message goes alone.
	sendBytes = maxBatchBytes / 2
	// maxWaiting and maxWaitingBytes are how many calls may wait, and how many bytes. A call for many messages
	// counts for sendBytes at most. Later calls get ErrTooManyWaiting.
	maxWaiting      = 100_000
	maxWaitingBytes = 256 << 20
	// inlineBytes is how much a send flushes in its own goroutine, which waits for the attempt.
	inlineBytes = 64 << 10
	// defaultForgetOdds are the forgetOdds of a batcher. Forgetting looks at a hundred fields of state. Each queue of a
	// process leaves few callers behind, most of them after its first batch: so that one is firstForgetFactor times as
	// likely to be followed by forgetting.
	defaultForgetOdds = 10_000
	firstForgetFactor = 1000
)

// A batchItem is one message in the batcher, and its result.
type batchItem struct {
	sendMessage // does not change in the batcher

	// Guarded by batcher.mu until the call is done.
	call   *sendCall // nil: the message has its result, or its call is withdrawn
	batch  *batch    // nil: it is in none yet
	due    time.Time
	stored Stored
	holder string // id of the message that is there in its place
	err    error
}

// info names the message that is there.
func (m *batchItem) info() MessageInfo {
	return MessageInfo{ID: cmp.Or(m.holder, m.id), Key: m.key, Due: m.due, Existed: m.holder != ""}
}

// A sendCall is one call of a user, which waits for the results of its messages.
type sendCall struct {
	ctx     context.Context // does not change
	bytes   int             // of its messages, sendBytes at most; does not change in the batcher
	ordered bool            // no message before those ahead of it are done; does not change in the batcher

	// Guarded by batcher.mu.
	items    []*batchItem  // that are in no batch yet; none: it waits no more, or is withdrawn
	left     int           // items without a result
	heldBack bool          // the items follow upon those in a batch that is not done
	done     chan struct{} // closes when left is 0; nil: nobody waits for that
}

// A loneSend is all that a call for one message needs, in one allocation.
type loneSend struct {
	draft draft
	item  batchItem
	call  sendCall
	items [1]*batchItem
}

func newLoneSend() *loneSend {
	l := new(loneSend)
	l.items[0] = &l.item
	l.call.items = l.items[:]
	return l
}

// send sends the messages of a call, and returns when all have their results.
func (b *batcher) send(ctx context.Context, call *sendCall) {
	items := call.items
	if err := ended(ctx); err != nil {
		refuse(items, err)
		return
	}
	if len(items) == 0 {
		return
	}
	call.ctx, call.left = ctx, len(items)
	for _, m := range items {
		m.call = call
		call.bytes = min(call.bytes+len(m.text), sendBytes)
		call.ordered = call.ordered || m.put != nil
	}
	b.mu.Lock()
	if len(b.waiting)-b.withdrawn >= maxWaiting || b.waitingBytes >= maxWaitingBytes {
		last := b.lastErr
		b.mu.Unlock()
		refuse(items, withLast(ErrTooManyWaiting, last))
		return
	}
	b.waiting = append(b.waiting, call)
	b.waitingBytes += call.bytes
	if b.inFlight == maxInFlight {
		b.mu.Unlock()
		b.wait(call, items)
		return
	}
	b.inFlight++
	if b.outlastsAttempt(ctx) && call.bytes <= inlineBytes {
		batch := b.takeBatch()
		b.mu.Unlock()
		b.flushInline(ctx, batch)
	} else {
		b.mu.Unlock()
		go b.flush(processCallers.take())
	}
	b.wait(call, items)
}

// outlastsAttempt says whether this context, which has just begun, lasts as long as an attempt, unless that waits for a
// connection of the link.
func (b *batcher) outlastsAttempt(ctx context.Context) bool {
	return ctx.Done() == nil || isShared(ctx) && b.replicaTimeout < noContextTimeout/4
}

func refuse(items []*batchItem, err error) {
	for _, m := range items {
		m.err, m.stored = err, StoredNo
	}
}

// wait waits for the results of a call's messages, or for the end of its context.
func (b *batcher) wait(call *sendCall, items []*batchItem) {
	b.mu.Lock()
	if call.left == 0 {
		b.mu.Unlock()
		return
	}
	done := make(chan struct{})
	call.done = done
	b.mu.Unlock()
	select {
	case <-done:
	case <-call.ctx.Done():
		b.withdraw(call, items)
	}
}

// withdraw gives the messages of a call that have no result the error of its context. What has not been written to a
// connection never will be; of what has, nobody knows whether it is stored. Later results are dropped, for the
// user owns the messages' results from here on.
func (b *batcher) withdraw(call *sendCall, items []*batchItem) {
	why := ended(call.ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	if call.left == 0 {
		return
	}
	if len(call.items) > 0 {
		call.items = nil
		b.waitingBytes -= call.bytes
		if !call.heldBack { // it stays in waiting, where takeBatch passes over it
			b.withdrawn++
		}
		if b.withdrawn > len(b.waiting)/2 { // their messages would be kept in memory
			b.waiting = slices.DeleteFunc(b.waiting, func(c *sendCall) bool { return len(c.items) == 0 })
			b.withdrawn = 0
		}
	}
	for _, m := range items {
		if m.call == nil {
			continue // it has its result
		}
		m.call, m.stored, m.err = nil, StoredNo, withLast(why, b.lastErr)
		if m.batch != nil {
			m.stored = m.batch.withdraw()
		}
	}
}

// flushInline makes the first attempt at a batch in the goroutine of the send, whose context is ctx. Another goroutine
// does the rest.
func (b *batcher) flushInline(ctx context.Context, batch *batch) {
	if !isShared(ctx) {
		ctx = context.Background() // it has no end
	}
	c := processCallers.take()
	done, forget := b.attempt(ctx, c, batch), b.drawForget()
	if done {
		b.resume(batch)
	}
	if done && !forget && b.endFlush() {
		processCallers.put(c)
		return
	}
	go func() {
		if !done {
			b.sendBatch(c, batch, 2)
		}
		if forget {
			b.forgetCallers()
		}
		b.flush(c)
	}()
}

// flush sends batches until no message waits.
func (b *batcher) flush(c *caller) {
	for !b.endFlush() {
		b.mu.Lock()
		batch := b.takeBatch()
		b.mu.Unlock()
		b.sendBatch(c, batch, 1)
		if b.drawForget() {
			b.forgetCallers()
		}
		runtime.Gosched() // those whose messages are stored may send more: they go first, and share a batch
	}
	processCallers.put(c)
}

// endFlush ends a flush if no message waits, and says whether it did.
func (b *batcher) endFlush() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) > b.withdrawn {
		return false
	}
	clear(b.waiting)
	b.waiting, b.withdrawn = b.waiting[:0], 0
	b.inFlight--
	return true
}

// drawForget draws whether old callers are to be forgotten now.
func (b *batcher) drawForget() bool {
	odds := b.forgetOdds
	if !b.begun.Swap(true) {
		odds = (odds + firstForgetFactor - 1) / firstForgetFactor
	}
	return odds > 0 && rand.N(odds) == 0
}

// forgetCallers has Redis forget old callers. If that fails another process will do it.
func (b *batcher) forgetCallers() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = b.store.forget(ctx)
}

// takeBatch takes the next batch out of the calls that wait, with mu held. A call of which not all messages fit waits
// again behind the others, at once or, if its messages depend on their order, when the batch is done.
func (b *batcher) takeBatch() *batch {
	next := new(batch)
	next.items = next.oneItem[:0]
	taken := 0
	for _, call := range b.waiting {
		added := next.add(call)
		if len(call.items) > 0 { // they do not fit
			if added > 0 && call.ordered {
				next.rest, call.heldBack = call, true
				taken++
			} else if added > 0 {
				b.waiting = append(b.waiting, call)
				taken++
			}
			break
		}
		taken++
		if added > 0 {
			b.waitingBytes -= call.bytes
		} else {
			b.withdrawn--
		}
	}
	b.waiting = slices.Delete(b.waiting, 0, taken)
	next.awaited = len(next.items)
	return next
}
