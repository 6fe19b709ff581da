package delayqueue

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// This file carries messages to Redis. Concurrent sends share script calls: who finds a flight on the ground
// leaves with it at once, in his own goroutine if he has time; who comes while all are under way goes with the next.

// flights are the script calls that carry the messages of one queue or publisher, and those who wait for them.
// It is safe for concurrent use.
type flights struct {
	sendMu  sync.Mutex
	waiting []*sendCall // in turn; some may be gone
	gone    int         // how many of those, at least
	weight  int         // of those that wait
	flying  int         // flights under way
	trouble error       // of the last attempt, if that failed
	outage  *outage     // nil: none that anybody noticed
	forgets int         // one call in so many is followed by forgetting old callers; 0: none
	begun   atomic.Bool // there has been one
}

const (
	// maxFlights is how many script calls carry messages at a time: one is on the wire while the
	// next is made up.
	maxFlights = 2
	// sendBytes is where a batch stops growing: copying it into a script and out again holds the server for longer than
	// anything else that it is asked for. One larger message goes alone.
	sendBytes = maxBatchBytes / 2
	// maxWaiting and maxWaitingBytes are how many calls may wait for a flight, and how many bytes, of which a
	// call for many counts as one script call at most. Who comes later gets ErrTooManyWaiting.
	maxWaiting      = 100_000
	maxWaitingBytes = 256 << 20
	// ownBytes is how much a caller carries in his own goroutine, which is held up for an attempt.
	ownBytes = 64 << 10
	// forgets is that of flights. Forgetting looks at a hundred fields of state, where each queue of a process leaves a
	// few callers in all, so it is as much more likely after a queue's first call.
	forgets, forgetsFirst = 10_000, 1000
)

// outgoing is a message on its way to Redis.
type outgoing struct {
	sendMessage

	// From here on guarded by flights.sendMu until the call is done.
	call   *sendCall // nil: it has its outcome, or its caller has left
	batch  *batch    // nil: it waits
	due    time.Time
	stored Stored
	err    error
}

// sendCall is one call of a user, with the messages that it waits for. All but ctx is
// guarded by flights.sendMu.
type sendCall struct {
	ctx    context.Context
	msgs   []*outgoing // that wait for a flight
	weight int
	left   int           // messages without an outcome
	done   chan struct{} // nil: nobody waits for it
}

// A lone is all that the call for one message needs, in one piece of memory.
type lone struct {
	draft draft
	msg   outgoing
	call  sendCall
	msgs  [1]*outgoing
}

func newLone() *lone {
	l := new(lone)
	l.msgs[0] = &l.msg
	l.call.msgs = l.msgs[:]
	return l
}

// deliver sends the messages of one call and waits for their outcomes, or for ctx.
func (s *sending) deliver(ctx context.Context, call *sendCall) {
	msgs := call.msgs
	if err := ended(ctx); err != nil {
		refuse(msgs, err)
		return
	}
	if len(msgs) == 0 {
		return
	}
	call.ctx, call.left = ctx, len(msgs)
	for _, m := range msgs {
		m.call = call
		call.weight = min(call.weight+len(m.text), sendBytes)
	}
	s.sendMu.Lock()
	if len(s.waiting)-s.gone >= maxWaiting || s.weight >= maxWaitingBytes {
		trouble := s.trouble
		s.sendMu.Unlock()
		refuse(msgs, withLast(ErrTooManyWaiting, trouble))
		return
	}
	s.waiting = append(s.waiting, call)
	s.weight += call.weight
	if s.flying == maxFlights {
		s.sendMu.Unlock()
		s.await(call, msgs)
		return
	}
	s.flying++
	if s.patient(ctx) && call.weight <= ownBytes {
		b := s.board()
		s.sendMu.Unlock()
		s.lift(b)
	} else {
		s.sendMu.Unlock()
		go s.fly(processCallers.take())
	}
	s.await(call, msgs)
}

// patient says whether who waits with this context has the time of an attempt, whatever happens.
func (s *sending) patient(ctx context.Context) bool { return ctx.Done() == nil || s.timeout.mine(ctx) }

func refuse(msgs []*outgoing, err error) {
	for _, m := range msgs {
		m.err, m.stored = err, StoredNo
	}
}

