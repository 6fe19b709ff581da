package delayqueue

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"
)

// This file bounds how fast a whole queue goes, over all its consumers. lua/fetch_limit.lua keeps to it.

// Limits bound a whole queue, over all its consumers. Each is off with 0.
type Limits struct {
	// Rate deliveries in each Per, evenly spaced, and up to Burst at once where fewer went before: in no time t are more
	// handed out than Burst + Rate*t/Per.
	Rate  int
	Per   time.Duration
	Burst int

	Concurrency int // handlers that run at a time, and deliveries that wait for one
}

const (
	maxRate  = 1_000_000 // a second, and maxBurst
	maxPer   = 365 * 24 * time.Hour
	rateRule = "needs a rate of at least 1 and at most a million a second, a time of 1ms to 365 days, and a burst of 1 to a million"
)

// ratePer is a time as the scripts know it: in whole us, and not shorter than it is.
func ratePer(per time.Duration) time.Duration {
	return (per + time.Microsecond - 1).Truncate(time.Microsecond)
}

func (l *Limits) validRate() bool {
	return l.Rate > 0 && l.Burst > 0 && l.Burst <= maxRate && l.Per >= minDuration && l.Per <= maxPer &&
		int64(l.Rate) <= l.Per.Microseconds()
}

func (l *Limits) rated() bool { return l.Rate != 0 || l.Per != 0 || l.Burst != 0 }

// String is what l bounds, in words.
func (l Limits) String() string {
	var words []string
	if l.rated() {
		words = append(words, fmt.Sprintf("%d in %v, burst %d", l.Rate, l.Per, l.Burst))
	}
	if l.Concurrency != 0 {
		words = append(words, fmt.Sprintf("%d at a time", l.Concurrency))
	}
	return cmp.Or(strings.Join(words, ", "), "no limit")
}

// text is what scripts get; "" of none.
func (l *Limits) text() string {
	if *l == (Limits{}) {
		return ""
	}
	return fmt.Sprintf("%d %d %d %d", l.Rate, l.Per.Microseconds(), l.Burst, l.Concurrency)
}

// limitsOf reads what a script says, numbers with a blank between; what is none is 0.
func limitsOf(words []string) (l Limits) {
	number := func(i int) int64 {
		if i >= len(words) {
			return 0
		}
		n, _ := strconv.ParseInt(words[i], 10, 64)
		return max(n, 0)
	}
	l = Limits{Rate: int(number(0)), Per: microseconds(number(1)), Burst: int(number(2))}
	if l.Rate == 0 || int64(l.Rate) > number(1) || l.Burst == 0 {
		l = Limits{}
	}
	l.Concurrency = int(number(3))
	return l
}

// WithRateLimit bounds how fast the whole queue is handed out, over all its consumers: n deliveries in each per, evenly
// spaced, and up to burst at once where fewer went before. By the clock of the server, in no time t more than
// burst + n*t/per are handed out. Each delivery counts that leaves the queue, retries, and those that come back unhandled, too.
// What is handed out beyond its TTL or deadline comes to no handler, and does not count.
// What must wait stays in the queue, and one consumer wakes when the next may go. At least one of n, and at most a
// million a second; per 1ms to 365 days; burst 1 to a million.
//
// All consumers of a queue should say the same: the slowest that any of them asks for holds for all, until nobody has asked
// for it in a lease, and who asks for another says so in the log. What Monitor.SetLimits has set goes before it.
func (q *DelayQueue) WithRateLimit(n int, per time.Duration, burst int) *DelayQueue {
	l := Limits{Rate: n, Per: per, Burst: burst}
	return q.set(fmt.Sprintf("WithRateLimit(%d, %v, %d)", n, per, burst), l.validRate(), rateRule+unitHint(per), func(s *settings) {
		s.limits.Rate, s.limits.Per, s.limits.Burst = n, ratePer(per), burst
	})
}

// WithQueueConcurrency bounds how many handlers run at a time, over all consumers; WithConcurrent is
// this one's own. A handler counts until it returns, also past its limit, when its message was canceled, and after a Shutdown that
// gave up. Nothing is locked: what a dead process held is free when its leases have run out. At least 1, and at most
// 2,147,483,647. Consumers of a queue that ask for different ones: see WithRateLimit; the least holds.
func (q *DelayQueue) WithQueueConcurrency(n int) *DelayQueue {
	return q.set(fmt.Sprintf("WithQueueConcurrency(%d)", n), validConcurrency(n), concurrencyRule,
		func(s *settings) { s.limits.Concurrency = n })
}

const concurrencyRule = "needs at least 1 at a time; to stop the queue, use Monitor.Pause"

func validConcurrency(n int) bool { return n > 0 && n <= 1<<31-1 }

