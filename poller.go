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
func (c *consumer) room(rtt time.Duration) int {
	n := int(c.workers.Load())
	if n == 0 {
		return 0
	}
	if c.base.Err() != nil {
		return 0 // no handler could do anything
	}
	if c.maxBytes > 0 && int(c.heldBytes.Load()) >= c.maxBytes {
		return 0
	}
	extra := 0
	if each := c.nsPerMsg.Load(); each > 0 && each < int64(bufferPatience/2) {
		extra = int(min(int64(n)*int64(rtt)/each, maxBatch/2))
	}
	unhandled := int(c.unhandled.Load())
	if unhandled >= n+extra {
		return 0
	}
	room := n + 2*extra - unhandled
	room = min(room, n+4*maxBatch-int(c.unsettled.Load()))
	if c.fetchLimit > 0 {
		room = min(room, c.fetchLimit-int(c.unsettled.Load()))
	}
	return max(min(room, maxBatch), 0)
}

// loop fetches while there is work, and else waits for the next instant.
func (c *consumer) pollLoop() {
	p := poller{consumer: c, interval: min(c.fetchInterval, c.lease/3), timer: time.NewTimer(0), wakeUpsOn: true}
	defer p.timer.Stop()
	p.poll(false)
	for !c.stopping() {
		p.wait()
	}
	c.releaseBuffered()
}

// empty releases what no worker has started.
func (c *consumer) releaseBuffered() {
	for _, d := range c.buffer.all() {
		c.release(d)
	}
}

// handBack sets the alarm for others, for this run may have taken a marker that it will not
// serve, or the connection that was just closed had one on it. Without Redis others have
// their tick.
//
// Twice: while the server has not seen yet that the listener's connection is closed, it may give
// the marker to that. When it has answered the first call it has.
func (c *consumer) passWakeOn() {
	for _, rearm := range []bool{false, true} {
		if !c.outage.none() {
			return
		}
		got, asked, err := c.fetch(ask{rearm: rearm, says: presenceLeaving})
		if err != nil {
			return
		}
		c.accept(&got, asked, time.Now())
	}
}

// looper is the state of loop.
type poller struct {
	*consumer
	interval  time.Duration
	timer     *time.Timer
	wakeUpsOn bool  // the listener works
	waiting   bool  // the listener is at it
	failures  int   // how often its connection failed since it last worked
	answered  int64 // listener.worked, as it was then

	nextPoll time.Time     // the tick
	rtt      time.Duration // of fetches, a moving average
	dueNow   bool          // more is due now, or may be
	heldWake int64         // instant (server's, unix us) that this run serves: it took the marker; 0: none
	clock    int64         // server's clock, unix us, …
	clockAt  time.Time     // … at this instant here
}

// until is how long it is until an instant of the server's clock; the clocks are compared
// only to wait, and the server decides again what is due.
func (p *poller) until(instant int64) time.Duration {
	return max(microseconds(max(instant, 0)-p.clock), 0) - time.Since(p.clockAt)
}

