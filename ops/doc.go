// Package ops is for a person on call: it looks at a queue, changes one message or many, sets limits and pauses, and keeps the journal.
//
// It may import the root and internal/{script,link,message,conc,userlog}; the root and the engine never import ops. Redis owns all state of
// a queue. A call for many owns its progress, which stands in its entry of the journal, and only ops writes the journal. A call must never
// do unbounded work on the server, or change a message that came after it began. Begin with queue.go. pause.go stops and resumes a queue,
// limits.go slows it, steer.go changes one message, bulk.go many, find.go and list.go look, and journal.go says who did what. consumers.go,
// history.go, forecast.go, sequences.go, lanes.go and groups.go show what goes on, status.go has a message as it is shown, and
// queues.go finds queues.
//
// Rules:
//   - A call for many changes the messages that were there when it began, each of them once. The server's instant of its first page, or
//     Bulk.Before, is the bound. It is compared with the time of death in garbage, with the instant in the fail record in retry and ready,
//     with the time in the id in pending, and with both in waiting.
//   - A message is changed only if it still has the tag and the score that the list gave it.
//   - A structure is gone through against the direction in which messages move, so no message is met again where it has gone to. The
//     call ends behind the last message that was there, however fast others come in.
//   - A call for many that was cut off is made again with Before, except BulkRescheduleBy, which would shift messages twice.
//   - Who acted, and why, is written after the act, by a call of its own; of a call for many, before. A user without
//     the right to write the journal may act all the same.
package ops