// agreedLimits are those that hold for all consumers, as a fetch says.
type agreedLimits struct {
	Limits
	byMonitor bool // has set some of them
	bounded   bool // by any, or throttled
	full      bool // what is due waits for a place
	left      int  // how many more may be handed out now, as far as two fetches reach
}

// limits reads them.
func (r *reply) limits() (l agreedLimits) {
	words := strings.Fields(r.text())
	if len(words) != 0 && len(words) != 6 {
		r.fail("limits %q", words)
		return l
	}
	l.Limits = limitsOf(words)
	if l.bounded = len(words) == 6; l.bounded {
		l.byMonitor = words[4] == "1"
		l.left, _ = strconv.Atoi(words[5])
		l.full, l.left = l.left < 0, max(l.left, 0)
	}
	return l
}

// reportLimits logs when other limits hold than this consumer asks for.
func (p *poller) reportLimits(now agreedLimits) {
	p.overruns.bound(now.Concurrency > 0)
	before := p.limits
	if p.limits = now; now.Limits == before.Limits && now.byMonitor == before.byMonitor {
		return
	}
	here := slog.String("this", p.settings.limits.String())
	switch all := slog.String("all", now.String()); {
	case now.Limits == p.settings.limits:
		p.settings.log.Info("delayqueue: the limits of this queue are those that this consumer asks for", here)
	case now.byMonitor:
		p.settings.log.Info("delayqueue: a Monitor has set limits of this queue", here, all)
	default:
		p.settings.log.Warn("delayqueue: other consumers of this queue ask for other limits: the least that one of them asks for holds for all",
			here, all)
	}
}

// SetLimits sets limits of the queue that go before those that its consumers ask for, until they are set anew, and
// returns those that were set before. A rate and a concurrency are set each by itself: one that is 0 leaves to consumers what
// they ask for, so Limits{} takes back what was set. Consumers obey with the next delivery that is handed out; what they have by
// then they finish.
func (m *Monitor) SetLimits(ctx context.Context, l Limits) (before Limits, err error) {
	switch {
	case l.rated() && !l.validRate():
		return before, m.failed(fmt.Errorf("%w: %v: %s%s", ErrBadOption, l, rateRule, unitHint(l.Per)), "set limits")
	case l.Concurrency != 0 && !validConcurrency(l.Concurrency):
		return before, m.failed(fmt.Errorf("%w: %v: %s", ErrBadOption, l, concurrencyRule), "set limits")
	}
	l.Per = ratePer(l.Per)
	err = m.calls.call(ctx, func(c *caller) (err error) {
		before, err = m.store.setLimits(ctx, c, l)
		return err
	})
	if err != nil {
		return before, m.failed(err, "set limits")
	}
	m.noted(ctx, journalRecord{Act: ActSetLimits, Detail: fmt.Sprintf("%v; before: %v", l, before)})
	return before, nil
}

// Unthrottle lifts what a handler has said with Throttle, and reports whether there was anything to lift. What was put off may
// go at once, as far as limits allow; the message whose handler said it stays due when that said: RunNow brings it sooner.
func (m *Monitor) Unthrottle(ctx context.Context) (lifted bool, err error) {
	err = m.calls.call(ctx, func(c *caller) (err error) {
		lifted, err = m.store.liftThrottle(ctx, c)
		return err
	})
	if err != nil {
		return false, m.failed(err, "unthrottle")
	}
	if lifted {
		m.noted(ctx, journalRecord{Act: ActUnthrottle})
	}
	return lifted, nil
}

// QueueLimits are the limits of a queue, and who says so.
type QueueLimits struct {
	Asked Limits // the least that its consumers ask for, as far as is known
	Set   Limits // with SetLimits
}

// InForce are those that hold.
func (l QueueLimits) InForce() Limits {
	all := l.Asked
	if l.Set.rated() {
		all.Rate, all.Per, all.Burst = l.Set.Rate, l.Set.Per, l.Set.Burst
	}
	if l.Set.Concurrency != 0 {
		all.Concurrency = l.Set.Concurrency
	}
	return all
}

// Limits says which limits the queue has. Whether messages wait for them now, Counts says.
func (m *Monitor) Limits(ctx context.Context) (QueueLimits, error) {
	c, err := m.counts(ctx)
	if err != nil {
		return QueueLimits{}, m.failed(err, "limits")
	}
	return c.limits, nil
}

func (s *store) setLimits(ctx context.Context, c *caller, l Limits) (before Limits, err error) {
	r := s.run(ctx, limitScript, append(c.args(1), l.text()))
	r.int64()
	before = limitsOf(strings.Fields(r.text()))
	return before, r.err("limit")
}

func (s *store) liftThrottle(ctx context.Context, c *caller) (lifted bool, err error) {
	r := s.run(ctx, limitScript, append(c.args(1), "lift"))
	r.int64()
	lifted = r.text() != ""
	return lifted, r.err("limit")
}