// wait lets one thing happen.
func (p *poller) wait() {
	room := p.room(p.rtt)
	if room > 0 && p.dueNow {
		p.poll(false)
		return
	}
	if room > 0 && p.wakeUpsOn && !p.waiting {
		p.waiting = true
		p.wakeUps.requests <- struct{}{}
	}
	if room == 0 && p.heldWake != 0 && p.wakeUpsOn {
		p.poll(true) // it has no worker for the instant: the alarm is for another
		return
	}
	pause := time.Until(p.nextPoll)
	if p.heldWake != 0 && room > 0 {
		pause = min(pause, p.until(p.heldWake))
	}
	waiting, waits := p.buffer.first()
	if waits {
		pause = min(pause, time.Until(waiting.fetched.Add(bufferPatience)))
	}
	p.timer.Reset(max(pause, 0))
	select {
	case <-p.quit:
	case <-p.freed:
	case <-p.timer.C:
		if waiting, waits = p.buffer.first(); waits && time.Since(waiting.fetched) >= bufferPatience {
			p.nsPerMsg.Store(int64(bufferPatience)) // handlers are slow now: no fetching ahead
			p.releaseBuffered()
		}
		if !time.Now().Before(p.nextPoll) || p.heldWake != 0 && p.until(p.heldWake) <= 0 {
			p.poll(false)
		}
	case p.heldWake = <-p.wakeUps.taken: // whatever was held before: the marker taken last is the latest word
		p.waiting = false
		p.setWakeUps(true, nil)
	case err := <-p.wakeUps.failed:
		p.poll(true)
		if !movedOn(err) {
			p.failures++
		}
		if p.failures >= wakeUpsOffAfter { // although fetches go through
			p.setWakeUps(false, err)
		}
	case err := <-p.wakeUps.unsupported:
		p.setWakeUps(false, err)
		p.poll(false)
	case <-p.hints.changed:
		if at := p.hints.take(); !at.IsZero() && !p.wakeUpsOn {
			instant := p.clock + at.Sub(p.clockAt).Microseconds()
			if p.heldWake == 0 || instant < p.heldWake {
				p.heldWake = instant
			}
		}
	}
}

// deafAfter is how often in a row the listener may fail while fetches go through.
const wakeUpsOffAfter = 5

// hear notes whether there are wake-ups from Redis, and says so when that changes.
func (p *poller) setWakeUps(works bool, err error) {
	if works == p.wakeUpsOn {
		return
	}
	p.wakeUpsOn = works
	p.wakeUpsOff.Store(!works)
	if works {
		p.log.Info("delayqueue: wake-ups work again")
	} else {
		p.log.Warn("delayqueue: cannot wait for wake-ups: messages that other processes send are seen at the next look",
			slog.Duration("interval", p.interval), slog.Any("error", err))
	}
}

// look fetches once: the tick.
func (p *poller) poll(rearm bool) {
	want, begun := p.room(p.rtt), time.Now()
	got, asked, err := p.fetch(ask{want: want, rearm: rearm, says: p.presence(time.Now())})
	now := time.Now()
	p.nextPoll = now.Add(p.interval - rand.N(p.interval/8+1)) // so that consumers do not fall into step
	if err != nil {
		return // stopping
	}
	if worked := p.wakeUps.answered.Load(); worked != p.answered {
		p.answered, p.failures = worked, 0
		p.setWakeUps(true, nil)
	}
	if asked.Sub(begun) > outageAfter { // the listener's connection may have suffered from the same
		p.failures = 0
		p.wakeUps.retry()
	}
	if p.wakeUpsOn && p.waiting && !rearm && p.heldWake == 0 && !p.dueNow && p.missedWake(&got) {
		p.wakeUps.drop()
	}
	rtt := now.Sub(asked)
	if p.rtt == 0 {
		p.rtt = rtt
	}
	p.rtt += (rtt - p.rtt) / 8
	p.clock, p.clockAt = got.now, asked.Add(rtt/2)
	p.dueNow = got.next != 0 && got.next <= got.now
	switch {
	case !p.wakeUpsOn:
		p.heldWake = got.next
	case rearm:
		p.heldWake = 0
	case got.next != p.heldWake:
		p.heldWake = 0 // served, or superseded by a marker that another takes
	}
	p.accept(&got, asked, now)
}

// lateAfter is how late a message is that no wake-up came for.
const missedWakeAfter = 100 * time.Millisecond

// unheard says whether a fetch brought a message that came due since the last one, and that should have woken
// somebody: the listener's connection may lead to a server that has been replaced.
func (p *poller) missedWake(got *fetched) bool {
	for _, text := range got.envelopes {
		e, err := decodeEnvelope(text)
		if err == nil && e.due > p.clock && e.due < got.now-missedWakeAfter.Microseconds() {
			return true
		}
	}
	return false
}
