package delayqueue

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// A poller fetches deliveries and gives them to the workers. It polls while there is room and something is due, at the
// instants of wake-ups, and at least once in an interval.
type poller struct {
	settings  *settings
	store     *store
	lifecycle *lifecycle
	events    *events
	member    *member
	leases    *leases
	overruns  *overruns
	settler   *settler
	notices   *notices
	wakeUps   *wakeListener

	freed      signal      // sent by workers, those who share them, and leases: there may be room for more
	hints      hints       // put by senders of this process
	wakeUpsOff atomic.Bool // the opposite of state.wakeUps; written by the poller, read by those senders

	// The rest is for the poller's goroutine alone.
	state      pollState
	caller     *caller
	leaveCtx   context.Context // of what passWakeOn asks
	agreed     fetchSettings   // as they hold for all consumers of the queue
	limits     agreedLimits    // that hold for all
	heldAtPoll int             // placesHeld, at the end of the last poll
	replyBytes int             // how many bytes the next fetch asks for
	since      time.Time       // when the consumer started
	presenceAt time.Time       // when it last told of itself
	lookedAt   time.Time       // when it last looked at more than the alarm
	listened   int64           // wakeUps.answered, at the last poll
	seenQueue  bool            // a poll has been answered
	yielding   yielding        // to other users of the server
	dropped    minuteCount     // tags without a message
	newer      minuteCount     // messages of a newer version
}

// pollState is what the poller knows of the queue and of its wake-ups. From that it decides when to poll.
type pollState struct {
	interval  time.Duration // the longest time between two polls, unless the consumer is idle
	idleTicks bool          // it is, and idleInterval is longer
	nextPoll  time.Time     // the latest instant for the next poll
	rtt       time.Duration // of fetches, a moving average; 0: not known yet
	moreDue   bool          // something is due that was not fetched
	pollAt    serverTime    // when to poll: the instant of the marker that was taken; without wake-ups the next known; 0: none
	clock     serverTime    // what Redis's clock said …
	clockAt   time.Time     // … at this instant of this machine's clock

	wakeUps  bool // they work
	waiting  bool // the wake listener is waiting for one
	failures int  // in a row, of its connection, while polls went through
}

// until is how long it is until t. It compares two clocks, which is good enough to know how long to wait: Redis decides
// what is due.
func (s *pollState) until(t serverTime, now time.Time) time.Duration {
	return max(max(t, 0).sub(s.clock), 0) - now.Sub(s.clockAt)
}

// hungry reports whether something is due, as far as is known.
func (s *pollState) hungry(now time.Time) bool {
	return s.moreDue || s.pollAt != 0 && s.until(s.pollAt, now) <= 0
}

// idle is how long there is no reason to poll. open says whether a worker may be free when something is due.
func (s *pollState) idle(now time.Time, open bool) time.Duration {
	d := s.nextPoll.Sub(now)
	if s.pollAt != 0 && open {
		d = min(d, s.until(s.pollAt, now))
	}
	return d
}

// due reports whether it is time to poll.
func (s *pollState) due(now time.Time) bool { return s.idle(now, true) <= 0 }

// answered notes what the answer to a poll says of the queue. With rearm the poll has set the alarm for other consumers.
func (s *pollState) answered(clock, next serverTime, rearm bool, sentAt, answeredAt time.Time) {
	rtt := answeredAt.Sub(sentAt)
	if s.rtt == 0 {
		s.rtt = rtt
	}
	s.rtt += (rtt - s.rtt) / 8
	s.clock, s.clockAt = clock, sentAt.Add(rtt/2)
	s.moreDue = next != 0 && next <= clock
	if !s.wakeUps {
		s.pollAt = next
	} else if rearm || next != s.pollAt {
		s.pollAt = 0 // handed on, served, or superseded by a marker that another takes
	}
}

// hinted notes when a message is due that this process sent. With wake-ups that is not needed.
func (s *pollState) hinted(at time.Time) {
	if s.wakeUps {
		return
	}
	due := s.clock + serverTime(at.Sub(s.clockAt).Microseconds())
	if s.pollAt == 0 || due < s.pollAt {
		s.pollAt = due
	}
}

