// Package schedule sends messages of a delayqueue again and again: by cron expressions or at intervals, from any number
// of replicas, one message for each instant.
//
//	s := schedule.New(queue) // a DelayQueue or a Publisher
//	err := s.Set(ctx, schedule.Entry{Name: "report", Cron: "0 9 * * 1-5", Zone: "Europe/Berlin", Payload: "daily"})
//	go s.Run(ctx) // on every replica
//
// There is no leader. Each replica looks once a second, and sends the messages of the next five seconds, each due at
// its instant. The queue does the rest. A message has a number in a sequence of its entry (delayqueue.WithSequence).
// So if several replicas send a message, one stores it, and the instant that was sent last is known after any
// restart. Now is the time of the Redis server: the clocks of replicas do not matter.
//
// Entries are in Redis beside the queue, and any replica sends any of them. A program that sets no entries runs the
// entries that others have set. docs/schedules.md has the rules for daylight saving time, missed instants and
// overlap.
package schedule
