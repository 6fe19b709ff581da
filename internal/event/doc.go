// Package event has the codes of what happens to messages, and Listeners, the one interface by which the engine tells of it.
//
// It imports the standard library alone. The face owns the listeners; the engine only calls them. An event must cost one atomic read while
// nobody listens. A listener must never be called under a lock of the engine. Begin with codes.go.
package event
