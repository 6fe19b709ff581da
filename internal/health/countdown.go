package health

import (
	"context"
	"errors"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/message"
	"github.com/go-delayqueue/delayqueue/ops"
)

// A Countdown is a message that waits for the ack of a message that is dead. It is handed out at its own instant, or
// when the dead message is requeued and acked.
type Countdown struct {
	ID     string    // of the message that waits
	Key    string    // of the same
	Left   int       // acks that are missing
	Dead   string    // the id of the message that died last of those whose acks are missing
	Others int       // of these messages that are dead as well, as far as was looked
	Since  time.Time // when Dead died
}

// mostCountdowns bounds how many are looked for at a time.
const mostCountdowns = 10

// Countdowns looks for them among the 100 messages that died last. n are the counts of the queue: mostly they say that
// there can be none.
func Countdowns(ctx context.Context, m *ops.Queue, n *ops.Counts) (all []Countdown, err error) {
	if n.Garbage == 0 || n.Pending+n.Waiting == 0 {
		return nil, nil
	}
	m = ops.Of(m.Monitor()).WithReadLimit(laneBytes)
	page, err := m.List(ctx, delayqueue.StateGarbage, ops.Filter{LatestFirst: true}, "")
	if page == nil { // else perhaps some shards are missing
		return nil, err
	}
	met := map[string]int{} // dead messages, by the keys for which their acks count
	for _, dead := range page.Messages {
		if dead.Counts == "" {
			continue
		}
		if met[dead.Counts]++; met[dead.Counts] > 1 || len(met) > mostCountdowns {
			continue
		}
		waits, err := m.GetKey(ctx, dead.Counts)
		switch {
		case errors.Is(err, delayqueue.ErrNotFound), errors.Is(err, delayqueue.ErrMissingShards):
		case err != nil:
			return nil, err
		case message.SentAt(waits.ID) > dead.At.UnixMicro(): // the key is that of a later message
		case waits.CountdownLeft > 0 && (waits.State == delayqueue.StatePending || waits.State == delayqueue.StateWaiting):
			all = append(all, Countdown{ID: waits.ID, Key: dead.Counts, Left: waits.CountdownLeft, Dead: dead.ID,
				Since: dead.At})
		}
	}
	for i := range all { // more than are missing counted for an earlier message with the key
		all[i].Others = min(met[all[i].Key], all[i].Left) - 1
	}
	return all, nil
}
