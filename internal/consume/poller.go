package consume

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/conc"
	"github.com/go-delayqueue/delayqueue/internal/event"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/script"
	"github.com/go-delayqueue/delayqueue/internal/wake"
)

// A poller fetches deliveries and gives them to the workers. It polls while there is room and something is due, at the
// instants of wake-ups, and at least once in an interval.
type poller struct {
	consumer  *Consumer // of the deliveries
	settings  *Settings
	store     *script.Store
	events    event.Listeners
	lifecycle *lifecycle
	member    *member
	leases    *leases
	settler   *settler
	notices   *notices
	wakeUps   *wake.WakeListener // waits for the wake marker, on a connection that queues share

	hints wake.Hints // put by senders of this process

	// The rest is for the poller's goroutine alone, but for state.wakeUpsOff.
	state      pollState
	caller     *script.Caller
	lease      time.Duration       // that holds for all consumers of the queue
	limits     script.AgreedLimits // that hold for all consumers of the queue
	replyBytes int                 // how many bytes the next fetch asks for
	big        int                 // bytes of the longest message, as the last fetch said; 0: not known
	since      time.Time           // when the consumer started
	presenceAt time.Time           // when it last told of itself
	lookedAt   time.Time           // when it last looked at more than the alarm
	listened   int64               // wakeUps.answered, at the last poll
	reserved   string              // names a message on its last chance, to be fetched alone; "": none
	reservedAt time.Time           // when that name was asked for
	past       remembrance         // of the totals of the queue
	ticked     bool                // it has ticked
	nearest    time.Duration       // the shortest round trip of a fetch
	lost       conc.MinuteCount    // messages whose leases ran out
	dropped    conc.MinuteCount    // tags without a message
	newer      conc.MinuteCount    // messages of a newer version
	unticked   conc.MinuteCount    // ticks that failed
	tickAgain  time.Time           // not before, because one failed

	// Read when the consumer has ended:
	drainDone bool  // it drained its queue, and nothing is due
	drainErr  error // why it gave up
}

// pollState is what the poller knows of the queue and of its wake-ups. It decides when to poll.
type pollState struct {
	interval  time.Duration // the longest time between two polls, unless the consumer is idle
	idleLooks bool          // the consumer is idle, and looks less often
	nextPoll  time.Time     // the latest instant for the next poll
	rtt       time.Duration // of fetches, a moving average; 0: not known yet
	moreDue   bool          // something is due that was not fetched
	// the instant of the marker that was taken; without wake-ups, of the next message that is known; 0: none
	pollAt  message.ServerTime
	clock   message.ServerTime // Redis's clock …
	clockAt time.Time          // … at this instant of this machine's clock

	wakeUpsOff atomic.Bool // wake-ups do not work; written by the poller, also read by senders and the settler
	waiting    bool        // the wake listener is waiting for one
	failures   int         // in a row, of the wake listener's connection, while polls went through
}

