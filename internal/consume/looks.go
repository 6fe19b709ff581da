package consume

import (
	"cmp"
	"encoding/json"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/script"
)

// This file says how often a consumer looks: it polls without another reason, and tells of itself. A consumer is idle
// while it holds nothing and wake-ups work. Wake-ups tell it of everything that becomes due, so looks are only a
// safety net. At least every third of a lease there is one, because a consumer that is silent for half a lease counts
// as cut off.

const (
	// lookInterval is the longest time between two polls of a consumer that is not idle, unless WithFetchInterval says
	// otherwise.
	lookInterval = time.Second
	// looksASecond is how often the idle consumers of one link look together, if they are more than that. Those of the
	// shards of a queue look once. Each of them looks at least every third of a lease, and every maxIdleInterval.
	looksASecond    = 3
	maxIdleInterval = 10 * time.Second
	// fullLookEvery is how often an idle consumer looks at the queue, and not only at the alarm. Then it ticks, which
	// deletes old garbage, and finds an alarm that another program has changed.
	fullLookEvery = 3 * maxIdleInterval
)

// untilLook is how long after a poll with this answer the next one is, at the latest.
func (p *poller) untilLook(got *script.FetchReply, now time.Time) time.Duration {
	s := &p.state
	d, before := s.interval, s.idleLooks
	if p.isIdle(got) {
		looks := looksASecond
		if p.settings.ID != "" { // of a shard
			looks = 1
		}
		together := time.Duration(p.store.Link.ConsumersNow()) * time.Second / time.Duration(looks)
		d = max(d, min(together, p.settings.Lease/3, maxIdleInterval))
	}
	if s.idleLooks = d > s.interval; s.idleLooks && !before {
		d = s.interval + rand.N(d-s.interval) // so that queues that were started together do not look together
	}
	if s.idleLooks &&
		got.Next > 0 { // if the marker of the next message is lost, the message is no later than without idle looks
		d = min(d, max(s.until(got.Next, now), 0)+s.interval)
	}
	return d - rand.N(s.interval/8+1) // so that consumers do not fall into step
}

// isIdle reports whether the consumer was idle after a poll with this answer.
func (p *poller) isIdle(got *script.FetchReply) bool {
	s := &p.state
	return p.settings.FetchInterval == 0 && !s.wakeUpsOff.Load() && s.failures == 0 && !s.moreDue && len(got.Tags) == 0 &&
		p.store.Link != nil && p.settings.Base.Err() == nil && p.leases.held.totals().deliveries == 0
}

// hurry makes the next look come as if the consumer were not idle, because nobody waits for the marker.
func (s *pollState) hurry(now time.Time) {
	s.idleLooks = false
	if at := now.Add(s.interval); at.Before(s.nextPoll) {
		s.nextPoll = at
	}
}

// byAlarm reports whether a poll need only look at the alarm, which this consumer waits for.
func (p *poller) byAlarm(now time.Time) bool {
	s := &p.state
	return s.idleLooks && s.waiting && s.pollAt == 0 && now.Sub(p.lookedAt) < fullLookEvery &&
		p.leases.held.totals().deliveries == 0
}

const maxPresenceMessages = 100

var hostname = sync.OnceValue(func() string {
	name, _ := os.Hostname()
	return cmp.Or(name, "unknown")
})

// presence is what this consumer reports of itself, and "" if it has reported less than lookInterval ago.
func (p *poller) presence(now time.Time) string {
	every := lookInterval
	if p.state.idleLooks {
		every = max(every, min(p.settings.Lease/3, maxIdleInterval)) // it counts as alive for a lease
	}
	if now.Sub(p.presenceAt) < every {
		return ""
	}
	p.presenceAt = now
	self := script.Presence{
		Host: hostname(), PID: os.Getpid(), UpUs: now.Sub(p.since).Microseconds(), Concurrency: p.member.AtMost,
		Handling: p.member.handling(now), KindHeader: p.settings.KindHeader, Kinds: p.consumer.kinds.report(now),
	}
	text, _ := json.Marshal(self) // each of its fields can be encoded
	return string(text)
}

// handling is what is in the hands of handlers, the longest first.
func (m *member) handling(now time.Time) (all []script.HandledMessage) {
	for _, d := range m.serving() {
		all = append(all, script.HandledMessage{ID: d.msg.ID, Us: d.started.Age(now).Microseconds()})
	}
	slices.SortFunc(all, func(a, b script.HandledMessage) int { return cmp.Compare(b.Us, a.Us) })
	return all[:min(len(all), maxPresenceMessages)]
}
