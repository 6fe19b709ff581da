package consume

import (
	"fmt"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/clock"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/message"
)

// This file has what a consumer does otherwise that drains its queue: it ends by itself, when nothing is due.

// Step makes settings those of a rig: one message after the other, in order, and the longest delay where a delay is drawn. Handlers find
// the rig's clock in their contexts.
func (s *Settings) Step(now func() time.Time) {
	s.stepped = true
	s.Workers, s.FetchLimit = 1, 1
	s.Base = clock.With(s.Base, now)
	if s.DelayAfter == nil {
		s.DelayAfter = func(failures int, _ error, _ *message.Delivered) time.Duration { return longestDelay(failures) }
	}
}

// steppedAttempt is how long a stepped attempt at a call may take. A machine that is slow for a moment is no reason to give a message up.
const steppedAttempt = time.Minute

// seed is what the next fetch makes its random choices from; 0: anything. A stepped consumer makes the same choices each
// time.
func (s *Settings) seed() int32 {
	if s.stepped {
		return 1
	}
	return 0
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

// drained polls if this is a drain that holds nothing, and stops the drain if nothing was due. It reports whether it did either.
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
	if brought := p.poll(false); brought == 0 && !p.state.moreDue && !p.lifecycle.stopping() {
		p.drainDone = true
		p.lifecycle.stop()
	}
	return true
}
