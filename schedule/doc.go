// Package schedule sends messages of a delayqueue again and again: by cron expressions or at intervals, from any number
// of replicas, one message for each instant.
//
//	s := schedule.New(queue) // a DelayQueue or a Publisher
//	err := s.Set(ctx, schedule.Entry{Name: "report", Cron: "0 9 * * 1-5", Zone: "Europe/Berlin", Payload: "daily"})
//	go s.Run(ctx) // on every replica
//
// Nothing elects anybody. Each replica looks once a second, and sends what is due within the next five seconds, due at
// its instant; the queue does the rest. A message has a number in a sequence of its entry (delayqueue.WithSequence), so
// of any number of replicas that send it one stores it, and what was sent last is known after any restart. Now is the
// time of the Redis server: the clocks of replicas do not matter.
//
// Entries are in Redis beside the queue, and any replica sends any of them: a program that has no Set of its own runs
// what others have set. docs/schedules.md has the rules for daylight saving time, missed instants and overlap.
//
// This package may import the core and go-redis; robfig/cron reads the expressions.
package schedule
