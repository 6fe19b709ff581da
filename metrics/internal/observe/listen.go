package observe

// A Subscription is what something is counted by: a *delayqueue.Subscription or a *schedule.Subscription.
type Subscription = interface {
	Stop()
	Dropped() int64
}

// InstantOutcomes are what can become of an instant of a schedule, and whether it has a message then.
var InstantOutcomes = map[string]bool{"sent": true, "caught up": true, "skipped": false, "expired": false}
