// Package ops is for a person on call: it finds and changes messages, one or many, sets limits and pauses, and keeps
// a journal of who did what, when and why.
//
//	queue := ops.Of(delayqueue.NewMonitor("orders", redisClient)).WithOperator("ada").WithReason("partner is back")
//	// what goes wrong, by the texts of errors
//	groups, err := queue.ErrorGroups(ctx, delayqueue.StateGarbage, ops.Filter{}, 1000, "")
//	result, err := queue.BulkRequeue(ctx, ops.Bulk{Filter: ops.Filter{ErrorLike: "connection refused"}})
//
// # What each verb does
//
// All others only look. An entry of the journal has the operator and the reason. A call for one message that failed, or
// found nothing to take out, writes nothing.
//
//	verb                             changes                           what is being handled        writes
//	Intercept InterceptKey           a message, in garbage too         stays, State is Unack        journal, event
//	Cancel CancelKey                 a message, in garbage too         is canceled                  journal, event
//	Delete                           a message, dead or done too       ErrWrongState                journal, event
//	Requeue                          a message in garbage              ErrWrongState                journal, event
//	RunNow Reschedule… RescheduleBy  a message that is to be delivered ErrWrongState                journal, event
//	SkipToEnd SkipToGarbage          a message that has a turn         ErrWrongState                journal, event
//	ReleaseKey                       a key that an acked message holds –                            journal
//	BulkDelete                       all that match, in Bulk.States    canceled, if in States       journal, events
//	BulkRequeue BulkRunNow           all that match                    stays; not allowed in States journal, events
//	BulkReschedule…                  all that match                    stays; not allowed in States journal, events
//	StopBulk                         a call for many                   –                            journal
//	Pause PauseFor PauseUntil Resume whether the queue hands out       goes on                      journal, event
//	SetLimits Unthrottle             how much the queue hands out      goes on                      journal
//	DropSequence                     a sequence                        –                            journal
//	PassSequence (WithOperator)      a sequence                        –                            journal
//	AcceptBalance                    the books, no message             –                            journal
//	DeleteQueue                      all but the journal               ErrNotEmpty; force: canceled journal, event
//	Note                             nothing                           –                            journal
//
// A key reaches no message in garbage, because a dead message has none.
//
// The verbs of the same names of a delayqueue.Monitor, DelayQueue and Publisher write no journal.
//
// A call for many (BulkRequeue, BulkDelete, …) changes the messages that were there when it began, each of them once.
// A message is changed only if it still is where the call has seen it. A call that was cut off is made again with
// Bulk.Before and does the rest, except BulkRescheduleBy, which needs Bulk.Cursor to shift no message twice.
package ops
