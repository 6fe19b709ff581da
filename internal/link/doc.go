// Package link is the way to a Redis server: the library's own connections, one bounded attempt at a call, and what an error of an attempt
// means. It is the answer to the question what happens when Redis is slow or gone.
//
// It may import conc and go-redis. It owns the connections of each client and server, and how long attempts wait there. It must never use
// the client's own retries, and never wait for a server without a bound. Begin with attempt.go; redis_errors.go has the meaning of errors.
//
// Rules:
//   - The connections are the library's own. So no stranger can use them up, and a call ends in time by itself. On the user's client a
//     goroutine would have to wait beside each call, because go-redis has no time limit for one call that keeps the hooks.
//   - The client's retries are off. The library repeats a call itself, with its call number.
//   - An attempt waits for a second and the time for its bytes. The second is less if the client's ReadTimeout, or a quarter of the lease of a
//     consumer, is less. After late answers an attempt waits for up to 30 s, and one of a consumer for at most a lease, or 5 s if that is longer.
//   - An attempt's clock starts when it gets a connection. Waiting for a connection is bounded only by the caller's context, and never counts
//     against the server.
//   - Silence makes no bound longer, except for the bytes of large calls (see there). Late answers do: later attempts wait twice as long as the
//     last late answer took, until one comes in time. So if answers were not late before an outage, attempts are at most a second old after it.
//   - Up to three attempts that were given up are still listened to. Their replies only tell how late they are: the call itself is repeated.
//   - Large calls tell the speed of the line. After one that was written and not answered, the next large call has twice the
//     time for its bytes. The doubling is forgotten after half a minute, or when a large call is answered in time.
//   - The bytes of a call are its arguments, and its reply if that is known. A message that a fetch asks for alone has the time for its bytes,
//     up to a lease.
//   - A connection that gave no answer is not trusted, nor are its neighbours. Their pool is retired, waiting callers are woken, and the next
//     attempt takes a fresh connection.
//   - Sends, looks and single acts share at most 64 connections to a server. Consumers have 6, and more if the server is far or none
//     of their calls ends (room.go).
//   - After an error of the network another node of a Cluster is asked who holds the queue, before the next attempt (nodes.go). Its answer
//     holds until the client's own map says something new.
//   - A confirmation by replicas counts only for what was written while a replica was there (replicas.go). A replica that loads its first copy
//     confirms nothing, although servers count it.
//   - Errors, answers and silence of a server are logged as one outage (outage.go), not call by call.
package link