// await waits for the outcomes of a call's messages, or for its context.
func (s *sending) await(call *sendCall, msgs []*outgoing) {
	s.sendMu.Lock()
	if call.left == 0 {
		s.sendMu.Unlock()
		return
	}
	done := make(chan struct{})
	call.done = done
	s.sendMu.Unlock()
	select {
	case <-done:
	case <-call.ctx.Done():
		s.leave(call, msgs)
	}
}

// leave gives up waiting. What has not been written to a connection never will be; of what has, nobody knows.
// Outcomes that come later are dropped, for the user owns the results from here on.
func (s *sending) leave(call *sendCall, msgs []*outgoing) {
	why := ended(call.ctx)
	s.sendMu.Lock()
	defer s.sendMu.Unlock()
	if call.left == 0 {
		return
	}
	if len(call.msgs) > 0 { // it is passed over where it waits
		call.msgs = nil
		s.weight -= call.weight
		s.gone++
		if s.gone > 1000 && s.gone > len(s.waiting)/2 {
			s.waiting = slices.DeleteFunc(s.waiting, func(c *sendCall) bool { return len(c.msgs) == 0 })
			s.gone = 0
		}
	}
	for _, m := range msgs {
		if m.call == nil {
			continue // it has its outcome
		}
		m.call, m.stored, m.err = nil, StoredNo, withLast(why, s.trouble)
		if b := m.batch; b != nil {
			if b.reached || b.gate != nil && !b.gate.close() {
				m.stored = StoredUnknown
			}
			b.staying--
			if b.staying == 0 && b.empty != nil {
				close(b.empty)
			}
		}
	}
}

// lift makes the first attempt for a batch, for its caller to come back from; what is left to do is
// another goroutine's.
func (s *sending) lift(b *batch) {
	c := processCallers.take()
	over, forget := s.attempt(c, b, 1), s.forgetful()
	if over && !forget && s.landed() {
		processCallers.put(c)
		return
	}
	go func() {
		if !over {
			s.carry(c, b, 2)
		}
		if forget {
			s.forget()
		}
		s.fly(c)
	}()
}

// forgetful says whether it is time to forget old callers. What leaves one is the first call of a process, most of all.
func (s *sending) forgetful() bool {
	odds := s.forgets
	if !s.begun.Swap(true) {
		odds = (odds + forgetsFirst - 1) / forgetsFirst
	}
	return odds > 0 && rand.N(odds) == 0
}

// forget forgets old callers. If that fails somebody else will.
func (s *sending) forget() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _ = s.store.forget(ctx)
}

// landed ends a flight if nobody waits for it.
func (s *sending) landed() bool {
	s.sendMu.Lock()
	defer s.sendMu.Unlock()
	if len(s.waiting) > s.gone {
		return false
	}
	s.waiting, s.gone = s.waiting[:0], 0
	s.flying--
	return true
}

// fly carries waiting messages to Redis until there are none.
func (s *sending) fly(c *caller) {
	for !s.landed() {
		s.sendMu.Lock()
		b := s.board()
		s.sendMu.Unlock()
		s.carry(c, b, 1)
		if s.forgetful() {
			s.forget()
		}
		runtime.Gosched() // those whose messages have landed may have more: they go first, and go together
	}
	processCallers.put(c)
}

// next takes the first call off those that wait, with sendMu held.
func (s *sending) next() {
	s.waiting[0] = nil
	if len(s.waiting) == 1 {
		s.waiting = s.waiting[:0] // its room is used again
		return
	}
	s.waiting = s.waiting[1:]
}

// board takes the next batch out of those that wait, with sendMu held. A call for many that does not fit goes
// on after those behind it.
func (s *sending) board() *batch {
	b, size := new(batch), 0
	b.msgs = b.one[:0]
	for len(s.waiting) > 0 {
		call := s.waiting[0]
		n := 0
		for n < len(call.msgs) && len(b.msgs)+n < maxBatch && (len(b.msgs)+n == 0 || size+len(call.msgs[n].text) <= sendBytes) {
			size += len(call.msgs[n].text)
			call.msgs[n].batch = b
			n++
		}
		if n > 0 {
			b.msgs = append(b.msgs, call.msgs[:n]...)
		}
		full := n < len(call.msgs)
		call.msgs = call.msgs[n:]
		if full && n == 0 {
			break
		}
		s.next()
		switch {
		case full:
			s.waiting = append(s.waiting, call)
		case n > 0:
			s.weight -= call.weight
		default:
			s.gone--
		}
		if full {
			break
		}
	}
	b.staying = len(b.msgs)
	return b
}
