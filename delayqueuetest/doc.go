// Package delayqueuetest tests what a service does with its queues, on a Redis inside the test whose clock stands
// still until the test moves it: a week of retries in milliseconds, without sleeping, the same each time.
//
//	func TestUnpaidOrdersAreClosed(t *testing.T) {
//		rig := delayqueuetest.New(t)
//		queue := rig.Queue("orders").WithHandler(closeIfUnpaid)
//		queue.SendDelayMsg("42", 15*time.Minute)
//		rig.Advance(15 * time.Minute)
//		rig.RequireEmpty()
//	}
//
// Advance consumes with DelayQueue.Drain, at each instant at which something falls due. Nothing else consumes: queues
// are not started, and a Pool is left out. So is WithShards: a rig knows one shard. docs/testing.md says what there
// is to know.
//
// Time is the server's, which is what decides when a message is due, when a rate allows the next one, when a TTL or a
// deadline is over, how long garbage is kept. Inside handlers it is real: a limit of WithTimeout or
// WithMaxConsumeDuration cuts off who works for so long. So code that asks time.Now, for SendScheduleMsg or
// WithDeadline, should take its clock from whoever makes it, and get Rig.Now; or the whole test runs in a bubble of
// testing/synctest, where all clocks are one.
//
// It imports miniredis, which no program gets that does not import this package. The embedded server is not Redis in
// all: it prints some numbers in another way, and has no replicas, no memory limit and no other users. What matters
// there is tested against a real server.
package delayqueuetest
