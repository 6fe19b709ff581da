package delayqueue

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// A Result is what became of a message.
type Result struct {
	ID    string
	State State     // StateDone or StateGarbage
	Value string    // done: what the handler said whose delivery was acked (SetResult); "" if nothing
	Err   string    // garbage, or superseded: its last error, which may be of an earlier delivery; "" if it has none
	At    time.Time // when it was acked, died, or ended because it was superseded, by the server's clock

	// Superseded: it is done, but was not acked. Another send took its key while it was handled (Replace, Reschedule), and its
	// handler did not return nil, so it ended there: see Conflict. Await and Call return ErrSuperseded beside it.
	Superseded bool
}

// ErrSuperseded: the message has ended and was not handled well. Another send took its key while it was handled (Replace,
// Reschedule), and then its handler failed, was cut short, or wanted it again: see Conflict. The Result beside the error has the
// message's last error, which is in the text of this one, too.
var ErrSuperseded = errors.New("superseded: another send took the key of the message while it was handled, and its handler did not succeed")

// ErrNoResult: the message is nowhere. It was acked or superseded, and not kept (WithRetention), or its time is over, or it was
// taken out, or this queue never had it.
var ErrNoResult = errors.New("no result: the message is gone, and was not kept (WithRetention) or is not kept any longer")

// Await waits until a message is done or garbage, and says what became of it; either may have been long before. It
// returns ErrNoResult as soon as there is nothing to wait for: at once, if the message is nowhere. One that is not kept
// when it is acked (no WithRetention) is waited for as well, until it is acked. Any number of callers may await it.
//
// Of a message that is garbage the Result says so, without an error. Of one that is kept, and was superseded and not handled well,
// there are both, a Result and ErrSuperseded.
//
// It looks at Redis, so there is nothing that it could miss: at once, and then, as long as the message waits or is being
// handled, again and again, each time after an eighth of the time that it has been waiting, at least 5 ms and at most a
// second. That is how late its answer may be. All that is awaited with one DelayQueue, Publisher or Monitor is looked at
// together, up to 500 messages in a round trip, which costs Redis some 4 us for each, and 200 times a second at most but
// for new ones. So 1,000 messages that took a second each cost 60 round trips in all, 30 looks each, and their
// answers came 57 ms after their acks. While Redis cannot be reached it goes on, until ctx ends.
//
// A handler that awaits a message of its own queue keeps a worker from handling it.
func (s *steerer) Await(ctx context.Context, id string) (*Result, error) {
	s.made()
	r, err := s.looker.await(ctx, s.store, id, 0)
	if errors.Is(err, ErrNoResult) && !anID(id) {
		err = fmt.Errorf("%w: %w", ErrNoResult, notFound("id", id))
	}
	if err != nil {
		return r, s.failed(err, "await %s", id) // r is nil but for ErrSuperseded
	}
	return r, nil
}

// Why a Call onto a key that was taken (Keep, Reschedule, Append) has no result. ErrNoResult is in the error, too.
var (
	// ErrHandledBefore: the message that keeps the key (WithKeyHold) was handled before this call, and its result is not kept
	// any longer.
	ErrHandledBefore = errors.New("the message that keeps the key was handled before")
	// ErrOtherMessage: the message that had the key came to its end, or was taken out, and its result is not kept: its own sender
	// says for how long that is (WithRetention).
	ErrOtherMessage = errors.New("another send made the message that had the key, and did not have its result kept so long")
)

// failed is the error of a message that has ended, and is neither acked nor garbage.
func (r *Result) failed() error {
	switch {
	case !r.Superseded:
		return nil
	case r.Err == "":
		return ErrSuperseded
	}
	return fmt.Errorf("%w: %s", ErrSuperseded, r.Err)
}

// callRetention is how long the message of a Call is kept when it is done: the caller looks each second.
const callRetention = time.Minute

