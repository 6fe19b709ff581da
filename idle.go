package delayqueue

import (
	"math/rand/v2"
	"time"
)

// This file says how often an idle consumer ticks, and what it looks at then. It is idle while it holds nothing and
// wake-ups work: they tell it of all that becomes due, so ticks are the safety net alone.

const (
	// tickInterval is the longest time between two polls of a consumer, unless WithFetchInterval says otherwise.
	tickInterval = time.Second
	// ticksASecond is how often the idle consumers of a process on one link tick together, once there are more than that
	// many; each of them at least every third of a lease and every maxIdleInterval.
	ticksASecond    = 3
	maxIdleInterval = 10 * time.Second
	// fullLookEvery is how often an idle consumer does not go by the alarm: that deletes old garbage, and finds what another
	// program made of the alarm.
	fullLookEvery = 30 * time.Second
)

// idleInterval is the longest time between two ticks of an idle consumer, one of so many on a link. While it is not idle
// that is interval.
func idleInterval(consumers int, interval, lease time.Duration) time.Duration {
	return max(interval, min(time.Duration(consumers)*time.Second/ticksASecond, lease/3, maxIdleInterval))
}

// untilTick is how long after a poll with this answer the next one is, at the latest.
func (p *poller) untilTick(got *fetchReply, now time.Time) time.Duration {
	s := &p.state
	d, before := s.interval, s.idleTicks
	if p.isIdle(got) {
		d = idleInterval(p.store.link.consumersNow(), s.interval, p.settings.lease)
	}
	if s.idleTicks = d > s.interval; s.idleTicks && !before {
		d = s.interval + rand.N(d-s.interval) // so that queues that were started together do not tick together
	}
	if s.idleTicks && got.next > 0 { // if the marker of what is known to be due is lost, that is late by no more than elsewhere
		d = min(d, max(s.until(got.next, now), 0)+s.interval)
	}
	return d - rand.N(s.interval/8+1) // so that consumers do not fall into step
}

// isIdle reports whether the consumer was idle after a poll with this answer.
func (p *poller) isIdle(got *fetchReply) bool {
	s := &p.state
	return p.settings.fetchInterval == 0 && s.wakeUps && s.failures == 0 && !s.moreDue && len(got.tags) == 0 &&
		p.store.link != nil && p.settings.base.Err() == nil && p.leases.held.totals().deliveries == 0
}

// hurry makes the next tick come as if the consumer were not idle: nobody waits for the marker.
func (s *pollState) hurry(now time.Time) {
	s.idleTicks = false
	if at := now.Add(s.interval); at.Before(s.nextPoll) {
		s.nextPoll = at
	}
}

// byAlarm reports whether a poll may go by the alarm, which this consumer waits for.
func (p *poller) byAlarm(now time.Time) bool {
	s := &p.state
	return s.idleTicks && s.waiting && s.pollAt == 0 && now.Sub(p.lookedAt) < fullLookEvery && p.leases.held.totals().deliveries == 0
}
