package delayqueue

import (
	"log/slog"
	"math/rand/v2"
	"time"
)

// room is how many deliveries to ask for now: one for each free worker, plus what all of
// them get through in a round trip, twice, so that the buffer lasts while the next
// fetch is under way. For handlers that are slow against the network, or against the time
// that a message may wait in the buffer, that is nothing.
func (r *run) room(rtt time.Duration) int {
	n := int(r.workers.Load())
	if n == 0 {
		return 0
	}
	if r.base.Err() != nil {
		return 0 // no handler could do anything
	}
	if r.maxBytes > 0 && int(r.heldBytes.Load()) >= r.maxBytes {
		return 0
	}
	extra := 0
	if each := r.perMsg.Load(); each > 0 && each < int64(bufferPatience/2) {
		extra = int(min(int64(n)*int64(rtt)/each, maxBatch/2))
	}
	unhandled := int(r.unhandled.Load())
	if unhandled >= n+extra {
		return 0
	}
	room := n + 2*extra - unhandled
	room = min(room, n+4*maxBatch-int(r.unsettled.Load()))
	if r.fetchLimit > 0 {
		room = min(room, r.fetchLimit-int(r.unsettled.Load()))
	}
	return max(min(room, maxBatch), 0)
}

// loop fetches while there is work, and else waits for the next instant.
func (r *run) loop() {
	l := looper{run: r, tick: min(r.fetchInterval, r.lease/3), wake: time.NewTimer(0), blocking: true}
	defer l.wake.Stop()
	l.look(false)
	for !r.stopping() {
		l.wait()
	}
	r.empty()
}

// empty releases what no worker has started.
func (r *run) empty() {
	for _, d := range r.buffer.all() {
		r.release(d)
	}
}

// handBack sets the alarm for others, for this run may have taken a marker that it will not
// serve, or the connection that was just closed had one on it. Without Redis others have
// their tick.
//
// Twice: while the server has not seen yet that the listener's connection is closed, it may give
// the marker to that. When it has answered the first call it has.
func (r *run) handBack() {
	for _, rearm := range []bool{false, true} {
		if !r.outage.over() {
			return
		}
		got, asked, err := r.fetch(ask{rearm: rearm, says: sayLeaving})
		if err != nil {
			return
		}
		r.accept(&got, asked, time.Now())
	}
}

// looper is the state of loop.
type looper struct {
	*run
	tick     time.Duration
	wake     *time.Timer
	blocking bool  // the listener works
	asked    bool  // the listener is at it
	drops    int   // how often its connection failed since it last worked
	worked   int64 // listener.worked, as it was then

	nextLook time.Time     // the tick
	rtt      time.Duration // of fetches, a moving average
	more     bool          // more is due now, or may be
	hold     int64         // instant (server's, unix us) that this run serves: it took the marker; 0: none
	server   int64         // server's clock, unix us, …
	local    time.Time     // … at this instant here
}

// until is how long it is until an instant of the server's clock; the clocks are compared
// only to wait, and the server decides again what is due.
func (l *looper) until(instant int64) time.Duration {
	return max(microseconds(max(instant, 0)-l.server), 0) - time.Since(l.local)
}

// wait lets one thing happen.
func (l *looper) wait() {
	room := l.room(l.rtt)
	if room > 0 && l.more {
		l.look(false)
		return
	}
	if room > 0 && l.blocking && !l.asked {
		l.asked = true
		l.listen.ask <- struct{}{}
	}
	if room == 0 && l.hold != 0 && l.blocking {
		l.look(true) // it has no worker for the instant: the alarm is for another
		return
	}
	pause := time.Until(l.nextLook)
	if l.hold != 0 && room > 0 {
		pause = min(pause, l.until(l.hold))
	}
	waiting, waits := l.buffer.first()
	if waits {
		pause = min(pause, time.Until(waiting.fetched.Add(bufferPatience)))
	}
	l.wake.Reset(max(pause, 0))
	select {
	case <-l.quit:
	case <-l.free:
	case <-l.wake.C:
		if waiting, waits = l.buffer.first(); waits && time.Since(waiting.fetched) >= bufferPatience {
			l.perMsg.Store(int64(bufferPatience)) // handlers are slow now: no fetching ahead
			l.empty()
		}
		if !time.Now().Before(l.nextLook) || l.hold != 0 && l.until(l.hold) <= 0 {
			l.look(false)
		}
	case l.hold = <-l.listen.rung: // whatever was held before: the marker taken last is the latest word
		l.asked = false
		l.hear(true, nil)
	case err := <-l.listen.lost:
		l.look(true)
		if !movedOn(err) {
			l.drops++
		}
		if l.drops >= deafAfter { // although fetches go through
			l.hear(false, err)
		}
	case err := <-l.listen.off:
		l.hear(false, err)
		l.look(false)
	case <-l.hints.rung:
		if at := l.hints.take(); !at.IsZero() && !l.blocking {
			instant := l.server + at.Sub(l.local).Microseconds()
			if l.hold == 0 || instant < l.hold {
				l.hold = instant
			}
		}
	}
}

// deafAfter is how often in a row the listener may fail while fetches go through.
const deafAfter = 5

// hear notes whether there are wake-ups from Redis, and says so when that changes.
func (l *looper) hear(works bool, err error) {
	if works == l.blocking {
		return
	}
	l.blocking = works
	l.deaf.Store(!works)
	if works {
		l.log.Info("delayqueue: wake-ups work again")
	} else {
		l.log.Warn("delayqueue: cannot wait for wake-ups: messages that other processes send are seen at the next look",
			slog.Duration("interval", l.tick), slog.Any("error", err))
	}
}

// look fetches once: the tick.
func (l *looper) look(rearm bool) {
	want, begun := l.room(l.rtt), time.Now()
	got, asked, err := l.fetch(ask{want: want, rearm: rearm, says: l.says(time.Now())})
	now := time.Now()
	l.nextLook = now.Add(l.tick - rand.N(l.tick/8+1)) // so that consumers do not fall into step
	if err != nil {
		return // stopping
	}
	if worked := l.listen.worked.Load(); worked != l.worked {
		l.worked, l.drops = worked, 0
		l.hear(true, nil)
	}
	if asked.Sub(begun) > outageAfter { // the listener's connection may have suffered from the same
		l.drops = 0
		l.listen.retry()
	}
	if l.blocking && l.asked && !rearm && l.hold == 0 && !l.more && l.unheard(&got) {
		l.listen.drop()
	}
	rtt := now.Sub(asked)
	if l.rtt == 0 {
		l.rtt = rtt
	}
	l.rtt += (rtt - l.rtt) / 8
	l.server, l.local = got.now, asked.Add(rtt/2)
	l.more = got.next != 0 && got.next <= got.now
	switch {
	case !l.blocking:
		l.hold = got.next
	case rearm:
		l.hold = 0
	case got.next != l.hold:
		l.hold = 0 // served, or superseded by a marker that another takes
	}
	l.accept(&got, asked, now)
}

// lateAfter is how late a message is that no wake-up came for.
const lateAfter = 100 * time.Millisecond

// unheard says whether a fetch brought a message that came due since the last one, and that should have woken
// somebody: the listener's connection may lead to a server that has been replaced.
func (l *looper) unheard(got *fetched) bool {
	for _, text := range got.envelopes {
		e, err := decodeEnvelope(text)
		if err == nil && e.due > l.server && e.due < got.now-lateAfter.Microseconds() {
			return true
		}
	}
	return false
}
