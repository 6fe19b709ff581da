// Package consume runs consumers: a consumer polls, fetches, divides workers, renews leases, calls the handler and
// settles outcomes.
//
// It may import wake, shard, script, link, message, event, conc and clock. The face gives it Settings, which are
// functions and numbers. It must never call a user's code under a lock, and no goroutine may outlive Done, except one
// whose handler runs on past its time limit. Begin with consumer.go; conclude in delivery.go makes an outcome of what
// the face says of a handler's error.
//
// The parts of a consumer, and what flows between them:
//
//	wake listener ──marker──► poller ◄──freed── workers, leases
//	                            │ ▲  ◄──more── settler: what it settled lets messages go
//	                            │ └── how many to ask for (room, shares.go)
//	          Redis ◄──fetch────┤
//	                            ├──add───► leases: held until settled, renewed every third of a lease
//	                            ├──settle──────────────────────────────────────┐ what no handler should see
//	                            ▼ buffer                                       ▼
//	                   buffer of the member ──next──► worker ──outcome──► settler ──settle──► Redis
//	                                                   │   │                 │ └──remove──► leases
//	                                 Handle, verdict ◄─┘   ▼                 ▼ garbage
//	                                                                      notices ──► garbage handler
//
// Consumer.run is always a goroutine, and polls. The settler and the notices are goroutines while they have something
// to read. Leases are a timer while anything is held. A worker is a goroutine while it has a delivery. Package wake has
// the connections that wait for markers.
//
// Who owns which state:
//   - The poller owns when to fetch, and what it knows of the queue (pollState).
//   - Workers own the buffers, and who is next (turn). Several queues share them in a Pool, and each consumer has a
//     member of them.
//   - Leases own the list of what is held, the settler the outcomes on their way.
//   - The fate of a delivery changes once from open. Worker, leases, the timer of the time limit, and Shutdown race
//     for that change, and the winner does what follows. That is why nothing is settled twice from one process.
//
// Locks: DelayQueue.mu is taken before Run.mu, that before Workers.mu, and leases.mu before heldList.mu. No other
// two locks of this package are held together. Nothing is logged under a lock, because a log may wait for a second.
//
// Rules:
//   - The user's code may do anything: panic, end its goroutine, hang, keep its message. So it is called under call
//     or guard, gets copies, and what must happen afterwards happens in a defer.
//   - A consumer that takes the marker serves it. It keeps the marker through a poll that was a bit early, and sets
//     the alarm for others if it has no free worker, or stops.
//   - When a lease ends, nothing happens at that instant. A fetch of any consumer finds it, whose tick takes the
//     delivery back, or after a grace a later one. Until then the holder may renew or settle it. If Redis does not
//     answer its renewals, the holder cancels its handlers when the lease is over by its own clock.
//   - Workers belong to the DelayQueue or the Pool, not to a consumer. A handler that runs on past its time limit
//     is replaced by a new worker. One queue has at most twice as many handlers as workers that way.
//   - No worker is free while a queue has something for it, but for a fetch that is under way. Each queue fetches
//     ahead what its workers handle in two of its own round trips. A fetch of one queue of a pool may wait for that
//     of another, until an attempt has failed.
//   - A reply that does not come through is asked for again with less in it. A large message that does not come
//     through alone counts a loss. A message in garbage or stuck in a handler holds up no other. One on its last
//     chance holds up others for two leases at most, and for half of the time (alone.go).
//   - After a stop, only what may have happened is waited for. A fetch that was never written is given up. A fetch
//     whose fate is unknown is repeated for a lease.
//
// Stopping, in this order: the poller (nothing more is fetched; it releases the buffer), the wake listener, the
// workers as their handlers finish, the settler when all outcomes are out, leases, the garbage handler, done.
// Handlers and the settler need leases, so leases end after both. The last settlement may make garbage, so the
// garbage handler ends last.
package consume
