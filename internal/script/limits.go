package script

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/message"
)

// This file bounds how fast a whole queue goes, over all its consumers. lua/fetch/limit.lua keeps to it.

// RateLimits are the fields of Limits.
type RateLimits struct {
	Rate        int
	Per         time.Duration
	Burst       int
	Concurrency int
}

const (
	maxRate  = 1_000_000 // a second, and the largest burst
	maxPer   = 365 * 24 * time.Hour
	RateRule = "needs a rate of at least 1 and at most a million a second, a time of 1ms to 365 days, and a burst of 1 " +
		"to a million"
)

// RatePer is a time as the scripts know it: in whole us, and not shorter than it is.
func RatePer(per time.Duration) time.Duration {
	return (per + time.Microsecond - 1).Truncate(time.Microsecond)
}

func (l RateLimits) ValidRate() bool {
	return l.Rate > 0 && l.Burst > 0 && l.Burst <= maxRate && l.Per >= message.MinDuration && l.Per <= maxPer &&
		int64(l.Rate) <= l.Per.Microseconds()
}

func (l RateLimits) Rated() bool { return l.Rate != 0 || l.Per != 0 || l.Burst != 0 }

// String is what l bounds, in words.
func (l RateLimits) String() string {
	var words []string
	if l.Rated() {
		words = append(words, fmt.Sprintf("%d in %v, burst %d", l.Rate, l.Per, l.Burst))
	}
	if l.Concurrency != 0 {
		words = append(words, fmt.Sprintf("%d at a time", l.Concurrency))
	}
	return cmp.Or(strings.Join(words, ", "), "no limit")
}

// text is what scripts get; "" of none.
func (l RateLimits) text() string {
	if l == (RateLimits{}) {
		return ""
	}
	return fmt.Sprintf("%d %d %d %d", l.Rate, l.Per.Microseconds(), l.Burst, l.Concurrency)
}

func limitsOf(words []string) (l RateLimits) {
	n := fourNumbers(words)
	if rate, us, burst := n[0], n[1], n[2]; rate > 0 && rate <= us && burst > 0 {
		l = RateLimits{Rate: int(rate), Per: message.Microseconds(us), Burst: int(burst)}
	}
	l.Concurrency = int(n[3])
	return l
}

const ConcurrencyRule = "needs at least 1 at a time; to stop the queue, use ops.Queue.Pause"

func ValidConcurrency(n int) bool { return n > 0 && n <= 1<<31-1 }

// AgreedLimits are those that hold for all consumers, as a fetch says.
type AgreedLimits struct {
	RateLimits
	BySet   bool // ops.Queue.SetLimits has set some of them
	Bounded bool // by any, or throttled
	Full    bool // what is due waits for a place
	Left    int  // how many more may be handed out now, as far as two fetches reach
}

func (r *reply) limits() (l AgreedLimits) {
	words := strings.Fields(r.text())
	if len(words) != 0 && len(words) != 6 {
		r.fail("limits %q", words)
		return l
	}
	l.RateLimits = limitsOf(words)
	if l.Bounded = len(words) == 6; l.Bounded {
		l.BySet = words[4] == "1"
		l.Left, _ = strconv.Atoi(words[5])
		l.Full, l.Left = l.Left < 0, max(l.Left, 0)
	}
	return l
}

// SetLimits sets limits that go before those of consumers, and returns what they were.
func (s *Store) SetLimits(ctx context.Context, c *Caller, l RateLimits) (before RateLimits, err error) {
	_, text, err := s.set(ctx, c, "limits", l.text())
	return limitsOf(strings.Fields(text)), err
}

// LiftThrottle says whether the queue was throttled.
func (s *Store) LiftThrottle(ctx context.Context, c *Caller) (lifted bool, err error) {
	_, till, err := s.set(ctx, c, "lift")
	return till != "", err
}