// missedWakeAfter is how late a message must be for its wake-up to count as missed.
const missedWakeAfter = 100 * time.Millisecond

// missedWake reports whether a fetch brought a message that came due since the last one and should have caused a
// wake-up. Then the wake listener's connection may lead to a server that has been replaced.
func (s *pollState) missedWake(envelopes []string, clock serverTime) bool {
	for _, text := range envelopes {
		e, err := decodeEnvelope(text)
		if due := serverTime(e.due); err == nil && due > s.clock && clock.sub(due) > missedWakeAfter {
			return true
		}
	}
	return false
}

// run polls until the consumer stops.
func (p *poller) run() {
	if p.settings.drain == nil {
		p.poll(false)
	}
	for !p.lifecycle.stopping() {
		if !p.drained() {
			p.step()
		}
	}
	p.settler.refills.Store(false)
	p.member.quit()
}

// step polls if there is a reason, or else waits for one event and handles it.
func (p *poller) step() {
	s, now := &p.state, time.Now()
	limit := p.limit()
	room := p.member.room(limit, s.hungry(now), p.ahead())
	if room > 0 && s.moreDue {
		p.poll(false)
		return
	}
	open := room > 0 || limit > 0 && !s.moreDue && p.member.open()
	if open && s.wakeUps && !s.waiting && p.settings.drain == nil {
		s.waiting = true
		p.wakeUps.ask()
	}
	if s.pollAt != 0 && s.wakeUps && (!open || room == 0 && s.hungry(now)) {
		p.poll(true) // no worker is free for it: another consumer gets the alarm
		return
	}
	idle := s.idle(now, open)
	if at, ok := p.member.staleAt(); ok {
		idle = min(idle, time.Until(at))
	}
	select {
	case <-p.lifecycle.stopped:
	case <-p.freed:
		p.placeFreed()
	case c := <-p.settler.joint:
		p.refill(c)
	case <-time.After(idle):
		p.member.releaseStale()
		if s.due(time.Now()) {
			p.poll(false)
		}
	case s.pollAt = <-p.wakeUps.taken: // it replaces what was held: only the last marker counts
		s.waiting = false
		p.setWakeUps(true, nil)
	case err := <-p.wakeUps.failed:
		p.poll(true)
		if !movedOn(err) {
			s.failures++
		}
		if s.failures >= wakeUpsOffAfter { // although polls go through
			p.setWakeUps(false, err)
		}
		s.hurry(time.Now())
	case err := <-p.wakeUps.unsupported:
		p.listened = p.wakeUps.answered.Load() // what was answered before does not say that they work
		p.setWakeUps(false, err)
		p.poll(false)
	case at := <-p.hints:
		s.hinted(at)
	}
}

// placeFreed makes the next poll come now if the queue bounds how many deliveries there are, fewer of them are here than at the
// last poll, and no wake-up will say that another may go.
func (p *poller) placeFreed() {
	s := &p.state
	if !s.wakeUps && s.pollAt != 0 && p.limits.Concurrency > 0 && p.placesHeld() < p.heldAtPoll {
		s.pollAt = min(s.pollAt, s.clock)
	}
}

// placesHeld is how many places this consumer has.
func (p *poller) placesHeld() int { return p.leases.held.totals().deliveries + p.overruns.count() }

// limit is how many deliveries a fetch may ask for, if there are workers for them.
func (p *poller) limit() int {
	if p.settings.base.Err() != nil {
		return 0 // handlers' contexts have ended
	}
	limit := min(limitRoom(p.settings, p.member.atMost, p.leases.held.totals()), p.yielding.most())
	if p.limits.bounded {
		limit = min(limit, max(p.member.atMost, p.limits.left/2))
	}
	return limit
}

// ahead is how long a fetch takes for which another one is made ahead. What is fetched ahead counts for the limits of the queue, and
// keeps others from it. So that is done only while these leave room for twice the workers, and up to half of it (limit).
func (p *poller) ahead() time.Duration {
	if p.limits.bounded && p.limits.left < 2*p.member.atMost {
		return 0
	}
	return p.state.rtt
}

