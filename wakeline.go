package delayqueue

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file has the connections on which queues wait for their wake markers. In the client's pool a blocking call would
// outlive its context, and other calls would lack its connection.

const (
	// maxWakeLines is how many connections the queues share that use one client. In a Cluster each queue has its own, for
	// no call names keys of two slots.
	maxWakeLines = 8
	// wakeBlock is how long one BZPOPMIN waits, and wakeGrace how late its answer may be: then a connection
	// that is half open is noticed.
	wakeBlock = 10 * time.Second
	wakeGrace = 2 * time.Second
	// wakeBrief is wakeBlock where a queue that joins the others cannot interrupt the call, and wakeProbe that of a
	// call that shows whether a key is refused.
	wakeBrief = 100 * time.Millisecond
	wakeProbe = time.Millisecond
	// wakeLinger is how long a line waits, after it has passed on a marker, for the next request of that queue.
	wakeLinger = time.Millisecond
	// wakeAge is how old a connection gets that brings nothing: it may lead to a primary that has been replaced.
	wakeAge = time.Minute
)

// A wakeLine is one connection on which queues wait for their wake markers, with one BZPOPMIN on the keys of all that
// ask. Each call takes one marker at most, and the reply says whose. A queue that asks, or leaves, while a call is under
// way interrupts that.
type wakeLine struct {
	lines    *wakeLines
	changed  signal // there is something to do: somebody asks, or the wait after a refusal is over
	retryNow signal // Redis is back
	ctx      context.Context
	cancel   context.CancelFunc
	ended    chan struct{}  // closes when run has ended
	unblocks sync.WaitGroup // goroutines

	// Guarded by lines.mu.
	listeners   []*wakeListener    // the one that was served last comes last
	call        *wakeCall          // nil: none is under way
	conn        *dedicatedClient   // nil: there is none
	dropped     []*dedicatedClient // whose connections are cut; run closes them
	connectedAt time.Time          // of conn
	id          int64              // of conn at its server; 0: not known, or of no use
	identified  bool               // the server was asked for id
}

// A wakeCall is a call that waits for markers.
type wakeCall struct {
	listeners   []*wakeListener
	wait        time.Duration
	interrupted bool          // somebody sees to that; guarded by lines.mu
	answered    chan struct{} // closes when the call has ended
}

// end ends a line that nobody is on, with lines.mu held.
func (w *wakeLine) end() {
	w.cancel() // ends a dial, and the question who holds the queue
	w.drop()
}

// drop cuts the connection, with lines.mu held. That interrupts a call. run closes the client when the call has ended:
// go-redis complains of a client that is closed while a connection of it comes back.
func (w *wakeLine) drop() {
	if w.conn != nil {
		w.conn.cut()
		w.dropped = append(w.dropped, w.conn)
		w.conn, w.id = nil, 0
	}
}

// closeDropped closes clients that were dropped. The line makes no call meanwhile.
func (w *wakeLine) closeDropped() {
	w.lines.mu.Lock()
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
	for failures := 0; w.await(); {
		err := w.take()
		w.closeDropped()
		if err == nil {
			failures = 0
			continue
		}
		failures++
		wait := wakeBackoff(failures)
		if errors.Is(err, errServerFull) {
			wait = roomBackoff(failures)
		}
		select {
		case <-w.ctx.Done():
		case <-w.retryNow:
			failures = 0
		case <-time.After(wait):
		}
	}
}

// await waits until somebody asks; false means that nobody ever will.
func (w *wakeLine) await() bool {
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
		if !errors.Is(err, errServerFull) || !w.lines.merge(w) {
			w.fail(w.listeners, err)
		}
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
		args = append(args, &l.store.keys.wake)
	}
	cmd := redis.NewZWithKeyCmd(ctx, append(args, call.wait.Seconds())...)
	err = conn.Process(ctx, cmd)
	served, err := w.answered(call, cmd.Val(), err)
	if served != nil {
		w.linger(served)
	}
	return err
}

