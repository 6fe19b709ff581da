// Package link is the way to a Redis server: the library's own connections, one bounded attempt at a call, and what an
// error of an attempt means. It is the answer to the question what happens when Redis is slow or gone.
//
// It may import conc and go-redis. It owns the connections of each client and server. It must never use the client's
// own retries, and never wait for a server without a bound. Begin with attempt.go; redis_errors.go has the meaning of
// errors.
//
// Rules:
//   - The connections are the library's own. So no stranger can use them up, and a call ends in time by itself. On the
//     user's client a goroutine would have to wait beside each call, because go-redis has no time limit for one call.
//   - The client's retries are off. The library repeats a call itself, with its call number.
//   - An attempt has one bound: a second, or less (attempt.go), a second for each MB, and the time of WAIT
//     (Effort.Extra).
//   - An attempt's clock starts when it gets a connection. Waiting for a connection is bounded only by the caller's
//     context, and never counts against the server.
//   - A connection that gave no answer is not trusted, nor are its neighbours. Their pool is retired, waiting callers
//     are woken, and the next attempt takes a fresh connection. Pools of other nodes stay.
//   - Sends, looks and single acts share at most 64 connections to a server. Consumers share as many others.
//   - The user's client says which node of a Cluster holds a queue. After an error of the network it asks the nodes
//     again.
//   - Errors, answers and silence of a server are logged as one outage (outage.go), not call by call.
package link