// limitRoom is how many more deliveries a consumer may hold.
func limitRoom(settings *settings, workers int, held heldSums) int {
	room := maxBatch
	if settings.maxBytes > 0 && held.bytes > 0 {
		left := settings.maxBytes - held.bytes
		if left <= 0 {
			return 0
		}
		room = min(room, max(left/(held.bytes/held.deliveries+1), 1)) // each may come to as much as what is held
	}
	if settings.fetchLimit > 0 {
		room = min(room, settings.fetchLimit-held.deliveries)
	}
	return max(min(room, workers+4*maxBatch-held.deliveries), 0)
}

// wakeUpsOffAfter is how often in a row the wake listener may fail while polls go through.
const wakeUpsOffAfter = 5

// setWakeUps notes whether wake-ups work, and logs it when that changes.
func (p *poller) setWakeUps(on bool, err error) {
	if on == p.state.wakeUps {
		return
	}
	p.state.wakeUps = on
	p.wakeUpsOff.Store(!on)
	if on {
		p.settings.log.Info("delayqueue: wake-ups work again")
	} else {
		p.settings.log.Warn("delayqueue: cannot wait for wake-ups: messages that other processes send are seen at the next look",
			slog.Duration("interval", p.state.interval), slog.Any("error", err))
	}
}

// poll fetches once, and returns how many deliveries that brought. With rearm it also sets the alarm for whatever is due
// next, for other consumers to take.
func (p *poller) poll(rearm bool) (brought int) { return p.pollBehind(nil, rearm) }

// pollBehind is poll right behind a settlement, if c is not nil.
func (p *poller) pollBehind(c *jointCall, rearm bool) (brought int) {
	s, begun := &p.state, time.Now()
	want := p.member.ask(p.limit(), s.hungry(begun) || c != nil, p.ahead(), s.rtt)
	defer p.member.answered()
	byAlarm := !rearm && c == nil && p.byAlarm(begun)
	got, sentAt, err := p.fetch(fetchRequest{want: want, rearm: rearm, byAlarm: byAlarm, presence: p.presence(begun), behind: c})
	answeredAt := time.Now()
	if err != nil {
		return 0 // it stops
	}
	if !byAlarm {
		p.lookedAt = answeredAt
	}
	if listened := p.wakeUps.answered.Load(); listened != p.listened {
		p.listened, s.failures = listened, 0
		p.setWakeUps(true, nil)
	}
	if sentAt.Sub(begun) > outageAfter { // the wake listener's connection may have suffered from the same
		s.failures = 0
		p.wakeUps.retry()
	}
	if s.wakeUps && s.waiting && !rearm && !got.limits.bounded && s.pollAt == 0 && !s.moreDue && s.missedWake(got.envelopes, got.now) {
		p.wakeUps.drop(s.clockAt)
	}
	s.answered(got.now, got.next, rearm, sentAt, answeredAt)
	p.yielding.answered(sentAt, got.now, answeredAt, want, len(got.tags))
	p.accept(&got, sentAt, answeredAt)
	p.heldAtPoll = p.placesHeld()
	s.nextPoll = answeredAt.Add(p.untilTick(&got, answeredAt))
	p.settler.refills.Store(p.limits.full && linkable(p.store.cli))
	return len(got.tags) + len(got.held)
}

// passWakeOn sets the alarm for other consumers when this one has stopped. This one may have taken a marker that it will
// not serve, or a marker was on the way over the connection that was just closed. Without Redis it does nothing: others
// poll once in their interval.
//
// It does so twice. As long as the server has not noticed that the wake listener's connection is closed, it may give
// the marker to that. When it has answered the first call it has noticed. A server that answers nobody is not waited for;
// begun is when the stop began.
func (p *poller) passWakeOn(begun time.Time) {
	var cancel context.CancelFunc
	p.leaveCtx, cancel = p.store.link.untilSilent(p.lifecycle.redisCtx, begun)
	defer cancel()
	for _, rearm := range []bool{false, true} {
		if p.lifecycle.outage.cause() != nil || !p.seenQueue || rearm && p.settings.drain != nil { // then it has asked for no marker
			return
		}
		got, sentAt, err := p.fetch(fetchRequest{rearm: rearm, presence: presenceLeaving})
		if err != nil {
			return
		}
		p.accept(&got, sentAt, time.Now())
	}
}
