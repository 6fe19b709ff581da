// Package event has the codes of what happens to messages, and Listeners, the one interface by which the engine tells
// of it.
//
// It imports the standard library alone. The face owns the listeners; the engine only calls them. An event must cost
// one atomic read while nobody listens. A listener must never be called under a lock of the engine.
package event

import (
	"log/slog"
	"time"
)

// A Code says what happened to messages. The numbers never change, because events are read on other machines.
type Code int

// What can happen to a message.
const (
	CodeNew Code = iota + 1
	CodeReady
	CodeDelivered
	CodeAck
	CodeNack
	CodeRetry
	CodeFinalFailed
	CodeLost
	CodeIntercepted
	CodeVanished
	CodeRescheduled
	CodeRequeued
	CodeDeleted
	CodePaused
	CodeResumed
	CodeQueueDeleted
	CodeGap
	CodeRefused
	CodeSuperseded
	CodeRolledBack
)

// Listeners are told what happens to the messages of one queue in this process.
type Listeners interface {
	// On reports whether anybody listens. If nobody does, Tell does nothing.
	On() bool
	// Tell says that the same thing happened to n messages. If ids are given, they are those of the messages.
	Tell(what Code, n int, ids ...string)
	// RolledBack says that the server has forgotten n sends and acks at most, which were since an instant (zero: not
	// known).
	RolledBack(n int, since time.Time)
	// Logger is the log of the queue.
	Logger() *slog.Logger
}
