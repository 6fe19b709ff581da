// Package ops is for a person on call: it finds and changes messages, one or many, sets limits and pauses, and keeps
// a journal of who did what, when and why.
//
//	queue := ops.Of(delayqueue.NewMonitor("orders", redisClient)).WithOperator("ada").WithReason("partner is back")
//	groups, err := queue.ErrorGroups(ctx, delayqueue.StateGarbage, ops.Filter{}, 1000, "") // what goes wrong, by the texts of errors
//	result, err := queue.BulkRequeue(ctx, ops.Bulk{Filter: ops.Filter{ErrorLike: "connection refused"}})
//
// A call for many (BulkRequeue, BulkDelete, …) changes the messages that were there when it began, each of them once.
// A message is changed only if it still is where the call has seen it. A call that was cut off is made again with
// Bulk.Before and does the rest, except BulkRescheduleBy, which would shift messages twice.
package ops
