package script

import (
	"cmp"
	"context"
	"math/rand/v2"

	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/redis/go-redis/v9"
)

// This file has the typed call of tick.

// A TickRequest is what a consumer asks of a tick.
type TickRequest struct {
	Again    bool  // this consumer has ticked before
	Seed     int32 // by which it draws; 0: anything
	Bytes    int   // of dead messages that the reply may hold; 0: MaxBatchBytes
	Settings *FetchSettings
}

// PoisonText is kept as the error of a message that was lost too often.
const PoisonText = "message was lost with its consumer too many times in a row"

// A TickReply is what a tick did.
type TickReply struct {
	Now      message.ServerTime
	More     bool // another tick has more to do now
	Lost     int  // leases that ran out
	Overflow int  // messages that were deleted from garbage because there were too many
	Replaced int  // messages that ended because the deliveries that were lost had been superseded
	Dead     []DeadMessage

	Extras
}

// A DeadMessage became poison. Its envelope is "" if there was no room for it.
type DeadMessage struct{ ID, Envelope, Fail string }

// Tick does what is to be done at intervals for all consumers of the queue. A repeat does no harm.
func (s *Store) Tick(ctx context.Context, c *Caller, q TickRequest) (TickReply, error) {
	set := q.Settings
	bytes := cmp.Or(q.Bytes, MaxBatchBytes)
	args := []any{c.ID, q.Again, seedOr(q.Seed), set.Lease.Microseconds(), set.MaxLosses, set.GarbageAge.Microseconds(),
		set.GarbageMax,
		PoisonText, bytes}
	r := s.runAs(ctx, TickScript, args, bytes, redis.NewStringSliceCmd)
	got := TickReply{Now: message.ServerTime(r.int64()), More: r.number() == 1, Lost: r.number(), Overflow: r.number(),
		Replaced: r.number()}
	dead, missing := r.number(), r.number()
	for len(got.Dead) < dead && r.bad == nil {
		got.Dead = append(got.Dead, DeadMessage{r.text(), r.text(), r.text()})
	}
	if got.Replaced < 0 {
		r.fail("%d replaced", got.Replaced)
	}
	got.Extras = r.extras(missing, 0, len(got.Dead))
	return got, r.err("tick")
}

// seedOr is what a script draws by.
func seedOr(seed int32) int32 {
	if seed == 0 {
		return 1 + rand.Int32N(1<<31-2)
	}
	return seed
}
