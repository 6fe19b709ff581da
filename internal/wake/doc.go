// Package wake waits for the wake markers of queues, so that a message is fetched when it is due and nobody polls for
// it.
//
// It may import script, link, message and conc. A line owns one connection and the one BZPOPMIN on it; a queue's
// listener owns the marker that it got until its poller has it. A marker must never be lost without a trace: a
// process that took it serves it, or hands it on. Without markers everything works, at most a fetch interval later.
// Begin with wake.go.
//
// Rules:
//   - The queues of one client on one server share at most 8 connections to wait on. Each BZPOPMIN names the queues
//     that ask now, so a marker is taken on request only.
//   - A queue that begins to ask, or leaves, while a call is under way has the call interrupted, over another
//     connection. Connection ids are per server, so the interrupt is sent only when both connections certainly reach
//     the same server.
//   - A queue that has left waits for the end of the call that named it, before its alarm is handed on. The last
//     queue of a connection closes it in one direction, and waits until the server has closed the other.
//   - A key that is refused is asked for alone, so that its queue's trouble is not the others'.
package wake
