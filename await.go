package delayqueue

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/conc"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// A Result is what became of a message.
type Result struct {
	ID    string
	State State     // StateDone or StateGarbage
	Value string    // done: the result of the acked delivery (SetResult); "" if there is none
	Err   string    // garbage, or superseded: its last error, which may be of an earlier delivery; "" if it has none
	At    time.Time // when it was acked, became garbage, or ended because it was superseded, by the server's clock

	superseded bool // Await and Call return ErrSuperseded beside it
}

// ErrSuperseded: the message has ended and was not handled well. Another send took its key while it was handled
// (Replace, Reschedule), and then its handler failed, was cut short, or wanted it again: see Conflict. The Result
// beside the error has the message's last error, and so has the text of ErrSuperseded.
var ErrSuperseded = errors.New(
	"superseded: another send took the key of the message while it was handled, and its handler did not succeed")

// ErrNoResult: the message is nowhere. It was acked or superseded and was not kept (WithRetention), or is not kept
// any longer, or was taken out, or this queue never had it, or there is no queue of this name and prefix.
var ErrNoResult = errors.New(
	"no result: the message is gone, and was not kept (WithRetention) or is not kept any longer")

// Await waits until a message is done or garbage, and returns what became of it. Either may have happened long
// before. If the message is nowhere, Await returns ErrNoResult at once. A message that is not kept after its ack (no
// WithRetention) is waited for until it is acked. Any number of callers may await a message.
//
// If the message is garbage, the Result says so, and there is no error. If the message is kept, and was superseded
// and not handled well, there is a Result and ErrSuperseded.
//
// Await looks at Redis at once, and then again and again until the message has ended. The time between two looks is
// an eighth of the time that the call has waited, at least 5 ms and at most a second. The answer may be that late.
// While Redis cannot be reached, Await goes on until ctx ends.
//
// All messages that are awaited with one DelayQueue, Publisher or Monitor are looked at together, up to 500 in a
// round trip, and those of each shard by themselves. That costs Redis about 4 us for each. There are at most 200 such
// round trips a second, and one for a new call. So 1,000 messages that took a second each cost 60 round trips in all,
// and the answers came 57 ms after the acks.
//
// A handler that awaits a message of its own queue takes a worker away from that message.
func (s *steerer) Await(ctx context.Context, id string) (*Result, error) {
	s.made()
	r, err := s.await(ctx, id, 0)
	if no := script.NoID("id", id); no != nil && errors.Is(err, ErrNoResult) {
		err = fmt.Errorf("%w: %w", ErrNoResult, no)
	}
	return r, s.failed(err, "await %s", id) // with an error r is nil but for ErrSuperseded
}

// failed is the error of a message that was superseded; nil for all others.
func (r *Result) failed() error {
	switch {
	case !r.superseded:
		return nil
	case r.Err == "":
		return ErrSuperseded
	}
	return fmt.Errorf("%w: %s", ErrSuperseded, r.Err)
}

// callRetention is how long the message of a Call is kept when it is done. It is long enough because the caller looks
// each second.
const callRetention = time.Minute

// Call sends a message as Send does, and waits for its end as Await does. Without WithRetention the message is kept
// for a minute after its ack, also after its result was read. If this caller cannot reach Redis for longer, the
// result is lost. At the limit of WithDoneLimit, a result may be deleted before the caller has looked. Both are
// ErrNoResult.
//
// If the key of the message is taken (Keep, Reschedule, Append), Call waits for the message that has the key. The
// sender of that message has set whether its result is kept. If not, the error is ErrNoResult. If that message was
// acked before this call, which its key hold shows, the State of the Result is StateDone beside the error.
//
// If an error comes after the message was sent, the Result has the ID, for an Await later. The message is
// handled whether anybody waits or not. With ErrSuperseded the Result is complete, because there is nothing more to
// wait for. A message that too few replicas confirmed (WithReplicaAck) is waited for, too. If that wait fails,
// ErrNotReplicated is in the error.
func (p *producer) Call(ctx context.Context, payload string, opts ...MsgOption) (*Result, error) {
	info, err := p.Send(ctx, payload, append([]MsgOption{WithRetention(callRetention)}, opts...)...)
	if err != nil && info == nil { // one that too few replicas have is handled all the same
		return nil, err
	}
	r, failed := p.await(ctx, info.ID, minLook)
	if failed == nil {
		return r, nil
	}
	if r == nil {
		r = &Result{ID: info.ID}
	}
	if errors.Is(failed, ErrNoResult) && info.Existed {
		why := "of the message that had the key"
		if info.Due.IsZero() {
			r.State, why = StateDone, "of the message that keeps the key, which was handled before"
		}
		failed = fmt.Errorf("%s: %w", why, failed)
	}
	return r, errors.Join(p.failed(failed, "call %s", info.ID), err)
}

const (
	minLook  = 5 * time.Millisecond
	maxLook  = time.Second
	lookPart = 8 // the next look comes after an 8th of the time that was waited

	retryLook = 100 * time.Millisecond // after an error
)

