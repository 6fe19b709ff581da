package wake

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/conc"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/redis/go-redis/v9"
)

// This file has the connections on which queues wait for their wake markers. They are not in the client's pool, where
// a blocking call would outlive its context and keep a connection from other calls.

const (
	// maxWakeLines is how many connections the queues of one client share. In a Cluster each queue has a connection of
	// its own, because no call may name keys of two slots.
	maxWakeLines = 8
	// wakeBlock is how long one BZPOPMIN waits.
	wakeBlock = 10 * time.Second
	// In a Cluster there is a call for each queue, so calls wait longer if there are more than wakeCalls, up to
	// longestBlock. An idle process makes that many calls in wakeBlock. longestBlock is less than the minute after which
	// the link gives up a read.
	wakeCalls    = 3
	longestBlock = 50 * time.Second
	// wakeBrief is the wakeBlock of calls that cannot be interrupted, and wakeProbe that of calls that show whether a
	// key is refused. Redis 6.2 takes a millisecond for no time limit at all.
	wakeBrief = 100 * time.Millisecond
	wakeProbe = 10 * time.Millisecond
	// wakeLinger is how long a line waits, after it has passed on a marker, for the next request of the same queue.
	wakeLinger = time.Millisecond
	// wakeAge is how old a connection without markers may get, because it may lead to a primary that has been replaced.
	wakeAge = time.Minute
)

// wakeGrace is how late the answer to a BZPOPMIN may be. So a connection that is half open is noticed. Only tests
// change it.
var wakeGrace = 2 * time.Second

// A wakeLine is one connection on which queues wait for their wake markers, with one BZPOPMIN on the keys of all that
// ask. Each call takes at most one marker, and the reply says of which queue. A queue that asks, or leaves, while a
// call is under way interrupts the call.
type wakeLine struct {
	lines    *wakeLines
	alone    *link.Link  // of its only queue, which is in a Cluster; nil: queues share the line
	changed  conc.Signal // a listener asks, or need not wait after a refusal any more
	retryNow conc.Signal // Redis is back
	ctx      context.Context
	cancel   context.CancelFunc
	ended    chan struct{}  // closes when run has ended
	unblocks sync.WaitGroup // goroutines

	// Guarded by lines.mu.
	listeners   []*WakeListener         // the listener that was served last comes last
	call        *wakeCall               // that is under way; nil: none
	conn        *link.DedicatedClient   // nil: none
	dropped     []*link.DedicatedClient // with connections that are cut; run closes them
	connectedAt time.Time               // of conn, or a moment before
	id          int64                   // of conn at its server; 0: not known, or of no use
}

// A wakeCall is a call that waits for markers.
type wakeCall struct {
	listeners   []*WakeListener
	wait        time.Duration
	interrupted bool          // a goroutine interrupts it; guarded by lines.mu
	answered    chan struct{} // closes when the call has ended
}

// end ends a line without listeners, with lines.mu held.
func (w *wakeLine) end() {
	w.cancel() // ends a dial, and the question who holds the queue
	if w.conn != nil {
		w.conn.HangUp()
	}
}

// drop cuts the connection, with lines.mu held. That interrupts a call. run closes the client when the call has
// ended, because go-redis complains if a connection comes back to a closed client.
func (w *wakeLine) drop() {
	if w.conn != nil {
		w.conn.Cut()
		w.dropped = append(w.dropped, w.conn)
		w.conn, w.id = nil, 0
	}
}

// closeDropped closes clients that were dropped, and the last one if the line has ended. The line makes no call
// meanwhile.
func (w *wakeLine) closeDropped() {
	w.lines.mu.Lock()
	if w.ctx.Err() != nil {
		w.drop()
	}
	dropped := w.dropped
	w.dropped = nil
	w.lines.mu.Unlock()
	for _, conn := range dropped {
		_ = conn.Close() // a connection that is thrown away has nothing to tell
	}
}

// dropIn closes the connection if this call is under way.
func (w *wakeLine) dropIn(call *wakeCall) {
	w.lines.mu.Lock()
	defer w.lines.mu.Unlock()
	if w.call == call {
		w.drop()
	}
}

