package produce

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/conc"
	"github.com/go-delayqueue/delayqueue/internal/event"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// This file gathers the messages of concurrent sends into batches; batch.go sends a batch.

// Settings are those of all batchers of a queue or publisher. They do not change during a send.
type Settings struct {
	Events         event.Listeners
	Replicas       int // that confirm each batch
	ReplicaTimeout time.Duration
	OnStored       func(soonest time.Duration) // is told how soon the first of the stored messages is due; nil: none
	ForgetOdds     int                         // after one batch in so many old callers are forgotten; 0: never

	outage   link.Outage // of all shards, because one node has many; safe for concurrent use
	logFound sync.Once   // outage has the log
}

// A Batcher brings the messages of one queue or publisher to Redis. It is safe for concurrent use.
type Batcher struct {
	*Settings
	Store *script.Store // of all messages, unless there are targets; does not change

	begun      atomic.Bool // an attempt has been made
	unevenOnce sync.Once   // that widths differ was said

	mu           sync.Mutex  // guards the fields below, and those of calls, items and batches that say so
	waiting      []*SendCall // in the order of their turns; some may be withdrawn
	withdrawn    int         // at least so many of waiting are
	waitingBytes int         // of the calls that wait and are not withdrawn
	inFlight     int         // batches, or goroutines that flush
	lastErr      error       // of the last attempt, if that failed
	targets      []*target   // does not change; nil: Store
	turn         int         // of targets, for the next batch
	takenAt      time.Time   // when the last batch for a target was made up
}

const (
	// maxInFlight is how many batches are in flight at a time: one is on the wire while the next is made up.
	maxInFlight = 2
	// sendBytes is where a batch stops growing: Redis does nothing else while it copies a batch into a script and
	// out again. A larger message goes alone.
	sendBytes = script.MaxBatchBytes / 2
	// maxWaiting and maxWaitingBytes are how many calls may wait, and how many bytes. A call for many messages
	// counts for sendBytes at most. Later calls get ErrTooManyWaiting.
	maxWaiting      = 100_000
	maxWaitingBytes = 256 << 20
	// inlineBytes is how much a send flushes in its own goroutine, which waits for the attempt.
	inlineBytes = 64 << 10
	// DefaultForgetOdds are the ForgetOdds of a batcher. Forgetting looks at a hundred fields of state. Each queue of a
	// process leaves few callers behind, most of them after its first batch. So forgetting is firstForgetFactor times as
	// likely after the first batch.
	DefaultForgetOdds = 10_000
	firstForgetFactor = 1000
)

// ErrTooManyWaiting means that maxWaiting calls wait, or calls with maxWaitingBytes.
var ErrTooManyWaiting = errors.New("too many sends are waiting")

// NoContextTimeout is how long a call without a context tries.
const NoContextTimeout = 10 * time.Second

// stored says what is known of a message.
type stored int8

const (
	StoredUnknown stored = iota // it may be in Redis or not
	StoredNo                    // it is not in Redis and never will be
	StoredYes                   // it is in Redis
)

// A BatchItem is one message in the batcher, and its result.
type BatchItem struct {
	script.SendMessage // does not change in the batcher

	// Guarded by Batcher.mu until the call is done.
	call   *SendCall         // nil: the message has its result, or its call is withdrawn
	batch  *batch            // nil: it is in none yet
	Answer script.SendAnswer // zero: there is none
	Stored stored
	Err    error // nil for a message that was refused because of another one, unless too few replicas have that other one
}

// A SendCall is one call of a user, which waits for the results of its messages.
type SendCall struct {
	ctx     context.Context // does not change
	bytes   int             // of its messages, sendBytes at most; does not change in the batcher
	ordered bool            // no message before those ahead of it are done; does not change in the batcher

	// Guarded by Batcher.mu.
	Items    []*BatchItem  // that are in no batch yet; none: the call waits no more, or is withdrawn
	left     int           // items without a result
	heldBack bool          // the items come after others of the call, whose batch is not done
	done     chan struct{} // closes when left is 0; nil: nobody waits for that
}