// until is how long it is until t. It compares two clocks, which is good enough for a wait, because Redis decides
// what is due.
func (s *pollState) until(t message.ServerTime, now time.Time) time.Duration {
	return max(max(t, 0).Sub(s.clock), 0) - now.Sub(s.clockAt)
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

// noteReply notes what the answer to a poll says of the queue. With rearm, the poll has set the alarm for other
// consumers.
func (s *pollState) noteReply(clock, next message.ServerTime, rearm bool, sentAt, answeredAt time.Time) {
	rtt := answeredAt.Sub(sentAt)
	if s.rtt == 0 {
		s.rtt = rtt
	}
	s.rtt += (rtt - s.rtt) / 8
	s.clock, s.clockAt = clock, sentAt.Add(rtt/2)
	s.moreDue = next != 0 && next <= clock
	if s.wakeUpsOff.Load() {
		s.pollAt = next
	} else if rearm || next != s.pollAt {
		s.pollAt = 0 // handed on, served, or superseded by a marker that another takes
	}
}

// hinted notes when a message is due that this process sent. With wake-ups it does nothing.
func (s *pollState) hinted(at time.Time) {
	if !s.wakeUpsOff.Load() {
		return
	}
	due := s.clock + message.ServerTime(at.Sub(s.clockAt).Microseconds())
	if s.pollAt == 0 || due < s.pollAt {
		s.pollAt = due
	}
}

// missedWakeAfter is how late a message must be for its wake-up to count as missed.
const missedWakeAfter = 100 * time.Millisecond

// missedWake reports whether a fetch brought a message that became due after the fetch before, and so long ago that a
// wake-up should have come. If so, the wake listener's connection may lead to a server that has been replaced. A
// message with a lane may have waited for its turn.
func (s *pollState) missedWake(envelopes []string, clock message.ServerTime) bool {
	return slices.ContainsFunc(envelopes, func(text string) bool {
		e, err := message.DecodeEnvelope(text)
		due := message.ServerTime(e.Due)
		return err == nil && e.Lane.Width == 0 && due > s.clock && clock.Sub(due) > missedWakeAfter
	})
}

// run polls until the consumer stops.
func (p *poller) run() {
	if !p.settings.Drains {
		p.poll(false)
	}
	for !p.lifecycle.stopping() {
		if !p.drained() {
			p.step()
		}
	}
	p.member.quit()
}

// step polls if there is a reason. Otherwise it waits for one event, and handles it.
func (p *poller) step() {
	if p.reserved != "" && p.settings.Base.Err() != nil { // nothing more is fetched
		p.reserved = ""
		p.member.withdraw()
	}
	s, now, asks := &p.state, time.Now(), time.Duration(math.MaxInt64)
	if p.reserved != "" {
		alone, in := p.member.becomesAlone(p.lease, now.Sub(p.reservedAt))
		if alone {
			p.pollFor(p.reserved, false)
			return
		}
		if asks = in; in == 0 {
			p.reserved = ""
		}
	}
	room, open := p.room(s.hungry(now))
	if room > 0 && s.moreDue {
		p.poll(false)
		return
	}
	if open = open && !s.moreDue; open && !s.wakeUpsOff.Load() && !s.waiting && !p.settings.Drains {
		s.waiting = true
		p.wakeUps.Ask()
	}
	if s.pollAt != 0 && !s.wakeUpsOff.Load() && (!open || room == 0 && s.hungry(now)) {
		p.poll(true) // no worker is free: another consumer gets the alarm
		return
	}
	idle := min(s.idle(now, open), asks)
	if at, ok := p.member.staleAt(); ok {
		idle = min(idle, time.Until(at))
	}
	select {
	case <-p.lifecycle.pollCtx.Done():
	case <-p.member.freed:
	case <-p.settler.more:
		s.moreDue = true
		if room, _ := p.room(true); room == 0 {
			p.poll(true) // other consumers get the alarm
		}
	case <-time.After(idle):
		p.member.releaseStale()
		if s.due(time.Now()) {
			p.poll(false)
		}
	case s.pollAt = <-p.wakeUps.Taken: // only the last marker counts
		s.waiting = false
		p.setWakeUps(true, nil)
	case err := <-p.wakeUps.Failed:
		p.poll(true)
		if !wake.MovedOn(err) {
			s.failures++
		}
		if s.failures >= wake.WakeUpsOffAfter { // although polls go through
			p.setWakeUps(false, err)
		}
		s.hurry(time.Now())
	case err := <-p.wakeUps.Unsupported:
		p.listened = p.wakeUps.Answered.Load() // answers from before do not show that wake-ups work
		p.setWakeUps(false, err)
		p.poll(false)
	case at := <-p.hints:
		s.hinted(at)
	}
}

// room is how many deliveries a fetch may ask for now. open says whether a worker may be free when something is due.
func (p *poller) room(hungry bool) (n int, open bool) {
	most, rtt := p.limit()
	return p.member.room(most, hungry, rtt)
}

// limit is how many deliveries a fetch may ask for if there are workers for them, and how long fetches take, 0 if
// nothing is to be fetched ahead. What is fetched ahead counts for the limits of the queue, and keeps other consumers
// from it. So a limited queue fetches ahead only while the limits leave room for twice the workers.
func (p *poller) limit() (most int, rtt time.Duration) {
	set, held, workers := p.settings, p.leases.held.totals(), p.member.AtMost
	if set.Base.Err() != nil {
		return 0, 0 // handlers' contexts have ended
	}
	most, rtt = min(script.MaxBatch, workers+4*script.MaxBatch-held.deliveries), p.state.rtt
	if set.MaxBytes > 0 && held.bytes > 0 { // the next are as large on average as what is held
		left := set.MaxBytes - held.bytes
		most = min(most, max(left/(held.bytes/held.deliveries+1), min(left, 1)))
	}
	if set.FetchLimit > 0 {
		most = min(most, set.FetchLimit-held.deliveries)
	}
	if p.limits.Bounded {
		most = min(most, max(workers, p.limits.Left/2))
		if p.limits.Left < 2*workers {
			rtt = 0
		}
	}
	return max(most, 0), rtt
}

// setWakeUps notes whether wake-ups work, and logs it when that changes.
func (p *poller) setWakeUps(on bool, err error) {
	if p.state.wakeUpsOff.Swap(!on) != on {
		return
	}
	if on {
		p.settings.Log.Info("delayqueue: wake-ups work again")
	} else {
		p.settings.Log.Warn(
			"delayqueue: cannot wait for wake-ups: messages that other processes send are seen at the next look",
			slog.Duration("interval", p.state.interval), slog.Any("error", err))
	}
}

// poll fetches once, and returns how many deliveries the fetch brought. With rearm, it also sets the alarm for the
// next message, for other consumers to take.
func (p *poller) poll(rearm bool) (brought int) { return p.pollFor("", rearm) }

// pollFor is poll. If alone is not "", it fetches that message on its last chance, and no other.
func (p *poller) pollFor(alone string, rearm bool) (brought int) {
	s, begun := &p.state, time.Now()
	most, rtt := p.limit()
	want := p.member.ask(most, s.hungry(begun), rtt)
	defer p.member.endFetch()
	named := alone
	if alone != "" {
		want = 1
	} else if p.reserved != "" || !p.member.wantsName() {
		named = script.HasReserved
	}
	byAlarm := !rearm && alone == "" && p.byAlarm(begun)
	got, sentAt,
		err := p.fetch(p.lifecycle.pollCtx, script.FetchRequest{Want: want, Rearm: rearm, ByAlarm: byAlarm, Alone: named,
		Presence: p.presence(begun)})
	answeredAt := time.Now()
	if err != nil {
		return 0 // the consumer stops
	}
	if !byAlarm {
		p.lookedAt = answeredAt
	}
	if listened := p.wakeUps.Answered.Load(); listened != p.listened {
		p.listened, s.failures = listened, 0
		p.setWakeUps(true, nil)
	}
	if sentAt.Sub(begun) > link.OutageAfter { // the outage may have broken the wake listener's connection, too
		s.failures = 0
		p.wakeUps.Retry()
	}
	if !s.wakeUpsOff.Load() && s.waiting && !rearm && !got.Limits.Bounded && s.pollAt == 0 && !s.moreDue &&
		s.missedWake(got.Envelopes, got.Now) {
		p.wakeUps.Drop(s.clockAt)
	}
	s.noteReply(got.Now, got.Next, rearm, sentAt, answeredAt)
	p.nearest = min(p.nearest, answeredAt.Sub(sentAt))
	if alone != "" { // before its handler can have returned
		p.member.isAlone(strings.Join(got.Tags, ""), p.lease) // of one tag, or none
	}
	p.accept(&got, sentAt, answeredAt)
	if alone != "" || got.Reserved != "" {
		p.reserved, p.reservedAt = got.Reserved, sentAt
	}
	if got.Tick && !answeredAt.Before(p.tickAgain) {
		p.tick()
	}
	s.nextPoll = answeredAt.Add(p.untilLook(&got, answeredAt))
	return len(got.Tags)
}

// passWakeOn sets the alarm for other consumers when this one has stopped, because this consumer may have taken a
// marker that it does not serve. During an outage passWakeOn does nothing, because others poll once in their
// interval.
//
// It makes two calls. If the wake listener's connection had to be cut, the server may give the marker to it until it
// has noticed that. Mostly it has noticed when it has answered the first call. A server that answers nobody is not
// waited for.
func (p *poller) passWakeOn(begun time.Time) {
	ctx, cancel := context.WithDeadline(p.lifecycle.redisCtx, begun.Add(link.SilentAfter))
	defer cancel()
	for _, rearm := range []bool{false, true} {
		// A drain has asked for no marker.
		if p.lifecycle.cause() != nil || p.past.last.at == 0 || rearm && p.settings.Drains {
			return
		}
		got, sentAt, err := p.fetch(ctx, script.FetchRequest{Rearm: rearm, Presence: script.PresenceLeaving})
		if err != nil {
			return
		}
		p.accept(&got, sentAt, time.Now())
	}
}

// gaveUp stops a drain after the nth attempt at a call if no repeat mends err, and reports whether it did.
func (p *poller) gaveUp(n int, err error) bool {
	if !p.settings.Drains || p.lifecycle.stopping() || link.Transient(err) || n < optionalAttempts {
		return false
	}
	p.drainErr = err
	p.lifecycle.stop()
	return true
}

// drained polls if this is a drain that holds nothing, and stops the drain if nothing was due. It reports whether it
// did either.
func (p *poller) drained() bool {
	if !p.settings.Drains || p.leases.held.totals().deliveries > 0 || p.reserved != "" {
		return false
	}
	if base := p.settings.Base; base.Err() != nil {
		p.drainErr = fmt.Errorf("the base context has ended: %w", link.Ended(base))
		p.lifecycle.stop()
		return true
	}
	if room, _ := p.room(true); room == 0 {
		return false // handlers that run on past their limit have all workers
	}
	if brought := p.poll(false); brought == 0 && p.reserved == "" && !p.state.moreDue && !p.lifecycle.stopping() {
		p.drainDone = true
		p.lifecycle.stop()
	}
	return true
}