// run serves requests until the last listener has left.
func (w *wakeLine) run() {
	defer close(w.ended)
	defer w.unblocks.Wait()
	defer w.closeDropped()
	for failures := 0; w.waitForMarker(); {
		err := w.take()
		w.closeDropped()
		if err == nil {
			failures = 0
			continue
		}
		failures++
		select {
		case <-w.ctx.Done():
		case <-w.retryNow:
			failures = 0
		case <-time.After(wakeBackoff(failures)):
		}
	}
}

// waitForMarker waits until a listener asks. false means that none ever will.
func (w *wakeLine) waitForMarker() bool {
	for {
		wait := time.Hour
		w.lines.mu.Lock()
		for _, l := range w.listeners {
			if l.asking {
				wait = min(wait, time.Until(l.resumeAt))
			}
		}
		w.lines.mu.Unlock()
		switch {
		case w.ctx.Err() != nil:
			return false
		case wait <= 0:
			return true
		}
		select {
		case <-w.ctx.Done():
		case <-w.changed:
		case <-time.After(wait):
		}
	}
}

// take makes one call. An error says that the connection does not work.
func (w *wakeLine) take() error {
	conn, err := w.dial()
	if err != nil {
		w.lines.mu.Lock()
		defer w.lines.mu.Unlock()
		w.fail(w.listeners, err)
		return err
	}
	call := w.begin()
	if call == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(w.ctx, call.wait+wakeGrace)
	defer cancel()
	args := make([]any, 0, len(call.listeners)+2)
	args = append(args, "bzpopmin")
	for _, l := range call.listeners {
		args = append(args, &l.store.Keys.Wake)
	}
	cmd := redis.NewZWithKeyCmd(ctx, append(args, call.wait.Seconds())...)
	err = conn.Process(ctx, cmd)
	served, err := w.deliver(call, cmd.Val(), err)
	if served != nil {
		w.linger(served)
	}
	return err
}

// begin begins a call for the listeners that ask, and returns nil if none does any more. A suspect listener is alone
// in its call.
func (w *wakeLine) begin() *wakeCall {
	wait := wakeBlock
	if w.alone != nil {
		wait = min(max(wait, wakeBlock*time.Duration(w.alone.ConsumersNow())/wakeCalls), longestBlock)
	}
	w.lines.mu.Lock()
	defer w.lines.mu.Unlock()
	call, now := &wakeCall{wait: wait, answered: make(chan struct{})}, time.Now()
	for _, l := range w.listeners {
		if !l.asking || l.resumeAt.After(now) {
			continue
		}
		if l.suspect && len(w.listeners) > 1 {
			call.listeners, call.wait = []*WakeListener{l}, wakeProbe
			break
		}
		call.listeners = append(call.listeners, l)
	}
	if len(call.listeners) == 0 || w.conn == nil {
		return nil
	}
	if len(w.listeners) > 1 && (w.id == 0 || w.lines.noUnblock) {
		call.wait = min(call.wait, wakeBrief)
	}
	w.call = call
	return call
}

// deliver ends a call. It returns the listener that got a marker, and an error if the connection does not work.
func (w *wakeLine) deliver(call *wakeCall, got *redis.ZWithKey, err error) (served *WakeListener, _ error) {
	w.lines.mu.Lock()
	defer w.lines.mu.Unlock()
	defer close(call.answered)
	w.call = nil
	here := slices.DeleteFunc(call.listeners, func(l *WakeListener) bool {
		return l.line != w
	}) // a consumer that has left sets the alarm anew
	switch {
	case w.ctx.Err() != nil:
		return nil, nil
	case err == nil || errors.Is(err, redis.Nil):
		for _, l := range here {
			l.Answered.Add(1)
			l.suspect, l.refusals = false, 0
			if served == nil && err == nil && l.store.Keys.Wake == got.Key {
				served = l
			}
		}
		if err != nil && time.Since(w.connectedAt) > wakeAge {
			w.drop()
		}
		if served != nil {
			served.asking = false
			served.Taken <- message.ServerTime(got.Score) // whole us, which a double holds
			w.listeners = append(slices.DeleteFunc(w.listeners, func(l *WakeListener) bool { return l == served }), served)
		}
		return served, nil
	case !refusesBlocking(err) && !link.Says(err, "WRONGTYPE"):
		w.fail(here, err)
		return nil, err
	case len(call.listeners) > 1:
		for _, l := range here {
			l.suspect = true
		}
	default:
		for _, l := range here {
			l.suspect = true
			l.refused(err)
		}
	}
	return nil, nil
}