// Send sends the messages of a call, and returns when all have their results.
func (b *Batcher) Send(ctx context.Context, call *SendCall) {
	items := call.Items
	if ctx.Err() != nil {
		refuse(items, link.Ended(ctx))
		return
	}
	if len(items) == 0 {
		return
	}
	call.ctx, call.left = ctx, len(items)
	for _, m := range items {
		m.call = call
		call.bytes = min(call.bytes+len(m.Text), sendBytes)
		call.ordered = call.ordered || m.Put != nil
	}
	b.mu.Lock()
	if len(b.waiting)-b.withdrawn >= maxWaiting || b.waitingBytes >= maxWaitingBytes {
		last := b.lastErr
		b.mu.Unlock()
		refuse(items, link.WithLast(ErrTooManyWaiting, last))
		return
	}
	b.waiting = append(b.waiting, call)
	b.waitingBytes += call.bytes
	if b.inFlight >= maxInFlight {
		b.mu.Unlock()
		b.wait(call, items)
		return
	}
	b.inFlight++
	if b.outlastsAttempt(ctx) && call.bytes <= inlineBytes {
		batch := b.takeBatch()
		b.mu.Unlock()
		c := script.ProcessCallers.Take()
		b.endInline(c, batch, b.attempt(ctx, c, batch))
	} else {
		b.mu.Unlock()
		go b.flush(script.ProcessCallers.Take())
	}
	b.wait(call, items)
}

// outlastsAttempt says whether a new context lasts as long as an attempt. The wait for a connection of the link does
// not count.
func (b *Batcher) outlastsAttempt(ctx context.Context) bool {
	return ctx.Done() == nil || conc.IsShared(ctx) && b.ReplicaTimeout < NoContextTimeout/4
}

func refuse(items []*BatchItem, err error) {
	for _, m := range items {
		m.Err, m.Stored = err, StoredNo
	}
}

// wait waits for the results of a call's messages, or for the end of its context.
func (b *Batcher) wait(call *SendCall, items []*BatchItem) {
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

// withdraw gives the messages of a call that have no result the error of its context. A message that has not been
// written to a connection never will be. A message that has been written may be stored. Later results are dropped,
// because the user owns the results from here on.
func (b *Batcher) withdraw(call *SendCall, items []*BatchItem) {
	why := link.Ended(call.ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	if call.left == 0 {
		return
	}
	if len(call.Items) > 0 {
		call.Items = nil
		b.waitingBytes -= call.bytes
		if !call.heldBack { // the call stays in waiting, where takeBatch passes over it
			b.withdrawn++
		}
		if b.withdrawn > len(b.waiting)/2 { // otherwise their messages would be kept in memory
			b.waiting = slices.DeleteFunc(b.waiting, func(c *SendCall) bool { return len(c.Items) == 0 })
			b.withdrawn = 0
		}
	}
	for _, m := range items {
		if m.call == nil {
			continue // it has its result
		}
		m.call, m.Stored, m.Err = nil, StoredNo, link.WithLast(why, b.lastErr)
		if m.batch != nil {
			if m.batch.lastErr != nil { // others may have got through since, to other shards
				m.Err = link.WithLast(why, m.batch.lastErr)
			}
			m.Stored = m.batch.withdraw()
		}
	}
}

// endInline follows the first attempt at a batch, which was made in the goroutine of the send. A goroutine of its own
// does the rest.
func (b *Batcher) endInline(c *script.Caller, batch *batch, done bool) {
	if done {
		if b.finish(batch); b.endFlush() {
			script.ProcessCallers.Put(c)
			return
		}
	}
	go func() {
		if !done {
			b.sendBatch(c, batch, 2)
		}
		b.flush(c)
	}()
}

// flush sends batches until no message waits.
func (b *Batcher) flush(c *script.Caller) {
	for !b.endFlush() {
		b.mu.Lock()
		batch := b.takeBatch()
		b.mu.Unlock()
		b.sendBatch(c, batch, 1)
		runtime.Gosched() // senders whose messages are stored may send more, and share the next batch
	}
	script.ProcessCallers.Put(c)
}

// endFlush ends a flush if no message waits, and says whether it did.
func (b *Batcher) endFlush() bool {
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
func (b *Batcher) drawForget() bool {
	odds := b.ForgetOdds
	if !b.begun.Swap(true) {
		odds = (odds + firstForgetFactor - 1) / firstForgetFactor
	}
	return odds > 0 && rand.N(odds) == 0
}

// forgetCallers has a shard forget old callers. If the call fails, another process will make it.
func forgetCallers(of *script.Store) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = of.Forget(ctx)
}

// takeBatch takes the next batch out of the calls that wait, with mu held. If not all messages of a call fit, the
// call waits again behind the others: at once or, if its messages depend on their order, when the batch is done.
func (b *Batcher) takeBatch() *batch {
	next := new(batch)
	next.items = slices.Grow(next.oneItem[:0], min(len(b.waiting), script.MaxBatch))
	taken := 0
	for _, call := range b.waiting {
		added := next.add(call)
		if len(call.Items) > 0 { // they do not fit
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
	if b.targets != nil {
		b.aim(next)
	}
	return next
}