// begin begins a call for those who ask; nil: nobody does any more. One that is suspect is alone in its call.
func (w *wakeLine) begin() *wakeCall {
	w.lines.mu.Lock()
	defer w.lines.mu.Unlock()
	call, now := &wakeCall{wait: wakeBlock, answered: make(chan struct{})}, time.Now()
	for _, l := range w.listeners {
		if !l.asking || l.resumeAt.After(now) {
			continue
		}
		if l.suspect && len(w.listeners) > 1 {
			call.listeners, call.wait = []*wakeListener{l}, wakeProbe
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

// answered ends a call. It returns whom a marker was passed on to, and an error if the connection does not work.
func (w *wakeLine) answered(call *wakeCall, got *redis.ZWithKey, err error) (served *wakeListener, _ error) {
	w.lines.mu.Lock()
	defer w.lines.mu.Unlock()
	defer close(call.answered)
	w.call = nil
	here := slices.DeleteFunc(call.listeners, func(l *wakeListener) bool { return l.line != w }) // who has left has the alarm set anew
	switch {
	case w.ctx.Err() != nil:
		return nil, nil
	case err == nil || errors.Is(err, redis.Nil):
		for _, l := range here {
			l.answered.Add(1)
			l.suspect, l.refusals = false, 0
			if served == nil && err == nil && l.store.keys.wake == got.Key {
				served = l
			}
		}
		if err != nil && time.Since(w.connectedAt) > wakeAge {
			w.drop()
		}
		if served != nil {
			served.asking = false
			served.taken <- serverTime(got.Score) // whole us, which a double holds
			w.listeners = append(slices.DeleteFunc(w.listeners, func(l *wakeListener) bool { return l == served }), served)
		}
		return served, nil
	case !refusesBlocking(err) && !says(err, "WRONGTYPE"):
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

// fail tells those who ask that the connection does not work, and closes it, with lines.mu held.
func (w *wakeLine) fail(listeners []*wakeListener, err error) {
	w.drop()
	for _, l := range listeners {
		if l.asking {
			l.fail(err)
		}
	}
}

// linger waits a moment for the next request of one that was served: else that would interrupt the next call at once.
func (w *wakeLine) linger(served *wakeListener) {
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
func (w *wakeLine) dial() (*dedicatedClient, error) {
	w.lines.mu.Lock()
	conn, listeners := w.conn, slices.Clone(w.listeners)
	identify := len(listeners) > 1 && !w.lines.noUnblock // who is alone has nobody who would interrupt a call
	done := conn != nil && (w.identified || !identify)
	w.lines.mu.Unlock()
	if len(listeners) == 0 || done {
		return conn, nil
	}
	ctx, cancel := context.WithTimeout(w.ctx, attemptTimeout)
	defer cancel()
	if conn == nil {
		var err error
		if conn, err = listeners[0].store.dedicated(ctx); err != nil {
			return nil, err
		}
		w.keep(conn)
	}
	// The first call makes the connection, which must take less time than BZPOPMIN may.
	var id int64
	var err error
	if !identify {
		err = conn.Time(ctx).Err()
	} else if id, err = conn.ClientID(ctx).Result(); !listeners[0].store.link.oneServerSince(time.Now()) {
		id = 0
	}
	if err != nil && answerOf(err) == "" {
		return nil, err
	}
	w.lines.mu.Lock()
	defer w.lines.mu.Unlock()
	w.lines.noUnblock = w.lines.noUnblock || identify && refusesCommand(err)
	if w.conn != conn {
		return conn, nil
	}
	if w.id, w.identified = id, identify; w.connectedAt.IsZero() {
		w.connectedAt = time.Now()
	}
	return conn, nil
}

// keep notes a new connection, so that whoever ends the line closes it.
func (w *wakeLine) keep(conn *dedicatedClient) {
	w.lines.mu.Lock()
	defer w.lines.mu.Unlock()
	w.conn, w.id, w.identified, w.connectedAt = conn, 0, false, time.Time{}
	if w.ctx.Err() != nil { // the last one has left, and may have seen none
		w.drop()
	}
}

// refusesCommand reports whether a server answered that it does not offer a command, or not to this user.
func refusesCommand(err error) bool {
	return answerOf(err) != "" && !transient(err) && !says(err, "NOAUTH", "WRONGPASS")
}

// interrupt sees to it that the call ends, with lines.mu held. s is of whoever wants that.
func (w *wakeLine) interrupt(s *store) {
	if call := w.call; call.wait == wakeBlock && !call.interrupted {
		call.interrupted = true
		id, connectedAt := w.id, w.connectedAt
		w.unblocks.Go(func() { w.unblock(s, call, id, connectedAt) })
	}
}

// unblockTries is how often CLIENT UNBLOCK is called: it does nothing while the call is still on its way.
const unblockTries = 5

// unblock ends a call by CLIENT UNBLOCK, or by closing the connection.
func (w *wakeLine) unblock(s *store, call *wakeCall, id int64, connectedAt time.Time) {
	for n := 1; n <= unblockTries && id != 0; n++ {
		err := s.unblock(silenceCtx{w.ctx}, id, connectedAt)
		if errors.Is(err, errOtherServer) {
			break
		}
		if refusesCommand(err) {
			w.lines.cannotUnblock()
			break
		}
		select {
		case <-call.answered:
			return
		case <-w.ctx.Done():
			return
		case <-time.After(backoff(n)):
		}
	}
	w.dropIn(call)
}
