// Package delayqueue gives a service a delay queue on the Redis that it already runs: send a
// message now, and a callback gets the message when its time has come.
//
//	queue := delayqueue.NewQueue("orders", redisClient, func(payload string) bool {
//		return closeIfUnpaid(payload)
//	})
//	err := queue.SendDelayMsg("order-42", 15*time.Minute)
//	done := queue.StartConsume()
//
// # What is guaranteed
//
//   - At least once: an accepted message is delivered until it is acknowledged, taken back, or given up on
//     (no retry is left, ErrSkipRetry, poison, its TTL or deadline is over). No message that waits expires silently.
//   - Never early: no message is handed out before its due instant, by the clock of the Redis server. The clocks of
//     senders and consumers do not matter. SendScheduleMsg and WithSchedule name an instant of the server's clock, so
//     an instant that a caller makes with time.Now is wrong by the difference of the two clocks.
//   - One holder: while its lease lasts, no other consumer can end the delivery of its holder. A late result of an
//     older delivery changes nothing.
//   - A consumer that dies costs no retry. Its messages come back when their leases have run out.
//   - A change whose reply was lost is repeated until its context ends (except ops.Queue.DeleteQueue). All repeats
//     within an hour have the effect of one call.
//   - Messages of a lane (WithLane) are handled in order, and at most so many at a time as its width says, as far as
//     their leases last.
//   - The books balance: what ever entered a queue has left it by a cause that is counted, or is in it.
//     ops.Queue.Balance says how many messages have vanished without a word, and a RolledBackEvent that the server has
//     gone back to an earlier state.
//   - A message that a handler names with Then is sent only if its delivery is acked, in the same step. An ack counts
//     in the same step, and once, for the message that waits for it (WithCountdown).
//
// # What is not
//
//   - Exactly once: a handler that dies, or is cut off past its lease, may have done its work
//     already when its message comes again (docs/life.md lists all causes). Make handlers repeatable.
//   - Order, except in a lane (WithLane): messages come in order of due time as well as can be, not strictly. A
//     message that is due now waits behind all that were due before it. Work that must not wait for other work (of
//     another tenant, of a slower kind) belongs in a lane, or in a queue of its own.
//   - More than Redis keeps: Redis may lose messages in a failover or a crash. WithReplicaAck
//     and appendfsync narrow that.
//   - Eviction: under a maxmemory policy of allkeys Redis may delete the queue, and under volatile what has a time to
//     live: set noeviction.
//
// # The life of a message
//
// A message is pending until it is due, ready until a consumer takes it, unacked while a consumer has it, and gone
// when it is acked. WithRetention keeps it for a while with its result instead (done). After a failure, a snooze or a
// loss it waits for its next delivery (retry). Behind other messages of its lane it is waiting. A message that was
// given up on is garbage: no retry is left, the handler returned ErrSkipRetry, the message was lost with its consumer
// too often, or its TTL or deadline was over. docs/life.md has a drawing. Intercept takes a message out of any state
// but unacked and done. Cancel takes it out of unacked, too.
//
// # Keys
//
// All keys of a queue share one hash tag, so they stay in one slot of a Cluster: {<prefix>:<name>}:<structure>. The
// prefix is dq unless UseCustomPrefix sets another. A prefix holds no colon, so queues of different prefixes, or of
// different names, share no key. A queue with several shards (WithShards) has keys in several slots, under names that
// end in a slash and digits. docs/redis.md describes each key.
//
// # Goroutines
//
// All methods of DelayQueue, Pool, Publisher and Monitor are safe for concurrent use. Settings (With…) are the
// exception: they belong before StartConsume and before the first send. Callbacks and handlers are called from as
// many goroutines as WithConcurrent says, and from up to twice as many if some run past their limit. Several queues
// can share one set of workers, by weight or in order: see Pool.
//
// # Beside this package
//
//   - ops/ finds, changes and pauses: it is for a person on call.
//   - typed/ has kinds of messages with Go types, and a mux.
//   - schedule/ has periodic messages.
//   - delayqueuetest/ has a Redis inside a test, whose clock the test moves.
package delayqueue
