// Package conc has the small tools of concurrency that the engine shares: a signal, an unbounded mailbox between goroutines, an
// instant of the monotonic clock, a count for the log, and a timeout that many calls share. Begin with sync.go.
//
// It imports the standard library alone. Each value owns its own state, and its comment says which methods are safe for concurrent use.
// No code of a user is called here, and no goroutine lives longer than the value that started it: a mailbox's reader starts with the
// first item, and ends when there has been none for a second or two. Nothing in it knows of messages or of Redis.
package conc
