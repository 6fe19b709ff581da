package consume

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/clock"
	"github.com/go-delayqueue/delayqueue/internal/link"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/internal/script"
)

// Settings are what a consumer is told when it starts. It keeps a copy. The functions are the user's, or call the
// user's code.
type Settings struct {
	Base context.Context // the parent of every handler's context

	// Handle calls the handler, and says what its result means. If it is nil, Callback is called, without a context.
	Handle   func(context.Context, *message.Delivered) Verdict
	Callback func(payload string) (consumed bool)

	OnError    func(context.Context, *message.Delivered, error)                    // nil: none
	OnGarbage  func(context.Context, *message.Delivered, error)                    // nil: none
	DelayAfter func(failures int, err error, msg *message.Delivered) time.Duration // nil: DefaultDelay
	OnStored   func(
		soonest time.Duration) // is told how soon the first message that follows another is due; nil: none

	Workers       int           // of a consumer that does not share them with other queues
	FetchInterval time.Duration // 0: lookInterval, or longer while the consumer is idle
	FetchLimit    int           // 0: as many as the workers need
	MaxBytes      int           // 0: any number
	Limit         time.Duration // 0: none
	script.FetchSettings
	DoneMax    int               // messages that are done; 0: any number
	KindHeader string            // whose value is the kind by which handlers are counted; "": they are not
	Limits     script.RateLimits // that this consumer asks for, of the whole queue
	Log        *slog.Logger      // names the queue

	// Of all consumers of a queue, each of which has a shard:
	ID     string       // "": there is one
	Outage *link.Outage // nil: that of the one

	Drains bool  // the consumer ends when nothing is due
	seed   int32 // of random choices; 0: any. Else the clock stands still (delayqueuetest), and nothing is left to chance
}

// Step makes settings those of a rig: one message after the other, in order, and the longest delay where a delay is
// drawn. Handlers find the rig's clock in their contexts.
func (s *Settings) Step(now func() time.Time) {
	s.seed = 1
	s.Workers, s.FetchLimit = 1, 1
	s.Base = clock.With(s.Base, now)
	if s.DelayAfter == nil {
		s.DelayAfter = func(failures int, _ error, _ *message.Delivered) time.Duration { return longestDelay(failures) }
	}
}

// steppedAttempt is how long a stepped attempt at a call may take. A machine that is slow for a moment is no reason
// to give a message up.
const steppedAttempt = time.Minute

// DefaultDelay is exponential backoff with equal jitter, half fixed and half at random.
// https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
func DefaultDelay(n int) time.Duration {
	d := longestDelay(n)
	return d/2 + rand.N(d/2+1)
}

func longestDelay(n int) time.Duration { return min(time.Second<<min(max(n, 0), 30), 10*time.Minute) }

// guard calls a function of the user's. A panic in it is logged, and does not end the process.
func (s *Settings) guard(what string, message slog.Attr, f func()) {
	defer func() {
		if p := recover(); p != nil {
			s.Log.Error("delayqueue: "+what+" panicked", message, slog.Any("panic", p),
				slog.String("stack", string(debug.Stack())))
		}
	}()
	f()
}