// Call sends a message and waits for what becomes of it: Send and Await. Without a WithRetention of its own the message
// is kept for a minute after it is acked: so long may Redis be away from this caller until its result is lost. What was read
// keeps its place for that time, too. Where WithDoneLimit is reached, as is told there, a result may be gone before the caller has
// looked: ErrNoResult.
//
// If the key of the message is taken (Keep, Reschedule, Append), Call waits for the message that has it, whose own sender has
// said whether its result is kept: ErrOtherMessage or ErrHandledBefore if it is not.
//
// An error after the message was sent comes with a Result of which only ID is set, for an Await later: the message is
// handled whether anybody waits or not. With ErrSuperseded the Result is complete: there is nothing more to wait for. A message
// that too few replicas confirmed (WithReplicaAck) is waited for too; if that fails, ErrNotReplicated is in the error.
func (p *producer) Call(ctx context.Context, payload string, opts ...MsgOption) (*Result, error) {
	info, err := p.Send(ctx, payload, append([]MsgOption{WithRetention(callRetention)}, opts...)...)
	if err != nil && info == nil { // one that too few replicas have is handled all the same
		return nil, err
	}
	r, failed := p.looker.await(ctx, p.store, info.ID, minLook)
	if failed == nil {
		return r, nil
	}
	if errors.Is(failed, ErrNoResult) && info.Existed {
		why := ErrOtherMessage
		if info.Due.IsZero() { // it was acked
			why = ErrHandledBefore
		}
		failed = fmt.Errorf("%w: %w", why, failed)
	}
	if r == nil {
		r = &Result{ID: info.ID}
	}
	return r, errors.Join(p.failed(failed, "call %s", info.ID), err)
}

const (
	minLook  = 5 * time.Millisecond
	maxLook  = time.Second
	lookPart = 8 // of the time that was waited

	retryLook = 100 * time.Millisecond // after an error
)

// A looker looks for what is awaited, in one goroutine that is there as long as anything is.
type looker struct {
	mu      sync.Mutex // guards the fields below
	waiting lookQueue
	n       int                // how many are awaited; some more may be in waiting
	end     context.CancelFunc // of the goroutine; nil: there is none
	sooner  signal             // the first of waiting has changed
	lastErr error              // of the last look, if that failed
}

// awaited is one wait for a message.
type awaited struct {
	id     string
	begun  time.Time
	next   time.Time // when to look
	left   bool      // nobody waits any more; guarded by looker.mu
	answer chan awaitAnswer
}

type awaitAnswer struct {
	result *Result
	err    error
}

// await waits for a message, and looks for it first after a while.
func (l *looker) await(ctx context.Context, s *store, id string, after time.Duration) (*Result, error) {
	now := time.Now()
	a := &awaited{id: id, begun: now, next: now.Add(after), answer: make(chan awaitAnswer, 1)}
	l.add(a, s)
	select {
	case got := <-a.answer:
		return got.result, got.err
	case <-ctx.Done():
	}
	l.mu.Lock()
	last := l.lastErr
	l.mu.Unlock()
	l.answer(a, nil, withLast(ended(ctx), last)) // unless it is answered by now
	got := <-a.answer
	return got.result, got.err
}

func (l *looker) add(a *awaited, s *store) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n++
	heap.Push(&l.waiting, a)
	if l.end != nil {
		l.sooner.send()
		return
	}
	var ctx context.Context
	ctx, l.end = context.WithCancel(context.Background())
	l.sooner = newSignal()
	go l.run(ctx, s, l.sooner)
}

// answer ends one wait. After the last one the goroutine ends.
func (l *looker) answer(a *awaited, r *Result, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.left {
		return
	}
	a.left = true
	a.answer <- awaitAnswer{r, err}
	if l.n--; l.n == 0 {
		l.end()
		l.end, l.waiting, l.lastErr = nil, nil, nil
	}
}

func (l *looker) run(ctx context.Context, s *store, sooner signal) {
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

// due takes what is to be looked at now out of waiting, or says how long there is nothing.
func (l *looker) due(ctx context.Context) (due []*awaited, idle time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for len(l.waiting) > 0 && len(due) < maxBatch && ctx.Err() == nil {
		first := l.waiting[0]
		if idle = first.next.Sub(now); idle > 0 && len(due) == 0 || idle > minLook {
			break
		}
		if heap.Pop(&l.waiting); !first.left {
			due = append(due, first)
		}
	}
	return due, idle
}

// look asks for what is awaited, and answers what is not to be waited for any longer.
func (l *looker) look(ctx context.Context, s *store, due []*awaited) {
	ids := make([]string, len(due))
	for i, a := range due {
		ids[i] = a.id
	}
	got, err := s.await(ctx, ids)
	final := err != nil && !transient(err)
	now, least := time.Now(), minLook
	if err != nil {
		least = retryLook
	}
	var again []*awaited
	for i, a := range due {
		switch {
		case final:
			l.answer(a, nil, err)
		case i < len(got) && got[i].State == StateGone:
			l.answer(a, nil, ErrNoResult)
		case i < len(got) && got[i].State != stateLive:
			l.answer(a, &got[i], got[i].failed())
		default:
			again = append(again, a)
			if a.next = now.Add(min(max(now.Sub(a.begun)/lookPart, least), maxLook)); err == nil && i >= len(got) {
				a.next = now // there was no room for it in the reply
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

// A lookQueue is a heap: what is to be looked at first comes first.
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