// fail tells listeners that ask that the connection does not work, and closes it, with lines.mu held.
func (w *wakeLine) fail(listeners []*WakeListener, err error) {
	w.drop()
	for _, l := range listeners {
		if l.asking {
			l.fail(err)
		}
	}
}

// linger waits a moment for the next request of a listener that was served. Otherwise that request would interrupt
// the next call at once.
func (w *wakeLine) linger(served *WakeListener) {
	late := time.NewTimer(wakeLinger)
	defer late.Stop()
	for {
		w.lines.mu.Lock()
		enough := len(w.listeners) == 1 || served.asking || served.line != w
		w.lines.mu.Unlock()
		if enough {
			return
		}
		select {
		case <-w.changed:
		case <-late.C:
			return
		}
	}
}

// dial returns the connection, and makes it if there is none.
func (w *wakeLine) dial() (*link.DedicatedClient, error) {
	w.lines.mu.Lock()
	conn, listeners := w.conn, slices.Clone(w.listeners)
	identify := len(listeners) > 1 && !w.lines.noUnblock // nobody interrupts the calls of a listener that is alone
	done := conn != nil && (w.id != 0 || !identify)
	w.lines.mu.Unlock()
	if len(listeners) == 0 || done {
		return conn, nil
	}
	ctx, cancel := context.WithTimeout(w.ctx, link.AttemptTimeout)
	defer cancel()
	if conn == nil {
		var err error
		if conn, err = listeners[0].store.Dedicated(ctx); err != nil {
			return nil, err
		}
		w.keep(conn)
	}
	// The first call makes the connection, and must end sooner than a BZPOPMIN.
	var id int64
	var err error
	if !identify {
		err = conn.Time(ctx).Err()
	} else {
		id, err = conn.ClientID(ctx).Result()
	}
	if err != nil && link.AnswerOf(err) == "" {
		return nil, err
	}
	w.lines.mu.Lock()
	defer w.lines.mu.Unlock()
	w.lines.noUnblock = w.lines.noUnblock || identify && refusesCommand(err)
	if w.conn == conn {
		w.id = id
	}
	return conn, nil
}

// keep notes a new connection, so that end closes it.
func (w *wakeLine) keep(conn *link.DedicatedClient) {
	w.lines.mu.Lock()
	defer w.lines.mu.Unlock()
	w.conn, w.id, w.connectedAt = conn, 0, time.Now()
	if w.ctx.Err() != nil { // end may have seen no connection
		w.drop()
	}
}

// refusesCommand reports whether a server answered that it does not offer a command, or not to this user.
func refusesCommand(err error) bool {
	return link.AnswerOf(err) != "" && !link.Transient(err) && !link.Says(err, "NOAUTH", "WRONGPASS")
}

// interrupt has the call ended, with lines.mu held. s is the store of the listener that wants it.
func (w *wakeLine) interrupt(s *script.Store) {
	if call := w.call; call.wait >= wakeBlock && !call.interrupted {
		call.interrupted = true
		id := w.id
		w.unblocks.Go(func() { w.unblock(s, call, id) })
	}
}

// unblockTries is how often CLIENT UNBLOCK is called. It does nothing while the call that it shall end is still on
// its way.
const unblockTries = 5

// unblock ends a call by CLIENT UNBLOCK, or by closing the connection.
func (w *wakeLine) unblock(s *script.Store, call *wakeCall, id int64) {
	for n := 1; n <= unblockTries && id != 0; n++ {
		err := s.Unblock(w.ctx, id)
		if refusesCommand(err) {
			w.lines.mu.Lock()
			w.lines.noUnblock = true // calls are brief from now on, because they cannot be interrupted
			w.lines.mu.Unlock()
			break
		}
		select {
		case <-call.answered:
			return
		case <-w.ctx.Done():
			return
		case <-time.After(link.Backoff(n)):
		}
	}
	w.dropIn(call)
}
