package delayqueue

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/userlog"
	"github.com/redis/go-redis/v9"
)

// A Publisher is the sending half of a queue, for a process that does not consume. It sends, takes back (Intercept,
// Cancel), reschedules, and reports events as a DelayQueue does, and is safe for concurrent use.
type Publisher struct {
	producer
}

// NewPublisher makes a Publisher for the queue of this name. It panics as NewQueue does.
func NewPublisher(name string, cli redis.UniversalClient, opts ...QueueOption) *Publisher {
	return &Publisher{newProducer("NewPublisher", name, cli, opts)}
}

// WithDefaultRetryCount sets the retry count of messages that this Publisher sends without
// WithRetryCount. Default 3; 0 means one delivery. How often a message is retried is its sender's to say: the
// setting of a DelayQueue that consumes it does not count. Call it before the first send.
func (p *Publisher) WithDefaultRetryCount(n int) *Publisher {
	if n < 0 {
		panic(fmt.Sprintf("delayqueue: WithDefaultRetryCount(%d): must not be negative", n))
	}
	p.defaultRetries = n
	return p
}

// WithLogger sets the log, which hears of outages while sending; see DelayQueue.WithLogger. Default: slog.Default. Call it
// before the first send.
func (p *Publisher) WithLogger(log *slog.Logger) *Publisher {
	if log == nil {
		panic("delayqueue: WithLogger: the logger must not be nil; for silence use slog.DiscardHandler")
	}
	p.made()
	p.events.log.Store(userlog.Contain(log))
	return p
}

// WithReplicaAck is DelayQueue.WithReplicaAck. Call it before the first send.
func (p *Publisher) WithReplicaAck(n int, timeout time.Duration) *Publisher {
	if !validReplicaAck(n, timeout) {
		panic(fmt.Sprintf("delayqueue: WithReplicaAck(%d, %v): %s", n, timeout, replicaAckRule))
	}
	p.batcher.replicas, p.batcher.replicaTimeout = n, timeout
	return p
}
