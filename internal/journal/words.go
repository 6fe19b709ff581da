// Package journal has the words of the journal of a queue (ops.JournalEntry). They stand in Redis, so they never
// change.
package journal

import "regexp"

// What a person did to a queue: ops.JournalEntry.Act.
const (
	Pause         = "pause"
	Resume        = "resume"
	Reschedule    = "reschedule"
	RunNow        = "run now"
	Requeue       = "requeue"
	Delete        = "delete"
	ReleaseKey    = "release key"
	Intercept     = "intercept"
	Cancel        = "cancel"
	SetLimits     = "set limits"
	Unthrottle    = "lift throttle"
	DropSequence  = "drop sequence"
	PassSequence  = "pass sequence"
	Skip          = "skip" // SkipToEnd, SkipToGarbage
	AcceptBalance = "accept balance"
	DeleteQueue   = "delete queue"
	StopBulk      = "stop" // StopBulk; the target is the ID of the entry of the call for many

	// Acts on entries of schedules (the module schedule/). The target is the name of the entry.
	SetSchedule    = "set schedule"
	PauseSchedule  = "pause schedule"
	ResumeSchedule = "resume schedule"
	RemoveSchedule = "remove schedule"
	RunSchedule    = "run schedule"
)

// How a call for many stands: ops.BulkState.Phase.
const (
	Running  = "running"
	Finished = "finished"
	Stopped  = "stopped" // by its Progress, StopBulk, or the end of its context
	Failed   = "failed"
)

var inShards = regexp.MustCompile(`\b(\d+) of (\d+) shards\b`)

// InShards says in how many of how many shards a call for many was done, by its error; "" if that names none.
func InShards(failure string) (n, of string) {
	if m := inShards.FindStringSubmatch(failure); m != nil {
		n, of = m[1], m[2]
	}
	return n, of
}
