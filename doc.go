// Package delayqueue gives a service a delay queue on the Redis it already runs: send a
// message now, get it back in a callback when its time has come.
//
//	queue := delayqueue.NewQueue("orders", redisClient, func(payload string) bool {
//		return closeIfUnpaid(payload)
//	})
//	err := queue.SendDelayMsg("order-42", 15*time.Minute)
//	done := queue.StartConsume()
//
// # What is guaranteed
//
//   - At least once: a message that was accepted is delivered until it is acknowledged,
//     taken back, or given up on after its retries. Nothing expires silently.
//   - Never early: no message is handed out before its due instant, by the clock of the
//     Redis server. Clocks of senders and consumers do not matter, but for SendScheduleMsg,
//     which takes the caller's wall clock as it must.
//   - One holder: only the holder of the current delivery can end it. A late result of an
//     older delivery changes nothing.
//   - A consumer that dies costs no retry. Its messages come back when its lease has run out.
//   - A call whose reply was lost is repeated with the effect of once.
//   - What a handler names with Then is sent if and only if its delivery is acked.
//
// # What is not
//
//   - Exactly once: a handler that dies, or is cut off past its lease, may have done its work
//     already when its message comes again. Make handlers repeatable.
//   - Order: messages come in order of due time as well as can be, not strictly. So one that is
//     due now waits behind all that was due before it: what must not wait for a backlog of other
//     work (of another tenant, of a slower kind) belongs in a queue of its own.
//   - More than Redis keeps: what a failover or a crash of Redis loses is lost. WithReplicaAck
//     and appendfsync narrow that.
//   - Eviction: under a maxmemory policy other than noeviction, Redis deletes the queue.
//
// # The life of a message
//
// A message is pending until it is due, ready until a consumer takes it, unacked while it is handled, and gone when it
// is acked, unless WithRetention keeps it for a while with its result (done). After a failure, a snooze or a loss it
// waits for its next delivery (retry). One that was given up on is garbage: no retry is left, the handler returned
// ErrSkipRetry, it was lost with its consumer too often, or its TTL or deadline was over. README.md has a drawing.
// Intercept takes a message out of any of these but unacked and done, Cancel out of unacked as well.
//
// # Keys
//
// All keys of a queue share one hash tag, so they stay in one slot of a Cluster:
// {<prefix>:<name>}:<structure>, prefix dq unless UseCustomPrefix says otherwise. A prefix holds no
// colon, so queues of different prefixes, or of different names, share no key. PROTOCOL.md says what is in each of them.
//
// # Concurrency
//
// All methods of DelayQueue, Pool, Publisher and Monitor are safe for concurrent use, except that
// settings (With…) belong before StartConsume and before the first send. Callbacks and
// handlers are called from as many goroutines as WithConcurrent says. Several queues can share one set of workers, by
// weight or in order: see Pool.
//
// # Beside this package
//
// typed/ has kinds of messages with Go types and a mux, schedule/ periodic messages, delayqueuetest/ a Redis inside a test whose clock
// the test moves.
package delayqueue
