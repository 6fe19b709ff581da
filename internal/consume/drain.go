package consume

import (
	"fmt"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/clock"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/message"
)

// A Drain makes a consumer end by itself, when nothing is due.
type Drain struct {
	stepped bool // the clock stands still (delayqueuetest): neither order nor delays are left to chance

	// Written by the poller, and read when the consumer has ended.
	Done bool  // nothing is due
	Err  error // why the consumer gave up
}

// ForShard is a drain of one shard, as this one.
func (d *Drain) ForShard() *Drain { return &Drain{stepped: d.stepped} }

// Step makes settings those of a rig: one message after the other, in order, and the longest delay where a delay is drawn. Handlers find
// the rig's clock in their contexts.
func (s *Settings) Step(now func() time.Time) {
	s.Drain.stepped = true
	s.Workers, s.FetchLimit = 1, 1
	s.Base = clock.With(s.Base, now)
	if s.DelayAfter == nil {
		s.DelayAfter = func(failures int, _ error, _ *message.Delivered) time.Duration { return longestDelay(failures) }
	}
}

// steppedAttempt is how long a stepped attempt at a call may take. A machine that is slow for a moment is no reason to give a message up.
const steppedAttempt = time.Minute

// seed is what the next fetch makes its random choices from; 0: anything. A stepped one makes the same choices each time.
func (d *Drain) seed() int32 {
	if d != nil && d.stepped {
		return 1
	}
	return 0
}

// gaveUp stops a drain after the nth attempt at a call if no repeat mends err, and reports whether it did.
func (p *poller) gaveUp(n int, err error) bool {
	d := p.settings.Drain
	if d == nil || p.lifecycle.stopping() || link.Transient(err) || n < optionalAttempts {
		return false
	}
	d.Err = err
	p.lifecycle.stop()
	return true
}

// drained polls if this is a drain that holds nothing, and stops the drain if nothing was due. It reports whether it did either.
func (p *poller) drained() bool {
	d := p.settings.Drain
	if d == nil || p.leases.held.totals().deliveries > 0 || p.reserved != "" {
		return false
	}
	if base := p.settings.Base; base.Err() != nil {
		d.Err = fmt.Errorf("the base context has ended: %w", link.Ended(base))
		p.lifecycle.stop()
		return true
	}
	if p.member.room(p.limit(), true, 0) == 0 {
		return false // handlers that run on past their limit have all workers
	}
	if brought := p.poll(false); brought == 0 && !p.state.moreDue && !p.lifecycle.stopping() {
		d.Done = true
		p.lifecycle.stop()
	}
	return true
}