// await waits for a message. The first look comes after the time after.
func (s *steerer) await(ctx context.Context, id string, after time.Duration) (*Result, error) {
	var store *script.Store
	if err := link.Repeat(ctx, func() (err error) {
		store, err = s.store.By(ctx, "id", id)
		return err
	}); err != nil {
		return nil, err
	}
	l, _ := s.lookers.LoadOrStore(store, new(looker))
	return l.(*looker).await(ctx, store, id, after)
}

// A looker looks for the awaited messages of one shard, in one goroutine that runs as long as there are any.
type looker struct {
	mu      sync.Mutex // guards the fields below
	waiting lookQueue
	n       int                // how many are awaited; waiting may have more, which nobody waits for any longer
	end     context.CancelFunc // of the goroutine; nil: there is none
	sooner  conc.Signal        // the first of waiting has changed
	lastErr error              // of the last look, if that failed
}

// awaited is one wait for a message.
type awaited struct {
	id    string
	begun time.Time
	next  time.Time // when to look

	answered chan struct{} // closed when it is answered, and nobody waits any more; looker.mu guards what follows
	result   *Result
	err      error
}

func (l *looker) await(ctx context.Context, s *script.Store, id string, after time.Duration) (*Result, error) {
	now := time.Now()
	a := &awaited{id: id, begun: now, next: now.Add(after), answered: make(chan struct{})}
	l.add(a, s)
	select {
	case <-a.answered:
	case <-ctx.Done():
		l.mu.Lock()
		last := l.lastErr
		l.mu.Unlock()
		l.answer(a, nil, link.WithLast(link.Ended(ctx), last)) // unless it is answered by now
	}
	return a.result, a.err
}

func (l *looker) add(a *awaited, s *script.Store) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n++
	heap.Push(&l.waiting, a)
	if l.end != nil {
		l.sooner.Send()
		return
	}
	var ctx context.Context
	ctx, l.end = context.WithCancel(context.Background())
	l.sooner = conc.NewSignal()
	go l.run(ctx, s, l.sooner)
}

// answer ends one wait. After the last wait the goroutine ends.
func (l *looker) answer(a *awaited, r *Result, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if conc.Closed(a.answered) {
		return
	}
	a.result, a.err = r, err
	close(a.answered)
	if l.n--; l.n == 0 {
		l.end()
		l.end, l.waiting, l.lastErr = nil, nil, nil
	}
}

func (l *looker) run(ctx context.Context, s *script.Store, sooner conc.Signal) {
	for ctx.Err() == nil {
		due, idle := l.due(ctx)
		if len(due) > 0 {
			l.look(ctx, s, due)
			continue
		}
		timer := time.NewTimer(idle)
		select {
		case <-timer.C:
		case <-sooner:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// due takes those to look at now out of waiting, or returns how long there are none.
func (l *looker) due(ctx context.Context) (due []*awaited, idle time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for len(l.waiting) > 0 && len(due) < script.MaxBatch && ctx.Err() == nil {
		first := l.waiting[0]
		if idle = first.next.Sub(now); idle > 0 && len(due) == 0 || idle > minLook {
			break
		}
		if heap.Pop(&l.waiting); !conc.Closed(first.answered) {
			due = append(due, first)
		}
	}
	return due, idle
}

// look asks for awaited messages, and answers those that have ended.
func (l *looker) look(ctx context.Context, s *script.Store, due []*awaited) {
	ids := make([]string, len(due))
	for i, a := range due {
		ids[i] = a.id
	}
	got, err := s.Await(ctx, ids)
	final := err != nil && !link.Transient(err)
	now, least := time.Now(), minLook
	if err != nil {
		least = retryLook
	}
	var again []*awaited
	for i, a := range due {
		switch {
		case final:
			l.answer(a, nil, err)
		case i < len(got) && got[i].Word == script.StateGone:
			l.answer(a, nil, ErrNoResult)
		case i < len(got) && got[i].Word != script.AwaitLive:
			result := resultOf(a.id, &got[i])
			l.answer(a, result, result.failed())
		default:
			again = append(again, a)
			if a.next = now.Add(min(max(now.Sub(a.begun)/lookPart, least), maxLook)); err == nil && i >= len(got) {
				a.next = now // the reply had no room for this message
			}
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if ctx.Err() != nil {
		return // nobody waits for these
	}
	l.lastErr = err
	for _, a := range again {
		heap.Push(&l.waiting, a)
	}
}

// A lookQueue is a heap. The first to be looked at comes first.
type lookQueue []*awaited

func (q lookQueue) Len() int           { return len(q) }
func (q lookQueue) Less(i, j int) bool { return q[i].next.Before(q[j].next) }
func (q lookQueue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *lookQueue) Push(a any)        { *q = append(*q, a.(*awaited)) }
func (q *lookQueue) Pop() any {
	last := len(*q) - 1
	a := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return a
}
